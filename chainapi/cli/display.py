"""What a person sees: the terminal, live progress, tables, sparklines."""

from __future__ import annotations

import asyncio
import shlex
import stat
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from io import StringIO, UnsupportedOperation
from itertools import pairwise
from os import fstat
from typing import Any, NoReturn, TextIO

from attrs import define, field, frozen
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from chainapi._text import printable
from chainapi.core.events import (
    Event,
    PageReceived,
    RequestSent,
    ResponseReceived,
    WaitBegan,
)
from chainapi.core.limits.quota import QuotaSnapshot
from chainapi.errors import DecodeError
from chainapi.models.metrics import MetricPoint
from chainapi.models.plain import shown
from chainapi.session import Session

__all__ = [
    "Lines",
    "Progress",
    "RowTable",
    "Terminal",
    "cell",
    "counted",
    "pause",
    "print_series",
    "shell_words",
    "sparkline",
    "standard",
]

WORTH_TELLING = 1.0  # seconds: shorter waits are over before they are read
REDRAW = 0.1  # seconds
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
class Traffic:
    """What goes to one service; `waited` is seconds in which nothing was under way between two requests."""

    requests: int = 0
    refused: int = 0
    waited: float = 0.0
    _flying: int = 0
    _idle_since: float | None = None

    def sent(self, now: float) -> None:
        """Count a request; it ends the time in which nothing was under way."""
        self.requests += 1
        self._flying += 1
        if self._idle_since is not None:
            self.waited += now - self._idle_since
            self._idle_since = None

    def received(self, now: float, status: int | None) -> None:
        """Count an answer, or that there is none."""
        self.refused += status == 429
        self._flying -= 1
        if not self._flying:
            self._idle_since = now


@define(eq=False)
class Progress:
    """Counts the events of a session; `clock` gives seconds."""

    clock: Callable[[], float]
    services: Mapping[str, Traffic] = field(factory=lambda: {"metrics": Traffic(), "data": Traffic()})
    pages: Counter[str] = field(factory=Counter[str])  # by `where`, as are the rows
    rows: Counter[str] = field(factory=Counter[str])

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case RequestSent():
                self.services[event.service].sent(self.clock())
            case ResponseReceived():
                self.services[event.service].received(self.clock(), event.status)
            case PageReceived():
                self.pages[event.where] += 1
                self.rows[event.where] += event.rows

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return sum(traffic.requests for traffic in self.services.values())

    def line(self, quota: Mapping[str, QuotaSnapshot]) -> str:
        """Say in one line how far it is, and what is waited for."""
        parts = [
            counted(self.pages.total(), "page"),
            counted(self.rows.total(), "row"),
            counted(self.requests, "request"),
        ]
        parts += [f"{service}: {waits(known)}" for service, known in quota.items() if pause(known)]
        return " · ".join(parts)


def worded(error: object, advice: str = "") -> object:
    """Return an error with the advice for a command in place of that for Python."""
    if not isinstance(error, DecodeError):
        return error
    return error.changed(advice="" if error.row is None else advice)


def waits(quota: QuotaSnapshot) -> str:
    """Say what is waited for: in seconds, and from a minute on with the time of day."""
    left = pause(quota)
    if left < 60 or quota.unix_time is None:
        return f"rate limit, on in {left:.1f} s"
    now = datetime.fromtimestamp(quota.unix_time).astimezone()
    then = now + timedelta(seconds=left)
    day = "" if then.date() == now.date() else f"{then:%Y-%m-%d} "
    return f"{quota.policy}, back at {day}{then:%H:%M}"


def pause(quota: QuotaSnapshot) -> float:
    """Return the seconds for which nothing will be sent."""
    if quota.stopped_for or not quota.waiting or quota.in_flight:
        return quota.stopped_for
    return quota.reset_in or 0.0


