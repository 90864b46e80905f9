"""Progress of a command: counts of its events, and the waits for quota."""

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

from chainapi._background import in_background
from chainapi._limits.view import QuotaSnapshot
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import counted
from chainapi.core.duration import in_words
from chainapi.events import Event, PageReceived, RequestSent
from chainapi.models.exact_json import ascii_json

if TYPE_CHECKING:
    from chainapi.export.progress import ExportProgress

__all__ = ["CommandProgress", "Shown", "wait_text"]

REPORT_EVERY = 10.0  # seconds between two lines about progress
RECORD_EVERY = 1.0  # seconds between two lines of JSON
WIDEST_BAR = 40  # characters

Shown = Literal["bar", "json", "none"]


def wait_text(quota: QuotaSnapshot, now: datetime) -> str:
    """Return the length and the end of the wait for a quota; empty without one."""
    left = quota.stopped_for
    if not left and quota.waiting and not quota.in_flight:
        left = quota.reset_in or 0.0
    if not left:
        return ""
    then = now + timedelta(seconds=left)
    end = f"{then:%H:%M:%S}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"
    return f"next request in {in_words(left)}, at {end}"


@define(eq=False)
class CommandProgress:
    """Counts of the walks of a session, or of an export.

    Attributes:
        now: returns the local time, for the end of a wait.
        quota: returns the snapshots of the quotas.
        requests: requests that were sent; None in a cluster, whose sessions count their own.
        export: the last progress of an export; None before its first page.

    """

    now: Callable[[], datetime]
    quota: Callable[[], Mapping[str, QuotaSnapshot]] = dict
    requests: int | None = 0
    export: ExportProgress | None = None
    _pages: int = 0
    _rows: int = 0

    def __call__(self, event: Event) -> None:
        """Count an event of the session."""
        if isinstance(event, RequestSent) and self.requests is not None:
            self.requests += 1
        elif isinstance(event, PageReceived):
            self._pages += 1
            self._rows += event.rows

    def update(self, export: ExportProgress) -> None:
        """Keep the last progress of an export."""
        self.export = export

    @property
    def counts(self) -> str:
        """Counts of pages, rows and requests, or of an export and its time left."""
        if self.export is not None:
            counts = self.export.text(waits=False)
        else:
            counts = f"{counted(self._pages, 'page')} · {counted(self._rows, 'row')}"
        return counts if self.requests is None else f"{counts} · {counted(self.requests, 'request')}"

    @property
    def waits(self) -> str:
        """For each service the rest of its quota, and the end of a wait."""
        services = []
        for service, known in self.quota().items():
            parts = [wait_text(known, self.now())]
            if known.remaining is not None and known.limit is not None:
                parts.insert(0, f"{known.remaining:,.0f} of {known.limit:,.0f} left")
            if any(parts):
                services.append(f"{service}: {', '.join(filter(None, parts))}")
        return " · ".join(services)

    def line(self) -> str:
        """Return counts and waits in one line."""
        return " · ".join(filter(None, (self.counts, self.waits)))

    def render(self) -> RenderableType:
        """Return counts and waits for a terminal, below a bar of what is done."""
        lines = [Text(self.counts), *([Text(waits, style="dim")] if (waits := self.waits) else [])]
        share = None if self.export is None else self.export.share
        if share is None:
            return Group(*lines)
        return Group(ProgressBar(total=1.0, completed=share, width=WIDEST_BAR), "", *lines)

    @asynccontextmanager
    async def shown(self, terminal: Terminal, how: Shown) -> AsyncIterator[None]:
        """Show the progress of an export while the block runs."""
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
            async with in_background(_repeat(lambda: terminal.note(self.line()), REPORT_EVERY)):
                yield

    def _write_record(self, terminal: Terminal) -> None:
        """Write the progress as a line of JSON."""
        if self.export is not None:
            terminal.err.write(ascii_json({**self.export.record, "requests": self.requests}) + "\n")
            terminal.err.flush()


async def _repeat(write: Callable[[], None], seconds: float) -> None:
    """Call `write` again and again until it is cancelled."""
    while True:
        await asyncio.sleep(seconds)
        write()
