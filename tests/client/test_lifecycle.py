"""Lifecycle of sessions and streams: left, closed, cancelled, forgotten, forked."""

from __future__ import annotations

import asyncio
import copy
import gc
import multiprocessing
import os
import pickle
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial
from itertools import product
from typing import Any, cast

import pytest

from chainapi import LimiterOptions, MetricPoint, Pages, Session, merge
from chainapi._limits.gate import Ask
from chainapi.errors import (
    ChainAPIError,
    ConfigurationError,
    ServerError,
    SessionClosedError,
)
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Response
from tests.client.services import Answer, Script, alone, time
from tests.raw_server import Peer, RawServer, each, http, settle, until
from tests.sessions import Answering, reaching, simulated

PAGE = b'{"results": [{"timestamp": 2, "value": 1.5}, {"timestamp": 1, "value": 2}], "nextPageToken": "t"}'


def scripted(*answers: Answer, **settings: Any) -> tuple[Session, Script]:
    """Return a session of scripted answers, and its transport."""
    transport = Script(*answers)
    return reaching(transport, **settings), transport


async def silent(peer: Peer) -> None:
    """Read a request, and never answer it."""
    await peer.request()
    await peer.stall()


OK = Response(200, {}, PAGE)
WAIT_A_MINUTE = Response(429, {"retry-after": "60"}, b"{}")
DOWN = Response(503, {"retry-after": "60"}, b"{}")


# Leaving a walk


@pytest.mark.adapter
@pytest.mark.real_time
async def test_walk_left_by_break_holds_no_connection() -> None:
    """A walk left by `break` frees its connection for the next walk."""
    async with RawServer(each(http(PAGE))) as server, Session(metrics_base_url=server.origin) as session:
        for _ in range(3):
            async for _page in session.metrics.avg_tps(43114):
                break
            async for _row in session.metrics.avg_tps(43114).items():
                break
            gc.collect()
            await settle()
        assert (len(server.requests), server.connections) == (6, 1)


async def test_aclose_before_between_and_after() -> None:
    """A stream can be closed, also twice, at any point: its readers end, and it keeps its position."""
    async with simulated(Simulator(points=300)) as session:
        fresh, begun, inside, done = (session.metrics.avg_tps(43114) for _ in range(4))
        await anext(begun)
        rows = inside.items()
        await anext(rows)
        await done.collect()
        for pages in (fresh, begun, inside, done):
            place = pages.checkpoint
            async with pages:
                pass
            await pages.aclose()
            assert [page async for page in pages] == []
            assert [row async for row in pages.items()] == []
            assert (pages.checkpoint, pages.exhausted) == (place, pages is done)
            assert "closed" in repr(pages) or pages is done
            rest = session.metrics.avg_tps(43114, resume=place)
            assert len(await rest.collect()) == 300 - place.rows
        assert [row async for row in rows] == []
        await rows.aclose()


async def test_a_closed_stream_gives_up_its_place_in_the_queue() -> None:
    """A request that waits for quota is not sent once its stream was closed."""
    transport = Answering(status=429, headers={"retry-after": "300"})
    async with reaching(transport) as session:
        pages = session.metrics.avg_tps(43114)
        reader = asyncio.ensure_future(anext(pages, None))
        await asyncio.sleep(1)
        await pages.aclose()
        assert await reader is None
        assert len(transport.requests) == 1


async def test_exception_of_the_consumer_goes_through_unchanged() -> None:
    """An exception in the body of a loop is unchanged, and the stream can be read on."""
    boom = LookupError("mine")
    async with simulated(Simulator(points=300)) as session:
        pages = session.metrics.avg_tps(43114)

        async def consume() -> None:
            async for _ in pages.items():
                raise boom

        with pytest.raises(LookupError) as caught:
            await consume()
        assert caught.value is boom
        assert boom.__cause__ is boom.__context__ is None
        assert len(await pages.collect()) == 299


# Cancelling


async def test_timeout_around_a_wait_is_punctual() -> None:
    """`asyncio.timeout(1)` ends a call at 1 s in any wait, and no deadline of the call swallows that."""
    cases: list[tuple[Answer, dict[str, float]]] = [
        (None, {}),
        (None, {"deadline": 5.0}),
        (WAIT_A_MINUTE, {}),
        (DOWN, {}),
    ]
    for answer, options in cases:
        session, transport = scripted(answer, **options)
        began = time()
        async with session:
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(1):
                    await session.metrics.avg_tps(1).collect()
            assert not isinstance(caught.value, ChainAPIError)
            assert time() - began == pytest.approx(1)
            assert (len(transport.times), transport.flying) == (1, 0)
            assert session.metrics.quota.in_flight == session.metrics.quota.waiting == 0


