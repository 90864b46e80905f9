"""Ends of links over Redis, and of the link from a host to its own process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chainapi.core.share.packets import GapError, Incoming, Kind, Outgoing
from chainapi.share.link import Link
from chainapi.share.redis.wire import Answer, Wire

__all__ = ["OwnLink", "RedisLink"]


class RedisLink:
    """One end of a link: packets to the channel of its peer, and from it.

    Either end breaks the link when it received nothing for `silence` seconds, when a packet is missing, and
    when Redis delivered a packet to nobody.
    """

    def __init__(
        self,
        wire: Wire,
        name: bytes,
        channel: bytes,
        directions: tuple[Outgoing, Incoming],
        silence: float,
        may_serve: Callable[[], bool] = lambda: True,
        on_first: Callable[[Link], None] = lambda _: None,
    ) -> None:
        self.name = name
        self._wire, self._channel = wire, channel
        self._out, self._in = directions
        self._silence = silence
        self._may_serve = may_serve
        self._on_first: Callable[[Link], None] | None = on_first
        self._loop = asyncio.get_running_loop()
        self._sent = self._heard = self._loop.time()
        self._early: list[bytes] = []
        self._on_frame: Callable[[bytes], None] | None = None
        self._on_broken: Callable[[], None] | None = None
        self._closed = False  # no further call of this side
        self.open = True

    # --- the interface of a link ----------------------------------------------------------------

    def start(self, on_frame: Callable[[bytes], None], on_broken: Callable[[], None]) -> None:
        """See `Link.start`."""
        self._on_frame, self._on_broken = on_frame, on_broken
        early, self._early = self._early, []
        for frame in early:
            self._loop.call_soon(self._deliver, frame)
        if not self.open:
            self._loop.call_soon(self._report)

    def send(self, frame: bytes) -> None:
        """See `Link.send`."""
        if self.open and self._may_serve():
            self._post(Kind.FRAME, frame)

    def close(self) -> None:
        """See `Link.close`."""
        self._closed, self._on_frame, self._on_broken = True, None, None
        self.end()

    # --- what the carrier calls -----------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take a packet from the channel."""
        try:
            packet = self._in.open(data)
        except GapError:
            self.end()
            return
        if packet is None or not self.open or not self._may_serve():
            return
        self._heard = self._loop.time()
        if self._on_first is not None:
            on_first, self._on_first = self._on_first, None
            on_first(self)
        if packet.kind == Kind.FRAME:
            self._loop.call_soon(self._deliver, packet.payload)
        elif packet.kind == Kind.CLOSE:
            self.lose()

    @property
    def confirmed(self) -> bool:
        """Whether the peer sent an authentic packet."""
        return self._on_first is None

    def published(self, receivers: Answer) -> None:
        """Break the link if Redis delivered a packet to nobody."""
        if not isinstance(receivers, int) or receivers < 1:
            self.lose()

    def tick(self, idle: float) -> None:
        """Break the link of a silent peer; send a keep-alive after `idle` seconds."""
        now = self._loop.time()
        if now - self._heard > self._silence:
            self.end()
        elif now - self._sent >= idle:
            self.beat()

    def beat(self) -> None:
        """Send a keep-alive."""
        self._post(Kind.BEAT)

    def end(self) -> None:
        """Break the link, and send the peer that it is broken."""
        if self.open:
            self._post(Kind.CLOSE)
            self.lose()

    def lose(self) -> None:
        """Break the link without a packet to the peer."""
        if self.open:
            self.open = False
            if self._on_broken is not None:
                self._loop.call_soon(self._report)

    # --- inside ---------------------------------------------------------------------------------

    def _post(self, kind: Kind, payload: bytes = b"") -> None:
        self._sent = self._loop.time()
        packet = self._out.seal(kind, payload)
        self._wire.call(self.published, b"PUBLISH", self._channel, packet)

    def _deliver(self, frame: bytes) -> None:
        if self._on_frame is not None:
            self._on_frame(frame)
        elif not self._closed:
            self._early.append(frame)

    def _report(self) -> None:
        if self._on_broken is not None:
            on_broken = self._on_broken
            self._closed, self._on_frame, self._on_broken = True, None, None
            on_broken()


class OwnLink:
    """Host's end of the link to its own process, open while the host may serve."""

    def __init__(self, inner: Link, may_serve: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_serve = may_serve
        self._on_frame: Callable[[bytes], None] | None = None
        self._on_broken: Callable[[], None] | None = None
        self.open = True

    def start(self, on_frame: Callable[[bytes], None], on_broken: Callable[[], None]) -> None:
        """See `Link.start`."""
        self._on_frame, self._on_broken = on_frame, on_broken
        self._inner.start(self._receive, self._report)

    def send(self, frame: bytes) -> None:
        """See `Link.send`."""
        if self._may_serve():
            self._inner.send(frame)

    def close(self) -> None:
        """See `Link.close`."""
        self.open, self._on_frame, self._on_broken = False, None, None
        self._inner.close()

    def end(self) -> None:
        """Break the link at both ends."""
        if self.open:
            self._inner.close()
            asyncio.get_running_loop().call_soon(self._report)

    def _receive(self, frame: bytes) -> None:
        if self._on_frame is not None and self._may_serve():
            self._on_frame(frame)

    def _report(self) -> None:
        self.open = False
        if self._on_broken is not None:
            on_broken, self._on_broken, self._on_frame = self._on_broken, None, None
            on_broken()
