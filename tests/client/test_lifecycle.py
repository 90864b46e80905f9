"""Lifecycle of sessions and streams: left, closed, cancelled, forgotten, forked."""

from __future__ import annotations

import asyncio
import copy
import gc
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from typing import Any, cast

import aiohttp
import pytest
from attrs import define

from chainapi import Checkpoint, MetricPoint, Pages, Provider, Session, merge
from chainapi.api.metrics import MetricsAPI
from chainapi.core.call import CallOptions
from chainapi.core.retry import RetryPolicy
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    ChainAPIError,
    ConfigurationError,
    DecodeError,
    PagingError,
    QuotaWaitError,
    RateLimitedError,
    ServerError,
    SessionClosedError,
)
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import AiohttpTransport, Request, Response
from tests.raw_server import Peer, RawServer, each, http, settle, until
from tests.sessions import Answering, reaching, simulated

ADDRESS = "http://127.0.0.1:9"
PAGE = b'{"results": [{"timestamp": 2, "value": 1.5}, {"timestamp": 1, "value": 2}], "nextPageToken": "t"}'


@define
class Scripted:
    """Transport with scripted responses, the last one repeated for ever.

    An exception is raised, and None never arrives.
    """

    answers: list[Response | Exception | None]
    sent: int = 0
    under_way: int = 0
    closed: int = 0

    async def send(self, request: Request) -> Response:
        """Return the next response."""
        self.sent += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.under_way += 1
        try:
            if answer is None:
                await asyncio.get_running_loop().create_future()
                raise AssertionError(request.method)
            await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Count the calls."""
        self.closed += 1


def scripted(*answers: Response | Exception | None, **settings: Any) -> tuple[Session, Scripted]:
    """Return a session of scripted answers, and its transport."""
    transport = Scripted(list(answers))
    return Session(**{"metrics_base_url": ADDRESS, "transport": transport, **settings}), transport


def now() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


def alone() -> bool:
    """Return whether no task but the test's is left."""
    return asyncio.all_tasks() == {asyncio.current_task()}


async def silent(peer: Peer) -> None:
    """Read a request, and never answer it."""
    await peer.request()
    await peer.stall()


OK = Response(200, {}, PAGE)
WAIT_A_MINUTE = Response(429, {"retry-after": "60"}, b"{}")
DOWN = Response(503, {"retry-after": "60"}, b"{}")


# Leaving a walk


@pytest.mark.real_time
async def test_walk_left_by_break_holds_no_connection() -> None:
    """A walk left by `break` frees its connection for the next walk.

    No warning is logged after a collection.
    """
    async with Simulator(points=500) as sim, Session(metrics_base_url=sim.metrics_base_url) as session:
        for _ in range(3):
            async for _page in session.metrics.avg_tps(43114):
                break
            async for _row in session.metrics.avg_tps(43114).items():
                break
            gc.collect()
            await settle()
        assert sim.stats.requests == 6
        client = cast(AiohttpTransport, session.connection.transport)._client
        assert client is not None
        assert client.connector is not None
        assert len(client.connector._conns) == 1
        assert not client.connector._acquired


async def test_aclose_before_between_and_after() -> None:
    """A stream can be closed before its first page, in the middle, and at the end.

    It can be closed twice; then it is over.
    """
    async with simulated(Simulator(points=300)) as session:
        fresh = session.metrics.avg_tps(43114)
        begun = session.metrics.avg_tps(43114)
        await anext(begun)
        inside = session.metrics.avg_tps(43114)
        rows = inside.items()
        await anext(rows)
        done = session.metrics.avg_tps(43114)
        await done.collect()
        for pages in (fresh, begun, inside, done):
            place = pages.checkpoint
            await pages.aclose()
            await pages.aclose()
            assert [page async for page in pages] == []
            assert [row async for row in pages.items()] == []
            assert pages.checkpoint == place
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


@pytest.mark.untraced
async def test_thousands_of_streams_that_were_begun_hold_nothing() -> None:
    """Ten thousand walks that stopped after a page hold no task and no place.

    The place is one in the gate.
    """
    session, _ = scripted(OK)
    async with session:
        walks = [session.metrics.avg_tps(43114) for _ in range(10_000)]
        for walk in walks:
            await anext(walk)
        assert session.metrics.quota.in_flight == session.metrics.quota.waiting == 0
        assert alone()


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


