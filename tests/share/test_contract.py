"""The contract of carriers of a shared quota: what members may rely on, whichever way they meet.

Members "in memory" share one loop in virtual time; those of one machine and over Redis are processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from random import Random
from typing import Any, TypeAlias

import pytest

from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from tests.real_loop import RealLoop
from tests.share.grounds import GROUNDS
from tests.share.members import Member, Outcome

ANYWHERE = ("memory", "dask")  # the others need processes that fork, and signals
BOUND = 30.0  # seconds within which everything ends: a wait without an end fails the test
OK: Outcome = ("ok", None)

Make: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]

Test: TypeAlias = Callable[[Make], Coroutine[Any, Any, None]]


def contract(*carriers: str) -> Callable[[Test], Callable[[str], None]]:
    """Return a decorator that runs a test over each of these carriers: in virtual time in memory."""

    def decorate(test: Test) -> Callable[[str], None]:
        def run(carrier: str) -> None:
            loop = VirtualLoop if carrier == "memory" else RealLoop
            with asyncio.Runner(loop_factory=loop) as runner:
                runner.run(test(partial(bounded, carrier)))

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        params = [
            pytest.param(one, marks=() if one == "memory" else pytest.mark.adapter)
            for one in carriers
            if one in ANYWHERE or os.name == "posix"
        ]
        return pytest.mark.parametrize("carrier", params)(run)

    return decorate


@asynccontextmanager
async def bounded(carrier: str, **settings: Any) -> AsyncIterator[Any]:
    """Make a ground; a test that hangs fails."""
    async with asyncio.timeout(BOUND * (10 if carrier == "memory" else 1)):
        async with GROUNDS[carrier](**settings) as ground:
            yield ground


every_carrier = contract("memory", "local", "redis", "dask")
every_member = contract("memory", "local", "redis")
every_process = contract("local", "redis")


async def until_known(member: Member, known: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until a member shows a state."""

    async def shown() -> bool:
        return known(await member.quota())

    await until(shown)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    while not await holds():  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(0.02)


def trips(rng: Random) -> float:
    """Return the round trip of a request: no two end at the same time."""
    return rng.uniform(0.015, 0.025)


def refuse(at: int, seconds: int) -> Fault:
    """Return a 429 with a wait, for one request."""
    return Fault(at=at, status=429, headers={"retry-after": str(seconds)})


def check(sim: Simulator, refusals: int = 1) -> None:
    """Check that nothing was sent in a stop, and that few requests were refused."""
    assert sim.stats.sent_while_stopped == 0
    assert sim.stats.answered[429] <= refusals


@every_carrier
async def test_members_share_one_quota(make: Make) -> None:
    """Three members spend a quota that is too small for all, with one 429 and none sent in a stop."""
    async with make(limit=20, window=1.0, latency=0.02) as ground:
        members = [await ground.member() for _ in range(3)]
        calls = [one.get(12, tag=tag) for one, tag in zip(members, "abc", strict=True)]
        assert await asyncio.gather(*calls) == [[OK] * 12] * 3
        check(ground.sim)
        for one in members:
            await until_known(one, lambda shown: shown["tags"] == dict.fromkeys("abc", 12))
            assert (await one.quota())["limit"] == 20


@every_carrier
async def test_a_long_wait_is_refused_at_once(make: Make) -> None:
    """A member whose turn comes too late hears when the quota is back, although others used it."""
    async with make(limit=2, window=60.0) as ground:
        one, other = await ground.member(), await ground.member()
        assert await one.get(2) == [OK] * 2
        ((name, again),) = await other.get(max_wait=5.0)
        assert name == "QuotaWaitError"
        assert again is not None
        assert 5.0 < again <= 61.0
        assert ground.sim.stats.requests <= 3  # at most a probe


@every_member
async def test_a_stop_is_heard_by_all(make: Make) -> None:
    """After a 429 of one member no other sends before its wait is over, however busy it is."""
    async with make(limit=10_000, latency=trips, faults=[refuse(60, 1)]) as ground:
        members = [await ground.member() for _ in range(3)]
        for one in members:
            await one.get()
        assert await asyncio.gather(*(one.get(3, rounds=15) for one in members)) == [[OK] * 3] * 3
        assert ground.sim.stats.answered[429] == 1
        check(ground.sim)


