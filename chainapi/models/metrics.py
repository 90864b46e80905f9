"""Rows of the Metrics API."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from chainapi.models.moments import moment

__all__ = ["MetricPoint"]


@frozen
class MetricPoint:
    """One data point of a metric (specification, section 2).

    `timestamp` is Unix time in whole seconds; `value` is the metric's value at that time.
    """

    timestamp: int
    value: float

    @property
    def time(self) -> datetime:
        """The timestamp as an aware datetime in UTC.

        Raises:
            ValueError: the timestamp lies outside the years 1 to 9999.

        """
        return moment(self.timestamp)
