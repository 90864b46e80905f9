"""Observers over a real Redis server: the host is found, and its absence too."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainapi.core.share.names import quota_name
from chainapi.share.host import Host
from chainapi.share.redis.peer import RedisPeer
from chainapi.share.registry import observable
from chainapi.share.watch import Observer
from tests.share.redis.server import RedisServer

pytestmark = pytest.mark.rule

NAME = quota_name("https://data.test", "key")
SECRET = b"secret of the quota"


@pytest.mark.real_time
async def test_observer_over_redis(tmp_path: Path) -> None:
    """An observer reads the state of the host over Redis, and never becomes the host itself."""
    server = RedisServer(tmp_path).start()
    try:
        carrier = observable(server.url)
        assert await carrier.observe(NAME, SECRET) is None
        hosting = RedisPeer(carrier.remote(NAME, SECRET))  # type: ignore[arg-type]
        await hosting.connect(NAME, lambda memory, age: Host().serve)
        link = await carrier.observe(NAME, SECRET)
        assert link is not None
        snapshot = await Observer(link, "observer", lambda: 7.0).snapshot()
        assert (snapshot.unix_time, snapshot.waiting) == (7.0, 0)
        await hosting.aclose(NAME)
        assert await carrier.observe(NAME, SECRET) is None
        await carrier.aclose(NAME)
    finally:
        server.stop()
