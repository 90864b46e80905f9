"""Pace of a limit that drips, between a measured rate and a refused pace."""

from __future__ import annotations

from math import exp, exp2, inf

from attrs import define, field

from chainapi.core.limits.backoff import FIRST_BACKOFF
from chainapi.core.limits.memory import DripPart, amount, relative

__all__ = ["Drip"]

MARGIN = 0.05  # below the rate found, at first
GROWTH = 0.05  # a second, at first
SURE = 0.003  # the part of both left after many refusals
SURER = 0.4  # factor of both at each refusal
DOUBLES = 0.5  # seconds, or a request, in which the pace doubles until a refusal
HALFWAY = 2.0  # seconds in which its distance from the refused pace halves
NEAR = 0.98  # of the refused pace
FASTER = 30.0  # seconds after which it grows twice as fast
LONGEST = 600.0  # seconds of growth
REQUESTS = 10.0  # requests that count as a second at least
KEPT = 0.9  # the part of a rate kept after a lower measurement
DROPS = 4.0  # units that come back before the next retry, once a pace was refused
DISPROVED = 4.0  # times the refused pace
UNBOUND = 1024.0  # times the measured rate


@define(eq=False, repr=False)
class Drip:
    """Units per second that may leave: `rate`, then more, less after each refusal.

    The units that passed between two refusals give a rate that is never too high, but too low if a small
    burst was full for a part of that time. So the pace doubles until a refusal, begins again in the middle
    between the rate and that pace, and approaches it.
    """

    rate: float
    next: float
    _low: float = field(init=False)
    _measured: float = field(init=False)
    _too_fast: float = field(default=inf, init=False)
    _doubt: float = field(default=1.0, init=False)
    _seconds: float = field(default=0.0, init=False)  # during which requests left at the pace

    def __attrs_post_init__(self) -> None:
        self._low = self._measured = self.rate
        self._begin(self.rate)

    def pace(self) -> float:
        """Return the units per second that may leave now."""
        seconds = min(self._seconds, LONGEST)
        if self._too_fast == inf:
            return self.rate * exp2(seconds / DOUBLES)
        most = NEAR * self._too_fast
        near = most - max(0.0, most - self.rate) * exp2(-seconds / HALFWAY)
        return near * exp(GROWTH * self._doubt * (seconds + seconds * seconds / FASTER))

    def send(self, now: float, cost: float) -> None:
        """Record a sent request."""
        seconds = cost / self.pace()
        self.next = max(self.next, now) + seconds
        self._seconds += min(seconds, DOUBLES if self._too_fast == inf else 1.0 / REQUESTS)

    def refused(self, measured: float, units: float) -> None:
        """Record a refusal: `units` passed since the last one, `measured` per second."""
        # A burst that is never full shows the same rate each time, plus or minus one unit.
        rises = measured > self._measured * (1.0 + 2.0 / units)
        self._too_fast = max(measured, self.pace())
        self._low = max(measured, self.rate if rises else KEPT * self._low)
        self._measured = measured
        self._begin((self._low + self._too_fast) / 2.0)

    def _begin(self, rate: float) -> None:
        self.rate = rate * (1.0 - MARGIN * self._doubt)
        self._doubt = max(SURE, SURER * self._doubt)
        self._seconds = 0.0

    def tries_at(self, now: float) -> float:
        """Return when to retry after a refusal that names no wait."""
        drops = inf if self._too_fast == inf else DROPS
        return now + max(1.0 / self.rate, min(FIRST_BACKOFF, drops / self.rate))

    def reopened(self, sent: float) -> None:
        """Restart the pace with a request that passed after a refusal."""
        self.next = sent + 1.0 / self.rate

    def wait_for(self, now: float, units: float, *, least: bool = False) -> float:
        """Return the seconds until `units` have left; with `least`, at the refused pace."""
        pace = self._too_fast if least else self.pace()
        return max(0.0, self.next - now) + max(0.0, units - 1.0) / pace

    def disproved(self) -> bool:
        """Return whether the pace is so high that there is likely no such limit."""
        return self.pace() > min(DISPROVED * self._too_fast, UNBOUND * self._low)

    def memory(self, then: float) -> DripPart:
        """Return the state for a memory."""
        return DripPart(
            self.rate,
            relative(then, self.next),
            self._low,
            self._measured,
            None if self._too_fast == inf else amount(self._too_fast),
            self._doubt,
            min(self._seconds, LONGEST),
        )

    @classmethod
    def restored(cls, part: DripPart, then: float) -> Drip:
        """Return a drip from a memory."""
        one = cls(part.rate, then + part.next)
        one.rate, one._low, one._measured = part.rate, part.low, part.measured
        one._too_fast = inf if part.too_fast is None else part.too_fast
        one._doubt, one._seconds = part.doubt, min(part.seconds, LONGEST)
        return one
