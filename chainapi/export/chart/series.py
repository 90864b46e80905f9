"""Series of a chart, and its axes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import TypeAlias

from attrs import frozen

from chainapi._text import printable_ends
from chainapi.core.arguments import whole_number
from chainapi.errors import ConfigurationError
from chainapi.models.metrics import MetricPoint

__all__ = [
    "HUGE",
    "LINES",
    "MANY",
    "MOST",
    "Axis",
    "Chart",
    "Lines",
    "Point",
    "chart_of",
    "name_of",
    "visible",
]

Point: TypeAlias = tuple[float, float]
Lines: TypeAlias = Mapping[str, Sequence[Point]]

LINES = 10  # series that people can tell apart in one chart; more have a small chart each
MOST = 40  # series in a chart
STRETCHES = 1_000  # that a picture is wide enough to show
MANY = 16 * STRETCHES  # points, which are reduced while more are read
HUGE, TINY = 1e300, 1e-300  # larger numbers are left out, smaller ones are zero: differences stay finite
LABEL_WIDTH = 20  # characters

CHAINS: Mapping[str, str] = {
    "335": "DFK Testnet",
    "4337": "Beam",
    "8021": "Numine",
    "13337": "Beam Testnet",
    "43113": "Fuji C-Chain",
    "43114": "C-Chain",
    "53935": "DFK Chain",
    "432201": "Dexalot Testnet",
    "432204": "Dexalot",
}
_ID = re.compile(r"^\d+\b", re.ASCII)


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
        top: number of series that are drawn, 1 to 40: the largest by their medians.

    """

    x: str
    y: str
    series: Lines
    times: bool = False
    unit: str = ""
    title: str = ""
    log: bool = False
    top: int = MOST

    def __attrs_post_init__(self) -> None:
        whole_number("top", self.top, 1, MOST)

    @property
    def heading(self) -> str:
        """Title, vertical axis, its unit, and the number of series if some are left out."""
        text = ": ".join(filter(None, (self.title, self.y))) + (f" ({self.unit})" if self.unit else "")
        return text if len(self.series) <= self.top else f"{text}, {self.top} largest of {len(self.series):,}"

    def lines(self) -> Lines:
        """Return the series to draw, the largest first if they do not fit into one chart.

        On a logarithmic axis, y is the logarithm of the value.

        Raises:
            ConfigurationError: the vertical axis is logarithmic, and no value is above zero.

        """
        lines = self.series
        if self.log:
            lines = {
                label: [(x, math.log10(y)) for x, y in points if y > TINY] for label, points in lines.items()
            }
        lines = {label: points for label, points in lines.items() if points}
        if self.log and not lines:
            raise ConfigurationError(f"no value of {self.y} is above zero: a logarithmic axis cannot show it")
        if len(lines) > min(self.top, LINES):
            sizes = {label: median(y for _, y in points) for label, points in lines.items()}
            ranked = sorted(sizes, key=sizes.__getitem__, reverse=True)[: self.top]
            lines = {label: lines[label] for label in ranked}
        return lines

    def across(self, lines: Lines, most: int) -> Axis:
        """Return the horizontal axis of lines, with at most `most` ticks."""
        low, high = _span((x for points in lines.values() for x, _ in points), DAY if self.times else 1.0)
        if not self.times or low < EARLIEST - DAY or high > LATEST + DAY:
            return Axis(low, high, *_even(low, high, most), self.x)
        ticks, part = _times(max(low, EARLIEST), min(high, LATEST), most)
        texts = [datetime.fromtimestamp(tick, UTC).isoformat(" ") for tick in ticks]
        since = f", from {texts[0][:10]}" if part.start else ""
        return Axis(low, high, ticks, [text[part] for text in texts], f"{self.x} (UTC){since}")

    def up(self, lines: Iterable[Sequence[Point]], most: int) -> Axis:
        """Return the vertical axis of lines, from zero unless that hides differences."""
        low, high = _span((y for points in lines for _, y in points), 1.0)
        if self.log:
            return Axis(low, high, *_logarithmic(low, high, most))
        low = 0.0 if 0 < low < high / 2 else low
        return Axis(low, high, *_even(low, high, most))


def chart_of(series: Mapping[str, Iterable[MetricPoint]], y: str = "value", unit: str = "") -> Chart:
    """Return a chart of points of a metric over time; `unit` is of the values."""
    made = {
        label: visible((float(at.timestamp), at.value) for at in points if abs(at.value) <= HUGE)
        for label, points in series.items()
    }
    return Chart("time", y, made, times=True, unit=unit)


def name_of(label: str) -> str:
    """Return the name of a series: its label, with the name of a well-known chain."""
    return printable_ends(_ID.sub(lambda found: CHAINS.get(found[0], found[0]), label, 1), LABEL_WIDTH)


# Points


