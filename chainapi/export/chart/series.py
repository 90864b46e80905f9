"""Series of a chart, reduced to the points that can be seen.

A long series is divided along x into stretches of equal length, and each keeps its lowest and its highest
point. A mean would hide peaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen

from chainapi.errors import ConfigurationError
from chainapi.models.metrics import MetricPoint
from chainapi.models.timestamps import utc_datetime

__all__ = ["MOST", "TOP", "Chart", "Point", "Series", "chart_of", "in_calendar", "scaled", "span", "visible"]

Point: TypeAlias = tuple[float, float]

TOP = 10  # series with a line: colors that people can distinguish
MOST = 40  # series that can have one: each color in four styles
STRETCHES = 1_000  # that a picture is wide enough to show
HUGE, TINY = 1e300, 1e-300  # beyond these, differences of numbers overflow or vanish


def _check_top(_chart: Any, _field: Any, top: int) -> None:
    if not 1 <= top <= MOST:
        raise ConfigurationError(f"top={top}: a chart can show 1 to {MOST} series as lines")


@frozen
class Chart:
    """Series of points by label.

    Attributes:
        x: name of the horizontal axis.
        y: name of the vertical axis.
        series: points of each series.
        times: whether x is Unix time in seconds; its axis is in UTC.
        unit: unit of y; empty if unknown.
        title: text above the chart.
        log: whether the vertical axis is logarithmic; points at zero or below are left out.
        top: number of series that get a line, 1 to 40; of more series the largest by their medians. A gray
            band shows the range of the others.

    """

    x: str
    y: str
    series: Mapping[str, Sequence[Point]]
    times: bool = False
    unit: str = ""
    title: str = ""
    log: bool = False
    top: int = field(default=TOP, validator=_check_top)

    @property
    def x_label(self) -> str:
        """Name of the horizontal axis, with the time zone."""
        return f"{self.x} (UTC)" if self.times else self.x

    @property
    def y_label(self) -> str:
        """Name of the vertical axis, with the unit."""
        return f"{self.y} ({self.unit})" if self.unit else self.y


def visible(points: Iterable[Point], stretches: int = STRETCHES) -> list[Point]:
    """Return the points in the order of x, reduced to what can be seen.

    Of many points only the lowest and the highest of each stretch are kept.
    """
    points = sorted(points)
    if len(points) <= 2 * stretches:
        return points
    unit = 1.0 if math.isfinite(points[-1][0] - points[0][0]) else 2.0
    begin = points[0][0] / unit
    length = points[-1][0] / unit - begin
    kept: dict[int, tuple[Point, Point]] = {}
    for point in points:
        at = min(int((point[0] / unit - begin) / length * stretches), stretches - 1) if length else 0
        low, high = kept.get(at, (point, point))
        kept[at] = (point if point[1] < low[1] else low, point if point[1] > high[1] else high)
    return sorted({point for pair in kept.values() for point in pair})


@define
class Series:
    """Points of a series, reduced whenever they become many."""

    points: list[Point] = field(factory=list)

    def add(self, x: float, y: float) -> None:
        """Add a point."""
        self.points.append((x, y))
        if len(self.points) >= 16 * STRETCHES:
            self.points = visible(self.points)


def chart_of(series: Mapping[str, Iterable[MetricPoint]], y: str = "value", unit: str = "") -> Chart:
    """Return a chart of points of a metric over time; `unit` is that of the values."""
    made = {
        label: visible((float(point.timestamp), point.value) for point in points)
        for label, points in series.items()
    }
    return scaled(Chart("time", y, made, in_calendar(made), unit))


def span(values: Iterable[float]) -> tuple[float, float]:
    """Return the lowest and the highest value, made different if they are the same."""
    found = [*values] or [0.0]
    low, high = min(found), max(found)
    largest = max(abs(low), abs(high))
    beside = max(1.0, largest * 1e-12)
    return (low, high) if high - low > largest * 1e-14 else (low - beside, high + beside)


def in_calendar(series: Mapping[str, Sequence[Point]]) -> bool:
    """Check that each x is a Unix time within the calendar."""
    try:
        return all(utc_datetime(int(x)) is not None for points in series.values() for x, _ in points)
    except ValueError:
        return False


def scaled(chart: Chart) -> Chart:
    """Return the chart in units that keep differences finite and above zero."""
    points = [point for series in chart.series.values() for point in series]
    across, up = (_unit(point[axis] for point in points) for axis in (0, 1))
    if across == up == 1:
        return chart
    made = {label: [(x / across, y / up) for x, y in series] for label, series in chart.series.items()}
    return evolve(chart, x=_in_units(chart.x, across), y=_in_units(chart.y, up), series=made)


def _unit(values: Iterable[float]) -> float:
    largest = max(map(abs, values), default=0.0)
    return HUGE if largest > HUGE else TINY if 0 < largest < TINY else 1.0


def _in_units(name: str, unit: float) -> str:
    return name if unit == 1 else f"{name}, in {unit:g}"
