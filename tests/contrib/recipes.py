"""Recipes in tests: the programs of docs/examples, on a simulator with a real port."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from chainapi.simulator import Simulator
from tests.contrib.asgi import lines
from tests.contrib.serving import asked
from tests.raw_server import let_pass, settle, until

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CHAIN = 43114
Recipe = Callable[[str], ModuleType]
Serve = Callable[[Any], AbstractAsyncContextManager[int]]


__all__ = [
    "CHAIN",
    "Recipe",
    "Serve",
    "client_of",
    "ends_the_work_of_clients_that_left",
    "levels",
    "recipe",
    "run",
    "says_when_quota_is_back",
    "served_by_aiohttp",
    "simulator",
    "streams_rows",
]


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
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


async def streams_rows(simulator: Simulator, app: Any, serve: Serve) -> None:
    """Check that a backend streams the rows of a list, and answers an unknown chain with problem details."""
    async with serve(app) as port, client_of(port) as client:
        answer = await client.get(f"/tps/{CHAIN}")
        unknown = await client.get("/tps/999")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers["cache-control"] == "no-store"
    assert lines(answer.content) == simulator.rows_of(f"/v1/avg_tps/{CHAIN}")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:chainapi:not-found")
    assert unknown.headers["content-type"].startswith("application/problem+json")


async def says_when_quota_is_back(simulator: Simulator, app: Any, serve: Serve) -> None:
    """Check that a backend answers a wait that is too long with 503, and with a Retry-After."""
    simulator.metrics_limit, simulator.metrics_window = 0, 600.0
    async with serve(app) as port, client_of(port) as client:
        asking = asyncio.ensure_future(client.get(f"/tps/{CHAIN}"))
        while not asking.done():
            await settle(5)
            let_pass(0.1)
        answer = asking.result()
    assert answer.status_code in (503, 504)
    assert int(answer.headers["retry-after"]) >= 1


async def ends_the_work_of_clients_that_left(simulator: Simulator, app: Any, serve: Serve) -> None:
    """Check that a backend sends nothing for a client that has disconnected amid its stream."""
    simulator.points = 100_000
    async with serve(app) as port:
        async with asked(port, f"/tps/{CHAIN}") as reader:
            assert b"200" in await reader.readline()
            await reader.readuntil(b'"value"')
        sent: list[int] = []

        def still() -> bool:
            sent.append(simulator.stats.requests)
            return len(sent) > 50 and len(set(sent[-50:])) == 1

        await until(still)
    assert 1 <= sent[-1] < 200, "the list has 1,000 pages"


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
