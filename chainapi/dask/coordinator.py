"""Coordinator of a distributed export, on the side of the Dask client."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4
from zlib import crc32

from attrs import define, field, frozen
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from chainapi._text import did_you_mean, quoted
from chainapi.api.catalogue import ROUTES
from chainapi.client.background import end
from chainapi.dask.partition import Folder, Job, Outcome, fetch_partition, group_of, prepare, topic_of
from chainapi.dask.plugins import SESSIONS, install, stop_tasks
from chainapi.errors import (
    ArgumentError,
    ChainAPIError,
    ConfigurationError,
    ExportError,
    IncompleteExportError,
)
from chainapi.export.formats.parquet import FORMAT as PARQUET
from chainapi.export.formats.parquet import Parquet
from chainapi.export.progress import ExportProgress, Stage
from chainapi.export.ranges import RangesOfSources
from chainapi.export.spec import Arguments, sent_values
from chainapi.tables.types import Amounts

__all__ = ["DistributedExport", "DistributedResult"]

STOP_WITHIN = 60.0  # seconds that workers have to write what they fetched, before an error is raised
BY_PATH = ("data.list", "metrics.list")  # methods of a session for lists by their paths


@frozen
class DistributedResult:
    """Result of a distributed export.

    Attributes:
        target: the folder, as a URL or an absolute path.
        rows: number of fetched rows that the target lacked.
        sources: number of sources.
        written: names of the new files in the folder.
        invalid: number of invalid rows, which `rows` does not count (``on_invalid="raw"``).

    """

    target: str
    rows: int
    sources: int
    written: tuple[str, ...]
    invalid: int = 0


@define(eq=False)
class DistributedExport:
    """One run of a distributed export.

    Attributes:
        client: the Dask client.
        route: dotted name of the method of a session.
        sources: the sources.
        folder: folder of the data set.
        query: keyword arguments that all sources share.
        limit: rows of each source; None for all.
        partitions: number of partitions; None for that of the folder, or the default.
        concurrency: sources that a worker opens at once in a partition.
        part_rows: rows of a part.
        part_bytes: bytes of the rows of a part, as JSON.
        on_progress: called at each stage and several times a second.
        session_arguments: arguments of sessions for this export alone; None for the registered ones.
        amounts: type of amounts; None for that of the folder, or the default.
        fields: names of the columns; None for those of the folder, or all.
        format: options of the files.
        ranges: ranges of each source that has not begun; None to walk it as a whole.

    """

    client: Any
    route: str
    sources: Iterable[Any] | AsyncIterable[Any]
    folder: Folder
    query: Mapping[str, Any]
    limit: int | None
    partitions: int | None
    concurrency: int
    part_rows: int
    part_bytes: int
    on_progress: Callable[[ExportProgress], None] | None
    session_arguments: Mapping[str, Any] | None
    amounts: Amounts | None = None
    fields: tuple[str, ...] | None = None
    format: Parquet = PARQUET
    ranges: RangesOfSources | None = None
    name: str = field(factory=lambda: uuid4().hex, init=False)
    progress: ExportProgress = field(init=False)
    _counts: dict[int, Mapping[str, int]] = field(factory=dict[int, Mapping[str, int]], init=False)
    _error: Exception | None = field(default=None, init=False)  # of on_progress
    _failed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _lost: bool = field(default=False, init=False)  # the scheduler is gone, and with it all of its workers

    async def run(self) -> DistributedResult:
        """Export on the workers.

        Raises:
            IncompleteExportError: some sources failed; the others are in the target.
            ExportError: the target cannot be read or written, or holds another export; or the cluster failed.
            ChainAPIError: an error that concerns all sources, such as a rejected key.

        """
        _check_route(self.route)
        loop = asyncio.get_running_loop()
        arguments = await self._arguments()
        self.progress = ExportProgress(len(arguments), clock=loop.time)
        if self.route in ROUTES:  # of paths it is not known before the first page
            self.progress.incremental = ROUTES[self.route].record.shows_new_rows
        async with self._sessions() as sessions:
            jobs = await self._jobs(arguments, sessions)
            self.client.subscribe_topic(topic_of(self.name), self._received)
            try:
                outcomes = await self._fetch(jobs, sessions)
            finally:
                if self._connected:
                    self.client.unsubscribe_topic(topic_of(self.name))
        return self._result(outcomes)

    @asynccontextmanager
    async def _sessions(self) -> AsyncIterator[str]:
        """Yield the name of the plugin with the sessions; remove those of this export."""
        if self.session_arguments is None:
            await install(self.client, {}, idempotent=True)
            yield SESSIONS
            return
        name = f"{SESSIONS}-{self.name}"
        await install(self.client, self.session_arguments, name)
        try:
            yield name
        finally:
            if self._connected:
                await self.client.unregister_worker_plugin(name)

    async def _arguments(self) -> list[Arguments]:
        """Return the arguments of each source, each source once."""
        if isinstance(self.sources, AsyncIterable):
            found = [Arguments.of(source) async for source in self.sources]
        else:
            found = [Arguments.of(source) for source in self.sources]
        if not found:
            raise ConfigurationError("there is nothing to export: sources= is empty")
        return [*{one.texts: one for one in reversed(found)}.values()][::-1]

    async def _jobs(self, arguments: Iterable[Arguments], sessions: str) -> list[Job]:
        query = sent_values(ROUTES.get(self.route), self.query)
        about = {
            "format": 1,
            "route": self.route,
            "limit": self.limit,
            "amounts": self.amounts,
            "fields": None if self.fields is None else [*self.fields],
            "query": query,
            "partitions": self.partitions,
        }
        key = f"{self.route}-prepare-{self.name}"
        future = self.client.submit(prepare, self.folder, about, key=key, pure=False)
        settings = await self._result_of(future)
        count, fields = settings["partitions"], settings["fields"]
        by_number: defaultdict[int, list[Arguments]] = defaultdict(list)
        for one in arguments:
            by_number[crc32(one.label.encode("utf-8", "surrogatepass")) % count].append(one)
        return [
            Job(
                self.name,
                sessions,
                number,
                self.folder,
                self.route,
                tuple(sources),
                self.query,
                self.limit,
                self.concurrency,
                self.part_rows,
                self.part_bytes,
                settings["amounts"],
                None if fields is None else tuple(fields),
                self.format,
                self.ranges,
            )
            for number, sources in sorted(by_number.items())
        ]

    async def _fetch(self, jobs: Iterable[Job], sessions: str) -> list[Outcome]:
        """Return the outcomes of all partitions; after an error stop them."""
        self._report()
        futures = [self.client.submit(fetch_partition, job, key=job.key, pure=False) for job in jobs]
        waiting = [asyncio.ensure_future(self._result_of(future)) for future in futures]
        failed: asyncio.Future[Any] = asyncio.ensure_future(self._failed.wait())
        everything: asyncio.Future[list[Outcome]] = asyncio.gather(*waiting)
        try:
            await asyncio.wait([everything, failed], return_when=asyncio.FIRST_COMPLETED)
            self._raise_error()
            return await everything
        except BaseException:
            await self._stop(futures, sessions)
            raise
        finally:
            await end(everything, failed, *waiting)

    async def _stop(self, futures: list[Any], sessions: str) -> None:
        """Stop the partitions; workers write what they have fetched."""
        if not self._connected:
            return
        with suppress(OSError, TimeoutError, FutureCancelledError):  # the scheduler is gone
            await self.client.cancel(futures)
            group = group_of(self.route, self.name)
            stopping = self.client.run(stop_tasks, group, sessions, on_error="ignore")
            await asyncio.wait_for(stopping, STOP_WITHIN)

    @property
    def _connected(self) -> bool:
        return not self._lost and self.client.status == "running"

    async def _result_of(self, future: Any) -> Any:
        try:
            return await future
        except KilledWorker as error:
            raise ExportError(
                f"workers died again and again in the export to {self.folder.url} ({error}): read their "
                "logs, and start the same export again to continue"
            ) from error
        except (FutureCancelledError, CommClosedError) as error:
            reason = getattr(error, "reason", None)
            self._lost |= isinstance(error, CommClosedError) or reason == "scheduler-connection-lost"
            raise ExportError(
                f"the Dask cluster gave up the export to {self.folder.url} ({error}): start the same export "
                "again to continue"
            ) from error

    def _received(self, event: tuple[float, Mapping[str, int]]) -> None:
        _, message = event
        counts = dict(message)
        self._counts[counts.pop("partition")] = counts
        self._report()

    def _report(self, stage: Stage = "fetching") -> None:
        self.progress.add_up(self._counts.values())
        self.progress.stage = stage
        if self.on_progress is None or self._error is not None:
            return
        try:
            self.on_progress(self.progress)
        except Exception as error:  # noqa: BLE001 - Dask would only log it; `_fetch` raises it
            self._error = error
            self._failed.set()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _result(self, outcomes: list[Outcome]) -> DistributedResult:
        self._counts = dict(enumerate(outcome.counts for outcome in outcomes))
        self._report("done")
        self._raise_error()
        failures = {label: error for outcome in outcomes for label, error in outcome.failures.items()}
        if failures:
            raise self._incomplete(failures)
        progress = self.progress
        written = sorted(name for outcome in outcomes for name in outcome.written)
        return DistributedResult(
            self.folder.url, progress.rows, progress.seen, tuple(written), progress.invalid
        )

    def _incomplete(self, failures: Mapping[str, ChainAPIError]) -> IncompleteExportError:
        label, error = next(iter(failures.items()))
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        seen = self.progress.seen
        others = "the others and " if len(failures) < seen else ""
        return IncompleteExportError(
            f"{len(failures)} of {seen} sources failed: {label} ({error}){more}; {others}the pages before"
            f" each failure are in {self.folder.url}. Start the same export again to fetch the rest",
            failures,
        )


def _check_route(route: str) -> None:
    """Refuse a route that no session has, or that is no list."""
    if not isinstance(route, str):
        raise ArgumentError(f"route={quoted(route)} must be the name of a method, such as data.evm.blocks")
    if route in BY_PATH:
        return
    if route not in ROUTES:
        hint = did_you_mean(route, (*ROUTES, *BY_PATH), "`chainapi routes` shows all names")
        raise ConfigurationError(f"no route is named {quoted(route)}: {hint}")
    if ROUTES[route].single:
        raise ConfigurationError(f"{route} returns a single resource: only lists can be exported")
