"""The gate: order, stops, canaries, cancellation."""

from __future__ import annotations

import asyncio

import pytest

from chainapi.core.headers import LimitNews
from chainapi.core.quota import Limit
from chainapi.errors import QuotaWaitError
from chainapi.limiter import Gate


async def test_first_request_goes_at_once_and_alone() -> None:
    """Nobody follows the first request until it is answered."""
    gate = Gate()
    first = await gate.acquire()
    second = asyncio.create_task(gate.acquire())
    await asyncio.sleep(1)
    assert not second.done()
    first.answered(200, LimitNews(limit=10, remaining=9))
    (await second).unsent()


async def test_refusal_stops_everybody_for_as_long_as_it_says() -> None:
    """After a 429 nothing is granted before its retry-after has passed."""
    gate = Gate()
    loop = asyncio.get_running_loop()
    (await gate.acquire()).answered(429, LimitNews(retry_after=20))
    times = []

    async def call() -> None:
        permit = await gate.acquire()
        times.append(loop.time())
        permit.answered(200, LimitNews())

    await asyncio.gather(*(call() for _ in range(5)))
    assert times == [pytest.approx(20)] * 5


async def test_stop_between_grant_and_resumption_is_honoured() -> None:
    """A task that was granted but did not run yet goes back to its place when a stop begins."""
    gate = Gate(max_in_flight=3)
    loop = asyncio.get_running_loop()
    (await gate.acquire()).answered(200, LimitNews(limit=100, remaining=99))
    first, second, third = [await gate.acquire() for _ in range(3)]
    order: list[tuple[int, float]] = []

    async def call(number: int) -> None:
        permit = await gate.acquire()
        order.append((number, loop.time()))
        permit.answered(200, LimitNews())

    waiting = [asyncio.create_task(call(n)) for n in range(3)]
    await asyncio.sleep(1)
    first.answered(200, LimitNews())
    second.answered(200, LimitNews())
    third.answered(429, LimitNews(retry_after=5))
    await asyncio.gather(*waiting)
    assert [number for number, _ in order] == [0, 1, 2]
    assert [when for _, when in order] == [pytest.approx(6, abs=1e-6)] * 3


async def test_max_wait_is_checked_at_once() -> None:
    """A wait that would be too long is refused before it begins, with the time to come back."""
    gate = Gate(now=lambda: 1000.0)
    (await gate.acquire()).answered(429, LimitNews(retry_after=20))
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(max_wait=5)
    assert caught.value.retry_at == pytest.approx(1020)
    assert asyncio.get_running_loop().time() < 1e-6


async def test_rate_is_a_ceiling() -> None:
    """With a rate of one a second, the third request leaves after two seconds."""
    gate = Gate(rate=Limit(1, 1))
    for _ in range(3):
        (await gate.acquire()).answered(200, LimitNews())
    assert asyncio.get_running_loop().time() == pytest.approx(2, rel=1e-3)


async def test_cancelled_waiter_gives_its_place_to_the_next() -> None:
    """A waiter that is cancelled is gone at once, and the next one is served."""
    gate = Gate(max_in_flight=1)
    first = await gate.acquire()
    second, third = asyncio.create_task(gate.acquire()), asyncio.create_task(gate.acquire())
    await asyncio.sleep(1)
    first.unsent()
    second.cancel()
    (await third).unsent()
    assert second.cancelled()
