"""Timeouts of a session: one timer for all calls, and cancellations as `asyncio.timeout` has them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from math import inf
from typing import Any, TypeAlias, TypeVarTuple, Unpack

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from chainapi.client.timeouts import Timeout, Timeouts
from chainapi.testing import VirtualLoop, run

Ts = TypeVarTuple("Ts")
Call: TypeAlias = Callable[[Timeouts, "Plan"], Coroutine[Any, Any, str]]


@frozen
class Plan:
    """Times of one call, in seconds from the beginning.

    Attributes:
        deadline: end of the call.
        steps: length of each attempt, and its timeout.
        cancel: when somebody else cancels the task.
        outer: timeout of the caller.
        deaf: whether the work catches each cancellation, and ends with a result.

    """

    deadline: float = inf
    steps: Sequence[tuple[float, float]] = ((1.0, inf),)
    cancel: float = inf
    outer: float = inf
    deaf: bool = False


async def work(seconds: float, *, deaf: bool) -> None:
    """Work for some seconds."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if not deaf:
            raise


async def with_scopes(_: Timeouts, plan: Plan) -> str:
    """Make a call with two scopes of asyncio, one for the call and one for each attempt."""
    late = 0
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(None if plan.deadline == inf else began + plan.deadline):
            for seconds, allowed in plan.steps:
                try:
                    async with asyncio.timeout(None if allowed == inf else allowed):
                        await work(seconds, deaf=plan.deaf)
                except TimeoutError:
                    late += 1
    except TimeoutError:
        return f"over, {late} late"
    return f"done, {late} late"


async def with_timeouts(timeouts: Timeouts, plan: Plan) -> str:
    """Make a call with one timeout, as `CallRunner` does."""
    late = 0
    deadline = asyncio.get_running_loop().time() + plan.deadline
    timeout = timeouts.begin(deadline)
    try:
        for seconds, allowed in plan.steps:
            timeout.set(min(deadline, asyncio.get_running_loop().time() + allowed))
            try:
                await work(seconds, deaf=plan.deaf)
            except asyncio.CancelledError:
                if timeouts.closed or not attempt_is_late(timeout, deadline):
                    raise
                late += 1
            if timeout.expired_at is not None:
                attempt_is_late(timeout, deadline)
            timeout.set(deadline)
    except asyncio.CancelledError:
        if not timeout.settle():
            raise
        return f"over, {late} late"
    finally:
        timeout.end()
    return f"done, {late} late"


def attempt_is_late(timeout: Timeout, deadline: float) -> bool:
    """Return whether the attempt alone took too long."""
    at = timeout.expired_at
    return at is not None and at < deadline and timeout.settle()


async def outcome(call: Call, timeouts: Timeouts, plan: Plan) -> str:
    """Return the end of a call as its caller sees it, its time, and what is left of cancellations."""

    async def caller() -> str:
        try:
            async with asyncio.timeout(None if plan.outer == inf else plan.outer):
                result = await call(timeouts, plan)
        except TimeoutError:
            result = "the caller's timeout"
        task = asyncio.current_task()
        assert task is not None
        return f"{result}, {task.cancelling()} cancellations"

    loop = asyncio.get_running_loop()
    began, task = loop.time(), loop.create_task(caller())
    if plan.cancel < inf:
        loop.call_later(plan.cancel, task.cancel)
    try:
        result = await task
    except asyncio.CancelledError:
        result = "cancelled"
    return f"{result} after {loop.time() - began:.3f} s"


def outcomes(call: Call, plans: Sequence[Plan], *, together: bool) -> list[str]:
    """Return the ends of several calls of one session, together or one after the other."""

    async def main() -> list[str]:
        timeouts = Timeouts(asyncio.get_running_loop())
        if together:
            return await asyncio.gather(*(outcome(call, timeouts, plan) for plan in plans))
        return [await outcome(call, timeouts, plan) for plan in plans]

    return run(main())


TIMES = st.sampled_from((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, inf))
PLANS = st.builds(
    Plan,
    TIMES,
    st.lists(st.tuples(st.sampled_from((0.25, 0.75, 1.25, 2.25)), TIMES), min_size=1, max_size=3),
    # Between the other times: of two cancellations at one time, either may be first.
    st.sampled_from((0.125, 0.625, 1.125, 1.625, 2.125, inf)),
    st.sampled_from((0.375, 0.875, 1.375, 1.875, inf)),
)


@given(st.lists(PLANS, min_size=1, max_size=6), st.booleans())
def test_calls_end_as_with_scopes_of_asyncio(plans: list[Plan], together: bool) -> None:
    """Results, times and counts of cancellations are those of nested `asyncio.timeout` scopes."""
    expected = outcomes(with_scopes, plans, together=together)
    assert outcomes(with_timeouts, plans, together=together) == expected


