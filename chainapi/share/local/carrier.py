"""Carrier between the processes of one user on one machine.

It needs no other software. The first process hosts the quota: it listens at a Unix socket in a directory of
the user, or on loopback TCP where there are no Unix sockets. The others connect to it. When it ends, even by
``kill -9``, the kernel releases its lock and breaks its connections, and another process becomes the host at
once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field

from chainapi._text import quoted
from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share import forks
from chainapi.share.link import Link, PairedLink, Serve, linked_pair
from chainapi.share.local.election import (
    BACKLOG,
    UNIX_SOCKETS,
    Address,
    Elections,
    Seat,
    share_directory,
    stream_socket,
)
from chainapi.share.local.handshake import Handshake, VersionError, host_side, participant_side
from chainapi.share.local.stream import PATIENCE, StreamLink

__all__ = ["LocalCarrier"]

# Errors of a directory that waiting does not end. On Windows a permission may be missing for a moment.
NEVER = {errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
if sys.platform != "win32":
    NEVER |= {errno.EACCES, errno.EPERM}
PAUSE = 0.02  # seconds between two attempts to reach a host, or to become it
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class LocalCarrier:
    """Carrier between the processes of one user on one machine.

    A carrier belongs to one event loop. See `chainapi.share.link.Carrier`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        tcp: bool = not UNIX_SOCKETS,
        tick: float = 1.0,
    ) -> None:
        """Prepare a carrier; it opens files and sockets when it connects.

        Args:
            directory: for the locks and sockets; without it that of `share_directory`. Processes share a
                quota if they use the same directory. It is created for the user alone (mode 0700).
            tcp: whether this process listens on loopback TCP when it is the host, instead of a Unix socket.
            tick: seconds between two checks of a link. A host that sends nothing for 2 of them has 5 more to
                answer; then another process replaces it.

        """
        self._elections = Elections(Path(directory) if directory is not None else share_directory(), tcp)
        self._tick = tick
        self._hosts: dict[str, _Host] = {}
        self._links: dict[str, set[StreamLink]] = {}
        self._silent: dict[str, Address] = {}  # hosts that exist and did not answer

    async def connect(self, name: str, make_host: Callable[[bytes, float], Serve]) -> Link:
        """See `chainapi.share.link.Carrier.connect`."""
        _check(name)
        with self._explained():
            self._elections.prepare()
            host = self._hosts.get(name)
            if host is not None and host.check():
                return host.own_link()
            return await self._find(name, make_host)

    async def observe(self, name: str) -> Link | None:
        """Return a link to the host without becoming it; None if no process hosts.

        Raises:
            ConfigurationError: the directory cannot be used by this user.
            ShareUnavailableError: the host does not answer.

        """
        _check(name)
        with self._explained():
            self._elections.prepare()
            address = self._elections.address(name)
            if address is None or not self._elections.alive(address):
                return None
            link = await self._dial(name, address)
        if link is None:
            raise ShareUnavailableError(
                "the process that hosts the shared quota does not answer: it is stopped, or its event loop is"
                " blocked, or it ends now. Try again in a moment"
            )
        return link

    def names(self) -> list[str]:
        """Return the names of the quotas that have or had a host; see `observe`.

        Raises:
            ConfigurationError: the directory cannot be used by this user.
            ShareUnavailableError: the directory cannot be read now.

        """
        with self._explained():
            self._elections.prepare()
            return self._elections.names()

    def store(self, name: str, memory: bytes) -> None:
        """Store the memory of a quota in the directory, for the next host.

        Without effect if this process is not the host.
        """
        host = self._hosts.get(name)
        if host is not None and host.check():
            with suppress(OSError):  # a full disk: the next host learns again
                self._elections.store(name, memory)

    async def aclose(self, name: str) -> None:
        """See `chainapi.share.link.Carrier.aclose`."""
        host = self._hosts.pop(name, None)
        ending = [*self._links.get(name, ())]
        for link in ending:
            link.end()
        if host is not None:
            ending += [link for link in host.links if link.connected]
            host.end()
        if ending:
            await asyncio.wait([link.closed for link in ending])
        await asyncio.sleep(0)  # the transports close their sockets

    # --- participants ---------------------------------------------------------------------------------

    async def _find(self, name: str, make_host: Callable[[bytes, float], Serve]) -> Link:
        """Return a link to the host, or become the host."""
        replaced = self._silent.pop(name, None)
        failures, suspect = 0, None
        most = max(1, int(PATIENCE * self._tick / PAUSE))  # attempts at a host that refuses connections
        for _ in range(4 * most):
            address = self._elections.address(name)
            if address is None or address == replaced or not self._elections.alive(address):
                seat = self._elections.elect(name, replaced)
                if seat is not None:
                    return await self._become_host(seat, make_host)
            else:
                link = await self._dial(name, address)
                if link is not None:
                    return link
                failures, suspect = (failures + 1 if address == suspect else 1), address
                if failures >= most or self._silent.pop(name, None) == address:
                    replaced = address
            await asyncio.sleep(PAUSE)
        raise ShareUnavailableError(
            "no process that hosts the shared quota can be reached, and this one cannot become the host,"
            " because another process is stopped or busy in the middle of that. End the processes that have"
            f" files open in {self._elections.directory}, or let CHAINAPI_SHARE_DIR name another directory"
        )

    async def _dial(self, name: str, address: Address) -> StreamLink | None:
        """Connect to a host; return None if it does not accept this process."""
        link = StreamLink(Handshake(participant_side(address.secret)), tick=self._tick, host=False)
        peer = stream_socket(tcp=address.port != 0)  # an error of it does not count against the host
        try:
            await self._open_stream(address, peer, link)
        except OSError:
            return None
        try:
            opened = await link.opened
        except asyncio.CancelledError:
            link.fail()
            raise
        if isinstance(link.error, VersionError):
            raise ShareUnavailableError(str(link.error))
        if not opened:
            self._closed(name, address, link)
            return None
        self._links.setdefault(name, set()).add(link)
        link.closed.add_done_callback(lambda _: self._closed(name, address, link))
        return link

    async def _open_stream(self, address: Address, peer: socket.socket, link: StreamLink) -> None:
        loop = asyncio.get_running_loop()
        forks.hold(peer.fileno())
        try:
            if address.port:
                await loop.sock_connect(peer, ("127.0.0.1", address.port))
            else:
                # It succeeds or fails at once. asyncio would take a full queue of connections for a success.
                peer.connect(self._elections.socket_path(address))
        except BaseException:
            forks.release(peer.fileno())
            peer.close()
            raise
        create = loop.create_connection if address.port else loop.create_unix_connection
        await create(lambda: link, sock=peer)

    def _closed(self, name: str, address: Address, link: StreamLink) -> None:
        if link.silent:
            self._silent[name] = address
        links = self._links.get(name, set())
        links.discard(link)
        if not links:
            self._links.pop(name, None)

    # --- the host -----------------------------------------------------------------------------------

    async def _become_host(self, seat: Seat, make_host: Callable[[bytes, float], Serve]) -> Link:
        try:
            serve = make_host(*self._elections.memory(seat.name))
        except BaseException:
            seat.release()
            raise
        host = _Host(seat, serve, self._tick)
        await host.start()
        self._hosts[seat.name] = host
        return host.own_link()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise (ConfigurationError if error.errno in NEVER else ShareUnavailableError)(
                f"the directory {self._elections.directory} cannot be used to share the quota: {error}. Let"
                " CHAINAPI_SHARE_DIR name a directory that this user can write"
            ) from error


