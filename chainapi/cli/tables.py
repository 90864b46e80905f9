"""Tables of rows as they arrive, and of a few rows that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define, field
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Column, Table
from rich.text import Text

from chainapi._text import printable
from chainapi.cli.terminal import Terminal
from chainapi.models.exact_json import ascii_json

__all__ = ["RowTable", "cell", "row_writer", "table_of"]

WIDEST_CELL = 25  # characters: a time with its zone
BATCH = 50  # rows of a table that are laid out together


def cell(text: str, style: str = "") -> Text:
    """Return a cell's text: no markup of rich, control characters as escapes."""
    return Text(printable(text), style=style)


def table_of(names: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: int = 0) -> Table:
    """Return a table without the columns that are empty in each row.

    The last `right` columns have numbers. Without names there is no header. In a narrow console texts
    continue in the next line: a number that is cut is another number.
    """
    cells = [[one if isinstance(one, Text) else cell(one) for one in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(names))
    filled = [place for place in range(len(names)) if any(row[place].plain for row in cells)]
    for place in filled or range(len(names)):
        justify: JustifyMethod = "right" if place >= len(names) - right else "left"
        table.add_column(cell(names[place]), justify=justify, overflow="fold")
    for row in cells:
        table.add_row(*(row[place] for place in filled))
    return table


@define(eq=False)
class RowTable:
    """Writer of rows as a table that fits the console.

    It prints in batches, so that memory does not grow with the list.
    """

    console: Console
    _rows: list[Mapping[str, Any]] = field(factory=list[Mapping[str, Any]])
    _widths: dict[str, int] | None = None  # of the columns; None before the first batch
    _more: set[str] = field(factory=set[str])

    def add(self, row: object) -> None:
        """Add a row, and print the batch when it is full."""
        self._rows.append(row if isinstance(row, dict) else {"value": row})
        if len(self._rows) == BATCH:
            self._flush()

    def close(self) -> None:
        """Print the rest, and the names of fields without a column."""
        if self._rows:
            self._flush()
        if self._more:
            self.console.print(cell(f"more fields, with --json: {', '.join(sorted(self._more))}", "dim"))

    def _flush(self) -> None:
        """Print the rows of the batch."""
        first = self._widths is None
        widths = self._widths = self._laid_out() if self._widths is None else self._widths
        names = (Column(cell(name), width=width, no_wrap=True) for name, width in widths.items())
        table = Table(*names, box=None, show_header=first, pad_edge=False, header_style="bold")
        for row in self._rows:
            table.add_row(*(cell(_text_of(row.get(name))) for name in widths))
            self._more |= {name for name, value in row.items() if name not in widths and _text_of(value)}
        self._rows.clear()
        self.console.print(table)

    def _laid_out(self) -> dict[str, int]:
        """Return the widths of columns: the first fields that have simple values and fit."""
        widths, room = dict[str, int](), self.console.width
        for name in dict.fromkeys(name for row in self._rows for name in row):
            values = [row.get(name) for row in self._rows]
            texts = [printable(_text_of(value)) for value in values]
            width = min(WIDEST_CELL, max(map(cell_len, (printable(name), *texts))))
            simple = any(texts) and not any(isinstance(value, dict | list) for value in values)
            if simple and (width <= room or not widths):
                widths[name] = width
                room -= width + 2
        return widths


@contextmanager
def row_writer(terminal: Terminal, *, table: bool) -> Iterator[Callable[[object], None]]:
    """Yield a function that prints a row, as a row of a table or as a line of JSON."""
    if not table:
        yield terminal.line
        return
    writer = RowTable(terminal.console)
    try:
        yield writer.add
    finally:
        writer.close()


def _text_of(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return ascii_json(value)
