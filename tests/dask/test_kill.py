"""Clusters whose processes are killed half-way: the run repeated has the rows of one process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import distributed
import pytest
from dask import config

import chainapi.dask
from chainapi.errors import ExportError
from chainapi.simulator import Simulator
from tests.dask.clusters import arguments_of, cluster_of, rows_at, straight

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.proof,
    pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9"),
]

CHAINS = tuple(range(1, 9))
ROUTE = "data.evm.blocks"
OPTIONS: dict[str, Any] = {"page_size": 10, "commit_seconds": 0.05, "partitions": 4, "concurrency": 2}


class Victim:
    """Process that is killed once an export has some rows."""

    def __init__(self, pid: int, at: int) -> None:
        self.pid, self.at, self.dead = pid, at, False

    def watch(self, progress: Any) -> None:
        """Kill the process when it is time."""
        if progress.rows >= self.at and not self.dead:
            self.dead = True
            os.kill(self.pid, signal.SIGKILL)


@pytest.mark.sample
async def test_a_worker_that_is_killed_costs_no_row(tmp_path: Path) -> None:
    """Dask gives the partitions of a killed worker to another, which continues behind their last parts."""
    async with (
        Simulator(chains=CHAINS, rows=100, latency=0.01) as simulator,
        cluster_of(2, processes=True, threads_per_worker=1) as (client, cluster),
    ):
        await chainapi.dask.register(client, **arguments_of(simulator))
        victim = Victim(cluster.workers[0].process.process.pid, at=250)
        result = await chainapi.dask.export(
            client, ROUTE, CHAINS, tmp_path / "b", progress=victim.watch, **OPTIONS
        )
        assert victim.dead
        assert result.rows == 800
        assert rows_at(tmp_path / "b") == await straight(simulator, tmp_path, CHAINS)


PROGRAM = """
import asyncio, sys
import chainapi.dask
from tests.dask.clusters import cluster_of

async def main():
    async with cluster_of(2) as (client, _):
        print("ready", flush=True)
        await chainapi.dask.export(client, "data.evm.blocks", range(1, 9), sys.argv[1],
            page_size=10, commit_seconds=0.05, partitions=4, concurrency=2,
            progress=lambda progress: print(progress.rows, flush=True))

asyncio.run(main())
"""


async def test_a_cluster_that_is_killed_continues(tmp_path: Path) -> None:
    """After kill -9 of scheduler, workers and client at once, the same call completes the rows."""
    async with Simulator(chains=CHAINS, rows=100, latency=0.01) as simulator:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            str(tmp_path / "b"),
            stdout=PIPE,
            stderr=DEVNULL,
            env={**os.environ, **simulator.environment()},
        )
        assert process.stdout is not None
        async for line in process.stdout:
            if line.strip().isdigit() and int(line) >= 250:
                process.kill()
        assert await process.wait() == -signal.SIGKILL
        async with cluster_of(2) as (client, _):
            await chainapi.dask.register(client, **arguments_of(simulator))
            kept = rows_at(tmp_path / "b").total()
            assert 0 < kept < 800
            result = await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b", **OPTIONS)
        assert result.rows == 800 - kept
        assert rows_at(tmp_path / "b") == await straight(simulator, tmp_path, CHAINS)


async def test_a_scheduler_that_is_killed_ends_the_export(tmp_path: Path) -> None:
    """Workers without a scheduler write what they have and end; the client raises; a new run continues."""
    async with Simulator(chains=CHAINS, rows=100, latency=0.01) as simulator:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SCHEDULER, stdout=PIPE, stderr=DEVNULL
        )
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        with config.set({"distributed.comm.timeouts.connect": "1s"}):
            await export_until_killed(simulator, address, process.pid, tmp_path / "b")
        await process.wait()
        kept = rows_at(tmp_path / "b").total()
        assert 240 <= kept < 800
        async with cluster_of(2) as (client, _):
            await chainapi.dask.register(client, **arguments_of(simulator))
            result = await chainapi.dask.export(client, ROUTE, CHAINS, tmp_path / "b", **OPTIONS)
        assert result.rows == 800 - kept
        assert rows_at(tmp_path / "b") == await straight(simulator, tmp_path, CHAINS)


async def export_until_killed(simulator: Simulator, address: str, scheduler: int, target: Path) -> None:
    """Export with one worker until the scheduler is killed."""
    victim = Victim(scheduler, at=250)
    async with (
        distributed.Worker(address, nthreads=2) as worker,
        distributed.Client(address, asynchronous=True) as client,
    ):
        await chainapi.dask.register(client, **arguments_of(simulator))
        with pytest.raises(ExportError, match="start the same export again"):
            await chainapi.dask.export(client, ROUTE, CHAINS, target, progress=victim.watch, **OPTIONS)
        await worker.finished()


SCHEDULER = """
import asyncio
from distributed import Scheduler

async def main():
    free = "127.0.0.1:0"
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address=free) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()

asyncio.run(main())
"""
