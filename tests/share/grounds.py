"""Grounds for the contract of a shared quota: a service, a carrier, and members that meet over it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import distributed
from attrs import define, field

import chainapi.dask
from chainapi import Session
from chainapi.simulator import Simulator
from tests.dask.clusters import cluster_of
from tests.share.exchange import Exchange, ExchangeCarrier
from tests.share.folders import share_folder
from tests.share.members import PATH, Outcome, Processes, Worker, opened
from tests.share.redis.server import RedisServer

__all__ = ["GROUNDS", "Ground"]


class Ground(Protocol):
    """Service whose quota members share."""

    sim: Simulator
    trip: float  # seconds after which a member surely knows what another one was told

    async def member(self, **options: Any) -> Any:
        """Return one more member, whose session has these options; it connects at its first call."""
        ...

    def cut(self) -> None:
        """Let nobody reach anybody, and forget what was stored."""
        ...

    def mend(self) -> None:
        """Let members meet again."""
        ...

    async def left(self) -> list[str]:
        """Return what is left behind of a quota whose members are closed, but for what is documented."""
        ...


@define(eq=False)
class InMemory:
    """Members in one loop in virtual time, over a carrier of the tests."""

    sim: Simulator
    exchange: Exchange = field(factory=Exchange)
    workers: list[Worker] = field(factory=list[Worker])
    trip: float = 0.001

    @classmethod
    @asynccontextmanager
    async def made(cls, **settings: Any) -> AsyncIterator[InMemory]:
        """Make the ground, and close all sessions at the end."""
        ground = cls(Simulator(log=True, **settings))
        yield ground
        for worker in ground.workers:
            await worker.session.aclose()

    async def member(self, **options: Any) -> MemoryMember:
        """See `Ground.member`."""
        carrier = self.exchange.carrier()
        arguments = {**self.sim.arguments(), **options}
        member = MemoryMember(opened(share=carrier, **arguments), self.exchange, carrier)
        self.workers.append(member)
        return member

    def cut(self) -> None:
        """See `Ground.cut`."""
        self.exchange.cut()
        self.exchange.stored.clear()

    def mend(self) -> None:
        """See `Ground.mend`."""
        self.exchange.away = False

    async def left(self) -> list[str]:
        """See `Ground.left`."""
        return [*map(repr, self.exchange.links), *self.exchange.hosts]


class MemoryMember(Worker):
    """Member in the loop of the test."""

    def __init__(self, session: Session, exchange: Exchange, carrier: ExchangeCarrier) -> None:
        super().__init__(session)
        self.exchange, self.carrier, self.idle = exchange, carrier, len(asyncio.all_tasks())

    async def close(self) -> dict[str, int]:
        """See `Member.close`; tasks and sockets are those of all members."""
        await super().close()
        return {"tasks": 0, "sockets": 0}

    async def kill(self) -> None:
        """See `Member.kill`."""
        self.exchange.kill(self.carrier)
        await self.cancel()


@define(eq=False)
class Apart:
    """Members in processes of their own, on a simulator with a port."""

    sim: Simulator
    processes: Processes
    share: Any
    key: str
    trip: float = field(default=0.1, init=False)

    async def member(self, **options: Any) -> Any:
        """See `Ground.member`."""
        arguments = {"data_base_url": self.sim.data_base_url, "api_key": self.key, **options}
        return await self.processes.start(share=self.share, **arguments)


@define(eq=False)
class OneMachine(Apart):
    """Processes that meet in a directory."""

    directory: Path

    @classmethod
    @asynccontextmanager
    async def made(cls, **settings: Any) -> AsyncIterator[OneMachine]:
        """Make the ground, and end all processes at the end."""
        with share_folder() as folder:
            directory = folder / "chainapi"
            async with (
                Simulator(log=True, **settings) as sim,
                Processes.started(CHAINAPI_SHARE_DIR=str(directory)) as processes,
            ):
                yield cls(sim, processes, True, sim.api_key, directory)

    async def left(self) -> list[str]:
        """See `Ground.left`."""
        documented = {"host.lock", "host.sock", "start.lock"}  # the host lives on for a minute
        return [
            path.name
            for path in self.directory.iterdir()
            if path.name not in documented and path.suffix != ".quota"
        ]


@define(eq=False)
class OverRedis(Apart):
    """Processes of two machines, which meet over a Redis server."""

    server: RedisServer
    machines: list[str]

    @classmethod
    @asynccontextmanager
    async def made(cls, **settings: Any) -> AsyncIterator[OverRedis]:
        """Make the ground, and end all processes and the server at the end."""
        with share_folder() as folder:
            server, key = RedisServer(folder).start(), uuid.uuid4().hex
            try:
                async with (
                    Simulator(log=True, api_key=key, **settings) as sim,
                    Processes.started() as processes,
                ):
                    machines = [f"{folder}/one", f"{folder}/two"]
                    yield cls(sim, processes, server.url, key, server, machines)
            finally:
                server.stop()

    async def member(self, **options: Any) -> Any:
        """See `Ground.member`; by turns they are on either machine."""
        self.machines.reverse()
        return await super().member(directory=self.machines[0], **options)

    def cut(self) -> None:
        """See `Ground.cut`."""
        self.server.stop()

    def mend(self) -> None:
        """See `Ground.mend`."""
        self.server.start()

    async def left(self) -> list[str]:
        """See `Ground.left`: keys that would stay for ever, and channels with a listener."""
        script = (
            "local left = redis.call('PUBSUB', 'CHANNELS') "
            "for _, key in ipairs(redis.call('KEYS', '*')) do "
            "if redis.call('PTTL', key) < 0 then left[#left + 1] = key end end "
            "return table.concat(left, ' ')"
        )
        return self.server.command("EVAL", script, "0").split()


@define(eq=False)
class OnCluster:
    """Workers of a Dask cluster in the process of the test."""

    sim: Simulator
    client: distributed.Client
    addresses: list[str]
    trip: float = 0.1

    @classmethod
    @asynccontextmanager
    async def made(cls, **settings: Any) -> AsyncIterator[OnCluster]:
        """Make the ground, and end the cluster at the end."""
        async with Simulator(log=True, **settings) as sim, cluster_of(3) as (client, cluster):
            await chainapi.dask.register(client, data_base_url=sim.data_base_url, api_key=sim.api_key)
            yield cls(sim, client, [worker.address for worker in cluster.workers.values()])

    async def member(self, **options: Any) -> WorkerOfCluster:
        """See `Ground.member`; the sessions of all workers have the same options."""
        assert not options
        return WorkerOfCluster(self.client, self.addresses.pop(0))


@define(eq=False)
class WorkerOfCluster:
    """Worker whose tasks make calls."""

    client: distributed.Client
    address: str

    async def _run(self, what: str, **options: Any) -> Any:
        return await self.client.submit(_task, what, options, workers=[self.address], pure=False)

    async def get(self, calls: int = 1, path: str = PATH, rounds: int = 1, **options: Any) -> list[Outcome]:
        """See `Member.get`."""
        outcomes: list[Outcome] = await self._run("get", calls=calls, path=path, rounds=rounds, **options)
        return outcomes

    async def quota(self) -> dict[str, Any]:
        """See `Member.quota`."""
        shown: dict[str, Any] = await self._run("quota")
        return shown


async def _task(what: str, options: dict[str, Any]) -> Any:
    return await getattr(Worker(chainapi.dask.session()), what)(**options)


GROUNDS: dict[str, Callable[..., AbstractAsyncContextManager[Any]]] = {
    "memory": InMemory.made,
    "local": OneMachine.made,
    "redis": OverRedis.made,
    "dask": OnCluster.made,
}