@define(eq=False)
class _Host:
    """Server of the links to this process while it is the host."""

    _seat: Seat
    _serve: Serve
    _tick: float
    links: set[StreamLink] = field(factory=set[StreamLink], init=False)
    _own: list[PairedLink] = field(factory=list[PairedLink], init=False)
    _server: asyncio.Server | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle = field(init=False)
    _checked: float = field(init=False)
    _ended: bool = field(default=False, init=False)

    async def start(self) -> None:
        """Accept connections; if that fails, or is cancelled, end."""
        loop = asyncio.get_running_loop()
        self._check_later()
        listen = loop.create_server if self._seat.address.port else loop.create_unix_server
        try:
            self._server = await listen(
                self._accept, sock=self._seat.listener, backlog=BACKLOG, start_serving=False
            )
            await self._server.start_serving()
        except BaseException:
            self.end()
            raise

    def own_link(self) -> Link:
        """Return a link of this process to itself."""
        own, other = linked_pair()
        self._own.append(own)
        self._serve(other)
        return own

    def check(self) -> bool:
        """Return whether this process is still the host; end if it is not."""
        if not self._ended:
            with suppress(OSError):  # too many open files: the next check will find out
                if not self._seat.valid():
                    self._end(StreamLink.fail)
        return not self._ended

    def end(self) -> None:
        """End: break all links, and let another process become the host."""
        if not self._ended:
            self._end(StreamLink.end)

    def _end(self, end_link: Callable[[StreamLink], None]) -> None:
        self._ended = True
        self._timer.cancel()
        if self._server is not None:
            self._server.close()
        self._seat.release()
        for link in self.links:
            if link.connected:  # the others notice it when they are
                end_link(link)
        for own in self._own:
            own.fail()

    def _accept(self) -> StreamLink:
        link = StreamLink(
            Handshake(host_side(self._seat.address.secret)), tick=self._tick, host=True, active=self._active
        )
        self.links.add(link)
        link.closed.add_done_callback(lambda _: self.links.discard(link))
        link.opened.add_done_callback(lambda opened: self._serve(link) if opened.result() else None)
        return link

    def _active(self) -> bool:
        """Return whether this process is the host; check it after a pause of the process."""
        late = asyncio.get_running_loop().time() - self._checked > 2 * self._tick
        return self.check() if late else not self._ended

    def _check_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._checked = loop.time()
        self._timer = loop.call_later(self._tick, self._check_in_time)

    def _check_in_time(self) -> None:
        if self.check():
            self._check_later()


def _check(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"the name {quoted(name)} of a shared quota must have 1 to 64 letters, digits, '-' or '_'"
        )