@every_member
async def test_many_members_start_at_once(make: Make) -> None:
    """Of many members that start at the same time each has its turn, and one request is refused at most."""
    async with make(limit=10, window=1.0) as ground:
        members = [await ground.member() for _ in range(8)]
        assert await asyncio.gather(*(one.get(2) for one in members)) == [[OK] * 2] * 8
        check(ground.sim)


@every_member
async def test_members_that_live_for_one_call(make: Make) -> None:
    """Members that come and go one after the other continue with what the last one learned."""
    async with make(limit=3, window=1.0) as ground:
        for _ in range(4):
            one = await ground.member()
            assert await one.get() == [OK]
            await one.close()
        check(ground.sim)


@every_member
async def test_a_stop_outlives_all_members(make: Make) -> None:
    """A member that comes after all others closed sends nothing before the stop that they met is over."""
    async with make(faults=[refuse(2, 2)]) as ground:
        first = await ground.member()
        assert await first.get() == [OK]
        refused = asyncio.create_task(first.get())
        await until_refused(ground)
        await first.close()
        assert await refused == [("SessionClosedError", None)]
        assert await (await ground.member()).get() == [OK]
        check(ground.sim)


@every_member
async def test_the_first_member_closes(make: Make) -> None:
    """When the first member closes in a stop, its calls end and the others continue after the stop."""
    async with make(latency=0.02, faults=[refuse(4, 2)]) as ground:
        members, waiting = await stopped(ground)
        await members[0].close()
        assert await asyncio.gather(*waiting[1:]) == [[OK] * 5] * 2
        check(ground.sim)
        assert {name for name, _ in await waiting[0]} <= {"ok", "SessionClosedError"}


@every_member
async def test_the_first_member_is_killed(make: Make) -> None:
    """When the first member is killed in a stop, the others continue after the stop."""
    async with make(latency=0.02, faults=[refuse(4, 2)]) as ground:
        members, waiting = await stopped(ground)
        await members[0].kill()
        assert await asyncio.gather(*waiting[1:]) == [[OK] * 5] * 2
        check(ground.sim, 2)
        waiting[0].cancel()


async def stopped(ground: Any) -> tuple[list[Any], list[asyncio.Task[list[Outcome]]]]:
    """Return three members in a stop that only the second one was told, and five calls of each that wait."""
    members = [await ground.member() for _ in range(3)]
    for one in members:
        assert await one.get() == [OK]
    first, second, third = members
    refused = asyncio.create_task(second.get(5))
    await until_refused(ground)
    return members, [asyncio.create_task(first.get(5)), refused, asyncio.create_task(third.get(5))]


async def until_refused(ground: Any) -> None:
    """Wait until a member was told of a stop, and has told the others, but for no report of the state."""

    async def refused() -> bool:
        return bool(ground.sim.stats.answered[429])

    await until(refused)
    await asyncio.sleep(ground.trip)


@every_member
async def test_a_member_that_dies_gives_its_permits_back(make: Make) -> None:
    """Requests of a member that was killed take no place in flight any more, and nobody waits for them."""
    async with make(faults=[Fault(at=2, every=1, times=2, slow=1000.0)]) as ground:
        first, dying = await ground.member(max_in_flight=2), await ground.member(max_in_flight=2)
        assert await first.get() == [OK]
        calls = asyncio.create_task(dying.get(2))

        async def asked() -> bool:
            return len(ground.sim.requests) == 3

        await until(asked)
        await dying.kill()
        calls.cancel()
        async with asyncio.timeout(BOUND):
            assert await first.get(3) == [OK] * 3
            await until_known(first, lambda shown: shown["in_flight"] == 0)


@every_member
async def test_cancelled_calls_leave_no_trace(make: Make) -> None:
    """Calls that are cancelled while they wait give their turns to those of other members."""
    async with make(limit=4, window=1.0) as ground:
        one, other = await ground.member(), await ground.member()
        assert await one.get(3) == [OK] * 3
        waiting = asyncio.create_task(one.get(30))
        await until_known(one, lambda shown: shown["waiting"] > 20)
        await one.cancel()
        outcomes = await waiting
        assert {name for name, _ in outcomes} == {"ok", "CancelledError"} or outcomes == [
            ("CancelledError", None)
        ] * 30
        assert await other.get(2) == [OK] * 2
        await until_known(other, lambda shown: (shown["waiting"], shown["in_flight"]) == (0, 0))
        check(ground.sim)


