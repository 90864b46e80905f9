"""What a person sees: the terminal, live progress, tables, sparklines."""

from __future__ import annotations

import json
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import UnsupportedOperation
from itertools import pairwise
from os import fstat
from typing import Any, NoReturn, TextIO

from attrs import define, field, frozen
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from chainapi.core.events import (
    Event,
    PageReceived,
    RequestSent,
    ResponseReceived,
    WaitBegan,
    WaitEnded,
)
from chainapi.models.metrics import MetricPoint
from chainapi.session import Session

__all__ = [
    "Lines",
    "Progress",
    "RowTable",
    "Terminal",
    "clean",
    "counted",
    "print_series",
    "sparkline",
    "standard",
]

WORTH_TELLING = 1.0  # seconds: shorter waits are over before they are read
WIDEST_CELL = 24  # characters
SERIES_WIDTH = 14
BATCH = 50  # rows of a table that are laid out together
BARS = "▁▂▃▄▅▆▇█"


class _Console(Console):
    """A console that leaves a closed pipe to its caller."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise it again; the default would end the process here."""
        raise BrokenPipeError


@define(eq=False)
class Waits:
    """The waits for one service; times are seconds on the clock of `Progress`."""

    since: float | None = None
    until: float = 0.0
    over: float = 0.0

    def began(self, now: float, seconds: float) -> None:
        """Note a wait, or that the one under way lasts longer."""
        self.since = now if self.since is None else self.since
        self.until = max(self.until, now + seconds)

    def ended(self, now: float) -> None:
        """Note that requests leave again."""
        if self.since is not None:
            self.over += now - self.since
            self.since = None

    def left(self, now: float) -> float:
        """Return the seconds that are still to be waited."""
        return 0.0 if self.since is None else max(0.0, self.until - now)


@define(eq=False)
class Progress:
    """Counts the events of a session; `clock` gives seconds."""

    clock: Callable[[], float]
    requests: Counter[str] = field(factory=Counter[str])
    refused: Counter[str] = field(factory=Counter[str])
    pages: Counter[str] = field(factory=Counter[str])
    rows: Counter[str] = field(factory=Counter[str])
    waits: Mapping[str, Waits] = field(factory=lambda: {"metrics": Waits(), "data": Waits()})

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case RequestSent():
                self.requests[event.service] += 1
            case ResponseReceived(status=429):
                self.refused[event.service] += 1
            case PageReceived():
                self.pages[event.where] += 1
                self.rows[event.where] += event.rows
            case WaitBegan():
                self.waits[event.service].began(self.clock(), event.seconds)
            case WaitEnded():
                self.waits[event.service].ended(self.clock())

    def waiting(self) -> Iterator[tuple[str, float]]:
        """Give each service that is waited for, and the seconds left."""
        now = self.clock()
        for service, waits in self.waits.items():
            if left := waits.left(now):
                yield service, left

    def line(self) -> str:
        """Say in one line how far it is."""
        parts = [
            counted(self.pages.total(), "page"),
            counted(self.rows.total(), "row"),
            counted(self.requests.total(), "request"),
        ]
        parts += [f"{service}: rate limit, on in {left:.1f} s" for service, left in self.waiting()]
        return " · ".join(parts)


@frozen(eq=False)
class Terminal:
    """Where a command writes, and how it makes its session: data to `out`, everything else to `err`."""

    out: TextIO
    err: TextIO
    session: Callable[..., Session] = Session
    console: Console = field(init=False)
    messages: Console = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "console", _Console(file=self.out, highlight=False))
        object.__setattr__(self, "messages", _Console(file=self.err, highlight=False))

    @property
    def interactive(self) -> bool:
        """Whether a person reads `out`."""
        return self.out.isatty()

    def line(self, value: object) -> None:
        """Write one line of JSON, at once: who reads it need not wait for the next page."""
        self.out.write(json.dumps(value) + "\n")
        self.out.flush()

    def complain(self, message: object) -> None:
        """Write one line for people, whatever the message holds."""
        self.tell(clean(" ".join(str(message).split())))

    def tell(self, line: str) -> None:
        """Write one line for people as it is."""
        self.err.write(f"chainapi: {line}\n")
        self.err.flush()

    def rows(self, *, json: bool) -> RowTable | Lines:
        """Return what prints rows: as a table for a person, else as lines of JSON."""
        return Lines(self) if json or not self.interactive else RowTable(self.console)

    @contextmanager
    def watch(self, progress: Progress) -> Iterator[Callable[[Event], None]]:
        """Show the progress while the block runs; give what takes in the events."""

        def tell(event: Event) -> None:
            progress(event)
            if isinstance(event, WaitBegan) and event.seconds >= WORTH_TELLING:
                self.complain(f"{event.service}: rate limit reached, on in {event.seconds:.0f} s")

        if not self.err.isatty() or _is_pipe(self.out):
            yield tell
            return
        with self.live(lambda: Text(progress.line(), style="dim"), transient=True):
            yield progress

    def live(self, render: Callable[[], RenderableType], *, transient: bool = False) -> Live:
        """Return a display that draws itself again and again."""
        console = self.console if self.interactive else self.messages
        return Live(
            get_renderable=render,
            console=console,
            transient=transient,
            refresh_per_second=10,
            redirect_stdout=False,
            redirect_stderr=False,
        )


