"""Events of a session, for a listener and for the logger `chainapi`."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise, product
from typing import Any

import attrs
import pytest

import chainapi.events as events
from chainapi import Limit, LimiterOptions, merge
from chainapi.errors import (
    APIConnectionError,
    ChainAPIError,
    DecodeError,
    NotFoundError,
    PageTokenExpiredError,
    PaginationLoopError,
)
from chainapi.events import (
    CallBegan,
    CallEnded,
    CallEvent,
    Event,
    LoopFound,
    PageReceived,
    QuotaWaitBegan,
    QuotaWaitEnded,
    RequestSent,
    ResponseReceived,
    Restarted,
    RetryScheduled,
    WaitBegan,
    WaitEnded,
)
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Response
from tests.client.services import Script, time
from tests.sessions import Answering, reaching, simulated

TURNING = b'{"rows": [{"n": 1}], "nextPageToken": "a"}'


async def test_stream_of_events() -> None:
    """Each request, response, retry and page of a walk has an event, in order."""
    heard: list[Any] = []
    simulator = Simulator(points=150, faults=[Fault(at=2, status=502)], latency=0.25)
    async with simulated(simulator, on_event=heard.append) as session:
        await session.metrics.avg_tps(43114).collect()
    attempt = [RequestSent, ResponseReceived]
    assert [type(event) for event in heard] == [
        *[CallBegan, *attempt, CallEnded, PageReceived],
        *[CallBegan, *attempt, RetryScheduled, *attempt, CallEnded, PageReceived],
    ]
    where, number, second = "GET /v1/avg_tps/43114", heard[0].call, heard[5].call
    assert [(event.where, event.call) for event in heard] == [(where, number)] * 5 + [(where, second)] * 8
    began, first, answer, ended, page = heard[:5]
    assert began.url == f"{simulator.metrics_base_url}/v1/avg_tps/43114"
    assert began.route == "/v1/avg_tps/{chainId}"
    assert heard[5].url.endswith("?pageToken=REDACTED")
    assert first == RequestSent("metrics", where, 1, call=number)
    assert ended == CallEnded("metrics", where, ended.elapsed, 1, call=number)
    assert page == PageReceived("metrics", where, 1, 100, call=number)
    assert answer.status == 200
    assert answer.size > 1_000
    assert [ended.elapsed, answer.elapsed] == pytest.approx([0.25, 0.25], abs=1e-6)
    retry, again, last = heard[8], heard[9], heard[11]
    assert (retry.attempt, retry.reason) == (1, "502")
    assert again == RequestSent("metrics", where, 2, call=second)
    assert (last.attempts, last.error) == (2, "")


async def test_waits_are_reported() -> None:
    """A service that waits, and each of its calls, has events at both ends, with reason and length."""
    heard: list[tuple[float, Event]] = []
    simulator = Simulator(limit=5, window=30.0, latency=0.05)
    async with simulated(simulator, on_event=lambda event: heard.append((time(), event))) as session:
        await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(12)))
    began = [(at, event) for at, event in heard if isinstance(event, WaitBegan)]
    ended = [(at, event) for at, event in heard if isinstance(event, WaitEnded)]
    assert began
    for (start, first), (end, last) in zip(began, ended, strict=True):
        assert (first.service, first.reason) == (last.service, last.reason)
        # A wait for quota may end earlier: one request tests whether it is right.
        assert first.reason == "quota" or end - start >= first.seconds - 1e-6
    assert "stop" in {event.reason for _, event in began}
    waits: dict[int | None, float] = {}
    long = []
    for at, event in heard:
        if isinstance(event, QuotaWaitBegan):
            assert event.call not in waits
            waits[event.call] = at - 0.01
            assert event.reason in ("turn", "stop", "quota")
        elif isinstance(event, QuotaWaitEnded):
            assert event.seconds == pytest.approx(at - waits.pop(event.call), abs=1e-6)
            long += [event.reason] * (event.seconds > 1)
        elif isinstance(event, RequestSent):
            assert event.call not in waits, "no request leaves in a wait"
    assert waits == {}
    assert len(long) >= 3
    assert {*long} <= {"stop", "quota"}


async def test_wait_for_quota_is_reported() -> None:
    """Waits for quota and for the user's own rate have events with their reason."""
    heard: list[Event] = []
    simulator = Simulator(limit=5, window=30.0, latency=0.05)
    async with simulated(simulator, on_event=heard.append, rate=Limit(1, per=3.0)) as session:
        await asyncio.gather(*(session.metrics.avg_tps(43114).collect(limit=1) for _ in range(3)))
    assert {event.reason for event in heard if isinstance(event, WaitBegan)} == {"rate"}
    heard.clear()
    async with simulated(simulator, on_event=heard.append, limiter=LimiterOptions(probe=False)) as session:
        await asyncio.gather(*(session.data.get("/v1/chains/43114") for _ in range(12)))
    assert {event.reason for event in heard if isinstance(event, WaitBegan)} == {"quota"}


