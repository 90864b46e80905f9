"""Servers that change their limit or that others use too, and servers without a limit."""

from __future__ import annotations

import random
from collections.abc import Mapping

from attrs import define, field

from tests.limits.seam import RateLimitInfo
from tests.limits.servers import EPSILON, Bucket, FromFirst, Response, Server

__all__ = ["Changing", "Crowded", "Open", "Service"]


@define(eq=False)
class Turning:
    """Server to which something happens as time passes: before each use it has its turn.

    The all-knowing client learns of it as others do, when the server would let a request pass.
    """

    server: Server

    def turn(self, now: float) -> None:
        """Let happen what happens until `now`."""
        raise NotImplementedError

    def answer(self, now: float, cost: float) -> Response:
        """Answer one request."""
        self.turn(now)
        return self.server.answer(now, cost)

    def info(self, now: float, wait: float | None) -> RateLimitInfo:
        """Return the limit headers of a response."""
        return self.server.info(now, wait)

    def earliest(self, now: float, cost: float) -> float:
        """Return when a request is admitted, after what happens at the same time."""
        self.turn(now)
        at = self.server.earliest(now, cost)
        while at > now + EPSILON:
            now = at
            self.turn(now)
            at = self.server.earliest(now, cost)
        return now

    def take(self, now: float, cost: float) -> None:
        """Count a request of the all-knowing client."""
        self.turn(now)
        self.server.take(now, cost)


@define(eq=False)
class Changing(Turning):
    """Server whose limit is `factor` times as much from `at` on; a fixed window keeps its own to its end."""

    at: float
    factor: float
    changed: bool = field(default=False, init=False)

    def turn(self, now: float) -> None:
        """Change the limit if it is time."""
        server = self.server
        if self.changed or now < self.at:
            return
        server.used(now)
        if isinstance(server, FromFirst) and server.count:
            return
        self.changed = True
        if isinstance(server, Bucket) and server.size == server.limit:
            server.size = float(round(server.size * self.factor))
        server.limit = float(round(server.limit * self.factor))


@define(eq=False)
class Crowded(Turning):
    """Server that others use too: at random times, for `share` of its limit in all.

    A request of others without room waits, and passes before all others as soon as there is room; it is
    dropped if its wait would be longer than the arrival of five others takes.
    """

    share: float
    random: random.Random
    cost: float = 1.0
    next: float = field(default=0.0, init=False)
    served_at: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._advance()

    @property
    def often(self) -> float:
        """Return the number of requests of others per second."""
        return self.share * self.server.pace() / self.cost

    def _advance(self) -> None:
        self.next += self.random.expovariate(self.often)

    def turn(self, now: float) -> None:
        """Let the others have had their turns until `now`."""
        while self.next <= now:
            at = self.server.earliest(max(self.next, self.served_at), self.cost)
            if at <= self.next + 5.0 / self.often:
                if at > now:
                    return
                self.server.take(at, self.cost)
                self.served_at = at
            self._advance()


@define(eq=False)
class Open:
    """Server that counts nothing: all its answers have the headers `shown`.

    Those of `strays` by their numbers, from 1, are refused with a wait of some seconds.
    """

    shown: RateLimitInfo = field(factory=RateLimitInfo)
    strays: Mapping[int, float] = field(factory=dict[int, float])
    number: int = field(default=0, init=False)

    def answer(self, now: float, cost: float) -> Response:
        """Answer one request."""
        self.number += 1
        if self.number in self.strays:
            return Response(429, self.info(now, self.strays[self.number]))
        return Response(200, self.shown)

    def info(self, now: float, wait: float | None) -> RateLimitInfo:
        """Return the headers of a response."""
        return self.shown if wait is None else RateLimitInfo(retry_after=wait)

    def earliest(self, now: float, cost: float) -> float:
        """Return now."""
        return now

    def take(self, now: float, cost: float) -> None:
        """Count nothing."""


Service = Server | Turning | Open
