"""Shared responses: kept fresh or stale by their ages, one key each, and identical requests in flight."""

from __future__ import annotations

import asyncio
import builtins
import logging
import re
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from chainapi import Cache, CacheStore, LimiterOptions, MemoryStore, Provider, Session, SessionView
from chainapi.errors import (
    APIConnectionError,
    ChainAPIError,
    ConfigurationError,
    DeadlineExceededError,
    DecodeError,
    NotFoundError,
    QueueFullError,
    QuotaWaitError,
    SessionClosedError,
)
from chainapi.events import CacheServed, CallBegan, Event, RequestSent
from chainapi.simulator import Simulator
from chainapi.transport import AiohttpTransport, Request, Response, Transport
from tests.client.services import Script, settle, time
from tests.sessions import Answering, reaching, simulated
from tests.share.redis.server import RedisServer

PATH = "/v1/chains/43114"
KEY = "key-of-the-test"
START = 1_700_000_000.0


def unix() -> float:
    """Return a wall clock that runs with the loop."""
    return START + asyncio.get_running_loop().time()


class Server(Answering):
    """Transport whose answers count up."""

    def content(self, number: int) -> bytes:
        """Return the number of the request."""
        return b'{"number": %d}' % number


@define
class Store:
    """Store that keeps everything."""

    entries: dict[str, bytes] = field(factory=dict[str, bytes])
    ttls: list[float] = field(factory=list[float])

    async def get(self, key: str) -> bytes | None:
        """Return an entry."""
        return self.entries.get(key)

    async def set(self, key: str, value: bytes, ttl: float) -> None:
        """Keep an entry."""
        self.entries[key] = value
        self.ttls.append(ttl)


def opened(transport: Transport, **options: Any) -> Session:
    """Return a session whose wall clock runs with the loop."""
    return reaching(transport, **{"api_key": KEY, "now": unix, **options})


def kept(fresh: float = 10.0, **ages: float) -> Cache:
    """Return a cache with a store of its own."""
    return Cache(fresh, store=Store(), **ages)


async def number(view: Any, path: str = PATH) -> int:
    """Return the number of the request that answered a call."""
    result: int = (await view.data.get(path))["number"]
    return result


async def test_fresh_responses_cost_no_quota() -> None:
    """A fresh response answers further calls without a request until its age, unless cache=False is given."""
    server, events = Server(), list[Event]()
    async with opened(server, on_event=events.append) as session:
        view = session.with_options(cache=kept(10.0))
        assert await number(view) == 1
        await asyncio.sleep(9.9)
        assert await number(view) == 1
        assert session.data.quota.spenders[0].requests == 1
        await asyncio.sleep(0.1)
        assert await number(view) == 2
        assert await number(session) == 3  # a call without the cache
        assert await number(view.with_options(cache=False)) == 4
        assert await number(view.with_options(tag="t")) == 2
    served = [event for event in events if isinstance(event, CacheServed)]
    assert {(one.service, one.where, one.use) for one in served} == {
        ("data", "GET /v1/chains/43114", "answer")
    }
    assert [one.age for one in served] == [pytest.approx(9.9), 0.0]
    assert sum(isinstance(event, RequestSent) for event in events) == 4


async def test_stale_while_revalidate() -> None:
    """A stale response answers at once, and one request in the background replaces it."""
    server = Server(seconds=1.0)
    async with opened(server) as session:
        view = session.with_options(cache=kept(10.0, stale_while_revalidate=20.0))
        assert await number(view) == 1
        await asyncio.sleep(10)
        began = unix()
        assert await asyncio.gather(*(number(view) for _ in range(9))) == [1] * 9
        assert unix() == pytest.approx(began)
        assert await number(view) == 1  # the request is still under way
        await asyncio.sleep(1.5)
        assert await number(view) == 2
        await asyncio.sleep(40)
        assert await number(view) == 3  # too old: the call waits for the request
    assert len(server.requests) == 3


