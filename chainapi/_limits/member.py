"""Members of a gate: sessions, with the settings of their requests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from chainapi._limits.queue import RequestGroup, Wait
from chainapi._limits.spenders import Account
from chainapi._limits.view import Limit, whole
from chainapi.errors import QueueFullError, QuotaWaitError

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = ["MAX_IN_FLIGHT", "Ceiling", "GateSettings", "Member", "is_rate"]

MAX_IN_FLIGHT = 100  # requests without a response, if a session does not set it
HALVINGS = 24  # of a bucket's size: the precision with which its tokens are found


class GateSettings(Struct, frozen=True):
    """Settings on which the sessions that share a gate have to agree."""

    max_in_flight: int
    probe: bool
    max_stop: float


class Member:
    """Membership of a session in a gate: settings of its requests, and its listener.

    Args:
        rate: a ceiling for these requests: a `Limit`, or an `aiolimiter.AsyncLimiter`, which other parts of
            the program may share. It counts requests, and a `Limit` with ``units=True`` counts units.
        max_in_flight: most of these requests without a response at once. None sets no limit besides that
            of the gate, which is the largest of its open sessions, each with 100 by default.
        limits: limits that the service does not announce; they hold for the whole gate from then on.
        probe: False on one open session holds for the whole gate.
        max_stop: the longest of the open sessions holds for the whole gate.
        on_wait: called as ``on_wait(reason=, seconds=, waiting=)`` when these requests begin to wait for a
            known time of a second or more; the reason is ``"stop"``, ``"quota"`` or ``"rate"``.
        now: the wall clock in Unix seconds, for errors and snapshots.
        process: name of the process that the session belongs to; "" for this one. Processes have equal
            shares of the quota while they wait.
        tag: name of the spender, for requests without a tag of their own.
        group: limits the requests in flight of several members, for those without `rate` or `max_in_flight`.
        timeout: seconds after which its requests are given up; it may grow later.
        on_plan: called once, when responses contradict the plan among `limits`: with its name, and the amount
            and window that they announce.

    """

    def __init__(
        self,
        *,
        rate: Limit | AsyncLimiter | None = None,
        max_in_flight: int | None = None,
        limits: Sequence[Limit] = (),
        probe: bool = True,
        max_stop: float | None = None,
        on_wait: Callable[..., None] | None = None,
        now: Callable[[], float] = time.time,
        process: str = "",
        tag: str = "",
        group: RequestGroup | None = None,
        timeout: float = 30.0,
        on_plan: Callable[[str, float | None, float | None], None] | None = None,
    ) -> None:
        self.given = rate
        self.most_in_flight = max_in_flight
        self.process = process
        self.tag = tag
        self.timeout = timeout
        self.account: Account | None = None  # of its tag, in the gate that it joined
        self.ceiling: Ceiling | None = None if rate is None else Ceiling(rate)
        self.limits: tuple[Limit, ...] = tuple(limits)
        self.plan: str = next((limit.plan for limit in self.limits if limit.plan), "")
        self.on_plan = on_plan
        in_flight = MAX_IN_FLIGHT if max_in_flight is None else max_in_flight
        self.settings: GateSettings = GateSettings(in_flight, probe, inf if max_stop is None else max_stop)
        self.on_wait = on_wait
        self.now = now
        self.wait: Wait = Wait()  # that is known
        self._reported = Wait()  # last, to `on_wait`
        self._common = group
        self.enter(None)

    def enter(self, account: Account | None) -> None:
        """Begin in a gate, with the account of the tag there.

        Requests in the last gate count in the last group: their ends can wake nobody in this gate.
        """
        self.account, most, ceiling = account, self.most_in_flight, self.ceiling
        if most is None and ceiling is None:
            self.group = self._common
        else:
            wait = None if ceiling is None else ceiling.wait
            self.group = RequestGroup(inf if most is None else most, wait)

    def too_long(self, seconds: float, max_wait: float | None, left: float | None) -> QuotaWaitError:
        """Return the error of a wait longer than `max_wait` or the time until a deadline."""
        allowed = max_wait if left is None else None
        return QuotaWaitError(self.now() + seconds, retry_after=seconds, max_wait=allowed, deadline=left)

    def queue_full(self, seconds: float, most: float) -> QueueFullError:
        """Return the error of a call beside which as many wait as may."""
        return QueueFullError(self.now() + seconds, retry_after=seconds, max_waiting=int(most))

    def end_plan(self, name: str, limit: float | None, window: float | None) -> None:
        """Drop the plan if it has that name, and call the listener."""
        if name and name == self.plan:
            self.plan, self.limits = "", tuple(one for one in self.limits if not one.plan)
            if self.on_plan is not None:
                self.on_plan(name, limit, window)

    def report_wait(self, wait: Wait, now: float, waiting: int) -> None:
        """Remember a wait, and call the listener once for each that is long enough."""
        self.wait = wait
        if self.on_wait is not None and wait.is_news(self._reported, now):
            self._reported = wait
            self.on_wait(reason=wait.reason, seconds=wait.until - now, waiting=waiting)


class Ceiling:
    """Ceiling of a session: a token bucket for its requests, besides the quota."""

    def __init__(self, rate: Limit | AsyncLimiter) -> None:
        self._counts_units = isinstance(rate, Limit) and rate.units
        if isinstance(rate, Limit):
            from aiolimiter import AsyncLimiter  # imported here, because most sessions have no ceiling

            rate = AsyncLimiter(*whole(rate))  # a bucket must hold a whole request
        self._bucket = rate

    def toll(self, units: float, requests: float = 1.0) -> float:
        """Return the tokens that requests with `units` units of the quota cost."""
        return units if self._counts_units else requests

    def ready(self, units: float) -> bool:
        """Return whether the bucket has the tokens of a request, or is full."""
        return self._bucket.has_capacity(min(self.toll(units), self._bucket.max_rate))

    def wait(self, units: float, requests: float = 1.0) -> float:
        """Return the seconds until it has the tokens of requests if nobody else takes any."""
        bucket, toll = self._bucket, self.toll(units, requests)
        if toll <= bucket.max_rate and bucket.has_capacity(toll):
            return 0.0
        return (toll - self._tokens()) * bucket.time_period / bucket.max_rate

    def _tokens(self) -> float:
        """Return the tokens that it has.

        An `AsyncLimiter` only says whether it has a number of them.
        """
        tokens = step = self._bucket.max_rate
        if self._bucket.has_capacity(tokens):
            return tokens
        tokens = 0.0
        for _ in range(HALVINGS):
            step /= 2.0
            if self._bucket.has_capacity(tokens + step):
                tokens += step
        return tokens

    async def pay(self, units: float) -> None:
        """Wait for the tokens of a request and take them, in parts if they are many."""
        toll = self.toll(units)
        while toll > 1e-9:
            part = min(toll, self._bucket.max_rate)
            await self._bucket.acquire(part)
            toll -= part


def is_rate(value: object) -> bool:
    """Return whether a value can be a `rate`; does not import aiolimiter."""
    if isinstance(value, Limit):
        return True
    aiolimiter = sys.modules.get("aiolimiter")
    return aiolimiter is not None and isinstance(value, aiolimiter.AsyncLimiter)