async def test_two_readers_at_once_are_refused_and_no_row_is_lost() -> None:
    """A second `anext` during a fetch is a PagingError; the first one gets its page."""
    async with simulated(Simulator(points=300, latency=1.0)) as session:
        pages = session.metrics.avg_tps(43114)
        outcomes = await asyncio.gather(anext(pages), anext(pages), return_exceptions=True)
        assert isinstance(outcomes[1], PagingError)
        rows = [*cast("Any", outcomes[0]), *await pages.collect()]
        assert [row.timestamp for row in rows] == sorted({row.timestamp for row in rows}, reverse=True)
        assert len(rows) == 300


# Cancelling


@pytest.mark.real_time
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", http(PAGE[:9], length=len(PAGE))])
async def test_cancelled_request_frees_its_connection(sent: bytes) -> None:
    """Cancelling within a request drops the connection; the next call works.

    It is cancelled before, within the headers, or within the body.
    """
    first = True

    async def script(peer: Peer) -> None:
        nonlocal first
        await peer.request()
        if first:
            first = False
            await peer.send(sent)
            await peer.stall()
        await peer.send(http(PAGE))
        await peer.stall()

    async with RawServer(script) as server, Session(metrics_base_url=server.origin) as session:
        pages = session.metrics.avg_tps(1)
        task = asyncio.create_task(anext(pages))
        await until(lambda: len(server.requests) == 1)
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.open == 0)
        assert session.metrics.quota.in_flight == 0
        assert len(await anext(pages)) == 2
        assert (len(server.requests), server.connections) == (2, 2)


@pytest.mark.real_time
async def test_cancelled_connect_leaves_no_socket() -> None:
    """Cancelling while the connection is being made closes it."""
    async with RawServer(each(http(PAGE))) as server, Session(metrics_base_url=server.origin) as session:
        for rounds in range(8):
            task = asyncio.create_task(session.metrics.get("/v1/x"))
            await settle(rounds)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await session.metrics.get("/v1/x"))["nextPageToken"] == "t"


@pytest.mark.parametrize("answer", [None, WAIT_A_MINUTE, DOWN, APIConnectionError("broken")])
async def test_timeout_around_a_wait_is_punctual(answer: Response | Exception | None) -> None:
    """`asyncio.timeout(1)` ends a call at 1 s in any wait.

    It waits for a response, for quota, or for another attempt.
    """
    session, transport = scripted(answer)
    session.connection.settings.jitter = lambda: 1.0
    retry = CallOptions(retry=RetryPolicy(max_attempts=5, base=30.0))
    metrics = MetricsAPI(session.connection, "metrics", retry)
    async with session:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(1):
                await metrics.avg_tps(1).collect()
        assert not isinstance(caught.value, ChainAPIError)
        assert now() == pytest.approx(1)
        assert (transport.sent, transport.under_way) == (1, 0)
        assert session.metrics.quota.in_flight == session.metrics.quota.waiting == 0


async def test_cancelled_waiter_makes_room_for_the_next() -> None:
    """Callers cancelled in a wait for quota leave at once, at no cost to others."""
    async with simulated(Simulator(limit=1, window=60)) as session:
        tasks = [asyncio.create_task(session.data.get("/v1/chains/43114")) for _ in range(12)]
        await asyncio.sleep(1)
        waiting = [task for task in tasks if not task.done()]
        for task in waiting[:-1]:
            task.cancel()
        await settle()
        assert all(task.cancelled() for task in waiting[:-1])
        await asyncio.wait(tasks)
        assert waiting[-1].result()["chainId"] == "43114"
        assert now() < 130


async def test_cancelled_walk_goes_on_where_it_was() -> None:
    """A walk cancelled again and again, at all kinds of moments, yields rows once."""
    sim = Simulator(rows=300, limit=5, window=7, latency=0.3, faults=[Fault(every=6, status=502)])
    async with simulated(sim) as session:
        blocks = session.data.list("/v1/chains/43114/blocks", page_size=20)
        rows: list[Any] = []
        patience = 0.1
        while not blocks.exhausted:
            try:
                async with asyncio.timeout(patience):
                    rows += (await anext(blocks)).items
                    patience = 0.1
            except TimeoutError:
                patience *= 1.7
        assert len({row["blockNumber"] for row in rows}) == len(rows) == 300
    assert alone()


