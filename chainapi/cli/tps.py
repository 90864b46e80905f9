"""``chainapi tps``: the transactions per second of several chains at once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from chainapi._paging.pages import Pages
from chainapi.cli.common import (
    DEFAULT_LIMIT,
    DEFAULTS,
    FAILED,
    ConnectionOptions,
    Flag,
    Hidden,
    open_session,
)
from chainapi.cli.plot import PLAIN, ChartOptions, present
from chainapi.cli.tables import print_series
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import worded
from chainapi.errors import ChainAPIError, ConfigurationError
from chainapi.export.chart import chart_of, require_pictures
from chainapi.models.metrics import MetricPoint

__all__ = ["tps"]


async def tps(
    *chains: Annotated[str, Parameter(required=True)],
    limit: PositiveInt = DEFAULT_LIMIT,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    json: Flag = False,
    plot: Flag = False,
    png: Path | None = None,
    options: ChartOptions = PLAIN,
    connection: ConnectionOptions = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Print the average transactions per second of chains, newest first.

    If one fails, the others are printed all the same.

    Args:
        chains: Ids of the chains, such as 43114.
        limit: Points of each chain.
        all_: All points; --limit has no effect.
        json: JSON lines; the default if the output is not a terminal.
        plot: A chart instead of a table or JSON lines.
        png: PNG file for a chart; needs the extra `plot`.
        options: Options of the chart.
        connection: Options of the session.
        terminal: The streams of the command.

    """
    if plot and json:
        raise ConfigurationError("--plot and --json exclude each other: give one of them")
    _check_chart(options, drawn=plot, png=png)
    table = terminal.interactive and not json and not plot
    most = None if all_ else limit
    series: dict[str, list[MetricPoint]] = {chain: [] for chain in chains}
    failures: list[str] = []

    async def walk(chain: str, stream: Pages[MetricPoint]) -> None:
        try:
            if table or plot:
                series[chain] = await stream.collect(most)
            else:
                await _print_points(terminal, chain, stream, most, None if png is None else series[chain])
        except ChainAPIError as error:
            series[chain] = error.partial or series[chain]
            failures.append(worded(error))

    async with open_session(terminal, connection, table=table or plot) as session:
        streams = {chain: session.metrics.avg_tps(chain) for chain in series}
        try:
            async with asyncio.TaskGroup() as group:
                for chain, stream in streams.items():
                    group.create_task(walk(chain, stream))
        except ExceptionGroup as errors:  # only writing raises here
            raise errors.exceptions[0] from None
    if found := {chain: points for chain, points in series.items() if points}:
        if table:
            print_series(terminal.console, found)
        present(terminal, options.applied(chart_of(found, "average TPS")), drawn=plot, png=png)
    for failure in dict.fromkeys(failures):  # each once
        terminal.report(failure)
    return FAILED if failures else 0


def _check_chart(options: ChartOptions, *, drawn: bool, png: Path | None) -> None:
    """Refuse options of a chart without one, and a picture without its packages."""
    if options != PLAIN and not drawn and png is None:
        raise ConfigurationError("--title, --log and --top are options of a chart: add --plot or --png")
    if png is not None:
        require_pictures()


async def _print_points(
    terminal: Terminal,
    chain: str,
    stream: Pages[MetricPoint],
    most: int | None,
    kept: list[MetricPoint] | None,
) -> None:
    """Print the points of a chain as they arrive, and keep them for a picture."""
    async with aclosing(stream.items(most)) as points:
        async for point in points:
            terminal.line(_line(chain, point))
            if kept is not None:
                kept.append(point)


def _line(chain: str, point: MetricPoint) -> dict[str, object]:
    try:
        time = point.time.isoformat()
    except (ValueError, OverflowError):  # no date
        time = None
    name = int(chain) if chain.isdecimal() and str(int(chain)) == chain else chain
    return {"chain": name, "timestamp": point.timestamp, "time": time, "value": point.value}
