"""Exports on a Dask cluster: the rows of a local export, through the session of each worker."""

from __future__ import annotations

import asyncio
import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from attrs import define, field
from dask import config
from dask.utils import key_split
from distributed.scheduler import KilledWorker
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

import chainapi.dask
from chainapi import Session
from chainapi.errors import (
    AuthenticationError,
    ConfigurationError,
    ExportError,
    IncompleteExportError,
    NotFoundError,
    TargetInUseError,
)
from chainapi.export import ExportResult, ParquetOptions, compact, export, files
from chainapi.models import EvmBlock
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.dask.clusters import Shared, arguments_of, cluster_of, rows_at, rows_in, straight
from tests.ledger import ADDRESS, Ledger
from tests.raw_server import until

pytestmark = [pytest.mark.real_time, pytest.mark.adapter]

CHAINS = tuple(range(1, 9))
ROUTE = "data.evm.blocks"
LEDGER = "data.evm.erc20_transactions"
PLUGIN = "chainapi-session"  # the name by which workers know the plugin of `register`


@asynccontextmanager
async def registered(
    *, workers: int = 2, simulator: Simulator | None = None, **options: Any
) -> AsyncIterator[tuple[distributed.Client, Simulator]]:
    """Start a simulator, and a cluster whose workers have sessions of it."""
    async with (
        simulator or Simulator(chains=CHAINS, rows=60) as simulator,
        cluster_of(workers) as (client, _),
    ):
        await chainapi.dask.register(client, **arguments_of(simulator), **options)
        yield client, simulator


@define(eq=False)
class Held(Ledger):
    """Ledger whose pages after the fourth one wait for an event."""

    opened: asyncio.Event = field(factory=asyncio.Event)
    waiting: int = 0

    async def send(self, request: Request) -> Response:
        """Answer a request for a page."""
        if len(self.requests) >= 4 and not self.opened.is_set():
            self.waiting += 1
            await self.opened.wait()
        return await super().send(request)


@asynccontextmanager
async def exporting(
    ledger: Ledger, target: Any, **options: Any
) -> AsyncIterator[tuple[Callable[..., Any], distributed.LocalCluster]]:
    """Start a cluster, and yield a function that exports the list of a ledger on it, as one partition."""
    async with cluster_of(2) as (client, cluster):
        session = {"session_arguments": Shared(ledger).arguments, "partitions": 1, "page_size": 10}

        def run(**more: Any) -> Any:
            given = LEDGER, [(43114, ADDRESS)], target
            return chainapi.dask.export(client, *given, **{**session, **options, **more})

        yield run, cluster


async def cancel(run: asyncio.Future[Any]) -> None:
    """Cancel a run, and wait for its end."""
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


def serials(target: Path) -> Counter[int]:
    """Count the rows of a ledger in a folder, by their serials."""
    column = ds.dataset(target, format="parquet").to_table(columns=["tx_hash"])["tx_hash"]
    return Counter(int(one[2:]) for one in column.to_pylist())


# Rows


