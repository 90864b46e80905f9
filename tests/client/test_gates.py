"""Sessions that share a gate: conditions, shared state, settings and limits of their own."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from math import inf
from types import FrameType
from typing import Any

import pytest
from aiolimiter import AsyncLimiter

from chainapi import Limit, LimiterOptions, Session, SessionView
from chainapi._limits import gates
from chainapi._limits.gate import Gate
from chainapi.errors import (
    APITimeoutError,
    ConfigurationError,
    QueueFullError,
    QuotaWaitError,
    RateLimitedError,
    SessionClosedError,
)
from chainapi.events import Event, RequestSent, WaitBegan, WaitEnded
from chainapi.models import EvmBlock
from chainapi.simulator import Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import AiohttpTransport, Response, Transport
from tests.client.services import Script, time
from tests.sessions import Answering, reaching, simulated

HOST = "https://data.test"
KEY = "key-of-the-tests"
PATH = "/v1/chains/43114"


def service() -> Script:
    """Return a transport that responds after 50 ms, without a limit."""
    return Script(Response(200, {}, b"{}"), seconds=0.05)


def opened(transport: Transport | None, key: str = KEY, host: str = HOST, **options: Any) -> Session:
    """Return a session of the Data API."""
    return Session(data_base_url=host, api_key=key, transport=transport, **options)


def sharing(sim: Simulator, transport: Transport, **options: Any) -> Session:
    """Return a session on a simulator in memory, with a shared transport."""
    return opened(transport, sim.api_key, sim.data_base_url, **options)


def gate(session: Session) -> Gate:
    """Return the gate of a session's Data API."""
    assert session.quota
    found = session.connection.service("data").gate
    assert isinstance(found, Gate)
    return found


def limited(seed: int = 0) -> Simulator:
    """Return services with 100 requests a minute and overtaking round trips."""
    return Simulator(limit=100, window=60.0, latency=lambda rng: rng.uniform(0.03, 0.09), seed=seed)


# --- purpose of sharing ---


