"""Export of one partition on a worker: the task that the scheduler runs."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from attrs import define, field, frozen
from distributed import get_worker

from chainapi.dask.parts import Outrun, PartLog, partition_of
from chainapi.dask.plugins import plugin_soon
from chainapi.errors import ChainAPIError, ExportError
from chainapi.export.fetch import Fetcher
from chainapi.export.formats import Format
from chainapi.export.formats.parquet import FORMAT as PARQUET
from chainapi.export.formats.parquet import Parquet
from chainapi.export.progress import ExportProgress
from chainapi.export.ranges import RangesOfSources
from chainapi.export.settings import JOURNAL, compare_settings
from chainapi.export.spec import Arguments, ExportSpec
from chainapi.export.store import Store
from chainapi.export.worker import Worker
from chainapi.tables.types import Amounts

__all__ = ["Folder", "Job", "Outcome", "Report", "fetch_partition", "group_of", "prepare", "topic_of"]

ABOUT = "_export/about.json"
DEFAULTS: Mapping[str, Any] = {"partitions": 32, "amounts": "text", "fields": None}  # of a new export
REPORT_EVERY = 0.2  # seconds between two reports of a partition

Report = Callable[[Mapping[str, int]], None]


@frozen
class Folder:
    """Folder of an export, as workers open it.

    Attributes:
        url: URL or absolute path.
        options: options of its fsspec file system.

    """

    url: str
    options: Mapping[str, Any] = field(repr=False)  # may have the credentials of the file system

    def open(self) -> Store:
        """Open the folder."""
        return Store.of(self.url, self.options)


@frozen
class Job:
    """One partition of an export.

    Attributes:
        export: name of the export's run.
        sessions: name of the plugin that has the sessions.
        number: number of the partition.
        folder: folder of the export.
        route: dotted name of the method of a session.
        sources: arguments of each source.
        query: keyword arguments that all sources share.
        limit: rows of each source; None for all.
        concurrency: sources that are open at once.
        part_rows: rows of a part.
        part_bytes: bytes of the rows of a part, as JSON.
        amounts: type of amounts.
        fields: names of the columns; None for all.
        format: options of the files.
        ranges: ranges of each source that has not begun; None to walk it as a whole.

    """

    export: str
    sessions: str
    number: int
    folder: Folder
    route: str
    sources: tuple[Arguments, ...] = field(repr=False)
    query: Mapping[str, Any] = field(repr=False)
    limit: int | None
    concurrency: int
    part_rows: int
    part_bytes: int
    amounts: Amounts = "text"
    fields: tuple[str, ...] | None = None
    format: Parquet = PARQUET
    ranges: RangesOfSources | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Key of the task; the dashboard groups tasks by its first words."""
        return group_of(self.route, self.export), self.number

    @property
    def topic(self) -> str:
        """Topic of the progress of the export."""
        return topic_of(self.export)


def group_of(route: str, export: str) -> str:
    """Return the first part of the keys of all tasks of an export."""
    return f"{route}-export-{export}"


def topic_of(export: str) -> str:
    """Return the topic under which workers report the progress of an export."""
    return f"chainapi-export-{export}"


@frozen
class Outcome:
    """Outcome of one partition.

    Attributes:
        counts: counts of `ExportProgress`.
        failures: error of each source that failed, by label.
        written: names of the files that this run wrote.

    """

    counts: Mapping[str, int]
    failures: Mapping[str, ChainAPIError]
    written: tuple[str, ...]


def prepare(folder: Folder, about: Mapping[str, Any]) -> dict[str, Any]:
    """Check the folder of an export and store its settings.

    Returns the settings, with defaults for those that are None: those of the export in the folder, or of a
    new one.

    Args:
        folder: folder of the export.
        about: settings that must stay the same when the export is started again.

    Raises:
        ExportError: the folder holds other files or another export, or cannot be written.

    """
    store = folder.open()
    names = store.names()
    beside = ABOUT.partition("/")[0]
    if (names and beside not in names) or JOURNAL in store.names(beside):
        raise ExportError(
            f"{folder.url} is not empty, and no distributed export wrote it (no {ABOUT} is in it): move the "
            "files away, or choose another target"
        )
    begun = any(partition_of(name) is not None for name in names)
    if begun:
        old = _read_about(store)
        wanted = {**about, **{name: old.get(name) for name in DEFAULTS if about[name] is None}}
        compare_settings(folder.url, old, wanted)
    else:
        wanted = _begun(folder, store, about)
    store.remove_unfinished()
    return wanted