async def test_the_rows_are_those_of_a_local_export(tmp_path: Path) -> None:
    """A folder that the workers wrote has the rows of a local export, for every reader of Parquet."""
    seen: list[tuple[str, int, int]] = []

    def note(progress: Any) -> None:
        seen.append((progress.stage, progress.done, progress.rows))
        assert progress.incremental

    async with registered() as (client, simulator):
        target = tmp_path / "blocks"
        options: dict[str, Any] = {"page_size": 10, "parquet": ParquetOptions(compression="gzip")}
        result = await chainapi.dask.export(
            client, ROUTE, CHAINS, target, progress=note, partitions=4, **options
        )
        assert isinstance(result, ExportResult)
        assert (result.path, result.rows, result.sources) == (target, 480, 8)
        assert {*result.written} == {*target.glob("*.parquet")} == {file.path for file in files(target)}
        for path in result.written:
            assert re.fullmatch(r"part-0000\d-0000000\d-[0-9a-f]{12}.parquet", Path(path).name)
        assert pq.ParquetFile(result.written[0]).metadata.row_group(0).column(0).compression == "GZIP"
        assert seen[0] == ("fetching", 0, 0)
        assert seen[-1] == ("done", 8, 480)
        assert [rows for *_, rows in seen] == sorted(rows for *_, rows in seen)
        assert rows_in(target) == await straight(simulator, tmp_path, CHAINS)
        again = await chainapi.dask.export(client, ROUTE, CHAINS, target, **options)
        assert (again.rows, again.written) == (0, ())
        simulator.insert("/v1/chains/3/blocks", 5)
        more = await chainapi.dask.export(client, ROUTE, [*CHAINS[2:], 1], target, page_size=10)
        assert (more.rows, more.sources, len(more.written)) == (5, 7, 1)
        assert rows_in(target) == rows_at(target) == await straight(simulator, tmp_path / "new", CHAINS)


@pytest.mark.proof
async def test_paths_are_sources(tmp_path: Path) -> None:
    """Lists by their paths are exported with a class for their rows, and refused without one."""
    async with registered() as (client, simulator):
        paths = [f"/v1/chains/{chain}/blocks" for chain in CHAINS[:2]]
        run: Any = chainapi.dask.export
        options: dict[str, Any] = {"model": EvmBlock, "descending_key": "block_number"}
        result = await run(client, "data.list", paths, tmp_path / "b", **options)
        assert (result.rows, result.sources) == (120, 2)
        simulator.insert(paths[0], 5)
        assert (await run(client, "data.list", paths, tmp_path / "b", **options)).rows == 5
        with pytest.raises(ConfigurationError, match="model="):
            await run(client, "data.list", paths, tmp_path / "c")


async def test_ranges_stay_exact_after_a_stop(tmp_path: Path) -> None:
    """Ranges continue after a cancelled run whose page tokens have died, and find new rows later."""
    ledger = Held(list(range(120)), latency=0.0, lifetime=1.0)
    async with exporting(ledger, tmp_path / "b") as (run, _):
        first = asyncio.ensure_future(run(ranges=4, concurrency=2))
        await until(lambda: ledger.waiting == 2)
        await cancel(first)
        kept = serials(tmp_path / "b").total()
        assert 0 < kept < 120
        ledger.opened.set()
        asyncio.get_running_loop().jump(ledger.lifetime)  # type: ignore[attr-defined]
        assert (await run(ranges=4)).rows == 120 - kept
        ledger.numbers += [119, 120]
        result = await run(ranges=4)
        assert (result.rows, result.closed) == (2, 0)
    assert serials(tmp_path / "b") == Counter(range(122))


async def test_a_lookback_corrects_rows(tmp_path: Path) -> None:
    """Within a lookback, late rows are added, changed ones replaced and withdrawn ones removed."""
    ledger = Ledger(list(range(40)), latency=0.0, by_number=True)
    async with exporting(ledger, tmp_path / "b") as (run, _):
        await run()
        ledger.numbers.append(35)  # late
        ledger.changed[38] = {"logIndex": 5}
        ledger.gone.update({20, 36})
        result = await run(lookback=10)
        assert (result.rows, result.removed) == (2, 2)
        assert serials(tmp_path / "b") == Counter({*range(41)} - {36})
        assert sum("'log_index', 5)" in row for row in rows_at(tmp_path / "b")) == 2


@define(eq=False)
class Stepwise(Ledger):
    """Ledger that answers once the page before is committed."""

    log: Path = field(kw_only=True)

    async def send(self, request: Request) -> Response:
        """Answer a request for a page."""
        while len([*self.log.glob("*.json")]) <= len(self.requests):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return await super().send(request)


