"""Charts as text: lines by plotext (extra `cli`), or a sparkline for each series."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from chainapi._text import printable
from chainapi.core.extras import missing_extra
from chainapi.export.chart.series import (
    LINES,
    Axis,
    Chart,
    Lines,
    Point,
    apart,
    name_of,
    number_label,
    visible,
)

__all__ = ["draw"]

COLORS = (12, 10, 9, 14, 13, 11, 208, 99, 130, 43)  # of the 256 of terminals
BLOCKS = "hd"  # plotext's name of blocks of a quarter of a character
MARKS = "*+xo#%@&=~"
BARS = "▁▂▃▄▅▆▇█"
AROUND, LEAST = 5, 12  # lines around a chart, and of a whole one
TICK_WIDTH, TICK_HEIGHT = 14, 2
NARROWEST, SPARKLINE = 24, 10  # characters of a chart, and of a sparkline, at least


def draw(chart: Chart, *, width: int, height: int = 20, colored: bool = False) -> str:
    """Return the chart as text, with escape codes if `colored`.

    Args:
        chart: the chart.
        width: width of the text in characters.
        height: number of lines; more than ten series have a line each instead.
        colored: whether to write the escape codes of colors.

    Raises:
        ConfigurationError: plotext is not installed, or a logarithmic axis has no value above zero.

    """
    lines = chart.lines()
    rows = _table(chart, lines, width) if len(lines) > LINES else _plot(chart, lines, width, height, colored)
    return "".join(f"{row.rstrip()}\n" for row in rows)


def _plot(chart: Chart, lines: Lines, width: int, height: int, colored: bool) -> list[str]:
    """Return one chart, with the name of each line at its right end."""
    try:
        import plotext  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise missing_extra("a chart as text needs", "plotext", "cli") from None
    names = [name_of(label) for label in lines]
    width = max(width - max(map(len, names), default=0) - 2, NARROWEST)
    height = max(height, LEAST, len(lines) + AROUND)
    across = chart.across(lines, max(3, width // TICK_WIDTH))
    up = chart.up(lines.values(), (height - AROUND) // TICK_HEIGHT)
    figure = plotext.figure  # the only one
    figure.clear()
    figure.theme("colorless")
    plotext.terminal.limit(width=False, height=False)  # the caller decides the size
    figure.plot_size(width, height)
    figure.title(printable(chart.heading, width - 2))
    figure.label(printable(across.name, width - 2), "x")
    for side, axis in (("x", across), ("y", up)):
        figure.ruler(side).ticks(axis.ticks, axis.labels)
        figure.ruler(side).lim(axis.low, axis.high)
    marks = MARKS if len(lines) > 1 else (BLOCKS,)
    for number, points in reversed([*enumerate(lines.values())]):  # the first one on top
        marker: Any = plotext.marker(BLOCKS, COLORS[number]) if colored else plotext.marker(marks[number])
        seen = visible(points, 2 * width)
        figure.draw(figure.signal([x for x, _ in seen], [y for _, y in seen], marker=marker).lines())
    text = str(figure.build()).rstrip("\n")
    rows = (text if colored else str(plotext.uncolorize(text))).splitlines()
    top, bottom = bool(chart.heading), len(rows) - 2 - bool(across.name)  # rows of the frame
    ends = [bottom - 1 - round(up.part(points[-1][1]) * (bottom - top - 2)) for points in lines.values()]
    for number, row in enumerate(apart(ends, 1, top + 1, bottom - 1)):
        mark = f"{marks[number]} " if len(lines) > 1 else ""
        shown = f"\x1b[38;5;{COLORS[number]}m━{names[number]}\x1b[0m" if colored else mark + names[number]
        rows[int(row)] += shown if names[number] else ""
    return rows


def _table(chart: Chart, lines: Lines, width: int) -> list[str]:
    """Return a row for each series: some values and a sparkline."""
    cells = [["", "lowest", "highest", "last"]]
    for label, points in lines.items():
        values = [10**y if chart.log else y for _, y in points]
        cells.append([name_of(label), *map(_short, (min(values), max(values), values[-1]))])
    widths = [max(map(len, column)) + 2 for column in zip(*cells, strict=True)]
    indent, room = sum(widths), max(width - sum(widths), SPARKLINE)
    across = chart.across(lines, max(3, room // TICK_WIDTH))
    bars = ["", *(_sparkline(points, across, chart, room) for points in lines.values())]
    rows = [
        f"{name:<{widths[0] - 2}}{''.join(map(str.rjust, values, widths[1:]))}  {bar}"
        for (name, *values), bar in zip(cells, bars, strict=True)
    ]
    below = (_tick_labels(across, room), printable(across.name, room).center(room))
    return [printable(chart.heading, width), *rows, *(" " * indent + text for text in below)]


def _short(value: float) -> str:
    """Return a number with at least three digits."""
    return number_label(round(value) if abs(value) >= 100 else float(f"{value:.3g}"))


def _sparkline(points: Sequence[Point], across: Axis, chart: Chart, room: int) -> str:
    """Return a bar for each character: the highest value in it."""
    up, heights = chart.up([points], 3), dict[int, float]()
    for x, y in points:
        at = int(across.part(x) * (room - 1))
        heights[at] = max(heights.get(at, 0.0), up.part(y))
    for begin, end in pairwise(sorted(heights)):  # the line between neighboring points
        for at in range(begin + 1, end):
            heights[at] = heights[begin] + (heights[end] - heights[begin]) * (at - begin) / (end - begin)
    bars = {at: BARS[min(int(height * len(BARS)), len(BARS) - 1)] for at, height in heights.items()}
    return "".join(bars.get(at, " ") for at in range(room))


def _tick_labels(axis: Axis, room: int) -> str:
    """Return the labels of an axis in a line, each below its place."""
    line = ""
    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        place = min(round(axis.part(tick) * (room - 1)) - len(label) // 2, room - len(label))
        if not line or place > len(line):
            line = line.ljust(place) + label
    return line
