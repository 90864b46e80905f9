"""Eight processes on one quota, some of which die: they need the time of one, and meet one 429."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from typing import Any

import pytest
from attrs import define, field

from tests.client.services import time
from tests.limits.servers import FromFirst, Server
from tests.share.exchange import Exchange
from tests.share.responses import end
from tests.share.test_shared_gate import Process, processes

pytestmark = pytest.mark.proof

LIVING = 31.4  # seconds of 2,400 requests without a death; the quota alone needs 30


@define
class Job:
    """Requests of many processes to one server, as a network 50 ms wide sees them."""

    server: Server
    left: int
    sent_in_stop: int = 0
    refusals: int = 0
    stopped_until: float = -inf
    spent: Counter[str] = field(factory=Counter[str])

    async def work(self, process: Process, name: str = "", route: str = "/a") -> None:
        """Send requests until none is left."""
        again = False
        while self.left > 0:
            self.left -= 1
            permit = await process.acquire(route, again=again)
            self.sent_in_stop += time() < self.stopped_until
            try:
                again = await self.send(permit)
                self.spent[name] += not again
            except asyncio.CancelledError:
                self.left += 1
                permit.lost()
                raise
            self.left += again

    async def send(self, permit: Any) -> bool:
        """Send a request; return whether it was refused."""
        await asyncio.sleep(0.025)
        trial = self.server.answer(time(), 1.0)
        await asyncio.sleep(0.025)
        if trial.status == 429:
            self.refusals += 1
            self.stopped_until = max(self.stopped_until, time() + (trial.info.retry_after or 0.0))
        await end(permit, trial.status, trial.info)
        return trial.status == 429


async def test_processes_reach_the_quota_of_one() -> None:
    """Eight processes with eight tasks each need the time of one, meet one 429, and send in no stop."""
    exchange = Exchange(delay=0.001)
    async with processes(8, exchange) as many:
        job = Job(FromFirst(600.0, 10.0), 2_400)
        await asyncio.gather(*(job.work(process) for process in many for _ in range(8)))
        assert time() < 30.0 / 0.97 + 1.0
        assert job.refusals <= 1
        assert job.sent_in_stop == 0


@pytest.mark.parametrize("times", [(3.0, 12.0), (0.3, 10.9), (5.0, 20.9)])
@pytest.mark.parametrize("deaths", [("host", "host"), ("other", "other")])
async def test_processes_survive_the_death_of_others(
    deaths: tuple[str, ...], times: tuple[float, ...]
) -> None:
    """Processes that are killed cost their requests under way, and no more: the next host has a memory."""
    exchange = Exchange(delay=0.001)
    async with processes(8, exchange) as many:
        job = Job(FromFirst(600.0, 10.0), 2_400 - 8 * len(deaths))  # the server counted what died under way
        tasks = {process: [asyncio.create_task(job.work(process)) for _ in range(8)] for process in many}

        def kill(kind: str) -> None:
            host = exchange.hosts["quota"][0]
            process = next(p for p in many if (p.carrier is host) == (kind == "host") and not p.carrier.dead)
            exchange.kill(process.carrier)
            for task in tasks[process]:
                task.cancel()

        for seconds, kind in zip(times, deaths, strict=True):
            asyncio.get_running_loop().call_later(seconds, kill, kind)
        await asyncio.wait([task for each in tasks.values() for task in each])
        assert job.left == 0
        assert time() < LIVING / 0.97
        assert job.refusals <= 1
        assert job.sent_in_stop == 0