async def test_small_parts_are_merged(tmp_path: Path) -> None:
    """A run merges the parts of a partition once it has 24 small ones, but not with compact=False."""
    target = tmp_path / "b"
    ledger = Stepwise([*range(48)], latency=0.0, log=target / "_log" / "part-00000")
    async with exporting(ledger, target, commit_seconds=0.0, page_size=2) as (run, _):
        assert len((await run(compact=False)).written) == 24
        result = await run()
    assert [*result.written] == [*target.glob("*.parquet")]
    assert (result.rows, len(result.written)) == (0, 1)
    assert serials(target) == Counter(range(48))


async def test_small_parts_are_merged_later(tmp_path: Path) -> None:
    """`compact` merges the parts of each partition of a folder."""
    target = tmp_path / "b"
    ledger = Stepwise([*range(10)], latency=0.0, log=target / "_log" / "part-00000")
    async with exporting(ledger, target, commit_seconds=0.0, page_size=2) as (run, _):
        await run(compact=False)
    assert await asyncio.to_thread(compact, target) == 5
    assert [file.path for file in files(target)] == [*target.glob("*.parquet")]
    assert serials(target) == Counter(range(10))


# Failures


async def test_failed_sources_are_named(tmp_path: Path) -> None:
    """The error has the failure of each source, and the others are in the folder."""
    async with registered() as (client, simulator):
        with pytest.raises(IncompleteExportError, match=r"1 of 3 sources failed: 77 \(404") as caught:
            await chainapi.dask.export(client, ROUTE, [1, 77, 2], tmp_path / "b", page_size=10)
        # A partition whose sources all failed has nothing to merge.
        with pytest.raises(IncompleteExportError):
            await chainapi.dask.export(client, ROUTE, [77], tmp_path / "none", page_size=10)
        assert compact(tmp_path / "none") == 0
        assert isinstance(caught.value.failures["77"], NotFoundError)
        assert rows_in(tmp_path / "b") == await straight(simulator, tmp_path, (1, 2))


async def test_a_rejected_key_ends_the_export(tmp_path: Path) -> None:
    """An error that concerns all sources is raised unchanged, and stops the other partitions."""
    async with Simulator(chains=CHAINS) as simulator, cluster_of() as (client, _):
        await chainapi.dask.register(client, **{**arguments_of(simulator), "api_key": "another"})
        with pytest.raises(AuthenticationError):
            await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b")


async def test_progress_that_fails_ends_the_export(tmp_path: Path) -> None:
    """An exception of the function of progress= is raised, and stops the workers."""

    def fail(progress: Any) -> None:
        if progress.rows:
            raise RuntimeError("no room on the screen")

    async with registered() as (client, _):
        with pytest.raises(RuntimeError, match="no room"):
            await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b", progress=fail, page_size=10)


async def test_a_cancelled_export_keeps_what_workers_fetched(tmp_path: Path) -> None:
    """After a cancellation the workers have written all fetched pages; a new run requests the others."""
    ledger = Held(list(range(120)), latency=0.0)
    async with exporting(ledger, tmp_path / "b") as (run, _):
        first = asyncio.ensure_future(run())
        await until(lambda: ledger.waiting == 1)
        await cancel(first)
        assert serials(tmp_path / "b").total() == 40
        ledger.opened.set()
        assert (await run()).rows == 80
    assert len(ledger.requests) == 12
    assert serials(tmp_path / "b") == Counter(range(120))


@pytest.mark.parametrize("place", ["", "memory://", "local://"])  # the last one has no exclusive creation
async def test_two_workers_of_one_partition_do_not_both_commit(place: str, tmp_path: Path) -> None:
    """The run that begins later takes a partition over; the earlier one ends, and no row is there twice."""
    MemoryFileSystem.store.clear()
    target = f"{place}{tmp_path}/b"
    ledger = Held(list(range(120)), latency=0.0)
    async with exporting(ledger, target, commit_seconds=0.0) as (run, _):
        first = asyncio.ensure_future(run())
        await until(lambda: ledger.waiting == 1)
        second = asyncio.ensure_future(run())
        await until(lambda: ledger.waiting == 2)
        ledger.opened.set()
        with pytest.raises(TargetInUseError, match="another export is writing to this target"):
            await first
        result = await second
    assert str(result.path) == target
    assert {*result.written} <= {file.path for file in files(target)}
    rows = rows_at(target)
    assert rows.total() == len(rows) == 120
    MemoryFileSystem.store.clear()