async def test_a_failed_revalidation_leaves_the_response() -> None:
    """A request in the background that fails harms no call, and leaves no task behind."""
    server = Server()
    async with opened(server, max_attempts=1) as session:
        view = session.with_options(cache=kept(1.0, stale_while_revalidate=100.0))
        assert await number(view) == 1
        await asyncio.sleep(2)
        server.fault = APIConnectionError("broken")
        assert await number(view) == 1
        await asyncio.sleep(1)
        assert await number(view) == 1
        server.seconds = 60.0
        server.fault = None
        await asyncio.sleep(1)
        assert await number(view) == 1
        await asyncio.sleep(1)
    assert len(asyncio.all_tasks()) == 1  # closing ended the request in the background


FAILURES: list[dict[str, Any]] = [
    {"fault": APIConnectionError("broken")},
    {"status": 503},
    {"seconds": 99.0},
    {"status": 429},
    {"status": 404},
]


@pytest.mark.parametrize("fail", FAILURES)
async def test_stale_if_error(fail: dict[str, Any]) -> None:
    """A stale response answers a call whose request fails, and an event says so; a 404 is an answer."""
    server, events, answered = Server(), list[Event](), fail == {"status": 404}
    async with opened(server, max_attempts=1, deadline=5.0, max_wait=1.0, on_event=events.append) as session:
        view = session.with_options(cache=kept(1.0, stale_if_error=100.0))
        assert await number(view) == 1
        await asyncio.sleep(2)
        for name, value in fail.items():
            setattr(server, name, value)
        with pytest.raises(NotFoundError) if answered else nullcontext():
            assert await number(view) == 1
        assert len(server.requests) == 2
        server.status, server.fault, server.seconds = 200, None, 0.0
        await asyncio.sleep(61)
        assert await number(view) == 3  # errors are not stored
        server.fault = APIConnectionError("broken")
        await asyncio.sleep(102)
        with pytest.raises(APIConnectionError):
            await number(view)
    assert [one.use for one in events if isinstance(one, CacheServed)] == ["on error"] * (not answered)


async def test_never_across_keys() -> None:
    """Sessions with one key share a cache; another key, and none, have responses of their own."""
    server, cache = Server(), kept()
    for api_key, answer in ((KEY, 1), (KEY, 1), ("other", 2), (KEY, 1)):
        async with opened(server, api_key=api_key) as session:
            assert await number(session.with_options(cache=cache)) == answer
    store = cache.store
    assert isinstance(store, Store)
    assert len(store.entries) == 2
    assert store.ttls == [10.0, 10.0]
    stored = repr(store.entries)
    assert KEY not in stored
    assert KEY not in repr(cache)


