"""Charts as text, drawn by plotext (extra `cli`).

In colors, each of ten series has a color, and further ones the same colors with other marks. Without
colors, each series has its own mark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from string import ascii_uppercase
from typing import Any, TypeAlias

import plotext  # type: ignore[import-untyped]
from attrs import frozen

from chainapi._text import printable, printable_ends
from chainapi.export.chart.axes import linear_axis, log_axis, time_label, time_ticks
from chainapi.export.chart.selection import select
from chainapi.export.chart.series import Chart, Point, span, visible

__all__ = ["draw"]

Range: TypeAlias = tuple[float, float]

COLOURS = (12, 10, 9, 14, 13, 11, 208, 99, 130, 43)  # of the 256 of terminals
BLOCKS = "hd"  # plotext's name of blocks of a quarter of a character
SYMBOLS = (BLOCKS, "*", "+", "x")  # of series with the same color
MARKS = "*+xo#%@&=~" + ascii_uppercase + "1234"
GREY, SHADE = 8, "░"
LEAST = 10  # lines of a chart without its legend
AROUND = 5  # of them: title, frame, labels of the x axis
LABEL_WIDTH, TITLE_WIDTH = 20, 60  # characters
GAP = 2  # characters before an entry of the legend
Y_TICKS, X_TICK_WIDTH = 5, 22


@frozen
class _Style:
    """Symbol and color of a series."""

    symbol: str
    colour: int | None = None

    @property
    def marker(self) -> Any:
        """Marker of plotext."""
        return (
            plotext.marker(self.symbol) if self.colour is None else plotext.marker(self.symbol, self.colour)
        )

    @property
    def sample(self) -> str:
        """Symbol as the legend shows it."""
        return "━━" if self.symbol == BLOCKS else self.symbol

    def painted(self, text: str) -> str:
        """Return a string that begins with the sample, the sample in the color."""
        if self.colour is None:
            return text
        return f"\x1b[38;5;{self.colour}m{self.sample}\x1b[0m{text.removeprefix(self.sample)}"


@frozen
class _Drawn:
    """Points in one style, joined by lines or not."""

    label: str
    points: Sequence[Point]
    style: _Style
    joined: bool = True


def draw(chart: Chart, *, width: int, height: int, coloured: bool) -> str:
    """Return the chart as text."""
    rise = math.log10 if chart.log else float
    lines, band = select(chart)
    shown = [*lines.values(), *(band.series if band else ())]
    bottom, top = span(rise(y) for points in shown for _, y in points)
    drawn = [
        _Drawn(
            label, [(x, rise(y)) for x, y in visible(points, 2 * width)], _style(number, len(lines), coloured)
        )
        for number, (label, points) in enumerate(lines.items())
    ]
    if band is not None:
        ranges = [(x, rise(low), rise(high)) for x, low, high in band.ranges(width)]
        shade = _Style(SHADE, GREY if coloured else None)
        drawn.append(_Drawn(band.label, _filled(ranges, (top - bottom) / (2 * height)), shade, joined=False))
    legend = _legend(drawn, width)
    size = width, max(height - len(legend), LEAST)
    figure = _figure(chart, *size)
    _set_axes(figure, chart, span(x for points in shown for x, _ in points), (bottom, top), size)
    for each in reversed(drawn):  # the first one on top
        signal = figure.signal(
            [x for x, _ in each.points], [y for _, y in each.points], marker=each.style.marker
        )
        figure.draw(signal.lines() if each.joined else signal)
    text = str(figure.build())
    text = text if coloured else str(plotext.uncolorize(text))
    return "".join(f"{line}\n" for line in (text.rstrip("\n"), *legend))


def _style(number: int, count: int, coloured: bool) -> _Style:
    if coloured:
        return _Style(SYMBOLS[number // len(COLOURS)], COLOURS[number % len(COLOURS)])
    return _Style(MARKS[number] if count > 1 else BLOCKS)


def _filled(ranges: Iterable[tuple[float, float, float]], step: float) -> list[Point]:
    """Return points from the lowest to the highest of each range, `step` apart."""
    return [
        (x, low + (high - low) * number / count)
        for x, low, high in ranges
        for count in (math.ceil((high - low) / step) + 1,)
        for number in range(count + 1)
    ]


def _legend(drawn: Iterable[_Drawn], width: int) -> list[str]:
    """Return the lines of the legend; a series without a label has no entry."""
    lines: list[str] = []
    room = 0
    for each in drawn:
        if not each.label:
            continue
        text = f"{each.style.sample} {printable_ends(each.label, LABEL_WIDTH)}"
        if room < len(text) + GAP:
            lines.append("")
            room = width
        lines[-1] += " " * GAP + each.style.painted(text)
        room -= len(text) + GAP
    return lines


def _figure(chart: Chart, width: int, height: int) -> Any:
    """Return an empty figure of plotext, which has only one."""
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    plotext.terminal.limit(width=False, height=False)  # the caller decides the size
    figure.plot_size(width, height)
    figure.title(printable(": ".join(filter(None, (chart.title, chart.y_label))), TITLE_WIDTH))
    figure.label(printable(chart.x_label, TITLE_WIDTH), "x")
    return figure


def _set_axes(figure: Any, chart: Chart, across: Range, up: Range, size: tuple[int, int]) -> None:
    """Set the limits and the ticks of both axes; `up` is logarithmic if the chart is."""
    rulers = figure.ruler("x"), figure.ruler("y")
    count = max(2, size[0] // X_TICK_WIDTH)
    most = min(Y_TICKS, size[1] - AROUND - 2)  # each tick has a line of its own
    if chart.times:
        times = time_ticks(*across, count)
        rulers[0].ticks(times, [time_label(time, across[1] - across[0]) for time in times])
    else:
        rulers[0].ticks(*linear_axis(*across, count))
    if chart.log:
        ticks, labels = log_axis(10 ** up[0], 10 ** up[1], most)
        rulers[1].ticks([math.log10(tick) for tick in ticks], labels)
    else:
        rulers[1].ticks(*linear_axis(*up, most))
    for ruler, limits in zip(rulers, (across, up), strict=True):
        ruler.lim(*limits)