@pytest.mark.parametrize(("number", "seed"), [(1, 0), (2, 1), (5, 2)])
async def test_sessions_on_one_key_meet_no_more_refusals_than_one(number: int, seed: int) -> None:
    """One refusal for 600 requests of one key in all sessions; none sent in a stop."""
    sim = limited(seed)
    transport = sim.transport()
    sessions = [sharing(sim, transport) for _ in range(number)]
    calls = [session.data.get(PATH) for _ in range(600 // number) for session in sessions]
    await asyncio.gather(*calls)
    for session in sessions:
        await session.aclose()
    assert sim.stats.answered[429] <= 1
    assert sim.stats.sent_while_stopped == 0
    assert time() < 301.5


async def test_isolated_session_has_gates_of_its_own() -> None:
    """Sessions with isolated=True share no state, and meet more refusals than one."""
    sim = limited(seed=2)
    transport = sim.transport()
    async with (
        sharing(sim, transport, limiter=LimiterOptions(isolated=True)) as one,
        sharing(sim, transport, limiter=LimiterOptions(isolated=True)) as two,
        sharing(sim, transport) as three,
    ):
        assert len({gate(one), gate(two), gate(three)}) == 3
        await asyncio.gather(*(session.data.get(PATH) for _ in range(300) for session in (one, two)))
        assert three.quota["data"].limit is None
    assert sim.stats.answered[429] > 20
    with pytest.raises(ConfigurationError, match="isolated"):
        LimiterOptions(isolated=1)  # type: ignore[arg-type]


async def test_session_for_each_request() -> None:
    """A new session uses the state of a session closed before, including a stop."""
    sim = limited()
    transport = sim.transport()
    for _ in range(350):
        async with sharing(sim, transport) as session:
            await session.data.get(PATH)
    assert sim.stats.answered[429] <= 1
    assert sim.stats.sent_while_stopped == 0
    async with sharing(sim, transport, max_wait=1.0) as session:
        assert session.quota["data"].limit == 100


async def test_quota_is_what_all_sessions_used() -> None:
    """`session.quota` shows the shared gate before the session has sent a request."""
    sim = limited()
    transport = sim.transport()
    async with sharing(sim, transport) as one, sharing(sim, transport) as two:
        await asyncio.gather(*(one.data.get(PATH) for _ in range(10)))
        assert two.quota["data"].remaining == one.data.quota.remaining == 90
        flying = asyncio.create_task(one.data.get(PATH))
        await asyncio.sleep(0.01)
        assert two.data.quota.in_flight == 1
        await flying


# --- who shares ---


@pytest.mark.rule
async def test_who_shares_a_gate() -> None:
    """Scheme, host, port, key and given transport decide; path, letter case and kind of network do not."""
    one, other = service(), service()
    first = opened(one)
    same = [
        opened(one, host="https://DATA.test/prefix/"),
        opened(one, host="https://data.test:443"),
        opened(one, timeout=5, max_attempts=1, max_wait=0, rate=Limit(5), max_in_flight=3),
    ]
    apart = [
        opened(other),
        opened(None),
        opened(one, key="another-key"),
        opened(one, host="https://data2.test"),
        opened(one, host="https://data.test:8443"),
        opened(one, host="http://localhost:443"),
    ]
    assert {gate(session) for session in same} == {gate(first)}
    assert len({gate(first), *map(gate, apart)}) == 7
    async with AiohttpTransport(max_body=2**20) as roomy:
        network = {gate(opened(each)) for each in (None, roomy, AiohttpTransport())}
    assert network == {gate(apart[1])}
    keyless = Session(metrics_base_url=HOST, transport=one)
    assert keyless.quota
    assert keyless.connection.service("metrics").gate is not gate(first)
    for session in [first, *same, *apart, keyless]:
        await session.aclose()


@pytest.mark.rule
def test_loops_do_not_share() -> None:
    """Two event loops in two threads have a gate each, for their own sessions."""
    transport, both = service(), threading.Barrier(2)

    async def use() -> Gate:
        async with opened(transport) as one, opened(transport) as two:
            both.wait(10)
            await asyncio.gather(*(session.data.get(PATH) for _ in range(50) for session in (one, two)))
            both.wait(10)
            assert gate(one) is gate(two)
            return gate(one)

    def run(_: int) -> Gate:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(use())

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    assert first is not second


@pytest.mark.rule
def test_loop_and_its_gates_can_be_collected() -> None:
    """A loop with gates can be collected, even with calls left waiting in it."""

    async def use() -> None:
        async with opened(service()) as session:
            await session.data.get(PATH)
        waiting = opened(Script(None))
        task = asyncio.create_task(waiting.data.get(PATH))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])

    async def look() -> None:
        assert gate(opened(service())).snapshot().waiting == 0

    loop = VirtualLoop()
    loop.run_until_complete(use())
    found = weakref.ref(loop)
    loop.close()
    del loop
    other = VirtualLoop()
    other.run_until_complete(look())
    other.close()
    gc.collect()
    assert found() is None


# --- memory ---


@pytest.mark.proof
async def test_ten_thousand_sessions_leave_nothing() -> None:
    """Closed sessions leave one gate for a key, for the last 256 keys only."""
    transport = service()

    async def use(number: int, key: str) -> None:
        for count in range(number):
            async with opened(transport, key.format(count), rate=Limit(1e6)) as session:
                assert session.quota
        gc.collect()

    await use(100, KEY)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    await use(10_000, KEY)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 100_000
    await use(1_000, "key-{}")
    known = gates._LOOPS[asyncio.get_running_loop()]
    assert len(known.recent) == gates.REMEMBERED
    assert len(known.known) <= gates.REMEMBERED + 1


@pytest.mark.proof
@pytest.mark.parametrize(
    "options",
    [{}, {"max_in_flight": 5}, {"rate": Limit(50, per=1.0)}],
    ids=["plain", "max_in_flight", "rate"],
)
def test_work_for_a_session_does_not_grow_with_their_number(options: dict[str, Any]) -> None:
    """The function calls for each waiting session do not grow with their number."""

    async def steps(number: int) -> float:
        transport = service()
        calls = 0

        async def use() -> None:
            limits = {"data": [Limit(100, per=10.0)]}
            async with opened(transport, limits=limits, **options) as session:
                await session.data.get(PATH)

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        tasks = [asyncio.create_task(use()) for _ in range(number)]
        sys.setprofile(count)
        try:
            await asyncio.gather(*tasks)
        finally:
            sys.setprofile(None)
        assert len(transport.times) == number
        return calls / number

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        few, many = runner.run(steps(200)), runner.run(steps(2_000))
    assert many < 1.4 * few


