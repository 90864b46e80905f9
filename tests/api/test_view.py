"""Views of a session: other options on the same gate and the same connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from attrs import define, field

from chainapi import Session, SessionView
from chainapi.errors import (
    APITimeoutError,
    ConfigurationError,
    DeadlineExceededError,
    QuotaWaitError,
    ServerError,
    SessionClosedError,
)
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response, Transport
from tests.sessions import Answering, reaching, simulated

PATH = "/v1/chains/43114"


def now() -> float:
    """Return the time of the running loop."""
    return asyncio.get_running_loop().time()


async def test_max_wait_of_a_view() -> None:
    """A view with `max_wait` fails fast, while calls of the session wait for quota."""
    sim = Simulator(limit=2, window=60.0)
    async with simulated(sim) as session:
        web = session.with_options(max_wait=1.0)
        for _ in range(2):
            await web.data.get(PATH)
        began = now()
        with pytest.raises(QuotaWaitError):
            await web.data.get(PATH)
        assert now() - began <= 1.01
        with pytest.raises(QuotaWaitError):
            await web.data.evm.blocks(43114).collect(limit=1)
        await session.data.get(PATH)
        assert now() > 50
        await web.with_options(max_wait=inf).data.get(PATH)


async def test_deadline_of_a_view() -> None:
    """The deadline of a view holds for each call without one of its own."""
    transport = Answering(seconds=10.0)
    async with reaching(transport, deadline=5.0) as session:
        for view, seconds in ((session, 5.0), (session.with_options(deadline=2.0), 2.0)):
            began = now()
            with pytest.raises(DeadlineExceededError):
                await view.data.get(PATH)
            assert now() - began == pytest.approx(seconds)
        view = session.with_options(deadline=inf)
        await view.data.get(PATH)
        with pytest.raises(DeadlineExceededError):
            await view.data.get(PATH, deadline=1.0)


async def test_timeout_and_attempts_of_a_view() -> None:
    """`timeout` bounds one attempt and `max_attempts` their number, for calls of the view only."""
    transport = Answering(seconds=3.0)
    async with reaching(transport, timeout=5.0) as session:
        with pytest.raises(APITimeoutError, match="no whole answer within 2 s"):
            await session.with_options(timeout=2.0, max_attempts=1).metrics.avg_tps(1).collect()
        assert len(transport.requests) == 1
        await session.data.get(PATH)
    sim = Simulator(faults=[Fault(every=1, status=503)])
    async with simulated(sim) as session:
        with pytest.raises(ServerError) as caught:
            await session.with_options(max_attempts=1).data.get(PATH)
        assert caught.value.attempts == 1
        with pytest.raises(ServerError) as caught:
            await session.data.get(PATH)
        assert caught.value.attempts == 5


@define
class Departures:
    """Transport that notes a header of each request as it leaves for another transport."""

    transport: Transport
    names: list[str] = field(factory=list[str])

    async def send(self, request: Request) -> Response:
        """Send a request, and keep its header ``x-name``."""
        self.names.append(request.headers["x-name"])
        return await self.transport.send(request)

    async def aclose(self) -> None:
        """Close the other transport."""
        await self.transport.aclose()


async def test_priority_and_tag_of_a_view() -> None:
    """Calls of a view have its priority and tag, unless they have their own."""
    sim = Simulator(limit=10, window=60.0, latency=0.05)
    departures = Departures(sim.transport())
    async with simulated(sim, tag="batch", transport=departures, headers={"x-name": "batch"}) as session:
        web = session.with_options(priority=1, tag="web", headers={"x-name": "web"})
        own = web.with_options(headers={"x-name": "own"})
        first = [asyncio.ensure_future(session.data.get(PATH)) for _ in range(30)]
        await asyncio.sleep(5)
        second = [asyncio.ensure_future(web.data.get(PATH)) for _ in range(3)]
        second.append(asyncio.ensure_future(own.data.get(PATH, priority=-1, tag="own")))
        await asyncio.gather(*first, *second)
        spent = {one.tag: one.requests for one in session.quota["data"].spenders}
    order = departures.names
    assert order[10:20].count("web") == 3
    # The request of the lowest rank is a tenth of those that leave before it.
    assert 9 <= order.index("own") - order.index("web") <= 11
    assert (spent["web"], spent["own"]) == (3, 1)
    assert spent["batch"] >= 30


async def test_headers_of_a_view() -> None:
    """Headers are added to every request, those of a view to those of its session."""
    transport = Answering()
    async with reaching(transport, headers={"User-Agent": "backend/1", "X-Team": "a"}) as session:
        view = session.with_options(headers={"x-team": "b", "Traceparent": "00-1-2-01"})
        await view.data.get(PATH)
        await view.metrics.get("/v1/x")
        await session.data.get(PATH)
    one, other, own = (dict(request.headers) for request in transport.requests)
    assert (one["user-agent"], one["x-team"], one["traceparent"]) == ("backend/1", "b", "00-1-2-01")
    assert one["x-data-api-key"] == "key-of-the-test"
    assert other == {name: value for name, value in one.items() if name != "x-data-api-key"}
    assert own["x-team"] == "a"
    assert "traceparent" not in own


HEADERS: list[tuple[Any, str]] = [
    ({"x-data-api-key": "very-secret"}, "give the key to Session"),
    ({"Host": "elsewhere.test"}, "chainapi sets itself"),
    ({"bad name": "x"}, "no name of a header"),
    ({"x": "very-secret\r\nhost: elsewhere"}, r"headers\['x'\] must be a string"),
    ({"x": "very-secret\x00"}, "printable"),
    ({"x": 5}, "printable"),
    ("x: y", "map names"),
]
OPTIONS: list[tuple[str, Any]] = [
    *(("timeout", 0), ("timeout", inf), ("max_attempts", 0), ("max_wait", -1), ("deadline", 0)),
    *(("priority", 1.5), ("tag", "x" * 65)),
]


def test_invalid_options() -> None:
    """A view refuses a wrong option or header by its name, and shows no value."""
    session = Session(metrics_base_url="https://metrics.test")
    refused: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
        *((session.with_options, {"headers": headers}, said) for headers, said in HEADERS),
        *(
            (make, {name: one}, f"^{name}=")
            for name, one in OPTIONS
            for make in (session.with_options, Session)
        ),
        (session.with_options, {"max_weit": 1}, r"with_options got an unknown argument .*max_wait"),
    ]
    for make, options, said in refused:
        with pytest.raises(ConfigurationError, match=said) as caught:
            make(**options)
        assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [lambda session: session, lambda session: session.with_options(tag="a").with_options(max_wait=1.0)],
    ids=["session", "view"],
)
async def test_a_view_lives_as_long_as_its_session(make: Callable[[Session], SessionView]) -> None:
    """A view shares connection and quota with its session, and is closed with it."""
    transport = Answering()
    session = reaching(transport, now=lambda: 1e9)
    async with session:
        view = make(session)
        assert view.connection is session.connection
        await view.data.get(PATH)
        assert view.quota == session.quota
        assert view.data.quota == session.data.quota
    with pytest.raises(SessionClosedError):
        await view.data.get(PATH)
    assert "closed" in repr(view)
    assert not hasattr(session.with_options(), "aclose")


async def test_views_of_views_add_up() -> None:
    """An option that is not given stays that of the view before; None does not reset it."""
    transport = Answering(seconds=3.0)
    async with reaching(transport) as session:
        view = session.with_options(timeout=1.0).with_options(max_attempts=1, timeout=None)
        with pytest.raises(APITimeoutError, match="within 1 s") as caught:
            await view.data.get(PATH)
    assert caught.value.attempts == 1
