"""Exports on a Dask cluster: the rows of a local export, through the session of each worker."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distributed
import pytest
from dask.utils import key_split
from distributed.scheduler import KilledWorker
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

import chainapi.dask
from chainapi import Session
from chainapi.dask.coordinator import DistributedExport, DistributedResult
from chainapi.dask.partition import Folder
from chainapi.dask.plugins import SESSIONS, SessionArguments, SessionPlugin, install
from chainapi.errors import (
    AuthenticationError,
    ConfigurationError,
    ExportError,
    IncompleteExportError,
    NotFoundError,
)
from chainapi.export import export
from chainapi.export.progress import ExportProgress
from chainapi.models import EvmBlock
from chainapi.simulator import Simulator
from tests.dask.clusters import arguments_of, cluster_of, simulated
from tests.dask.disks import job_of, rows_in, rows_of
from tests.raw_server import until

pytestmark = [pytest.mark.real_time, pytest.mark.adapter]

CHAINS = tuple(range(1, 9))
ROUTE = "data.evm.blocks"


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


async def straight(simulator: Simulator, folder: Path, sources: Any = CHAINS) -> Any:
    """Return the rows of a local export."""
    async with Session(**arguments_of(simulator)) as session:
        await export(session.data.evm.blocks, sources, folder / "straight.parquet", page_size=10)
    return rows_in(folder / "straight.parquet")


async def test_the_rows_are_those_of_a_local_export(tmp_path: Path) -> None:
    """A folder that the workers wrote has the rows of a local export, for every reader of Parquet."""
    seen: list[tuple[str, int, int]] = []

    def note(progress: ExportProgress) -> None:
        seen.append((progress.stage, progress.done, progress.rows))
        assert progress.incremental

    async with registered() as (client, simulator):
        target = tmp_path / "blocks"
        options: dict[str, Any] = {"page_size": 10, "partitions": 4, "part_rows": 50}
        result = await chainapi.dask.export(client, ROUTE, CHAINS, target, on_progress=note, **options)
        assert isinstance(result, DistributedResult)
        assert (result.target, result.rows, result.sources) == (str(target), 480, 8)
        assert set(result.written) == {path.name for path in target.glob("*.parquet")}
        assert seen[0] == ("fetching", 0, 0)
        assert seen[-1] == ("done", 8, 480)
        assert [rows for *_, rows in seen] == sorted(rows for *_, rows in seen)
        rows = rows_in(target)
        assert rows == await straight(simulator, tmp_path)
        again = await chainapi.dask.export(client, ROUTE, CHAINS, target, **options)
        assert (again.rows, again.written) == (0, ())
        simulator.insert("/v1/chains/3/blocks", 5)
        more = await chainapi.dask.export(client, ROUTE, [*CHAINS[2:], 1], target, page_size=10)
        assert (more.rows, more.sources, len(more.written)) == (5, 7, 1)
        assert rows_in(target) == await straight(simulator, tmp_path / "new")


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


@pytest.mark.proof
async def test_targets_are_urls_of_fsspec(tmp_path: Path) -> None:
    """A file system of fsspec takes the parts, and its options are those of the call."""
    MemoryFileSystem.store.clear()
    async with registered() as (client, simulator):
        result = await chainapi.dask.export(
            client,
            ROUTE,
            CHAINS,
            "memory://lake/blocks",
            storage_options={"asynchronous": False},
            page_size=10,
        )
        assert result.target == "memory://lake/blocks"
        disk = MemoryFileSystem()
        assert all(name.startswith("/lake/blocks/") for name in disk.store)
        assert rows_of(disk) == await straight(simulator, tmp_path)
    MemoryFileSystem.store.clear()


async def test_failed_sources_are_named(tmp_path: Path) -> None:
    """The error has the failure of each source, and the others are in the folder."""
    async with registered() as (client, simulator):
        with pytest.raises(IncompleteExportError, match=r"1 of 3 sources failed: 77 \(404") as caught:
            await chainapi.dask.export(client, ROUTE, [1, 77, 2], tmp_path / "b", page_size=10)
        assert isinstance(caught.value.failures["77"], NotFoundError)
        assert rows_in(tmp_path / "b") == await straight(simulator, tmp_path, (1, 2))


async def test_a_rejected_key_ends_the_export(tmp_path: Path) -> None:
    """An error that concerns all sources is raised unchanged, and stops the other partitions."""
    async with Simulator(chains=CHAINS) as simulator, cluster_of() as (client, _):
        await chainapi.dask.register(client, **{**arguments_of(simulator), "api_key": "another"})
        with pytest.raises(AuthenticationError):
            await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b")


@pytest.mark.proof
async def test_a_cancelled_export_keeps_what_workers_fetched(tmp_path: Path) -> None:
    """After a cancellation the workers have written all rows that they had, and a new run continues."""
    slow = Simulator(chains=CHAINS, rows=60, latency=0.02)
    async with registered(simulator=slow) as (client, simulator):
        fetched = asyncio.Event()

        def note(progress: ExportProgress) -> None:
            if progress.rows >= 100:
                fetched.set()

        options: dict[str, Any] = {"page_size": 10, "concurrency": 2}
        run = asyncio.ensure_future(
            chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b", on_progress=note, **options)
        )
        await asyncio.wait_for(fetched.wait(), 20)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        kept = rows_in(tmp_path / "b").total()
        assert 100 <= kept < 480
        requests = simulator.stats.requests
        result = await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b", **options)
        assert result.rows == 480 - kept
        assert simulator.stats.requests - requests <= (480 - kept) / 10 + len(CHAINS)
        assert rows_in(tmp_path / "b") == await straight(simulator, tmp_path)


@pytest.mark.proof
async def test_a_client_that_leaves_ends_the_export(tmp_path: Path) -> None:
    """Workers whose client is gone write what they have, and send no further requests."""
    async with (
        Simulator(chains=CHAINS, rows=60, latency=0.02) as simulator,
        cluster_of(2, protocol="tcp") as (_, cluster),
    ):
        fetched = asyncio.Event()

        def note(progress: ExportProgress) -> None:
            if progress.rows >= 100:
                fetched.set()

        async with distributed.Client(cluster, asynchronous=True) as client:
            await chainapi.dask.register(client, **arguments_of(simulator))
            options: dict[str, Any] = {"page_size": 10, "concurrency": 2}
            run = asyncio.ensure_future(
                chainapi.dask.export(
                    client,
                    ROUTE,
                    CHAINS,
                    tmp_path / "b",
                    on_progress=note,
                    **options,
                )
            )
            await asyncio.wait_for(fetched.wait(), 20)
            plugins = [worker.plugins["chainapi-session"] for worker in cluster.workers.values()]
            tasks = [task for plugin in plugins for task in plugin._tasks.values()]
            await client.close()  # pyright: ignore[reportGeneralTypeIssues] - of an asynchronous client
        await asyncio.wait_for(asyncio.wait(tasks), 20)
        assert 100 <= rows_in(tmp_path / "b").total() < 480
        assert simulator.stats.requests < 50
        with pytest.raises(ExportError, match="start the same export again"):
            await run


@pytest.mark.proof
async def test_a_worker_that_retires_hands_its_partitions_over(tmp_path: Path) -> None:
    """A worker that is retired writes what it has; another continues, and no request is repeated."""
    slow = Simulator(chains=CHAINS, rows=60, latency=0.02)
    async with registered(simulator=slow) as (client, simulator):
        retiring: list[asyncio.Task[Any]] = []

        def retire(progress: ExportProgress) -> None:
            if progress.rows >= 100 and not retiring:
                assert client.cluster is not None
                first = client.cluster.workers[0].address
                retiring.append(asyncio.ensure_future(client.retire_workers([first])))

        result = await chainapi.dask.export(
            client, ROUTE, CHAINS, tmp_path / "b", on_progress=retire, page_size=10, partitions=4
        )
        await retiring[0]
        assert result.rows == 480
        assert simulator.stats.requests <= 48 + 2 * len(CHAINS)
        assert rows_in(tmp_path / "b") == await straight(simulator, tmp_path)


async def test_progress_that_fails_ends_the_export(tmp_path: Path) -> None:
    """An exception of on_progress is raised, and stops the workers."""

    def fail(progress: ExportProgress) -> None:
        if progress.rows:
            raise RuntimeError("no room on the screen")

    async with registered() as (client, _):
        with pytest.raises(RuntimeError, match="no room"):
            await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b", on_progress=fail, page_size=10)


def test_a_single_source_is_refused(tmp_path: Path) -> None:
    """One source instead of a list of them is refused; a text would be exported letter by letter."""
    single: Any = "43114"
    with pytest.raises(ConfigurationError, match="sources= must be a list of sources, not '43114'"):
        chainapi.dask.export(None, ROUTE, single, tmp_path / "b")


async def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    """Files that no export wrote, and exports with other settings, are left alone."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    async with registered() as (client, _):
        run = chainapi.dask.export
        with pytest.raises(ExportError, match="is not empty, and no distributed export wrote it"):
            await run(client, ROUTE, [1], tmp_path / "mine")
        await run(client, ROUTE, [1], tmp_path / "b", limit=10, partitions=2, amounts="float")
        await run(client, ROUTE, [1], tmp_path / "b", limit=10)  # the folder knows the others
        with pytest.raises(ExportError, match="amounts= was float, is text"):
            await run(client, ROUTE, [1], tmp_path / "b", limit=10, amounts="text")
        with pytest.raises(ExportError, match="limit= was 10, is 20"):
            await run(client, ROUTE, [1], tmp_path / "b", limit=20)
        with pytest.raises(ExportError, match="partitions was 2, is 3"):
            await run(client, ROUTE, [1], tmp_path / "b", limit=10, partitions=3)
        (tmp_path / "b" / "_export" / "about.json").write_text("{")
        with pytest.raises(ExportError, match=r"about\.json in .* is damaged"):
            await run(client, ROUTE, [1], tmp_path / "b", limit=10)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


