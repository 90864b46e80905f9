"""The gate: order, stops, probes, cancellation, waiting times."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from aiolimiter import AsyncLimiter
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Limit
from chainapi.client.limiter import Gate
from chainapi.client.member import Member
from chainapi.core.limits.info import PolicyField, RateLimitInfo
from chainapi.errors import QuotaWaitError
from chainapi.testing import VirtualLoop
from tests.limits.servers import FromFirst, Server, SlidingLog

MINUTE = (PolicyField(100.0, 60.0),)


def reported(remaining: float, retry_after: float | None = None, reset: float | None = None) -> RateLimitInfo:
    """Return the limit headers of a service with 100 units a minute."""
    return RateLimitInfo(100.0, remaining, reset, retry_after, MINUTE)


async def opened(remaining: float = 99.0, **options: Any) -> Gate:
    """Return a gate whose first request was answered."""
    gate = Gate(**options)
    (await gate.acquire()).answered(200, reported(remaining))
    return gate


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


async def test_first_request_goes_at_once_and_alone() -> None:
    """No request follows the first one until its response arrives."""
    gate = Gate()
    first = await gate.acquire()
    second = asyncio.create_task(gate.acquire())
    await asyncio.sleep(1)
    assert not second.done()
    first.answered(200, RateLimitInfo(limit=10, remaining=9))
    (await second).unsent()


async def test_refusal_stops_everybody_for_its_retry_after() -> None:
    """After a 429 nothing is granted before its retry-after has passed."""
    gate = await opened()
    (await gate.acquire()).answered(429, reported(0, retry_after=20))
    times = []

    async def call() -> None:
        permit = await gate.acquire()
        times.append(time())
        permit.answered(200, reported(50))

    await asyncio.gather(*(call() for _ in range(5)))
    assert times == [pytest.approx(20)] * 5


async def test_stop_between_grant_and_resumption_is_honoured() -> None:
    """A granted task that did not run yet returns to its place at a stop."""
    gate = await opened(max_in_flight=3)
    first, second, third = [await gate.acquire() for _ in range(3)]
    order: list[tuple[int, float]] = []

    async def call(number: int) -> None:
        permit = await gate.acquire()
        order.append((number, time()))
        permit.answered(200, RateLimitInfo())

    waiting = [asyncio.create_task(call(n)) for n in range(3)]
    await asyncio.sleep(1)
    first.answered(200, reported(90))
    second.answered(200, reported(89))
    third.answered(429, reported(0, retry_after=5))
    await asyncio.gather(*waiting)
    assert [number for number, _ in order] == [0, 1, 2]
    assert [when for _, when in order] == [pytest.approx(6, abs=1e-4)] * 3


async def test_refused_request_goes_first_and_priority_before_the_rest() -> None:
    """After a stop the refused request leaves first, then urgent ones, then the rest."""
    gate = await opened()
    (await gate.acquire()).answered(429, reported(0, retry_after=5))
    order: list[str] = []

    async def call(name: str, priority: int = 0, *, again: bool = False) -> None:
        permit = await gate.acquire(priority=priority, again=again)
        order.append(name)
        permit.answered(200, reported(50))

    await asyncio.gather(call("a"), call("b"), call("urgent", 1), call("refused", again=True))
    assert order == ["refused", "urgent", "a", "b"]


async def test_session_that_allows_more_in_flight_lets_others_leave_at_once() -> None:
    """When a session joins that allows more requests in flight, waiting ones leave at once."""
    gate = await opened()
    (await gate.acquire()).answered(200, reported(98))
    small, large = Member(max_in_flight=2), Member(max_in_flight=5)
    gate.join(small)
    tasks = [asyncio.create_task(gate.acquire()) for _ in range(6)]
    await asyncio.sleep(1)
    assert sum(task.done() for task in tasks) == 2
    gate.join(large)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(task.done() for task in tasks) == 5
    (await tasks[0]).answered(200, reported(97))
    for task in tasks:
        (await task).unsent()


@pytest.mark.parametrize("most", [None, 1])
async def test_request_that_another_gate_permitted_holds_its_place(most: int | None) -> None:
    """A request under way that the gate adopts counts for the limit of its session, if that has one."""
    gate, member = await opened(), Member(max_in_flight=most)
    adopted = gate.adopt("", cost=None, member=member, elapsed=0.1)
    waiting = asyncio.create_task(gate.acquire(member=member))
    await asyncio.sleep(1)
    assert waiting.done() is (most is None)
    adopted.answered(200, reported(90))
    (await waiting).unsent()
    assert member.group is None or member.group.in_flight == 0


async def test_member_of_another_gate_begins_without_the_requests_of_the_last() -> None:
    """Requests of a session in its last gate hold none back in the next one, and free no place there."""
    member, last = Member(max_in_flight=1), await opened()
    last.join(member)
    under_way = await last.acquire(member=member)
    aside = [asyncio.create_task(last.acquire(member=member)) for _ in range(2)]
    await asyncio.sleep(1)
    for task in aside:
        task.cancel()
    await asyncio.wait(aside)
    gate = await opened()
    gate.join(member)
    permit = await gate.acquire(member=member)
    under_way.answered(200, reported(98))
    waiting = asyncio.create_task(gate.acquire(member=member))
    await asyncio.sleep(1)
    assert not waiting.done()
    permit.answered(200, reported(98))
    (await waiting).unsent()
    assert time() < 2.1


async def test_max_wait_is_checked_at_once() -> None:
    """The gate refuses a wait too long before it begins, with the time to retry."""
    gate = await opened(now=lambda: 1000.0)
    (await gate.acquire()).answered(429, reported(0, retry_after=20))
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(max_wait=5)
    assert caught.value.retry_at == pytest.approx(1020)
    assert caught.value.retry_after == pytest.approx(20)
    assert time() < 1e-6
    (await gate.acquire(max_wait=25)).unsent()


async def test_max_wait_counts_those_in_front() -> None:
    """Behind 300 waiters at 100 a minute, a request fails at once."""
    gate = await opened(0.0, probe=False)
    waiting = [asyncio.create_task(gate.acquire()) for _ in range(300)]
    await asyncio.sleep(0)
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(max_wait=100)
    assert caught.value.retry_after == pytest.approx(240, rel=0.01)
    urgent = asyncio.create_task(gate.acquire(priority=1, max_wait=100))
    await asyncio.sleep(1)
    assert not urgent.done()
    for task in [*waiting, urgent]:
        task.cancel()


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("probe", [False, True])
async def test_retry_after_does_not_count_the_request_itself(limit: int, probe: bool) -> None:
    """A request that waited in vain may come again when the window ends, not one window later."""
    gate = Gate(random=lambda: 0.5, probe=probe)
    for number in range(limit):
        permit = await gate.acquire()
        await asyncio.sleep(0.1)
        policies = (PolicyField(limit, 60.0),)
        permit.answered(200, RateLimitInfo(limit, limit - 1 - number, None, None, policies))
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(max_wait=1)
    assert 59 <= caught.value.retry_after <= 60.1
    await asyncio.sleep(caught.value.retry_after)
    (await gate.acquire(max_wait=1)).unsent()


async def test_wait_that_becomes_too_long_ends_as_soon_as_that_is_known() -> None:
    """An unforeseen stop ends a wait at once, not when max_wait is over."""
    gate = await opened(max_in_flight=1)
    flying = await gate.acquire()
    waiting = asyncio.create_task(gate.acquire(max_wait=5))
    behind = asyncio.create_task(gate.acquire())
    await asyncio.sleep(1)
    flying.answered(429, reported(0, retry_after=60))
    with pytest.raises(QuotaWaitError):
        await waiting
    assert time() == pytest.approx(1)
    (await behind).unsent()
    assert time() == pytest.approx(61)


async def test_rate_is_a_ceiling() -> None:
    """With a rate of one a second, the third request leaves after two seconds."""
    gate = Gate(rate=Limit(1, 1))
    for _ in range(3):
        (await gate.acquire()).answered(200, RateLimitInfo())
    assert time() == pytest.approx(2, rel=1e-3)
    with pytest.raises(QuotaWaitError):
        await gate.acquire(max_wait=0.5)


async def test_rate_counts_units_when_it_is_set_to() -> None:
    """With ``units=True`` a request of 50 units takes five seconds of ten units each."""
    gate = Gate(rate=Limit(10, 1, units=True))
    (await gate.acquire(cost=10)).answered(200, RateLimitInfo())
    (await gate.acquire(cost=50)).answered(200, RateLimitInfo())
    assert time() == pytest.approx(5, rel=1e-3)


@pytest.mark.parametrize(
    ("limit", "expected"), [(Limit(2, 10), [0, 0, 10, 10, 20]), (Limit(0.5, 10), [0, 20, 40, 60, 80])]
)
async def test_limits_of_the_user_are_kept(limit: Limit, expected: list[float]) -> None:
    """Two requests in ten seconds are two in ten seconds, and half a request is one in twenty."""
    gate = Gate(limits=[limit])
    times = []
    for _ in range(5):
        permit = await gate.acquire()
        times.append(round(time(), 3))
        permit.answered(200, RateLimitInfo())
    assert times == expected


async def test_max_wait_bounds_the_payment_of_a_ceiling() -> None:
    """A call whose tokens others take fails after its `max_wait`, and the next one has its turn."""
    bucket = AsyncLimiter(1, 10.0)
    gate = Gate(rate=bucket)
    await bucket.acquire()
    late, patient = asyncio.create_task(gate.acquire(max_wait=12.0)), asyncio.create_task(gate.acquire())
    others = asyncio.gather(*(bucket.acquire(0.9) for _ in range(3)))  # the bucket lets smaller tolls pass
    with pytest.raises(QuotaWaitError):
        await late
    assert time() == pytest.approx(12.05)
    (await patient).unsent()
    await others
    assert time() == pytest.approx(37, abs=0.1)


async def test_ceiling_refuses_none_that_may_leave_in_time() -> None:
    """A dear call that has to wait for a few tokens is not refused for the time of all of them."""
    gate = Gate(rate=Limit(10, 10, units=True))
    for cost, left in ((1, 999.0), (10, 989.0)):
        (await gate.acquire(f"/{cost}", cost=cost)).answered(200, RateLimitInfo(1000.0, left))
    await asyncio.sleep(9)
    (await gate.acquire("/10", cost=10, max_wait=1.0)).unsent()
    with pytest.raises(QuotaWaitError):
        await gate.acquire("/20", cost=20, max_wait=5.0)


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


async def test_cancelled_head_of_the_queue_does_not_hold_up_the_rest() -> None:
    """The next waiter's own cost decides after the first one leaves."""
    gate = await opened(10.0)
    expensive = asyncio.create_task(gate.acquire(cost=50))
    await asyncio.sleep(0)
    gate_is_held = asyncio.create_task(gate.acquire(cost=10))
    await asyncio.sleep(0.1)
    expensive.cancel()
    (await gate_is_held).unsent()
    assert time() < 1


