"""What `session.quota` shows: what is left, when it is back, and who spent it."""

from __future__ import annotations

import asyncio

from chainapi import Limit, Session
from chainapi.simulator import Fault, Simulator

PATH = "/v1/chains/43114"


async def test_what_is_left_and_when_it_is_back() -> None:
    """Spent units are not left until they are back, and an idle window brings all of them back."""
    async with Session(**Simulator(limit=10, window=60.0).arguments(), now=lambda: 5000.0) as session:
        for _ in range(4):
            await session.data.get(PATH)
        shown = session.quota["data"]
        assert (shown.limit, shown.remaining, shown.window, shown.back_at) == (10, 6, 60, None)
        for _ in range(6):
            await session.data.get(PATH)
        waiting = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(1.0)
        shown = session.quota["data"]
        assert (shown.remaining, shown.waiting) == (0, 1)
        assert shown.back_at is not None
        assert 5000.0 < shown.back_at <= 5060.0
        await waiting
        await asyncio.sleep(130.0)
        shown = session.quota["data"]
        assert (shown.remaining, shown.back_at, shown.waiting, shown.in_flight) == (10, None, 0, 0)


async def test_a_stop_is_shown_while_it_lasts() -> None:
    """After a 429 the seconds that are left of its wait are shown."""
    fault = Fault(at=2, status=429, headers={"retry-after": "30"})
    async with Session(**Simulator(faults=[fault]).arguments()) as session:
        await session.data.get(PATH)
        waiting = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(10.0)
        assert 19.0 <= session.quota["data"].stopped_for <= 20.1
        await waiting
        assert session.quota["data"].stopped_for == 0


async def test_a_limit_of_the_user_is_shown_while_it_is_used_up() -> None:
    """A limit that no header shows is shown as long as it holds requests back."""
    async with Session(**Simulator().arguments(), limits={"data": [Limit(2, per=60.0)]}) as session:
        for _ in range(2):
            await session.data.get(PATH)
        assert session.quota["data"].remaining == 0
        await asyncio.sleep(61.0)
        assert session.quota["data"].remaining is None


async def test_spenders_used_least_recently_are_added_up() -> None:
    """However many tags there are, at most 256 are shown; the others are summed up as "other"."""
    async with Session(**Simulator().arguments()) as session:
        for number in range(300):
            await session.data.get(PATH, tag="often")
            await session.data.get(PATH, tag=f"t{number}")
        spenders = session.quota["data"].spenders
    shown = {one.tag: one.requests for one in spenders}
    assert len(shown) == len(spenders) <= 256
    assert {"other", "t299"} <= shown.keys()
    assert "t0" not in shown
    assert shown["often"] == 300
    assert sum(shown.values()) == 600