async def test_arguments_are_checked(tmp_path: Path) -> None:
    """Wrong arguments raise a ConfigurationError that names them."""
    async with registered(workers=1) as (client, _):
        run: Any = chainapi.dask.export
        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({"limit": 0}, "limit"),
            ({"partitions": 0}, "partitions"),
            ({"resume": "x"}, "resume="),
            ({"lookback": "1d"}, "lookback="),
            ({"partition": "source"}, "partition= does not apply to a cluster"),
            ({"part_bytes": 5}, "part_bytes= does not apply to a cluster.*part_rows="),
            ({"part_seconds": 5}, "part_seconds= does not apply to a cluster.*part_rows="),
            ({"journal": "j"}, "journal= does not apply to a cluster"),
            ({"format": "csv"}, "format= does not apply to a cluster"),
            ({"progress": True}, "progress= does not apply to a cluster.*on_progress="),
            ({"ranges": "x"}, "ranges='x' must be a number of ranges"),
            ({"ranges": 8, "limit": 5}, "ranges= does not apply with a limit"),
            ({"ranges": 8}, "cannot be split into ranges"),
            ({"storage_options": ["k3y"]}, "storage_options= must be a mapping"),
            ({"session_arguments": "k3y"}, "session_arguments= must be a mapping"),
            ({"on_progress": "bar"}, "on_progress= must be a function, not 'bar'"),
            ({"concurrency": "8"}, "concurrency='8' must be a whole number"),
            ({"part_rows": 1.5}, "part_rows=1.5 must be a whole number"),
            ({"amounts": []}, "amounts= must be one of"),
            ({"fields": 5}, "fields= must be a list"),
            ({"compression": []}, "compression="),
            ({"row_group_rows": []}, "row_group_rows="),
        )
        for options, message in wrong:
            with pytest.raises(ConfigurationError, match=message):
                await run(client, ROUTE, [1], tmp_path / "b", **options)
        others: tuple[tuple[Any, Any, Any, str], ...] = (
            (ROUTE, [], tmp_path / "b", "sources= is empty"),
            ("data.evm.block", [1], tmp_path / "b", "data.evm.block returns a single resource"),
            ("data.evm.bloks", [1], tmp_path / "b", "did you mean 'data.evm.blocks'"),
            (ROUTE, [1], "nowhere://b", "cannot be opened by fsspec"),
            ([ROUTE], [1], tmp_path / "b", "must be the name of a method, such as data.evm.blocks"),
            (ROUTE, 5, tmp_path / "b", "sources= must be a list"),
            (ROUTE, [1], 5, "target=5 must be a path"),
            (ROUTE, [1], b"b", "target=b'b' must be a path"),
        )
        for route, sources, target, message in others:
            with pytest.raises(ConfigurationError, match=message):
                await run(client, route, sources, target)


