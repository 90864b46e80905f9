"""OpenTelemetry: traces and metrics of sessions (extra ``otel``).

::

    async with Session(telemetry=OpenTelemetry()) as session:
        ...
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

from chainapi._http.telemetry import Observed, set_default
from chainapi._version import __version__
from chainapi.core.extras import missing_extra
from chainapi.events import (
    CacheServed,
    CallBegan,
    CallEnded,
    CallEvent,
    Event,
    QuotaWaitEnded,
    RequestSent,
    ResponseReceived,
    Restarted,
    RetryScheduled,
)

try:
    from opentelemetry.metrics import MeterProvider, get_meter, get_meter_provider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider, get_current_span, get_tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as _missing:
    raise missing_extra("chainapi.otel needs", _missing.name, "otel") from None

from chainapi.otel.metrics import (
    CACHED,
    CALLS,
    REFUSALS,
    REQUESTS,
    RESTARTS,
    RETRIES,
    WAITS,
    Attributes,
    Metrics,
)
from chainapi.otel.spans import CallSpans

__all__ = ["ChainAPIInstrumentor", "OpenTelemetry"]

_SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
_METRICS: dict[MeterProvider, Metrics] = {}  # one set of instruments for each provider
_LOCK = Lock()  # sessions of several threads


class OpenTelemetry:
    """Traces and metrics of sessions, by the semantic conventions for HTTP.

    The span of a call is a child of the span that is current in the caller's task. No span, metric or header
    has the API key or a page token. While a request is under way, instrumentations of HTTP clients are
    suppressed: they would record it again, with its whole URL.

    Args:
        tracer_provider: makes the spans; None uses the provider of the process.
        meter_provider: makes the metrics; None uses the provider of the process.
        propagator: writes the context into headers of each request; None writes ``traceparent`` and
            ``tracestate`` only, for the baggage of an application does not concern the service.

    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = get_tracer("chainapi", __version__, tracer_provider, _SCHEMA)
        self._metrics = _metrics_of(meter_provider or get_meter_provider())
        self._propagator = propagator or TraceContextTextMapPropagator()
        self._calls: dict[int, _Observed] = {}  # under way

    def observe(self, session: Observed) -> None:
        """Observe the quotas of a session, as long as it lives; a `Session` calls it."""
        self._metrics.observe(session)

    def on_event(self, event: Event) -> None:
        """Record an event of a session; a `Session` calls it."""
        if isinstance(event, Restarted):
            self._metrics.count(RESTARTS, {"chainapi.service": event.service})
            restart: Attributes = {
                "url.path": event.where.partition(" ")[2],
                "chainapi.restarts": event.restarts,
            }
            get_current_span().add_event("chainapi.restart", restart)
        elif isinstance(event, CacheServed):
            use: Attributes = {"chainapi.service": event.service, "chainapi.cache.use": event.use}
            self._metrics.count(CACHED, use)
        elif not isinstance(event, CallEvent) or event.call is None:
            return
        elif isinstance(event, CallBegan):
            self._calls[event.call] = _Observed(CallSpans(self._tracer, event), self._metrics)
        elif isinstance(event, CallEnded):
            if (call := self._calls.pop(event.call, None)) is not None:
                call.ended(event)
        elif (call := self._calls.get(event.call)) is not None:
            call.on_event(event)

    def attempt(self, call: int) -> AbstractContextManager[Mapping[str, str]]:
        """Return the context of a request, with the headers to add; a `Session` calls it."""
        under_way = self._calls.get(call)
        return nullcontext({}) if under_way is None else under_way.spans.attempt(self._propagator)


class _Observed:
    """Call under way: its spans, and its part in the metrics."""

    def __init__(self, spans: CallSpans, instruments: Metrics) -> None:
        self.spans = spans
        self._metrics = instruments
        self._error = ""  # error.type of the last attempt

    def on_event(self, event: CallEvent) -> None:
        """Record an event between the begin and the end of the call."""
        service: Attributes = {"chainapi.service": event.service}
        match event:
            case RequestSent():
                self.spans.sent(event)
            case ResponseReceived():
                self._received(event)
            case QuotaWaitEnded():
                self.spans.waited(event)
                self._metrics.record(WAITS, event.seconds, {**service, "chainapi.wait.reason": event.reason})
            case RetryScheduled():
                # A response that succeeded is repeated only if its body was no JSON.
                error = self._error or "DecodeError"
                self.spans.retried(event, error)
                self._metrics.count(RETRIES, {**service, "error.type": error})
            case _:
                pass  # of the walk, after the call

    def ended(self, event: CallEnded) -> None:
        """Record the end of the call."""
        spans, error = self.spans, _error(event.error)
        if (seconds := spans.ended(event)) is not None:
            self._metrics.record(REQUESTS, seconds, {**spans.request, **spans.server, **error})
        self._metrics.record(CALLS, event.elapsed, {**spans.request, **spans.server, **error})

    def _received(self, event: ResponseReceived) -> None:
        spans, status = self.spans, event.status
        self._error = spans.received(event)
        code: Attributes = {} if status is None else {"http.response.status_code": status}
        attributes = {**spans.request, **spans.server, **code, **_error(self._error)}
        self._metrics.record(REQUESTS, event.elapsed, attributes)
        if status == 429:
            template = spans.request["url.template"]
            self._metrics.count(REFUSALS, {"chainapi.service": event.service, "url.template": template})


class ChainAPIInstrumentor:
    """Switch for traces and metrics of all sessions that are made from now on.

    The program ``opentelemetry-instrument`` uses it by itself.
    """

    def instrument(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        **_: Any,
    ) -> None:
        """Switch on, with the given providers or the process's."""
        set_default(OpenTelemetry(tracer_provider, meter_provider))

    def uninstrument(self, **_: Any) -> None:
        """Switch off for sessions that are made from now on."""
        set_default(None)


def _metrics_of(provider: MeterProvider) -> Metrics:
    """Return the instruments of a provider, made once.

    Each further set would add callbacks, which no provider removes.
    """
    with _LOCK:
        found = _METRICS.get(provider)
        if found is None:
            found = _METRICS[provider] = Metrics(get_meter("chainapi", __version__, provider, _SCHEMA))
        return found


def _error(name: str) -> Attributes:
    return {"error.type": name} if name else {}
