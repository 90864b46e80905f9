"""Terminal of a command: data to standard output, everything else to standard error."""

from __future__ import annotations

import asyncio
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from io import StringIO, UnsupportedOperation
from os import fstat
from typing import NoReturn, TextIO

from attrs import field, frozen
from rich.console import Console, RenderableType
from rich.live import Live

from chainapi._text import printable
from chainapi.cli.tables import Lines, RowTable
from chainapi.core.events import Event, WaitBegan
from chainapi.models.exact_json import ascii_json
from chainapi.session import Session

__all__ = ["Terminal", "standard"]

WORTH_TELLING = 1.0  # seconds: shorter waits are over before they are read
REDRAW = 0.1  # seconds


class _Console(Console):
    """A console that leaves a closed pipe to its caller."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise it again; the default would end the process here."""
        raise BrokenPipeError


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
        self.out.write(ascii_json(value, indent).replace("\x7f", "\\u007f") + "\n")
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
        return RowTable(self.console) if table else Lines(self.line)

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
