"""Rate limits over real sockets: loopback servers count the client's requests."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from attrs import Factory, define

from chainapi import Session
from chainapi.simulator import Simulator


@pytest.mark.real_time
async def test_specified_headers_with_200_callers() -> None:
    """200 callers pass windows of 2 s with few refusals, and none sends in a stop."""
    async with Simulator(limit=80, window=2.0) as simulator:
        async with Session(data_base_url=simulator.data_base_url, api_key=simulator.api_key) as session:
            bodies = await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(200)))
        stats = simulator.stats
    assert len(bodies) == 200
    assert stats.answered[200] == 200
    assert stats.answered[429] <= 2
    assert stats.sent_while_stopped == 0


@define
class ExpressLike:
    """Fixed windows with the headers of draft 6, reset included, on every response."""

    limit: int
    window: float
    answered: Counter[int] = Factory(Counter)
    sent_in_stop: int = 0
    _ends: float = 0.0
    _hits: int = 0
    _refused_at: float | None = None

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Count a request, and serve or refuse it."""
        now = asyncio.get_running_loop().time()
        if now >= self._ends:
            self._ends, self._hits, self._refused_at = now + self.window, 0, None
        # What was on the wire when the refusal came back does not count.
        if self._refused_at is not None and now > self._refused_at + 0.1:
            self.sent_in_stop += 1
        self._hits += 1
        reset = str(math.ceil(self._ends - now))
        headers = {
            "RateLimit-Policy": f"{self.limit};w={math.ceil(self.window)}",
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(max(0, self.limit - self._hits)),
            "RateLimit-Reset": reset,
        }
        status = 200 if self._hits <= self.limit else 429
        self.answered[status] += 1
        if status == 429:
            headers["Retry-After"] = reset
            self._refused_at = self._refused_at or now
        return web.json_response({"hits": self._hits}, status=status, headers=headers)


@asynccontextmanager
async def serving(app: ExpressLike) -> AsyncIterator[str]:
    """Serve on a free loopback port."""
    runner = web.ServerRunner(web.Server(app.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@pytest.mark.real_time
async def test_draft_6_headers_with_200_callers() -> None:
    """200 callers pass fixed windows with draft-6 headers and at most one 429.

    The headers have the reset.
    """
    app = ExpressLike(limit=80, window=2.0)
    async with serving(app) as base, Session(data_base_url=base, api_key="key") as session:
        bodies = await asyncio.gather(*(session.data.get("/v1/anything") for _ in range(200)))
    assert len(bodies) == 200
    assert app.answered[200] == 200
    assert app.answered[429] <= 1
    assert app.sent_in_stop == 0
