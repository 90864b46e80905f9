"""Charts of series, in a terminal and as PNG.

Terminals need plotext (extra `cli`), pictures need matplotlib (extra `plot`).

A long series is reduced to the points that can be seen: x is divided into stretches of equal length, and each
keeps its lowest and its highest point. A mean would hide peaks.
"""

from __future__ import annotations

import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen

from chainapi._text import printable
from chainapi.core.duration import DAY, HOUR
from chainapi.core.numbers import is_of
from chainapi.errors import ConfigurationError
from chainapi.export.formats import format_of
from chainapi.models.metrics import MetricPoint
from chainapi.models.timestamps import utc_datetime
from chainapi.tables.columns import SOURCE

__all__ = ["Chart", "Point", "chart_of", "draw", "read_chart", "require_pictures", "save", "visible"]

Point: TypeAlias = tuple[float, float]

LABELS = (SOURCE, "chain")  # columns that name a series: of exports, of the output of `chainapi tps`
STRETCHES = 1_000  # that a picture is wide enough to show
SAMPLE = 1_000  # first rows of a file, which decide the kind of each column
PICTURE = (10.0, 5.0)  # inches
DOTS = 150  # per inch
NAMED = 20  # series in the legend of a picture; there is no room for more
LABEL_WIDTH = 20  # characters
HUGE, TINY = 1e300, 1e-300  # beyond these, differences of numbers overflow or vanish
MARKS = "*+xo#%@&"  # of lines without a colour


@frozen
class Chart:
    """Series of points by label.

    Attributes:
        x: name of the horizontal axis.
        y: name of the vertical axis.
        series: points of each series.
        times: whether x is Unix time in seconds.

    """

    x: str
    y: str
    series: Mapping[str, Sequence[Point]]
    times: bool = False


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
class _Series:
    """Points of a series, reduced whenever they become many."""

    points: list[Point] = field(factory=list)

    def add(self, x: float, y: float) -> None:
        self.points.append((x, y))
        if len(self.points) >= 16 * STRETCHES:
            self.points = visible(self.points)


def chart_of(series: Mapping[str, Iterable[MetricPoint]], y: str = "value") -> Chart:
    """Return a chart of points of a metric over time."""
    made = {
        label: visible((float(point.timestamp), point.value) for point in points)
        for label, points in series.items()
    }
    return _scaled(Chart("time", y, made, _in_calendar(made)))


def _scaled(chart: Chart) -> Chart:
    """Return the chart in units that keep differences finite and above zero."""
    points = [point for series in chart.series.values() for point in series]
    across, up = (_unit(point[axis] for point in points) for axis in (0, 1))
    if across == up == 1:
        return chart
    scaled = {label: [(x / across, y / up) for x, y in series] for label, series in chart.series.items()}
    return evolve(chart, x=_in_units(chart.x, across), y=_in_units(chart.y, up), series=scaled)


def _unit(values: Iterable[float]) -> float:
    largest = max(map(abs, values), default=0.0)
    return HUGE if largest > HUGE else TINY if 0 < largest < TINY else 1.0


def _in_units(name: str, unit: float) -> str:
    return name if unit == 1 else f"{name}, in {unit:g}"


# From files


def read_chart(path: Path, x: str | None = None, y: str | None = None) -> Chart:
    """Return a chart of a file: one column over another, a series for each source.

    Memory does not grow with the length of the file.

    Args:
        path: the file.
        x: column of the horizontal axis; by default the only column of times.
        y: column of the vertical axis; by default the only other column of numbers.

    Raises:
        ConfigurationError: the format is unknown, the file has no such column or no rows, or the default of
            an axis is ambiguous.
        OSError: the file cannot be read.

    """
    rows = format_of(path).read(path)
    first = list(islice(rows, SAMPLE))
    if not first:
        raise ConfigurationError(f"{path} has no rows to plot")
    kinds = _kinds(first)
    if not kinds:
        raise ConfigurationError(f"{path} has no column of numbers or times: a chart needs two such columns")
    for name in (x, y):
        if name is not None and name not in kinds:
            raise ConfigurationError(f"{path} has no column {name!r} of numbers or times; {_listed(kinds)}")
    x = x or _only("time", kinds, "x", path)
    y = y or _only("number", kinds, "y", path, but=x)
    series: dict[str, _Series] = defaultdict(_Series)
    for label, across, up in _values(chain(first, rows), x, y):
        series[label].add(across, up)
    if not series:
        raise ConfigurationError(f"{path} has no row with a number in {x!r} and in {y!r}")
    found = {label: visible(read.points) for label, read in series.items()}
    return _scaled(Chart(x, y, found, kinds[x] == "time" and _in_calendar(found)))


def _values(rows: Iterable[Mapping[str, Any]], x: str, y: str) -> Iterator[tuple[str, float, float]]:
    for row in rows:
        across, up = _number(row.get(x)), _number(row.get(y))
        if across is not None and up is not None:
            yield next((str(row[name]) for name in LABELS if name in row), ""), across, up


