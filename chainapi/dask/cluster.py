"""Exports on a cluster, on the client: a task is a partition of the sources."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from zlib import crc32

from attrs import define, evolve, field
from distributed import Client
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from chainapi._api.catalogue import ROUTES
from chainapi._background import end
from chainapi.dask.partition import Held, Job, Outcome, export_partition, prepare
from chainapi.dask.plugins import SESSIONS, install, stop_tasks
from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.progress import ExportProgress, Stage
from chainapi.export.result import ExportResult
from chainapi.export.spec import Arguments, incomplete

__all__ = ["ClusterExport"]

STOP_WITHIN = 60.0  # seconds that workers have to write what they fetched, before an error is raised
ATTEMPTS = 10  # of a partition whose workers die


@define(eq=False)
class ClusterExport:
    """One run of a distributed export.

    Attributes:
        client: the Dask client.
        job: the export.
        partitions: number of partitions; None to keep the number that the folder has, or for the default.
        on_progress: called at each stage and several times a second.
        session_arguments: arguments of sessions for this export alone; None for the registered ones.

    """

    client: Client
    job: Job
    partitions: int | None
    on_progress: Callable[[ExportProgress], None] | None
    session_arguments: Mapping[str, Any] | None
    progress: ExportProgress = field(init=False)
    _counts: dict[int, Mapping[str, int]] = field(factory=dict[int, Mapping[str, int]], init=False)
    _error: asyncio.Future[Exception] = field(init=False)  # of on_progress
    _futures: list[Any] = field(factory=list[Any], init=False)
    _lost: bool = field(default=False, init=False)  # the scheduler is gone, and with it all of its workers

    async def run(self) -> ExportResult:
        """Export on the workers.

        Raises:
            IncompleteExportError: some sources failed; the others are in the target.
            ExportError: the target cannot be read or written, or holds another export; or the cluster failed.
            ChainAPIError: an error that concerns all sources, such as a rejected key.

        """
        job, loop = self.job, asyncio.get_running_loop()
        self._error = loop.create_future()
        arguments = [*{one.texts: one async for one in job.spec.arguments()}.values()]
        if not arguments:
            raise ConfigurationError("there is nothing to export: sources= is empty")
        self.progress = ExportProgress(len(arguments), limit=job.spec.limit, clock=loop.time)
        if job.route in ROUTES:  # of paths it is not known before the first page
            self.progress.incremental = ROUTES[job.route].record.shows_new_rows
        async with self._sessions() as sessions:
            key = f"{job.route}-prepare-{job.name}"
            before = await self._result_of(key, prepare, job, self.partitions)
            self.client.subscribe_topic(job.group, self._received)
            try:
                jobs = [*_divided(evolve(job, sessions=sessions), arguments, before)]
                outcomes = await self._fetch(jobs)
            finally:
                if self._connected:
                    self.client.unsubscribe_topic(job.group)
        return self._result(outcomes)

    @asynccontextmanager
    async def _sessions(self) -> AsyncIterator[str]:
        """Yield the name of the plugin with the sessions; remove those for this export."""
        if self.session_arguments is None:
            await install(self.client, {}, idempotent=True)
            yield SESSIONS
            return
        name = f"{SESSIONS}-{self.job.name}"
        await install(self.client, self.session_arguments, name)
        try:
            yield name
        finally:
            if self._connected:
                await self.client.unregister_worker_plugin(name)

    async def _fetch(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Return the outcomes of all partitions; after an error stop them."""
        self._report()
        tasks = (self._result_of((job.group, job.number), export_partition, job) for job in jobs)
        waiting = [asyncio.ensure_future(task) for task in tasks]
        everything: asyncio.Future[list[Outcome]] = asyncio.gather(*waiting)
        try:
            first: list[asyncio.Future[Any]] = [everything, self._error]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            self._raise()
            return await everything
        except BaseException:
            if self._connected:  # workers write what they have fetched
                with suppress(OSError, TimeoutError, FutureCancelledError):  # the scheduler is gone
                    await self.client.cancel(self._futures)
                    stopping = self.client.run(stop_tasks, jobs[0].group, jobs[0].sessions, on_error="ignore")
                    await asyncio.wait_for(stopping, STOP_WITHIN)
            raise
        finally:
            await end(everything, *waiting)

    @property
    def _connected(self) -> bool:
        return not self._lost and self.client.status == "running"

    async def _result_of(self, key: Any, function: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a task; one whose workers die runs again, and continues."""
        address = self.job.url
        try:
            future: Any = self.client.submit(function, *given, key=key, pure=False)
            self._futures.append(future)
            for _ in range(ATTEMPTS - 1):
                with suppress(KilledWorker):
                    return await future
                await self.client.retry([future])
            return await future
        except KilledWorker as error:
            raise ExportError(
                f"workers died again and again in the export to {address} ({error}): read their logs, and"
                " start the same export again to continue"
            ) from error
        except (FutureCancelledError, CommClosedError) as error:
            reason = getattr(error, "reason", None)
            self._lost |= isinstance(error, CommClosedError) or reason == "scheduler-connection-lost"
            raise ExportError(
                f"the Dask cluster gave up the export to {address} ({error}): start the same export again to"
                " continue"
            ) from error

    def _received(self, event: tuple[float, Mapping[str, int]]) -> None:
        counts = dict(event[1])
        self._counts[counts.pop("partition")] = counts
        self._report()

    def _report(self, stage: Stage = "fetching") -> None:
        self.progress.add_up(self._counts.values())
        self.progress.stage = stage
        if self.on_progress is None or self._error.done():
            return
        try:
            self.on_progress(self.progress)
        except Exception as error:  # noqa: BLE001 - Dask would only log it; `_raise` raises it
            self._error.set_result(error)

    def _raise(self) -> None:
        if self._error.done():
            raise self._error.result()

    def _result(self, outcomes: Sequence[Outcome]) -> ExportResult:
        self._counts = dict(enumerate(outcome.counts for outcome in outcomes))
        self._report("done")
        self._raise()
        target, progress = self.job.target, self.progress
        if failures := {label: error for one in outcomes for label, error in one.failures.items()}:
            raise incomplete(failures, progress.seen, str(target.address))
        files = [file for outcome in outcomes for file in outcome.files]
        return ExportResult(
            target.address,
            progress.rows,
            progress.seen,
            tuple(target.file(file.name) for file in files if not file.invalid),
            progress.invalid,
            tuple(target.file(file.name) for file in files if file.invalid),
            progress.skipped,
            progress.closed,
            progress.removed,
        )


def _divided(job: Job, arguments: Iterable[Arguments], before: Sequence[Held]) -> Iterable[Job]:
    """Yield the partitions that have a source; each run has the same ones."""
    by_number: defaultdict[int, list[Arguments]] = defaultdict(list)
    for one in arguments:
        by_number[crc32(one.label.encode("utf-8", "surrogatepass")) % len(before)].append(one)
    for number, sources in sorted(by_number.items()):
        yield evolve(job, spec=evolve(job.spec, over=tuple(sources)), number=number, before=before[number])