async def test_a_partition_whose_workers_die_runs_again(tmp_path: Path) -> None:
    """A partition that Dask has given up runs again, and the result has the rows of all its workers."""
    ledger, target = Held(list(range(120)), latency=0.0), tmp_path / "b"
    with config.set({"distributed.scheduler.allowed-failures": 0}):
        async with exporting(ledger, target, commit_seconds=0.0) as (run, cluster):
            scheduler: Any = cluster.scheduler
            running = asyncio.ensure_future(run())
            await until(lambda: ledger.waiting == 1 and [*target.glob("*.parquet")] != [])
            [task] = [one for one in scheduler.tasks.values() if one.processing_on is not None]
            await scheduler.remove_worker(task.processing_on.address, stimulus_id="lost", expected=False)
            await until(lambda: ledger.waiting == 2)
            ledger.opened.set()
            result = await running
    assert (result.rows, len(ledger.requests) < 16) == (120, True)
    assert serials(target) == Counter(range(120))
    assert {*result.written} == {*target.glob("*.parquet")}


DEATHS = list[str]()


def die() -> None:
    """Fail as Dask does after the deaths of the workers of a task."""
    DEATHS.append("")
    raise KilledWorker("task", SimpleNamespace(address="tcp://127.0.0.1:9"), 3)  # type: ignore[arg-type]