# Trying again


async def test_retry_after_of_a_server_error_is_waited_out() -> None:
    """A 503 with a Retry-After of two seconds is retried after two seconds."""
    asked = Response(503, {"retry-after": "2"}, b"<html>")
    session, transport = scripted(asked, OK)
    async with session:
        assert len(await anext(session.metrics.avg_tps(1))) == 2
    assert transport.sent == 2
    assert now() == pytest.approx(2)


@pytest.mark.parametrize(
    ("options", "waited"), [({"max_stop": 60.0}, 60), ({}, 86_400), ({"max_stop": None}, 1e7)]
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_request_leaves_after_max_stop_whatever_the_status(
    options: dict[str, Any], waited: float, status: int
) -> None:
    """A call waits for `max_stop` at most, a day by default, although the service requests months."""
    session, transport = scripted(Response(status, {"retry-after": "10000000"}, b"{}"), OK, **options)
    async with session:
        assert len(await anext(session.metrics.avg_tps(1))) == 2
    assert transport.sent == 2
    assert now() == pytest.approx(waited, rel=0.01)


async def test_every_third_request_may_fail() -> None:
    """A thousand pages through a gateway that fails each third time are complete.

    The rows are in order, each once.
    """
    sim = Simulator(rows=10_000, faults=[Fault(every=3, status=502, body=b"<html>")])
    async with simulated(sim) as session:
        rows = await session.data.list("/v1/chains/43114/blocks", page_size=10).collect()
    numbers = [int(row["blockNumber"]) for row in rows]
    assert len(rows) == 10_000
    assert numbers == list(range(numbers[0], numbers[0] - 10_000, -1))
    assert sim.stats.requests < 1_510


async def test_outage_is_not_multiplied_by_the_retries() -> None:
    """In an outage all callers share one retry budget, and end with the status."""
    session, transport = scripted(Response(503, {}, b""))
    async with session:
        for _ in range(5):
            calls = [session.metrics.get("/v1/x") for _ in range(100)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {ServerError}
    assert transport.sent <= 500 + 100


async def test_each_success_fills_the_retry_budget() -> None:
    """After an outage five successes pay for one retry."""
    session, _ = scripted(Response(200, {}, b"{}"))
    async with session:
        budget = session.connection.settings.budget
        budget.level = 0.0
        for _ in range(5):
            await session.metrics.get("/v1/x")
        assert budget.level == 5.0


# Closing the session


@pytest.mark.parametrize("answer", [None, WAIT_A_MINUTE, DOWN])
@pytest.mark.parametrize("callers", [1, 100, 2_000])
async def test_closing_ends_all_calls(answer: Response | None, callers: int) -> None:
    """Closing a session ends every call at once with SessionClosedError.

    It does so wherever the call waits.
    """
    session, transport = scripted(answer, timeout=1_000)
    session.connection.settings.budget.level = 1e9
    tasks = [asyncio.create_task(session.metrics.get("/v1/x")) for _ in range(callers)]
    await asyncio.sleep(10)
    await session.aclose()
    await session.aclose()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {SessionClosedError}
    assert now() == pytest.approx(10)
    assert (transport.under_way, transport.closed) == (0, 0)
    assert alone()


async def test_error_in_the_block_ends_the_others() -> None:
    """An exception out of the session's block ends a hundred waiting tasks.

    The exception itself is unchanged.
    """
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


@pytest.mark.real_time
@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 5, 8, 40])
async def test_closing_during_requests_leaves_nothing(rounds: int) -> None:
    """Closing a session at any step of a request leaves no socket.

    All calls end alike.
    """
    async with RawServer(silent) as server:
        session = Session(metrics_base_url=server.origin, max_attempts=1)
        tasks = [asyncio.create_task(session.metrics.get("/v1/x")) for _ in range(5)]
        await settle(rounds)
        await session.aclose()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {SessionClosedError}


@pytest.mark.real_time
@pytest.mark.parametrize("rounds", [1, 2, 3])
async def test_a_session_whose_closing_is_cancelled_leaves_no_socket(rounds: int) -> None:
    """A session closes its connections although whoever closes it is cancelled while calls end."""
    async with RawServer(silent) as server:
        session = Session(metrics_base_url=server.origin)
        view = session.with_options(coalesce=True)
        tasks = [asyncio.create_task(view.metrics.get("/v1/x")) for _ in range(2)]
        await until(lambda: server.connections == 1)
        closing = asyncio.create_task(session.aclose())
        await settle(rounds)
        closing.cancel()
        outcomes = await asyncio.gather(closing, *tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes[1:]] == [SessionClosedError] * 2
        assert cast(AiohttpTransport, session.connection.transport)._keeper is None


