"""``chainapi simulate`` and ``chainapi demo``: both services on this machine."""

from __future__ import annotations

import asyncio
import shlex
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from chainapi.cli.common import Amount, Flag, Hidden, Seconds

__all__ = ["demo", "simulate"]


async def simulate(
    *,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))] = 0,
    limit: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    window: Seconds = 60.0,
    weighted: Flag = False,
    metrics_limit: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    metrics_window: Seconds = 60.0,
    points: Amount = 1_000,
    rows: Amount = 1_000,
    latency: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0,
    seed: int = 0,
    terminal: Hidden,
) -> None:
    """Simulate both services on this machine until Ctrl-C.

    The variables that lead to them are printed first; in a file, `set -a; . FILE` takes them over.

    Args:
        port: Port on the loopback interface; 0 takes any that is free.
        limit: Requests that the Data API takes in a window; without it, any number.
        window: Seconds that the window lasts.
        weighted: Let --limit count compute units, as many for a request as its route is said to cost.
        metrics_limit: Requests that the Metrics API takes in a window, which it does not tell.
        metrics_window: Seconds that its window lasts.
        points: Daily points of each chain.
        rows: Rows of every other list.
        latency: Seconds that each answer takes.
        seed: Everything that looks random follows from it.
        terminal: Where the command writes.

    """
    from chainapi.simulator import Simulator

    simulator = Simulator(
        seed,
        port=port,
        limit=limit,
        window=window,
        weighted=weighted,
        metrics_limit=metrics_limit,
        metrics_window=metrics_window,
        points=points,
        rows=rows,
        latency=latency,
    )
    async with simulator:
        for name, value in simulator.environment().items():
            terminal.out.write(f"{name}={shlex.quote(value)}\n")
        terminal.out.flush()
        await asyncio.get_running_loop().create_future()


async def demo(*, terminal: Hidden) -> None:
    """Walk both services, simulated on this machine, through limits that are too low.

    It takes about ten seconds and needs no network and no key.

    Args:
        terminal: Where the command writes.

    """
    from chainapi.cli.demo import demonstrate

    await demonstrate(terminal)
