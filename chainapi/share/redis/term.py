"""Term of a host over Redis: its lock, and its ends of the links to participants."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from chainapi.core.share.packets import (
    NONCE,
    Incoming,
    Kind,
    Outgoing,
    Packet,
    link_keys,
    open_memory,
    seal,
    seal_memory,
)
from chainapi.share.link import Link, PairedLink, Serve
from chainapi.share.redis.election import Elected, Election
from chainapi.share.redis.links import OwnLink, RedisLink
from chainapi.share.redis.wire import Answer, Wire

__all__ = ["HostLock", "Term", "Times", "lock_clock"]

DRIFT = 0.1  # part of a lock that clocks may run apart while it lasts
MAX_UNCONFIRMED = 1_024  # links without a packet of the other end: replayed requests for links make such ones

Clock: TypeAlias = Callable[[], float]


@frozen
class Times:
    """Times of a carrier, in seconds; see `RedisCarrier`."""

    ttl: float
    silence: float
    timeout: float

    @property
    def beat(self) -> float:
        """Interval of keep-alives, and of renewals of the lock."""
        return min(self.ttl, self.silence) / 4

    @property
    def idle(self) -> float:
        """Time without a packet after which the next beat sends a keep-alive."""
        return self.beat / 2


def lock_clock() -> float:
    """Return the time of the event loop, plus the time that the machine was suspended.

    Redis counts a lock while this machine sleeps; the clock of an event loop stops.
    """
    suspended = 0.0
    if sys.platform == "linux":
        suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return asyncio.get_running_loop().time() + suspended


class HostLock:
    """Right to be the host, for `ttl` seconds from each time it is granted.

    The broker counts from when it grants the lock, the host from when it sent the request, which is
    earlier. So the host stops first, unless its clock is slower than the broker's by more than `DRIFT`.
    """

    __slots__ = ("_ttl", "_until")

    def __init__(self, ttl: float, sent: float) -> None:
        self._ttl = ttl * (1 - DRIFT)
        self._until = sent + self._ttl

    def renewed(self, sent: float) -> None:
        """Note that the broker granted the lock again, to a request sent at `sent`."""
        self._until = max(self._until, sent + self._ttl)

    def holds(self, now: float) -> bool:
        """Return whether the host may serve at `now`."""
        return now < self._until


class Term:
    """Term of this process as the host.

    It begins with the function that serves links; requests for links wait until then. Every frame, in either
    direction, passes only while the lock holds.
    """

    def __init__(
        self, wire: Wire, election: Election, elected: Elected, sent: float, key: bytes, times: Times
    ) -> None:
        self._wire, self._election, self._elected = wire, election, elected
        self._lock = HostLock(times.ttl, sent)
        self._key, self._times = key, times
        self._serve: Serve | None = None
        self._early: list[Packet] = []
        self._links: dict[bytes, RedisLink] = {}
        self._own: list[OwnLink] = []
        self.ended = False

    @property
    def begun(self) -> bool:
        """Whether links are served."""
        return self._serve is not None

    @property
    def memory(self) -> tuple[bytes, float]:
        """Memory of the quota when the term began, and its age in seconds."""
        return open_memory(self._key, self._elected.memory), self._elected.age

    def begin(self, serve: Serve) -> None:
        """Serve links from now on."""
        self._serve = serve
        early, self._early = self._early, []
        for request in early:
            self.request(request)

    def may_serve(self) -> bool:
        """Return whether the lock holds; end the term if it does not."""
        if not self._lock.holds(lock_clock()):
            self.end()
        return not self.ended

    def own_link(self) -> Link:
        """Return the participant's end of a link to this process."""
        mine, own = PairedLink(), OwnLink(self.may_serve)
        mine.pair(own)
        self._own.append(own)
        if self._serve is not None:
            self._serve(own)
        return mine

    def request(self, request: Packet) -> None:
        """Accept an authentic request for a link.

        The link is served once its participant has sent a packet on it.
        """
        if request.term != self._elected.term or request.link in self._links or not self.may_serve():
            return
        if self._serve is None:
            self._early.append(request)
        elif sum(not link.confirmed for link in self._links.values()) < MAX_UNCONFIRMED:
            self._accept(request, self._serve)

    def receive(self, link: bytes, data: bytes) -> bool:
        """Take a packet if it names one of this term's links."""
        known = self._links.get(link)
        if known is not None:
            known.receive(data)
        return known is not None

    def tick(self) -> None:
        """Renew the lock; look after the links."""
        if not self.may_serve():
            return
        sent = lock_clock()
        self._election.renew(self._wire, self._elected.value, lambda answer: self._renewed(answer, sent))
        for link in self._links.values():
            link.tick(self._times.idle)
        self._links = {key: link for key, link in self._links.items() if link.open}
        self._own = [own for own in self._own if own.open]

    def store(self, memory: bytes) -> None:
        """Store the memory of the quota."""
        self._election.store(self._wire, self._elected.value, seal_memory(self._key, memory))

    def end(self) -> None:
        """Give up being the host, and break all links."""
        if not self.ended:
            self.ended = True
            self._election.resign(self._wire, self._elected.value)
            for link in self._links.values():
                link.end()
            for own in self._own:
                own.fail()

    def _accept(self, request: Packet, serve: Serve) -> None:
        _, term, name, _, participant = request
        answer = os.urandom(NONCE)
        to_host, to_participant = link_keys(self._key, term, name, answer)
        channel = self._election.channel(participant)
        directions = Outgoing(to_participant, term, name), Incoming(to_host, term, name)
        link = RedisLink(self._wire, name, channel, directions, self._times.silence, self.may_serve, serve)
        self._links[name] = link
        packet = seal(self._key, Packet(Kind.ACCEPT, term, name, 0, answer))
        self._wire.call(link.published, b"PUBLISH", channel, packet)

    def _renewed(self, answer: Answer, sent: float) -> None:
        if answer == 1:
            self._lock.renewed(sent)
        else:
            self.end()
