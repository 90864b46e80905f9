"""Events of a session, for a listener and for the logger `chainapi`."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import attrs
import pytest

from chainapi import Limit, Session, merge
from chainapi.core import events
from chainapi.core.events import (
    Event,
    LoopFound,
    PageReceived,
    RequestSent,
    ResponseReceived,
    Restarted,
    RetryScheduled,
    WaitBegan,
    WaitEnded,
)
from chainapi.core.http import Request, Response
from chainapi.errors import APIConnectionError, PaginationLoopError
from chainapi.simulator import Fault, Simulator


def simulated(simulator: Simulator, **options: Any) -> Session:
    """Return a session that reaches `simulator` in memory."""
    return Session(
        metrics_base_url=simulator.metrics_base_url,
        data_base_url=simulator.data_base_url,
        api_key=simulator.api_key,
        transport=simulator.transport(),
        **options,
    )


async def test_stream_of_events() -> None:
    """Each request, response, retry and page of a walk has an event, in order."""
    heard: list[Event] = []
    simulator = Simulator(points=150, faults=[Fault(at=2, status=502)], latency=0.25)
    async with simulated(simulator, on_event=heard.append) as session:
        await session.metrics.avg_tps(43114).collect()
    where = "GET /v1/avg_tps/43114"
    assert [type(event) for event in heard] == [
        RequestSent,
        ResponseReceived,
        PageReceived,
        RequestSent,
        ResponseReceived,
        RetryScheduled,
        RequestSent,
        ResponseReceived,
        PageReceived,
    ]
    assert all(event.where == where for event in heard if not isinstance(event, WaitBegan | WaitEnded))
    first, answer, page = heard[:3]
    assert first == RequestSent("metrics", where, 1)
    assert isinstance(answer, ResponseReceived)
    assert answer.status == 200
    assert answer.elapsed == pytest.approx(0.25, abs=1e-6)
    assert answer.size > 1_000
    assert page == PageReceived("metrics", where, 1, 100)
    retry = heard[5]
    assert isinstance(retry, RetryScheduled)
    assert (retry.attempt, retry.reason) == (1, "502")
    assert heard[6] == RequestSent("metrics", where, 2)


async def test_waits_are_reported() -> None:
    """A stop after a 429 has an event at its begin and at the next request."""
    heard: list[tuple[float, Event]] = []
    loop = asyncio.get_running_loop()
    simulator = Simulator(limit=5, window=30.0, latency=0.05)
    async with simulated(simulator, on_event=lambda event: heard.append((loop.time(), event))) as session:
        await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(12)))
    began = [(at, event) for at, event in heard if isinstance(event, WaitBegan)]
    ended = [(at, event) for at, event in heard if isinstance(event, WaitEnded)]
    assert began
    assert len(began) == len(ended)
    for (start, first), (end, last) in zip(began, ended, strict=True):
        assert (first.service, first.reason) == (last.service, last.reason)
        # A wait for quota may end earlier: one request tests whether it is right.
        assert first.reason == "quota" or end - start >= first.seconds - 1e-6
    assert "stop" in {event.reason for _, event in began}


async def test_wait_for_quota_is_reported() -> None:
    """Waits for quota and for the user's own rate have events with their reason."""
    heard: list[Event] = []
    simulator = Simulator(limit=5, window=30.0, latency=0.05)
    async with simulated(simulator, on_event=heard.append, rate=Limit(1, per=3.0)) as session:
        await asyncio.gather(*(session.metrics.avg_tps(43114).collect(limit=1) for _ in range(3)))
    assert {event.reason for event in heard if isinstance(event, WaitBegan)} == {"rate"}
    heard.clear()
    async with simulated(simulator, on_event=heard.append, probe=False) as session:
        await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(12)))
    assert {event.reason for event in heard if isinstance(event, WaitBegan)} == {"quota"}