async def test_workers_that_die_again_and_again_end_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten attempts the error names the way to continue the export."""
    async with cluster_of(1) as (client, _):
        submit = client.submit

        def dying(task: Any, *given: Any, key: Any, pure: bool) -> Any:
            return submit(*((die,) if isinstance(key, tuple) else (task, *given)), key=key, pure=pure)

        monkeypatch.setattr(client, "submit", dying)
        DEATHS.clear()
        with pytest.raises(ExportError, match="workers died again and again in the export to"):
            await chainapi.dask.export(client, ROUTE, [1], tmp_path / "b")
    assert len(DEATHS) == 10


async def test_a_client_that_leaves_ends_the_export(tmp_path: Path) -> None:
    """Workers whose client is gone write what they have, and send no further requests."""
    ledger = Held(list(range(120)), latency=0.0)
    given = LEDGER, [(43114, ADDRESS)], tmp_path / "b"
    async with cluster_of(2, protocol="tcp") as (_, cluster):
        async with distributed.Client(cluster, asynchronous=True) as client:
            await chainapi.dask.register(client, **Shared(ledger).arguments)
            run = asyncio.ensure_future(chainapi.dask.export(client, *given, page_size=10))
            await until(lambda: ledger.waiting == 1)
            await client.close()  # pyright: ignore[reportGeneralTypeIssues] - of an asynchronous client
        await until(lambda: not any(worker.active_keys for worker in cluster.workers.values()))
        await until((tmp_path / "b").glob("*.parquet").__next__().exists)
        with pytest.raises(ExportError, match="start the same export again"):
            await run
    assert (serials(tmp_path / "b").total(), len(ledger.requests)) == (40, 4)


async def test_a_worker_that_retires_hands_its_partitions_over(tmp_path: Path) -> None:
    """After a worker was retired, another one continues after its last commit."""
    ledger, target = Held(list(range(120)), latency=0.0), tmp_path / "b"
    async with exporting(ledger, target) as (run, cluster):
        running = asyncio.ensure_future(run())
        await until(lambda: ledger.waiting == 1)
        [worker] = [worker for worker in cluster.workers.values() if worker.active_keys]
        scheduler: Any = cluster.scheduler
        await scheduler.retire_workers([worker.address])
        await until(lambda: ledger.waiting == 2)
        ledger.opened.set()
        assert (await running).rows == 120
    assert serials(target) == Counter(range(120))


# What is refused


async def test_folders_of_others_are_refused(tmp_path: Path) -> None:
    """Files that no distributed export wrote are left alone, also those of local exports."""
    mine, local = tmp_path / "mine", tmp_path / "local"
    mine.mkdir()
    (mine / "notes.txt").write_text("{}")
    async with registered() as (client, simulator), Session(**arguments_of(simulator)) as session:
        await export(session.data.evm.blocks, [1], local, format="parquet")
        paths = [path for path in tmp_path.rglob("*.*") if path.is_file()]  # noqa: ASYNC240
        before = {path: path.read_bytes() for path in paths}
        for folder, message in (
            (mine, "is not empty, and no distributed export wrote it: it has notes.txt"),
            (local, "is not empty, and no distributed export wrote it"),
        ):
            with pytest.raises(ExportError, match=message):
                await chainapi.dask.export(client, ROUTE, [1], folder)
        assert {path: path.read_bytes() for path in paths} == before
        await chainapi.dask.export(client, ROUTE, [1], tmp_path / "b")
        with pytest.raises(ExportError, match="is not empty, and no export wrote it"):
            await export(session.data.evm.blocks, [1], tmp_path / "b", format="parquet")


async def test_settings_of_a_folder_stay(tmp_path: Path) -> None:
    """The number of partitions and what chooses rows stay those of the first run, or are refused by name."""
    async with registered() as (client, _):
        run = chainapi.dask.export
        with pytest.raises(IncompleteExportError):  # the first run has written no row
            await run(client, ROUTE, [77], tmp_path / "b", limit=10, partitions=2)
        with pytest.raises(ExportError, match=r"has 2 partitions, and partitions=3 was given"):
            await run(client, ROUTE, [1], tmp_path / "b", limit=10, partitions=3)
        await run(client, ROUTE, [1], tmp_path / "b", limit=10, amounts="float")
        await run(client, ROUTE, [1], tmp_path / "b", limit=10)  # the folder knows the others
        with pytest.raises(ExportError, match="amounts= was float, is text"):
            await run(client, ROUTE, [1], tmp_path / "b", limit=10, amounts="text")
        with pytest.raises(ExportError, match="limit= was 10, is 20"):
            await run(client, ROUTE, [1], tmp_path / "b", limit=20)
        (tmp_path / "b" / "_log" / "cluster.json").write_text("{")
        with pytest.raises(ExportError, match=r"_log/cluster\.json in .* is damaged"):
            await run(client, ROUTE, [1], tmp_path / "b", limit=10)


async def test_arguments_are_checked(tmp_path: Path) -> None:
    """Wrong arguments raise a ConfigurationError that names them."""
    async with registered(workers=1) as (client, _):
        run: Any = chainapi.dask.export
        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({"partitions": 0}, "partitions"),
            ({"resume": "x"}, "resume="),
            ({"partition": "source"}, "partition= does not apply to a cluster"),
            ({"wait": 5}, "wait= does not apply to a cluster"),
            ({"format": "csv"}, "format= does not apply to a cluster"),
            ({"progress": True}, "progress=True does not apply to a cluster"),
            ({"progress": "bar"}, "progress= must be .* a function, not 'bar'"),
            ({"ranges": 8}, "cannot be split into ranges"),
            ({"storage_options": ["k3y"]}, "storage_options= must be a mapping"),
            ({"session_arguments": "k3y"}, "session_arguments= must be a mapping"),
            ({"commit_seconds": "8"}, "commit_seconds='8' must be a finite number of seconds"),
        )
        for options, message in wrong:
            with pytest.raises(ConfigurationError, match=message):
                await run(client, ROUTE, [1], tmp_path / "b", **options)
        others: tuple[tuple[Any, Any, Any, str], ...] = (
            (ROUTE, [], tmp_path / "b", "sources= is empty"),
            (ROUTE, "43114", tmp_path / "b", "sources= must be a list of sources, not '43114'"),
            (ROUTE, 5, tmp_path / "b", "sources= must be a list"),
            ("data.evm.block", [1], tmp_path / "b", "data.evm.block returns a single resource"),
            ("data.evm.bloks", [1], tmp_path / "b", "did you mean 'data.evm.blocks'"),
            ([ROUTE], [1], tmp_path / "b", "must be the name of a method, such as data.evm.blocks"),
            (ROUTE, [1], "nowhere://b", "cannot be opened by fsspec"),
            (ROUTE, [1], tmp_path / "b.parquet", "must be a folder"),
            (ROUTE, [1], 5, "target=5 must be a path"),
            (ROUTE, [1], b"b", "target=b'b' must be a path"),
        )
        for route, sources, target, message in others:
            with pytest.raises(ConfigurationError, match=message):
                await run(client, route, sources, target)


def test_what_is_no_client_of_dask() -> None:
    """Something else than a client is refused by name."""
    for wrong in (None, "tcp://127.0.0.1:8786"):
        for call in (lambda given: chainapi.dask.export(given, ROUTE, [1], "b"), chainapi.dask.register):
            with pytest.raises(ConfigurationError, match=r"client=.* must be a distributed\.Client"):
                call(wrong)
    for url in ("memory://me:hunter2@b", "memory://b?sig=hunter2"):  # a password reaches no client
        with pytest.raises(ConfigurationError, match="with a password or a query") as caught:
            chainapi.dask.export(None, ROUTE, [1], url)
        assert "hunter2" not in str(caught.value)


def test_without_dask_the_error_names_the_extra() -> None:
    """Without the packages of the extra, the error of the import names the extra."""
    code = "import sys; sys.modules['distributed'] = None; import chainapi.dask"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert "chainapi.dask needs distributed, which is not installed: pip install" in outcome.stderr


# Sessions of workers


@pytest.mark.proof
async def test_workers_share_one_quota(tmp_path: Path) -> None:
    """The gate beside the scheduler keeps all workers within one quota: no request leaves in a stop."""
    narrow = Simulator(chains=CHAINS, rows=60, limit=12, window=0.5)
    async with registered(workers=3, simulator=narrow) as (client, simulator):
        await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b", page_size=10)
        assert simulator.stats.sent_while_stopped == 0
        assert simulator.stats.refused <= 1
        assert rows_in(tmp_path / "b").total() == 480


async def spend() -> int:
    """Fetch a page with the session of the worker."""
    rows = await chainapi.dask.session().data.evm.blocks(1).collect(5)
    return len(rows)


async def test_tasks_use_the_session_of_their_worker() -> None:
    """A coroutine on a worker gets its session; other code, and other clusters, get an error."""
    async with registered() as (client, _):
        assert await client.submit(spend) == 5
        with pytest.raises(ConfigurationError, match="inside tasks of a Dask worker only"):
            chainapi.dask.session()
    async with cluster_of(1) as (client, _):
        with pytest.raises(ConfigurationError, match="register"):
            await client.submit(spend)


async def test_sessions_close_with_their_workers() -> None:
    """A worker closes its session when it ends, and when the sessions are replaced."""
    async with Simulator() as simulator, cluster_of(1) as (client, cluster):
        [worker] = cluster.workers.values()
        sessions = []
        for _ in range(2):
            await chainapi.dask.register(client, **arguments_of(simulator))
            sessions.append(worker.plugins[PLUGIN].session)
        assert ["closed" in repr(session) for session in sessions] == [True, False]
    assert "closed" in repr(sessions[1])


async def test_an_export_waits_while_sessions_are_replaced(tmp_path: Path) -> None:
    """A partition that reaches a worker between two sessions is exported with the second session."""
    async with Simulator(chains=CHAINS, rows=60) as simulator, cluster_of(1) as (client, cluster):
        await chainapi.dask.register(client, **arguments_of(simulator))
        [worker] = cluster.workers.values()
        plugin = worker.plugins.pop(PLUGIN)  # as Dask does before it closes the session
        run = asyncio.ensure_future(chainapi.dask.export(client, ROUTE, [1], tmp_path / "b"))
        # The dashboard groups the tasks of an export under its route.
        await until(lambda: any(key_split(key) == f"{ROUTE}-export" for key in worker.active_keys))
        await asyncio.sleep(0.1)
        assert not run.done()
        worker.plugins[PLUGIN] = plugin
        assert (await run).rows == 60


async def test_workers_take_what_is_left_out_from_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `register` an export opens sessions from the environment of the workers."""
    async with Simulator(chains=CHAINS, rows=20) as simulator, cluster_of(1) as (client, _):
        for name, value in simulator.environment().items():
            monkeypatch.setenv(name, value)
        result = await chainapi.dask.export(client, ROUTE, [1], tmp_path / "b")
    assert result.rows == 20


