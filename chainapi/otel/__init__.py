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
from chainapi.events import CacheServed, CallBegan, CallEnded, CallEvent, Event, Restarted

try:
    from opentelemetry.metrics import MeterProvider, get_meter, get_meter_provider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import TracerProvider, get_current_span, get_tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as _missing:
    raise missing_extra("chainapi.otel needs", _missing.name, "otel") from None

from chainapi.otel.metrics import CACHED, RESTARTS, Metrics
from chainapi.otel.spans import CallTelemetry

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
        self._calls: dict[int | None, CallTelemetry] = {}  # under way

    def observe(self, session: Observed) -> None:
        """Observe the quotas of a session, as long as it lives; a `Session` calls it."""
        self._metrics.observe(session)

    def on_event(self, event: Event) -> None:
        """Record an event of a session; a `Session` calls it."""
        if isinstance(event, Restarted):
            self._metrics.record(RESTARTS, 1, {"chainapi.service": event.service})
            path = event.where.partition(" ")[2]
            restart: dict[str, str | int] = {"url.path": path, "chainapi.restarts": event.restarts}
            get_current_span().add_event("chainapi.restart", restart)
        elif isinstance(event, CacheServed):
            use = {"chainapi.service": event.service, "chainapi.cache.use": event.use}
            self._metrics.record(CACHED, 1, use)
        elif isinstance(event, CallBegan):
            self._calls[event.call] = CallTelemetry(self._tracer, self._metrics, event)
        elif isinstance(event, CallEvent) and (call := self._calls.get(event.call)) is not None:
            if isinstance(event, CallEnded):
                del self._calls[event.call]
            call.on_event(event)

    def attempt(self, call: int) -> AbstractContextManager[Mapping[str, str]]:
        """Return the context of a request, with the headers to add; a `Session` calls it."""
        under_way = self._calls.get(call)
        return nullcontext({}) if under_way is None else under_way.attempt(self._propagator)


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