async def test_a_wait_whose_end_moves_a_little_is_reported_once() -> None:
    """Requests that wait while each response moves the end of the wait have one event a second at most."""
    heard: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, WaitBegan):
            heard.append(time())

    # The service repeats that nothing remains for 5 seconds: each response moves the end of the wait.
    headers = {
        "ratelimit-policy": "1000;w=60",
        "ratelimit-limit": "1000",
        "ratelimit-remaining": "0",
        "ratelimit-reset": "5",
    }
    transport = Answering(headers=headers, seconds=0.05)
    async with reaching(transport, on_event=listen) as session:
        await asyncio.gather(*(session.data.get(f"/v1/chains/{chain}") for chain in range(1, 20)))
    assert heard
    assert all(after - before >= 1.0 for before, after in pairwise(heard)), len(heard)


async def test_each_silence_is_a_reported_wait() -> None:
    """Without limit headers too, each second in which no request leaves or is under way lies in a wait."""
    heard: list[tuple[float, Event]] = []
    simulator = Simulator(seed=7, points=500, metrics_limit=12, metrics_window=6.0, latency=0.2)
    async with simulated(simulator, on_event=lambda event: heard.append((time(), event))) as session:
        async for _ in merge([session.metrics.avg_tps(chain) for chain in (43114, 53935, 432204, 4337)]):
            pass
    assert any(isinstance(event, WaitBegan) for _, event in heard)
    waits = False
    for (before, event), (after, _) in pairwise(heard):
        if isinstance(event, WaitBegan | WaitEnded):
            waits = isinstance(event, WaitBegan)
        assert waits or after - before < 1.0, (before, event, after)


async def test_events_of_a_call_have_its_number_and_tag() -> None:
    """Each event of a call and of a walk has the call's own number and tag, or the session's tag."""
    heard: list[Event] = []
    async with simulated(Simulator(points=150), on_event=heard.append, tag="service") as session:
        await asyncio.gather(
            session.data.get("/v1/chains/43114"),
            session.data.get("/v1/chains", tag="batch"),
            session.metrics.avg_tps(43114, tag="walk").collect(),
        )
    calls: dict[int | None, list[CallEvent]] = {}
    for event in heard:
        assert isinstance(event, CallEvent)
        calls.setdefault(event.call, []).append(event)
    assert None not in calls
    shapes = sorted(
        (events[0].where, {event.tag for event in events}, len(events)) for events in calls.values()
    )
    assert shapes == [
        ("GET /v1/avg_tps/43114", {"walk"}, 5),
        ("GET /v1/avg_tps/43114", {"walk"}, 5),
        ("GET /v1/chains", {"batch"}, 4),
        ("GET /v1/chains/43114", {"service"}, 4),
    ]
    assert all(len({event.where for event in events}) == 1 for events in calls.values())


