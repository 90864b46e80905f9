"""Ends of links over Redis, and of the link from a host to its own process."""

from __future__ import annotations

from collections.abc import Callable

from chainapi.core.share.packets import GapError, Incoming, Kind, Outgoing
from chainapi.share.link import Link, PairedLink
from chainapi.share.redis.wire import Answer, Wire

__all__ = ["OwnLink", "RedisLink"]


class RedisLink(Link):
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
        super().__init__()
        self.name = name
        self._wire, self._channel = wire, channel
        self._out, self._in = directions
        self._silence = silence
        self._may_serve = may_serve
        self._on_first: Callable[[Link], None] | None = on_first
        self._sent = self._heard = self._loop.time()

    # --- the interface of a link ----------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """See `Link.send`."""
        if self.open and self._may_serve():
            self._post(Kind.FRAME, frame)

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
            self.deliver(packet.payload)
        elif packet.kind == Kind.CLOSE:
            self.snap()

    @property
    def confirmed(self) -> bool:
        """Whether the peer sent an authentic packet."""
        return self._on_first is None

    def published(self, receivers: Answer) -> None:
        """Break the link if Redis delivered a packet to nobody."""
        if not isinstance(receivers, int) or receivers < 1:
            self.snap()

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
            self._hang_up()
            self.snap()

    # --- inside ---------------------------------------------------------------------------------

    def _post(self, kind: Kind, payload: bytes = b"") -> None:
        self._sent = self._loop.time()
        packet = self._out.seal(kind, payload)
        self._wire.call(self.published, b"PUBLISH", self._channel, packet)

    def _hang_up(self) -> None:
        self._post(Kind.CLOSE)


class OwnLink(PairedLink):
    """Host's end of the link to its own process: frames pass while the host may serve."""

    def __init__(self, may_serve: Callable[[], bool]) -> None:
        super().__init__()
        self._may_serve = may_serve

    def send(self, frame: bytes) -> None:
        """See `Link.send`."""
        if self._may_serve():
            super().send(frame)

    def _hand_over(self, frame: bytes) -> None:
        if self._may_serve():
            super()._hand_over(frame)