async def test_each_silence_is_a_reported_wait() -> None:
    """Without limit headers too, each second in which no request leaves or is under way lies in a wait."""
    heard: list[tuple[float, Event]] = []
    loop = asyncio.get_running_loop()
    simulator = Simulator(seed=7, points=500, metrics_limit=12, metrics_window=6.0, latency=0.2)
    async with simulated(simulator, on_event=lambda event: heard.append((loop.time(), event))) as session:
        async for _ in merge([session.metrics.avg_tps(chain) for chain in (43114, 53935, 432204, 4337)]):
            pass
    assert any(isinstance(event, WaitBegan) for _, event in heard)
    waits = False
    for (before, event), (after, _) in pairwise(heard):
        if isinstance(event, WaitBegan | WaitEnded):
            waits = isinstance(event, WaitBegan)
        assert waits or after - before < 1.0, (before, event, after)


async def test_observer_that_raises() -> None:
    """An observer that raises at a wait reaches the loop's handler.

    The requests are served all the same.
    """
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: complaints.append(context["exception"])
    )

    def observe(event: Event) -> None:
        if type(event) is WaitBegan:
            raise LookupError(event)

    simulator = Simulator(limit=5, window=30.0, latency=0.05)
    async with simulated(simulator, on_event=observe) as session:
        await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(12)))
    assert {type(complaint) for complaint in complaints} == {LookupError}


async def test_faults_restarts_and_loops_are_reported() -> None:
    """A broken connection, a restart and a loop each have an event of their own."""
    heard: list[Event] = []

    class Broken:
        async def send(self, request: Request) -> Response:
            if len(heard) < 3:
                raise APIConnectionError("it broke")
            return Response(200, {}, b'{"results": [{"timestamp": 1, "value": 1}], "nextPageToken": "t"}')

        async def aclose(self) -> None: ...

    session = Session(metrics_base_url="https://metrics.test", transport=Broken(), on_event=heard.append)
    async with session:
        pages = session.metrics.avg_tps(1)
        await anext(pages)
        await asyncio.sleep(24 * 3600)
        await anext(pages)
        with pytest.raises(PaginationLoopError):
            await anext(pages)
    broken = heard[1]
    assert isinstance(broken, ResponseReceived)
    assert (broken.status, broken.fault) == (None, "it broke")
    assert [event.restarts for event in heard if isinstance(event, Restarted)] == [1]
    assert [event.page for event in heard if isinstance(event, LoopFound)] == [2]


async def test_logging(caplog: pytest.LogCaptureFixture) -> None:
    """The logger `chainapi` gets waits and retries at INFO, the rest at DEBUG.

    The key is in no record.
    """
    simulator = Simulator(limit=2, window=5.0, api_key="secret-of-the-log", faults=[Fault(at=1, status=503)])
    with caplog.at_level(logging.DEBUG, logger="chainapi"):
        async with simulated(simulator) as session:
            await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(4)))
    levels = {record.getMessage().split()[0]: record.levelno for record in caplog.records}
    assert levels["RequestSent"] == levels["ResponseReceived"] == logging.DEBUG
    assert levels["RetryScheduled"] == levels["WaitBegan"] == logging.INFO
    assert {record.name for record in caplog.records} == {"chainapi"}
    assert "secret-of-the-log" not in caplog.text


async def test_silence_by_default(caplog: pytest.LogCaptureFixture) -> None:
    """Without a listener and with default logging, no event is made or logged."""
    simulator = Simulator(points=50)
    async with simulated(simulator) as session:
        assert not session.connection.service("metrics").events.emit
        await session.metrics.avg_tps(43114).collect()
    assert caplog.records == []


def test_events_are_records() -> None:
    """Each event is frozen, and has a repr, a docstring and a place in `Event`."""
    named = [getattr(events, name) for name in events.__all__ if name != "Event"]
    assert set(named) == set(Event.__args__), "`__all__` and `Event` in core/events.py name the same"
    for kind in named:
        assert attrs.has(kind)
        assert kind.__doc__
        assert kind.__setattr__ is not object.__setattr__
