"""Options of the rate limiter, and the waits that services announce, as a session keeps them."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from chainapi import Limit, LimiterOptions, Session
from chainapi.simulator import Fault, Simulator
from tests.limits import runs
from tests.limits.cells import KINDS
from tests.limits.counting import Service, time
from tests.sessions import reaching

PATH = "/v1/chains/43114"
DATE = "Sun, 15 Jun 2025 15:00:00 GMT"
NOW = 1_750_000_000.0  # Sunday, 15 June 2025, 15:06:40 GMT


async def sent_at(calls: int, **options: Any) -> list[int]:
    """Return after how many seconds each of some calls leaves that begin at once."""
    simulator, began = Simulator(log=True), time()
    async with Session(**simulator.arguments(), **options) as session:
        await asyncio.gather(*(session.data.get(PATH) for _ in range(calls)))
    return [round(request.sent - began) for request in simulator.requests]


async def test_own_limits_are_kept() -> None:
    """A rate spaces requests, and `limits` lets no more leave in any period than its amount."""
    assert await sent_at(4, rate=Limit(1, per=1.0)) == [0, 1, 2, 3]
    assert await sent_at(5, limits={"data": [Limit(2, per=10.0)]}) == [0, 0, 10, 10, 20]
    assert await sent_at(3, limits={"data": [Limit(0.5, per=10.0)]}) == [0, 20, 40]


@pytest.mark.parametrize(("max_stop", "seconds"), [(20.0, 20.0), (None, 1.5e9), (86_400.0, 86_400.0)])
async def test_the_longest_wait_is_an_option(max_stop: float | None, seconds: float) -> None:
    """A wait of 49 years ends after `max_stop`; without it, when it is over."""
    fault = Fault(at=1, status=429, headers={"retry-after": "1500000000"})
    async with Session(
        **Simulator(faults=[fault]).arguments(), limiter=LimiterOptions(max_stop=max_stop)
    ) as session:
        await session.data.get(PATH)
        assert time() == pytest.approx(seconds, abs=1.5)


async def test_without_probes_nothing_is_refused() -> None:
    """With `probe=False` requests wait until all units are surely back, and none is refused."""
    simulator = Simulator(limit=10, window=20.0, latency=0.05)
    async with Session(**simulator.arguments(), limiter=LimiterOptions(probe=False)) as session:
        await asyncio.gather(*(session.data.get(PATH) for _ in range(35)))
    assert simulator.stats.answered == {200: 35}
    assert 60.0 <= time() <= 63.0


@pytest.mark.parametrize("callers", [256, 4096])
def test_without_probes_nothing_is_refused_by_sliding_counters(callers: int) -> None:
    """Units that come back later than in a log are no reason to guess."""
    kind = "sliding counters"
    case = runs.Case(kind, KINDS[kind], [1.0] * 2500, callers, tail=True)
    run = runs.gate(case, probe=False, limit=400.0)
    assert (run.refusals, run.hung) == (0, False)


WAITS: list[tuple[dict[str, str], float]] = [
    ({"retry-after": "20"}, 20.0),
    ({"retry-after": "20, 30"}, 30.0),
    ({"retry-after": "Sun, 15 Jun 2025 15:00:20 GMT", "date": DATE}, 20.0),
    ({"retry-after": "Sunday, 15-Jun-25 15:00:20 GMT", "date": DATE}, 20.0),
    ({"retry-after": "Sun Jun 15 15:00:20 2025", "date": DATE}, 20.0),
    ({"retry-after": "Sun, 15 Jun 2025 15:07:00 GMT"}, 20.0),
    ({"ratelimit-limit": "100", "ratelimit-remaining": "0", "ratelimit-reset": "20"}, 20.0),
    ({"ratelimit": "limit=100, remaining=0, reset=20"}, 20.0),
    ({"ratelimit-policy": '"a";q=100;w=60', "ratelimit": '"a";r=0;t=20'}, 20.0),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 20)}, 20.0),
    ({"retry-after": "20", "ratelimit-remaining": "0", "ratelimit-reset": "40"}, 20.0),
]
NONE: list[dict[str, str]] = [
    {},
    {"retry-after": "soon"},
    {"retry-after": "-5"},
    {"ratelimit": "remaining=0 x"},
]


def refusing_once(headers: dict[str, str]) -> Service:
    """Return a service that refuses the first request with some headers."""
    return Service(trip=0.0, odd=lambda number: (429, headers) if number == 1 else None)


async def test_announced_waits_are_kept_in_every_form() -> None:
    """Each form of Retry-After and of the limit fields holds the next request back as long as it says."""
    wrong = list[str]()
    for headers, seconds in [*WAITS, *((headers, -1.0) for headers in NONE)]:
        service = refusing_once(headers)
        async with reaching(service, now=lambda: NOW, limiter=LimiterOptions(isolated=True)) as session:
            await session.data.get(PATH)
        first, second = service.sent
        least, most = (0.4, 1.1) if seconds < 0 else (seconds - 0.001, seconds + 0.1)
        if not least <= second - first <= most:
            wrong.append(f"{headers}: {second - first}")
    assert wrong == []


async def test_views_have_options_of_their_own() -> None:
    """A view replaces `max_wait`, keeps what it does not replace, and removes a bound with infinity."""
    async with Session(**Simulator(limit=1, window=60.0).arguments(), max_wait=1.0) as session:
        await session.data.get(PATH)
        for view in (session, session.with_options(tag="t")):
            with pytest.raises(Exception, match="quota"):
                await view.data.get(PATH)
        assert await session.with_options(max_wait=inf).data.get(PATH)
        assert time() == pytest.approx(60.0, abs=1.0)
