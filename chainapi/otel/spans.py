"""Telemetry of one call: spans of it, its attempts and its waits, and its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from attrs import frozen
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Setter, TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from chainapi.events import (
    CallBegan,
    CallEnded,
    CallEvent,
    QuotaWaitEnded,
    RequestSent,
    ResponseReceived,
    RetryScheduled,
)
from chainapi.otel.metrics import (
    CALLS,
    REFUSALS,
    REQUESTS,
    RETRIES,
    WAITS,
    Attributes,
    Metrics,
    chosen,
    server_of,
)

__all__ = ["SPANS", "CallTelemetry", "SpanType"]

# Outcomes of a call that are no error: the caller left, or nobody needed the page any more.
_NOT_FAILED = frozenset({"", "CancelledError", "GeneratorExit", "GivenUp"})


def _suppressor() -> Callable[[], AbstractContextManager[None]]:
    """Return the context in which instrumentations of HTTP clients record nothing."""
    try:
        from opentelemetry.instrumentation.utils import suppress_instrumentation
    except ImportError:  # without that package nothing is instrumented
        return nullcontext
    return suppress_instrumentation  # older instrumentations know no narrower one


_suppressed = _suppressor()


@frozen
class SpanType:
    """Type of span: name, kind, meaning, attributes, and the names of its events."""

    name: str
    kind: str
    meaning: str
    attributes: tuple[str, ...]
    events: tuple[str, ...] = ()


_REQUEST = ("chainapi.service", "chainapi.call", "http.request.method", "url.template")

_CALL, _ATTEMPT, _WAIT = SPANS = (
    SpanType(
        "chainapi {method} {url.template}",
        "INTERNAL",
        "one call, with its waits and attempts",
        (*_REQUEST, "chainapi.tag", "chainapi.attempts", "error.type"),
        ("chainapi.retry",),
    ),
    SpanType(
        "{method} {url.template}",
        "CLIENT",
        "one attempt, from sending to the last byte",
        (
            *_REQUEST,
            "url.full",
            "url.scheme",
            "server.address",
            "server.port",
            "http.request.resend_count",
            "http.response.status_code",
            "error.type",
        ),
    ),
    SpanType(
        "chainapi wait for quota",
        "INTERNAL",
        "one wait for a turn, of 10 ms or more",
        ("chainapi.service", "chainapi.call", "chainapi.wait.reason"),
    ),
)


class CallTelemetry:
    """Telemetry of a call that is under way.

    Args:
        tracer: makes the spans.
        metrics: the instruments.
        began: the event of the begin; it happens in the task of the call.

    """

    def __init__(self, tracer: Tracer, metrics: Metrics, began: CallBegan) -> None:
        self._tracer, self._metrics = tracer, metrics
        self._names = began.where.partition(" ")[0], began.route
        self._known: Attributes = {
            "chainapi.service": began.service,
            "chainapi.call": began.call,
            "chainapi.tag": began.tag,
            "http.request.method": self._names[0],
            "url.template": began.route,
            "url.full": began.url,
            **server_of(began.url),
        }
        self._context: Context | None = None  # of the caller, and then of the call
        self._span = self._start(_CALL)
        self._context = trace.set_span_in_context(self._span)
        self._attempt: Span | None = None
        self._sent = 0.0  # when that attempt began
        self._error = ""  # error.type of the last attempt

    def on_event(self, event: CallEvent) -> None:
        """Record an event after the begin of the call, its end included."""
        match event:
            case RequestSent():
                again = {"http.request.resend_count": event.attempt - 1 or None}
                self._sent = time.monotonic()
                self._attempt = self._start(_ATTEMPT, again)
            case ResponseReceived():
                self._received(event)
            case QuotaWaitEnded():
                reason, now = {"chainapi.wait.reason": event.reason}, time.time_ns()
                self._start(_WAIT, reason, now - int(event.seconds * 1e9)).end(now)
                self._metrics.record(WAITS, event.seconds, {**self._known, **reason})
            case RetryScheduled():
                # A response that succeeded is repeated only if its body was no JSON.
                error = {"error.type": self._error or "DecodeError"}
                self._span.add_event("chainapi.retry", {"chainapi.pause": event.wait, **error})
                self._metrics.record(RETRIES, 1, {**self._known, **error})
            case CallEnded():
                self._ended(event)
            case _:
                pass  # of the stream, after the call

    @contextmanager
    def attempt(self, propagator: TextMapPropagator) -> Iterator[Mapping[str, str]]:
        """Make the span of the attempt current, and return its headers."""
        span = self._span if self._attempt is None else self._attempt
        inside = trace.set_span_in_context(span, _quiet())
        headers: dict[str, str] = {}
        propagator.inject(headers, inside, _LOWER_CASE)
        token = context.attach(inside)
        try:
            yield headers
        except GeneratorExit:  # the call was dropped: this runs in the context of another task
            raise
        except BaseException:
            context.detach(token)
            raise
        else:
            context.detach(token)

    def _start(self, kind: SpanType, more: Attributes | None = None, at: int | None = None) -> Span:
        """Start a span, at a Unix time in nanoseconds or now."""
        method, template = self._names
        name = kind.name.replace("{method}", method).replace("{url.template}", template)
        attributes = chosen(kind.attributes, {**self._known, **(more or {})})
        return self._tracer.start_span(name, self._context, SpanKind[kind.kind], attributes, start_time=at)

    def _received(self, event: ResponseReceived) -> None:
        """End the span of an attempt."""
        self._error = _error_of(event)
        span, self._attempt = self._attempt, None
        if span is not None:
            if event.status is not None:
                span.set_attribute("http.response.status_code", event.status)
            _end(span, self._error)
        known = {**self._known, "http.response.status_code": event.status, "error.type": self._error}
        self._metrics.record(REQUESTS, event.elapsed, known)
        if event.status == 429:
            self._metrics.record(REFUSALS, 1, known)

    def _ended(self, event: CallEnded) -> None:
        """End the span of the call, and of an attempt under way."""
        known = {**self._known, "error.type": event.error}
        if self._attempt is not None:
            _end(self._attempt, event.error)
            self._metrics.record(REQUESTS, time.monotonic() - self._sent, known)
        self._span.set_attribute("chainapi.attempts", event.attempts)
        _end(self._span, event.error)
        self._metrics.record(CALLS, event.elapsed, known)


class _LowerCase(Setter[dict[str, str]]):
    """Writer of headers with lower-case names."""

    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        carrier[key.lower()] = value


_LOWER_CASE = _LowerCase()


def _error_of(event: ResponseReceived) -> str:
    """Return the status code or the class of a failure; empty without one."""
    if event.status is None:
        return event.error
    return str(event.status) if event.status >= 400 else ""


def _end(span: Span, error: str) -> None:
    """End a span; without the message of an error, in which a page token may be."""
    if error:
        span.set_attribute("error.type", error)
    if error not in _NOT_FAILED:
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def _quiet() -> Context:
    """Return the current context, without the instrumentation of HTTP clients.

    They would record the request a second time, with the page token in its URL.
    """
    with _suppressed():
        return context.get_current()
