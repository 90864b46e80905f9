"""An export that is killed again and again: its process dies by SIGKILL, and another one goes on.

It dies while pages are on their way, when the services have had a number of requests that was drawn; by its own
hand, between two of its steps; or while its final file is written.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

from attrs import frozen

from chainapi import Session
from chainapi.export import export
from chainapi.export.progress import ExportProgress
from chainapi.simulator import Simulator

__all__ = ["CHAINS", "Killed", "Way", "export_and_kill"]

CHAINS = tuple(range(1, 9))
PAGES, PAGE = 20, 25  # of each chain; rows
CONCURRENCY = 4


@frozen
class Job:
    """What the process has to do, and after how many steps it ends itself (0 for never)."""

    base_url: str
    key: str
    out: str
    die_at: int


@frozen
class Killed:
    """How often it died in each way, and how many requests were sent in all."""

    requests_met: int = 0
    by_itself: int = 0
    writing: int = 0
    requests: int = 0

    @property
    def kills(self) -> int:
        """How often it died."""
        return self.requests_met + self.by_itself + self.writing


@frozen
class Way:
    """A way to die: at a number of requests, after a number of steps, or while the file is written."""

    requests: int | None = None
    steps: int = 0
    writing_for: float | None = None  # seconds after the file was begun

    @classmethod
    def draw(cls, draw: Random) -> Way:
        """Draw one."""
        match draw.randrange(5):
            case 0 | 1:
                return cls(requests=draw.randint(1, 8))
            case 2 | 3:
                return cls(steps=draw.randint(1, 8))
            case _:
                return cls(writing_for=draw.choice((0.0, draw.uniform(0, 0.02))))


def _run(job: Job) -> None:
    steps = count(1)

    def step(progress: ExportProgress) -> None:
        if next(steps) == job.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> None:
        async with Session(data_base_url=job.base_url, api_key=job.key) as session:
            await export(
                session.data.evm.blocks,
                CHAINS,
                job.out,
                page_size=PAGE,
                concurrency=CONCURRENCY,
                on_progress=step,
            )

    asyncio.run(run())


def export_and_kill(out: Path, kills: int, seed: int) -> Killed:
    """Export to `out` with that many deaths, drawn from `seed`; then once without."""
    return asyncio.run(_supervise(out, kills, Random(seed)))


async def _supervise(out: Path, kills: int, draw: Random) -> Killed:
    # Forked from a process that has imported everything: most of a life is fetching and writing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "chainapi.export.run", "pyarrow.parquet", "duckdb"])
    died = {"requests_met": 0, "by_itself": 0, "writing": 0}
    async with Simulator(chains=CHAINS, rows=PAGES * PAGE) as simulator:
        while True:
            way = Way.draw(draw) if sum(died.values()) < kills else Way()
            job = Job(simulator.data_base_url, simulator.api_key, str(out), way.steps)
            process = context.Process(target=_run, args=(job,), daemon=True)
            begun = simulator.stats.requests
            process.start()
            if way.requests is not None:
                wanted = begun + way.requests
                await _watch(process, lambda: simulator.stats.requests >= wanted, 0.0)
                name = "requests_met"
            elif way.writing_for is not None:
                aside = out.with_name(out.name + ".partial")
                await _watch(process, aside.exists, way.writing_for)
                name = "writing"
            else:
                await _watch(process, lambda: False, 0.0)
                name = "by_itself"
            if process.exitcode == 0:
                if way == Way():
                    return Killed(**died, requests=simulator.stats.requests)
                continue  # it was done before it came to that
            assert process.exitcode == -signal.SIGKILL, f"the export ended with {process.exitcode}"
            died[name] += 1


async def _watch(process: BaseProcess, due: Callable[[], bool], delay: float) -> None:
    """Wait for the end of a process; kill it `delay` seconds after it is due."""
    while process.is_alive() and not due():
        await asyncio.sleep(0.001)
    if process.is_alive():
        await asyncio.sleep(delay)
        process.kill()
    while process.is_alive():
        await asyncio.sleep(0.001)
    process.join()
