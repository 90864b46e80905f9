"""Tables of rows and of time series, and rows as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chainapi._text import printable
from chainapi.models.exact_json import ascii_json
from chainapi.models.metrics import MetricPoint

__all__ = ["Lines", "RowTable", "cell", "print_series"]

WIDEST_CELL = 24  # characters
SERIES_WIDTH = 14
BATCH = 50  # rows of a table that are laid out together


def cell(text: str, style: str = "") -> Text:
    """Return a cell's text: no markup of rich, control characters as escapes."""
    return Text(printable(text), style=style)


def print_series(console: Console, series: Mapping[str, Sequence[MetricPoint]]) -> None:
    """Print series side by side, as many as the console is wide."""
    chains = list(series)
    dates = {point.timestamp: _date_text(point.timestamp) for points in series.values() for point in points}
    room = max(1, console.width - max(map(len, dates.values()), default=0) - 2)
    abreast = max(1, (room + 2) // (SERIES_WIDTH + 2))
    for first in range(0, len(chains), abreast):
        shown = {chain: series[chain] for chain in chains[first : first + abreast]}
        console.print(_side_by_side(shown, dates, min(SERIES_WIDTH, room)))


def _side_by_side(series: Mapping[str, Sequence[MetricPoint]], dates: Mapping[int, str], width: int) -> Table:
    """Return a table with a column of at least `width` characters for each series.

    Where a console is too narrow, texts continue in the next line: a number that is cut is another number.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("time", overflow="fold")
    for chain in series:
        table.add_column(cell(chain), justify="right", min_width=width, overflow="fold")
    cells = [{point.timestamp: point for point in points} for points in series.values()]
    for timestamp in sorted({stamp for points in cells for stamp in points}, reverse=True):
        values = (points.get(timestamp) for points in cells)
        table.add_row(dates[timestamp], *("" if value is None else _figure(value.value) for value in values))
    return table


def _figure(value: float) -> str:
    """Return a value with two decimals, or with an exponent if it is too wide."""
    return f"{value:,.2f}" if abs(value) < 1e9 else f"{value:.6g}"


def _date_text(timestamp: int) -> str:
    """Return the date and the time in UTC, the date alone at midnight."""
    try:
        return MetricPoint(timestamp, 0.0).time.strftime("%Y-%m-%d %H:%M:%S").removesuffix(" 00:00:00")
    except (ValueError, OverflowError):  # no date
        return str(timestamp)


@frozen
class Lines:
    """Writer of rows as lines of JSON."""

    write: Callable[[object], None]

    def add(self, row: object) -> None:
        """Write a row."""
        self.write(row)

    def close(self) -> None:
        """Do nothing: every row is written at once."""


@define(eq=False)
class RowTable:
    """Writer of rows as a table that fits the console.

    It prints in batches, so that memory does not grow with the list.
    """

    console: Console
    _rows: list[Any] = field(factory=list)
    _columns: dict[str, int] = field(factory=dict[str, int])  # widths
    _more: list[str] = field(factory=list[str])
    _begun: bool = False

    def add(self, row: object) -> None:
        """Add a row, and print the batch when it is full."""
        self._rows.append(row)
        if len(self._rows) == BATCH:
            self.flush()

    def flush(self) -> None:
        """Print the rows of the batch."""
        rows = [row if isinstance(row, dict) else {"value": row} for row in self._rows]
        self._rows.clear()
        if not rows:
            return
        if not self._begun:
            self._lay_out(rows)
        table = Table(
            *(Column(cell(name), width=width, no_wrap=True) for name, width in self._columns.items()),
            box=None,
            show_header=not self._begun,
            pad_edge=False,
            header_style="bold",
        )
        for row in rows:
            table.add_row(*(cell(_text_of(row.get(name))) for name in self._columns))
        self.console.print(table)
        self._begun = True

    def close(self) -> None:
        """Print the rest, and the names of fields without a column."""
        self.flush()
        if self._more:
            self.console.print(cell(f"more fields, with --json: {', '.join(self._more)}", "dim"))

    def _lay_out(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Choose the columns: the first fields without objects and lists, as many as fit."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        room = self.console.width
        for name in names:
            values = [row.get(name) for row in rows]
            texts = map(printable, (name, *map(_text_of, values)))
            width = min(WIDEST_CELL, max(map(cell_len, texts)))
            if any(isinstance(value, dict | list) for value in values) or (width > room and self._columns):
                self._more.append(name)
            else:
                self._columns[name] = width
                room -= width + 2


def _text_of(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return ascii_json(value)
