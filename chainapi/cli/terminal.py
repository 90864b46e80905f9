"""Terminal of a command: data on standard output, the rest on standard error."""

from __future__ import annotations

import asyncio
import stat
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from io import StringIO, TextIOWrapper, UnsupportedOperation
from os import fstat
from typing import TYPE_CHECKING, NoReturn, TextIO

from attrs import define, field
from rich.console import Console, RenderableType
from rich.live import Live

from chainapi._background import in_background
from chainapi._text import printable
from chainapi.events import Event, WaitBegan
from chainapi.models.exact_json import ascii_json
from chainapi.session import Session

if TYPE_CHECKING:
    from chainapi.share.registry import BuiltIn

__all__ = ["Terminal", "standard"]

WORTH_REPORTING = 1.0  # seconds: shorter waits are over before they are read
REDRAW = 0.1  # seconds
UNKNOWN_WIDTH = 80  # columns, as of a terminal that does not tell its width


class _Console(Console):
    """Console that raises BrokenPipeError for a closed pipe."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file=file, highlight=False)
        if self.width < 1:  # COLUMNS=0, of a program that does not know the width
            self.width = UNKNOWN_WIDTH

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error; the default would end the process here."""
        raise BrokenPipeError


def _observable(share: str | None) -> BuiltIn:
    from chainapi.share.registry import observable  # imported here: no other command needs it

    return observable(share)


@define(eq=False)
class Terminal:
    """Streams of a command: data to `out`, everything else to `err`.

    Attributes:
        out: the stream of data.
        err: the stream of messages.
        session: returns a new session.
        now: returns the local time.
        observable: returns the carrier that connects observers; see `chainapi.share.registry`.
        words: the command line, without the name of the program.

    """

    out: TextIO
    err: TextIO
    session: Callable[..., Session] = Session
    now: Callable[[], datetime] = lambda: datetime.now(UTC).astimezone()
    observable: Callable[[str | None], BuiltIn] = _observable
    words: Sequence[str] = ()
    console: Console = field(init=False)
    messages: Console = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.console, self.messages = _Console(self.out), _Console(self.err)

    @property
    def interactive(self) -> bool:
        """Check whether `out` is a terminal."""
        return self.out.isatty()

    def line(self, value: object, *, indent: int | None = None) -> None:
        """Write a value as one line of JSON, and flush it.

        A reader does not wait for the next page. With `indent` it is several lines. The text is ASCII without
        control characters.
        """
        self.out.write(ascii_json(value, indent).replace("\x7f", "\\u007f") + "\n")
        self.out.flush()

    def note(self, message: object) -> None:
        """Write a message in one line, with escapes for characters that act on a terminal."""
        line = " ".join(one.strip() for one in str(message).splitlines())
        self.err.write(f"chainapi: {printable(line)}\n")
        self.err.flush()

    def report_wait(self, event: Event) -> None:
        """Write a line about a wait of a second or more."""
        if isinstance(event, WaitBegan) and event.seconds >= WORTH_REPORTING:
            self.note(f"{event.service}: rate limit reached, next request in {event.seconds:.0f} s")

    def draws(self, *, table: bool) -> bool:
        """Check whether progress can be drawn.

        Nothing else may be written to the same screen meanwhile. With `table` the data is printed through the
        console, which keeps the two apart.
        """
        return self.err.isatty() and (table or _is_file(self.out))

    @asynccontextmanager
    async def live(
        self, render: Callable[[], RenderableType], *, transient: bool = False
    ) -> AsyncIterator[None]:
        """Redraw every 0.1 s while the block runs; `transient` erases it at the end."""
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
            async with in_background(redraw()):
                yield


def standard() -> Terminal:
    """Return the terminal of this process; a closed stream drops its text.

    Characters that the encoding of standard output lacks are written as escapes, as Python does on standard
    error. JSON has none of them: it is ASCII.
    """
    closed = StringIO()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Terminal(sys.stdout or closed, sys.stderr or closed)


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(fstat(stream.fileno()).st_mode)
    except UnsupportedOperation:  # in memory
        return False
