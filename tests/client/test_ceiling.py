"""Ceiling of a session: tokens for requests or units, paid in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from aiolimiter import AsyncLimiter

from chainapi import Limit
from chainapi._limits.member import Ceiling

pytestmark = pytest.mark.rule


def time() -> float:
    """Return the time of the loop."""
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("rate", "toll"),
    [(Limit(10, 1.0), 2.0), (Limit(10, 1.0, units=True), 50.0)],
    ids=["requests", "units"],
)
async def test_toll_is_in_requests_or_units(rate: Limit, toll: float) -> None:
    """A limit counts requests, one with `units` the units that they cost."""
    assert Ceiling(rate).toll(50.0, 2.0) == toll


async def test_limiter_of_the_user_counts_requests() -> None:
    """A token bucket that the user passed counts requests."""
    assert Ceiling(AsyncLimiter(10, 1.0)).toll(50.0) == 1.0


async def test_payment_of_more_than_the_bucket_holds_takes_its_time() -> None:
    """A toll above the size of the bucket is paid in parts, at its rate."""
    ceiling, began = Ceiling(Limit(10, 5.0, units=True)), time()
    assert ceiling.ready(25.0)
    assert ceiling.wait(25.0) == 7.5
    await ceiling.pay(25.0)
    assert time() - began == pytest.approx(7.5, abs=0.1)
    assert ceiling.wait(10.0) == pytest.approx(5.0)


async def test_wait_is_that_for_the_tokens_that_lack() -> None:
    """A bucket of 10 that has 6 has 9 after the time of 3; it has 10 when it is full."""
    ceiling = Ceiling(Limit(10, 5.0, units=True))
    await ceiling.pay(4.0)
    assert [ceiling.wait(toll) for toll in (6.0, 9.0, 26.0)] == pytest.approx([0.0, 1.5, 10.0], abs=1e-5)
    assert [ceiling.ready(toll) for toll in (6.0, 9.0, 26.0)] == [True, False, False]


async def test_less_than_one_request_a_second_is_one_in_a_longer_time() -> None:
    """A limit below one request a second lets a whole request pass each time."""
    ceiling, began = Ceiling(Limit(0.5, 1.0)), time()
    await ceiling.pay(1.0)
    assert ceiling.wait(1.0) == 2.0
    await ceiling.pay(1.0)
    assert time() - began == pytest.approx(2.0, abs=0.1)