@pytest.mark.parametrize(
    "plan",
    [
        Plan(deadline=1.0, steps=[(2.0, inf), (1.0, inf)], deaf=True),
        Plan(steps=[(2.0, 1.0), (1.0, inf)], deaf=True),
        Plan(deadline=1.0, steps=[(2.0, 1.0)], deaf=True, outer=1.5),
    ],
)
def test_work_that_catches_its_cancellation_goes_unharmed(plan: Plan) -> None:
    """A transport that returns a result although it was cancelled leaves no cancellation behind."""
    assert outcomes(with_timeouts, [plan], together=False) == outcomes(with_scopes, [plan], together=False)


async def test_a_cancellation_just_before_the_timeout_wins() -> None:
    """A task that somebody else cancelled before its timeout expired ends cancelled."""
    loop = asyncio.get_running_loop()
    timeouts = Timeouts(loop)
    task = loop.create_task(with_timeouts(timeouts, Plan(deadline=1.0, steps=[(5.0, inf)])))
    loop.call_at(loop.time() + 1.0, task.cancel)
    await asyncio.wait([task])
    assert task.cancelled()


class CountingLoop(VirtualLoop):
    """Event loop that counts the timers."""

    timers = 0

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a timer."""
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


def test_calls_one_after_the_other_share_a_timer() -> None:
    """A thousand calls within 25 seconds, each with a timeout of 30, set one timer."""

    async def main() -> None:
        timeouts = Timeouts(loop)
        for _ in range(1_000):
            timeout = timeouts.begin(loop.time() + 30.0)
            await asyncio.sleep(0)
            timeout.end()

    loop = CountingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert loop.timers == 1


async def test_an_earlier_timeout_moves_the_timer() -> None:
    """A call with a sooner timeout than all others ends in time, and then the others do."""
    timeouts = Timeouts(asyncio.get_running_loop())
    plans = [Plan(deadline=seconds, steps=[(100.0, inf)]) for seconds in (30.0, 10.0, 20.0, 10.0)]
    ends = await asyncio.gather(*(outcome(with_timeouts, timeouts, plan) for plan in plans))
    assert [end.rpartition(" after ")[2] for end in ends] == ["30.000 s", "10.000 s", "20.000 s", "10.000 s"]


async def test_many_deadlines_end_in_time() -> None:
    """Each of many calls that wait ends at its own deadline, and beside them those without one stay."""
    loop = asyncio.get_running_loop()
    timeouts, ends = Timeouts(loop), list[float]()

    async def wait(seconds: float) -> None:
        timeout = timeouts.begin(loop.time() + seconds)
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            if not timeout.settle():
                raise
            ends.append(loop.time() - seconds)
        finally:
            timeout.end()

    began = loop.time()
    patient = [loop.create_task(wait(inf)) for _ in range(500)]
    await asyncio.gather(*(wait(1.0 + number * 1e-3) for number in range(500)))
    assert ends == pytest.approx([began] * 500, abs=1e-4)
    assert not any(task.done() for task in patient)
    for task in patient:
        task.cancel()


async def test_ended_calls_leave_the_memory() -> None:
    """Calls that ended are not kept for as long as their deadlines were away."""
    loop = asyncio.get_running_loop()
    timeouts = Timeouts(loop)
    for _ in range(200):
        soon = timeouts.begin(loop.time() + 0.5)
        slow = [timeouts.begin(loop.time() + 3_600.0) for _ in range(10)]
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(5.0)  # the timer fires, and reads all times
        assert soon.settle()
        for timeout in (soon, *slow):
            timeout.end()
    gc.collect()
    assert sum(isinstance(one, Timeout) for one in gc.get_objects()) < 200


async def test_closing_cancels_all_calls_at_once() -> None:
    """A session that closes ends calls that wait without a time, with one, and with one that moved."""
    loop = asyncio.get_running_loop()
    timeouts = Timeouts(loop)
    plans = [Plan(), Plan(deadline=50.0), Plan(steps=[(0.5, 30.0), (90.0, 40.0)])]
    plans = [Plan(plan.deadline, (*plan.steps, (100.0, inf))) for plan in plans]
    tasks = [loop.create_task(outcome(with_timeouts, timeouts, plan)) for plan in plans]
    await asyncio.sleep(5.0)
    timeouts.close()
    ends = await asyncio.gather(*tasks)
    assert [end.rpartition(" after ")[2] for end in ends] == ["5.000 s"] * 3


async def test_a_call_that_ends_while_the_session_closes_is_not_cancelled() -> None:
    """The task that closes its session during a call, and then ends the call, runs on."""
    timeouts = Timeouts(asyncio.get_running_loop())
    timeout = timeouts.begin(inf)
    timeouts.close()
    timeout.end()
    await asyncio.sleep(1.0)
    assert not timeout.active


def test_a_call_outside_of_a_task_is_refused() -> None:
    """A coroutine that no task runs cannot be cancelled, and the error says so."""
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(RuntimeError, match="await a call in a task"):
            Timeouts(loop).begin(1.0)
    finally:
        loop.close()
