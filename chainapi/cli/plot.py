"""``chainapi plot``: a chart of an exported file; the charts of other commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from attrs import evolve, frozen
from cyclopts import Parameter
from cyclopts.validators import Number

from chainapi.cli.common import Flag, Hidden, Many
from chainapi.cli.terminal import Terminal
from chainapi.errors import ConfigurationError
from chainapi.export.chart import MOST, Chart, draw, read_chart, require_pictures, save

__all__ = ["PLAIN", "ChartOptions", "Picture", "plot", "present"]

# The option of other commands for a file, too.
Picture: TypeAlias = Annotated[Path | None, Parameter(alias="--out")]
WIDEST = 120  # characters
HEIGHT = 20  # lines


@Parameter(name="*", group="Chart")
@frozen(kw_only=True)
class ChartOptions:
    """Options of charts, the same for every command.

    Attributes:
        title: Title of the chart; by default its metric, or the name of the file or folder.
        log: A logarithmic y axis; points at zero or below are left out.
        top: Number of series, the largest by their medians; more than ten get a small chart each.

    """

    title: str | None = None
    log: Flag = False
    top: Annotated[int, Parameter(validator=Number(gte=1, lte=MOST))] = MOST

    def check(self, *, drawn: bool, png: Path | None) -> None:
        """Refuse options of a chart without one, and a picture without its packages."""
        if self != PLAIN and not drawn and png is None:
            raise ConfigurationError("--title, --log and --top are options of a chart: add --plot or --png")
        if png is not None:
            require_pictures()

    def applied(self, chart: Chart) -> Chart:
        """Return the chart with these options."""
        title = chart.title if self.title is None else self.title
        return evolve(chart, title=title, log=self.log, top=self.top)


PLAIN = ChartOptions()


async def plot(
    path: str,
    /,
    *,
    x: str | None = None,
    y: str | None = None,
    series: Many = None,
    png: Picture = None,
    options: ChartOptions = PLAIN,
    terminal: Hidden,
) -> int:
    """Draw one column of exported rows over another, a line for each source.

    Args:
        path: File of JSON lines, CSV, Parquet, SQLite or DuckDB, a folder with parts, or a URL of one.
        x: Column of the x axis; by default the only one of times.
        y: Column of the y axis; by default the only other one of numbers.
        series: Source to draw, by its label or name; may be repeated; all by default.
        png: PNG file for the chart, instead of the terminal; needs the extra `plot`.
        options: Options of the chart.
        terminal: The streams of the command.

    """
    chart = options.applied(read_chart(path, x, y, series or ()))
    present(terminal, chart, drawn=png is None, png=png)
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
        console = terminal.console
        colored = console.color_system is not None and not console.no_color
        terminal.out.write(draw(chart, width=min(console.width, WIDEST), height=HEIGHT, colored=colored))
