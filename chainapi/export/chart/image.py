"""Charts as PNG, drawn by matplotlib (extra `plot`)."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING

from chainapi._text import printable
from chainapi.core.extras import missing_extra
from chainapi.export.chart.series import LINES, Axis, Chart, Lines, apart, name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["require_pictures", "save"]

WIDTH, HEIGHT, ROW = 10.0, 5.0, 1.2  # inches
DOTS = 150  # per inch
COLUMNS = 4  # of small charts
TICKS, FEW_TICKS = (8, 8), (3, 4)  # of the axes, also of small charts
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
    many = len(lines) > LINES
    panels = [{label: points} for label, points in lines.items()] if many else [lines]
    columns, (x_ticks, y_ticks) = (COLUMNS, FEW_TICKS) if many else (1, TICKS)
    rows = math.ceil(len(panels) / columns)
    figure = Figure((WIDTH, rows * ROW + 1 if many else HEIGHT), DOTS, layout="constrained")
    across = chart.across(lines, x_ticks)
    for number, panel in enumerate(panels):
        row = panels[number - number % columns :][:columns]  # they share a vertical axis
        up = chart.up([points for each in row for points in each.values()], y_ticks)
        axes = figure.add_subplot(rows, columns, number + 1)
        _draw(axes, panel, across, up, SIZE - 2 if many else SIZE)
        axes.tick_params(labelleft=number % columns == 0, labelbottom=number + columns >= len(panels))
        if many:
            (label,) = panel
            axes.set_title(name_of(label), loc="left", size=SIZE, pad=3, parse_math=False)
        else:
            _name_ends(axes, panel, up)
    heading = printable(chart.heading, HEADING_WIDTH)
    figure.suptitle(heading, x=0.01, ha="left", size=SIZE + 2, parse_math=False)
    figure.supxlabel(printable(across.name, HEADING_WIDTH), size=SIZE, parse_math=False)
    made = io.BytesIO()
    figure.savefig(made, format="png")
    path.write_bytes(made.getvalue())


def _draw(axes: Axes, lines: Lines, across: Axis, up: Axis, size: int) -> None:
    """Draw lines of different colors, and the axes."""
    for number, points in enumerate(lines.values()):
        xs, ys = zip(*points, strict=True)
        marker = "o" if len(points) == 1 else ""
        axes.plot(xs, ys, f"C{number}", marker=marker, markersize=4, linewidth=1.2, clip_on=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xticks(across.ticks, across.labels, size=size)
    axes.set_yticks(up.ticks, up.labels, size=size)
    axes.set_xlim(across.low, across.high)
    margin = (up.high - up.low) * MARGIN
    axes.set_ylim(up.low - (margin if up.low else 0), up.high + margin)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)


def _name_ends(axes: Axes, lines: Lines, up: Axis) -> None:
    """Write the name of each line at its right end."""
    ends = apart([points[-1][1] for points in lines.values()], (up.high - up.low) * LETTER, up.low, up.high)
    across = axes.get_yaxis_transform()  # x as a part of the axis, y as a value
    for number, (label, end) in enumerate(zip(lines, ends, strict=True)):
        name = axes.text(1.02, end, name_of(label), color=f"C{number}", transform=across, va="center")
        name.set_parse_math(False)
