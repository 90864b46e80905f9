"""Tasks of an export on the workers of a cluster: each exports a partition.

One task prepares the folder first. A partition is a set of the sources. Its task runs the export of
`chainapi.export.run` with the session of its worker. It has the log of any folder (`chainapi.export.log`),
in ``_log/part-00003``. A worker that takes a partition over makes a commit first, so that a worker that was
taken for dead can make no further one.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from attrs import evolve, field, frozen
from distributed import get_worker

from chainapi._background import in_background
from chainapi.dask.plugins import SESSIONS, plugin_soon
from chainapi.errors import ChainAPIError, ExportError, IncompleteExportError
from chainapi.export.log import DataFile, Log, TargetState
from chainapi.export.run import Run
from chainapi.export.spec import ExportSpec
from chainapi.export.target import Target, target_of

__all__ = ["Held", "Job", "Outcome", "export_partition", "prepare"]

PARTITIONS = 32
CLUSTER = "_log/cluster.json"  # has the number of partitions
REPORT_EVERY = 0.2  # seconds between two reports of a partition


@frozen
class Held:
    """State of a partition: the number of its newest commit, and its rows."""

    number: int = 0
    rows: int = 0
    invalid: int = 0

    @classmethod
    def of(cls, state: TargetState) -> Held:
        """Return what a log has."""
        files = state.files.values()
        rows, invalid = (sum(one.rows for one in files if one.invalid is bad) for bad in (False, True))
        return cls(state.number, rows, invalid)


@frozen
class Job:
    """Export, or one partition of it.

    Attributes:
        route: dotted name of the method of a session.
        url: URL or absolute path of the folder.
        options: options of its file system.
        spec: specification, without the method.
        name: name of the run of the export.
        sessions: name of the plugin that has the sessions.
        number: number of the partition.
        before: what the partition had when the run of the export began.

    """

    route: str
    url: str
    options: Mapping[str, Any] = field(repr=False)  # may have the credentials of the file system
    spec: ExportSpec = field(repr=False)
    name: str = field(factory=lambda: uuid4().hex)
    sessions: str = SESSIONS
    number: int = 0
    before: Held = Held()

    @property
    def group(self) -> str:
        """First part of the keys of all tasks, by which the dashboard groups them."""
        return f"{self.route}-export-{self.name}"

    @property
    def target(self) -> Target:
        """The folder."""
        return target_of(self.url, "parquet", self.options)


class Outcome(NamedTuple):
    """Outcome of one partition: counts, errors of sources by label, new files."""

    counts: Mapping[str, int]
    failures: Mapping[str, ChainAPIError]
    files: Sequence[DataFile]


def prepare(job: Job, partitions: int | None) -> list[Held]:
    """Check the folder of an export; return what each of its partitions has.

    Raises:
        ExportError: the folder holds other files, or an export with another number of partitions.

    """
    storage, address = job.target.storage, job.target.address
    names = storage.names(below=True)
    if CLUSTER not in names:
        if others := [name for name in names if not name.endswith(".partial")]:
            raise ExportError(
                f"{address} is not empty, and no distributed export wrote it: it has {others[0]}, and no"
                f" {CLUSTER}. Move its files away, or choose another target"
            )
        storage.create(CLUSTER, msgspec.json.encode({"partitions": partitions or PARTITIONS}))
    try:
        count = msgspec.json.decode(storage.read(CLUSTER) or b"", type=dict[str, int])["partitions"]
    except (msgspec.DecodeError, LookupError):
        raise ExportError(
            f"{CLUSTER} in {address} is damaged: put it back, or choose another target"
        ) from None
    if partitions not in (None, count):
        raise ExportError(
            f"{address} has {count} partitions, and partitions={partitions} was given: leave it out"
        )
    begun = {name.rpartition("/")[0] for name in names}
    logs = [f"_log/part-{number:05}" for number in range(count)]
    return [Held.of(Log(storage, log).read()) if log in begun else Held() for log in logs]


async def export_partition(job: Job) -> Outcome:
    """Export a partition with the session of the worker that runs this task.

    Raises:
        ConfigurationError: the worker has no session, or the route rejects the arguments.
        Reschedule: the export was stopped, or another worker has to run the task.
        ExportError: the folder cannot be read or written, or a newer export has the partition.
        ChainAPIError: an error that concerns all sources, such as a rejected key.

    """
    worker, key, stem = get_worker(), (job.group, job.number), f"part-{job.number:05}"
    plugin = await plugin_soon(worker, job.sessions, key)
    target = evolve(job.target, log=f"_log/{stem}")
    spec = evolve(job.spec, walk=operator.attrgetter(job.route)(plugin.session))
    sink = target.sink(compact=bool(spec.compact), seconds=spec.commit_seconds)
    run = Run(spec, target, sink, 0.0, None)

    def report() -> None:
        worker.log_event(job.group, {"partition": job.number, **run.progress.counts})

    async def report_again() -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            report()

    async def whole() -> Mapping[str, ChainAPIError]:
        try:
            async with in_background(report_again()):
                await run.run()
        except IncompleteExportError as error:
            return error.failures
        return {}

    failures = await plugin.run(key, whole())
    report()
    # Workers that have died may have added rows before.
    now, before, counts = Held.of(sink.state), job.before, run.progress.counts
    counts["rows"] = now.rows - before.rows + counts["removed"]
    counts["invalid"] = now.invalid - before.invalid
    new = [one for one in sink.state.files.values() if int(one.name.split("-")[2]) > before.number]
    return Outcome(counts, failures, [msgspec.structs.replace(one, sources={}) for one in new])
