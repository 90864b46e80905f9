"""Interactive calls beside batch calls: the floor of the lower priority."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from chainapi import Limit, Session, SessionView
from chainapi.simulator import Simulator
from tests.share.exchange import Exchange

FLOOR = 0.1
LIMIT, WINDOW = 200, 10.0
CHAIN, HEAVY = "/v1/chains/43114", "/v1/chains/43114/blocks"
INTERACTIVE, BATCH = 1, 0


async def units(
    sim: Simulator, callers: Sequence[tuple[SessionView, int, str, int]], windows: int = 4
) -> Counter[int]:
    """Return the units that each priority got in all windows but the first.

    A caller is a session, its priority, the path of its calls, and how many make them one after the other.
    """
    loop, got, until = asyncio.get_running_loop(), Counter[int](), windows * WINDOW
    cost = {CHAIN: 1, HEAVY: 10} if sim.weighted else {CHAIN: 1, HEAVY: 1}

    async def call(session: SessionView, priority: int, path: str) -> None:
        view = session.with_options(priority=priority)
        while loop.time() < until:
            await view.data.get(path)
            got[priority] += cost[path] if WINDOW < loop.time() < until else 0

    calls = [call(session, rank, path) for session, rank, path, many in callers for _ in range(many)]
    await asyncio.wait([asyncio.create_task(one) for one in calls], timeout=2 * until)
    assert sim.stats.sent_while_stopped == 0
    assert sim.stats.answered[429] <= 1
    return got


async def share(
    sim: Simulator, callers: Sequence[tuple[SessionView, int, str, int]], windows: int = 4
) -> float:
    """Return the share of the units that batch calls got."""
    got = await units(sim, callers, windows)
    return got[BATCH] / got.total()


def service(**settings: Any) -> Simulator:
    """Return a service with a limit."""
    return Simulator(**{"limit": LIMIT, "window": WINDOW, "latency": 0.05, **settings})


async def test_batch_has_its_floor_and_interactive_calls_the_rest() -> None:
    """Beside interactive calls that would use the whole quota, batch calls get a tenth, without more 429s."""
    async with Session(**(sim := service()).arguments(), max_in_flight=30) as session:
        got = await units(sim, [(session, INTERACTIVE, CHAIN, 60), (session, BATCH, CHAIN, 60)])
    assert got[BATCH] / got.total() == pytest.approx(FLOOR, abs=0.02)
    assert got.total() >= 0.9 * LIMIT * 3


async def test_floor_of_three_priorities() -> None:
    """Of three priorities that wait, the highest gets 90 %, and each of the others a part of the rest."""
    async with Session(**(sim := service(limit=200)).arguments(), max_in_flight=30) as session:
        got = await units(sim, [(session, rank, CHAIN, 40) for rank in (2, 1, 0)])
    assert got[2] / got.total() == pytest.approx(1 - FLOOR, abs=0.02)
    assert min(got[1], got[0]) / got.total() >= FLOOR / 4


@pytest.mark.parametrize("paths", [(CHAIN, HEAVY), (HEAVY, CHAIN)])
async def test_floor_counts_units(paths: tuple[str, str]) -> None:
    """The floor is a share of the units, whichever of both sends the expensive requests."""
    sim, rate = service(weighted=True, limit=100_000), Limit(100, per=1.0, units=True)
    async with Session(**sim.arguments(), rate=rate) as session:
        interactive, batch = paths
        callers = [(session, INTERACTIVE, interactive, 30), (session, BATCH, batch, 30)]
        assert await share(sim, callers) == pytest.approx(FLOOR, abs=0.03)


async def test_batch_alone_has_all_of_the_quota() -> None:
    """Without interactive calls batch calls use all of the quota."""
    async with Session(**(sim := service()).arguments()) as session:
        got = await units(sim, [(session, BATCH, CHAIN, 120)], 3)
    assert got[BATCH] >= 0.97 * LIMIT * 2


@pytest.mark.parametrize("settings", [{"max_in_flight": 2}, {"rate": Limit(10, per=1.0)}], ids=str)
async def test_floor_holds_within_a_session_with_limits_of_its_own(settings: dict[str, Any]) -> None:
    """Batch calls of a session that limits itself are not starved by its interactive calls."""
    async with Session(**(sim := service(limit=10_000)).arguments(), **settings) as session:
        callers = [(session, INTERACTIVE, CHAIN, 30), (session, BATCH, CHAIN, 30)]
        assert await share(sim, callers) == pytest.approx(FLOOR, abs=0.02)


@pytest.mark.parametrize("apart", [False, True])
async def test_floor_holds_across_processes(apart: bool) -> None:
    """Processes that share a quota share the floor, whether each has both kinds of calls or only one."""
    sim, exchange = service(limit=100), Exchange(delay=0.001)
    arguments = sim.arguments()
    async with (
        Session(**arguments, share=exchange.carrier()) as one,
        Session(**arguments, share=exchange.carrier()) as other,
    ):
        callers: list[tuple[SessionView, int, str, int]] = [
            (one, INTERACTIVE, CHAIN, 150),
            (other, BATCH, CHAIN, 150),
        ]
        if not apart:
            callers = [(each, rank, CHAIN, 75) for each in (one, other) for rank in (INTERACTIVE, BATCH)]
        assert await share(sim, callers) == pytest.approx(FLOOR, abs=0.03)
