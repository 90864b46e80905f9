"""Return of spent units: its kinds, and the way to find the kind of a service.

Between responses the client has to predict the return of spent units, and no header has its kind:

===========  ===============================================================================
SlidingLog   each unit returns one window after it was spent (the default; never too early for
             a FixedWindow either, because all of its units return with the oldest one)
FixedWindow  all units return at once, one window after the oldest of them was spent
TokenBucket  units drip back all the time, the whole limit in one window
===========  ===============================================================================

The first response after the quota was used up shows the kind.
"""

from __future__ import annotations

from math import floor, inf
from typing import Literal

from attrs import define, field

from chainapi.core.limits.balance import DEFAULT_WINDOW, Balance
from chainapi.core.limits.ledger import EPSILON
from chainapi.core.limits.memory import ReturnsPart, moment, seconds

__all__ = ["FAR", "FixedWindow", "Kind", "Returns", "SlidingLog", "TokenBucket"]

FAR = 0.05  # of a window: a probe may cost a refusal only if it may save more than this
CUSHION = 0.005  # of the limit: a predicted drip must exceed the need by this
SLOWEST = 64.0  # times as slow as announced


class Kind:
    """Kind of return: predicts when missing units are back.

    Attributes:
        drips: whether units come back one by one, all the time.
        default: whether no response showed this kind.

    """

    __slots__ = ()
    drips = False
    default = False

    def back_at(self, balance: Balance, missing: float) -> float:
        """Return when `missing` units besides those that remain are back."""
        raise NotImplementedError

    def back_by(self, balance: Balance, now: float) -> float:
        """Return the units that are back by a time besides those that remain.

        Those of the ledger are collected before.
        """
        missing = balance.limit - balance.remaining
        return missing if self.back_at(balance, missing) <= now else balance.returned


class SlidingLog(Kind):
    """Each unit returns one window after it was spent."""

    __slots__ = ()
    default = True

    def back_at(self, balance: Balance, missing: float) -> float:
        """Return the time by the ledger; -inf if it has the units back already."""
        missing -= balance.returned
        if missing <= EPSILON:
            return -inf
        if not balance.spent:
            return balance.recorded_at + (balance.window or DEFAULT_WINDOW)
        back = balance.spent.back_at(missing)
        return balance.spent.last_back if back is None else back


@define(eq=False, repr=False)
class FixedWindow(Kind):
    """All units return at once, one window after the oldest of them was spent.

    Attributes:
        tick: a start of a window that the service's clock opens; inf if requests open it.

    """

    tick: float = inf

    def back_at(self, balance: Balance, missing: float) -> float:
        """Return the end of the window, by the ledger or the service's clock."""
        if missing - balance.returned <= EPSILON:
            return -inf
        if balance.spent:
            end = balance.spent.first_back
        else:
            end = balance.recorded_at + (balance.window or DEFAULT_WINDOW)
        return min(end, self._next_tick(balance))

    def back_by(self, balance: Balance, now: float) -> float:
        """Return the units of the whole window once its oldest ones are back."""
        return balance.limit - balance.remaining if balance.returned else Kind.back_by(self, balance, now)

    def _next_tick(self, balance: Balance) -> float:
        """Return the next start of a window that the service's clock opens."""
        if self.tick == inf or not balance.window:
            return inf
        behind = max(0.0, balance.recorded_at - self.tick)
        return self.tick + (floor(behind / balance.window) + 1) * balance.window

    def returned(self, balance: Balance, now: float) -> None:
        """Record that all units returned; early if the service's clock opened the window."""
        first = balance.spent.first_back if balance.spent else now
        if balance.window and first - now > FAR * balance.window:
            self.tick = now


