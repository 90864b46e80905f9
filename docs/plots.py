"""Draw the chart of plots.md: ``python docs/plots.py``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from attrs import evolve

from chainapi import Session
from chainapi.export.chart import chart_of, save
from chainapi.simulator import Simulator

CHAINS = (43114, 53935, 432204)


async def main() -> None:
    """Fetch a year of three simulated chains, and draw it."""
    async with Simulator(seed=7) as simulator:
        session = Session(
            metrics_base_url=simulator.metrics_base_url, data_base_url=simulator.data_base_url, rate=None
        )
        async with session:
            series = {str(chain): await session.metrics.avg_tps(chain).collect(limit=365) for chain in CHAINS}
    chart = evolve(chart_of(series, "average TPS"), title="Three simulated chains")
    save(chart, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    asyncio.run(main())