# Trying again


async def test_a_request_leaves_after_max_stop_whatever_the_status() -> None:
    """A call waits for `max_stop` at most, a day by default, although the service requests months."""
    failures = []
    for max_stop, waited in ((60.0, 60.0), (86_400.0, 86_400.0), (None, 1e7)):
        for status in (429, 503):
            refusal = Response(status, {"retry-after": "10000000"}, b"{}")
            session, transport = scripted(refusal, OK, limiter=LimiterOptions(max_stop=max_stop))
            began = time()
            async with session:
                await anext(session.metrics.avg_tps(1))
            if len(transport.times) != 2 or time() - began != pytest.approx(waited, rel=0.01):
                failures.append(
                    f"{max_stop}, {status}: {len(transport.times)} requests in {time() - began} s"
                )
    assert not failures


async def test_every_third_request_may_fail() -> None:
    """A list of 300 pages behind a limit and a gateway that fails each third time is complete, in order."""
    sim = Simulator(
        rows=3_000, limit=90, window=60.0, latency=0.05, faults=[Fault(every=3, status=502, body=b"<html>")]
    )
    async with simulated(sim) as session:
        pages = session.data.list("/v1/chains/43114/blocks", page_size=10)
        rows = await pages.collect()
    numbers = [int(row["blockNumber"]) for row in rows]
    assert numbers == list(range(numbers[0], numbers[0] - 3_000, -1))
    stats = sim.stats
    assert (pages.restarts, stats.answered[200], stats.sent_while_stopped) == (0, 300, 0)
    assert stats.requests < 460