def test_what_is_no_client_of_dask(tmp_path: Path) -> None:
    """Something else than a client is refused by name."""
    for wrong in (None, 5, "tcp://127.0.0.1:8786"):
        for call in (
            lambda given: chainapi.dask.export(given, ROUTE, [1], tmp_path / "b"),
            chainapi.dask.register,
        ):
            with pytest.raises(ConfigurationError, match=r"client=.* must be a distributed\.Client"):
                call(wrong)


@pytest.mark.parametrize("url", ["memory://me:hunter2@b", "simplecache::memory://b?sig=hunter2"])
def test_a_url_with_credentials_is_refused(url: str) -> None:
    """A URL with a password or a query is refused at once, and reaches neither Dask nor the error."""
    with pytest.raises(ConfigurationError, match="with a password or a query") as caught:
        chainapi.dask.export(None, ROUTE, [1], url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.proof
def test_a_synchronous_client_waits(tmp_path: Path) -> None:
    """A synchronous client gets the result itself."""
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
        simulated() as simulator,
    ):
        chainapi.dask.register(client, **arguments_of(simulator))
        result = chainapi.dask.export(client, ROUTE, (1, 2), tmp_path / "b", limit=20)
    assert (result.rows, result.sources) == (40, 2)


@pytest.mark.proof
async def test_workers_share_one_quota(tmp_path: Path) -> None:
    """The gate beside the scheduler keeps all workers within one quota: no request leaves in a stop."""
    narrow = Simulator(chains=CHAINS, rows=60, limit=12, window=0.5)
    async with registered(workers=3, simulator=narrow) as (client, simulator):
        await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b", page_size=10)
        assert simulator.stats.sent_while_stopped == 0
        assert simulator.stats.refused <= 1
        assert rows_in(tmp_path / "b").total() == 480


