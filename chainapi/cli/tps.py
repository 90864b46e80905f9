"""``chainapi tps``: the transactions per second of several chains at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
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
from chainapi.cli.plot import PLAIN, ChartOptions, Picture, present
from chainapi.cli.tables import row_writer
from chainapi.cli.wording import worded
from chainapi.errors import ChainAPIError, ConfigurationError
from chainapi.export.chart import chart_of
from chainapi.models.metrics import MetricPoint

__all__ = ["tps"]


async def tps(
    *chains: Annotated[str, Parameter(required=True)],
    limit: PositiveInt = DEFAULT_LIMIT,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    json: Flag = False,
    plot: Flag = False,
    png: Picture = None,
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
    options.check(drawn=plot, png=png)
    table = terminal.interactive and not json and not plot
    series: dict[str, list[MetricPoint]] = {chain: [] for chain in chains}

    def receive(chain: str, point: MetricPoint) -> None:
        if not plot:
            write(_row(chain, point))
        if plot or png is not None:
            series[chain].append(point)

    async with open_session(terminal, connection, table=table or plot) as session:
        streams = {chain: session.metrics.avg_tps(chain) for chain in series}
        most = None if all_ else limit
        try:
            with row_writer(terminal, table=table) as write:
                async with asyncio.TaskGroup() as group:
                    walks = [group.create_task(_walk(*one, most, receive)) for one in streams.items()]
        except ExceptionGroup as errors:  # only writing raises here
            raise errors.exceptions[0] from None
    if found := {chain: points for chain, points in series.items() if points}:
        present(terminal, options.applied(chart_of(found, "average TPS")), drawn=plot, png=png)
    failures = dict.fromkeys(filter(None, (walk.result() for walk in walks)))  # each once
    for failure in failures:
        terminal.note(failure)
    return FAILED if failures else 0


async def _walk(
    chain: str, stream: Pages[MetricPoint], most: int | None, receive: Callable[[str, MetricPoint], None]
) -> str:
    """Pass the points of a chain on, and return the error that ended them."""
    try:
        async with aclosing(stream.items(most)) as points:
            async for point in points:
                receive(chain, point)
    except ChainAPIError as error:
        return worded(error)
    return ""


def _row(chain: str, point: MetricPoint) -> dict[str, object]:
    try:
        time = point.time.isoformat()
    except (ValueError, OverflowError):  # no date
        time = None
    name = int(chain) if chain.isdecimal() and str(int(chain)) == chain else chain
    return {"chain": name, "timestamp": point.timestamp, "time": time, "value": point.value}