class Slotted:
    """Transport that allows no weak references."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests = list[Request]()

    async def send(self, request: Request) -> Response:
        """Return the number of the request."""
        self.requests.append(request)
        return Response(200, {}, b'{"number": %d}' % len(self.requests))

    async def aclose(self) -> None:
        """Close nothing."""


@pytest.mark.parametrize(("kind", "most"), [(Server, 1), (Slotted, 2)])
async def test_never_across_transports(kind: type[Any], most: int) -> None:
    """A response never answers calls through another transport, also if that has the address of the first.

    A transport without weak references is another one in each session.
    """
    cache = kept()
    for _ in range(20):
        server, other = kind(), kind()
        async with opened(server) as one, opened(other) as two, opened(server) as three:
            for session in (one, two, three):
                view = session.with_options(cache=cache)
                found = {await number(view) for _ in range(3)}
                assert found == {most if session is three else 1}
        assert (len(server.requests), len(other.requests)) == (most, 1)
        del server, other, one, two, three, session, view  # the next ones may have their addresses


@pytest.mark.adapter
@pytest.mark.real_time
async def test_sessions_over_the_network_share_responses() -> None:
    """Sessions without a transport of their own share a store, as those of other processes do."""
    cache = kept()
    async with Simulator() as sim:
        for transport in (None, None, AiohttpTransport()):
            async with Session(**{**sim.arguments(), "transport": transport}) as session:
                assert (await session.with_options(cache=cache).data.chain(43114)).chain_id == 43114
            if transport is not None:
                await transport.aclose()
        assert sim.stats.requests == 1


async def test_a_stampede_is_one_request() -> None:
    """Calls that miss the cache together send one request."""
    server = Server(seconds=1.0)
    async with opened(server) as session:
        view = session.with_options(cache=kept())
        assert await asyncio.gather(*(number(view) for _ in range(50))) == [1] * 50


async def test_cached_pages_walk_on() -> None:
    """A walk reads cached pages, and continues with the tokens in them; every row once."""
    sim = Simulator()
    async with Session(**sim.arguments(), now=unix) as session:
        view = session.with_options(cache=kept(3600.0))
        rows = await view.data.evm.blocks(43114, page_size=10).collect(limit=50)
        assert sim.stats.requests == 5
        await asyncio.sleep(60)
        again = await view.data.evm.blocks(43114, page_size=10).collect(limit=80)
        assert sim.stats.requests == 8
    assert again[:50] == rows
    assert len({row.block_number for row in again}) == 80


async def test_the_age_of_a_token_counts_from_its_request() -> None:
    """A token of a cached page is as old as the request that brought it."""
    sim = Simulator()
    lifetime = timedelta(seconds=100)
    async with Session(
        **sim.arguments(),
        now=unix,
        provider=Provider(page_token_lifetime=lifetime),
    ) as session:
        view = session.with_options(cache=kept(1e6))
        await view.data.evm.blocks(43114, page_size=10).collect(limit=10)
        await asyncio.sleep(90)
        pages = view.data.evm.blocks(43114, page_size=10)
        await anext(pages)
        assert sim.stats.requests == 1
        await asyncio.sleep(20)  # the token reaches its lifetime: the walk restarts, with a new first page
        await anext(pages)
        assert pages.restarts == 1
        assert sim.stats.requests >= 2
        await asyncio.sleep(101)
        before = sim.stats.requests
        await view.data.evm.blocks(43114, page_size=10).collect(limit=10)
        assert sim.stats.requests == before + 1  # as old as a page token may be: never used


async def test_a_refused_token_is_not_taken_from_the_cache_again() -> None:
    """A token that the service refuses early is renewed by the service, not by the cache."""
    sim = Simulator(token_lifetime=50.0)
    async with Session(**sim.arguments(), now=unix) as session:
        view = session.with_options(cache=kept(1e4))
        await view.data.evm.blocks(43114, page_size=10).collect(limit=10)
        await asyncio.sleep(60)
        rows = await view.data.evm.blocks(43114, page_size=10).collect(limit=40)
    numbers = [row.block_number for row in rows]
    assert len(set(numbers)) == 40


async def test_raw_responses_of_the_cache() -> None:
    """A cached response has the status and headers of the first one, its age, and never the key."""

    class Echo(Server):
        async def send(self, request: Request) -> Response:
            answer = await super().send(request)
            return Response(200, {"x-request-id": "7", "x-echo": KEY, "set-cookie": "a=b"}, answer.body)

    cache = kept()
    async with opened(Echo(seconds=0.5)) as session:
        view = session.with_options(cache=cache)
        first = await view.data.get_response(PATH)
        await asyncio.sleep(3)
        again = await view.data.get_response(PATH)
    assert (first.age, again.age) == pytest.approx((0.0, 3.5))
    assert (first.elapsed, again.elapsed) == pytest.approx((0.5, 0.5))
    assert first.request_id == again.request_id == "7"
    assert again.json() == first.json() == {"number": 1}
    assert set(again.headers) == {"x-request-id", "x-echo"}
    store = cache.store
    assert isinstance(store, Store)
    assert KEY not in repr(store.entries) + repr(again.headers)


async def test_bounded_by_bytes() -> None:
    """The store in memory keeps the responses used last, within its bytes."""
    server = Server()
    store = MemoryStore(max_bytes=3 * 300)
    async with opened(server) as session:
        view = session.with_options(cache=Cache(100.0, store=store))
        for path in ("/v1/a", "/v1/b", "/v1/c"):
            await number(view, path)
        assert await number(view, "/v1/a") == 1
        assert await number(view, "/v1/d") == 4  # in place of b
        assert await number(view, "/v1/a") == 1
        assert await number(view, "/v1/b") == 5
    await store.set("large", b"x" * 10_000, 1.0)
    assert await store.get("large") is None
    assert "3 entries" in repr(store)


async def broken() -> Any:
    """Raise an error with a word that nobody may see."""
    raise OSError("secret-host is away")


async def text() -> Any:
    """Return a text."""
    return "secret-host"


async def hang() -> Any:
    """Never respond."""
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answer", "parts", "said"),
    [
        (broken, ("get", "set"), ("failed to read: OSError", "failed to write: OSError")),
        (text, ("get",), ("failed to read: TypeError",)),
        (hang, ("get",), ("failed to read: TimeoutError",)),
        (hang, ("set",), ("failed to write: TimeoutError",)),
    ],
)
async def test_a_store_that_fails_costs_a_request(
    answer: Callable[[], Any],
    parts: tuple[str, ...],
    said: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that fails costs a request and a line in the log without its words; one that hangs a second.

    The deadline of a call ends the second earlier.
    """
    for part in parts:
        monkeypatch.setattr(Store, part, lambda *_, **__: answer())
    hangs = answer is hang
    async with opened(Server(seconds=0.3)) as session:
        view = session.with_options(cache=kept(100.0))
        with caplog.at_level(logging.WARNING, "chainapi"):
            assert await number(view) == 1
            assert unix() - START == pytest.approx(1.3 if hangs else 0.3)
            assert all(one in caplog.text for one in said)
            with pytest.raises(DeadlineExceededError) if hangs and "get" in parts else nullcontext():
                assert await number(view.with_options(deadline=0.5)) == 2
            assert unix() - START == pytest.approx(1.8 if hangs else 0.6)
    assert "secret-host" not in caplog.text


