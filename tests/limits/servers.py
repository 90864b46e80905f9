"""Servers that count units, and admit or refuse requests at some time.

Times are seconds. A server gets the requests in the order of their arrival. `earliest` peeks: it returns when
the server would admit a request if none arrived before it; only the all-knowing client may use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from math import ceil, floor, inf

from attrs import define, field, frozen

from tests.limits.seam import PolicyField, RateLimitInfo

__all__ = [
    "Bucket",
    "Clocked",
    "Counters",
    "FromFirst",
    "Gcra",
    "Penal",
    "Response",
    "Server",
    "SlidingLog",
    "Stacked",
]

EPSILON = 1e-9


@frozen
class Response:
    """Response of a server: status, limit headers, whether it was a block, and fields to be read."""

    status: int
    info: RateLimitInfo = field(factory=RateLimitInfo)
    blocked: bool = False
    fields: Mapping[str, str] | None = None


@define(eq=False)
class Server:
    """A limiter of `limit` units in `window` seconds."""

    limit: float
    window: float

    def used(self, now: float) -> float:
        """Return the units that count against the limit."""
        raise NotImplementedError

    def take(self, now: float, cost: float) -> None:
        """Count `cost` units."""
        raise NotImplementedError

    def earliest(self, now: float, cost: float) -> float:
        """Return when `cost` units are admitted, `now` or later."""
        raise NotImplementedError

    def remaining(self, now: float) -> float:
        """Return what the header reports: whole units."""
        return max(0, floor(self.limit - self.used(now) + EPSILON))

    def policies(self) -> tuple[PolicyField, ...]:
        """Return what the policy header reports."""
        return (PolicyField(self.limit, self.window),)

    def pace(self) -> float:
        """Return the units a second that it admits in the long run."""
        return self.limit / self.window

    def info(self, now: float, wait: float | None) -> RateLimitInfo:
        """Return the limit headers of a response; `wait` in seconds for a refusal."""
        seconds = None if wait is None else float(max(1, ceil(wait - EPSILON)))
        return RateLimitInfo(self.limit, self.remaining(now), seconds, seconds, self.policies())

    def answer(self, now: float, cost: float) -> Response:
        """Answer one request."""
        at = self.earliest(now, cost)
        if at <= now + EPSILON:
            self.take(now, cost)
            return Response(200, self.info(now, None))
        return Response(429, self.info(now, at - now))


@define(eq=False)
class FromFirst(Server):
    """A fixed window that begins with the first request after the last one ended."""

    begun: float = field(default=-inf, init=False)
    count: float = field(default=0.0, init=False)

    def turn(self, now: float) -> None:
        """End the running window if it is time."""
        if now >= self.begun + self.window - EPSILON:
            self.begun, self.count = -inf, 0.0

    def used(self, now: float) -> float:
        """Return the count of the running window."""
        self.turn(now)
        return self.count

    def take(self, now: float, cost: float) -> None:
        """Count into the running window, or begin one."""
        self.turn(now)
        if self.begun == -inf:
            self.begun = now
        self.count += cost

    def earliest(self, now: float, cost: float) -> float:
        """Return now, or the end of the window."""
        return now if self.used(now) + cost <= self.limit + EPSILON else self.begun + self.window


@define(eq=False)
class Clocked(FromFirst):
    """A fixed window that the clock begins; `phase` shifts it."""

    phase: float = 0.0
    number: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.begun = -self.phase

    def turn(self, now: float) -> None:
        """Begin a window if it is time."""
        number = floor((now + self.phase + EPSILON) / self.window)
        if number != self.number:
            self.next(number)
            self.number, self.count = number, 0.0
            self.begun = number * self.window - self.phase

    def next(self, number: int) -> None:
        """Remember nothing of the last window."""


@define(eq=False)
class SlidingLog(Server):
    """Every unit counts for exactly one window."""

    log: deque[tuple[float, float]] = field(factory=deque[tuple[float, float]], init=False)
    count: float = field(default=0.0, init=False)

    def used(self, now: float) -> float:
        """Return what was taken in the last window."""
        while self.log and self.log[0][0] + self.window <= now + EPSILON:
            self.count -= self.log.popleft()[1]
        return self.count

    def take(self, now: float, cost: float) -> None:
        """Write into the log."""
        self.used(now)
        self.log.append((now, cost))
        self.count += cost

    def earliest(self, now: float, cost: float) -> float:
        """Return now, or when enough has left the log."""
        missing = self.used(now) + cost - self.limit
        at = now
        for when, units in self.log:
            if missing <= EPSILON:
                break
            missing -= units
            at = when + self.window
        return at


@define(eq=False)
class Counters(Clocked):
    """Two counters: this window's, and the last one's, weighted by its share."""

    before: float = field(default=0.0, init=False)

    def next(self, number: int) -> None:
        """Remember the count of the last window."""
        self.before = self.count if number == self.number + 1 else 0.0

    def used(self, now: float) -> float:
        """Return the weighted sum of both counters."""
        self.turn(now)
        share = 1.0 - ((now + self.phase) / self.window - self.number)
        return self.before * max(0.0, share) + self.count

    def earliest(self, now: float, cost: float) -> float:
        """Return now, or when the last window's share has shrunk enough."""
        if self.used(now) + cost <= self.limit + EPSILON:
            return now
        if self.before > 0 and self.count + cost <= self.limit:
            return self.begun + self.window * (1.0 - (self.limit - self.count - cost) / self.before)
        share = min(1.0, (self.limit - cost) / self.count)
        return self.begun + self.window + self.window * (1.0 - share)


