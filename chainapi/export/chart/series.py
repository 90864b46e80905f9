"""Series of a chart, and its axes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Any, TypeAlias

from attrs import evolve, field, frozen

from chainapi._text import printable_ends
from chainapi.errors import ConfigurationError
from chainapi.models.metrics import MetricPoint

__all__ = [
    "LINES",
    "MANY",
    "MOST",
    "TINY",
    "Axis",
    "Chart",
    "Lines",
    "Point",
    "apart",
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
HUGE, TINY = 1e300, 1e-300  # beyond these, differences of numbers overflow or vanish
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


def _check_top(_chart: Any, _field: Any, top: int) -> None:
    if not 1 <= top <= MOST:
        raise ConfigurationError(f"top={top}: a chart can show 1 to {MOST} series")


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
    top: int = field(default=MOST, validator=_check_top)

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
                label: [(x, math.log10(y)) for x, y in points if y > 0] for label, points in lines.items()
            }
        lines = {label: points for label, points in lines.items() if points}
        if self.log and not lines:
            raise ConfigurationError(f"no value of {self.y} is above zero: a logarithmic axis cannot show it")
        if len(lines) > min(self.top, LINES):
            sizes = {label: median(y for _, y in points) for label, points in lines.items()}
            ranked = sorted(lines, key=sizes.__getitem__, reverse=True)[: self.top]
            lines = {label: lines[label] for label in ranked}
        return lines

    def across(self, lines: Lines, most: int) -> Axis:
        """Return the horizontal axis of lines, with at most `most` ticks."""
        low, high = _span((x for points in lines.values() for x, _ in points), DAY if self.times else 1.0)
        if not self.times:
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
    """Return a chart of points of a metric over time; `unit` is that of the values."""
    made = {
        label: visible((float(point.timestamp), point.value) for point in points)
        for label, points in series.items()
    }
    return scaled(Chart("time", y, made, times=True, unit=unit))


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
    begin, length = points[0][0] / 2, points[-1][0] / 2 - points[0][0] / 2  # the whole length may be infinite
    kept: dict[int, tuple[Point, Point]] = {}
    for point in points:
        at = min(int((point[0] / 2 - begin) / length * stretches), stretches - 1) if length else 0
        low, high = kept.get(at, (point, point))
        kept[at] = (point if point[1] < low[1] else low, point if point[1] > high[1] else high)
    return sorted({point for pair in kept.values() for point in pair})


def scaled(chart: Chart) -> Chart:
    """Return the chart in units that keep differences of numbers finite."""
    points = [point for series in chart.series.values() for point in series]
    across, up = (_unit(point[axis] for point in points) for axis in (0, 1))
    return evolve(
        chart,
        x=chart.x if across == 1 else f"{chart.x}, in {across:g}",
        y=chart.y if up == 1 else f"{chart.y}, in {up:g}",
        series={label: [(x / across, y / up) for x, y in line] for label, line in chart.series.items()},
        times=chart.times and all(EARLIEST <= x <= LATEST for x, _ in points),
    )


def _unit(values: Iterable[float]) -> float:
    largest = max(map(abs, values), default=0.0)
    return HUGE if largest > HUGE else TINY if 0 < largest < TINY else 1.0


# Axes

LARGE, SMALL = 1e12, 1e-4  # numbers from LARGE on and below SMALL have an exponent
EARLIEST, LATEST = -62_135_596_800, 253_402_300_799  # first and last second of the calendar, in Unix time
MINUTE, HOUR, DAY = 60, 3_600, 86_400
MONDAY = 4 * DAY  # the first one
SIXTIETHS = (1, 2, 5, 10, 15, 30)
STEPS = (*SIXTIETHS, *(MINUTE * n for n in SIXTIETHS), *(HOUR * n for n in (1, 2, 3, 6, 12)))
STEPS = (*STEPS, *(DAY * n for n in (1, 2, 4, 7, 14)))
MONTHS = (1, 2, 3, 6, *(12 * n * power for power in (1, 10, 100, 1_000) for n in (1, 2, 5)))


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
    return (low, high) if high - low > largest * 1e-14 else (low - beside, high + beside)


def _even(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Return multiples of 1, 2 or 5 times a power of ten, and their labels."""
    power = 10.0 ** math.floor(math.log10((high - low) / (most + 1)))
    for factor in (1, 2, 5, 10, 20, 50):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            break
    ticks = [number * step for number in range(first, last + 1)]
    largest = max(map(abs, ticks))
    return ticks, [number_label(tick, step, largest) for tick in ticks]


def _logarithmic(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Return logarithms of powers of ten, or of even numbers, and their labels."""
    powers = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    if len(powers) < 2:
        values, labels = _even(10**low, 10**high, most)
        return [*map(math.log10, values)], labels
    ticks = [float(power) for power in powers[:: -(-len(powers) // most)]]
    return ticks, [number_label(10**tick, 10**tick, 10**tick) for tick in ticks]


def _times(low: float, high: float, most: int) -> tuple[list[float], slice]:
    """Return whole times, and the part of ISO 8601 that tells them apart."""
    for step in STEPS:
        first, last = math.ceil((low - MONDAY) / step), math.floor((high - MONDAY) / step)
        if last - first < most:
            part = slice(11, 19) if step < MINUTE else slice(5, 16) if step < DAY else slice(10)
            return [float(MONDAY + number * step) for number in range(first, last + 1)], part
    begin, end = (datetime.fromtimestamp(edge, UTC) for edge in (max(low - 1, EARLIEST), high))
    after = range(begin.year * 12 + begin.month, end.year * 12 + end.month)
    months = next(months for months in MONTHS if len(after) <= most * months)
    starts = [datetime(at // 12, at % 12 + 1, 1, tzinfo=UTC) for at in after if at % months == 0]
    return [start.timestamp() for start in starts], slice(7 if months < 12 else 4)


def number_label(value: float, step: float, largest: float) -> str:
    """Return a number as an axis with this step and this largest number has it."""
    exponent = 0 if SMALL <= largest < LARGE or not largest else 3 * math.floor(math.log10(largest) / 3)
    digits = max(0, exponent - math.floor(math.log10(step) + 1e-9))
    return f"{value / 10.0**exponent:,.{digits}f}{f'e{exponent}' if exponent and value else ''}"


def apart(places: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Return places of labels around the given ones, at least `distance` apart."""
    order = sorted(range(len(places)), key=places.__getitem__)
    above, below = [*places], [*places]
    for one, other in pairwise(order):
        above[other] = max(above[other], above[one] + distance)
    for one, other in pairwise(reversed(order)):
        below[other] = min(below[other], below[one] - distance)
    found = [sum(pair) / 2 for pair in zip(above, below, strict=True)]
    for edge, at in enumerate(order):
        found[at] = max(found[at], low + edge * distance)
    for edge, at in enumerate(reversed(order)):
        found[at] = min(found[at], high - edge * distance)
    return found
