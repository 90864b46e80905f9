"""``chainapi plot``: a chart of an exported file; the charts of other commands."""

from __future__ import annotations

from pathlib import Path

from chainapi.cli.common import Hidden
from chainapi.cli.terminal import Terminal
from chainapi.errors import ConfigurationError
from chainapi.export.chart import Chart, draw, read_chart, save

__all__ = ["plot", "present", "print_chart"]

WIDEST = 120  # characters
HEIGHT = 20  # lines


async def plot(
    file: Path,
    /,
    *,
    x: str | None = None,
    y: str | None = None,
    png: Path | None = None,
    terminal: Hidden,
) -> int:
    """Draw one column of an exported file over another, a line for each source.

    A line with more points than the chart is wide shows the lowest and the highest of each stretch.

    Args:
        file: A file of JSON lines, CSV, Parquet, SQLite or DuckDB.
        x: The column of the x axis; by default the only one of times.
        y: The column of the y axis; by default the only other one of numbers.
        png: PNG file for the chart, instead of the terminal; needs the extra `plot`.
        terminal: The streams of the command.

    """
    present(terminal, read_chart(file, x, y), drawn=png is None, png=png)
    return 0


def present(terminal: Terminal, chart: Chart, *, drawn: bool, png: Path | None) -> None:
    """Draw a chart on the terminal, save it as a picture, both or neither.

    Raises:
        ConfigurationError: the output takes ASCII only, or a package is missing.

    """
    if png is not None:
        save(chart, png)
    if drawn:
        if terminal.console.options.ascii_only:
            raise ConfigurationError("the output supports ASCII only: use a UTF-8 terminal, or --png FILE")
        print_chart(terminal, chart)


def print_chart(terminal: Terminal, chart: Chart) -> None:
    """Print a chart on the terminal, in colour if the terminal has colours."""
    console = terminal.console
    coloured = console.color_system is not None and not console.no_color
    terminal.out.write(draw(chart, width=min(console.width, WIDEST), height=HEIGHT, coloured=coloured))
