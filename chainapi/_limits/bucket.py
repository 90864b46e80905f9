"""Level of a bucket whose units drip in, predicted between reports.

A report is a round trip old when it arrives, and a bucket may refill within that. So the level falls with
each request that leaves and rises with time, and each report is compared with the level that its request left
behind. The service answers the requests of a burst in any order: so a report corrects only a part of the
difference, and all reports of a round trip correct the whole; more if they show less than predicted. That
also follows a bucket that others use, or one that fills more slowly than announced.
"""

from __future__ import annotations

from msgspec import Struct, field

__all__ = ["EARLIEST", "TokenBucket"]

FASTER = 5.0  # times as large is the correction if a report shows less than predicted
MARGIN = 0.004  # of the limit: the level must exceed the price of a request by this
MOST_MARGIN = 5.0  # units, until a refusal
FIRST_MARGIN, LAST_MARGIN = 0.25, 0.5  # of the size: the largest margin at first, and after refusals
EARLIEST = 0.8  # of the predicted time: the least, because responses round and trips differ
GROWTH = 1.5  # factor of the margin at a refusal


class TokenBucket(Struct):
    """Token bucket into which `rate` units a second drip.

    Attributes:
        size: the most that it is known to hold.
        level: units at a time, `at`, after all requests that left.
        margin: units that a prediction must exceed the need by.
        shift: sum of all corrections.
        sent: of each request in flight, the level behind it without corrections, the number in flight with
            it, and its units.
        landed: the same of the request that landed last.

    """

    rate: float
    size: float
    level: float
    at: float
    margin: float
    shift: float = 0.0
    sent: dict[int, tuple[float, int, float]] = field(default_factory=dict)
    landed: tuple[float, int, float] | None = None

    @classmethod
    def begin(cls, limit: float, window: float, size: float, level: float, at: float) -> TokenBucket:
        """Return a bucket of `limit` units in `window` seconds with a level at a time."""
        return cls(limit / window, size, level, at, min(MARGIN * limit, FIRST_MARGIN * size, MOST_MARGIN))

    def level_at(self, now: float) -> float:
        """Return the predicted level."""
        return min(self.size, self.level + self.rate * max(0.0, now - self.at))

    def opens_at(self, now: float, units: float) -> float:
        """Return when units are left, or the whole bucket if they are more."""
        missing = min(units + self.margin, self.size) - self.level_at(now)
        return now + max(0.0, missing) / self.rate

    def wait_for(self, now: float, units: float, *, least: bool) -> float:
        """Return the seconds until units have dripped in, however many; or the `least`."""
        missing = units - self.level_at(now)
        needed = EARLIEST * (missing - 1.0) if least else missing + self.margin
        return max(0.0, needed) / self.rate

    # --- requests and reports ---------------------------------------------------------------

    def send(self, number: int, now: float, units: float) -> None:
        """Record the request of a number that leaves."""
        self.level, self.at = self.level_at(now) - units, now
        self.sent[number] = self.level - self.shift, len(self.sent) + 1, units

    def land(self, number: int, *, counted: bool) -> None:
        """Record that a request is no longer in flight; give back what was not `counted`."""
        self.landed = self.sent.pop(number, None)
        if self.landed is not None and not counted:
            behind, beside, units = self.landed
            self.landed = behind + units, beside, 0.0
            self.level += units

    def report(self, remaining: float, least: float) -> None:
        """Correct the level by the report to the request that landed last.

        Its price is the `least` that is known.
        """
        self.size = max(self.size, remaining + least)
        if self.landed is None:
            return
        behind, beside, _ = self.landed
        gain = remaining - behind - self.shift
        part = min(1.0, (1.0 if gain > 0.0 else FASTER) / (1 + max(beside, len(self.sent))))
        self.shift += part * gain
        self.level += part * gain

    def refused(self) -> None:
        """Record a refusal of a request that the level seemed to allow."""
        self.margin = min(GROWTH * self.margin, LAST_MARGIN * self.size)