async def test_an_export_may_have_sessions_of_its_own(tmp_path: Path) -> None:
    """Sessions of one export leave the registered ones alone, and close at its end."""
    async with (
        Simulator(chains=CHAINS, rows=20) as simulator,
        Simulator(chains=CHAINS, rows=60) as other,
        cluster_of(1) as (client, cluster),
    ):
        await chainapi.dask.register(client, **arguments_of(simulator))
        [worker] = cluster.workers.values()
        before = worker.plugins[PLUGIN].session
        arguments = arguments_of(other)
        result = await chainapi.dask.export(client, ROUTE, [1], tmp_path / "b", session_arguments=arguments)
        assert (result.rows, simulator.stats.requests) == (60, 0)
        assert [name for name in worker.plugins if name.startswith("chainapi")] == [PLUGIN]
        assert worker.plugins[PLUGIN].session is before
        assert await client.submit(spend) == 5


async def test_the_key_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Reprs, logs and events of a cluster show neither an api_key= nor the storage_options=."""
    caplog.set_level(0)
    MemoryFileSystem.store.clear()
    async with Simulator(chains=CHAINS, rows=60) as simulator, cluster_of(1) as (client, cluster):
        await chainapi.dask.register(client, **arguments_of(simulator))
        options = {"secret": "hunter2hunter2"}
        for sources, error in (([1], None), ([77], IncompleteExportError)):
            with pytest.raises(error) if error else nullcontext():
                await chainapi.dask.export(client, ROUTE, sources, "memory://k", storage_options=options)
        plugin = next(iter(cluster.workers.values())).plugins[PLUGIN]
        shown = repr(await client.get_events()), f"{plugin!r} {pickle.loads(pickle.dumps(plugin))}"
        for secret in (simulator.api_key, "hunter2"):
            assert secret not in "".join(shown) + caplog.text
    MemoryFileSystem.store.clear()


async def test_the_key_travels_encrypted_or_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An api_key= is refused where Dask would send it in the clear."""

    class Scheduler:
        address = "inproc://192.0.2.1/1/1"

        async def identity(self, n_workers: int) -> dict[str, Any]:
            return {"workers": {"tcp://192.0.2.1:8786": {}}}

    async with cluster_of(1) as (client, _):
        with monkeypatch.context() as patch:
            patch.setattr(client, "scheduler", Scheduler())
            with pytest.raises(ConfigurationError, match=r"unencrypted to tcp://192\.0\.2\.1:8786: secure"):
                await chainapi.dask.register(client, api_key="secret")
