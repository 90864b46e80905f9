"""Series that get a line, and the range of the others.

People can distinguish about ten lines. If there are more series, the largest get lines, and one band has the
range of the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from statistics import median

from attrs import frozen

from chainapi.errors import ConfigurationError
from chainapi.export.chart.series import Chart, Point

__all__ = ["Band", "select"]


@frozen
class Band:
    """Range of several series.

    Attributes:
        label: number of the series, as text.
        series: their points.

    """

    label: str
    series: Sequence[Sequence[Point]]

    def ranges(self, stretches: int) -> list[tuple[float, float, float]]:
        """Return x, the lowest and the highest y at places of equal distance."""
        across = [x for points in self.series for x, _ in points]
        begin, end = min(across), max(across)
        places = [begin + (end - begin) * (number / stretches) for number in range(stretches + 1)]
        found: dict[float, tuple[float, float]] = {}
        for points in self.series:
            for x, y in chain(_nearest(points, places), _between(points, places)):
                low, high = found.get(x, (y, y))
                found[x] = min(low, y), max(high, y)
        return [(x, *found[x]) for x in sorted(found)]


def select(chart: Chart) -> tuple[Mapping[str, Sequence[Point]], Band | None]:
    """Return the series that get a line, by label, and the band of the others.

    Raises:
        ConfigurationError: the vertical axis is logarithmic, and no value is above zero.

    """
    series = _above_zero(chart) if chart.log else chart.series
    if len(series) <= chart.top:
        return series, None
    ranked = sorted(series, key=lambda label: median(y for _, y in series[label]), reverse=True)
    others = [series[label] for label in ranked[chart.top :]]
    label = f"{len(others):,} others" if len(others) > 1 else "1 other"
    return {label: series[label] for label in ranked[: chart.top]}, Band(label, others)


def _above_zero(chart: Chart) -> dict[str, list[Point]]:
    kept = {label: [point for point in points if point[1] > 0] for label, points in chart.series.items()}
    found = {label: points for label, points in kept.items() if points}
    if not found:
        raise ConfigurationError(f"no value of {chart.y} is above zero: a logarithmic axis cannot show it")
    return found


def _nearest(points: Iterable[Point], places: Sequence[float]) -> Iterator[Point]:
    """Yield the points, each moved to the next place."""
    for x, y in points:
        yield places[min(bisect_left(places, x), len(places) - 1)], y


def _between(points: Sequence[Point], places: Sequence[float]) -> Iterator[Point]:
    """Yield the points of the lines between neighboring points at the places."""
    for (begin, first), (end, last) in pairwise(points):
        for x in places[bisect_left(places, begin) : bisect_right(places, end)]:
            part = (x - begin) / (end - begin) if end > begin else 0.0
            yield x, first * (1 - part) + last * part
