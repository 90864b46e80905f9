"""Export whose process is killed many times; another process continues it.

It dies while pages are on their way, when the services have had a number of requests that was drawn; by its
own hand, between two of its steps; or while its final file is written.
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
from typing import Any

from attrs import evolve, frozen

from chainapi import Session
from chainapi.export import export
from chainapi.export.gathering import GroupSize
from chainapi.export.progress import ExportProgress
from chainapi.simulator import Simulator
from tests.export.crashes import groups_of

__all__ = ["CHAINS", "Killed", "Way", "export_and_kill"]

CHAINS = tuple(range(1, 9))
ADDRESS = "0x" + "1" * 40
PAGES, PAGE = 20, 25  # of each chain; rows
CONCURRENCY = 4


@frozen
class Job:
    """Task of a process; it kills itself after `die_at` steps (0 for never).

    It exports blocks of chains, or with `ranges` the transactions of an address. With `groups`, pages of
    Parquet become row groups.
    """

    base_url: str
    key: str
    out: str
    die_at: int
    ranges: int | None
    groups: bool


@frozen
class Killed:
    """Number of kills of each kind, and of all requests."""

    requests_met: int = 0
    by_itself: int = 0
    writing: int = 0
    requests: int = 0

    @property
    def kills(self) -> int:
        """Number of kills."""
        return self.requests_met + self.by_itself + self.writing


@frozen
class Way:
    """Kind of a kill: by requests, by steps, or while the file is written."""

    requests: int | None = None
    steps: int = 0
    writing_for: float | None = None  # seconds after the file was begun

    @classmethod
    def draw(cls, draw: Random, *, writing: bool) -> Way:
        """Draw a kind of kill."""
        if writing:
            return cls(writing_for=draw.choice((0.0, draw.uniform(0, 0.02))))
        return draw.choice((cls(requests=draw.randint(1, 8)), cls(steps=draw.randint(1, 8))))


def _run(job: Job) -> None:
    steps = count(1)

    def step(progress: ExportProgress) -> None:
        if next(steps) == job.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> None:
        async with Session(data_base_url=job.base_url, api_key=job.key) as session:
            evm = session.data.evm
            walk: Any = evm.blocks if job.ranges is None else evm.native_transactions
            over = CHAINS if job.ranges is None else [(chain, ADDRESS) for chain in CHAINS]
            options: dict[str, Any] = {"page_size": PAGE, "concurrency": CONCURRENCY, "ranges": job.ranges}
            with groups_of(GroupSize(2 * PAGE, 4 * PAGE, seconds=0.02) if job.groups else GroupSize()):
                await export(walk, over, job.out, **options, on_progress=step)

    asyncio.run(run())


def export_and_kill(
    out: Path, straight: Path, kills: int, seed: int, ranges: int | None = None, *, groups: bool = False
) -> Killed:
    """Export to `out` with kills, drawn from `seed`, then to `straight` without any.

    With `ranges`, each list is walked in as many ranges, and as a whole in the run without kills. With
    `groups`, pages of Parquet become row groups while they are fetched.
    """
    return asyncio.run(_supervise(out, straight, kills, Random(seed), ranges, groups=groups))


async def _supervise(
    out: Path, straight: Path, kills: int, draw: Random, ranges: int | None, *, groups: bool
) -> Killed:
    async with Simulator(chains=CHAINS, rows=PAGES * PAGE) as simulator:
        died = Killed()
        while died.kills < kills:
            # Two of three while rows are fetched; the first death at the file comes when all of them are.
            way = Way.draw(draw, writing=died.kills >= kills * 2 // 3)
            died = await _live(simulator, out, way, died, ranges, groups=groups)
        for path in (out, straight):
            process = _start(simulator, path, ranges=ranges and (ranges if path == out else 1), groups=groups)
            await _watch(process, lambda: False, 0.0)
            assert process.exitcode == 0
        return evolve(died, requests=simulator.stats.requests)


async def _live(
    simulator: Simulator, out: Path, way: Way, died: Killed, ranges: int | None, *, groups: bool
) -> Killed:
    """Run one process; kill it in a way if it does not finish first."""
    wanted = simulator.stats.requests + (way.requests or 0)
    aside = out.with_name(f".{out.name}.partial")
    process = _start(simulator, out, way.steps, ranges, groups=groups)
    if way.requests is not None:
        await _watch(process, lambda: simulator.stats.requests >= wanted, 0.0)
        died_so = evolve(died, requests_met=died.requests_met + 1)
    elif way.writing_for is not None:
        await _watch(process, aside.exists, way.writing_for)
        died_so = evolve(died, writing=died.writing + 1)
    else:
        await _watch(process, lambda: False, 0.0)
        died_so = evolve(died, by_itself=died.by_itself + 1)
    if process.exitcode == 0:  # it was done before it came to that: there is more to do
        place = "blocks" if ranges is None else f"addresses/{ADDRESS}/transactions:listNative"
        simulator.insert(f"/v1/chains/{CHAINS[0]}/{place}", 3 * PAGE)
        return died
    assert process.exitcode == -signal.SIGKILL, f"the export ended with {process.exitcode}"
    return died_so


def _start(
    simulator: Simulator, out: Path, die_at: int = 0, ranges: int | None = None, *, groups: bool
) -> BaseProcess:
    # Forked from a process that has imported everything: most of a life is fetching and writing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "chainapi.export.run", "pyarrow.parquet", "duckdb"])
    job = Job(simulator.data_base_url, simulator.api_key, str(out), die_at, ranges, groups)
    process = context.Process(target=_run, args=(job,), daemon=True)
    process.start()
    return process


async def _watch(process: BaseProcess, due: Callable[[], bool], delay: float) -> None:
    """Wait for the end of a process; kill it `delay` seconds after it is due."""
    killed = False
    while process.is_alive():
        if not killed and due():
            await asyncio.sleep(delay)
            process.kill()
            killed = True
        await asyncio.sleep(0.001)
    process.join()