@pytest.mark.parametrize("stale_if_error", [0.0, 100.0])
async def test_a_call_that_read_slowly_ends_at_its_deadline(
    stale_if_error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that joins a request of a later call, as its store was slow, ends at its own deadline."""
    server, cache = Server(), kept(1.0, stale_if_error=stale_if_error)
    read, slow = Store.get, iter([0.9])

    async def get(store: Store, key: str) -> bytes | None:
        await asyncio.sleep(next(slow, 0.0))
        return await read(store, key)

    async with opened(server, deadline=2.0) as session:
        view = session.with_options(cache=cache)
        assert await number(view) == 1
        await asyncio.sleep(2.0)
        server.seconds = 9.0
        monkeypatch.setattr(Store, "get", get)
        began = unix()
        first = asyncio.gather(number(view), return_exceptions=True)
        await asyncio.sleep(0.5)
        second = asyncio.gather(number(view), return_exceptions=True)
        (result,) = await first
        assert unix() - began == pytest.approx(2.0)
        await second
        assert unix() - began == pytest.approx(2.5)
    assert len(server.requests) == 2
    if stale_if_error:
        assert [result, *await second] == [1, 1]
    else:
        assert isinstance(result, DeadlineExceededError)
        assert result.deadline == 2.0
        assert "within deadline=2 s for GET /v1/chains/43114" in str(result)


@pytest.mark.parametrize(
    ("option", "after", "sent"),
    [
        ("cache", 0.25, 0),  # its store is being read
        ("coalesce", 0.0, 0),  # the call began, its request did not
        ("coalesce", 0.5, 1),
    ],
)
async def test_closing_the_session_ends_all_callers(
    option: str, after: float, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is closed ends all callers of a request, which it does not begin any more."""

    async def slow(*_: object) -> None:
        await asyncio.sleep(0.5)

    monkeypatch.setattr(Store, "get", slow)
    server = server_of()
    session = opened(server)
    options: dict[str, Any] = {option: kept() if option == "cache" else True}
    view = session.with_options(**options)
    calls = [asyncio.ensure_future(view.data.get(PATH)) for _ in range(3)]
    await asyncio.sleep(after)
    await session.aclose()
    results: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in results] == [SessionClosedError] * 3
    assert len(server.requests) == sent
    assert len(asyncio.all_tasks()) == 1


