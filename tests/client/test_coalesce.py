"""Identical requests in flight share one request; a cancelled caller leaves it to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from chainapi import SessionView
from chainapi.errors import (
    ChainAPIError,
    DeadlineExceededError,
    DecodeError,
    NotFoundError,
    QueueFullError,
    QuotaWaitError,
    SessionClosedError,
)
from chainapi.events import CallBegan, Event
from chainapi.simulator import Simulator
from tests.client.services import Script, settle, time
from tests.sessions import Answering, reaching, simulated

PATH = "/v1/chains/43114"


def server_of(body: bytes = b'{"chainId": "1"}', **settings: Any) -> Answering:
    """Return a transport that answers after a second."""
    return Answering(body, **{"seconds": 1.0, **settings})


async def test_identical_requests_are_one() -> None:
    """A hundred identical calls send one request; each has its own result."""
    server = server_of()
    async with reaching(server) as session:
        view = session.with_options(coalesce=True)
        results = await asyncio.gather(*(view.data.get(PATH) for _ in range(100)))
        assert len(server.requests) == 1
        assert time() == pytest.approx(1.0)
        assert results == [{"chainId": "1"}] * 100
        assert len(set(map(id, results))) == 100  # a caller may change what it got
        await view.data.get(PATH)
        assert len(server.requests) == 2  # a later call is no part of it


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
        async with reaching(server) as session:
            view = session.with_options(coalesce=True)
            await asyncio.gather(view.data.get(PATH), call(view))
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


async def test_each_caller_has_its_own_error() -> None:
    """An error reaches all callers, and each may change its own; a walk adds its position."""
    server = server_of(b'{"message": "none"}', status=404)
    async with reaching(server) as session:
        view = session.with_options(coalesce=True)
        results = await asyncio.gather(
            *(view.data.evm.blocks(1).collect() for _ in range(2)), return_exceptions=True
        )
    assert len(server.requests) == 1
    one, other = results
    assert isinstance(one, NotFoundError)
    assert isinstance(other, NotFoundError)
    assert one is not other
    assert one.checkpoint is not None
    assert str(one) == str(other)


async def test_each_caller_decodes_for_itself() -> None:
    """A model that does not fit fails its own caller only, with the numbers of the request."""
    server, events = server_of(headers={"x-request-id": "r-17"}), list[Event]()
    async with reaching(server, on_event=events.append) as session:
        view = session.with_options(coalesce=True)
        calls = [view.data.get(PATH, model=list[int]), view.data.get(PATH)]
        wrong, right = await asyncio.gather(*calls, return_exceptions=True)
    assert len(server.requests) == 1
    assert right == {"chainId": "1"}
    assert isinstance(wrong, DecodeError)
    assert "GET /v1/chains/43114" in str(wrong)
    (began,) = (event for event in events if isinstance(event, CallBegan))
    assert (wrong.call, wrong.request_id) == (began.call, "r-17")


async def test_malformed_bodies_are_repeated_once_for_all() -> None:
    """A body that is no JSON is requested again, for all callers together."""
    server = server_of(b'{"chainId"')
    async with reaching(server, max_attempts=2) as session:
        view = session.with_options(coalesce=True)
        results = await asyncio.gather(*(view.data.get(PATH) for _ in range(3)), return_exceptions=True)
    assert len(server.requests) == 2
    assert all(isinstance(error, DecodeError) and error.malformed for error in results)


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


async def test_a_transport_that_cancels_its_requests_is_not_asked_for_ever() -> None:
    """A transport that ends requests as cancelled ends each call as cancelled after one more request."""
    server = Script(asyncio.CancelledError())
    async with reaching(server) as session:
        view = session.with_options(coalesce=True)
        calls = [asyncio.ensure_future(view.data.get(PATH)) for _ in range(3)]
        await asyncio.wait(calls)
        assert [call.cancelled() for call in calls] == [True] * 3
        assert session.data.quota.in_flight == 0
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


async def test_closing_the_session_ends_all_callers() -> None:
    """Callers of one request raise SessionClosedError, and no task is left."""
    server = server_of()
    session = reaching(server)
    view = session.with_options(coalesce=True)
    calls = [asyncio.ensure_future(view.data.get(PATH)) for _ in range(3)]
    await asyncio.sleep(0.5)
    await session.aclose()
    results: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in results] == [SessionClosedError] * 3
    assert len(asyncio.all_tasks()) == 1


async def test_a_request_that_has_not_begun_is_not_sent_by_a_closed_session() -> None:
    """A session that is closed just after a call sends nothing, although the request begins later."""
    server = server_of()
    session = reaching(server)
    call = asyncio.ensure_future(session.with_options(coalesce=True).data.get(PATH))
    await asyncio.sleep(0)  # the call began, its request did not
    await session.aclose()
    with pytest.raises(SessionClosedError):
        await call
    assert server.requests == []


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


async def test_an_outside_error_is_shared_as_it_is() -> None:
    """An error of a user's transport that is none of chainapi's reaches every caller."""
    async with reaching(Script(ZeroDivisionError())) as session:
        view = session.with_options(coalesce=True)
        results = await asyncio.gather(*(view.data.get(PATH) for _ in range(2)), return_exceptions=True)
    assert [type(error) for error in results] == [ZeroDivisionError] * 2
    assert not any(isinstance(error, ChainAPIError) for error in results)
