"""Gate: order, stops, cancellation, waiting times, members of several sessions and processes."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aiolimiter import AsyncLimiter
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Limit
from chainapi._limits.gate import Ask, Gate, Member, Permit, WaitingLimit
from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi.errors import QueueFullError, QuotaWaitError
from chainapi.testing import VirtualLoop
from tests.limits.servers import Bucket, Clocked, FromFirst, Gcra, Server, SlidingLog
from tests.share.exchange import Exchange
from tests.share.responses import end
from tests.share.test_shared_gate import Process, processes

pytestmark = pytest.mark.rule

MINUTE = (PolicyField(100.0, 60.0),)


def reported(remaining: float, retry_after: float | None = None, reset: float | None = None) -> RateLimitInfo:
    """Return the limit headers of a service with 100 units a minute."""
    return RateLimitInfo(100.0, remaining, reset, retry_after, MINUTE)


async def opened(remaining: float = 99.0, **options: Any) -> Gate:
    """Return a gate whose first request was answered."""
    gate = Gate(**options)
    (await gate.acquire(Ask())).answered(200, reported(remaining))
    return gate


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


async def test_stop_between_grant_and_resumption_is_honoured() -> None:
    """A granted task that did not run yet returns to its place at a stop."""
    gate = await opened(max_in_flight=3)
    first, second, third = [await gate.acquire(Ask()) for _ in range(3)]
    order: list[tuple[int, float]] = []

    async def call(number: int) -> None:
        permit = await gate.acquire(Ask())
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
    (await gate.acquire(Ask())).answered(429, reported(0, retry_after=5))
    order: list[str] = []

    async def call(name: str, priority: int = 0, *, again: bool = False) -> None:
        permit = await gate.acquire(Ask(priority=priority, again=again))
        order.append(name)
        permit.answered(200, reported(50))

    await asyncio.gather(call("a"), call("b"), call("urgent", 1), call("refused", again=True))
    assert order == ["refused", "urgent", "a", "b"]


async def test_session_that_allows_more_in_flight_lets_others_leave_at_once() -> None:
    """When a session joins that allows more requests in flight, waiting ones leave at once."""
    gate = await opened()
    (await gate.acquire(Ask())).answered(200, reported(98))
    small, large = Member(max_in_flight=2), Member(max_in_flight=5)
    gate.join(small)
    tasks = [asyncio.create_task(gate.acquire(Ask())) for _ in range(6)]
    await asyncio.sleep(1)
    assert sum(task.done() for task in tasks) == 2
    gate.join(large)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(task.done() for task in tasks) == 5
    (await tasks[0]).answered(200, reported(97))
    for task in tasks:
        (await task).unsent()


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("probe", [False, True])
async def test_retry_after_does_not_count_the_request_itself(limit: int, probe: bool) -> None:
    """A request that waited in vain may come again when the window ends, not one window later."""
    gate = Gate(random=lambda: 0.5, probe=probe)
    for number in range(limit):
        permit = await gate.acquire(Ask())
        await asyncio.sleep(0.1)
        policies = (PolicyField(limit, 60.0),)
        permit.answered(200, RateLimitInfo(limit, limit - 1 - number, None, None, policies))
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(Ask(max_wait=1))
    assert 59 <= caught.value.retry_after <= 60.1
    await asyncio.sleep(caught.value.retry_after)
    (await gate.acquire(Ask(max_wait=1))).unsent()


async def test_wait_that_becomes_too_long_ends_as_soon_as_that_is_known() -> None:
    """An unforeseen stop ends a wait at once, not when max_wait is over."""
    gate = await opened(max_in_flight=1)
    flying = await gate.acquire(Ask())
    waiting = asyncio.create_task(gate.acquire(Ask(max_wait=5)))
    behind = asyncio.create_task(gate.acquire(Ask()))
    await asyncio.sleep(1)
    flying.answered(429, reported(0, retry_after=60))
    with pytest.raises(QuotaWaitError):
        await waiting
    assert time() == pytest.approx(1)
    (await behind).unsent()
    assert time() == pytest.approx(61)


@pytest.mark.parametrize(
    ("limit", "expected"), [(Limit(2, 10), [0, 0, 10, 10, 20]), (Limit(0.5, 10), [0, 20, 40, 60, 80])]
)
async def test_limits_of_the_user_are_kept(limit: Limit, expected: list[float]) -> None:
    """Two requests in ten seconds are two in ten seconds, and half a request is one in twenty."""
    gate = Gate(limits=[limit])
    times = []
    for _ in range(5):
        permit = await gate.acquire(Ask())
        times.append(round(time(), 3))
        permit.answered(200, RateLimitInfo())
    assert times == expected


async def test_max_wait_bounds_the_payment_of_a_ceiling() -> None:
    """A call whose tokens others take fails after its `max_wait`, and the next one has its turn."""
    bucket = AsyncLimiter(1, 10.0)
    gate = Gate(rate=bucket)
    await bucket.acquire()
    late = asyncio.create_task(gate.acquire(Ask(max_wait=12.0)))
    patient = asyncio.create_task(gate.acquire(Ask()))
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
        (await gate.acquire(Ask(f"/{cost}", cost=cost))).answered(200, RateLimitInfo(1000.0, left))
    await asyncio.sleep(9)
    (await gate.acquire(Ask("/10", cost=10, max_wait=1.0))).unsent()
    with pytest.raises(QuotaWaitError):
        await gate.acquire(Ask("/20", cost=20, max_wait=5.0))


async def test_cancelled_head_of_the_queue_does_not_hold_up_the_rest() -> None:
    """The next waiter's own cost decides after the first one leaves."""
    gate = await opened(60.0)
    (await gate.acquire(Ask("/dear", 50))).answered(200, reported(10))
    expensive = asyncio.create_task(gate.acquire(Ask("/dear", 50)))
    await asyncio.sleep(0)
    gate_is_held = asyncio.create_task(gate.acquire(Ask("/cheap", 10)))
    await asyncio.sleep(0.1)
    expensive.cancel()
    (await gate_is_held).unsent()
    assert time() < 1