async def test_an_error_of_decoding_a_cached_response_has_no_attempt() -> None:
    """A model that does not fit a cached response fails without a call and an attempt."""
    async with opened(Server()) as session:
        view = session.with_options(cache=kept())
        with pytest.raises(DecodeError) as sent:
            await view.data.get(PATH, model=list[int])
        with pytest.raises(DecodeError) as cached:
            await view.data.get(PATH, model=list[int])
    assert isinstance(sent.value.call, int)
    assert (sent.value.attempts, cached.value.attempts, cached.value.call) == (1, 0, None)


async def test_bytes_of_others_are_no_response() -> None:
    """An entry that this version cannot read counts as missing; so does one of a clock ahead."""
    server, cache = Server(), kept()
    store = cache.store
    assert isinstance(store, Store)
    async with opened(server) as session:
        view = session.with_options(cache=cache)
        assert await number(view) == 1
        (key,) = store.entries
        store.entries[key] = b"other"
        assert await number(view) == 2
        async with opened(server, now=lambda: unix() + 60, limiter=LimiterOptions(isolated=True)) as ahead:
            store.entries.clear()
            assert await number(ahead.with_options(cache=cache)) == 3
        assert await number(view) == 4


def test_bad_arguments() -> None:
    """Ages and stores that cannot be used are refused by name."""
    session = Session(metrics_base_url="https://metrics.test")
    wrong: list[tuple[str, Any]] = [
        ("fresh", lambda: Cache(-1)),
        ("stale_if_error", lambda: Cache(1, stale_if_error=float("nan"))),
        ("store", lambda: Cache(1, store={})),  # type: ignore[arg-type]
        ("max_bytes", lambda: MemoryStore(0)),
        ("cache", lambda: session.with_options(cache=5)),  # type: ignore[arg-type]
        ("coalesce", lambda: session.with_options(coalesce=1)),  # type: ignore[arg-type]
    ]
    for name, make in wrong:
        with pytest.raises(ConfigurationError, match=name):
            make()


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cachetools the error names the extra, and a store of the user needs none."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "cachetools":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigurationError, match=r"chainapi\[cache\]"):
        Cache(1.0)
    store: CacheStore = Store()
    assert Cache(1.0, store=store).store is store


# Identical requests in flight share one request; a cancelled caller leaves it to the others


def server_of(body: bytes = b'{"chainId": "1"}', **settings: Any) -> Answering:
    """Return a transport that answers after a second."""
    return Answering(body, **{"seconds": 1.0, **settings})


def get(view: SessionView) -> Any:
    """Read a resource."""
    return view.data.get(PATH)


def walk(view: SessionView) -> Any:
    """Read a list."""
    return view.data.evm.blocks(1).collect()


async def shared(server: Any, *calls: Callable[[SessionView], Any], **options: Any) -> list[Any]:
    """Return the results and errors of calls that a view makes at once, each with its own."""
    async with reaching(server, **options) as session:
        view = session.with_options(coalesce=True)
        results: list[Any] = await asyncio.gather(*(call(view) for call in calls), return_exceptions=True)
        assert session.data.quota.in_flight == 0
    return results


async def test_identical_requests_are_one() -> None:
    """A hundred identical calls send one request; each has its own result."""
    server = server_of()
    results = await shared(server, *[get] * 100)
    assert (len(server.requests), results) == (1, [{"chainId": "1"}] * 100)
    assert time() == pytest.approx(1.0)
    assert len(set(map(id, results))) == 100  # a caller may change what it got
    async with reaching(server) as session:
        for _ in range(2):  # a later call is no part of the one before
            await get(session.with_options(coalesce=True))
    assert len(server.requests) == 3


