"""Servers of the tests over Redis.

`CHAINAPI_TEST_REDIS_URL` names a server for the tests that do not stop or configure it.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.share.redis.server import RedisServer

PATIENCE = 60.0  # seconds until a test that hangs fails


@pytest.fixture(autouse=True)
async def _clean() -> AsyncIterator[None]:
    """Fail a test that hangs, or that leaves a task behind."""
    mine = asyncio.all_tasks()
    timer = asyncio.get_running_loop().call_later(PATIENCE, _cancel_all)
    yield
    timer.cancel()
    assert {task for task in asyncio.all_tasks() - mine if task is not asyncio.current_task()} == set()


def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel("the test hangs")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Return a server that no test stops."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Return the only node of a cluster."""
    server = RedisServer(tmp_path_factory.mktemp("cluster"), "--cluster-enabled", "yes").start()
    assert server.command("CLUSTER", "ADDSLOTS", *map(str, range(16_384))) == "+OK"
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """Return a server that a test may stop and configure."""
    server = RedisServer(tmp_path).start()
    yield server
    server.stop()


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Return the address of a server that is there for all tests."""
    given = os.environ.get("CHAINAPI_TEST_REDIS_URL")
    if given:
        return given
    server: RedisServer = request.getfixturevalue("server")
    return server.url


@pytest.fixture
def name() -> str:
    """Return the name of a quota that no other test uses."""
    return uuid.uuid4().hex
