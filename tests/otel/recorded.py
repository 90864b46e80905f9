"""Spans and metrics of sessions, recorded in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chainapi.otel import OpenTelemetry

__all__ = ["Recorded"]


class Recorded:
    """Providers whose spans and metrics a test reads."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = OpenTelemetry(self.tracers, self.meters)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that ended, in that order."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans that ended and whose name begins so."""
        return [span for span in self.spans if span.name.startswith(name)]

    def points(self) -> Iterator[tuple[str, Any]]:
        """Yield each point of the metrics with the name of its metric."""
        data = self._reader.get_metrics_data()
        for resource in [] if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    yield from ((metric.name, point) for point in metric.data.data_points)

    def values(self, name: str, *attributes: str) -> dict[tuple[Any, ...], float]:
        """Return value or count of the points of a metric, by the values of some attributes."""
        found: dict[tuple[Any, ...], float] = {}
        for one, point in self.points():
            if one == name:
                key = tuple(point.attributes.get(attribute) for attribute in attributes)
                value = point.count if hasattr(point, "count") else point.value
                found[key] = found.get(key, 0) + value
        return found
