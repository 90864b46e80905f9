"""Deadlines over several calls of a web handler."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI

from chainapi.contrib.fastapi import SessionDep, add_exception_handlers, lifespan, within
from chainapi.errors import ConfigurationError, DeadlineExceededError
from chainapi.simulator import Simulator
from tests.contrib.applications import visited
from tests.sessions import simulated

CHAIN = 43114


async def test_walk_that_takes_too_long_is_a_504() -> None:
    """A deadline over the pages of a walk is answered with the problem of a deadline."""
    simulator = Simulator(points=1_000, latency=1.0)
    app = FastAPI(
        lifespan=lifespan(metrics_base_url=simulator.metrics_base_url, transport=simulator.transport())
    )
    add_exception_handlers(app)

    @app.get("/tps/{chain}")
    async def tps(chain: int, session: SessionDep) -> int:
        async with within(4.5):
            return len(await session.metrics.avg_tps(chain).collect())

    async with visited(app) as client:
        answer = await client.get(f"/tps/{CHAIN}")
    assert simulator.stats.requests == 4, "each page is in time, and all ten are not"
    assert answer.status_code == 504
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:chainapi:deadline"
    assert answer.json()["detail"] == "no answer within 4.5 s"


async def test_block_in_time_keeps_its_result_and_its_errors() -> None:
    """A block that ends in time is left alone, and so are its own errors, a TimeoutError among them."""
    async with within(5.0):
        await asyncio.sleep(4.0)
    with pytest.raises(TimeoutError) as plain:
        async with within(5.0):
            raise TimeoutError("of a database")
    assert not isinstance(plain.value, DeadlineExceededError)
    async with simulated(Simulator(latency=2.0)) as session:
        with pytest.raises(DeadlineExceededError) as own:
            async with within(5.0):
                await session.with_options(deadline=1.0).data.get(f"/v1/chains/{CHAIN}")
    assert own.value.deadline == 1.0


async def test_session_goes_on_after_a_deadline() -> None:
    """The stream of a block that took too long keeps its position, and its request is cancelled."""
    async with simulated(Simulator(latency=1.0)) as session:
        pages = session.data.evm.blocks(CHAIN, page_size=10)
        with pytest.raises(DeadlineExceededError, match=r"^no answer within deadline=2\.5 s$") as caught:
            async with within(2.5):
                await pages.collect(limit=100)
        assert (caught.value.elapsed, caught.value.in_queue) == (2.5, 0.0)
        rows = await pages.collect(limit=10)
        assert rows[0].block_number == rows[-1].block_number + 9


async def test_seconds_are_checked() -> None:
    """A deadline that is no positive number is refused."""
    wrong: Any
    for wrong in (0.0, -1.0, "5", None):
        with pytest.raises(ConfigurationError, match="seconds"):
            async with within(wrong):
                pass
