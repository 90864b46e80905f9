"""Charts as PNG, drawn by matplotlib (extra `plot`)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chainapi._text import printable
from chainapi.core.extras import missing_extra
from chainapi.export.chart.series import LINES, Axis, Chart, Lines, Point, apart, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["require_pictures", "save"]

WIDTH, HEIGHT, ROW = 10.0, 5.0, 1.2  # inches
DOTS = 150  # per inch
COLUMNS = 4  # of small charts
TICKS, X_TICKS, Y_TICKS = 8, 3, 4  # the last two of small charts
HEADING_WIDTH = 90  # characters
SIZE = 10  # of letters
LETTER = 0.05  # height of a name, as a part of the axis
MARGIN = 0.03  # around the values, as a part of the axis


def require_pictures() -> None:
    """Check that `save` can work; called before anything is fetched.

    Raises:
        ConfigurationError: matplotlib is not installed.

    """
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError:
        raise missing_extra("a chart as PNG needs", "matplotlib", "plot") from None


def save(chart: Chart, path: Path) -> None:
    """Write the chart as a PNG, 1,500 pixels wide; replace an existing file.

    Raises:
        ConfigurationError: matplotlib is not installed, or a logarithmic axis has no value above zero.
        OSError: the file cannot be written.

    """
    require_pictures()
    from matplotlib.figure import Figure

    lines = chart.lines()
    rows = math.ceil(len(lines) / COLUMNS)
    many = len(lines) > LINES
    figure = Figure((WIDTH, rows * ROW + 1 if many else HEIGHT), DOTS, layout="constrained")
    heading = printable(chart.heading, HEADING_WIDTH)
    figure.suptitle(heading, x=0.01, ha="left", size=SIZE + 2, parse_math=False)
    across = _draw_each(figure, chart, lines, rows) if many else _draw_all(figure, chart, lines)
    figure.supxlabel(printable(across.name, HEADING_WIDTH), size=SIZE, parse_math=False)
    made = io.BytesIO()
    figure.savefig(made, format="png")
    path.write_bytes(made.getvalue())


def _draw_all(figure: Figure, chart: Chart, lines: Lines) -> Axis:
    """Draw one chart, with the name of each line at its right end."""
    across, up = chart.across(lines, TICKS), chart.up(lines.values(), TICKS)
    axes = figure.add_subplot()
    _prepare(axes, across, up, SIZE)
    ends = [points[-1] for points in lines.values()]
    places = apart([y for _, y in ends], (up.high - up.low) * LETTER, up.low, up.high)
    for number, (label, place) in enumerate(zip(lines, places, strict=True)):
        _draw(axes, lines[label], f"C{number}")
        if not label:
            continue
        axes.annotate(
            name_of(label),
            ends[number],
            (1.02, place),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            annotation_clip=False,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": f"C{number}", "relpos": (0, 0.5), "shrinkB": 0},
        )
    return across


def _draw_each(figure: Figure, chart: Chart, lines: Lines, rows: int) -> Axis:
    """Draw a small chart of each series; those of a row share a vertical axis."""
    across, labels = chart.across(lines, X_TICKS), [*lines]
    for number, label in enumerate(labels):
        column = number % COLUMNS
        row = labels[number - column : number - column + COLUMNS]
        axes = figure.add_subplot(rows, COLUMNS, number + 1)
        _prepare(axes, across, chart.up([lines[each] for each in row], Y_TICKS), SIZE - 2)
        _draw(axes, lines[label], "C0")
        axes.set_title(name_of(label), loc="left", size=SIZE, pad=3, parse_math=False)
        axes.tick_params(labelleft=column == 0, labelbottom=number + COLUMNS >= len(labels))
    return across


def _prepare(axes: Axes, across: Axis, up: Axis, size: int) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xticks(across.ticks, across.labels, size=size)
    axes.set_yticks(up.ticks, up.labels, size=size)
    axes.set_xlim(across.low, across.high)
    margin = (up.high - up.low) * MARGIN
    axes.set_ylim(up.low - (margin if up.low else 0), up.high + margin)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)


def _draw(axes: Axes, points: Sequence[Point], colour: str) -> None:
    marker = "o" if len(points) == 1 else ""
    axes.plot(
        *zip(*points, strict=True), marker=marker, markersize=4, color=colour, linewidth=1.2, clip_on=False
    )