async def test_other_requests_are_sent() -> None:
    """A request of another URL, service, wait or header is sent by itself; tag and trace do not count."""
    calls: dict[str, tuple[int, Callable[[SessionView], Any]]] = {
        "path": (2, lambda view: view.data.get("/v1/chains/1")),
        "parameters": (2, lambda view: view.data.get(PATH, a="1")),
        "service": (2, lambda view: view.metrics.get(PATH)),
        "priority": (2, lambda view: view.data.get(PATH, priority=1)),
        "header": (2, lambda view: view.with_options(headers={"x-tenant": "a"}).data.get(PATH)),
        "max_waiting": (2, lambda view: view.with_options(max_waiting=100).data.get(PATH)),
        "not coalesced": (2, lambda view: view.with_options(coalesce=False).data.get(PATH)),
        "tag": (1, lambda view: view.with_options(tag="t").data.get(PATH)),
        "trace": (1, lambda view: view.with_options(headers={"Traceparent": "00-1"}).data.get(PATH)),
    }
    sent = {}
    for name, (_, call) in calls.items():
        server = server_of()
        await shared(server, get, call)
        sent[name] = len(server.requests)
    assert sent == {name: number for name, (number, _) in calls.items()}


@pytest.mark.parametrize("leaving", [0, 1])
async def test_a_cancelled_caller_leaves_the_others(leaving: int) -> None:
    """The first caller or a later one is cancelled: the other one has its response."""
    server = server_of()
    async with reaching(server) as session:
        view = session.with_options(coalesce=True)
        calls = [asyncio.ensure_future(view.data.get(PATH)) for _ in range(2)]
        await asyncio.sleep(0.5)
        calls[leaving].cancel()
        assert await calls[1 - leaving] == {"chainId": "1"}
        assert calls[leaving].cancelled()
    assert (len(server.requests), server.cancelled) == (1, 0)


async def test_the_last_cancelled_caller_ends_the_request() -> None:
    """With its last caller the request ends; a later call sends another one."""
    server = server_of()
    async with reaching(server) as session:
        view = session.with_options(coalesce=True)
        calls = [asyncio.ensure_future(view.data.get(PATH)) for _ in range(3)]
        await asyncio.sleep(0.5)
        for call in calls:
            call.cancel()
        late = asyncio.ensure_future(view.data.get(PATH))  # before the request has ended
        await settle()
        assert server.cancelled == 1
        assert session.data.quota.in_flight == 1
        assert await late == {"chainId": "1"}
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("server", "requests", "kind"),
    [
        (server_of(b'{"message": "none"}', status=404), 1, NotFoundError),
        (server_of(b'{"chainId"'), 2, DecodeError),  # is requested again for all callers together
        (Script(ZeroDivisionError()), 1, ZeroDivisionError),
        (Script(asyncio.CancelledError()), 2, asyncio.CancelledError),  # of the transport's own
    ],
)
async def test_each_caller_has_its_own_error(server: Any, requests: int, kind: type[Exception]) -> None:
    """An error reaches all callers of a request, also a foreign one; a walk adds its position to its own."""
    errors = await shared(server, *[walk] * 3, max_attempts=2)
    assert [type(error) for error in errors] == [kind] * 3
    assert len(server.requests) == requests
    if issubclass(kind, ChainAPIError):
        assert len(set(map(id, errors))) == 3
        assert len(set(map(str, errors))) == 1
        assert None not in [error.checkpoint for error in errors]
        assert {getattr(error, "malformed", None) for error in errors} <= {None, True}


async def test_each_caller_decodes_for_itself() -> None:
    """A model that does not fit fails its own caller only, with the numbers of the request."""
    server, events = server_of(headers={"x-request-id": "r-17"}), list[Event]()
    wrong, right = await shared(
        server, lambda view: view.data.get(PATH, model=list[int]), get, on_event=events.append
    )
    assert (len(server.requests), right) == (1, {"chainId": "1"})
    assert isinstance(wrong, DecodeError)
    assert "GET /v1/chains/43114" in str(wrong)
    (began,) = (event for event in events if isinstance(event, CallBegan))
    assert (wrong.call, wrong.request_id) == (began.call, "r-17")