async def test_outage_is_not_multiplied_by_the_retries() -> None:
    """In an outage all callers share one retry budget, and end with the status."""
    session, transport = scripted(Response(503, {}, b""))
    async with session:
        for _ in range(2):
            calls = [session.metrics.get("/v1/x") for _ in range(100)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {ServerError}
    assert len(transport.times) <= 200 + 100


# Closing the session


async def test_closing_ends_all_calls() -> None:
    """Closing a session, also twice, ends every call at once with SessionClosedError, wherever it waits."""
    for answer in (None, WAIT_A_MINUTE, DOWN):
        session, transport = scripted(answer, timeout=1_000)
        tasks = [asyncio.create_task(session.metrics.get("/v1/x")) for _ in range(90)]
        began = time()
        await asyncio.sleep(10)
        await session.aclose()
        await session.aclose()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {SessionClosedError}
        assert time() - began == pytest.approx(10)
        assert (transport.flying, transport.closed) == (0, 0)
        assert alone()


async def test_error_in_the_block_ends_the_others() -> None:
    """An exception out of the session's block passes unchanged, and ends a hundred waiting tasks."""
    session, _ = scripted(None)
    tasks: list[asyncio.Task[Any]] = []

    async def fail() -> None:
        async with session:
            tasks.extend(asyncio.create_task(session.metrics.avg_tps(1).collect()) for _ in range(100))
            await asyncio.sleep(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {SessionClosedError}
    assert {cast("SessionClosedError", outcome).checkpoint is None for outcome in outcomes} == {False}


@pytest.mark.adapter
@pytest.mark.real_time
@pytest.mark.parametrize("cancelled", [False, True])
async def test_requests_that_end_at_any_step_leave_nothing(cancelled: bool) -> None:
    """Closing a session, or cancelling its calls, at any step of a request leaves no socket."""
    for rounds in (0, 1, 2, 3, 5, 8, 40):
        async with (
            RawServer(silent) as server,
            Session(metrics_base_url=server.origin, max_attempts=1) as session,
        ):
            tasks = [asyncio.create_task(session.metrics.get("/v1/x")) for _ in range(9)]
            await settle(rounds)
            if cancelled:
                for task in tasks:
                    task.cancel()
            else:
                await session.aclose()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            expected = asyncio.CancelledError if cancelled else SessionClosedError
            assert {type(outcome) for outcome in outcomes} == {expected}
        assert rounds > 1 or server.requests == []


@pytest.mark.adapter
@pytest.mark.real_time
async def test_a_session_whose_closing_is_cancelled_leaves_no_socket() -> None:
    """A session closes its connections although whoever closes it is cancelled while calls end."""
    for rounds in (1, 2, 3):
        async with RawServer(silent) as server:
            session = Session(metrics_base_url=server.origin)
            view = session.with_options(coalesce=True)
            tasks = [asyncio.create_task(view.metrics.get("/v1/x")) for _ in range(2)]
            await until(lambda server=server: server.connections == 1)  # type: ignore[misc]
            closing = asyncio.create_task(session.aclose())
            await settle(rounds)
            closing.cancel()
            outcomes = await asyncio.gather(closing, *tasks, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes[1:]] == [SessionClosedError] * 2


@pytest.mark.parametrize("before", [True, False])
async def test_a_call_granted_while_its_session_closes_sends_nothing(before: bool) -> None:
    """A call that gets its turn as its session closes is not sent, and leaves its units to other sessions."""
    limits = {"ratelimit-limit": "2", "ratelimit-remaining": "0", "ratelimit-policy": "2;w=60"}
    transport = Answering(headers=limits)
    session = reaching(transport, limiter=LimiterOptions(probe=False), max_in_flight=1)
    async with reaching(transport, max_in_flight=1) as other:
        if before:
            assert (session.data.quota.in_flight, other.data.quota.in_flight) == (0, 0)  # both have joined
            service = session.connection.service("data")
            permit = await service.gate.acquire(Ask(), service.member)
        else:
            permit = None
            await other.data.get("/v1/x")
        task = asyncio.create_task(session.data.webhooks.update("w", name="x"))
        await asyncio.sleep(20)
        assert session.data.quota.waiting == 1
        if permit is not None:
            permit.unsent()
        await session.aclose()
        with pytest.raises(SessionClosedError, match=r"the session was closed during PATCH [^:]*$"):
            await task
        assert (other.data.quota.in_flight, other.data.quota.waiting) == (0, 0)
        await other.data.get("/v1/y")
        assert time() == pytest.approx(20)
    assert [request.method for request in transport.requests] == ["GET"] * (1 + (not before))


async def test_closed_session_refuses() -> None:
    """Every use after closing raises SessionClosedError, also of open streams."""
    session, transport = scripted(OK)
    begun = session.metrics.avg_tps(1)
    await anext(begun)
    await session.aclose()
    with pytest.raises(SessionClosedError) as caught:
        await anext(begun)
    assert caught.value.checkpoint == begun.checkpoint
    with pytest.raises(SessionClosedError):
        await session.metrics.avg_tps(1).collect()
    with pytest.raises(SessionClosedError):
        await session.metrics.get("/v1/x")
    with pytest.raises(SessionClosedError):
        async with session:
            raise AssertionError("entered a closed session")
    assert len(transport.times) == 1
    assert "closed" in repr(session)


async def test_failing_observer_or_clock_blocks_nobody() -> None:
    """An exception out of `on_event` or `now` reaches its own caller only, and the gate stays open."""
    broken = True

    def observe(_: object) -> None:
        if broken:
            raise LookupError("observer")

    def clock() -> float:
        if broken:
            raise LookupError("clock")
        return 0.0

    for settings in ({"on_event": observe}, {"now": clock}):
        broken = True
        session, _ = scripted(OK, max_in_flight=1, **settings)
        async with session:
            for _ in range(3):
                with pytest.raises(LookupError):
                    await session.metrics.get("/v1/x")
            broken = False
            async with asyncio.timeout(5):
                await session.metrics.get("/v1/x")


# Loops, threads, processes


@pytest.mark.adapter
def test_second_run_is_refused_clearly() -> None:
    """A session in a second `asyncio.run` is refused with a clear error, and can be closed there."""

    async def use(session: Session) -> None:
        await session.metrics.get("/v1/avg_tps/43114")

    async def main() -> Session:
        async with Simulator() as sim:
            session = Session(metrics_base_url=sim.metrics_base_url)
            await use(session)
        return session

    with pytest.warns(ResourceWarning, match="a Session was not closed"):
        session = asyncio.run(main())
    with pytest.raises(ConfigurationError, match="another event loop"):
        asyncio.run(use(session))
    asyncio.run(session.aclose())
    with pytest.raises(SessionClosedError):
        asyncio.run(use(session))


@pytest.mark.real_time
async def test_another_loop_in_a_thread_is_refused_clearly() -> None:
    """A second thread's loop gets a ConfigurationError, and the calls of the first one continue."""
    session, transport = scripted(OK)
    async with session:
        await session.metrics.get("/v1/x")
        for make in (partial(session.metrics.get, "/v1/x"), session.aclose, session.__aenter__):
            with pytest.raises(ConfigurationError, match=r"^this session belongs to another event loop"):
                await asyncio.to_thread(lambda make: asyncio.run(make()), make)
        await session.metrics.get("/v1/x")
    assert len(transport.times) == 2


@pytest.mark.adapter
@pytest.mark.real_time
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("used", [True, False])
async def test_fork_gets_an_error_and_leaves_the_parent_alone(used: bool) -> None:
    """A forked child hears to open a session of its own, and the session of its parent works on."""
    async with RawServer(each(http(PAGE))) as server, Session(metrics_base_url=server.origin) as session:
        if used:
            await session.metrics.get("/v1/x")

        async def quota() -> Any:
            return session.quota

        def child() -> None:
            codes = 0
            for work in (session.metrics.get("/v1/x"), quota(), session.aclose()):
                try:
                    asyncio.run(work)
                except ConfigurationError as error:
                    codes += "was made before a fork" in str(error) and "in each worker" in str(error)
            os._exit(10 + codes)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        await until(lambda: not process.is_alive())
        assert process.exitcode == 13
        process.close()
        await session.metrics.get("/v1/x")
        assert (len(server.requests), server.connections) == (1 + used, 1)


def test_loop_closed_while_a_stream_lives_is_silent() -> None:
    """A session and streams may be made before their loop, and outlive it: nothing is raised when they go."""
    loop = VirtualLoop()
    session = simulated(Simulator(points=300))
    pages = session.metrics.avg_tps(43114)
    rows = pages.items()
    loop.run_until_complete(anext(rows))
    loop.close()
    del session, pages, rows
    gc.collect()


# Copies


def test_session_and_stream_are_not_copied() -> None:
    """Pickling or copying a session, a service or a stream is a clear TypeError."""
    session, _ = scripted(OK)
    for one in (session, session.metrics.avg_tps(1), session.data.chains()):
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                duplicate(one)
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        pickle.dumps(session.data)


# Errors that were left


async def read_all(stream: AsyncIterable[object]) -> None:
    """Read a stream to its end."""
    async for _ in stream:
        pass


READERS: dict[str, Callable[[Pages[MetricPoint]], Awaitable[object]]] = {
    "pages": read_all,
    "items": lambda pages: read_all(pages.items()),
    "batches": lambda pages: read_all(pages.batches(5)),
    "arrow_batches": lambda pages: read_all(pages.arrow_batches(5)),
    "collect": lambda pages: pages.collect(),
    "to_arrow": lambda pages: pages.to_arrow(),
    "merge": lambda pages: read_all(merge([pages])),
}
FAULTS: dict[str, Answer] = {
    "refused": Response(403, {}, b"{}"),
    "no JSON": Response(200, {}, b"{"),
    "wrong type": Response(200, {}, b'{"results": [{"timestamp": true, "value": 1}]}'),
    "page again": OK,
    "no answer": None,
}


async def test_error_of_a_stream_is_freed_with_its_last_reference() -> None:
    """An error, its stream and the rows so far are freed without a garbage collection."""
    kept = []
    gc.collect()
    gc.disable()
    try:
        for (name, read), (fault, answer), prefetch in product(READERS.items(), FAULTS.items(), (0, 2)):
            session, _ = scripted(OK, answer, max_attempts=1, timeout=1.0)
            async with session:
                refs = await failed(read, session.metrics.avg_tps(43114, prefetch=prefetch))
                await asyncio.sleep(1)
            if any(ref() is not None for ref in refs):
                kept.append((name, fault, prefetch))
    finally:
        gc.enable()
    assert not kept


async def failed(
    read: Callable[[Pages[MetricPoint]], Awaitable[object]], pages: Pages[MetricPoint]
) -> list[weakref.ref[object]]:
    """Return weak references to a stream and to the error with which reading it ends."""
    try:
        await read(pages)
    except ChainAPIError as error:
        return [weakref.ref(pages), weakref.ref(error)]
    except ExceptionGroup as group:
        return [weakref.ref(pages), weakref.ref(group.exceptions[0])]
    raise AssertionError("the stream has an error")