@pytest.mark.rule
async def test_key_is_not_kept() -> None:
    """A loop keeps only a digest of a key."""
    async with opened(service()) as session:
        await session.data.get(PATH)
    shown = repr([*gates._LOOPS[asyncio.get_running_loop()].recent])
    assert KEY not in shown
    assert KEY.encode().hex() not in shown


# --- settings that differ ---


async def test_rate_holds_its_own_session_only() -> None:
    """A session's ceiling does not slow another session of the same gate."""
    transport = service()
    async with (
        opened(transport, host=HOST + "/slow", rate=Limit(2, per=1.0)) as slow,
        opened(transport, host=HOST + "/quick", max_wait=1.0) as quick,
    ):
        await quick.data.get(PATH)
        held = [asyncio.create_task(slow.data.get(PATH)) for _ in range(20)]
        await asyncio.sleep(0.5)
        began = time()
        await asyncio.gather(*(quick.data.get(PATH) for _ in range(30)))
        assert time() - began < 0.5
        await asyncio.gather(*held)
    sent = zip(transport.times, transport.requests, strict=True)
    times = [when for when, request in sent if "/slow" in request.url]
    assert times[-1] - times[0] == pytest.approx(9, abs=0.6)
    assert all(sum(start <= when < start + 1 for when in times) <= 5 for start in times)


async def test_max_in_flight_holds_its_own_session_only() -> None:
    """A session that sends one request at a time does not make the others do so."""
    transport = service()
    async with opened(transport, max_in_flight=1) as one, opened(transport) as many:
        await many.data.get(PATH)
        narrow = [asyncio.create_task(one.data.get(PATH)) for _ in range(10)]
        await asyncio.sleep(0)
        await asyncio.gather(*(many.data.get(PATH) for _ in range(250)))
        assert 15 < transport.most <= 100
        await asyncio.gather(*narrow)


@pytest.mark.rule
async def test_careful_settings_hold_for_all() -> None:
    """probe=False, the longest max_stop and documented limits hold for a whole gate."""
    transport = service()
    bold = opened(transport, limiter=LimiterOptions(max_stop=60.0), limits={"data": [Limit(100)]})
    careful = opened(
        transport,
        limiter=LimiterOptions(max_stop=None, probe=False),
        limits={"data": [Limit(100), Limit(5, per=1.0)]},
    )
    quota = gate(bold).quota
    assert (quota.probe, quota.max_stop) == (True, 60.0)
    assert gate(careful).quota is quota
    assert (quota.probe, quota.max_stop) == (False, float("inf"))
    assert [(one.limit, one.window) for one in quota.given] == [(100, 60), (5, 1)]
    assert bold.connection.service("data").member.limits == (Limit(100),)
    began = time()
    await asyncio.gather(*(bold.data.get(PATH) for _ in range(12)))
    assert time() - began == pytest.approx(2.05, abs=0.2)
    await careful.aclose()
    assert (quota.probe, quota.max_stop) == (True, 60.0)
    await bold.aclose()


async def test_max_wait_and_now_are_each_sessions_own() -> None:
    """A session with max_wait fails by its own clock in a stop; another one waits."""
    sim = limited()
    transport = sim.transport()
    async with (
        sharing(sim, transport) as patient,
        sharing(sim, transport, max_wait=2.0, now=lambda: 1_000_000.0) as hasty,
    ):
        await asyncio.gather(*(patient.data.get(PATH) for _ in range(100)))
        waiting = asyncio.create_task(patient.data.get(PATH))
        await asyncio.sleep(1)
        with pytest.raises(QuotaWaitError) as caught:
            await hasty.data.get(PATH)
        assert caught.value.retry_at == pytest.approx(1_000_000 + caught.value.retry_after)
        assert 50 < caught.value.retry_after < 61
        await waiting