async def test_permit_ends_once() -> None:
    """Only the first end of a permit counts."""
    gate = await opened()
    permit = await gate.acquire(Ask())
    permit.answered(200, reported(50))
    permit.lost()
    permit.unsent()
    permit.answered(429, reported(0, retry_after=60))
    state = gate.snapshot()
    assert (state.remaining, state.in_flight, state.stopped_for) == (50, 0, 0)


async def test_cheap_requests_pass_an_expensive_one_but_not_for_ever() -> None:
    """Units too few for an expensive request go to cheaper ones, up to its cost: these are not refused."""
    gate = await opened(30.0)
    (await gate.acquire(Ask("/cheap", cost=1))).answered(200, reported(29))
    (await gate.acquire(Ask(cost=19))).answered(200, reported(10))
    expensive = asyncio.create_task(gate.acquire(Ask(cost=20)))
    await asyncio.sleep(0)
    cheap = [gate.acquire(Ask("/cheap", cost=1, max_wait=0)) for _ in range(15)]
    outcomes = await asyncio.gather(*cheap, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Permit] * 10 + [QuotaWaitError] * 5
    assert not expensive.done()
    expensive.cancel()


async def test_snapshot_has_what_is_known() -> None:
    """Limit, remaining, window, waiting, in flight and the end of a stop can be read."""
    gate = await opened(99.0, now=lambda: 1000.0)
    flying = await gate.acquire(Ask())
    (await gate.acquire(Ask())).answered(429, reported(0, retry_after=20))
    waiting = asyncio.create_task(gate.acquire(Ask()))
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