@pytest.mark.real_time
async def test_closing_while_a_gate_opens_leaves_nothing() -> None:
    """A call granted in the step in which the session closes opens no connection."""
    async with RawServer(each(http(PAGE))) as server:
        session = Session(metrics_base_url=server.origin, max_attempts=1)
        assert session.quota["metrics"].in_flight == 0
        service = session.connection.service("metrics")
        permit = await service.gate.acquire(member=service.member)
        task = asyncio.create_task(session.metrics.get("/v1/x"))
        await settle()
        permit.unsent()
        await session.aclose()
        with pytest.raises(SessionClosedError):
            await task
        assert server.connections == 0


@pytest.mark.parametrize("before", [True, False])
async def test_a_call_granted_while_its_session_closes_sends_nothing(before: bool) -> None:
    """A call that gets its turn as its session closes is not sent, and leaves its units to other sessions.

    The turn comes before the close, or by it: the other session allows a probe.
    """
    limits = {"ratelimit-limit": "2", "ratelimit-remaining": "0", "ratelimit-policy": "2;w=60"}
    transport = Answering(headers=limits)
    session = reaching(transport, probe=False, max_in_flight=1)
    async with reaching(transport, max_in_flight=1) as other:
        if before:
            assert (session.data.quota.in_flight, other.data.quota.in_flight) == (0, 0)  # both have joined
            service = session.connection.service("data")
            permit = await service.gate.acquire(member=service.member)
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
        assert now() == pytest.approx(20)
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
    assert transport.sent == 1
    assert "closed" in repr(session)


async def test_failing_observer_or_clock_blocks_nobody() -> None:
    """An exception out of `on_event` or `now` reaches its own caller only.

    The gate stays open.
    """
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


async def test_given_transport_is_left_open() -> None:
    """A transport that was passed in stays open, and serves the next session."""
    transport = Scripted([OK])
    for _ in range(2):
        async with Session(metrics_base_url=ADDRESS, transport=transport) as session:
            await anext(session.metrics.avg_tps(1))
    assert (transport.sent, transport.closed) == (2, 0)


@pytest.mark.real_time
async def test_client_session_of_ones_own_outlives_the_session() -> None:
    """A ClientSession that was passed in is neither closed nor changed by sessions."""
    async with (
        RawServer(each(http(PAGE, "200 OK", "Set-Cookie: a=1"))) as server,
        aiohttp.ClientSession(headers={"X-Mine": "1"}, cookie_jar=aiohttp.DummyCookieJar()) as client,
    ):
        for _ in range(2):
            transport = AiohttpTransport(client)
            async with Session(data_base_url=server.origin, api_key="secret", transport=transport) as session:
                await session.data.get("/v1/x")
        async with client.get(server.origin) as answer:
            assert answer.status == 200
        assert dict(client.headers) == {"X-Mine": "1"}
        assert "x-data-api-key" not in server.requests[-1].headers
        assert server.connections == 1


# Loops, threads, processes


def test_session_made_outside_a_loop_works_in_one() -> None:
    """A session may be made before any loop runs."""
    session = simulated(Simulator(points=10))

    async def main() -> list[MetricPoint]:
        async with session:
            return await session.metrics.avg_tps(43114).collect()

    assert len(asyncio.run(main())) == 10


def test_second_run_is_refused_clearly() -> None:
    """A session in a second `asyncio.run` is refused with a clear error.

    The error names the other loop; the session can be closed there.
    """

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
    """A second thread's loop gets a ConfigurationError, also on closing.

    The calls of the first one continue.
    """
    outcomes: list[Exception] = []
    async with RawServer(each(http(PAGE))) as server, Session(metrics_base_url=server.origin) as session:
        await session.metrics.get("/v1/x")

        def other() -> None:
            for make in (lambda: session.metrics.get("/v1/x"), session.aclose, session.__aenter__):
                work: Callable[[], Coroutine[Any, Any, Any]] = make
                try:
                    asyncio.run(work())
                except ConfigurationError as error:
                    outcomes.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert [str(outcome)[:42] for outcome in outcomes] == [
            "this session belongs to another event loop"
        ] * 3
        await session.metrics.get("/v1/x")
        assert len(server.requests) == 2