@define(eq=False, repr=False)
class TokenBucket(Kind):
    """Units drip back all the time, the whole limit in one window.

    Attributes:
        slowness: times as slow as announced, because others use the quota too.

    """

    drips = True
    slowness: float = 1.0

    def back_at(self, balance: Balance, missing: float) -> float:
        """Return the time by the pace, with a cushion."""
        missing += min(CUSHION * balance.limit, 0.25 * balance.highest, 5.0)
        window = balance.window or DEFAULT_WINDOW
        return balance.recorded_at + missing * window * self.slowness / balance.limit

    def back_by(self, balance: Balance, now: float) -> float:
        """Return the whole units that dripped in by a time."""
        dripped = balance.drip(now - balance.recorded_at) / self.slowness
        return floor(min(dripped, balance.limit) + EPSILON)

    def measure(self, balance: Balance, gain: float, drip: float, found: float) -> None:
        """Measure the slowness: `gain` units of the announced `drip` were found back."""
        if found >= balance.highest or gain >= drip:
            self.slowness = max(1.0, self.slowness * 0.8)
        elif drip >= 3.0:
            slower = min(drip / (max(gain, 0.0) + 0.5), SLOWEST)
            self.slowness += 0.2 * (max(1.0, slower) - self.slowness)

    def refused(self, balance: Balance, window: float, stop: float, cost: float, *, backed: bool) -> None:
        """Slow down: a refusal has the longest time that the missing units take."""
        took = (stop - balance.recorded_at) * balance.limit / window / max(1.0, cost)
        slower = self.slowness * 1.25
        self.slowness = min(slower if backed else max(slower, took), SLOWEST)


@define(eq=False, repr=False)
class Returns:
    """Kind of return that the responses to single requests after a pause showed.

    Attributes:
        kind: the kind found.
        probed: whether a probe was sent, or is unnecessary; `answered`: whether its response arrived.

    """

    kind: Kind = field(factory=SlidingLog)
    probed: bool = False
    answered: bool = False
    _window: FixedWindow = field(factory=FixedWindow)
    _bucket: TokenBucket = field(factory=TokenBucket)  # its measured pace outlives a change of kind

    @property
    def known(self) -> bool:
        """Return whether a response after a pause showed the kind."""
        return self.answered or not self.kind.default

    def classify(self, balance: Balance, sent: float, now: float, found: float, *, priced: bool) -> None:
        """Learn the kind from the first response after a pause: it found `found` units.

        That is too few if its request cost more than is known; `priced` if responses showed the cost.
        """
        if not balance.window or not balance.reported:
            return
        self.answered = self.answered or self.probed
        gain, whole = found - balance.remaining, balance.limit - balance.remaining
        drip = balance.drip(now - balance.recorded_at)
        if self.kind.drips:
            self._bucket.measure(balance, gain, drip, found)
            return
        # No drip is faster than announced; that counts if no response had the remainder before it.
        most = 2.0 * (drip + balance.drip(now - sent)) + 2.0
        surely = balance.returned + balance.spent.back_by(sent)
        possibly = balance.returned + balance.spent.sent_by(now - balance.window)
        if gain > possibly + 0.5:
            if gain >= 0.5 * (whole + max(possibly, min(drip, whole))):
                self._window.returned(balance, now)
                self.kind = self._window
            elif (balance.sure or gain <= most) and drip < (1 - FAR) * whole and possibly == 0:
                self.kind = self._bucket
        elif priced and gain + 0.5 < 0.5 * surely:
            self.kind = self._bucket

    def refused(self, balance: Balance, now: float, stop: float, cost: float, *, backed: bool) -> None:
        """Learn from a refusal of `cost` units with a wait until `stop`.

        `backed` if enough units seemed to be left.
        """
        self.answered, self.probed = self.answered or self.probed, True
        self._window.tick = inf
        if self.kind.drips and balance.window:
            self._bucket.refused(balance, balance.window, stop, cost, backed=backed)
            if stop - now > FAR * balance.window + 2.0:
                self.kind = SlidingLog()

    def memory(self, then: float) -> ReturnsPart:
        """Return the state for a memory."""
        kind: Literal["log", "window", "bucket"] = "log"
        if not self.kind.default:
            kind = "bucket" if self.kind.drips else "window"
        tick = seconds(then, self._window.tick)
        return ReturnsPart(kind, self.probed, self.answered, tick, self._bucket.slowness)

    def restore(self, part: ReturnsPart, then: float) -> None:
        """Continue from a memory."""
        self._window.tick, self._bucket.slowness = moment(then, part.tick), part.slowness
        self.kind = {"log": SlidingLog(), "window": self._window, "bucket": self._bucket}[part.kind]
        self.probed, self.answered = part.probed, part.answered
