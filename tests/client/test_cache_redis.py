"""The recipe of docs/caching.md: one cache for several processes, over a real Redis."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from chainapi import Cache, Session
from chainapi.simulator import Simulator
from tests.share.redis.server import RedisServer

PAGE = Path(__file__).parents[2] / "docs" / "caching.md"

pytestmark = [pytest.mark.real_time, pytest.mark.adapter]


def recipe() -> Any:
    """Return the class that the page shows."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (block,) = (one for one in blocks if "Redis" in one)
    names: dict[str, Any] = {}
    exec(block, names)
    return names["RedisStore"]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Start a server."""
    server = RedisServer(tmp_path).start()
    yield server.url
    server.stop()


@pytest_asyncio.fixture
async def store(url: str) -> AsyncIterator[Any]:
    """Open the store of the recipe."""
    opened = recipe()(url)
    yield opened
    await opened.aclose()


async def test_two_sessions_share_responses(store: Any) -> None:
    """A response that one session fetched answers the other; the entry expires in Redis."""
    sim = Simulator()
    arguments = sim.arguments()  # with one transport
    for tag in "ab":
        async with Session(**arguments, tag=tag) as session:
            view = session.with_options(cache=Cache(fresh=60.0, stale_if_error=60.0, store=store))
            chain = await view.data.chain(43114)
            assert chain.chain_name
    assert sim.stats.requests == 1
    (key,) = await store._redis.keys("chainapi:cache:*")
    assert 0 < await store._redis.ttl(key) <= 120
    assert sim.api_key.encode() not in key + await store._redis.get(key)


async def test_redis_away() -> None:
    """Without its Redis a session sends requests."""
    sim, store = Simulator(), recipe()("redis://127.0.0.1:1")
    async with Session(**sim.arguments()) as session:
        view = session.with_options(cache=Cache(fresh=60.0, store=store))
        for _ in range(2):
            await view.data.chain(43114)
    assert sim.stats.requests == 2
    await store.aclose()
