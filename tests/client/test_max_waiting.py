"""`max_waiting`: the calls that may wait for quota at once, and the next one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import pytest

from chainapi import Limit, Session, SessionView
from chainapi.client.limiter import Gate
from chainapi.client.member import Member
from chainapi.client.permit import Permit
from chainapi.core.limits.info import PolicyField, RateLimitInfo
from chainapi.core.limits.waiting import WaitingLimit
from chainapi.errors import ConfigurationError, QueueFullError, QuotaWaitError
from chainapi.models import EvmBlock
from chainapi.simulator import Simulator
from tests.limits.servers import Bucket, Clocked, FromFirst, Gcra, Server, SlidingLog
from tests.sessions import simulated
from tests.share.exchange import Exchange
from tests.share.responses import end
from tests.share.test_shared_gate import Process, processes

PATH = "/v1/chains/43114"
MINUTE = (PolicyField(100.0, 60.0),)


def reported(remaining: float, retry_after: float | None = None) -> RateLimitInfo:
    """Return the limit headers of a service with 100 units a minute."""
    return RateLimitInfo(100.0, remaining, None, retry_after, MINUTE)


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


async def stopped(seconds: float = 20.0) -> Gate:
    """Return a gate that a 429 stopped for some seconds, now at Unix time 1000."""
    gate = Gate(random=lambda: 0.5, now=lambda: 1000.0)
    (await gate.acquire()).answered(200, reported(99))
    (await gate.acquire()).answered(429, reported(0, seconds))
    return gate


def waiters(
    gate: Gate, number: int, limit: WaitingLimit, *, again: bool = False
) -> list[asyncio.Task[Permit]]:
    """Return tasks that wait at a gate, once they run."""
    return [asyncio.create_task(gate.acquire(limit=limit, again=again)) for _ in range(number)]


async def finish(tasks: list[asyncio.Task[Permit]]) -> None:
    """Let all requests leave."""
    for task in asyncio.as_completed(tasks):
        (await task).answered(200, reported(50))


# --- the gate -----------------------------------------------------------------------------------


async def test_call_beside_enough_that_wait_fails_at_once() -> None:
    """With three waiting, as many as may, the fourth fails at once, with the time at which to come again."""
    gate, limit = await stopped(), WaitingLimit(3)
    tasks = waiters(gate, 3, limit)
    await asyncio.sleep(1.0)
    with pytest.raises(QueueFullError) as caught:
        await gate.acquire(limit=limit)
    assert time() == pytest.approx(1.0)
    assert caught.value.retry_after == pytest.approx(19.0)
    assert caught.value.retry_at == pytest.approx(1019.0)
    assert caught.value.max_waiting == 3
    assert isinstance(caught.value, QuotaWaitError)
    await finish(tasks)


async def test_calls_of_another_limit_or_session_are_not_counted() -> None:
    """Each limit counts its own calls, and those of one session."""
    gate, limit = await stopped(), WaitingLimit(1)
    tasks = waiters(gate, 1, limit) + waiters(gate, 1, WaitingLimit(1))
    tasks.append(asyncio.create_task(gate.acquire(limit=limit, member=Member())))
    tasks.append(asyncio.create_task(gate.acquire()))
    await asyncio.sleep(1.0)
    assert gate.waiting == 4
    await finish(tasks)


async def test_call_that_need_not_wait_is_not_refused() -> None:
    """A call that can leave at once does, even if none may wait."""
    gate = Gate()
    limit = WaitingLimit(0)
    (await gate.acquire(limit=limit)).answered(200, reported(99))
    permits = [await gate.acquire("b", limit=limit)]
    with pytest.raises(QueueFullError):  # the price of its route is unknown: it would leave alone
        await gate.acquire("c", limit=limit)
    permits.pop().answered(200, reported(98))
    (await gate.acquire("c", limit=limit)).unsent()


async def test_call_behind_others_that_just_left_is_not_refused() -> None:
    """A call that comes before the tasks of granted requests ran leaves at once too."""
    gate, limit = await stopped(), WaitingLimit(1)
    first, *_ = waiters(gate, 1, limit)
    await asyncio.sleep(20.0)
    (await first).answered(200, reported(50))
    flying = [await gate.acquire() for _ in range(50)]
    waiting = waiters(gate, 1, limit)
    await asyncio.sleep(0)
    flying.pop().answered(200, reported(90))  # grants the one that waits
    (await gate.acquire(limit=limit)).unsent()
    (await waiting[0]).unsent()


async def test_call_beside_those_of_a_busy_session_is_not_refused() -> None:
    """Requests that wait for places of their own session hold up no call of another one."""
    gate, limit = Gate(random=lambda: 0.5), WaitingLimit(0)
    busy, other = Member(max_in_flight=1), Member()
    gate.join(busy)
    gate.join(other)
    for left in (99, 98, 97):
        (await gate.acquire()).answered(200, reported(left))
    tasks = [asyncio.create_task(gate.acquire(member=busy)) for _ in range(3)]
    await asyncio.sleep(0)
    assert gate.waiting == 2
    (await gate.acquire(limit=limit, member=other)).unsent()
    with pytest.raises(QueueFullError):
        await gate.acquire(limit=limit, member=busy)
    for task in tasks:
        (await task).unsent()


async def test_call_whose_ceiling_has_room_is_not_refused() -> None:
    """A call of a session with `rate` leaves at once while the rate and the quota allow it."""
    gate, limit = Gate(random=lambda: 0.5), WaitingLimit(0)
    member = Member(rate=Limit(2, per=10.0))
    gate.join(member)
    for _ in range(2):
        (await gate.acquire(limit=limit, member=member)).answered(200, reported(90))
    with pytest.raises(QueueFullError) as caught:
        await gate.acquire(limit=limit, member=member)
    assert caught.value.retry_after == pytest.approx(5.0)
    await asyncio.sleep(5.1)
    (await gate.acquire(limit=limit, member=member)).answered(429, reported(0, 30.0))
    await asyncio.sleep(15.0)
    with pytest.raises(QueueFullError):
        await gate.acquire(limit=limit, member=member)
    await asyncio.sleep(15.1)
    paying = asyncio.create_task(gate.acquire(limit=limit, member=member))
    (await paying).unsent()


async def test_places_of_those_that_left_are_free() -> None:
    """A cancelled call, a late one and a granted one leave a place to the next."""
    gate, limit = await stopped(), WaitingLimit(3)
    cancelled, *tasks = waiters(gate, 2, limit)
    late = asyncio.create_task(gate.acquire(limit=limit, max_wait=20.5))
    await asyncio.sleep(0)
    gate.hold_back(60.0)
    with pytest.raises(QuotaWaitError, match="max_wait"):
        await late
    cancelled.cancel()
    await asyncio.sleep(0)
    tasks += waiters(gate, 2, limit)
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await gate.acquire(limit=limit)
    await finish(tasks)
    assert not gate._limited


async def test_retry_is_never_refused_and_counts() -> None:
    """An attempt again waits although the limit is full, and a new call fails beside it."""
    gate, limit = await stopped(), WaitingLimit(1)
    tasks = waiters(gate, 3, limit, again=True)
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await gate.acquire(limit=limit)
    await finish(tasks)


KINDS: list[Callable[[], Server]] = [
    partial(kind, 60.0, 10.0) for kind in (FromFirst, Clocked, SlidingLog, Bucket, Gcra)
]


@pytest.mark.parametrize(("most", "windows"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)])
async def test_refused_call_comes_again_when_those_that_wait_have_left(most: int, windows: int) -> None:
    """With two requests a minute, the wait is the minutes of those that wait, not of the call behind them."""
    async with simulated(Simulator(limit=2, window=60.0), max_waiting=most) as session:
        for _ in range(2):
            await session.data.get(PATH)
        began = time()
        waiting = [asyncio.create_task(session.data.get(PATH)) for _ in range(most)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError) as caught:
            await session.data.get(PATH)
        assert caught.value.retry_after == pytest.approx(60.0 * windows, abs=1.5)
        await asyncio.gather(*waiting)
        assert time() - began <= caught.value.retry_after + 0.1


@pytest.mark.parametrize("settings", [{}, {"max_in_flight": 2}, {"rate": Limit(5, per=1.0)}])
@pytest.mark.parametrize("most", [0, 1, 25])
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
                permit = await gate.acquire(limit=limit, again=again, member=member)
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


# --- sessions and views -------------------------------------------------------------------------


async def test_max_waiting_of_a_view() -> None:
    """Views made of one share its places, views with a limit of their own and the session do not."""
    simulator = Simulator(limit=2, window=60.0)
    async with simulated(simulator) as session:
        for _ in range(2):
            await session.data.get(PATH)
        web = session.with_options(max_waiting=2)
        derived = web.with_options(tag="request")
        calls = [asyncio.create_task(view.data.get(PATH)) for view in (web, derived)]
        await asyncio.sleep(0)
        for view in (web, derived):
            with pytest.raises(QueueFullError, match="max_waiting=2 calls"):
                await view.data.get(PATH)
        own = derived.with_options(max_waiting=1)
        free = web.with_options(max_waiting=inf)
        calls += [asyncio.create_task(view.data.get(PATH)) for view in (own, free, session, session)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="max_waiting=1 calls"):
            await own.data.get(PATH)
        await web.metrics.chains.list().collect(limit=1)  # another quota
        assert time() < 1.0
        await asyncio.gather(*calls)


async def test_equal_views_are_counted_together() -> None:
    """A view made for each request shares its places with the equal ones, whatever its headers are."""

    def view(session: Session, number: int, **options: Any) -> SessionView:
        tagged = session.with_options(tag="web", headers={"x-request-id": f"r{number}"})
        return tagged.with_options(max_waiting=2, **options)

    async with simulated(Simulator(limit=1, window=60.0)) as session:
        await session.data.get(PATH)
        calls = [asyncio.create_task(view(session, number).data.get(PATH)) for number in range(2)]
        await asyncio.sleep(0)
        for number in range(2, 4):
            with pytest.raises(QueueFullError):
                await view(session, number).data.get(PATH)
        calls.append(asyncio.create_task(view(session, 4, priority=1).data.get(PATH)))
        await asyncio.gather(*calls)


async def test_equal_views_are_coalesced() -> None:
    """Views made for each request share requests although they have `max_waiting`."""
    simulator = Simulator(limit=1, window=60.0)
    async with simulated(simulator) as session:
        await session.data.get(PATH)
        views = [session.with_options(coalesce=True, max_waiting=1) for _ in range(3)]
        await asyncio.gather(*(view.data.get(PATH) for view in views))  # one of them waits for quota
    assert simulator.stats.answered[200] == 2


async def test_max_waiting_of_a_session() -> None:
    """A session can have the limit too; its views share it."""
    async with simulated(Simulator(limit=1, window=60.0), max_waiting=1) as session:
        await session.data.get(PATH)
        waiting = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError):
            await session.with_options(priority=1).data.get(PATH)
        await waiting


async def test_refused_page_has_a_checkpoint() -> None:
    """A stream whose next page is refused raises the error with its position, and continues from there."""
    simulator = Simulator(limit=3, window=60.0)
    async with simulated(simulator) as session:
        expected = await session.data.evm.blocks(43114, page_size=10).collect(limit=40)
        await asyncio.sleep(200.0)
        view = session.with_options(max_waiting=0)
        rows = list[EvmBlock]()

        async def read() -> None:
            async for page in view.data.evm.blocks(43114, page_size=10):
                rows.extend(page.items)

        with pytest.raises(QueueFullError) as caught:
            await read()
        assert 0 < len(rows) < 40
        assert caught.value.checkpoint is not None
        began = time()
        await asyncio.sleep(caught.value.retry_after + 1e-6)
        resumed = view.data.evm.blocks(43114, page_size=10, resume=caught.value.checkpoint)
        rows += await resumed.collect(limit=10)
        assert rows == expected[: len(rows)]
        assert time() - began <= 61.0


async def test_retries_of_an_admitted_call_are_not_refused() -> None:
    """A call that met a 429 waits for its next attempt, although no call may wait; others are refused."""
    simulator = Simulator(limit=1, window=10.0)
    other = simulated(simulator, isolated=True)
    async with other, simulated(simulator, isolated=True, max_waiting=0) as session:
        await other.data.get(PATH)
        began = time()
        call = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(1.0)
        with pytest.raises(QueueFullError):
            await session.data.get(PATH)
        await call
        assert time() - began > 9.0


@pytest.mark.parametrize("value", [-1, 1.5, True, "10"])
def test_max_waiting_is_checked(value: object) -> None:
    """A limit that is no whole number from 0 up is refused, by sessions and by views."""
    with pytest.raises(ConfigurationError, match="max_waiting"):
        simulated(Simulator(), max_waiting=value)
    with pytest.raises(ConfigurationError, match="max_waiting"):
        simulated(Simulator()).with_options(max_waiting=value)  # type: ignore[arg-type]


# --- a quota that processes share ---------------------------------------------------------------


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


async def test_waiting_calls_are_not_refused_by_the_next_host() -> None:
    """When the host dies, calls that waited keep their places, and count at the next host."""
    exchange = Exchange(delay=0.001)
    async with processes(2, exchange) as (one, two):
        await end(await one.acquire(), 200, reported(99))
        await end(await two.acquire(), 429, reported(0, 20.0))
        limit = WaitingLimit(2)
        tasks = [asyncio.create_task(two.acquire(limit=limit, again=number == 2)) for number in range(3)]
        await asyncio.sleep(1.0)
        exchange.kill(one.carrier)
        await asyncio.sleep(5.0)
        assert exchange.elections == 2
        await refused(two, limit)
        for task in asyncio.as_completed(tasks):
            await end(await task, 200, reported(50))


async def test_limit_holds_while_no_process_hosts() -> None:
    """A process that sends by its last share keeps the limit."""
    exchange = Exchange(delay=0.001)
    async with processes(1, exchange) as (one,):
        await end(await one.acquire(), 200, reported(99))
        exchange.cut()
        await end(await one.acquire(), 429, reported(0, 500.0))
        limit = WaitingLimit(1)
        waiting = asyncio.create_task(one.acquire(limit=limit))
        await asyncio.sleep(60.0)
        await refused(one, limit)
        waiting.cancel()
