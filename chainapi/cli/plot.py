"""``chainapi plot``: a chart of an exported file; and charts of what other commands print."""

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

    Where a line has more points than can be seen, the lowest and the highest of each stretch are drawn.

    Args:
        file: A file of JSON lines, CSV, Parquet, SQLite or DuckDB.
        x: The column across; without it the only one of times.
        y: The column up; without it the only other one of numbers.
        png: File for the chart as PNG, instead of the terminal; with the extra `plot`.
        terminal: Where the command writes.

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
            raise ConfigurationError("the output takes ASCII only: a chart needs UTF-8, or --png")
        print_chart(terminal, chart)


def print_chart(terminal: Terminal, chart: Chart) -> None:
    """Draw a chart on the terminal, in colour where that has colours."""
    console = terminal.console
    coloured = console.color_system is not None and not console.no_color
    terminal.out.write(draw(chart, width=min(console.width, WIDEST), height=HEIGHT, coloured=coloured))
