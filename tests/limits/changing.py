"""Servers that change their limit, and servers without one."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from tests.limits.seam import RateLimitInfo
from tests.limits.servers import EPSILON, Bucket, Clocked, FromFirst, Response, Server

__all__ = ["Changing", "Open"]


@define(eq=False)
class Changing:
    """Server whose limit is `factor` times as much from `at` on; a fixed window keeps its own to its end.

    The all-knowing client learns of it as others do, when the old limit lets a request pass.
    """

    server: Server
    at: float
    factor: float
    changed: bool = field(default=False, init=False)

    def turn(self, now: float) -> None:
        """Change the limit if it is time."""
        server = self.server
        if self.changed or now < self.at:
            return
        server.used(now)
        if isinstance(server, FromFirst | Clocked) and server.count:
            return
        self.changed = True
        if isinstance(server, Bucket) and server.size == server.limit:
            server.size = float(round(server.size * self.factor))
        server.limit = float(round(server.limit * self.factor))

    def answer(self, now: float, cost: float) -> Response:
        """Answer one request."""
        self.turn(now)
        return self.server.answer(now, cost)

    def info(self, now: float, wait: float | None) -> RateLimitInfo:
        """Return the limit headers of a response."""
        return self.server.info(now, wait)

    def earliest(self, now: float, cost: float) -> float:
        """Return when a request is admitted."""
        self.turn(now)
        at = self.server.earliest(now, cost)
        while at > now + EPSILON:
            now = at
            self.turn(now)
            at = self.server.earliest(now, cost)
        return now

    def take(self, now: float, cost: float) -> None:
        """Count a request."""
        self.server.take(now, cost)


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
