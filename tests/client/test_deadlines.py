"""Deadlines of calls: all waits and attempts count, and the error has the times."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainapi import ROUTES, LimiterOptions, Session
from chainapi.errors import (
    APIConnectionError,
    APITimeoutError,
    ChainAPIError,
    DeadlineExceededError,
    QuotaWaitError,
    ServerError,
)
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response
from tests.client.services import Answer, Script, time
from tests.sessions import reaching, simulated

PATH = "/v1/chains/43114"
TOLD = {"ratelimit-policy": "100;w=60", "ratelimit-limit": "100"}


OK = Response(200, {**TOLD, "ratelimit-remaining": "50"}, b"{}")
USED_UP = Response(429, {**TOLD, "ratelimit-remaining": "0", "retry-after": "60"}, b"{}")
BROKEN = Response(500, {}, b'{"message": "it broke", "error": "Internal Server Error", "statusCode": 500}')
REFUSED = Response(429, {}, b'{"message": "too many", "error": "Too Many Requests", "statusCode": 429}')
BUSY = Response(503, {"retry-after": "20"}, b"{}")


def idle(session: Session) -> bool:
    """Return whether every permit is back and nobody waits."""
    return (session.data.quota.in_flight, session.data.quota.waiting) == (0, 0)


# --- kept, whatever the service does ---


async def test_callers_of_a_hanging_service_fail_by_the_deadline() -> None:
    """Callers of a service that never answers fail at the deadline, and hold up no later call."""
    service = Script((0.05, None))
    async with reaching(service, deadline=5.0) as session:
        calls = (session.data.get(PATH) for _ in range(100))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {DeadlineExceededError}
        assert time() == pytest.approx(5, abs=0.001)
        assert service.flying == 0
        assert idle(session)
        service.answers = [(0.05, OK)]
        await session.data.get(PATH)
        assert time() < 7


async def test_deadline_covers_all_attempts_and_waits() -> None:
    """A call that is retried ends at its deadline, with the time of each phase and what failed last."""
    service = Script((1.0, BROKEN), (1.0, BROKEN), (1.0, None))
    async with reaching(service) as session:
        with pytest.raises(DeadlineExceededError) as caught:
            await session.data.get(PATH, deadline=8.0)
    error = caught.value
    assert time() == pytest.approx(8, abs=0.001)
    assert (error.deadline, error.attempts, error.retry_after) == (8.0, 3, None)
    assert error.elapsed == pytest.approx(8, abs=0.001)
    assert error.in_queue + error.in_attempts + error.between_attempts == pytest.approx(8, abs=0.001)
    assert error.in_attempts > 2
    assert error.between_attempts > 0
    assert isinstance(error.__cause__, ServerError)
    assert error.__context__ is None
    assert "deadline=8 s" in str(error)
    assert "in 3 attempts" in str(error)
    assert "500 Internal Server Error" in str(error)
    assert PATH in str(error)


async def test_each_attempt_has_its_timeout_although_the_transport_caught_the_last_one() -> None:
    """A transport that turns its cancellation into an error of its own is timed out at each attempt."""

    class Deaf(Script):
        async def send(self, request: Request) -> Response:
            try:
                return await super().send(request)
            except asyncio.CancelledError:
                raise APIConnectionError("closed in the middle") from None

    async with reaching(Deaf((0.0, None)), timeout=2.0, max_attempts=3) as session:
        with pytest.raises(APIConnectionError, match="closed in the middle") as caught:
            await session.data.get(PATH)
        assert (caught.value.attempts, idle(session)) == (3, True)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_next_attempt_after_the_deadline_is_not_waited_for() -> None:
    """A 503 whose Retry-After is beyond the deadline ends the call at once, with the time to come back."""
    async with reaching(Script((1.0, BUSY))) as session:
        with pytest.raises(DeadlineExceededError) as caught:
            await session.data.get(PATH, deadline=5.0)
        assert time() == pytest.approx(1, abs=0.001)
        assert caught.value.retry_after == pytest.approx(20)
        assert isinstance(caught.value.__cause__, ServerError)
        assert "would begin in 20.0 s" in str(caught.value)
        assert idle(session)


async def test_quota_that_is_known_to_come_too_late_is_not_waited_for() -> None:
    """A stop beyond the deadline ends a call at once with QuotaWaitError."""
    service = Script((0.5, OK), (0.5, USED_UP), (0.5, OK))
    async with reaching(service, now=lambda: 1000.0) as session:
        await session.data.get(PATH)
        patient = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(0.6)
        with pytest.raises(QuotaWaitError) as caught:
            await session.data.get(PATH, deadline=5.0)
        assert time() == pytest.approx(1.1, abs=0.001)
        assert (caught.value.max_wait, caught.value.deadline) == (None, 5.0)
        assert caught.value.retry_at == pytest.approx(1000 + caught.value.retry_after)
        assert "the call's deadline, 5.0 s from now" in str(caught.value)
        await session.data.get(PATH, deadline=100.0)
        await patient


async def test_the_tighter_of_max_wait_and_deadline_is_named() -> None:
    """QuotaWaitError names `max_wait` where that is shorter, else the deadline."""
    for max_wait, deadline, named in ((5.0, 10.0, "max_wait"), (10.0, 5.0, "deadline")):
        async with reaching(
            Script((0.0, USED_UP)), max_wait=max_wait, limiter=LimiterOptions(isolated=True)
        ) as session:
            with pytest.raises(QuotaWaitError, match=named) as caught:
                await session.data.get(PATH, deadline=deadline)
        assert getattr(caught.value, named) == pytest.approx(5)
        assert (caught.value.max_wait is None) == (named == "deadline")


async def test_refusal_that_comes_meanwhile_ends_the_call_at_once() -> None:
    """A refused call, and one behind it, end once the wait exceeds the time left."""
    service = Script((0.5, OK), (0.5, USED_UP))
    async with reaching(service, max_in_flight=1) as session:
        await session.data.get(PATH)
        calls = (session.data.get(PATH, deadline=5.0) for _ in range(2))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {QuotaWaitError}
        assert time() == pytest.approx(1, abs=0.001)
        assert idle(session)


async def test_timeout_and_last_attempt_come_before_the_deadline() -> None:
    """A call without attempts left before its deadline raises the last failure."""
    async with reaching(Script((0.1, None)), timeout=1.0, max_attempts=2) as session:
        with pytest.raises(APITimeoutError) as caught:
            await session.data.get(PATH, deadline=60.0)
        assert not isinstance(caught.value, DeadlineExceededError)
        assert caught.value.attempts == 2
    async with reaching(Script((0.1, OK))) as session:
        assert await session.data.get(PATH, deadline=1.0) == {}


async def test_a_large_body_is_decoded_within_the_deadline() -> None:
    """Decoding counts: a body that takes long to decode ends at the deadline."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    rows = b",".join(b'{"timestamp": %d, "value": 1.5}' % number for number in range(60_000, 0, -1))
    service = Script(
        (0.1, Response(200, TOLD, b'{"results": []}')),
        (0.5, Response(200, TOLD, b'{"results": [' + rows + b"]}")),
    )
    async with reaching(service) as session:
        await anext(session.metrics.avg_tps(43114))
        stepper = asyncio.create_task(_steps(loop, 0.1))
        with pytest.raises(DeadlineExceededError) as caught:
            await anext(session.metrics.avg_tps(43114, deadline=0.7))
        stepper.cancel()
    assert caught.value.in_attempts == pytest.approx(caught.value.elapsed, abs=0.01)