async def test_suspended_machine_sends_no_burst_above_the_budget() -> None:
    """The probe still leaves alone when the clock jumps in a wait."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    gate = await opened()
    (await gate.acquire(Ask())).answered(429, reported(0, retry_after=5))
    waiting = [asyncio.create_task(gate.acquire(Ask())) for _ in range(10)]
    await asyncio.sleep(1)
    loop.jump(3600)
    await asyncio.sleep(1)
    assert sum(task.done() for task in waiting) == 1
    for task in waiting:
        task.cancel()


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
            permit = await gate.acquire(Ask(f"/{cost}", cost=cost, again=again))
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


async def test_session_that_is_closed_while_it_pays_holds_nobody() -> None:
    """A session closed while it pays its ceiling leaves no trace in the queue."""
    gate, stays = Gate(), Member()
    leaves = Member(rate=Limit(1, per=100.0))
    for member in (stays, leaves):
        gate.join(member)
    (await gate.acquire(Ask(), leaves)).answered(200, reported(99))
    paying = [asyncio.create_task(gate.acquire(Ask(), leaves)) for _ in range(3)]
    await asyncio.sleep(1)
    for task in paying:
        task.cancel()
    await asyncio.wait(paying)
    gate.leave(leaves)
    (await gate.acquire(Ask(), stays)).answered(200, reported(98))
    assert time() < 1.1
    assert (gate.snapshot().waiting, gate.snapshot().in_flight) == (0, 0)


async def test_who_was_granted_leaves_before_a_newcomer() -> None:
    """A new request does not pass one that was granted but did not run yet."""
    gate, order = Gate(), list[int]()

    async def call(number: int) -> None:
        permit = await gate.acquire(Ask())
        order.append(number)
        await asyncio.sleep(0.1)
        permit.answered(200, reported(50))

    probe = await gate.acquire(Ask())
    first = asyncio.create_task(call(1))
    await asyncio.sleep(0)
    second = asyncio.create_task(call(2))
    probe.lost()  # now two may leave
    await asyncio.gather(first, second)
    assert order == [1, 2]


def test_work_for_a_call_with_max_wait_does_not_grow_with_their_number() -> None:
    """The function calls for each of many calls that a stop makes too late do not grow with their number."""

    async def steps(number: int) -> float:
        gate, calls, began = Gate(max_in_flight=1), 0, time()
        (await gate.acquire(Ask())).answered(
            200, RateLimitInfo(1e6, 9e5, None, None, (PolicyField(1e6, 60.0),))
        )

        def count(*event: object) -> None:
            nonlocal calls
            calls += event[1] == "call"

        flying = await gate.acquire(Ask())
        tasks = [asyncio.create_task(gate.acquire(Ask(max_wait=90.0 + n / number))) for n in range(number)]
        sys.setprofile(count)
        await asyncio.sleep(1.0)
        flying.answered(429, reported(0, retry_after=600))
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        sys.setprofile(None)
        assert {type(error) for error in errors} == {QuotaWaitError}
        assert time() - began == pytest.approx(1.0)
        return calls / number

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        few, many = runner.run(steps(100)), runner.run(steps(1_000))
    assert many < 1.2 * few


async def stopped(seconds: float = 20.0) -> Gate:
    """Return a gate that a 429 stopped for some seconds, now at Unix time 1000."""
    gate = Gate(random=lambda: 0.5, now=lambda: 1000.0)
    (await gate.acquire(Ask())).answered(200, reported(99))
    (await gate.acquire(Ask())).answered(429, reported(0, seconds))
    return gate


def waiters(
    gate: Gate, number: int, limit: WaitingLimit, *, again: bool = False
) -> list[asyncio.Task[Permit]]:
    """Return tasks that wait at a gate, once they run."""
    return [asyncio.create_task(gate.acquire(Ask(limit=limit, again=again))) for _ in range(number)]


async def finish(tasks: list[asyncio.Task[Permit]]) -> None:
    """Let all requests leave."""
    for task in asyncio.as_completed(tasks):
        (await task).answered(200, reported(50))


async def test_call_whose_ceiling_has_room_is_not_refused() -> None:
    """A call of a session with `rate` leaves at once while the rate and the quota allow it."""
    gate, limit = Gate(random=lambda: 0.5), WaitingLimit(0)
    member = Member(rate=Limit(2, per=10.0))
    gate.join(member)
    for _ in range(2):
        (await gate.acquire(Ask(limit=limit), member)).answered(200, reported(90))
    with pytest.raises(QueueFullError) as caught:
        await gate.acquire(Ask(limit=limit), member)
    assert caught.value.retry_after == pytest.approx(5.0)
    await asyncio.sleep(5.1)
    (await gate.acquire(Ask(limit=limit), member)).answered(429, reported(0, 30.0))
    await asyncio.sleep(15.0)
    with pytest.raises(QueueFullError):
        await gate.acquire(Ask(limit=limit), member)
    await asyncio.sleep(15.1)
    paying = asyncio.create_task(gate.acquire(Ask(limit=limit), member))
    (await paying).unsent()


async def test_places_of_those_that_left_are_free() -> None:
    """A cancelled call, a late one and a granted one leave a place to the next."""
    gate, limit = await stopped(), WaitingLimit(3)
    cancelled, *tasks = waiters(gate, 2, limit)
    late = asyncio.create_task(gate.acquire(Ask(limit=limit, max_wait=20.5)))
    await asyncio.sleep(0)
    gate.hold_back(60.0)
    with pytest.raises(QuotaWaitError, match="max_wait"):
        await late
    cancelled.cancel()
    await asyncio.sleep(0)
    tasks += waiters(gate, 2, limit)
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await gate.acquire(Ask(limit=limit))
    await finish(tasks)
    assert gate.snapshot().waiting == 0


KINDS: list[Callable[[], Server]] = [
    partial(kind, 60.0, 10.0) for kind in (FromFirst, Clocked, SlidingLog, Bucket, Gcra)
]


@pytest.mark.parametrize(
    ("most", "settings"), [(0, {}), (1, {"max_in_flight": 2}), (25, {"rate": Limit(5, per=1.0)})]
)
@pytest.mark.parametrize("server", KINDS)
async def test_call_is_not_refused_again_at_the_time_that_it_was_given(
    server: Callable[[], Server], most: int, settings: dict[str, object]
) -> None:
    """If nobody else comes, a refused call is admitted at its `retry_after`."""
    service, gate, limit = server(), Gate(random=lambda: 0.5), WaitingLimit(most)
    member = Member(**settings)  # type: ignore[arg-type]
    gate.join(member)
    refused: list[tuple[float, float]] = []

    async def call() -> None:
        again = False
        while True:
            try:
                permit = await gate.acquire(Ask(limit=limit, again=again), member)
            except QueueFullError as error:
                refused.append((time(), error.retry_after))
                return
            await asyncio.sleep(0.05)
            response = service.answer(time(), 1.0)
            await asyncio.sleep(0.05)
            permit.answered(response.status, response.info)
            again = response.status == 429
            if not again:
                return

    await call()
    crowd = [asyncio.create_task(call()) for _ in range(80)]
    await asyncio.sleep(0.5)
    crowd += [asyncio.create_task(call()) for _ in range(80)]
    await asyncio.sleep(0.0)
    when, after = refused[-1]
    assert when == time()
    assert after > 0.0
    before = len(refused)
    await asyncio.sleep(after + 1e-6)
    await asyncio.create_task(call())
    assert len(refused) == before
    await asyncio.wait(crowd)


async def refused(process: Process, limit: WaitingLimit) -> QueueFullError:
    """Return the error of a request that is refused at once."""
    began = time()
    with pytest.raises(QueueFullError) as caught:
        await process.acquire(limit=limit)
    assert time() - began < 0.1
    return caught.value


async def test_limit_holds_through_a_shared_gate() -> None:
    """The host counts the calls of each session and limit, and its forecast reaches the caller."""
    async with processes(2, Exchange(delay=0.001)) as (one, two):
        await end(await one.acquire(), 429, reported(0, 10.0))
        limit = WaitingLimit(2)
        tasks = [asyncio.create_task(one.acquire(limit=limit)) for _ in range(2)]
        tasks.append(asyncio.create_task(two.acquire(limit=limit)))
        tasks.append(asyncio.create_task(one.acquire(limit=limit, again=True)))
        await asyncio.sleep(1.0)
        error = await refused(one, limit)
        assert error.retry_after == pytest.approx(9.0, abs=0.2)
        assert error.max_waiting == 2
        for task in asyncio.as_completed(tasks):
            await end(await task, 200, reported(50))
        await end(await one.acquire(limit=WaitingLimit(0)), 200, reported(49))


async def test_quiet_process_is_not_refused_for_the_waiters_of_another() -> None:
    """A call of a quiet process waits for its turn, not for a thousand requests of another one."""
    gate, busy, quiet = Gate(limits=[Limit(10, per=1.0)]), Member(process="busy"), Member(process="quiet")
    for _ in range(10):
        (await gate.acquire(Ask(), busy)).answered(200, RateLimitInfo())
    crowd = [asyncio.create_task(gate.acquire(Ask(), busy)) for _ in range(1000)]
    await asyncio.sleep(0)
    with pytest.raises(QuotaWaitError) as refused:
        await gate.acquire(Ask(max_wait=2.0), busy)
    assert refused.value.retry_after >= 99
    began = time()
    permit = await gate.acquire(Ask(max_wait=2.0), quiet)
    assert time() - began <= 1.5
    permit.unsent()
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
