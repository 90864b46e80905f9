"""Links over streams of bytes: a Unix socket, or loopback TCP.

A stream begins with a handshake. After it come frames, each with its length in front. An empty frame
keeps the link alive: a participant sends one if it received nothing for a while, and the host returns it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import cast

from chainapi.core.share.messages import MAX_FRAME, FrameError, FrameReader, framed
from chainapi.share import forks
from chainapi.share.link import LinkEnd
from chainapi.share.local.handshake import Handshake, HandshakeError

__all__ = ["PATIENCE", "QUIET", "StreamLink"]

QUIET = 2  # ticks without a byte from the host, after which a participant sends an empty frame
PATIENCE = 5  # ticks in which the other end has to answer, or to read
MAX_UNSENT = 16_777_216  # bytes that wait for the other end to read
_ALIVE = framed(b"")


class StreamLink(LinkEnd, asyncio.Protocol):
    """One end of a link over a stream; see `chainapi.share.link.Link`.

    Waiting is counted in ticks of `tick` seconds instead of by the clock. So time in which this process was
    stopped, or its loop was blocked, does not count against the other end.

    Attributes:
        opened: future whose result is whether the handshake succeeded.
        closed: future that is done when the stream ended.
        connected: whether there is a stream.
        silent: whether the other end accepted the connection and then did not answer in time.
        error: reason why the handshake failed, if the other end answered.

    """

    def __init__(
        self, handshake: Handshake, *, tick: float, host: bool, active: Callable[[], bool] = lambda: True
    ) -> None:
        """Prepare an end; the transport connects it.

        `active` is called before anything that arrives is used: with False the link breaks.
        """
        super().__init__()
        self.opened: asyncio.Future[bool] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.connected = self.silent = False
        self.error: HandshakeError | None = None
        self._handshake: Handshake | None = handshake
        self._tick, self._host, self._active = tick, host, active
        self._reader = FrameReader()
        self._paused = False  # the other end does not read
        self._quiet = self._late = 0  # ticks without a byte; ticks in which something is due

    # --- Link ---------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """See `Link.send`.

        A frame that is empty or longer than `MAX_FRAME` bytes breaks the link.
        """
        if not self.open or self._transport.is_closing():
            return
        if not 0 < len(frame) <= MAX_FRAME or self._congested():
            self.fail()
        else:
            self._transport.write(framed(frame))

    # --- the carrier --------------------------------------------------------------------------------

    def end(self) -> None:
        """Break the link after frames that were sent before; this end is informed too."""
        self.open = False
        self._hang_up()

    def fail(self) -> None:
        """Break the link at once; this end is informed too."""
        self.open = False
        self._transport.abort()

    # --- asyncio.Protocol ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, with a process of the same user."""
        self._transport = cast(asyncio.Transport, transport)
        peer = self._transport.get_extra_info("socket")
        self._descriptor = peer.fileno()
        forks.hold(self._descriptor)
        self._timer = self._loop.call_later(self._tick, self._ticked)
        self.connected = True
        if _foreign(peer) or not self._active():
            self.fail()
        else:
            self._greet(b"")

    def data_received(self, data: bytes) -> None:
        """Deliver the frames that are complete."""
        self._quiet = 0
        if not self._active():
            self.fail()
        elif data := self._greet(data):
            self._read(data)

    def _read(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                if not self.open:
                    return
                self._receive(frame)
        except FrameError:
            self.fail()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the link."""
        forks.release(self._descriptor)
        self._timer.cancel()
        self.open = False
        if not self.opened.done():
            self.opened.set_result(False)
        self.closed.set_result(None)
        self._break()

    def pause_writing(self) -> None:
        """Note that the other end does not read."""
        self._paused, self._late = True, 0

    def resume_writing(self) -> None:
        """Note that the other end reads."""
        self._paused = False

    # --- frames -------------------------------------------------------------------------------------

    def _receive(self, frame: bytes) -> None:
        if not frame:
            if self._host and not self._paused:
                self._transport.write(_ALIVE)
        else:
            self._hand_over(frame)

    def _hand_over_early(self) -> None:
        try:
            super()._hand_over_early()
        except BaseException:  # as a transport does if its protocol fails
            self._early.clear()
            self.fail()
            raise

    def _hang_up(self) -> None:
        self._late = 0  # what was sent before has some more time
        self._transport.close()

    def _congested(self) -> bool:
        return self._paused and self._transport.get_write_buffer_size() > MAX_UNSENT

    # --- handshake and keep-alive -------------------------------------------------------------------

    def _greet(self, data: bytes) -> bytes:
        """Continue the handshake with bytes from the other end; return those after it."""
        if self._handshake is None:
            return data
        try:
            reply, rest = self._handshake.feed(data)
        except HandshakeError as error:
            self.error = error
            self.fail()
            return b""
        if reply:
            self._transport.write(reply)
        if rest is None:
            return b""
        self._handshake, self._late = None, 0
        if not self.opened.done():  # cancelled
            self.opened.set_result(True)
        return rest

    def _ticked(self) -> None:
        self._timer = self._loop.call_later(self._tick, self._ticked)
        self._quiet += 1
        if self._handshake is not None or self._paused or self._transport.is_closing():
            self._late += 1
        if not self._host and self._handshake is None and self._quiet == QUIET:
            self._transport.write(_ALIVE)
        if self._late >= PATIENCE or (not self._host and self._quiet >= QUIET + PATIENCE):
            self.silent = True
            self.fail()


def _foreign(peer: socket.socket) -> bool:
    """Return whether another user runs the process at the other end of a Unix socket."""
    if sys.platform != "linux" or peer.family != socket.AF_UNIX:
        return False  # the directory lets nobody else in, and the handshake has a proof
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user != os.geteuid())
