"""``chainapi tps``: the transactions per second of several chains at once."""

from __future__ import annotations

import asyncio
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
from chainapi.cli.display import print_series
from chainapi.errors import ChainAPIError
from chainapi.models.metrics import MetricPoint
from chainapi.pages import Pages

__all__ = ["tps"]


async def tps(
    chains: list[str],
    /,
    *,
    limit: Rows = DEFAULT_LIMIT,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    json: Flag = False,
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
        connection: How the services are reached.
        terminal: Where the command writes.

    """
    table = terminal.interactive and not json
    series: dict[str, list[MetricPoint]] = {chain: [] for chain in chains}
    failures: list[str] = []

    async def walk(chain: str, stream: Pages[MetricPoint]) -> None:
        try:
            if table:
                series[chain] = await stream.collect(None if all_ else limit)
            else:
                await write_rows(
                    stream, None if all_ else limit, lambda point: terminal.line(_line(chain, point))
                )
        except ChainAPIError as error:
            series[chain] = error.partial or []
            failures.append(str(error))

    async with open_session(terminal, connection, table=table) as session:
        streams = {chain: session.metrics.avg_tps(chain) for chain in series}
        try:
            async with asyncio.TaskGroup() as group:
                for chain, stream in streams.items():
                    group.create_task(walk(chain, stream))
        except ExceptionGroup as errors:  # nothing but what writing met
            raise errors.exceptions[0] from None
    print_series(terminal.console, {chain: points for chain, points in series.items() if points})
    for failure in dict.fromkeys(failures):
        terminal.complain(failure)
    return FAILED if failures else 0


def _line(chain: str, point: MetricPoint) -> dict[str, object]:
    try:
        time = point.time.isoformat()
    except (ValueError, OverflowError):  # no date
        time = None
    name = int(chain) if chain.isdecimal() and str(int(chain)) == chain else chain
    return {"chain": name, "timestamp": point.timestamp, "time": time, "value": point.value}
