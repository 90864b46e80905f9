"""Charts of series, in a terminal and as PNG.

Terminals need plotext (extra `cli`), pictures need matplotlib (extra `plot`); both are imported when used.
"""

from __future__ import annotations

from pathlib import Path

from chainapi.core.extras import missing_extra
from chainapi.export.chart.reading import read_chart
from chainapi.export.chart.series import MOST, TOP, Chart, Point, chart_of, visible

__all__ = [
    "MOST",
    "TOP",
    "Chart",
    "Point",
    "chart_of",
    "draw",
    "read_chart",
    "require_pictures",
    "save",
    "visible",
]


def draw(chart: Chart, *, width: int, height: int = 20, coloured: bool = False) -> str:
    """Return the chart as text, with escape codes if `coloured`.

    Args:
        chart: the chart.
        width: width of the text in characters.
        height: number of lines; a long legend may need more.
        coloured: whether to write the escape codes of colors.

    Raises:
        ConfigurationError: plotext is not installed, or a logarithmic axis has no value above zero.

    """
    try:
        from chainapi.export.chart import terminal
    except ModuleNotFoundError:
        raise missing_extra("a chart as text needs", "plotext", "cli") from None
    return terminal.draw(chart, width=width, height=height, coloured=coloured)


def require_pictures() -> None:
    """Check that `save` can work; called before anything is fetched.

    Raises:
        ConfigurationError: matplotlib is not installed.

    """
    try:
        import chainapi.export.chart.image  # noqa: F401
    except ModuleNotFoundError:
        raise missing_extra("a chart as PNG needs", "matplotlib", "plot") from None


def save(chart: Chart, path: Path) -> None:
    """Write the chart as a PNG of 1,500 x 750 pixels; replace an existing file.

    Raises:
        ConfigurationError: matplotlib is not installed, or a logarithmic axis has no value above zero.
        OSError: the file cannot be written.

    """
    require_pictures()
    from chainapi.export.chart.image import picture

    path.write_bytes(picture(chart))
