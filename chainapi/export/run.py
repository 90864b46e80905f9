"""Run of an export: open the journal, fetch, write the parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from attrs import define, field, frozen

from chainapi.client.background import in_background
from chainapi.errors import ChainAPIError, IncompleteExportError
from chainapi.export.fetch import Fetcher
from chainapi.export.formats import GroupFormat
from chainapi.export.journal import Journal
from chainapi.export.part_records import Part
from chainapi.export.part_schedule import PartLimits, PartSchedule
from chainapi.export.placement import recover
from chainapi.export.progress import ExportProgress, Stage
from chainapi.export.remote import RemoteTarget, recover_uploads
from chainapi.export.spec import ExportSpec
from chainapi.export.target import Target
from chainapi.export.window_opener import WindowOpener
from chainapi.export.worker import Worker
from chainapi.tables.codec import Codec

__all__ = ["ExportResult", "Exporter"]

REPORT_EVERY = 0.5  # seconds between two reports while the last parts are written


@frozen
class ExportResult:
    """Result of an export.

    Attributes:
        path: the file with the rows, or the folder with such files; a string for a URL, as are `written` and
            `written_invalid`.
        rows: number of fetched rows that the target lacked.
        sources: number of sources.
        written: files that were written, or completed after a run that was stopped meanwhile; empty if there
            was nothing new.
        skipped: number of finished sources that were not fetched again: their rows do not show which are new.
        closed: number of sources that later runs will not fetch again for this reason, skipped ones included.
        invalid: number of invalid rows, which `rows` does not count (``on_invalid="raw"``).
        removed: number of rows that left the target, because the list has changed or withdrawn them
            (``lookback``); `rows` counts their new versions.
        written_invalid: files of JSON lines with the invalid rows; empty if there was no such row.

    """

    path: Path | str
    rows: int
    sources: int
    written: tuple[Path | str, ...]
    invalid: int = 0
    written_invalid: tuple[Path | str, ...] = ()
    skipped: int = 0
    closed: int = 0
    removed: int = 0


@define(eq=False)
class Exporter:
    """One run of an export.

    Attributes:
        spec: specification of the export.
        target: its file or folder.
        on_progress: called after each commit and at each stage.
        limits: when a folder gets a part.

    """

    spec: ExportSpec
    target: Target
    on_progress: Callable[[ExportProgress], None] | None
    limits: PartLimits = field(factory=PartLimits)
    progress: ExportProgress = field(init=False)
    _worker: Worker = field(factory=Worker, init=False)
    _journal: Journal | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        clock = asyncio.get_running_loop().time
        self.progress = ExportProgress(self.spec.total, limit=self.spec.limit, clock=clock)

    async def run(self) -> ExportResult:
        """Fetch what the target lacks, then write the final file.

        Raises:
            IncompleteExportError: some sources failed; the others are in the target.
            ExportError: the target cannot be read or written, or holds another export.
            ChainAPIError: an error that concerns all sources, such as a rejected key.

        """
        try:
            try:
                return await self._run(await self._worker.run(self._open))
            finally:
                await self._worker.run(self._close)
        finally:
            self._worker.shutdown()

    async def _run(self, journal: Journal) -> ExportResult:
        target, progress, worker = self.target, self.progress, self._worker
        if isinstance(target, RemoteTarget):
            completed = await worker.run(recover_uploads, journal, target, worker.stop)
        else:
            completed = await worker.run(recover, journal, target, worker.stop)
        fetcher = Fetcher(
            self.spec,
            journal,
            worker,
            progress,
            lambda: self._committed(schedule),
            open_window=self._window_opener(journal),
            begin_groups=partial(self._begin_groups, journal),
        )
        schedule = PartSchedule(journal, target, worker, self.limits, lambda: fetcher.columns, progress)
        try:
            await fetcher.fetch()
            self._report("writing")
            async with in_background(self._report_again()):
                await schedule.finish()
        finally:
            await schedule.aclose()
        self._report("done")
        if fetcher.failures:
            raise self._incomplete(fetcher.failures)
        return self._result([*([] if completed is None else [completed]), *schedule.parts])

    def _window_opener(self, journal: Journal) -> WindowOpener | None:
        spec = self.spec
        if spec.lookback is None:
            return None
        return WindowOpener(spec.lookback, journal, self.target, limited=spec.limit is not None)

    def _result(self, parts: Sequence[Part]) -> ExportResult:
        progress, files = self.progress, [file for part in parts for file in part.content.files]
        written, invalid = (
            tuple(dict.fromkeys(self.target.file(file.name) for file in files if file.invalid is invalid))
            for invalid in (False, True)
        )
        return ExportResult(
            self.target.address,
            progress.rows,
            progress.seen,
            written,
            progress.invalid,
            invalid,
            progress.skipped,
            progress.closed,
            progress.removed,
        )

    async def _report_again(self) -> None:
        """Report the progress of the last parts until it is cancelled."""
        while True:
            await asyncio.sleep(REPORT_EVERY)
            self._report("writing")

    def _committed(self, schedule: PartSchedule) -> None:
        self._report()
        schedule.committed()

    def _open(self) -> Journal:
        is_new = self.target.prepare()
        journal = Journal.open(self.target.journal, compress=self.target.format.name == "parquet")
        self._journal = journal
        if not is_new and not journal.settings():  # files may have come since a run that was refused
            self.target.refuse_others()
        return journal

    def _begin_groups(self, journal: Journal, codec: Codec) -> None:
        """Let the journal store pages as row groups, if the files can have them."""
        form = self.target.format
        if isinstance(form, GroupFormat) and not self.target.partition and self.spec.ranges is None:
            journal.groups = form.groups_of(codec)

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _report(self, stage: Stage = "fetching") -> None:
        self.progress.stage = stage
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _incomplete(self, failures: Mapping[str, ChainAPIError]) -> IncompleteExportError:
        label, error = next(iter(failures.items()))
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        seen = self.progress.seen
        others = f"; the others are in {self.target.address}" if len(failures) < seen else ""
        return IncompleteExportError(
            f"{len(failures)} of {seen} sources failed: {label} ({error}){more}{others}. Start the same"
            " export again to fetch the failed ones",
            failures,
        )
