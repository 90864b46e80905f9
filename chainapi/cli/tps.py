"""``chainapi tps``: the transactions per second of several chains at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from chainapi.cli.common import (
    DEFAULT_LIMIT,
    DEFAULTS,
    FAILED,
    Connection,
    Flag,
    Hidden,
    Rows,
    open_session,
    write_rows,
)
from chainapi.cli.plot import present
from chainapi.cli.tables import print_series
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import worded
from chainapi.client.pages import Pages
from chainapi.errors import ChainAPIError, ConfigurationError
from chainapi.export.chart import chart_of, require_pictures
from chainapi.models.metrics import MetricPoint

__all__ = ["tps"]


async def tps(
    chains: list[str],
    /,
    *,
    limit: Rows = DEFAULT_LIMIT,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    json: Flag = False,
    plot: Flag = False,
    png: Path | None = None,
    connection: Connection = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Print the average transactions per second of chains, newest first.

    All chains are fetched at once; one that fails keeps no other from being printed.

    Args:
        chains: Ids of the chains, such as 43114.
        limit: Points of each chain.
        all_: All points, whatever --limit says.
        json: JSON lines instead of a table; always so where the output is no terminal.
        plot: A chart instead of a table or of JSON lines.
        png: File for a chart as PNG; with the extra `plot`.
        connection: How the services are reached.
        terminal: Where the command writes.

    """
    if plot and json:
        raise ConfigurationError("--plot and --json both say what is printed: give one of them")
    if png is not None:
        require_pictures()
    table = terminal.interactive and not json and not plot
    most = None if all_ else limit
    series: dict[str, list[MetricPoint]] = {chain: [] for chain in chains}
    failures: list[str] = []

    async def walk(chain: str, stream: Pages[MetricPoint]) -> None:
        try:
            if table or plot:
                series[chain] = await stream.collect(most)
            else:
                kept = series[chain].append if png else None
                await write_rows(stream, most, _writer(terminal, chain, kept))
        except ChainAPIError as error:
            series[chain] = error.partial or series[chain]
            failures.append(str(worded(error)))

    async with open_session(terminal, connection, table=table or plot) as session:
        streams = {chain: session.metrics.avg_tps(chain) for chain in series}
        try:
            async with asyncio.TaskGroup() as group:
                for chain, stream in streams.items():
                    group.create_task(walk(chain, stream))
        except ExceptionGroup as errors:  # nothing but what writing met
            raise errors.exceptions[0] from None
    if found := {chain: points for chain, points in series.items() if points}:
        if table:
            print_series(terminal.console, found)
        present(terminal, chart_of(found, "average TPS"), drawn=plot, png=png)
    return _report(terminal, failures)


def _report(terminal: Terminal, failures: Iterable[str]) -> int:
    """Tell each failure once, and return the exit code."""
    told = dict.fromkeys(failures)
    for failure in told:
        terminal.complain(failure)
    return FAILED if told else 0


def _writer(
    terminal: Terminal, chain: str, keep: Callable[[MetricPoint], None] | None
) -> Callable[[MetricPoint], None]:
    """Return what prints the points of a chain, and keeps them where they are wanted later."""

    def write(point: MetricPoint) -> None:
        terminal.line(_line(chain, point))
        if keep is not None:
            keep(point)

    return write


def _line(chain: str, point: MetricPoint) -> dict[str, object]:
    try:
        time = point.time.isoformat()
    except (ValueError, OverflowError):  # no date
        time = None
    name = int(chain) if chain.isdecimal() and str(int(chain)) == chain else chain
    return {"chain": name, "timestamp": point.timestamp, "time": time, "value": point.value}