async def test_requests_that_another_session_holds_back_are_not_counted() -> None:
    """A queue behind another session's ceiling fails no request that may pass it."""
    transport = service()
    limits = {"data": [Limit(100, per=10.0)]}
    async with (
        opened(transport, rate=Limit(1, per=1.0), limits=limits) as slow,
        opened(transport, max_in_flight=1) as narrow,
        opened(transport, max_wait=1.0) as quick,
    ):
        await quick.data.get(PATH)
        held = [asyncio.create_task(session.data.get(PATH)) for _ in range(500) for session in (slow, narrow)]
        await asyncio.sleep(0.2)
        await asyncio.gather(*(quick.data.get(PATH) for _ in range(50)))
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)


# --- events ---


async def test_each_waiting_session_hears_of_its_wait() -> None:
    """The gate reports a stop to each session when it begins to wait, and to no other."""
    sim = limited()
    transport = sim.transport()
    heard: dict[str, list[Event]] = {"one": [], "two": [], "three": []}
    one, two, three = (sharing(sim, transport, on_event=events.append) for events in heard.values())
    assert three.quota
    await asyncio.gather(*(one.data.get(PATH) for _ in range(100)))
    first = asyncio.create_task(one.data.get(PATH))
    await asyncio.sleep(10)
    second = asyncio.create_task(two.data.get(PATH))
    await asyncio.sleep(1)
    waits = {
        name: [event for event in events if isinstance(event, WaitBegan) and event.reason == "stop"]
        for name, events in heard.items()
    }
    assert [len(events) for events in waits.values()] == [1, 1, 0]
    assert waits["one"][0].seconds == pytest.approx(waits["two"][0].seconds + 10, abs=1.5)
    await asyncio.gather(first, second)
    for events in heard.values():
        kinds = [type(event) for event in events]
        assert kinds.count(WaitEnded) == kinds.count(WaitBegan)
    assert [type(event) for event in heard["two"]].count(RequestSent) == 1
    for session in (one, two, three):
        await session.aclose()


# --- closing ---


async def test_closing_one_session_leaves_the_others_in_peace() -> None:
    """Waiters keep their places when a session with waiters before them is closed."""
    sim = limited()
    transport = sim.transport()
    async with sharing(sim, transport) as stays:
        leaves = sharing(sim, transport, rate=Limit(1000, per=1.0))
        await asyncio.gather(*(stays.data.get(PATH) for _ in range(100)))
        gone = [asyncio.create_task(leaves.data.get(PATH)) for _ in range(100)]
        await asyncio.sleep(1)
        waiting = [asyncio.create_task(stays.data.get(PATH)) for _ in range(100)]
        await asyncio.sleep(1)
        await leaves.aclose()
        outcomes = await asyncio.gather(*gone, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {SessionClosedError}
        assert stays.data.quota.waiting == 100
        await asyncio.gather(*waiting)
        assert (stays.data.quota.waiting, stays.data.quota.in_flight) == (0, 0)
    assert time() < 122
    assert sim.stats.sent_while_stopped == 0


async def test_session_that_is_closed_hands_the_probe_on() -> None:
    """A session closed with a probe in flight lets another one's leave at once."""
    stuck = Script(None, Response(200, {}, b"{}"))
    leaves, stays = opened(stuck), opened(stuck)
    probe = asyncio.create_task(leaves.data.get(PATH))
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(stays.data.get(PATH))
    await asyncio.sleep(0.1)
    assert len(stuck.times) == 1
    await leaves.aclose()
    assert await waiting == {}
    assert time() < 0.3
    with pytest.raises(SessionClosedError):
        await probe
    await stays.aclose()


# --- real loops ---


@pytest.mark.adapter
@pytest.mark.real_time
async def test_sessions_share_on_real_loops() -> None:
    """Two sessions share a gate on real loops: asyncio's and uvloop."""
    async with Simulator(limit=5, window=1.0) as sim:
        urls = {"data_base_url": sim.data_base_url, "api_key": sim.api_key}
        async with Session(**urls) as stays:  # type: ignore[arg-type]
            leaves = Session(**urls)  # type: ignore[arg-type]
            await asyncio.gather(*(session.data.get(PATH) for _ in range(2) for session in (stays, leaves)))
            assert gate(leaves) is gate(stays)
            waiting = [asyncio.create_task(session.data.get(PATH)) for session in (stays, leaves) * 3]
            await asyncio.sleep(0)
            await leaves.aclose()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(outcome, SessionClosedError) for outcome in outcomes[1::2])
            assert not any(isinstance(outcome, BaseException) for outcome in outcomes[::2])
        assert sim.stats.sent_while_stopped == 0


