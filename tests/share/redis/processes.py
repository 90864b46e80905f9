"""Machines over Redis as tests play them, in one loop, and the sessions that they serve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from chainapi.core.share.messages import (
    VERSION,
    Denied,
    FromHost,
    FromParticipant,
    Hello,
    Join,
    QuotaState,
    Watch,
    Welcome,
    encode,
    read_host_frame,
)
from chainapi.errors import ShareUnavailableError
from chainapi.share.machines import Machine
from chainapi.share.redis import RedisCarrier

__all__ = ["End", "Process", "connected", "processes"]

LONG = 600.0  # seconds: a lock or a silence that no test waits for


class End:
    """A session's end of a link: what arrived, and whether it broke."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.messages: asyncio.Queue[FromHost] = asyncio.Queue()
        self.broken = asyncio.Event()
        link.start(self._receive, self.broken.set)

    def _receive(self, frame: bytes) -> None:
        for message in read_host_frame(frame):
            self.messages.put_nowait(message)

    def send(self, *messages: FromParticipant) -> None:
        """Send messages to the host."""
        self.link.send(encode(messages))

    async def state(self) -> QuotaState:
        """Ask the host for the state of the quota."""
        self.send(Watch())
        while not isinstance(message := await self.messages.get(), QuotaState):
            pass
        return message


class Process:
    """Host process of one machine, with the options of a carrier."""

    def __init__(self, url: str, name: str, **options: object) -> None:
        settings = {"ttl": LONG, "silence": LONG, **options}
        self.name = name
        self.carrier = RedisCarrier(url, **settings)  # type: ignore[arg-type]
        self.machine = Machine(name, self.carrier.remote(name, b""))
        self._sessions = count()

    async def connect(self, stopped: float = 0.0) -> End:
        """Connect a session; raises ShareUnavailableError with the reason of a refusal."""
        session = next(self._sessions)
        end = End(self.machine.connect())
        end.send(Hello(VERSION, f"{id(self)}:{session}", "", stopped, self.name), Join(0))
        lost = asyncio.create_task(end.broken.wait())
        answer = asyncio.create_task(end.messages.get())
        try:
            await asyncio.wait([answer, lost], return_when=asyncio.FIRST_COMPLETED)
            message = answer.result() if answer.done() else None
        finally:
            answer.cancel()
            lost.cancel()
        if message is None:
            return await self.connect(stopped)  # the host ended meanwhile
        if isinstance(message, Denied):
            raise ShareUnavailableError(message.reason)
        assert isinstance(message, Welcome)
        return end

    async def aclose(self) -> None:
        """Leave the quota."""
        await self.machine.aclose()


@asynccontextmanager
async def processes(number: int, url: str, name: str, **options: object) -> AsyncIterator[list[Process]]:
    """Return processes of as many machines; close them at the end."""
    them = [Process(url, name, **options) for _ in range(number)]
    try:
        yield them
    finally:
        for process in them:
            await process.aclose()


async def connected(*them: Process) -> list[End]:
    """Connect a session on each machine, one after the other: the first becomes the host."""
    return [await process.connect() for process in them]
