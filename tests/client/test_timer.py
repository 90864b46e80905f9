"""Timer that is set again and again, in virtual time."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from chainapi.client.timer import Timer


async def test_timer_fires_once_at_the_time_set_last() -> None:
    """Earlier settings are void, whether the last one is sooner or later, or the same."""
    fired = list[float]()
    loop = asyncio.get_running_loop()
    timer = Timer(lambda: fired.append(loop.time()))
    for when in (30.0, 10.0, 20.0, 20.0):
        timer.set(loop.time() + when)
    assert timer.running
    await asyncio.sleep(60)
    assert fired == pytest.approx([20.0])
    assert not timer.running


async def test_stopped_timer_does_not_fire() -> None:
    """An infinite time stops the timer; it can be set again, also to a time at which it fired."""
    fired = list[float]()
    loop = asyncio.get_running_loop()
    timer = Timer(lambda: fired.append(loop.time()))
    timer.set(5.0)
    timer.set(inf)
    assert not timer.running
    await asyncio.sleep(10)
    assert fired == []
    timer.set(12.0)
    await asyncio.sleep(5)
    timer.set(12.0)
    await asyncio.sleep(1)
    assert len(fired) == 2