async def test_permit_ends_once() -> None:
    """Only the first end of a permit counts."""
    gate = await opened()
    permit = await gate.acquire()
    permit.answered(200, reported(50))
    permit.lost()
    permit.unsent()
    permit.answered(429, reported(0, retry_after=60))
    state = gate.snapshot()
    assert (state.remaining, state.in_flight, state.stopped_until) == (50, 0, None)


async def test_lost_request_frees_its_place() -> None:
    """A request without an answer does not keep others out."""
    gate = await opened(max_in_flight=1)
    permit = await gate.acquire()
    waiting = asyncio.create_task(gate.acquire())
    await asyncio.sleep(1)
    permit.lost()
    (await waiting).unsent()
    assert time() == pytest.approx(1)


async def test_cheap_requests_pass_an_expensive_one_but_not_for_ever() -> None:
    """Units too few for an expensive request go to cheaper ones, up to its cost."""
    gate = await opened(30.0)
    (await gate.acquire("/cheap", cost=1)).answered(200, reported(29))
    (await gate.acquire(cost=19)).answered(200, reported(10))
    expensive = asyncio.create_task(gate.acquire(cost=20))
    cheap = [asyncio.create_task(gate.acquire("/cheap", cost=1)) for _ in range(15)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(task.done() for task in cheap) == 10
    assert not expensive.done()
    for task in [expensive, *cheap]:
        task.cancel()


async def test_waits_are_reported_once() -> None:
    """One stop is one event for any number of waiters, and no event without any."""
    events: list[dict[str, Any]] = []
    gate = await opened(on_wait=lambda **event: events.append(event))
    (await gate.acquire()).answered(429, reported(0, retry_after=20))
    with pytest.raises(QuotaWaitError):
        await gate.acquire(max_wait=0)
    assert events == []
    waiting = [asyncio.create_task(gate.acquire()) for _ in range(5)]
    await asyncio.sleep(1)
    assert [(event["reason"], event["seconds"]) for event in events] == [("stop", pytest.approx(20))]
    for task in waiting:
        task.cancel()


async def test_snapshot_has_what_is_known() -> None:
    """Limit, remaining, window, waiting, in flight and the end of a stop can be read."""
    gate = await opened(99.0, now=lambda: 1000.0)
    flying = await gate.acquire()
    (await gate.acquire()).answered(429, reported(0, retry_after=20))
    waiting = asyncio.create_task(gate.acquire())
    await asyncio.sleep(5)
    state = gate.snapshot()
    assert (state.limit, state.remaining, state.window) == (100, 0, 60)
    assert (state.waiting, state.in_flight) == (1, 1)
    assert state.stopped_for == pytest.approx(15)
    assert state.reset_in == pytest.approx(15)
    assert state.back_at == pytest.approx(1015)
    assert state.costs == {"": 1}
    waiting.cancel()
    flying.unsent()


async def test_huge_loop_times_are_exact() -> None:
    """After a month of uptime a stop of one second is still one second."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.jump(30 * 86400.0)
    began = loop.time()
    gate = await opened()
    (await gate.acquire()).answered(429, reported(0, retry_after=1))
    (await gate.acquire()).unsent()
    assert loop.time() - began == pytest.approx(1, abs=1e-4)


async def test_suspended_machine_sends_no_burst_above_the_budget() -> None:
    """The probe still leaves alone when the clock jumps in a wait."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    gate = await opened()
    (await gate.acquire()).answered(429, reported(0, retry_after=5))
    waiting = [asyncio.create_task(gate.acquire()) for _ in range(10)]
    await asyncio.sleep(1)
    loop.jump(3600)
    await asyncio.sleep(1)
    assert sum(task.done() for task in waiting) == 1
    for task in waiting:
        task.cancel()


async def test_ten_thousand_waiters_that_leave_are_forgotten() -> None:
    """Callers that give up in a long stop leave nothing behind."""
    gate = await opened()
    (await gate.acquire()).answered(429, reported(0, retry_after=86400))
    for _ in range(10):
        tasks = [asyncio.create_task(gate.acquire()) for _ in range(1000)]
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert gate.snapshot().waiting == 0
    flows = [flow for lane in gate._scheduler.queue.ranks.lanes.values() for flow in lane._flows.values()]
    assert sum(len(flow.waiters) for flow in flows) < 100


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([FromFirst, SlidingLog]),
    st.integers(5, 60),
    st.integers(1, 40),
    st.lists(st.sampled_from([1.0, 1.0, 3.0, 10.0]), min_size=1, max_size=150),
)
def test_random_jobs_are_finished(
    seed: int, kind: type[Server], limit: int, in_flight: int, costs: list[float]
) -> None:
    """Random jobs are all served, with stops honoured and the queue drained."""
    rng = random.Random(seed)
    server, until = kind(float(limit), 30.0), 0.0
    loop = VirtualLoop()
    served: set[int] = set()

    async def call(gate: Gate, number: int, cost: float) -> None:
        nonlocal until
        again = False
        while True:
            permit = await gate.acquire(f"/{cost}", cost=cost, again=again)
            try:
                assert loop.time() >= until
                await asyncio.sleep(rng.uniform(0, 0.3))
                trial = server.answer(loop.time(), min(cost, limit))
                await asyncio.sleep(rng.uniform(0, 0.3))
                if rng.random() < 0.03:
                    permit.lost()
                else:
                    permit.answered(trial.status, trial.info)
                    if trial.status == 429:
                        until = max(until, loop.time() + (trial.info.retry_after or 0))
            finally:
                permit.lost()
            if trial.status == 200:
                served.add(number)
                return
            again = True

    async def run() -> None:
        gate = Gate(max_in_flight=in_flight, random=rng.random)
        tasks = [loop.create_task(call(gate, number, cost)) for number, cost in enumerate(costs)]
        doomed = {number for number in range(len(tasks)) if rng.random() < 0.2}
        for number in doomed:
            loop.call_later(rng.uniform(0, 100), tasks[number].cancel)
        await asyncio.wait(tasks, timeout=100_000)
        assert set(range(len(tasks))) - doomed <= served
        await asyncio.gather(*tasks, return_exceptions=True)
        state = gate.snapshot()
        assert (state.waiting, state.in_flight) == (0, 0)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
