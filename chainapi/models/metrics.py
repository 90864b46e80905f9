"""Rows of the Metrics API."""

from __future__ import annotations

from typing import ClassVar

from chainapi.models.records import Record
from chainapi.models.schema import Float, Int
from chainapi.models.timestamps import UTCDatetime

__all__ = ["MetricPoint"]


class MetricPoint(Record, frozen=True):
    """One data point of a metric (specification, section 2).

    `timestamp` is Unix time in whole seconds; `value` is the metric's value at that time.
    """

    timestamp: Int
    value: Float

    time: ClassVar[UTCDatetime] = UTCDatetime("timestamp")
