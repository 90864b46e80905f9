"""Schedule of the parts of an export: when waiting rows are written to a part.

The files of a part are written in a thread of their own, so that pages are committed meanwhile. Only the
short steps around it run in the thread of the journal.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from uuid import uuid4

from attrs import define, field, frozen

from chainapi.client.background import finish
from chainapi.core.arguments import seconds_of, whole_number
from chainapi.errors import ConfigurationError
from chainapi.export.correction_writer import CorrectionWriter
from chainapi.export.corrections import Corrections, Windows
from chainapi.export.invalid_rows import InvalidRows
from chainapi.export.journal import Journal
from chainapi.export.manifest import files_in_place
from chainapi.export.part_records import Part, PartFile, Waiting
from chainapi.export.part_writer import PartWriter
from chainapi.export.placement import place
from chainapi.export.progress import ExportProgress
from chainapi.export.remote import RemoteTarget, publish
from chainapi.export.target import Target
from chainapi.export.worker import Worker
from chainapi.tables.columns import Column

__all__ = ["PartLimits", "PartSchedule"]


@frozen
class PartLimits:
    """Amount of waiting rows that becomes a part of a folder.

    Attributes:
        rows: number of rows.
        size: bytes of the rows as JSON.
        seconds: time since the first of them was committed.

    """

    rows: int = 1_000_000
    size: int = 256 << 20
    seconds: float = 600.0

    def allow(self, waiting: Waiting) -> bool:
        """Check whether all that waits may be one part, which may be larger by a quarter.

        A few pages that are left out would keep the segment of the others on the disk.
        """
        return waiting.rows * 4 <= self.rows * 5 and waiting.size * 4 <= self.size * 5

    @classmethod
    def of(cls, rows: int | None, size: int | None, seconds: float | None, target: Target) -> PartLimits:
        """Return the limits with these arguments of `export`; None stands for the default.

        Raises:
            ConfigurationError: an argument is invalid, or the target is a single file.

        """
        given = {"part_rows": rows, "part_bytes": size, "part_seconds": seconds}
        for name, value in given.items():
            if value is not None and not target.folder:
                raise ConfigurationError(
                    f"{name}= applies to a folder, and {target.address} is a file, which gets its rows when "
                    "the run ends: leave it out, or choose a folder"
                )
        whole = cls()
        return cls(
            whole.rows if rows is None else whole_number("part_rows", rows),
            whole.size if size is None else whole_number("part_bytes", size),
            whole.seconds if seconds is None else seconds_of("part_seconds", seconds),
        )


@define(eq=False)
class PartSchedule:
    """Schedule of the parts of one run.

    A folder gets a part as soon as enough rows wait, and the rest when the run ends. A single file gets the
    rows of finished sources when the run ends.

    Attributes:
        journal: journal of the export.
        target: its file or folder.
        worker: thread that the journal belongs to.
        limits: when a folder gets a part.
        columns: returns the columns of the rows.
        progress: counts the written rows.
        parts: parts that this run has written.

    """

    journal: Journal
    target: Target
    worker: Worker
    limits: PartLimits
    columns: Callable[[], Sequence[Column]]
    progress: ExportProgress
    parts: list[Part] = field(factory=list[Part], init=False)
    _run: str = field(factory=lambda: uuid4().hex, init=False)
    _thread: Worker = field(factory=lambda: Worker("chainapi-export-part"), init=False)
    _writing: asyncio.Task[None] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def committed(self) -> None:
        """Begin a part of a folder if enough rows wait; called after each commit.

        Raises:
            ExportError: an earlier part cannot be written.

        """
        if not self.target.folder or (self._writing is not None and not self._writing.done()):
            return
        if self._writing is not None:
            self._writing.result()
        waiting = self.journal.waiting
        if waiting.rows >= self.limits.rows or waiting.size >= self.limits.size:
            self._begin()
        elif waiting.pages and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.limits.seconds, self._begin)

    async def finish(self) -> None:
        """Write all that waits, in as many parts as the limits say.

        Raises:
            ExportError: a part cannot be written; its rows are still in the journal.

        """
        self._stop_timer()
        if self._writing is not None:
            await finish(self._writing, self._thread.stop.set)
        while await self._write(self._writer):
            pass
        await self._write(self._corrector)
        await self.worker.run(self.journal.remove_segments)  # those that a stopped run left without a page

    async def aclose(self) -> None:
        """Stop writing and end the thread."""
        self._stop_timer()
        try:
            if self._writing is not None:  # its error is retrieved, also if another one ends the export
                self._thread.stop.set()
                await finish(asyncio.gather(self._writing, return_exceptions=True))
        finally:
            self._thread.shutdown()

    def _begin(self) -> None:
        self._stop_timer()
        self._writing = asyncio.create_task(self._write_once())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write_once(self) -> None:
        await self._write(self._writer)

    async def _write(self, find: Callable[[], PartWriter | None]) -> bool:
        """Write a part; return False if nothing waits for one."""
        writer = await self.worker.run(find)
        if writer is None:
            return False
        self.progress.begin_writing(writer.rows, self.journal.waiting.rows if self.target.folder else 0)
        try:
            part = await self._thread.run(writer.write)
            self.progress.begin_placing()
            if part is None:
                await self.worker.run(self.journal.end_windows, None)
            elif isinstance(self.target, RemoteTarget):
                await publish(self.journal, self.target, part, self.worker, self._thread)
            else:
                await self.worker.run(place, self.journal, self.target, part, self.worker.stop)
        finally:
            self.progress.end_writing()
        if part is not None:
            self.parts.append(part)
        if isinstance(writer, CorrectionWriter):
            self.progress.corrected(writer.rows, writer.removed, len(writer.invalid.digests))
        return True

    def _writer(self) -> PartWriter | None:
        """Return the writer of the next part; None if nothing waits for one."""
        folder, last = self.target.folder, self.journal.last_part()
        whole = not folder or self.limits.allow(self.journal.waiting)
        pages = self.journal.waiting_pages(
            finished=not folder,
            rows=sys.maxsize if whole else self.limits.rows,
            size=sys.maxsize if whole else self.limits.size,
        )
        # Finished sources without rows get a first file too: an empty one.
        if not pages and (last is not None or not self.journal.count_finished_sources()):
            return None
        groups = self.journal.groups_of(page for _, page in pages)
        return PartWriter(
            self.target,
            last,
            pages,
            self.columns(),
            self._run,
            self._thread.stop,
            self.progress.wrote,
            groups=groups,
        )

    def _corrector(self) -> CorrectionWriter | None:
        """Return the writer of the rows that were fetched again; None without any."""
        sources = self.journal.windows()
        if not sources:
            return None
        last, columns = self.journal.last_part(), self.columns()
        pages = self.journal.pages_of(sources)
        known = self.journal.invalid_rows() if any(page.invalid for _, page in pages) else None
        windows = Windows.of(sources.values(), columns)
        return CorrectionWriter(
            self.target,
            last,
            pages,
            columns,
            self._run,
            self._thread.stop,
            self.progress.wrote,
            corrections=Corrections(windows),
            old=self._old_files(windows, last),
            invalid=InvalidRows(known or Counter()),
        )

    def _old_files(self, windows: Windows, last: Part | None) -> list[PartFile]:
        """Return the files of the target that may have rows of windows."""
        if not self.target.folder:
            return [] if last is None or last.rows_file is None else [last.rows_file]
        return [file for _, file in files_in_place(self.journal) if windows.may_be_in(file)]