@pytest.mark.real_time
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
async def test_fork_gets_an_error_and_leaves_the_parent_alone() -> None:
    """A forked child that uses or closes its parent's session is refused.

    The parent's connection still works.
    """
    async with RawServer(each(http(PAGE))) as server, Session(metrics_base_url=server.origin) as session:
        await session.metrics.get("/v1/x")

        def child() -> None:
            codes = 0
            for work in (session.metrics.get("/v1/x"), session.aclose()):
                try:
                    asyncio.run(work)
                except ConfigurationError:
                    codes += 1
            os._exit(10 + codes)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        await until(lambda: not process.is_alive())
        assert process.exitcode == 12
        process.close()
        await session.metrics.get("/v1/x")
        assert (len(server.requests), server.connections) == (2, 1)


def test_loop_closed_while_a_stream_lives_is_silent() -> None:
    """A stream and its rows may outlive their loop: nothing is raised when they go."""
    loop = VirtualLoop()
    session = simulated(Simulator(points=300))
    pages = session.metrics.avg_tps(43114)
    rows = pages.items()
    loop.run_until_complete(anext(rows))
    loop.close()
    del session, pages, rows
    gc.collect()


# Whole programs

PROGRAM = """
import asyncio, gc, sys
from chainapi import Session
from chainapi.simulator import Simulator

async def main():
    # A busy machine is slow, and development mode would say so.
    asyncio.get_running_loop().slow_callback_duration = 60
    async with Simulator(points=250, limit=1, window=3600) as sim:
        {body}

asyncio.run(main())
print("done")
"""


