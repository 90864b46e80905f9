"""Interactive requests beside batch requests, against servers that count, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Protocol

import pytest
from attrs import define, evolve, field

from chainapi import Limit
from chainapi.client.limiter import Gate
from chainapi.client.member import Member
from chainapi.client.permit import AnyPermit
from chainapi.core.limits.info import RateLimitInfo
from chainapi.core.limits.verdict import Verdict
from tests.limits.outside import promised_scene
from tests.limits.replays import check_forecasts
from tests.limits.servers import Bucket, Clocked, FromFirst, Server, SlidingLog
from tests.limits.wild import Scene, run
from tests.share.exchange import Exchange
from tests.share.test_shared_gate import Process

FLOOR = 0.1
TRIP = 0.05
PRICES = {"/cheap": 1.0, "/expensive": 20.0}


class Acquire(Protocol):
    """Gate of a caller, with the settings of its session."""

    def __call__(self, route: str, *, priority: int, again: bool) -> Awaitable[AnyPermit]:
        """Return a permit."""
        ...


async def answered(permit: AnyPermit, status: int, info: RateLimitInfo) -> Verdict:
    """Report a response."""
    verdict = permit.answered(status, info)
    return verdict if isinstance(verdict, Verdict) else await verdict


@define
class Flood:
    """Callers that send as fast as they may until a time."""

    server: Server
    until: float
    units: Counter[int] = field(factory=Counter[int])  # by priority, once a window has passed
    refusals: int = 0
    in_stops: int = 0
    stopped_until: float = -inf

    async def call(self, acquire: Acquire, priority: int, route: str) -> None:
        """Send one request after the other."""
        loop, again = asyncio.get_running_loop(), False
        while loop.time() < self.until:
            permit = await acquire(route, priority=priority, again=again)
            self.in_stops += loop.time() < self.stopped_until
            await asyncio.sleep(TRIP / 2)
            response = self.server.answer(loop.time(), PRICES[route])
            await asyncio.sleep(TRIP / 2)
            again = response.status == 429
            if again:
                self.refusals += 1
                self.stopped_until = max(self.stopped_until, loop.time() + (response.info.retry_after or 0.0))
            elif self.server.window < loop.time() < self.until:
                self.units[priority] += PRICES[route]  # type: ignore[assignment]
            await answered(permit, response.status, response.info)

    async def run(self, acquires: list[Acquire], callers: dict[tuple[int, str], int]) -> None:
        """Let callers of each priority and route run, over all gates in turn."""
        tasks = [
            asyncio.create_task(self.call(acquires[number % len(acquires)], priority, route))
            for (priority, route), count in callers.items()
            for number in range(count)
        ]
        _, late = await asyncio.wait(tasks, timeout=self.until + 100.0)
        for task in late:  # starved
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def share(self, priority: int) -> float:
        """Return the share of the units that a priority got."""
        return self.units[priority] / sum(self.units.values())


def one_gate(**settings: object) -> list[Acquire]:
    """Return a gate of one session."""
    member = Member(**settings)  # type: ignore[arg-type]
    gate = Gate(random=lambda: 0.5)
    gate.join(member)
    return [partial(gate.acquire, member=member)]


CALLERS = {(1, "/cheap"): 60, (0, "/cheap"): 60}
SERVERS: list[Callable[[], Server]] = [
    partial(Bucket, 500.0, 10.0),
    partial(SlidingLog, 500.0, 10.0),
    partial(FromFirst, 500.0, 10.0),
    partial(Clocked, 500.0, 10.0),
]


@pytest.mark.parametrize("server", SERVERS)
async def test_batch_has_its_floor_and_interactive_calls_the_rest(server: Callable[[], Server]) -> None:
    """Beside interactive calls that would use the whole quota, batch calls get a tenth, without more 429s."""
    flood = Flood(server(), 40.0)
    await flood.run(one_gate(max_in_flight=30), CALLERS)
    assert flood.share(0) == pytest.approx(FLOOR, abs=0.02)
    assert sum(flood.units.values()) >= 0.9 * 500.0 * 3
    assert (flood.refusals <= 1, flood.in_stops) == (True, 0)


@pytest.mark.parametrize("routes", [("/cheap", "/expensive"), ("/expensive", "/cheap")])
async def test_floor_counts_units(routes: tuple[str, str]) -> None:
    """The floor is a share of the units, whichever of both sends the expensive requests."""
    flood = Flood(Bucket(1000.0, 10.0), 60.0)
    interactive, batch = routes
    await flood.run(one_gate(), {(1, interactive): 150, (0, batch): 150})
    assert flood.share(0) == pytest.approx(FLOOR, abs=0.03)
    assert flood.in_stops == 0


async def test_batch_alone_has_all_of_the_quota() -> None:
    """Without interactive calls batch calls use all of the quota."""
    flood = Flood(Bucket(500.0, 10.0), 30.0)
    await flood.run(one_gate(), {(0, "/cheap"): 120})
    assert flood.units[0] >= 0.97 * 500.0 * 2


@pytest.mark.parametrize(
    "settings",
    [
        {"max_in_flight": 1},
        {"max_in_flight": 4},
        {"rate": Limit(10, per=1.0)},
        {"rate": Limit(20, per=2.0, units=True)},
    ],
)
async def test_floor_holds_within_a_session_with_limits_of_its_own(settings: dict[str, object]) -> None:
    """Batch calls of a session that limits itself are not starved by its interactive calls."""
    flood = Flood(Bucket(500.0, 10.0), 40.0)
    await flood.run(one_gate(**settings), CALLERS)
    assert flood.share(0) == pytest.approx(FLOOR, abs=0.02)


SHARED = [(partial(Bucket, 500.0, 10.0), 60), (partial(FromFirst, 500.0, 10.0), 300)]


@pytest.mark.parametrize(("server", "callers"), SHARED)
@pytest.mark.parametrize("apart", [False, True])
async def test_floor_holds_across_processes(server: Callable[[], Server], callers: int, apart: bool) -> None:
    """Processes that share a quota share the floor, whether each has both kinds of calls or only one."""
    exchange = Exchange(delay=0.001)
    processes = [Process(exchange) for _ in range(2)]
    flood = Flood(server(), 30.0)
    gates: list[Acquire] = [process.acquire for process in processes]
    if apart:
        await asyncio.gather(
            *(flood.run([gate], {kind: callers}) for gate, kind in zip(gates, CALLERS, strict=True))
        )
    else:
        await flood.run(gates, dict.fromkeys(CALLERS, callers))
    assert flood.share(0) == pytest.approx(FLOOR, abs=0.03)
    assert flood.in_stops == 0
    assert flood.refusals <= 1
    for process in processes:
        await process.aclose()


# --- forecasts ----------------------------------------------------------------------------------


def mixed_scene(seed: int, *, hidden: bool) -> Scene:
    """Return a job of calls with `max_wait` and random priorities."""
    scene, rng = promised_scene(seed, hidden=hidden), random.Random(seed)
    ranks = rng.choice([(0, 1), (0, 1), (0, 1, 2)])
    weights = [rng.random() + 0.1 for _ in ranks]
    errands = [evolve(errand, priority=rng.choices(ranks, weights)[0]) for errand in scene.errands]
    return evolve(scene, errands=errands)


SEEDS = [(21, False), (64, False), (67, False), (100, False), (47, True), (202, True)]


@pytest.mark.parametrize(("seed", "hidden"), SEEDS)
def test_forecasts_are_right_for_calls_of_several_priorities(seed: int, hidden: bool) -> None:
    """No call is refused whose turn would have come in time, and none again at its `retry_after`."""
    found = check_forecasts(mixed_scene(seed, hidden=hidden))
    assert found.checked > 0
    assert (found.wrong, found.again, found.late, found.soon) == (0, 0, 0, 0)


def priced_scene(seed: int, share: float | None, *, documented: bool) -> Scene:
    """Return a job whose requests cost 1 or 8: a share of them, or all of the lowest priority, cost 8."""
    scene, rng = mixed_scene(seed, hidden=False), random.Random(seed + 1)
    errands = []
    for errand in scene.errands:
        expensive = errand.priority == 0 if share is None else rng.random() < share
        cost = 8.0 if expensive else 1.0
        route = "/expensive" if expensive else "/cheap"
        errands.append(evolve(errand, route=route, cost=cost, prior=cost if documented else None))
    return evolve(scene, errands=errands)


@pytest.mark.parametrize(
    ("seed", "share", "documented", "in_time"),
    [
        (6, None, True, 265),
        (6, 0.3, True, 227),
        (10, 0.1, False, 157),
        (38, 0.2, True, 210),
        (52, 0.3, True, 12),
    ],
)
def test_no_call_leaves_later_than_it_may_wait(
    seed: int, share: float | None, documented: bool, in_time: int
) -> None:
    """While units drip back, calls of cost 1 and 8 leave within `max_wait` and a second, or are refused.

    At least those are answered that were in time when others left too late.
    """
    outcome = run(priced_scene(seed, share, documented=documented), 1e5)
    assert (outcome.overdue, outcome.hung) == (0, False)
    assert outcome.done >= in_time
