"""Links over a Unix socket, or loopback TCP: frames with their length in front.

A session that hears nothing for a while sends an empty frame, which the host returns.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Callable
from typing import cast

from chainapi.core.share.messages import MAX_FRAME, FrameError, FrameReader, framed
from chainapi.share import forks
from chainapi.share.directory import is_foreign
from chainapi.share.link import Link

__all__ = ["StreamLink", "connected"]

TICK = 0.5  # seconds
QUIET = 1  # ticks without a byte, after which a session sends an empty frame
PATIENCE = 4  # ticks without a byte, after which a session gives the host up
MAX_UNSENT = 16_777_216  # bytes that wait for a session to read
_ALIVE = framed(b"")


class StreamLink(Link, asyncio.Protocol):
    """One end of a link over a stream.

    Waiting is counted in ticks instead of by the clock: time in which this process was stopped, or its loop
    was blocked, does not count against the other end.

    Args:
        secret: what a session sends first, and a host expects; empty for a Unix socket.
        on_open: makes this the end of a host: called when the session has sent the secret.

    Attributes:
        silent: whether the host did not answer in time.

    """

    def __init__(self, secret: bytes, on_open: Callable[[StreamLink], None] | None = None) -> None:
        super().__init__()
        self.silent: bool = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._secret, self._on_open = secret, on_open
        self._is_host = on_open is not None
        self._expected = bytearray()
        self._reader = FrameReader()
        self._quiet = 0  # ticks without a byte
        self._timer: asyncio.TimerHandle | None = None

    def send(self, frame: bytes) -> None:
        """See `Link.send`; a frame for a session that does not read breaks the link.

        A host that does not read is soon silent, and a session may have any number of requests at once.
        """
        if not self.open or self._transport.is_closing():
            return
        unread = self._transport.get_write_buffer_size()
        if len(frame) > MAX_FRAME or (self._is_host and unread > MAX_UNSENT):
            self.fail()
        else:
            self._transport.write(framed(frame))

    def fail(self) -> None:
        """Break the link at once; this end is informed too."""
        self.open: bool = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with a process of the same user."""
        self._transport = cast("asyncio.Transport", transport)
        peer: socket.socket = transport.get_extra_info("socket")
        self._descriptor = peer.fileno()
        forks.drop_in_child(self._descriptor)
        if is_foreign(peer):
            self.fail()
        elif not self._is_host:
            self._transport.write(self._secret)
            self._timer = self._loop.call_later(TICK, self._tick)
        elif not self._secret:
            self._begin()

    def data_received(self, data: bytes) -> None:
        """Deliver the frames that are complete."""
        self._quiet = 0
        if self._on_open is not None:
            self._expected += data
            size = len(self._secret)
            if len(self._expected) < size:
                return
            data = bytes(self._expected[size:])
            if not hmac.compare_digest(bytes(self._expected[:size]), self._secret):
                self.fail()
                return
            self._begin()
        try:
            for frame in self._reader.feed(data):
                if not self.open:
                    return
                if frame:
                    self._hand_over(frame)
                elif self._is_host:
                    self._transport.write(_ALIVE)
        except FrameError:
            self.fail()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the link."""
        forks.keep(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
        self.open = False
        self.closed.set_result(None)
        self._break()

    def _begin(self) -> None:
        """Serve the session."""
        on_open, self._on_open = self._on_open, None
        if on_open is not None:
            on_open(self)

    def _hang_up(self) -> None:
        self._transport.close()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK, self._tick)
        self._quiet += 1
        if self._quiet == QUIET:
            self._transport.write(_ALIVE)
        elif self._quiet > QUIET + PATIENCE:
            self.silent = True
            self.fail()


async def connected(peer: socket.socket, secret: bytes) -> StreamLink:
    """Return the link of a session over a connected socket."""
    loop, link = asyncio.get_running_loop(), StreamLink(secret)
    create = loop.create_connection if peer.family == socket.AF_INET else loop.create_unix_connection
    try:
        await create(lambda: link, sock=peer)
    except BaseException:
        peer.close()
        raise
    return link
