"""Relay between the sessions of a machine and the host of a quota."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from chainapi.core.share.messages import Denied, Remote, encode
from chainapi.errors import ShareUnavailableError
from chainapi.share.host import Host
from chainapi.share.link import Link
from chainapi.share.redis.peer import RedisPeer
from chainapi.share.stream import StreamLink

__all__ = ["Relay"]


class Relay:
    """Relay of one quota, for all sessions of this machine.

    Machines elect a host among them, over Redis. Each session has a link of its own to it.

    Args:
        name: name of the quota.
        remote: the server.

    Attributes:
        ended: whether the last session has left, and with it this machine.

    """

    def __init__(self, name: str, remote: Remote) -> None:
        self.ended = False
        self._name, self._peer = name, RedisPeer(remote)
        self._host: Host | None = None  # made here, if this machine was elected
        self._tasks = set[asyncio.Task[None]]()

    def serve(self, link: StreamLink, first: bytes) -> None:
        """Pass the frames of a session and of the host on, until either end breaks."""
        frames, broken = [first], asyncio.Event()
        link.start(frames.append, broken.set)
        self._tasks.add(asyncio.get_running_loop().create_task(self._pass_on(link, frames, broken)))

    async def aclose(self) -> None:
        """Leave the quota; another machine hosts it then."""
        self.ended = True
        for task in self._tasks:
            task.cancel()
        if self._host is not None:
            self._host.save()
        await self._peer.aclose(self._name)

    async def _pass_on(self, link: StreamLink, frames: list[bytes], broken: asyncio.Event) -> None:
        try:
            far = await self._peer.connect(self._name, self._make_host)
        except ShareUnavailableError as error:
            link.send(encode([Denied(str(error)[:1024], again=True)]))
            link.close()
        else:
            far.start(link.send, broken.set)
            link.start(far.send, broken.set)
            for frame in frames:
                far.send(frame)
            await broken.wait()
            far.close()
            link.close()
        finally:
            self._tasks.discard(asyncio.current_task())
            if not self._tasks and not self.ended:
                with suppress(ShareUnavailableError):
                    await self.aclose()

    def _make_host(self, memory: bytes, age: float) -> Callable[[Link], None]:
        self._host = Host(memory, age, store=lambda learned, _: self._peer.store(self._name, learned))
        return self._host.serve
