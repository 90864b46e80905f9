"""Host of all quotas of one user on one machine: a process of its own.

It is started by the first session that finds none, or by an operator. No code of an application runs in it,
and the end of an application does not end it. It ends after a minute without a session, or when its
directory is gone, and keeps what it has learned of each quota for the next one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from attrs import define, field

from chainapi.core.share.messages import FrameError, Remote, greeting_of
from chainapi.share.directory import UNIX_SOCKETS, Directory
from chainapi.share.host import Host
from chainapi.share.stream import StreamLink

if TYPE_CHECKING:
    from chainapi.share.machines import Machine

__all__ = ["HostProcess"]

IDLE = 60.0  # seconds without a session after which it ends
LOOKS, LOOK = 5, 0.02  # tries to be the host, and seconds after each: a session may look for one
WATCH = 0.5  # seconds between two looks at its directory and its sessions


@define(eq=False)
class HostProcess:
    """Server of the links of all sessions of a user.

    Attributes:
        directory: where sessions find it.
        idle: seconds without a session after which it ends; None for never.
        replaceable: whether sessions may kill this process when it does not answer.

    """

    directory: Directory
    idle: float | None = IDLE
    replaceable: bool = True
    _hosts: dict[str, Host] = field(factory=dict[str, Host], init=False)
    _machines: dict[tuple[str, Remote], Machine] = field(
        factory=dict[tuple[str, Remote], "Machine"], init=False
    )
    _links: set[StreamLink] = field(factory=set[StreamLink], init=False)
    _stopped: asyncio.Event = field(factory=asyncio.Event, init=False)

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str],
        *,
        tcp: bool = not UNIX_SOCKETS,
        idle: float | None = IDLE,
        replaceable: bool = True,
    ) -> Self:
        """Return a host for a directory, which is created if it is missing.

        Raises:
            ConfigurationError: others can use the directory.
            OSError: it cannot be created.

        """
        directory = Directory.at(path, tcp=tcp)
        directory.prepare()
        return cls(directory, idle, replaceable)

    async def run(self) -> bool:
        """Serve until there is nothing to do.

        Return False if another process is the host.
        """
        for _ in range(LOOKS):
            with self.directory.hosted(replaceable=self.replaceable) as hosted:
                if hosted:
                    self.directory.prune()
                    await self._serve()
                    return True
            await asyncio.sleep(LOOK)
        return False

    def stop_at_signals(self) -> None:
        """End in order at SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        listener, secret = self.directory.listen()
        accept = partial(self._accept, secret)
        if self.directory.tcp:
            server = await loop.create_server(accept, sock=listener)
        else:
            server = await loop.create_unix_server(accept, sock=listener)
        try:
            await self._until_idle()
        finally:
            for host in self._hosts.values():
                host.save()
            for machine in self._machines.values():
                await machine.aclose()
            server.close()
            for link in [*self._links]:
                link.close()
            await asyncio.gather(*(link.closed for link in self._links))

    async def _until_idle(self) -> None:
        """Wait for a signal, or for the end of the last session or of the directory."""
        loop = asyncio.get_running_loop()
        busy = loop.time()
        while self.directory.intact:
            if self._links:
                busy = loop.time()
            elif self.idle is not None and loop.time() - busy >= self.idle:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH):
                    await self._stopped.wait()
                    return

    def _accept(self, secret: bytes) -> StreamLink:
        return StreamLink(secret, self._opened)

    def _opened(self, link: StreamLink) -> None:
        self._links.add(link)
        link.closed.add_done_callback(lambda _: self._links.discard(link))
        link.start(partial(self._first, link), lambda: None)

    def _first(self, link: StreamLink, frame: bytes) -> None:
        """Hand a link over to the host of the quota that its first frame names."""
        try:
            hello = greeting_of(frame)
        except FrameError:
            link.fail()
            return
        name = hello.quota
        if hello.remote is not None:
            self._machine(name, hello.remote).serve(link, frame)
            return
        if name not in self._hosts:
            store = partial(self.directory.store, name)
            self._hosts[name] = Host(*self.directory.load(name), store=store)
        self._hosts[name].serve(link, frame)

    def _machine(self, name: str, remote: Remote) -> Machine:
        """Return what passes links of a quota on to other machines."""
        from chainapi.share.machines import Machine

        key = name, remote
        if key not in self._machines:
            self._machines[key] = Machine(name, remote)
        return self._machines[key]