@frozen(eq=False)
class Terminal:
    """Where a command writes: data to `out`, everything else to `err`.

    Attributes:
        out: takes data.
        err: takes everything else.
        session: makes the session of a command.
        now: gives the local time.

    """

    out: TextIO
    err: TextIO
    session: Callable[..., Session] = Session
    now: Callable[[], datetime] = lambda: datetime.now(UTC).astimezone()
    console: Console = field(init=False)
    messages: Console = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "console", _Console(file=self.out, highlight=False))
        object.__setattr__(self, "messages", _Console(file=self.err, highlight=False))

    @property
    def interactive(self) -> bool:
        """Whether a person reads `out`."""
        return self.out.isatty()

    def line(self, value: object, *, indent: int | None = None) -> None:
        """Write one line of JSON, at once: who reads it need not wait for the next page.

        With `indent` it is set out for a person, on several lines. It is ASCII that no terminal acts on.
        """
        self.out.write(shown(value, indent).replace("\x7f", "\\u007f") + "\n")
        self.out.flush()

    def complain(self, message: object) -> None:
        """Write one line for people, whatever the message holds."""
        self.tell(" ".join(str(message).split()))

    def tell(self, line: str) -> None:
        """Write one line for people; what would steer the terminal is shown as escapes."""
        self.err.write(f"chainapi: {printable(line)}\n")
        self.err.flush()

    def rows(self, *, table: bool) -> RowTable | Lines:
        """Return what prints rows: as a table, else as lines of JSON."""
        return RowTable(self.console) if table else Lines(self)

    def tells(self, event: Event) -> None:
        """Write a line about a wait that is worth it."""
        if isinstance(event, WaitBegan) and event.seconds >= WORTH_TELLING:
            self.complain(f"{event.service}: rate limit reached, on in {event.seconds:.0f} s")

    def draws(self, *, table: bool) -> bool:
        """Whether progress can be drawn: only where nothing else is written to the same screen meanwhile.

        `table` says that the data is printed through the console, which keeps the two apart.
        """
        return self.err.isatty() and (table or _is_file(self.out))

    @asynccontextmanager
    async def live(
        self, render: Callable[[], RenderableType], *, transient: bool = False
    ) -> AsyncIterator[None]:
        """Draw again and again while the block runs; `transient` takes it back in the end."""
        live = Live(
            get_renderable=render,
            console=self.console if self.interactive else self.messages,
            transient=transient,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )

        async def redraw() -> None:
            while True:
                live.refresh()
                await asyncio.sleep(REDRAW)

        with live:
            redrawing = asyncio.create_task(redraw())
            try:
                yield
            finally:
                redrawing.cancel()
                with suppress(asyncio.CancelledError):
                    await redrawing


def standard() -> Terminal:
    """Return the terminal of this process; what goes to a stream that was closed is dropped."""
    closed = StringIO()
    return Terminal(sys.stdout or closed, sys.stderr or closed)


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(fstat(stream.fileno()).st_mode)
    except UnsupportedOperation:  # in memory
        return False


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: 1 page, 2,000 pages."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def cell(text: str, style: str = "") -> Text:
    """Return a text for a table: neither markup of rich nor a control character does anything in it."""
    return Text(printable(text), style=style)


def shell_words(words: Sequence[str]) -> str:
    """Return words as a shell reads them back, without anything that a terminal acts on."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'")
    return "$'" + "".join(char if char.isprintable() else _shell_escape(ord(char)) for char in escaped) + "'"


def _shell_escape(code: int) -> str:
    """Return a character as an escape of bash, zsh and ksh; a byte that is no UTF-8 stays that byte."""
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the values as `width` bars at most, each the mean of its share."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [index * len(values) // width for index in range(width + 1)]
    # Halves, of which neither the sum of a share nor the difference of two is ever infinite.
    means = [sum(value / 2 / (b - a) for value in values[a:b]) for a, b in pairwise(edges)]
    low = min(means)
    span = max(means) - low
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
    for chain in series:
        table.add_column(cell(chain), justify="right", min_width=SERIES_WIDTH)
    if not console.options.ascii_only:
        courses = ([point.value for point in reversed(points)] for points in series.values())
        table.add_row("", *(Text(sparkline(course, SERIES_WIDTH), style="cyan") for course in courses))
    cells = [{point.timestamp: point for point in points} for points in series.values()]
    for timestamp in sorted({stamp for points in cells for stamp in points}, reverse=True):
        values = (points.get(timestamp) for points in cells)
        table.add_row(
            _moment(timestamp), *("" if value is None else _figure(value.value) for value in values)
        )
    console.print(table)


def _figure(value: float) -> str:
    """Return a value with two decimals, or as a power of ten where that would not fit into a column."""
    return f"{value:,.2f}" if abs(value) < 1e9 else f"{value:.6g}"


def _moment(timestamp: int) -> str:
    """Return the time as a person reads it: midnight is left out."""
    try:
        return MetricPoint(timestamp, 0.0).time.strftime("%Y-%m-%d %H:%M:%S").removesuffix(" 00:00:00")
    except (ValueError, OverflowError):  # no date
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
        """Print the rest, and name the fields that found no place."""
        self.flush()
        if self._more:
            self.console.print(cell(f"more fields, with --json: {', '.join(self._more)}", "dim"))

    def _lay_out(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Choose the columns: the first fields with simple values, as many as fit."""
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
            return shown(value)