@define(eq=False)
class Bucket(Server):
    """A token bucket: full at first, and refilled all the time."""

    size: float = 0.0
    level: float = field(default=0.0, init=False)
    at: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.size = self.size or self.limit
        self.level = self.size

    def _fill(self, now: float) -> None:
        if now > self.at:
            self.level = min(self.size, self.level + (now - self.at) * self.limit / self.window)
            self.at = now

    def used(self, now: float) -> float:
        """Return what is missing from the limit."""
        self._fill(now)
        return self.limit - self.level

    def take(self, now: float, cost: float) -> None:
        """Take tokens."""
        self._fill(now)
        self.level -= cost

    def earliest(self, now: float, cost: float) -> float:
        """Return now, or when enough tokens are there."""
        self._fill(now)
        return now + max(0.0, cost - self.level) * self.window / self.limit


# A bucket that is much smaller than the limit it announces.
Gcra = partial(Bucket, size=10.0)


@define(eq=False)
class Stacked(Server):
    """Two limits at once, such as a minute's and a day's; headers of the tighter one.

    With `in_turn` the headers are those of the first, and those of the second only in its refusals.
    """

    first: Server = field(kw_only=True)
    second: Server = field(kw_only=True)
    in_turn: bool = field(default=False, kw_only=True)

    def used(self, now: float) -> float:
        """Return what counts against the tighter limit."""
        return self._tighter(now).used(now)

    def pace(self) -> float:
        """Return the slower pace of both."""
        return min(self.first.pace(), self.second.pace())

    def _tighter(self, now: float) -> Server:
        return min(self.first, self.second, key=lambda one: one.remaining(now))

    def take(self, now: float, cost: float) -> None:
        """Count in both."""
        self.first.take(now, cost)
        self.second.take(now, cost)

    def earliest(self, now: float, cost: float) -> float:
        """Return when both admit it."""
        return max(self.first.earliest(now, cost), self.second.earliest(now, cost))

    def info(self, now: float, wait: float | None) -> RateLimitInfo:
        """Return the headers of the tighter limit, with both policies."""
        if self.in_turn:
            shown = self.first
            if wait is not None and self.second.earliest(now, 1.0) > now + EPSILON:
                shown = self.second
            return shown.info(now, wait)
        info = self._tighter(now).info(now, wait)
        policies = self.first.policies() + self.second.policies()
        return RateLimitInfo(info.limit, info.remaining, info.reset, info.retry_after, policies)


@define(eq=False)
class Penal(FromFirst):
    """A fixed window that blocks after the third request past a refusal's grace."""

    grace: float = 1.0
    sentence: float = 600.0
    strikes: int = field(default=0, init=False)
    refused_at: float = field(default=inf, init=False)
    refused_until: float = field(default=-inf, init=False)
    blocked_until: float = field(default=-inf, init=False)

    def earliest(self, now: float, cost: float) -> float:
        """Return when the request is admitted, a block included."""
        at = FromFirst.earliest(self, max(now, self.blocked_until), cost)
        return max(at, self.blocked_until)

    def answer(self, now: float, cost: float) -> Response:
        """Answer one request, and count requests sent despite a refusal."""
        if now < self.blocked_until:
            return Response(429, RateLimitInfo(retry_after=ceil(self.blocked_until - now)), blocked=True)
        if self.refused_at + self.grace < now < self.refused_until:
            self.strikes += 1
            if self.strikes >= 3:
                self.strikes = 0
                self.blocked_until = now + self.sentence
        response = FromFirst.answer(self, now, cost)
        if response.status == 429 and now >= self.refused_until:
            self.refused_at, self.refused_until = now, now + (response.info.retry_after or 0.0)
        return response
