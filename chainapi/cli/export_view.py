"""Progress of an export: a bar on a terminal, else a line every 10 s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from attrs import define
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.text import Text

from chainapi._paging.background import in_background
from chainapi.cli.progress import Progress, pause
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import counted
from chainapi.core.duration import in_words
from chainapi.models.exact_json import ascii_json

if TYPE_CHECKING:
    from chainapi._limits.view import QuotaSnapshot
    from chainapi.export.progress import ExportProgress

__all__ = ["ExportView", "Shown"]

REPORT_EVERY = 10.0  # seconds between two lines about progress
RECORD_EVERY = 1.0  # seconds between two lines of JSON

Shown = Literal["bar", "json", "none"]
WIDEST_BAR = 40  # characters


@define(eq=False)
class ExportView:
    """Progress of an export: drawn on a terminal, else reported in a line every 10 s.

    Attributes:
        traffic: counts the requests of the session; None in a cluster, whose sessions count their own.
        quota: returns the snapshots of the quotas.
        now: returns the local time, for the end of a wait.
        progress: the last one reported; None before the first page.

    """

    traffic: Progress | None
    quota: Callable[[], Mapping[str, QuotaSnapshot]]
    now: Callable[[], datetime]
    progress: ExportProgress | None = None

    def update(self, progress: ExportProgress) -> None:
        """Keep the last progress."""
        self.progress = progress

    @asynccontextmanager
    async def shown(self, terminal: Terminal, how: Shown) -> AsyncIterator[None]:
        """Show the progress while the block runs."""
        if how == "none":
            yield
        elif how == "json":
            try:
                async with in_background(_repeat(lambda: self._write_record(terminal), RECORD_EVERY)):
                    yield
            finally:
                self._write_record(terminal)
        elif terminal.err.isatty() and not terminal.messages.is_dumb_terminal:
            async with terminal.live(self.render, transient=True):
                yield
        else:
            async with in_background(_repeat(lambda: terminal.report(self.line()), REPORT_EVERY)):
                yield

    def render(self) -> RenderableType:
        """Return a bar of the rows, and two lines."""
        progress = self.progress
        lines = [Text(self.counts()), Text(" · ".join(self.waits()), style="dim")]
        share = None if progress is None else progress.share
        if share is None:
            return Group(*lines)
        bar = ProgressBar(total=1.0, completed=share, width=WIDEST_BAR)
        return Group(bar, "", *lines)  # a bar does not end its line

    def line(self) -> str:
        """Return counts and waits in one line."""
        return " · ".join([self.counts(), *self.waits()])

    def kept(self) -> str:
        """Return the committed rows, and the number of failed sources."""
        progress = self.progress
        if progress is None:
            return f"{counted(0, 'new row')} kept"
        invalid = f", {progress.invalid:,} invalid beside them" if progress.invalid else ""
        kept = f"{counted(progress.rows, 'new row')} kept{invalid}"
        return f"{kept}, {progress.failed:,} of {progress.seen:,} sources failed" if progress.failed else kept

    def counts(self) -> str:
        """Return the counts of sources, rows and requests, and the time left."""
        counts = "no pages yet" if self.progress is None else self.progress.text(waits=False)
        return counts if self.traffic is None else f"{counts} · {counted(self.traffic.requests, 'request')}"

    def waits(self) -> list[str]:
        """Return for each service the rest of its quota, and the end of a wait."""
        services = []
        for service, snapshot in self.quota().items():
            parts = []
            if snapshot.remaining is not None and snapshot.limit is not None:
                parts.append(f"{snapshot.remaining:,.0f} of {snapshot.limit:,.0f} left")
            if left := pause(snapshot):
                parts.append(f"next request in {in_words(left)}, at {self._clock(left)}")
            if parts:
                services.append(f"{service}: {', '.join(parts)}")
        return services

    def _clock(self, seconds: float) -> str:
        """Return the time of day after `seconds`, with the date if that is another day."""
        now = self.now()
        then = now + timedelta(seconds=seconds)
        return f"{then:%H:%M:%S}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"

    def _write_record(self, terminal: Terminal) -> None:
        """Write the progress as a line of JSON."""
        if self.progress is not None:
            requests = None if self.traffic is None else self.traffic.requests
            terminal.err.write(ascii_json({**self.progress.record, "requests": requests}) + "\n")
            terminal.err.flush()


async def _repeat(write: Callable[[], None], seconds: float) -> None:
    """Call `write` again and again until it is cancelled."""
    while True:
        await asyncio.sleep(seconds)
        write()