def _kinds(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the kind, ``time`` or ``number``, of each column that can be drawn."""
    kinds: dict[str, str] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name not in LABELS):
        values = [value for row in rows if (value := row.get(name)) is not None]
        if values and all(_number(value) is not None for value in values):
            times = name.lower().endswith("timestamp") or not any(_is_plain(value) for value in values)
            kinds[name] = "time" if times else "number"
    return kinds


def _is_plain(value: Any) -> bool:
    return not isinstance(value, datetime) and not (isinstance(value, str) and value.endswith("Z"))


_DIGITS = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def _number(value: Any) -> float | None:
    """Return a number, or a time in seconds, as a coordinate; None for other values."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, str):
        if _TIME.fullmatch(value):
            return _time(value)
        value = Decimal(value) if _DIGITS.fullmatch(value) else None
    if not is_of(value, (int, float, Decimal)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # such as the 31st of February
        return None


def _only(kind: str, kinds: Mapping[str, str], axis: str, path: Path, *, but: str = "") -> str:
    names = [name for name, found in kinds.items() if found == kind and name != but]
    if len(names) == 1:
        return names[0]
    which = f"{len(names)} columns of {kind}s" if names else f"no column of {kind}s"
    raise ConfigurationError(f"{path} has {which}: choose a column for {axis}; {_listed(kinds)}")


def _listed(kinds: Mapping[str, str]) -> str:
    return "there are " + ", ".join(f"{name} ({kind})" for name, kind in kinds.items())


def _in_calendar(series: Mapping[str, Sequence[Point]]) -> bool:
    try:
        return all(utc_datetime(int(x)) is not None for points in series.values() for x, _ in points)
    except ValueError:
        return False


# In a terminal


def draw(chart: Chart, *, width: int, height: int = 20, coloured: bool = False) -> str:
    """Return the chart as text, with escape codes if `coloured`.

    Args:
        chart: the chart.
        width: width of the text in characters.
        height: number of lines.
        coloured: whether to write the escape codes of colours.

    Raises:
        ConfigurationError: plotext is not installed.

    """
    try:
        import plotext  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise ConfigurationError("plotext is not installed: pip install 'chainapi[cli]'") from None
    labels = {label: _short(label) for label in islice(chart.series, max(1, (height - 6) // 2))}
    begin, end = _span(point[0] for points in chart.series.values() for point in points)
    beside = max(map(len, labels.values()), default=0) + 8  # characters, right of the lines, for their names
    figure = plotext.figure
    figure.clear()
    figure.theme("simple" if coloured else "colorless")
    plotext.terminal.limit(width=False, height=False)  # the caller decides the size
    figure.plot_size(width, height)
    figure.title(_short(chart.y))
    for number, (label, points) in enumerate(chart.series.items()):
        marker = None if coloured or len(chart.series) == 1 else MARKS[number % len(MARKS)]
        seen = visible(points, 2 * width)
        signal = figure.signal([x for x, _ in seen], [y for _, y in seen], marker=marker).lines()
        figure.draw(signal.label(labels[label]) if label in labels else signal)
    edge = end + (end - begin) * beside / max(width - beside - 10, 10)
    bottom, top = _span(y for points in chart.series.values() for _, y in points)
    figure.ruler("y").lim(bottom, top)
    figure.legend(x=edge, y=top, ha="right", relative=True)
    ticks = _ticks(begin, end, max(2, (width - beside) // 22))
    figure.ruler("x").lim(begin, edge)
    figure.ruler("x").ticks(ticks, [_tick(tick, end - begin, times=chart.times) for tick in ticks])
    text = str(figure.build())
    more = len(chart.series) - len(labels)
    note = f"and {more:,} more\n" if more else ""
    return (text if coloured else str(plotext.uncolorize(text))).rstrip("\n") + "\n" + note


def _short(label: str) -> str:
    return printable(label, LABEL_WIDTH)


def _span(values: Iterable[float]) -> tuple[float, float]:
    found = [*values] or [0.0]
    low, high = min(found), max(found)
    beside = max(1.0, abs(low) * 1e-12)  # where all are the same
    return (low, high) if low < high else (low - beside, high + beside)


def _ticks(begin: float, end: float, count: int) -> list[float]:
    return [begin + (end - begin) * number / (count - 1) for number in range(count)]


def _tick(value: float, length: float, *, times: bool) -> str:
    if not times:
        return f"{value:,.6g}"
    form = "%Y-%m-%d" if length > 3 * DAY else "%m-%d %H:%M" if length > HOUR else "%H:%M:%S"
    return datetime.fromtimestamp(value, UTC).strftime(form)


# As a picture


def require_pictures() -> None:
    """Check that `save` can work; called before anything is fetched.

    Raises:
        ConfigurationError: matplotlib is not installed.

    """
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigurationError("matplotlib is not installed: pip install 'chainapi[plot]'") from None


def save(chart: Chart, path: Path) -> None:
    """Write the chart as a PNG of 1,500 x 750 pixels; replace an existing file.

    Raises:
        ConfigurationError: matplotlib is not installed.
        OSError: the file cannot be written.

    """
    require_pictures()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=PICTURE, dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for points in chart.series.values():
        across: Any = [datetime.fromtimestamp(x, UTC) if chart.times else x for x, _ in points]
        axes.plot(across, [y for _, y in points], linewidth=1)
    if chart.times:
        locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlabel(_verbatim(chart.x))
    axes.set_ylabel(_verbatim(chart.y))
    axes.grid(alpha=0.3)
    labels = [_verbatim(label) for label in islice(chart.series, NAMED)]
    title = f"{len(labels)} of {len(chart.series):,}" if len(chart.series) > len(labels) else None
    axes.legend(axes.get_lines()[:NAMED], labels, title=title, loc="upper left", bbox_to_anchor=(1, 1))
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    path.write_bytes(picture.getvalue())


def _verbatim(label: str) -> str:
    """Escape a label for matplotlib.

    It reads "$" as a formula and hides labels that begin with "_".
    """
    return ("\N{WORD JOINER}" if label.startswith("_") else "") + _short(label).replace("$", r"\$")
