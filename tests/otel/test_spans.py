"""Spans of calls: their parents, their attributes, and the headers that carry them on."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from chainapi import Limit, Session
from chainapi.errors import APITimeoutError, DeadlineExceededError, NotFoundError
from chainapi.events import Event
from chainapi.otel import OpenTelemetry
from chainapi.otel.spans import SPANS
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response
from tests.otel.recorded import Recorded
from tests.sessions import simulated

CHAIN = "GET /v1/chains/{chainId}"


class Service:
    """Transport that keeps its requests, and answers after some seconds."""

    def __init__(self, seconds: float = 0.0, status: int = 200) -> None:
        self.requests: list[Request] = []
        self.current: list[int] = []  # ids of the spans that were current
        self.seconds, self.status = seconds, status

    async def send(self, request: Request) -> Response:
        """Keep the request, and answer."""
        self.requests.append(request)
        self.current.append(trace.get_current_span().get_span_context().span_id)
        await asyncio.sleep(self.seconds)
        return Response(self.status, {}, b"{}")

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""

    def session(self, recorded: Recorded, **options: object) -> Session:
        """Return a session that is recorded."""
        return Session(
            metrics_base_url="https://metrics.test:8443",
            transport=self,
            telemetry=recorded.telemetry,
            **options,  # type: ignore[arg-type]
        )


def parent_of(span: ReadableSpan) -> int | None:
    """Return the id of the parent of a span."""
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    return int(span.context.span_id)


async def test_call_has_a_span_with_one_for_each_attempt() -> None:
    """The attempts of a call are client spans in its span; the second one is counted as repeated."""
    recorded = Recorded()
    simulator = Simulator(faults=[Fault(at=1, status=502)])
    async with simulated(simulator, telemetry=recorded.telemetry, tag="batch") as session:
        await session.data.chain(43114)
    first, second, call = recorded.spans
    assert (first.name, second.name, call.name) == (CHAIN, CHAIN, f"chainapi {CHAIN}")
    assert [span.kind for span in (first, second, call)] == [*[SpanKind.CLIENT] * 2, SpanKind.INTERNAL]
    assert parent_of(first) == parent_of(second) == id_of(call)
    common = {
        "chainapi.service": "data",
        "http.request.method": "GET",
        "url.template": "/v1/chains/{chainId}",
    }
    attempt = {
        **common,
        "url.full": f"{simulator.data_base_url}/v1/chains/43114",
        "url.scheme": "https",
        "server.address": "simulator.invalid",
        "server.port": 443,
    }
    shown = [dict(span.attributes or {}) for span in (first, second, call)]
    first_number, *numbers = [one.pop("chainapi.call") for one in shown]
    assert numbers == [first_number] * 2
    assert shown == [
        {**attempt, "http.response.status_code": 502, "error.type": "502"},
        {**attempt, "http.response.status_code": 200, "http.request.resend_count": 1},
        {**common, "chainapi.tag": "batch", "chainapi.attempts": 2},
    ]
    assert [span.status.status_code for span in (first, second, call)] == [
        StatusCode.ERROR,
        StatusCode.UNSET,
        StatusCode.UNSET,
    ]
    assert [event.name for event in call.events] == ["chainapi.retry"]


async def test_port_of_an_origin_is_an_attribute() -> None:
    """A port in the base address is the port of the span; a path without a route has placeholders."""
    recorded, service = Recorded(), Service()
    async with service.session(recorded) as session:
        await session.metrics.get("/v1/things/0x12")
    attempt = recorded.spans[0]
    assert attempt.attributes is not None
    assert (attempt.attributes["server.port"], attempt.name) == (8443, "GET /v1/things/*")


async def test_failed_call_has_an_error() -> None:
    """A call that fails has the name of its error, and no message of the service."""
    recorded = Recorded()
    async with simulated(Simulator(), telemetry=recorded.telemetry) as session:
        with pytest.raises(NotFoundError):
            await session.data.chain(9)
    attempt, call = recorded.spans
    assert attempt.attributes is not None
    assert call.attributes is not None
    assert (attempt.attributes["error.type"], call.attributes["error.type"]) == ("404", "NotFoundError")
    assert call.status.status_code is StatusCode.ERROR
    assert call.status.description is None
    assert call.events == ()


async def test_current_span_of_the_caller_is_the_parent() -> None:
    """Calls are children of the span that is current in their task, pages of a prefetch included."""
    recorded = Recorded()
    tracer = recorded.tracers.get_tracer("application")
    async with simulated(Simulator(points=450), telemetry=recorded.telemetry) as session:

        async def one(name: str, prefetch: int) -> None:
            with tracer.start_as_current_span(name):
                assert len(await session.metrics.avg_tps(43114, prefetch=prefetch).collect()) == 450

        await asyncio.gather(one("plain", 0), one("ahead", 2))
    for name in ("plain", "ahead"):
        (walk,) = recorded.named(name)
        children = [span for span in recorded.named("chainapi GET") if parent_of(span) == id_of(walk)]
        assert len(children) == 5
    assert len(recorded.named("chainapi GET")) == 10


async def test_restart_is_an_event_of_the_walk() -> None:
    """A restart is an event of the span around the walk."""
    recorded = Recorded()
    simulator = Simulator(points=150, faults=[Fault(at=2, status=400)])
    async with simulated(simulator, telemetry=recorded.telemetry) as session:
        with recorded.tracers.get_tracer("application").start_as_current_span("walk"):
            await session.metrics.avg_tps(43114).collect()
    (walk,) = recorded.named("walk")
    assert [(event.name, dict(event.attributes or {})) for event in walk.events] == [
        ("chainapi.restart", {"url.path": "/v1/avg_tps/43114", "chainapi.restarts": 1})
    ]


async def test_wait_for_quota_has_a_span() -> None:
    """A wait has a span of its length in the span of the call, with the reason."""
    recorded = Recorded()
    async with simulated(Simulator(), telemetry=recorded.telemetry, rate=Limit(1, per=5.0)) as session:
        for _ in range(2):
            await session.data.chain(43114)
    (wait,) = recorded.named("chainapi wait")
    assert parent_of(wait) == id_of(recorded.spans[-1])
    assert wait.attributes is not None
    assert wait.attributes["chainapi.wait.reason"] == "rate"
    assert wait.start_time is not None
    assert wait.end_time is not None
    assert (wait.end_time - wait.start_time) / 1e9 == pytest.approx(5.0, abs=0.02)


async def test_traceparent_names_the_attempt() -> None:
    """Each request carries the trace and the span of its attempt, which is current meanwhile."""
    recorded, service = Recorded(), Service(status=503)
    async with service.session(recorded, max_attempts=2) as session:
        with pytest.raises(Exception, match="503"):
            await session.metrics.get("/v1/x")
    assert trace.get_current_span() is trace.INVALID_SPAN
    attempts = recorded.named("GET")
    assert len(attempts) == 2
    for span, request, current in zip(attempts, service.requests, service.current, strict=True):
        assert span.context is not None
        assert current == span.context.span_id
        trace_id, span_id = span.context.trace_id, span.context.span_id
        assert request.headers["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-")


async def test_headers_of_the_caller_win() -> None:
    """A header that the caller set is not replaced; baggage is sent only by a propagator for it."""
    recorded, service = Recorded(), Service()
    token = context.attach(baggage.set_baggage("user", "17"))
    async with service.session(recorded) as session:
        await session.metrics.get("/v1/x")
        await session.with_options(headers={"traceparent": "mine"}).metrics.get("/v1/x")
    telemetry = OpenTelemetry(recorded.tracers, recorded.meters, propagator=W3CBaggagePropagator())
    async with Session(
        metrics_base_url="https://metrics.test", transport=service, telemetry=telemetry
    ) as session:
        await session.metrics.get("/v1/x")
    context.detach(token)
    plain, own, bags = (request.headers for request in service.requests)
    assert "baggage" not in plain
    assert own["traceparent"] == "mine"
    assert (bags["baggage"], "traceparent" in bags) == ("user=17", False)


async def test_given_up_calls_end_their_spans() -> None:
    """A cancelled call and a deadline end all spans; only the deadline is an error."""
    recorded, service = Recorded(), Service(seconds=60.0)
    async with service.session(recorded) as session:
        task = asyncio.create_task(session.metrics.get("/v1/x"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(DeadlineExceededError):
            await session.metrics.get("/v1/x", deadline=1.0)
        with pytest.raises(APITimeoutError):
            await session.with_options(timeout=1.0, max_attempts=1).metrics.get("/v1/x")
    outcomes = [
        ((span.attributes or {}).get("error.type"), span.status.status_code) for span in recorded.spans
    ]
    assert outcomes == [
        ("CancelledError", StatusCode.UNSET),
        ("CancelledError", StatusCode.UNSET),
        ("DeadlineExceededError", StatusCode.ERROR),
        ("DeadlineExceededError", StatusCode.ERROR),
        ("APITimeoutError", StatusCode.ERROR),
        ("APITimeoutError", StatusCode.ERROR),
    ]


def test_dropped_call_ends_its_spans(caplog: pytest.LogCaptureFixture) -> None:
    """A call whose loop is gone ends its spans when it is dropped, without a complaint."""
    recorded, service = Recorded(), Service(seconds=60.0)
    loop = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[object]:
        task = asyncio.create_task(service.session(recorded).metrics.get("/v1/x"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    with caplog.at_level(logging.WARNING):
        task = loop.run_until_complete(begin())
        assert service.requests
        loop.close()
        del task
        gc.collect()
    assert [span.name for span in recorded.spans] == ["GET /v1/x", "chainapi GET /v1/x"]
    assert caplog.records == []


async def test_tables_name_each_attribute() -> None:
    """The tables of spans name exactly the attributes and events that spans have."""
    recorded = Recorded()
    faults = [Fault(at=2, status=503), Fault(at=4, status=404)]
    options = {"telemetry": recorded.telemetry, "tag": "t", "rate": Limit(1, per=5.0)}
    async with simulated(Simulator(faults=faults), **options) as session:
        await session.data.chain(43114)
        await session.data.chain(43114)
        with pytest.raises(NotFoundError):
            await session.data.chain(43114)
    for table, name in zip(SPANS, ("chainapi GET", "GET", "chainapi wait"), strict=True):
        spans = recorded.named(name)
        assert {kind for span in spans for kind in (span.attributes or {})} == set(table.attributes)
        assert {event.name for span in spans for event in span.events} == set(table.events)
        assert {span.kind.name for span in spans} == {table.kind}


async def test_coalesced_calls_share_a_span() -> None:
    """Calls that share a request have one span, in the trace of the first of them."""
    recorded = Recorded()
    tracer = recorded.tracers.get_tracer("application")
    async with simulated(Simulator(latency=1.0), telemetry=recorded.telemetry) as session:
        view = session.with_options(coalesce=True)

        async def one(name: str) -> None:
            with tracer.start_as_current_span(name):
                await view.data.chain(43114)

        await asyncio.gather(one("first"), one("second"))
    (call,), (first,) = recorded.named("chainapi GET"), recorded.named("first")
    assert parent_of(call) == id_of(first)


@pytest.mark.parametrize("kind", ["CallBegan", "RequestSent", "ResponseReceived", "CallEnded"])
async def test_spans_end_although_a_listener_raises(kind: str) -> None:
    """A listener of the user that raises ends its call, and with it all spans."""
    recorded = Recorded()

    def listen(event: Event) -> None:
        if type(event).__name__ == kind:
            raise LookupError(kind)

    async with simulated(Simulator(), telemetry=recorded.telemetry, on_event=listen) as session:
        with pytest.raises(LookupError):
            await session.data.chain(43114)
    assert recorded.telemetry._calls == {}
    assert [span.name for span in recorded.spans][-1] == f"chainapi {CHAIN}"
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_page_token_in_a_body_is_in_no_span() -> None:
    """A list that is read with POST has its method and route in its spans, and no token."""
    sent: list[Request] = []
    answers = [b'{"addresses": ["0x01"], "nextPageToken": "tokenOfBody"}', b'{"addresses": []}']

    class Posted:
        async def send(self, request: Request) -> Response:
            sent.append(request)
            return Response(200, {}, answers.pop(0))

        async def aclose(self) -> None: ...

    recorded = Recorded()
    async with Session(
        metrics_base_url="https://metrics.test", transport=Posted(), telemetry=recorded.telemetry
    ) as session:
        await session.metrics.looking_glass.composite_query(operator="OR", queries=[]).collect()
    assert b"tokenOfBody" in (sent[1].body or b"")
    assert {span.name for span in recorded.spans} == {
        "POST /v2/lookingGlass/compositeQuery",
        "chainapi POST /v2/lookingGlass/compositeQuery",
    }
    assert [span.to_json() for span in recorded.spans if "tokenOfBody" in span.to_json()] == []