async def test_waits_for_the_own_rate_are_predicted() -> None:
    """A call that waits for the own ceiling learns for how long; cancelled, it ends its wait and itself."""
    heard: list[Any] = []
    async with simulated(Simulator(), on_event=heard.append, rate=Limit(1, per=5.0)) as session:
        for _ in range(2):
            await session.data.get("/v1/chains/43114")
        waits = [event for event in heard if isinstance(event, QuotaWaitBegan | QuotaWaitEnded)]
        assert [wait.reason for wait in waits] == ["rate", "rate"]
        assert [wait.seconds for wait in waits] == pytest.approx([4.99, 5.0], abs=0.02)
        task = asyncio.create_task(session.data.get("/v1/chains/1"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait((task,))
    wait, end = heard[-2:]
    assert (type(wait), type(end)) == (QuotaWaitEnded, CallEnded)
    assert wait.seconds == pytest.approx(1.0, abs=0.01)
    assert (end.error, end.attempts, end.call) == ("CancelledError", 0, wait.call)


async def test_errors_have_the_number_of_their_call_and_the_id_of_its_request() -> None:
    """An error has the number that its events have, and the request id of the last response."""
    heard: list[Event] = []
    missed = Response(404, {"x-request-id": "r-17\x1b"}, b'{"message": "no"}')
    script = Script(missed, APIConnectionError("it broke"))
    async with reaching(script, on_event=heard.append, max_attempts=1) as session:
        with pytest.raises(NotFoundError) as missing:
            await session.metrics.get("/v1/x")
        with pytest.raises(APIConnectionError) as broken:
            await session.metrics.get("/broken")
    ended = [event for event in heard if isinstance(event, CallEnded)]
    assert [event.error for event in ended] == ["NotFoundError", "APIConnectionError"]
    assert [event.call for event in ended] == [missing.value.call, broken.value.call]
    assert missing.value.request_id == "r-17\\x1b"
    assert broken.value.request_id is None
    answers = [event.request_id for event in heard if isinstance(event, ResponseReceived)]
    assert answers == ["r-17\\x1b", None]


@pytest.mark.parametrize(
    ("second", "error"), [((400, b"{}"), PageTokenExpiredError), ((200, TURNING), PaginationLoopError)]
)
async def test_errors_of_a_walk_have_the_number_and_request_id_of_its_last_request(
    second: tuple[int, bytes], error: type[ChainAPIError]
) -> None:
    """A refused token and a repeated page raise errors that lead to the request that the service answered."""
    heard: list[Event] = []
    answers = [Response(200, {"x-request-id": "r1"}, TURNING)]
    answers += [Response(second[0], {"x-request-id": f"r{number}"}, second[1]) for number in (2, 3)]
    async with reaching(Script(*answers), on_event=heard.append, on_expired="raise") as session:
        with pytest.raises(error) as caught:
            await session.metrics.list("/v1/rows").collect()
    last = [event for event in heard if isinstance(event, ResponseReceived)][-1]
    assert (caught.value.call, caught.value.request_id) == (last.call, last.request_id)
    assert None not in (last.call, last.request_id)


@attrs.frozen
class Named:
    """Row of a class of the program."""

    name: str


async def test_a_wrong_name_of_a_field_is_an_error_of_its_request() -> None:
    """The error of a row that lacks the named field, or has no number there, leads to its response."""
    named: list[tuple[dict[str, Any], int]] = [
        ({"key": "nope"}, 1),
        ({"descending_key": "nope"}, 2**21),  # a large one
        ({"descending_key": "name"}, 1),
    ]
    for (fields, length), model, listen in product(named, (None, Named), (None, lambda _: None)):
        row = b'{"name": "%s"}' % (b"x" * length)
        service = Answering(b'{"rows": [%s]}' % row, headers={"x-request-id": "r-1"})
        async with reaching(service, on_event=listen, limiter=LimiterOptions(isolated=True)) as session:
            pages = session.data.list("/v1/rows", items="rows", model=model, **fields)
            said = r"which .*key= names in the response to GET /v1/rows$"
            with pytest.raises(DecodeError, match=said) as caught:
                await pages.collect()
        error = caught.value
        assert (error.where, error.request_id) == ("GET /v1/rows", "r-1")
        assert error.checkpoint == pages.checkpoint
        assert error.call is not None


async def test_request_id_of_a_caller_passes_through() -> None:
    """Headers of a view are on the wire: a request id, and the trace of the caller."""
    heard: list[Event] = []
    given = {"X-Request-ID": "mine", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    script = Script(lambda sent: Response(200, {"x-request-id": sent.headers["x-request-id"]}, b"{}"))
    async with reaching(script, on_event=heard.append) as session:
        await session.with_options(headers=given).metrics.get("/v1/x")
    assert script.requests[0].headers["traceparent"] == given["traceparent"]
    assert [event.request_id for event in heard if isinstance(event, ResponseReceived)] == ["mine"]


async def test_observer_that_raises() -> None:
    """An observer that raises at a wait reaches the loop's handler, and the requests are served."""
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
    """A broken connection, a restart and a loop have an event each, with the call that led to it."""
    heard: list[Any] = []
    body = b'{"results": [{"timestamp": 1, "value": 1}], "nextPageToken": "t"}'
    good, refused = Response(200, {}, body), Response(400, {}, b"{}")
    script = Script(APIConnectionError("it broke"), good, refused, good)
    async with reaching(script, on_event=heard.append, tag="walk") as session:
        pages = session.metrics.avg_tps(1)
        await anext(pages)
        await anext(pages)
        with pytest.raises(PaginationLoopError):
            await anext(pages)
    broken = heard[2]
    assert (broken.status, broken.fault, broken.error) == (None, "it broke", "APIConnectionError")
    call = next(event.call for event in heard if isinstance(event, CallEnded) and event.error)
    told = [(one.restarts, one.call, one.tag) for one in heard if isinstance(one, Restarted)]
    assert told == [(1, call, "walk")]
    assert [event.page for event in heard if isinstance(event, LoopFound)] == [2]


async def test_logging(caplog: pytest.LogCaptureFixture) -> None:
    """The logger `chainapi` gets waits and retries at INFO, the rest at DEBUG, and never the key."""
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
    """Without a listener and with default logging, nothing is logged."""
    simulator = Simulator(points=50)
    async with simulated(simulator) as session:
        await session.metrics.avg_tps(43114).collect()
    assert caplog.records == []


def test_events_are_records() -> None:
    """Each event is frozen, and has a repr, a docstring and a place in `Event`."""
    named = [getattr(events, name) for name in events.__all__ if name not in ("Event", "CallEvent")]
    assert set(named) == set(Event.__args__), "`__all__` and `Event` in core/events.py name the same"
    for kind in named:
        assert attrs.has(kind)
        assert kind.__doc__
        assert kind.__setattr__ is not object.__setattr__