def standard() -> Terminal:
    """Return the terminal of this process."""
    return Terminal(sys.stdout, sys.stderr)


def _is_pipe(stream: TextIO) -> bool:
    """Tell whether another program reads the stream: it may write to the terminal that we would draw on."""
    try:
        return not stream.isatty() and not stat.S_ISREG(fstat(stream.fileno()).st_mode)
    except UnsupportedOperation:
        return True


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: 1 page, 2,000 pages."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def clean(text: str) -> str:
    """Return the text without control characters: what a service sends must not steer the terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the values as `width` bars at most, each the mean of its share."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [index * len(values) // width for index in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, span = min(means), max(means) - min(means)
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1)) if span else 0] for mean in means)


def print_series(console: Console, series: Mapping[str, Sequence[MetricPoint]]) -> None:
    """Print the series side by side, as many as fit; each below its name and its course."""
    chains = list(series)
    abreast = max(1, (console.width - 10) // (SERIES_WIDTH + 2))
    for first in range(0, len(chains), abreast):
        _print_abreast(console, {chain: series[chain] for chain in chains[first : first + abreast]})


def _print_abreast(console: Console, series: Mapping[str, Sequence[MetricPoint]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("time", no_wrap=True)
    for chain, points in series.items():
        header = Text(clean(chain))
        if not console.options.ascii_only:
            drawn = sparkline([point.value for point in reversed(points)], SERIES_WIDTH)
            header.append(f"\n{drawn}", style="cyan")
        table.add_column(header, justify="right", min_width=SERIES_WIDTH)
    cells = [{point.timestamp: point for point in points} for points in series.values()]
    for timestamp in sorted({stamp for points in cells for stamp in points}, reverse=True):
        values = (points.get(timestamp) for points in cells)
        table.add_row(
            _moment(timestamp), *("" if value is None else f"{value.value:,.2f}" for value in values)
        )
    console.print(table)


def _moment(timestamp: int) -> str:
    """Return the time as a person reads it: midnight is left out."""
    try:
        return MetricPoint(timestamp, 0.0).time.strftime("%Y-%m-%d %H:%M:%S").removesuffix(" 00:00:00")
    except OverflowError:
        return str(timestamp)


@frozen
class Lines:
    """Prints rows as lines of JSON."""

    terminal: Terminal

    def add(self, row: object) -> None:
        """Print a row."""
        self.terminal.line(row)

    def close(self) -> None:
        """Nothing is held back."""


@define(eq=False)
class RowTable:
    """Prints rows as a table that fits the console, batch by batch, so that a long list needs no memory."""

    console: Console
    _rows: list[Any] = field(factory=list)
    _columns: dict[str, int] = field(factory=dict[str, int])  # widths
    _more: list[str] = field(factory=list[str])
    _begun: bool = False

    def add(self, row: object) -> None:
        """Take in a row."""
        self._rows.append(row)
        if len(self._rows) == BATCH:
            self.flush()

    def flush(self) -> None:
        """Print what was taken in."""
        rows = [row if isinstance(row, dict) else {"value": row} for row in self._rows]
        self._rows.clear()
        if not rows:
            return
        if not self._begun:
            self._lay_out(rows)
        table = Table(
            *(Column(name, width=width, no_wrap=True) for name, width in self._columns.items()),
            box=None,
            show_header=not self._begun,
            pad_edge=False,
            header_style="bold",
        )
        for row in rows:
            table.add_row(*(Text(clean(_cell(row.get(name)))) for name in self._columns))
        self.console.print(table)
        self._begun = True

    def close(self) -> None:
        """Print the rest, and name the fields that found no place."""
        self.flush()
        if self._more:
            names = clean(", ".join(self._more))
            self.console.print(Text(f"more fields, with --json: {names}", style="dim"))

    def _lay_out(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Choose the columns: the first fields with simple values, as many as fit."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        room = self.console.width
        for name in names:
            cells = [row.get(name) for row in rows]
            width = min(WIDEST_CELL, max(len(text) for text in (name, *map(_cell, cells))))
            if any(isinstance(cell, dict | list) for cell in cells) or (width > room and self._columns):
                self._more.append(name)
            else:
                self._columns[name] = width
                room -= width + 2


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value)