# --- prices, ceilings, spenders, and a service that hangs ---


async def test_request_that_costs_more_than_the_whole_limit_fails() -> None:
    """A request refused with all of its limit left fails early, another after all attempts."""
    for left, attempts in (("100", 2), ("99", 5)):
        fields = {"ratelimit-policy": "100;w=60", "ratelimit-limit": "100", "ratelimit-remaining": left}
        refusing = Answering(status=429, headers={**fields, "retry-after": "5"})
        async with reaching(refusing, limiter=LimiterOptions(isolated=True)) as session:
            with pytest.raises(RateLimitedError) as caught:
                await session.data.get("/v1/anything")
        assert caught.value.attempts == attempts
        assert ("costs more than the limit" in str(caught.value)) is (attempts == 2)


async def test_hanging_service_does_not_make_callers_wait_for_each_other() -> None:
    """Of 100 callers of a service that never answers, the last fails after 2 minutes, not 75."""
    async with reaching(Answering(seconds=1e9)) as session:
        calls = (session.data.get("/v1/anything") for _ in range(100))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, APITimeoutError) for outcome in outcomes)
    assert time() < 120


async def test_rate_can_be_shared_with_the_rest_of_the_program() -> None:
    """An AsyncLimiter of the program's own holds for the session and for others."""
    limiter = AsyncLimiter(10, 1.0)
    for _ in range(10):
        await limiter.acquire()
    async with reaching(Answering(seconds=0.05), rate=limiter) as session:
        await session.data.get("/v1/anything")
        assert time() == pytest.approx(0.15, rel=0.05)
        await asyncio.gather(*(session.data.get("/v1/anything") for _ in range(20)))
    assert time() == pytest.approx(2.2, rel=0.05)


async def test_spenders_of_a_session() -> None:
    """The snapshot has what each tag spent; the tag of a call comes before that of its session."""
    async with simulated(Simulator(seed=1), tag="web") as session:
        await session.data.list("/v1/chains/43114/blocks", page_size=10).collect(limit=20)
        await session.data.evm.blocks(43114, tag="job").collect(limit=1)
        await session.data.chain(43114, tag="job")
        await session.data.get("/v1/chains/43114", tag="")
        costs = {one.tag: one for one in session.quota["data"].spenders}
    assert {tag: (one.process, one.requests) for tag, one in costs.items()} == {
        "web": ("", 2),
        "job": ("", 2),
        "": ("", 1),
    }
    assert all(one.units >= one.requests for one in costs.values())


@pytest.mark.adapter
@pytest.mark.real_time
async def test_specified_headers_with_200_callers() -> None:
    """Over a socket, 200 callers pass windows of a second with few refusals, and none sends in a stop."""
    async with Simulator(limit=80, window=1.0) as simulator:
        async with Session(data_base_url=simulator.data_base_url, api_key=simulator.api_key) as session:
            bodies = await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(200)))
        stats = simulator.stats
    assert len(bodies) == 200
    assert stats.answered[200] == 200
    assert stats.answered[429] <= 2
    assert stats.sent_while_stopped == 0


# --- `max_waiting`: the calls that may wait for quota at once, and the next one that fails ---


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
    other = simulated(simulator, limiter=LimiterOptions(isolated=True))
    async with other, simulated(simulator, limiter=LimiterOptions(isolated=True), max_waiting=0) as session:
        await other.data.get(PATH)
        began = time()
        call = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(1.0)
        with pytest.raises(QueueFullError):
            await session.data.get(PATH)
        await call
        assert time() - began > 9.0