async def test_a_later_caller_has_its_whole_deadline() -> None:
    """The deadline of the first caller does not end the calls of later ones."""
    server = server_of(seconds=8.0)
    async with reaching(server, deadline=5.0) as session:
        view = session.with_options(coalesce=True)
        first = asyncio.ensure_future(view.data.get(PATH))
        await asyncio.sleep(4.0)
        server.seconds = 2.0
        later = [asyncio.ensure_future(view.data.get(PATH)) for _ in range(3)]
        with pytest.raises(DeadlineExceededError):
            await first
        assert time() == pytest.approx(5.0)
        assert await asyncio.gather(*later) == [{"chainId": "1"}] * 3
        assert time() == pytest.approx(7.0)
    assert len(server.requests) == 2


async def test_a_later_caller_has_its_whole_max_wait() -> None:
    """The first caller's wait for quota is over before that of the later ones."""
    sim = Simulator(limit=1, window=60.0)
    async with simulated(sim, max_wait=58.0) as session:
        await session.data.evm.blocks(43114).collect(limit=1)
        view = session.with_options(coalesce=True)
        first = asyncio.ensure_future(view.data.evm.blocks(43114).collect(limit=1))
        await asyncio.sleep(10)
        later = asyncio.ensure_future(view.data.evm.blocks(43114).collect(limit=1))
        await asyncio.wait([first, later])
    assert isinstance(first.exception(), QuotaWaitError)
    assert later.exception() is None


async def test_a_refused_request_is_not_repeated_for_callers_with_no_more_time() -> None:
    """During a stop a thousand identical calls with a `max_wait` are refused by one attempt to send."""
    sim, events = Simulator(limit=1, window=60.0), list[Event]()
    async with simulated(sim, on_event=events.append) as session:
        await session.data.get(PATH)
        view = session.with_options(coalesce=True, max_wait=2.0)
        errors = await asyncio.gather(*(view.data.get(PATH) for _ in range(100)), return_exceptions=True)
        full = session.with_options(coalesce=True, max_waiting=0)
        errors += await asyncio.gather(*(full.data.get(PATH) for _ in range(100)), return_exceptions=True)
    assert {type(error) for error in errors} == {QuotaWaitError, QueueFullError}
    assert len(set(map(id, errors))) == 200  # each has its own
    assert sum(isinstance(event, CallBegan) for event in events) == 3


async def test_pages_are_shared_page_by_page() -> None:
    """Walks of one list share the requests for its pages, and each has every row."""
    sim = Simulator(latency=0.1)
    async with simulated(sim) as session:
        view = session.with_options(coalesce=True)
        walks = [view.data.evm.blocks(43114, page_size=10, prefetch=2).collect(limit=100) for _ in range(5)]
        first, *others = await asyncio.gather(*walks)
    assert all(rows == first for rows in others)
    assert len(first) == 100
    assert sim.stats.requests <= 13  # ten pages, and some fetched ahead


# The recipe of docs/caching.md: one cache for several processes, over a real Redis


PAGE = Path(__file__).parents[2] / "docs" / "caching.md"


def recipe() -> Any:
    """Return the class that the page shows."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (block,) = (one for one in blocks if "Redis" in one)
    names: dict[str, Any] = {}
    exec(block, names)
    return names["RedisStore"]


@pytest.mark.adapter
@pytest.mark.real_time
@pytest.mark.parametrize("away", [False, True])
async def test_the_recipe_for_redis(away: bool, tmp_path: Path) -> None:
    """Sessions share responses, whose entries expire in Redis; without its server they send requests."""
    server, sim = RedisServer(tmp_path), Simulator()
    arguments = sim.arguments()  # with one transport
    with ExitStack() as ends:
        if not away:
            ends.callback(server.start().stop)
        store = recipe()("redis://127.0.0.1:1" if away else server.url)
        for tag in "ab":
            async with Session(**arguments, tag=tag) as session:
                view = session.with_options(cache=Cache(fresh=60.0, stale_if_error=60.0, store=store))
                assert (await view.data.chain(43114)).chain_name
        assert sim.stats.requests == 1 + away
        if not away:
            (key,) = await store._redis.keys("chainapi:cache:*")
            assert 0 < await store._redis.ttl(key) <= 120
            assert sim.api_key.encode() not in key + await store._redis.get(key)
        await store.aclose()
