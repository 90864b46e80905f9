"""Dask clusters of tests: in the test's event loop, without a dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import Any

from distributed import Client, LocalCluster

from chainapi.simulator import Simulator

__all__ = ["arguments_of", "cluster_of", "simulated"]


@asynccontextmanager
async def cluster_of(workers: int = 2, **options: Any) -> AsyncIterator[tuple[Client, LocalCluster]]:
    """Start a cluster of this process, and a client of it."""
    defaults = {"processes": False, "threads_per_worker": 2}
    async with (
        LocalCluster(
            n_workers=workers, dashboard_address="127.0.0.1:0", asynchronous=True, **{**defaults, **options}
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        yield client, cluster


def arguments_of(simulator: Simulator) -> dict[str, Any]:
    """Return the session's arguments for a simulator with a port."""
    return {
        "data_base_url": simulator.data_base_url,
        "metrics_base_url": simulator.metrics_base_url,
        "api_key": simulator.api_key,
    }


@contextmanager
def simulated() -> Iterator[Simulator]:
    """Run a simulator with a port in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    simulator = Simulator(chains=(1, 2), rows=60)
    asyncio.run_coroutine_threadsafe(simulator.__aenter__(), loop).result(10)
    try:
        yield simulator
    finally:
        asyncio.run_coroutine_threadsafe(simulator.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
