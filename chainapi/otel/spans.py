"""Spans of calls: one for a call, in it one for each attempt and each wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from attrs import define, field, frozen
from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Setter, TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from chainapi.events import (
    CallBegan,
    CallEnded,
    QuotaWaitEnded,
    RequestSent,
    ResponseReceived,
    RetryScheduled,
)
from chainapi.otel.metrics import Attributes, server_of

__all__ = ["SPANS", "CallSpans", "SpanType"]

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

SPANS = (
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


@define(eq=False, repr=False)
class CallSpans:
    """Spans of one call that is under way.

    Args:
        tracer: makes the spans.
        began: the event of the begin; it happens in the task of the call.

    """

    tracer: Tracer
    began: CallBegan
    request: Attributes = field(init=False)  # of the route
    server: Attributes = field(init=False)
    name: str = field(init=False)
    _span: Span = field(init=False)
    _context: Context = field(init=False)
    _attempt: Span | None = field(default=None, init=False)
    _sent: float = field(default=0.0, init=False)  # when that attempt began

    def __attrs_post_init__(self) -> None:
        began = self.began
        method = began.where.partition(" ")[0]
        self.name = f"{method} {began.route}"
        self.request = {
            "chainapi.service": began.service,
            "http.request.method": method,
            "url.template": began.route,
        }
        self.server = server_of(began.url)
        tag: Attributes = {"chainapi.tag": began.tag} if began.tag else {}
        attributes = {**self.request, **self._number, **tag}
        self._span = self.tracer.start_span(f"chainapi {self.name}", attributes=attributes)
        self._context = trace.set_span_in_context(self._span)

    @property
    def _number(self) -> Attributes:
        return {"chainapi.call": self.began.call or 0}

    def waited(self, event: QuotaWaitEnded) -> None:
        """Record a wait that is over."""
        now = time.time_ns()
        span = self.tracer.start_span(
            "chainapi wait for quota",
            self._context,
            attributes={
                "chainapi.service": event.service,
                **self._number,
                "chainapi.wait.reason": event.reason,
            },
            start_time=now - int(event.seconds * 1e9),
        )
        span.end(now)

    def sent(self, event: RequestSent) -> None:
        """Begin the span of an attempt."""
        again: Attributes = {"http.request.resend_count": event.attempt - 1} if event.attempt > 1 else {}
        self._sent = time.monotonic()
        full = {"url.full": self.began.url}
        self._attempt = self.tracer.start_span(
            self.name,
            self._context,
            SpanKind.CLIENT,
            {**self.request, **self._number, **self.server, **full, **again},
        )

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

    def received(self, event: ResponseReceived) -> str:
        """End the span of an attempt, and return its error.type; empty without an error."""
        error = _error_of(event)
        span, self._attempt = self._attempt, None
        if span is not None:
            if event.status is not None:
                span.set_attribute("http.response.status_code", event.status)
            _end(span, error)
        return error

    def retried(self, event: RetryScheduled, error: str) -> None:
        """Record the pause before another attempt, after an `error`."""
        self._span.add_event("chainapi.retry", {"chainapi.pause": event.wait, "error.type": error})

    def ended(self, event: CallEnded) -> float | None:
        """End the span of the call, and of an attempt under way.

        Return the seconds of that attempt; None without one.
        """
        under_way, self._attempt = self._attempt, None
        if under_way is not None:
            _end(under_way, event.error)
        self._span.set_attribute("chainapi.attempts", event.attempts)
        _end(self._span, event.error)
        return None if under_way is None else time.monotonic() - self._sent


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
