"""Carriers that meet in one event loop, with a delay, and whose processes die on command."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from attrs import define, field

from chainapi._limits.gate import Gate
from chainapi.errors import ShareUnavailableError
from chainapi.share.host import Host
from chainapi.share.link import Link


class DelayedEnd(Link):
    """End of a link whose frames arrive after `delay` seconds."""

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.delay = delay
        self.other: DelayedEnd = self
        self._under_way: deque[bytes | None] = deque()  # to this end; None is the end of the link

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        if self.open:
            self.other.approach(frame)

    def approach(self, frame: bytes | None) -> None:
        """Let a frame arrive after the delay, or with None the end of the link."""
        self._under_way.append(frame)  # timers of one moment have no order
        self._loop.call_later(self.delay, self._arrive)

    def _arrive(self) -> None:
        frame = self._under_way.popleft()
        if frame is None:
            self.snap()
        else:
            self.deliver(frame)

    def _hang_up(self) -> None:
        self.other.approach(None)


@define(eq=False)
class Exchange:
    """Machine on which the carriers of all processes meet.

    Attributes:
        delay: seconds that a frame takes.
        away: whether nobody can be reached.
        hosts: the carrier that owns the host of each quota, and the host.
        links: all links, by the two carriers.
        elections: number of hosts so far.
        stored: memory of each quota, and the time at which it was stored.

    """

    delay: float = 0.0
    away: bool = False
    hosts: dict[str, tuple[ExchangeCarrier, Host]] = field(factory=dict)
    links: list[tuple[ExchangeCarrier, ExchangeCarrier, DelayedEnd]] = field(factory=list)
    elections: int = 0
    stored: dict[str, tuple[bytes, float]] = field(factory=dict)

    def carrier(self) -> ExchangeCarrier:
        """Return the carrier of one more process."""
        return ExchangeCarrier(self)

    def kill(self, carrier: ExchangeCarrier) -> None:
        """End a process without a word: its links break."""
        carrier.dead = True
        self.hosts = {name: host for name, host in self.hosts.items() if host[0] is not carrier}
        for one, other, end in self.links:
            if carrier in (one, other):
                end.snap()
                end.other.snap()
        self.links = [link for link in self.links if carrier not in link[:2]]

    def cut(self) -> None:
        """Break all links, and let nobody connect until `away` is False again."""
        self.away = True
        self.hosts.clear()
        for _, _, end in self.links:
            end.snap()
            end.other.snap()
        self.links.clear()

    def host(self, name: str) -> Host:
        """Return the host of a quota."""
        return self.hosts[name][1]

    def gate(self, name: str) -> Gate:
        """Return the gate of a quota, from its host."""
        return self.host(name).gate


@define(eq=False)
class ExchangeCarrier:
    """Carrier of one process."""

    exchange: Exchange
    dead: bool = False
    patience: float = 2.0

    async def connect(self, name: str) -> Link:
        """Return a link to the host; become the host if no process is."""
        await asyncio.sleep(self.exchange.delay)
        if self.exchange.away or self.dead:
            raise ShareUnavailableError("nobody can be reached")
        hosts = self.exchange.hosts
        if name not in hosts:
            self.exchange.elections += 1
            now = asyncio.get_running_loop().time()
            memory, at = self.exchange.stored.get(name, (b"", now))
            hosts[name] = self, Host(memory, now - at, store=partial(self._store, name))
        owner, host = hosts[name]
        near, far = DelayedEnd(self.exchange.delay), DelayedEnd(self.exchange.delay)
        near.other, far.other = far, near
        self.exchange.links.append((self, owner, near))
        host.serve(far)
        return near

    def remote(self, name: str, secret: bytes) -> None:
        """Return None: there are no other machines."""

    def _store(self, name: str, memory: bytes, seconds: float) -> None:
        """Keep the memory for the next host."""
        self.exchange.stored[name] = memory, asyncio.get_running_loop().time()

    async def aclose(self, name: str) -> None:
        """Leave."""
        try:
            await asyncio.sleep(0.001)  # the host reads what was sent last
        finally:
            if self.exchange.hosts.get(name, (None,))[0] is self:
                self.exchange.host(name).save()
            self.exchange.kill(self)
