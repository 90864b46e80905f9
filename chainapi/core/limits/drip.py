"""The pace of a limit that drips, between a rate that was measured and a pace that was refused."""

from __future__ import annotations

from math import exp, exp2, inf

from attrs import define, field

__all__ = ["Drip"]

MARGIN = 0.05  # below what was found, at first
GROWTH = 0.05  # a second, at first
SURE = 0.003  # of both remains after many refusals
SURER = 0.4  # after each refusal
DOUBLES = 0.5  # seconds, or a request, in which the pace doubles until it is refused
HALFWAY = 2.0  # seconds in which it comes half as near to the pace that was refused
NEAR = 0.98  # of that pace
FASTER = 30.0  # seconds after which it grows twice as fast
LONGEST = 600.0  # seconds of growth
REQUESTS = 10.0  # that count for a second at least
KEPT = 0.9  # of a rate is kept when less is measured
FIRST_TRY = 1.0  # seconds
DROPS = 4.0  # that come back before the next try, once a pace was refused
DISPROVED = 4.0  # times the pace that was refused
UNBOUND = 1024.0  # times the rate that was measured


@define(eq=False, repr=False)
class Drip:
    """Units a second that may leave: `rate` at first, then more, and less after each refusal.

    What passed from one refusal to the next is a rate that is never too high, but too low where a small burst
    was full for a part of that time. So the pace doubles until it is refused, begins again in the middle
    between the rate and that pace, and comes near to it.
    """

    rate: float
    next: float
    _low: float = field(init=False)
    _measured: float = field(init=False)
    _too_fast: float = field(default=inf, init=False)
    _doubt: float = field(default=1.0, init=False)
    _seconds: float = field(default=0.0, init=False)  # for which requests left at the pace

    def __attrs_post_init__(self) -> None:
        self._low = self._measured = self.rate
        self._begin(self.rate)

    def pace(self) -> float:
        """Return the units a second that may leave now."""
        seconds = min(self._seconds, LONGEST)
        if self._too_fast == inf:
            return self.rate * exp2(seconds / DOUBLES)
        most = NEAR * self._too_fast
        near = most - max(0.0, most - self.rate) * exp2(-seconds / HALFWAY)
        return near * exp(GROWTH * self._doubt * (seconds + seconds * seconds / FASTER))

    def send(self, now: float, cost: float) -> None:
        """Note that a request leaves."""
        seconds = cost / self.pace()
        self.next = max(self.next, now) + seconds
        self._seconds += min(seconds, DOUBLES if self._too_fast == inf else 1.0 / REQUESTS)

    def refused(self, measured: float, units: float) -> None:
        """Note a refusal, before which `units` passed, `measured` a second, since the last one."""
        # A burst that is never full shows the same rate each time, but for a unit more or less.
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
        """Return when to try again after a refusal that names no wait."""
        drops = inf if self._too_fast == inf else DROPS
        return now + max(1.0 / self.rate, min(FIRST_TRY, drops / self.rate))

    def reopened(self, sent: float) -> None:
        """Begin again with a request that passed after a refusal."""
        self.next = sent + 1.0 / self.rate

    def wait_for(self, now: float, units: float, *, least: bool = False) -> float:
        """Return the seconds until `units` have left; the `least` at a pace that was refused."""
        pace = self._too_fast if least else self.pace()
        return max(0.0, self.next - now) + max(0.0, units - 1.0) / pace

    def disproved(self) -> bool:
        """Tell whether so much passes that there is likely no such limit."""
        return self.pace() > min(DISPROVED * self._too_fast, UNBOUND * self._low)