def _begun(folder: Folder, store: Store, about: Mapping[str, Any]) -> dict[str, Any]:
    """Store and return the settings of an export without parts.

    It has nothing to protect, for its command may have been a mistake, except the number of its partitions:
    workers of an earlier run may still write parts, and a source would be in two partitions.

    Raises:
        ExportError: an earlier run has another number.

    """
    wanted = {**about, **{name: value for name, value in DEFAULTS.items() if about[name] is None}}
    if store.create(ABOUT, msgspec.json.encode(wanted)):
        return wanted
    if (partitions := _partitions_in(store)) is not None:
        wanted["partitions"] = about["partitions"] or partitions
        compare_settings(folder.url, {"partitions": partitions}, {"partitions": wanted["partitions"]})
    store.replace(ABOUT, msgspec.json.encode(wanted))
    return wanted


def _partitions_in(store: Store) -> int | None:
    """Return the number of partitions of the export in a folder.

    None is returned if a kill left half of its settings.
    """
    try:
        return msgspec.json.decode(store.read(ABOUT), type=_Partitions).partitions
    except msgspec.DecodeError:
        return None


class _Partitions(msgspec.Struct):
    partitions: int


def _read_about(store: Store) -> dict[str, Any]:
    try:
        return msgspec.json.decode(store.read(ABOUT), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ExportError(
            f"{ABOUT} in {store.url} is damaged ({error}): put it back as it was, or choose another target"
        ) from error


async def fetch_partition(job: Job) -> Outcome:
    """Export a partition with the session of the worker that runs this task.

    Raises:
        ConfigurationError: the worker has no session, or the route rejects the arguments.
        SessionClosedError: the export was stopped.
        ExportError: the folder cannot be read or written, or a newer export has the partition.
        ChainAPIError: an error that concerns all sources, such as a rejected key.

    """
    worker = get_worker()
    plugin = await plugin_soon(worker, job.sessions, job.key)

    def report(counts: Mapping[str, int]) -> None:
        worker.log_event(job.topic, {"partition": job.number, **counts})

    return await plugin.run(job.key, export_partition(job, plugin.session, report))


async def export_partition(job: Job, session: object, report: Report) -> Outcome:
    """Export a partition with a session.

    Starts after the parts of another worker that was faster.
    """
    while True:
        try:
            return await _Run(job, session, report).run()
        except Outrun:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the last write replaced the cancellation
                raise asyncio.CancelledError from None


@define(eq=False)
class _Run:
    """One attempt at a partition."""

    job: Job
    session: object
    report: Report
    thread: Worker = field(factory=Worker, init=False)
    progress: ExportProgress = field(init=False)
    log: PartLog = field(init=False)
    fetcher: Fetcher = field(init=False)
    _reported: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        job = self.job
        self.progress = ExportProgress(len(job.sources), clock=asyncio.get_running_loop().time)
        self.log = PartLog(
            job.folder.open(),
            job.number,
            job.export,
            lambda: self.fetcher.columns,
            job.part_rows,
            job.part_bytes,
            job.format,
        )
        spec = ExportSpec(
            operator.attrgetter(job.route)(self.session),
            job.sources,
            job.folder.url,
            cast("Format", job.format),
            job.query,
            job.limit,
            job.concurrency,
            job.amounts,
            job.fields,
            ranges=job.ranges,
        )
        self.fetcher = Fetcher(spec, self.log, self.thread, self.progress, self._report)

    async def run(self) -> Outcome:
        """Fetch what the parts lack.

        Fetched rows are written also after an error or a cancellation.
        """
        try:
            await self.thread.run(self.log.open)
            try:
                await self.fetcher.fetch()
            finally:
                await self.thread.run(self.log.close)
        finally:
            self.thread.shutdown()
        counts = self._counts()
        self.report(counts)
        return Outcome(counts, self.fetcher.failures, tuple(self.log.written))

    def _report(self) -> None:
        now = self.progress.elapsed
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            self.report(self._counts())

    def _counts(self) -> dict[str, int]:
        """Return the counts.

        Rows include those that an earlier worker wrote in this run of the export.
        """
        rows, invalid = self.log.counts
        return {**self.progress.counts, "rows": rows, "invalid": invalid}
