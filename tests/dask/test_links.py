"""Gate beside a Dask scheduler: workers share one quota, and links break when a worker leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from distributed import Client, LocalCluster, Security

from chainapi._limits.gate import Ask, Member, Permit
from chainapi._limits.verdict import Verdict
from chainapi.dask.links import DaskCarrier, GatePlugin
from chainapi.errors import ShareUnavailableError
from chainapi.share.participant import SharedGate
from chainapi.share.permits import SharedPermit
from tests.dask.clusters import cluster_of
from tests.share.responses import end, headers

pytestmark = [pytest.mark.real_time, pytest.mark.adapter]


class Process:
    """Worker with one session on a shared quota."""

    def __init__(self, worker: Any, name: str = "quota") -> None:
        self.worker, self.member = worker, Member()
        self.carrier = DaskCarrier.of(worker)
        self.gate = SharedGate(name, "https://data.test", self.carrier, "fail")
        self.gate.join(self.member)

    async def acquire(self, **options: Any) -> SharedPermit | Permit:
        """Return a permit."""
        return await asyncio.wait_for(self.gate.acquire(Ask("/a", **options), self.member), 10)

    async def aclose(self) -> None:
        """Leave the quota."""
        self.gate.leave(self.member)
        await self.gate.aclose()
        self.carrier.close()


@asynccontextmanager
async def workers_of(
    number: int, **options: Any
) -> AsyncIterator[tuple[list[Process], Client, LocalCluster, GatePlugin]]:
    """Start workers that share a quota."""
    async with cluster_of(number, **options) as (client, cluster):
        await client.register_plugin(GatePlugin())
        assert cluster.scheduler is not None
        plugin = cluster.scheduler.plugins[GatePlugin.name]
        assert isinstance(plugin, GatePlugin)
        processes = [Process(worker) for worker in cluster.workers.values()]
        try:
            yield processes, client, cluster, plugin
        finally:
            for process in processes:
                await process.aclose()


@pytest.mark.parametrize("protocol", ["tcp", pytest.param("tls", marks=pytest.mark.proof)])
async def test_a_refusal_of_one_worker_stops_all(protocol: str) -> None:
    """After a 429 on one worker no other sends before its retry-after has passed."""
    options = {"security": Security.temporary()} if protocol == "tls" else {}
    async with workers_of(2, protocol=protocol, **options) as ((one, two), *_):
        assert one.worker.address.startswith(f"{protocol}://")
        await end(await one.acquire(), 200, headers(99))
        assert await end(await one.acquire(), 429, headers(0, 0.3)) is Verdict.QUOTA
        began = asyncio.get_running_loop().time()
        (await two.acquire()).unsent()
        assert asyncio.get_running_loop().time() - began >= 0.25


async def test_permits_of_a_worker_that_leaves_are_lost() -> None:
    """A worker that leaves ends its links at once: the next one does not wait for its probe."""
    async with workers_of(2, protocol="tcp") as ((one, two), client, _, plugin):
        await one.acquire()  # the probe, which holds the others back
        waiting = asyncio.create_task(two.acquire())
        await asyncio.sleep(0)
        assert not waiting.done()
        await client.retire_workers([one.worker.address])
        (await waiting).unsent()
        assert {worker for worker, _ in plugin._ends} == {two.worker.address}


async def test_a_worker_without_a_scheduler_has_no_host() -> None:
    """Once the stream to the scheduler is closed, links break, and connecting fails."""
    async with workers_of(1, protocol="tcp") as ((one,), *_):
        (await one.acquire()).unsent()
        one.worker.batched_stream.comm.abort()
        with pytest.raises(ShareUnavailableError, match="lost its scheduler"):
            await one.carrier.connect("quota")
        [link] = one.carrier._ends.values()
        broken = asyncio.Event()
        link.start(lambda frame: None, broken.set)
        link.send(b"")
        await asyncio.wait_for(broken.wait(), 10)
        assert not one.carrier._ends


async def test_a_scheduler_that_ends_breaks_its_links() -> None:
    """The scheduler's ends of all links close with it."""
    async with workers_of(2) as ((one, two), _, _, plugin):
        (await one.acquire()).unsent()
        (await two.acquire()).unsent()
        assert len(plugin._ends) == 2
        await plugin.close()
        assert not plugin._ends


async def test_a_frame_after_the_last_session_leaves_the_worker_alone() -> None:
    """A worker whose sessions are closed answers a frame that was on its way, and runs its next task."""
    async with workers_of(1, protocol="tcp") as ((one,), client, _, plugin):
        (await one.acquire()).unsent()
        [key] = plugin._ends
        await one.aclose()
        assert plugin._send(key, b"late")
        assert await asyncio.wait_for(client.submit(int, pure=False), 10) == 0
        assert one.worker.status.name == "running"