def visible(points: Iterable[Point], stretches: int = STRETCHES) -> list[Point]:
    """Return the points in the order of x, reduced to what can be seen.

    Many points are divided along x into stretches of equal length, and each keeps its lowest and its highest
    point: a mean would hide peaks.
    """
    points = sorted(points)
    if len(points) <= 2 * stretches:
        return points
    begin, length = points[0][0], points[-1][0] - points[0][0]
    kept: dict[int, tuple[Point, Point]] = {}
    for point in points:
        at = min(int((point[0] - begin) / length * stretches), stretches - 1) if length else 0
        low, high = kept.get(at, (point, point))
        kept[at] = (point if point[1] < low[1] else low, point if point[1] > high[1] else high)
    return sorted({point for pair in kept.values() for point in pair})


# Axes

EARLIEST, LATEST = -62_135_596_800, 253_402_300_799  # first and last second of the calendar, in Unix time
MINUTE, HOUR, DAY = 60, 3_600, 86_400
MONDAY = 4 * DAY  # the first one
SIXTIETHS = (1, 2, 5, 10, 15, 30)
STEPS = (*SIXTIETHS, *(MINUTE * n for n in SIXTIETHS), *(HOUR * n for n in (1, 2, 3, 6, 12)))
STEPS = (*STEPS, *(DAY * n for n in (1, 2, 4, 7, 14)))
MONTHS = (1, 2, 3, 6, *(12 * n * power for power in (1, 10, 100, 1_000) for n in (1, 2, 5)))
DIGITS = 12  # of a label, at least; larger numbers have an exponent


@frozen
class Axis:
    """Axis with its limits, its ticks and their labels, and its name."""

    low: float
    high: float
    ticks: Sequence[float]
    labels: Sequence[str]
    name: str = ""

    def part(self, value: float) -> float:
        """Return the part of the axis below a value."""
        return (value - self.low) / (self.high - self.low)


def _span(values: Iterable[float], beside: float) -> tuple[float, float]:
    """Return the lowest and the highest value, made different if they are the same."""
    found = [*values] or [0.0]
    low, high = min(found), max(found)
    largest = max(abs(low), abs(high))
    beside = max(beside, largest * 1e-12)
    return (low, high) if high - low > max(largest * 1e-14, TINY) else (low - beside, high + beside)


def _multiples(low: float, high: float, most: int, steps: Sequence[float]) -> tuple[float, range]:
    """Return the first step with at most `most` multiples, and their factors."""

    def factors(step: float) -> range:
        return range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)

    step = next((step for step in steps if len(factors(step)) <= most), steps[-1])
    return step, factors(step)


def _even(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Return multiples of 1, 2 or 5 times a power of ten, and their labels."""
    power = 10.0 ** math.floor(math.log10((high - low) / (most + 1)))
    step, factors = _multiples(low, high, most, [factor * power for factor in (1, 2, 5, 10, 20, 50)])
    ticks = [factor * step for factor in factors]
    differ = 1 + math.ceil(math.log10(max(abs(low), abs(high)) / step))  # digits
    return ticks, [number_label(tick, differ) for tick in ticks]


def _logarithmic(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Return logarithms of powers of ten, or of even numbers, and their labels."""
    powers = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    if len(powers) < 2:
        values, labels = _even(10**low, 10**high, most)
        return [*map(math.log10, values)], labels
    ticks = [float(power) for power in powers[:: -(-len(powers) // most)]]
    return ticks, [number_label(10**tick) for tick in ticks]


def _times(low: float, high: float, most: int) -> tuple[list[float], slice]:
    """Return whole times, and the part of ISO 8601 that tells them apart."""
    if high - low < most * STEPS[-1]:
        step, factors = _multiples(low - MONDAY, high - MONDAY, most, STEPS)
        part = slice(11, 19) if step < MINUTE else slice(5, 16) if step < DAY else slice(10)
        return [MONDAY + factor * step for factor in factors], part
    begin, end = (datetime.fromtimestamp(edge, UTC) for edge in (max(low - 1, EARLIEST), high))
    first, last = begin.year * 12 + begin.month, end.year * 12 + end.month - 1
    months, factors = _multiples(first, last, most, MONTHS)
    starts = [divmod(factor * int(months), 12) for factor in factors]
    ticks = [datetime(year, month + 1, 1, tzinfo=UTC).timestamp() for year, month in starts]
    return ticks, slice(7 if months < 12 else 4)


def number_label(value: float, digits: int = DIGITS) -> str:
    """Return a number with at least `digits` digits, without trailing zeros."""
    return f"{value:,.{max(digits, DIGITS)}g}"


def apart(places: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Return places of labels near the given ones, at least `distance` apart."""
    found, order = [*places], sorted(range(len(places)), key=places.__getitem__)
    for at in order:
        found[at] = max(found[at], low)
        low = found[at] + distance
    for at in reversed(order):
        found[at] = min(found[at], high)
        high = found[at] - distance
    return found
