"""Limits as a session keeps them: prices, ceilings, spenders, and a service that hangs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiolimiter import AsyncLimiter

from chainapi import LimiterOptions, Session
from chainapi.errors import APITimeoutError, ConfigurationError, RateLimitedError
from chainapi.simulator import Simulator
from tests.sessions import Answering, reaching, simulated


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


async def test_request_that_costs_more_than_the_whole_limit_fails() -> None:
    """A request refused with all of its limit left fails early, another after all attempts."""
    for left, attempts in (("100", 2), ("99", 5)):
        fields = {"ratelimit-policy": "100;w=60", "ratelimit-limit": "100", "ratelimit-remaining": left}
        refusing = Answering(status=429, headers={**fields, "retry-after": "5"})
        async with reaching(refusing, limiter=LimiterOptions(isolated=True)) as session:
            with pytest.raises(RateLimitedError) as caught:
                await session.data.get("/v1/anything")
        assert caught.value.attempts == attempts
        assert ("costs more than the limit" in str(caught.value)) is (attempts == 2)


async def test_hanging_service_does_not_make_callers_wait_for_each_other() -> None:
    """Of 100 callers of a service that never answers, the last fails after 2 minutes, not 75."""
    async with reaching(Answering(seconds=1e9)) as session:
        calls = (session.data.get("/v1/anything") for _ in range(100))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, APITimeoutError) for outcome in outcomes)
    assert time() < 120


async def test_rate_can_be_shared_with_the_rest_of_the_program() -> None:
    """An AsyncLimiter of the program's own holds for the session and for others."""
    limiter = AsyncLimiter(10, 1.0)
    for _ in range(10):
        await limiter.acquire()
    async with reaching(Answering(seconds=0.05), rate=limiter) as session:
        await session.data.get("/v1/anything")
        assert time() == pytest.approx(0.15, rel=0.05)
        await asyncio.gather(*(session.data.get("/v1/anything") for _ in range(20)))
    assert time() == pytest.approx(2.2, rel=0.05)


async def test_spenders_of_a_session() -> None:
    """The snapshot has what each tag spent; the tag of a call comes before that of its session."""
    async with simulated(Simulator(seed=1), tag="web") as session:
        await session.data.list("/v1/chains/43114/blocks", page_size=10).collect(limit=20)
        await session.data.evm.blocks(43114, tag="job").collect(limit=1)
        await session.data.chain(43114, tag="job")
        await session.data.get("/v1/chains/43114", tag="")
        costs = {one.tag: one for one in session.quota["data"].spenders}
    assert {tag: (one.process, one.requests) for tag, one in costs.items()} == {
        "web": ("", 2),
        "job": ("", 2),
        "": ("", 1),
    }
    assert all(one.units >= one.requests for one in costs.values())


def test_tags_are_checked() -> None:
    """A tag is a string of at most 64 printable characters."""
    session = simulated(Simulator(seed=1))
    for tag in (7, b"job", "a" * 65, "line\nend", "\x1b[31m", ["job"]):
        options: dict[str, Any] = {"tag": tag}
        with pytest.raises(ConfigurationError, match=r"tag=.* must be a string of at most 64 printable"):
            Session(**options)
        with pytest.raises(ConfigurationError, match="tag="):
            session.data.evm.blocks(43114, **options)
        with pytest.raises(ConfigurationError, match="tag="):
            session.data.list("/v1/chains", **options)


@pytest.mark.adapter
@pytest.mark.real_time
async def test_specified_headers_with_200_callers() -> None:
    """Over a socket, 200 callers pass windows of a second with few refusals, and none sends in a stop."""
    async with Simulator(limit=80, window=1.0) as simulator:
        async with Session(data_base_url=simulator.data_base_url, api_key=simulator.api_key) as session:
            bodies = await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(200)))
        stats = simulator.stats
    assert len(bodies) == 200
    assert stats.answered[200] == 200
    assert stats.answered[429] <= 2
    assert stats.sent_while_stopped == 0
