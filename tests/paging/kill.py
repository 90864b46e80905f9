"""Walk that is killed again and again, and resumes from its checkpoint file.

The walker is a process of its own. It appends the number of each block to a file, a batch at a time, and then
replaces the checkpoint file; when it starts it cuts off the rows that the checkpoint does not count. It
dies by SIGKILL: by its own hand between any two of its steps, or by its parent's while a page is on its way.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from attrs import frozen

from chainapi import Checkpoint, Session
from chainapi.simulator import Simulator

__all__ = ["walk_and_kill"]

BLOCKS = "/v1/chains/43114/blocks"
PAGE = 5  # rows
BATCH = 12  # rows between two checkpoints: most of them stand inside a page
WIDTH = 12  # bytes of a line
STEPS_A_PAGE = 7  # steps of the walker, about


@frozen
class Job:
    """Task of a walker, and the steps after which it ends itself (0 for never)."""

    base_url: str
    key: str
    folder: str
    descending_key: str | None
    die_at: int


class Walker:
    """Process that is killed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._steps = count(1)
        self._rows = Path(job.folder, "rows")
        self._checkpoint = Path(job.folder, "checkpoint")

    def run(self) -> None:
        """Walk on from the place where the last one died."""
        asyncio.run(self._walk())

    def _step(self) -> None:
        if next(self._steps) == self._job.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def _walk(self) -> None:
        job, resume = self._job, None
        if self._checkpoint.exists():
            resume = Checkpoint.loads(self._checkpoint.read_text())
        with self._rows.open("ab") as file:
            file.truncate(WIDTH * (0 if resume is None else resume.rows))
            async with Session(data_base_url=job.base_url, api_key=job.key) as session:
                blocks = session.data.list(
                    BLOCKS, page_size=PAGE, descending_key=job.descending_key, resume=resume
                )
                batch = 0
                async for block in blocks.items():
                    self._step()
                    file.write(b"%*d\n" % (WIDTH - 1, int(block["blockNumber"])))
                    batch += 1
                    if batch == BATCH:
                        file.flush()
                        self._save(blocks.checkpoint)
                        batch = 0
                file.flush()
                self._save(blocks.checkpoint)

    def _save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint file: a reader finds the old one or the new one, whole."""
        self._step()
        temporary = self._checkpoint.with_suffix(".new")
        with temporary.open("w") as file:
            file.write(checkpoint.dumps())
            file.flush()
            self._step()
            os.fsync(file.fileno())
        self._step()
        temporary.replace(self._checkpoint)
        self._step()


def _walk(job: Job) -> None:
    Walker(job).run()


def walk_and_kill(pages: int, kills: int, seed: int, *, descending_key: str | None = None) -> None:
    """Walk `pages` pages with `kills` deaths at places drawn from `seed`.

    Raise AssertionError unless each row is there once and in order.
    """
    with TemporaryDirectory() as folder:
        died, requests = asyncio.run(_supervise(pages, kills, seed, descending_key, folder))
        lines = [int(line) for line in Path(folder, "rows").read_bytes().split()]
        checkpoint = Checkpoint.loads(Path(folder, "checkpoint").read_text())
    assert checkpoint.done
    assert died == kills
    assert len(lines) == checkpoint.rows == pages * PAGE
    assert lines == list(range(lines[0], lines[0] - pages * PAGE, -1))
    assert requests > pages  # what was lost with a walker was requested again


async def _supervise(
    pages: int, kills: int, seed: int, descending_key: str | None, folder: str
) -> tuple[int, int]:
    """Start walkers until one ends; return the number of deaths and of requests."""
    draw = Random(seed)
    # Forked from a process that has imported everything: most of a walker's life is walking.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    died = 0
    async with Simulator(rows=pages * PAGE) as simulator:
        while True:
            ahead = draw.randint(1, max(1, 2 * (pages // kills) * 9 // 10)) if died < kills else 0
            by_itself = bool(ahead) and draw.random() < 0.5
            die_at = draw.randint(1, ahead * STEPS_A_PAGE) if by_itself else 0
            job = Job(simulator.data_base_url, simulator.api_key, folder, descending_key, die_at)
            process = context.Process(target=_walk, args=(job,), daemon=True)
            process.start()
            enough = simulator.stats.requests + ahead if ahead and not by_itself else None
            await _watch(process, simulator, enough)
            if process.exitcode == 0:
                return died, simulator.stats.requests
            assert process.exitcode == -signal.SIGKILL, f"the walker ended with {process.exitcode}"
            died += 1


async def _watch(process: BaseProcess, simulator: Simulator, enough: int | None) -> None:
    """Wait for the end of a process; kill it after `enough` requests.

    The services count them.
    """
    while process.is_alive():
        if enough is not None and simulator.stats.requests >= enough:
            process.kill()
        await asyncio.sleep(0.002)
    process.join()
