"""Recipes: the programs of docs/examples, on a simulator with a real port."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from chainapi.simulator import Simulator
from tests.contrib.asgi import events, lines
from tests.contrib.serving import asked, served
from tests.raw_server import let_pass, settle, until

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CHAIN = 43114
pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Restore the levels of loggers, which frameworks change."""
    loggers = [logging.getLogger(name) for name in ("", "chainapi")]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest_asyncio.fixture
async def simulator(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Simulator]:
    """Start a simulator, and put its addresses into the environment for `Session()`."""
    async with Simulator(points=250) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that imports an example, as a server does."""

    def imported(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return imported


@asynccontextmanager
async def served_by_aiohttp(app: Any) -> AsyncIterator[int]:
    """Serve an aiohttp application as `web.run_app` of its recipe does."""
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def client_of(port: int) -> httpx.AsyncClient:
    """Return a client of the backend at a port."""
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=None)


Recipe = Callable[[str], ModuleType]
Serve = Callable[[Any], AbstractAsyncContextManager[int]]
BACKENDS = pytest.mark.parametrize(
    ("name", "serve"),
    [
        ("backend_fastapi", served),
        ("backend_litestar", served),
        ("backend_quart", served),
        ("backend_aiohttp", served_by_aiohttp),
    ],
    ids=["fastapi", "litestar", "quart", "aiohttp"],
)


@BACKENDS
async def test_backend_streams_rows(simulator: Simulator, recipe: Recipe, name: str, serve: Serve) -> None:
    """Each backend streams the rows of a list, and answers an unknown chain with problem details."""
    async with serve(recipe(name).app) as port, client_of(port) as client:
        answer = await client.get(f"/tps/{CHAIN}")
        unknown = await client.get("/tps/999")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers["cache-control"] == "no-store"
    assert lines(answer.content) == simulator.rows_of(f"/v1/avg_tps/{CHAIN}")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:chainapi:not-found")
    assert unknown.headers["content-type"].startswith("application/problem+json")


@BACKENDS
async def test_backend_says_when_quota_is_back(
    simulator: Simulator, recipe: Recipe, name: str, serve: Serve
) -> None:
    """Each backend answers a wait that is too long with 503, and with a Retry-After."""
    simulator.metrics_limit, simulator.metrics_window = 0, 600.0
    async with serve(recipe(name).app) as port, client_of(port) as client:
        asking = asyncio.ensure_future(client.get(f"/tps/{CHAIN}"))
        while not asking.done():
            await settle(5)
            let_pass(0.1)
        answer = asking.result()
    assert answer.status_code in (503, 504)
    assert int(answer.headers["retry-after"]) >= 1


@BACKENDS
async def test_backend_ends_the_work_of_clients_that_left(
    simulator: Simulator, recipe: Recipe, name: str, serve: Serve
) -> None:
    """Each backend sends nothing for a client that has disconnected amid its stream."""
    simulator.points = 100_000
    async with serve(recipe(name).app) as port:
        async with asked(port, f"/tps/{CHAIN}") as reader:
            assert b"200" in await reader.readline()
            await reader.readuntil(b'"value"')
        sent: list[int] = []

        def still() -> bool:
            sent.append(simulator.stats.requests)
            return len(sent) > 50 and len(set(sent[-50:])) == 1

        await until(still)
    assert 1 <= sent[-1] < 200, "the list has 1,000 pages"


async def test_fastapi_recipe_has_events_quota_and_health(simulator: Simulator, recipe: Recipe) -> None:
    """The FastAPI recipe also serves server-sent events, the quota and its health."""
    async with served(recipe("backend_fastapi").app) as port, client_of(port) as client:
        stream = await client.get(f"/tps/{CHAIN}/events")
        quota = await client.get("/internal/quota")
        health = await client.get("/internal/health")
    assert [name for name, _, _ in events(stream.content)] == ["rows", "rows", "rows", "end"]
    assert quota.json().keys() == {"metrics", "data"}
    assert health.json()["last_answers"]["metrics"]["status"] == 200


async def run(folder: Path, name: str, *arguments: str) -> tuple[int, str]:
    """Run an example as a program in a folder; return its exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / f"{name}.py"), *arguments),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@pytest.mark.program
async def test_cron_job_is_resumed(simulator: Simulator, tmp_path: Path) -> None:
    """A failed run of the cron job has exit code 75, and the next one completes its file."""
    from chainapi.simulator import Fault

    simulator.faults = (Fault(route="/v1/avg_tps/8021", after_page=1, status=404),)
    code, output = await run(tmp_path, "nightly_export", "tps.jsonl")
    assert (code, "run it again" in output) == (75, True), output
    simulator.faults = ()
    assert await run(tmp_path, "nightly_export", "tps.jsonl") == (0, "150 rows in tps.jsonl\n")
    rows = [json.loads(line) for line in (tmp_path / "tps.jsonl").read_text().splitlines()]
    assert len(rows) == len({(row["source"], row["timestamp"]) for row in rows}) == 750


@pytest.mark.program
@pytest.mark.untraced
async def test_dagster_asset_materializes(simulator: Simulator, tmp_path: Path) -> None:
    """The Dagster asset writes the rows of its chains."""
    code, output = await run(tmp_path, "pipeline_dagster")
    assert code == 0, output
    assert len((tmp_path / "tps.jsonl").read_text().splitlines()) == 500


@pytest.mark.untraced
@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated:DeprecationWarning")  # called by dlt
async def test_dlt_pipeline_loads_new_rows(
    simulator: Simulator, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dlt pipeline loads each block once; its second run reads down to the newest block of the first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")  # a test sends nothing to other machines
    monkeypatch.setenv("RUNTIME__LOG_LEVEL", "ERROR")
    simulator.rows = 250
    load = recipe("pipeline_dlt").load
    assert await asyncio.to_thread(load) == 500
    before = simulator.stats.requests
    simulator.insert("/v1/chains/43113/blocks", 20)
    assert await asyncio.to_thread(load) == 20
    assert simulator.stats.requests - before <= 4, "the walks of the second run end early"
    with duckdb.connect(tmp_path / "avalanche.duckdb") as database:
        counts = "select chain, count(*), count(distinct block_hash) from chain_data.blocks group by all"
        assert sorted(database.sql(counts).fetchall()) == [(43113, 270, 270), (43114, 250, 250)]
