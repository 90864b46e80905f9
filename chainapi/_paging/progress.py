"""Progress of long walks and exports, in notebooks and on terminals.

It is a line on standard error, or the output of a cell. Without a terminal or a notebook nothing is shown,
so that logs stay clean.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence, Sized
from contextlib import asynccontextmanager, suppress
from html import escape
from importlib import import_module
from math import ceil
from typing import Any, Protocol, TextIO

from attrs import define, field, frozen

from chainapi._background import in_background
from chainapi.core.duration import in_words

__all__ = ["Display", "Progress", "WalkProgress", "display", "progress_text", "shown"]

EVERY = 0.5  # seconds between two updates


class Progress(Protocol):
    """Progress of some work, as people read it."""

    @property
    def share(self) -> float | None:
        """Share of the work that is done, 1 for all; None if it is not known."""
        ...

    def text(self) -> str:
        """Return the progress in one line."""
        ...


class Display(Protocol):
    """Place that shows a progress."""

    def update(self, text: str, share: float | None) -> None:
        """Show a line, and a bar for a share of the work."""
        ...

    def close(self) -> None:
        """End the display; a notebook keeps its last state."""
        ...


@define(eq=False)
class WalkProgress:
    """Progress of a stream that is read into a list.

    Attributes:
        pages: the stream.
        rows: the rows so far.
        expected: number of rows expected; None if it is not known.

    """

    pages: Any
    rows: Sized
    expected: int | None
    _depth: int = field(init=False)
    _began: float = field(factory=lambda: asyncio.get_running_loop().time(), init=False)

    def __attrs_post_init__(self) -> None:
        self._depth = self.pages.walk.depth

    @property
    def share(self) -> float | None:
        """Share of the rows that was read."""
        return None if self.expected is None else len(self.rows) / self.expected

    def text(self) -> str:
        """Return rows, their share, speed, time left, and a wait for quota."""
        seconds = asyncio.get_running_loop().time() - self._began
        wait = self.pages.seconds_left(1)
        return progress_text(len(self.rows), self.expected, seconds, self._seconds_left(seconds), wait)

    def _seconds_left(self, seconds: float) -> float | None:
        """Return the seconds left by the pace, or by the quota if that is longer."""
        read, walked = len(self.rows), self.pages.walk.depth - self._depth
        if self.expected is None or not read or walked < 1:
            return None
        rest = self.expected - read
        if rest <= 0:
            return None
        by_quota: float = self.pages.seconds_left(ceil(rest * walked / read))
        return max(rest * seconds / read, by_quota)


def progress_text(
    rows: int, expected: int | None, seconds: float, left: float | None, wait: float = 0.0, about: str = ""
) -> str:
    """Return one line: rows and their share, speed, time left, wait for quota."""
    count = f"{rows:,} rows"
    if expected:
        count = f"{rows:,} of {about}{expected:,} rows ({rows / expected:.0%})"
    parts = [count, f"{rows / seconds if seconds > 0 else 0:,.0f} rows/s"]
    if left:
        parts.append(f"about {in_words(left)} left")
    if wait >= 1:
        parts.append(f"next request in {in_words(wait)}")
    return " · ".join(parts)


@asynccontextmanager
async def shown(progress: Progress, on: Display | None = None) -> AsyncIterator[None]:
    """Show a progress while the block runs, on `display()` unless one is given."""
    place = display() if on is None else on
    if place is None:
        yield
        return
    try:
        async with in_background(_tick(progress, place)):
            yield
    finally:
        with suppress(OSError, ValueError):  # the terminal is gone: that is no fault of the work
            place.update(progress.text(), progress.share)
            place.close()


async def _tick(progress: Progress, place: Display) -> None:
    with suppress(OSError, ValueError):
        while True:
            place.update(progress.text(), progress.share)
            await asyncio.sleep(EVERY)


def display(stream: TextIO | None = None) -> Display | None:
    """Return the display of this program: notebook, terminal, or none."""
    if _in_notebook():
        return Notebook()
    stream = sys.stderr if stream is None else stream
    if stream is None or not stream.isatty():  # a program without a console has None
        return None
    return TerminalLine(stream)


def _in_notebook() -> bool:
    """Check for the kernel of a notebook; a shell of IPython in a terminal has none."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None


@define(eq=False)
class TerminalLine:
    """Line on a terminal that is written again and again."""

    stream: TextIO

    def update(self, text: str, share: float | None) -> None:
        """Write the line over the last one."""
        self.stream.write(f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        self.stream.flush()

    def close(self) -> None:
        """Remove the line."""
        self.stream.write("\r\x1b[K")
        self.stream.flush()


class Notebook:
    """Output of a cell, updated in place."""

    def __init__(self) -> None:
        show = import_module("IPython.display").display
        self._handle: Any = show(Shown("", None), display_id=True)

    def update(self, text: str, share: float | None) -> None:
        """Show the line and the bar."""
        self._handle.update(Shown(text, share))

    def close(self) -> None:
        """Keep the last state in the notebook."""


@frozen
class Shown:
    """State of a progress, as notebooks and IPython show it."""

    text: str
    share: float | None

    def _repr_mimebundle_(
        self, include: Sequence[str] | None = None, exclude: Sequence[str] | None = None
    ) -> dict[str, str]:
        share = "" if self.share is None else f'<progress value="{min(self.share, 1):.4f}"></progress> '
        return {"text/plain": self.text, "text/html": f"<div>{share}{escape(self.text)}</div>"}
