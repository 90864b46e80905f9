"""Progress of an export: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from attrs import define
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.text import Text

from chainapi.cli.progress import Progress, pause
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import counted
from chainapi.core.duration import DAY, HOUR, MINUTE

if TYPE_CHECKING:
    from chainapi.core.limits.quota import QuotaSnapshot
    from chainapi.export.progress import ExportProgress

__all__ = ["ExportView"]

TOLD_EVERY = 10.0  # seconds between two lines about progress
WIDEST_BAR = 40  # characters


@define(eq=False)
class ExportView:
    """What a person sees of an export: drawn on a terminal, else told in a line now and then.

    Attributes:
        traffic: counts the requests of the session.
        quota: gives what is known of the quotas.
        now: gives the time of day, for the end of a wait.
        progress: of the export, once there is any.

    """

    traffic: Progress
    quota: Callable[[], Mapping[str, QuotaSnapshot]]
    now: Callable[[], datetime]
    progress: ExportProgress | None = None

    def update(self, progress: ExportProgress) -> None:
        """Take note of progress."""
        self.progress = progress

    @asynccontextmanager
    async def shown(self, terminal: Terminal, *, quiet: bool) -> AsyncIterator[None]:
        """Show the progress while the block runs."""
        if quiet:
            yield
        elif terminal.err.isatty() and not terminal.messages.is_dumb_terminal:
            async with terminal.live(self.render, transient=True):
                yield
        else:
            telling = asyncio.create_task(self._tell(terminal))
            try:
                yield
            finally:
                telling.cancel()
                with suppress(asyncio.CancelledError):
                    await telling

    def render(self) -> RenderableType:
        """Return what is drawn: a bar of the sources, and two lines."""
        progress = self.progress
        lines = [Text(self.counts()), Text(" · ".join(self.waits()), style="dim")]
        if progress is None or not progress.sources:
            return Group(*lines)
        ended = progress.done + progress.failed
        bar = ProgressBar(total=progress.sources, completed=ended, width=WIDEST_BAR)
        return Group(bar, "", *lines)  # a bar does not end its line

    def line(self) -> str:
        """Return all of it in one line."""
        return " · ".join([self.counts(), *self.waits()])

    def kept(self) -> str:
        """Say what was committed, and how many sources failed."""
        progress = self.progress
        if progress is None:
            return "no page so far"
        kept = f"{counted(progress.rows, 'new row')} kept{_beside(progress)}"
        return f"{kept}, {progress.failed:,} of {progress.met:,} sources failed" if progress.failed else kept

    def counts(self) -> str:
        """Say what is done: sources, rows, requests, and the time that is left."""
        progress, requests = self.progress, counted(self.traffic.requests, "request")
        if progress is None:
            return f"{self.kept()} · {requests}"
        total = "" if progress.sources is None else f" of {progress.sources:,}"
        parts = [
            f"{progress.done:,}{total} sources",
            counted(progress.rows, "row"),
            f"{progress.rows_per_second:,.0f} rows/s",
            requests,
        ]
        if progress.invalid:
            parts.append(f"{progress.invalid:,} invalid")
        if progress.failed:
            parts.append(f"{progress.failed:,} failed")
        if progress.stage == "writing":
            parts.append("writing the file")
        elif progress.seconds_left is not None:
            parts.append(f"about {_duration(progress.seconds_left)} left")
        return " · ".join(parts)

    def waits(self) -> list[str]:
        """Say what is left of the quotas, what is waited for, and when that ends."""
        said = []
        for service, snapshot in self.quota().items():
            parts = []
            if snapshot.remaining is not None and snapshot.limit is not None:
                parts.append(f"{snapshot.remaining:,.0f} of {snapshot.limit:,.0f} left")
            if left := pause(snapshot):
                parts.append(f"on again in {_duration(left)}, at {self._clock(left)}")
            if parts:
                said.append(f"{service}: {', '.join(parts)}")
        return said

    def _clock(self, seconds: float) -> str:
        """Return the time of day in so many seconds, with the day where it is another one."""
        now = self.now()
        then = now + timedelta(seconds=seconds)
        return f"{then:%H:%M:%S}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"

    async def _tell(self, terminal: Terminal) -> None:
        while True:
            await asyncio.sleep(TOLD_EVERY)
            terminal.complain(self.line())


def _beside(progress: ExportProgress) -> str:
    return f", {progress.invalid:,} invalid beside them" if progress.invalid else ""


def _duration(seconds: float) -> str:
    """Return a duration as people say it."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