@every_member
async def test_priorities_and_turns_hold_across_members(make: Make) -> None:
    """After a stop a member's call of a higher priority leaves first, then both members leave in turns."""
    async with make(limit=1000, faults=[refuse(3, 1)]) as ground:
        crowd, few = await ground.member(max_in_flight=1), await ground.member(max_in_flight=1)
        for one in (crowd, few):
            assert await one.get() == [OK]
        calls = [asyncio.create_task(crowd.get(30, "/v1/chains/43113"))]
        await until_known(crowd, lambda shown: shown["waiting"] >= 29)
        calls += [
            asyncio.create_task(few.get(4, "/v1/chains/8021")),
            asyncio.create_task(few.get(1, "/v1/chains/4337", priority=1)),
        ]
        for call in calls:
            assert {name for name, _ in await call} == {"ok"}
        sent = [request.path.rsplit("/")[-1] for request in ground.sim.requests[3:]]
        assert sent.index("4337") <= 1  # the refused request of the crowd may be the first
        assert [place for place, chain in enumerate(sent) if chain == "8021"][-1] <= 12
        check(ground.sim)


@every_member
async def test_another_key_has_a_quota_of_its_own(make: Make) -> None:
    """A member with another key waits for nobody who shares the quota of the first key."""
    async with make(limit=2, window=60.0, other_keys=["other"]) as ground:
        one, other = await ground.member(), await ground.member(api_key="other")
        assert await one.get(2) == [OK] * 2
        assert await other.get(max_wait=1.0) == [OK]


@every_member
async def test_nothing_is_left_behind(make: Make) -> None:
    """Closed members leave no task and no socket, and nothing of the quota that is not documented."""
    async with make(limit=5, window=1.0) as ground:
        members = [await ground.member() for _ in range(3)]
        for one in members:
            assert await one.get() == [OK]
        for one in members:
            assert await one.close() == {"tasks": 0, "sockets": 0}

        async def nothing() -> bool:
            return bool(await ground.left() == [])

        await until(nothing)  # the host processes leave after their last sessions


@contract("memory", "redis")
async def test_a_carrier_that_goes_away(make: Make) -> None:
    """Without the carrier calls fail or leave by the last share, as the session says, then share again."""
    async with make(limit=30, window=1.0) as ground:
        failing = await ground.member(limiter={"on_unavailable": "fail"})
        alone = [await ground.member() for _ in range(2)]
        for one in (failing, *alone):
            assert await one.get() == [OK]
        ground.cut()
        await asyncio.sleep(ground.trip)
        assert await failing.get() == [("ShareUnavailableError", None)]
        assert await alone[0].get(3) == [OK] * 3
        ground.mend()

        async def served() -> bool:
            outcomes: list[Outcome] = await failing.get()
            return outcomes == [OK]

        await until(served)
        assert await asyncio.gather(*(one.get(10) for one in alone)) == [[OK] * 10] * 2
        assert ground.sim.stats.sent_while_stopped == 0


@every_process
async def test_a_member_that_stands_still_holds_nobody_up(make: Make) -> None:
    """While a member is suspended the others are served, and it continues when it runs again."""
    async with make() as ground:
        first, other, frozen = [await ground.member() for _ in range(3)]
        for one in (first, other, frozen):
            assert await one.get() == [OK]
        frozen.freeze()
        assert await asyncio.gather(*(one.get(20) for one in (first, other))) == [[OK] * 20] * 2
        frozen.thaw()
        assert await frozen.get(5) == [OK] * 5


@pytest.mark.proof
@every_process
async def test_a_first_member_that_stands_still_is_replaced(make: Make) -> None:
    """Members continue although the first one is suspended, and it joins them when it runs again."""
    async with make(faults=[refuse(6, 2)]) as ground:
        first, *others = [await ground.member() for _ in range(3)]
        for one in (first, *others):
            assert await one.get() == [OK]
        first.freeze()
        assert await asyncio.gather(*(one.get(5) for one in others)) == [[OK] * 5] * 2
        first.thaw()
        assert await first.get(5) == [OK] * 5
        check(ground.sim)


@every_process
async def test_forked_children_keep_nothing(make: Make) -> None:
    """A session refuses calls of a forked child, which keeps no place in the quota after its parent died."""
    async with make() as ground:
        first, other = await ground.member(), await ground.member()
        for one in (first, other):
            assert await one.get() == [OK]
        outcome, child = await first.fork()
        try:
            assert outcome == "ConfigurationError"
            await first.kill()
            assert await other.get(5) == [OK] * 5
            os.kill(child, 0)  # it lived all the time
        finally:
            os.kill(child, signal.SIGKILL)