# Sessions of workers


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
            sessions.append(worker.plugins["chainapi-session"].session)
        assert ["closed" in repr(session) for session in sessions] == [True, False]
    assert "closed" in repr(sessions[1])


@asynccontextmanager
async def replaced(target: Path) -> AsyncIterator[tuple[asyncio.Future[Any], Simulator]]:
    """Start an export that meets a worker whose session is being replaced; replace it after the block."""
    async with Simulator(chains=CHAINS, rows=60) as simulator, cluster_of(1) as (client, cluster):
        await chainapi.dask.register(client, **arguments_of(simulator))
        [worker] = cluster.workers.values()
        plugin = worker.plugins.pop(SESSIONS)  # as Dask does before it closes the session
        run = asyncio.ensure_future(chainapi.dask.export(client, ROUTE, [1], target, page_size=10))
        await until(lambda: any(f"{ROUTE}-export" in str(key) for key in worker.active_keys))
        yield run, simulator
        worker.plugins[SESSIONS] = plugin
        await until(lambda: not worker.active_keys)
        await asyncio.wait([run])


async def test_an_export_waits_while_sessions_are_replaced(tmp_path: Path) -> None:
    """A partition that reaches a worker between two sessions is exported with the second session."""
    async with replaced(tmp_path / "b") as (run, _):
        await asyncio.sleep(0.1)
        assert not run.done()
    assert run.result().rows == 60


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
        before = worker.plugins["chainapi-session"].session
        result = await chainapi.dask.export(
            client, ROUTE, [1], tmp_path / "b", session_arguments=arguments_of(other)
        )
        assert (result.rows, simulator.stats.requests) == (60, 0)
        assert [name for name in worker.plugins if name.startswith("chainapi")] == ["chainapi-session"]
        assert worker.plugins["chainapi-session"].session is before
        assert await client.submit(spend) == 5


async def test_the_key_is_shown_nowhere(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """Reprs, logs, events and tasks of a cluster do not show an api_key= that was registered."""
    caplog.set_level(0)
    async with registered() as (client, simulator):
        await chainapi.dask.export(client, ROUTE, [1], tmp_path / "b", storage_options={"auto_mkdir": True})
        assert simulator.api_key not in repr(await client.get_events())
        arguments = SessionArguments({"api_key": simulator.api_key})
        plugin = SessionPlugin(arguments)
        for shown in (arguments, plugin, pickle.loads(pickle.dumps(plugin))):
            assert simulator.api_key not in f"{shown!r} {shown}"
    assert simulator.api_key not in caplog.text


async def test_the_key_travels_encrypted_or_on_this_machine_only() -> None:
    """An api_key= is refused where Dask would send it in the clear."""

    class Scheduler:
        address = "inproc://192.0.2.1/1/1"

        async def identity(self, n_workers: int) -> dict[str, Any]:
            return {"workers": {"tcp://192.0.2.1:8786": {}}}

    class Client:
        scheduler = Scheduler()

    with pytest.raises(ConfigurationError, match=r"unencrypted to tcp://192\.0\.2\.1:8786: secure"):
        await install(Client(), {"api_key": "secret"}, idempotent=False)


def test_tasks_have_the_name_of_their_route() -> None:
    """The dashboard groups the tasks of an export under its route."""
    assert key_split(job_of(None, [1], export="0a1b2c3d4e5f60718293a4b5c6d7e8f9").key) == f"{ROUTE}-export"


async def test_workers_that_die_again_and_again_end_the_export(tmp_path: Path) -> None:
    """Once Dask gives a partition up, the error names that, and the way to continue the export."""
    run = DistributedExport(
        None, ROUTE, [1], Folder(str(tmp_path), {}), {}, None, None, 32, 1, 1, None, None, "text"
    )

    last: Any = SimpleNamespace(address="tcp://127.0.0.1:9")

    async def given_up() -> None:
        raise KilledWorker("task", last, 3)

    with pytest.raises(ExportError, match="workers died again and again in the export to"):
        await run._result_of(given_up())


def test_without_dask_the_error_names_the_extra() -> None:
    """Without the packages of the extra, the error of the import names the extra."""
    code = "import sys; sys.modules['distributed'] = None; import chainapi.dask"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert "chainapi.dask needs distributed, which is not installed: pip install" in outcome.stderr
