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


def service(**settings: Any) -> Simulator:
    """Return a service with a limit."""
    return Simulator(**{"limit": LIMIT, "window": WINDOW, "latency": 0.05, **settings})


UNITS = {"weighted": True, "limit": 100_000}
RATE = Limit(100, per=1.0, units=True)


@pytest.mark.parametrize(
    ("settings", "options", "paths", "callers", "least"),
    [
        pytest.param({}, {"max_in_flight": 30}, (CHAIN, CHAIN), 60, 0.9 * LIMIT * 3, id="quota"),
        pytest.param(UNITS, {"rate": RATE}, (CHAIN, HEAVY), 30, 0, id="dear batch calls"),
        pytest.param(UNITS, {"rate": RATE}, (HEAVY, CHAIN), 30, 0, id="dear interactive calls"),
        pytest.param({"limit": 10_000}, {"max_in_flight": 2}, (CHAIN, CHAIN), 30, 0, id="places"),
        pytest.param({"limit": 10_000}, {"rate": Limit(10, per=1.0)}, (CHAIN, CHAIN), 30, 0, id="rate"),
    ],
)
async def test_batch_has_its_floor_and_interactive_calls_the_rest(
    settings: dict[str, Any], options: dict[str, Any], paths: tuple[str, str], callers: int, least: float
) -> None:
    """Beside interactive calls that would use all units, batch calls get a tenth, without more 429s.

    The quota, its units, and the limits that a session sets itself are divided alike.
    """
    async with Session(**(sim := service(**settings)).arguments(), **options) as session:
        ranks = zip((INTERACTIVE, BATCH), paths, strict=True)
        got = await units(sim, [(session, rank, path, callers) for rank, path in ranks])
    assert got[BATCH] / got.total() == pytest.approx(FLOOR, abs=0.03 if sim.weighted else 0.02)
    assert got.total() >= least


async def test_floor_of_three_priorities() -> None:
    """Of three priorities that wait, the highest gets 90 %, and each of the others a part of the rest."""
    async with Session(**(sim := service(limit=200)).arguments(), max_in_flight=30) as session:
        got = await units(sim, [(session, rank, CHAIN, 40) for rank in (2, 1, 0)])
    assert got[2] / got.total() == pytest.approx(1 - FLOOR, abs=0.02)
    assert min(got[1], got[0]) / got.total() >= FLOOR / 4


async def test_batch_alone_has_all_of_the_quota() -> None:
    """Without interactive calls batch calls use all of the quota."""
    async with Session(**(sim := service()).arguments()) as session:
        got = await units(sim, [(session, BATCH, CHAIN, 120)], 3)
    assert got[BATCH] >= 0.97 * LIMIT * 2


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
        got = await units(sim, callers)
    assert got[BATCH] / got.total() == pytest.approx(FLOOR, abs=0.03)