def program(body: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has a simulator `sim` on a port, in a process of its own."""
    indented = textwrap.indent(textwrap.dedent(body), " " * 8).strip()
    return subprocess.run(
        [sys.executable, *options, "-c", PROGRAM.format(body=indented)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


CLEAN = {
    "to the end": """
        async with Session(metrics_base_url=sim.metrics_base_url) as session:
            assert len(await session.metrics.avg_tps(43114).collect()) == 250
    """,
    "left by break": """
        async with Session(metrics_base_url=sim.metrics_base_url) as session:
            async for row in session.metrics.avg_tps(43114).items():
                break
            async for page in session.metrics.avg_tps(43114):
                break
    """,
    "left by an exception": """
        try:
            async with Session(metrics_base_url=sim.metrics_base_url) as session:
                async for row in session.metrics.avg_tps(43114).items():
                    raise LookupError
        except LookupError:
            pass
    """,
    "cancelled": """
        async with Session(data_base_url=sim.data_base_url, api_key=sim.api_key) as session:
            tasks = [asyncio.create_task(session.data.get("/v1/chains/43114")) for _ in range(5)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    """,
    "closed by hand": """
        session = Session(metrics_base_url=sim.metrics_base_url)
        rows = session.metrics.avg_tps(43114).items()
        await anext(rows)
        await session.aclose()
    """,
    "never used": """
        Session(metrics_base_url=sim.metrics_base_url)
    """,
    "an error": """
        async with Session(data_base_url=sim.data_base_url, api_key=sim.api_key) as session:
            try:
                await session.data.get("/v1/nothing")
            except LookupError:
                pass
            except Exception as error:
                print(type(error).__name__, file=sys.stdout)
    """,
}


@pytest.mark.parametrize("body", CLEAN.values(), ids=CLEAN)
def test_clean_programs_make_no_noise(body: str) -> None:
    """In development mode, with warnings as errors, nothing is printed to stderr."""
    done = program(body, "-X", "dev", "-W", "error")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("done\n")


@pytest.mark.parametrize(
    "after",
    ["", "del session, rows; gc.collect(); await asyncio.sleep(0.01)", "sys.modules['kept'] = session"],
    ids=["forgotten", "collected", "kept for ever"],
)
@pytest.mark.parametrize("development", [False, True])
def test_session_that_is_never_closed_costs_one_warning(after: str, development: bool) -> None:
    """A session that is never closed is closed with its loop, with one warning.

    It is a ResourceWarning in development mode; else nothing is printed.
    """
    body = f"""
        session = Session(metrics_base_url=sim.metrics_base_url)
        rows = session.metrics.avg_tps(43114).items()
        await anext(rows)
        {after}
    """
    done = program(body, *(["-X", "dev"] if development else []))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("ResourceWarning: ") == development, done.stderr
    assert ("a Session was not closed" in done.stderr) == development
    assert "Traceback" not in done.stderr
    assert "nclosed" not in done.stderr


LEFT = """
import asyncio, gc, sys, threading
from chainapi import Session

def opened():
    return Session(metrics_base_url=sys.argv[1])

async def use(session, **options):
    global kept
    kept = session.metrics.avg_tps(43114, **options)
    await anext(kept)
"""

LEAVING = {
    "run": """
        session = opened()
        asyncio.run(use(session))
    """,
    "run, local": """
        async def main():
            await use(opened())
        asyncio.run(main())
    """,
    "loop left open": """
        session = opened()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use(session))
    """,
    "loop left open, session dropped": """
        async def main():
            await anext(opened().metrics.avg_tps(43114))
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        gc.collect()
    """,
    "loop left open, with pages on their way": """
        session = opened()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use(session, prefetch=4))
    """,
    "loop left open by an exit": """
        async def main():
            await use(opened())
            sys.exit()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
    """,
    "loop closed": """
        session = opened()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use(session))
        loop.close()
    """,
    "loop closed, with pages on their way": """
        session = opened()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use(session, prefetch=4))
        loop.close()
    """,
    "loop runs in a thread": """
        session = opened()
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(use(session), loop).result()
    """,
    "many": """
        sessions = [opened() for _ in range(4)]
        loop = asyncio.new_event_loop()
        for session in sessions:
            loop.run_until_complete(use(session))
    """,
}


async def left(body: str, *options: str) -> str:
    """Run a program that leaves a session open; return its standard error.

    A server runs beside it.
    """
    async with Simulator(points=1_000) as simulator:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *options, "-c", LEFT + textwrap.dedent(body), simulator.metrics_base_url),
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return errors.decode()


@pytest.mark.program
@pytest.mark.real_time
@pytest.mark.parametrize("body", LEAVING.values(), ids=LEAVING)
async def test_program_that_leaves_a_session_open_gets_one_warning(body: str) -> None:
    """A program that leaves a session open gets one warning and no traceback.

    This holds in development mode, for all ways to leave it open.
    """
    told = await left(body, "-X", "dev")
    assert told.count("ResourceWarning: a Session was not closed") == 1
    assert not re.search("Traceback|was destroyed|never awaited|Unclosed (client|connector)", told)
    # Messages of asyncio about loops. In one that was closed too early nothing can be closed any more.
    theirs = "event loop|slow|Executing|tracemalloc|a Session was not closed"
    early = "|socket|transport|Unclosed connection" if "loop.close()" in body else ""
    lines = [line for line in told.splitlines() if not line.startswith("  ")]
    assert [line for line in lines if not re.search(theirs + early, line)] == []


@pytest.mark.program
@pytest.mark.real_time
@pytest.mark.parametrize("name", ["run", "many", "loop closed, with pages on their way"])
async def test_program_that_leaves_a_session_open_ends_in_silence(name: str) -> None:
    """A program that leaves a session open prints nothing in normal mode."""
    assert await left(LEAVING[name]) == ""


@pytest.mark.parametrize("after", ["", "sys.modules['kept'] = session"], ids=["forgotten", "kept for ever"])
def test_unclosed_session_is_one_line_where_warnings_are_errors(after: str) -> None:
    """An unclosed session prints one line where warnings are errors.

    Nobody can catch an error there.
    """
    body = f"""
        session = Session(metrics_base_url=sim.metrics_base_url)
        await anext(session.metrics.avg_tps(43114))
        {after}
    """
    done = program(body, "-W", "error")
    assert (done.returncode, done.stdout) == (0, "done\n")
    (line,) = done.stderr.splitlines()
    assert "ResourceWarning: a Session was not closed: use async with, or aclose()" in line


@pytest.mark.program
@pytest.mark.real_time
@pytest.mark.parametrize("used", [False, True])
async def test_fork_is_told_to_open_a_session_in_each_worker(used: bool) -> None:
    """A session made before a fork names the fork and its remedy, whether its parent used it or not."""
    body = f"""
        import os
        session = opened()
        loop = asyncio.new_event_loop()
        if {used}:
            loop.run_until_complete(session.metrics.get("/v1/avg_tps/43114"))
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            loop.run_until_complete(session.aclose())
            sys.exit()
        async def quota():
            return session.quota
        for work in (session.metrics.get("/v1/avg_tps/43114"), quota(), session.aclose()):
            try:
                asyncio.run(work)
            except ValueError as error:
                print(error, file=sys.stderr)
    """
    errors = (await left(body)).splitlines()
    assert len(errors) == 3
    assert all("was made before a fork" in error and "in each worker" in error for error in errors)


@pytest.mark.program
@pytest.mark.real_time
async def test_fork_that_ends_leaves_the_session_of_its_parent_alone() -> None:
    """A forked child that ends closes nothing of its parent's, and prints nothing."""
    body = """
        import os
        session = opened()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use(session))
        child = os.fork()
        if not child:
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        loop.run_until_complete(anext(kept))
        loop.run_until_complete(session.aclose())
        loop.close()
    """
    assert await left(body) == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_a_wait_ends_the_program(number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM ends a program that waits an hour for quota."""
    body = """
        async with Session(data_base_url=sim.data_base_url, api_key=sim.api_key) as session:
            await session.data.get("/v1/chains/43114")
            waiting = asyncio.create_task(session.data.get("/v1/chains/43114"))
            while not session.data.quota.waiting and not sim.stats.refused:
                await asyncio.sleep(0.01)
            print("waiting", flush=True)
            await waiting
    """
    # A job that a shell runs in the background ignores Ctrl-C, and so do its children.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    source = heeds + PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), " " * 8).strip())
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(number)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()  # if it did not end, the test would wait for it
    assert process.returncode in (-number, 130, 1)
    assert errors.rstrip().endswith("KeyboardInterrupt") == (number == signal.SIGINT)


# Copies


def test_session_and_stream_are_not_copied() -> None:
    """Pickling or copying a session, a service or a stream is a clear TypeError."""
    session, _ = scripted(OK, data_base_url=ADDRESS, api_key="k")
    for one in (session, session.metrics.avg_tps(1), session.data.chains()):
        for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                duplicate(one)
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        pickle.dumps(session.data)


async def test_models_pages_errors_and_checkpoints_are_pickled() -> None:
    """Models, pages, errors and checkpoints survive pickling and copying."""
    sim = Simulator(points=300, faults=[Fault(at=2, status=403)])
    async with simulated(sim) as session:
        pages = session.metrics.avg_tps(43114)
        page = await anext(pages)
        with pytest.raises(APIStatusError) as caught:
            await pages.collect()
    kept: list[Any] = [page, page.items[0], page.checkpoint, Provider("https://a.example")]
    for one in kept:
        for twin in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            assert twin == one
    errors: list[ChainAPIError] = [
        caught.value,
        RateLimitedError(429, "x", ("y",), retry_after=3.0),
        APIConnectionError("broken", where="GET /", attempts=2, elapsed=1.0),
        DecodeError("bad", path="$.a", malformed=True),
        QuotaWaitError(10.0, retry_after=5.0, max_wait=1.0),
        SessionClosedError("closed"),
    ]
    for error in errors:
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(twin) is type(error)
            assert (str(twin), vars(twin)) == (str(error), vars(error))
    assert isinstance(caught.value.checkpoint, Checkpoint)


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
FAULTS: dict[str, Response | None] = {
    "refused": Response(403, {}, b"{}"),
    "no JSON": Response(200, {}, b"{"),
    "wrong type": Response(200, {}, b'{"results": [{"timestamp": true, "value": 1}]}'),
    "page again": OK,
    "no answer": None,
}


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("reader", READERS)
async def test_error_of_a_stream_is_freed_with_its_last_reference(reader: str, prefetch: int) -> None:
    """An error, its stream and the rows so far are freed without a garbage collection."""
    for fault in FAULTS.values():
        session, _ = scripted(OK, fault, max_attempts=1, timeout=1.0)
        async with session:
            gc.collect()
            gc.disable()
            try:
                refs = await failed(READERS[reader], session.metrics.avg_tps(43114, prefetch=prefetch))
                await asyncio.sleep(1)
                assert [ref() for ref in refs] == [None, None]
            finally:
                gc.enable()


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