async def _steps(loop: VirtualLoop, seconds: float) -> None:
    """Let time pass at each turn of the loop."""
    while True:
        loop.jump(seconds)
        await asyncio.sleep(0)


@example(answers=[(0.1, OK), *[(0.1, REFUSED)] * 400], deadlines=[30.0])
@given(
    st.lists(
        st.tuples(st.floats(0.01, 3.0), st.sampled_from([OK, BROKEN, BUSY, USED_UP, REFUSED, None])),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.floats(0.05, 20.0), min_size=1, max_size=12),
)
def test_no_call_outlives_its_deadline(answers: list[tuple[float, Answer]], deadlines: list[float]) -> None:
    """Whatever the service does, calls end by their deadlines, their times add up, and permits return."""

    async def run() -> None:
        service = Script(*answers, (0.1, OK))
        async with reaching(service, timeout=2.0) as session:

            async def call(deadline: float) -> float:
                began = time()
                try:
                    await session.data.get(PATH, deadline=deadline)
                except DeadlineExceededError as error:
                    spent = error.in_queue + error.in_attempts + error.between_attempts
                    return abs(spent - error.elapsed) + max(0.0, time() - began - deadline)
                except ChainAPIError:
                    return max(0.0, time() - began - deadline)
                return max(0.0, time() - began - deadline)

            amiss = await asyncio.gather(*(call(deadline) for deadline in deadlines))
            assert max(amiss) < 1e-6
            assert idle(session)
            service.answers = [(0.1, OK)]
            await session.data.get(PATH, deadline=600.0)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


# --- walks ---


async def test_deadline_bounds_each_page_of_a_walk() -> None:
    """A deadline of 2 s holds for each page of a walk, not for the whole walk."""
    async with simulated(Simulator(rows=200, latency=1.0), deadline=2.0) as session:
        for prefetch in (0, 3):
            pages = session.data.list(f"{PATH}/blocks", page_size=10, prefetch=prefetch)
            assert len(await pages.collect()) == 200
    assert time() > 20


@pytest.mark.parametrize("prefetch", [0, 2])
async def test_walk_goes_on_after_a_deadline(prefetch: int) -> None:
    """A stream read again after a deadline loses and repeats no row, and its error has the checkpoint."""
    sim = Simulator(rows=100, latency=0.1, faults=[Fault(at=4, stall=True)])
    async with simulated(sim) as session:
        pages = session.data.evm.blocks(43114, page_size=10, prefetch=prefetch, deadline=2.0)
        with pytest.raises(DeadlineExceededError) as caught:
            await pages.collect()
        error = caught.value
        assert error.checkpoint is not None
        assert error.partial is not None
        assert error.checkpoint.rows == len(error.partial) == 30
        rows = [*error.partial, *await pages.collect()]
        assert len({row.block_number for row in rows}) == len(rows) == 100


# --- places for the argument ---


def test_every_route_takes_a_deadline() -> None:
    """Each named route, `list` and `get` have `deadline=`, None by default."""
    for name, declared in ROUTES.items():
        assert inspect.signature(declared.function).parameters["deadline"].default is None, name
    session = reaching(Script((0, OK)))
    for method in (session.data.list, session.data.get):
        assert inspect.signature(method).parameters["deadline"].default is None


async def test_deadline_of_a_call_wins_over_the_sessions() -> None:
    """The deadline of a call replaces the session's, whether shorter or longer."""
    async with reaching(Script((0.1, None)), deadline=5.0, timeout=100.0) as session:
        for deadline in (2.0, 20.0):
            began = time()
            with pytest.raises(DeadlineExceededError):
                await session.data.chain(43114, deadline=deadline)
            assert time() - began == pytest.approx(deadline, abs=0.001)
