"""Charts as PNG, drawn by matplotlib (extra `plot`).

Each of ten series has a color, and further ones the same colors with other dashes.
"""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from chainapi._text import printable, printable_ends
from chainapi.core.duration import DAY
from chainapi.export.chart.axes import EARLIEST, LATEST, linear_axis, log_axis
from chainapi.export.chart.selection import select
from chainapi.export.chart.series import Chart, span

__all__ = ["picture"]

SIZE = (10.0, 5.0)  # inches
DOTS = 150  # per inch
COLOURS = 10  # of matplotlib's own cycle, C0 to C9
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
CLEAR = 0.75  # opacity of lines that share a color with others
STRETCHES = 300  # places at which the band of the other series has edges
LABEL_WIDTH, TITLE_WIDTH = 20, 80  # characters
ROWS = 20  # of a column of the legend
TICKS = 8
MARGIN = 0.05  # of a logarithmic axis
LOWEST, HIGHEST = -307.0, 308.0  # powers of ten that a float has


def picture(chart: Chart) -> bytes:
    """Return the chart as a PNG."""
    figure = Figure(figsize=SIZE, dpi=DOTS, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_series(axes, chart)
    _set_x(axes, chart)
    _set_y(axes, chart)
    if chart.title:
        axes.set_title(_verbatim(printable(chart.title, TITLE_WIDTH)))
    axes.grid(alpha=0.3)
    made = io.BytesIO()
    figure.savefig(made, format="png")
    return made.getvalue()


def _draw_series(axes: Axes, chart: Chart) -> None:
    """Draw the lines with their legend, and behind them the band of the other series."""
    lines, band = select(chart)
    for number, points in enumerate(lines.values()):
        axes.plot(
            [_place(chart, x) for x, _ in points],
            [y for _, y in points],
            color=f"C{number % COLOURS}",
            linestyle=DASHES[number // COLOURS],
            linewidth=1,
            alpha=1 if len(lines) <= COLOURS else CLEAR,
            marker="o" if len(points) == 1 else None,
            markersize=4,
        )
    handles: list[Any] = axes.get_lines()
    labels = [_verbatim(printable_ends(label, LABEL_WIDTH)) for label in lines]
    if band is not None:
        ranges = band.ranges(STRETCHES)
        across = [_place(chart, x) for x, _, _ in ranges]
        lows, highs = [low for _, low, _ in ranges], [high for _, _, high in ranges]
        handles += [axes.fill_between(across, lows, highs, color="0.85", zorder=0)]
        labels.append(band.label)
    if labels == [""]:  # the one series has no name
        return
    columns = math.ceil(len(labels) / ROWS)
    axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1, 1), ncols=columns)


def _place(chart: Chart, x: float) -> Any:
    return datetime.fromtimestamp(x, UTC) if chart.times else x


def _set_x(axes: Axes, chart: Chart) -> None:
    axes.set_xlabel(_verbatim(printable(chart.x_label, TITLE_WIDTH)))
    if chart.times:
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, EARLIEST / DAY), min(high, LATEST / DAY))  # matplotlib counts days
        locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    else:
        limits = axes.get_xlim()
        axes.set_xticks(*linear_axis(*limits, TICKS))
        axes.set_xlim(limits)


def _set_y(axes: Axes, chart: Chart) -> None:
    axes.set_ylabel(_verbatim(printable(chart.y_label, TITLE_WIDTH)))
    if chart.log:  # the margins of matplotlib overflow
        low, high = span(map(math.log10, axes.dataLim.intervaly))
        margin = (high - low) * MARGIN
        axes.set_ylim(10 ** max(low - margin, LOWEST), 10 ** min(high + margin, HIGHEST))
        axes.set_yscale("log")
    limits = axes.get_ylim()
    axis = log_axis if chart.log else linear_axis
    axes.set_yticks(*axis(*limits, TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(limits)


def _verbatim(text: str) -> str:
    """Escape a printable string for matplotlib.

    It reads "$" as a formula and hides labels that begin with "_".
    """
    return ("\N{WORD JOINER}" if text.startswith("_") else "") + text.replace("$", r"\$")
