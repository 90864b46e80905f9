"""Host processes over Redis, as the tests play them: each has a host that echoes frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from chainapi.share.redis import RedisCarrier
from chainapi.share.redis.peer import RedisPeer

__all__ = ["End", "Process", "connected", "processes"]

LONG = 600.0  # seconds: a lock or a silence that no test waits for


class End:
    """One end of a link: what arrived, and whether it broke."""

    def __init__(self, link: Any, echo: bool = False) -> None:
        self.link = link
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.broken = asyncio.Event()
        link.start(self._echo if echo else self.frames.put_nowait, self.broken.set)

    def _echo(self, frame: bytes) -> None:
        self.frames.put_nowait(frame)
        self.link.send(b"echo " + frame)

    async def ask(self, frame: bytes) -> bytes:
        """Send a frame, and return the next that arrives."""
        self.link.send(frame)
        return await self.frames.get()


class Process:
    """Host process with the options of a carrier, whose host echoes frames if it is elected."""

    def __init__(self, url: str, name: str, **options: object) -> None:
        settings = {"ttl": LONG, "silence": LONG, **options}
        self.name = name
        self.carrier = RedisCarrier(url, **settings)  # type: ignore[arg-type]
        self.secret = b""
        self.elections: list[tuple[bytes, float]] = []
        self.served: asyncio.Queue[End] = asyncio.Queue()

    @cached_property
    def peer(self) -> RedisPeer:
        """Part of the process in the quota, with the secret that it has by then."""
        return RedisPeer(self.carrier.remote(self.name, self.secret))

    async def connect(self) -> End:
        """Return the participant's end of a new link."""
        return End(await self.peer.connect(self.name, self._make_host))

    async def aclose(self) -> None:
        """Leave the quota."""
        await self.peer.aclose(self.name)

    def _make_host(self, memory: bytes, age: float) -> Any:
        self.elections.append((memory, age))
        return lambda link: self.served.put_nowait(End(link, echo=True))


@asynccontextmanager
async def processes(number: int, url: str, name: str, **options: object) -> AsyncIterator[list[Process]]:
    """Return processes, the first of them the host if `number` is more than 1; close them at the end."""
    them = [Process(url, name, **options) for _ in range(number)]
    try:
        yield them
    finally:
        for process in them:
            await process.aclose()


async def connected(*them: Process) -> list[End]:
    """Connect processes one after the other: the first becomes the host."""
    return [await process.connect() for process in them]
