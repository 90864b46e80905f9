"""Rate-limit policy: units left of it, and the time when spent units come back.

A header has the units left when the service wrote the response. Between responses the client has to predict
the return of spent units, and no header has the kind of return:

======  ==================================================================================
LOG     each unit returns one window after it was spent (the default; never too early for a
        WINDOW either, because all of its units return with the oldest one)
WINDOW  all units return at once, one window after the oldest of them was spent
DRIP    units return all the time, the whole limit in one window
======  ==================================================================================

The first response after the quota was used up shows the kind.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum
from math import ceil, floor, inf

from attrs import define, field

from chainapi.core.limits.ledger import EPSILON, Ledger

__all__ = ["Kind", "Policy"]

FAR = 0.05  # of a window: a probe may cost a refusal only if it may save more than this
PATIENCE = 0.02  # of a window: the probe waits this long at most for a unit to drip in
CUSHION = 0.005  # of the limit: a predicted drip must exceed the need by this
LARGEST_RESERVE = 0.01  # of the limit
DEFAULT_WINDOW = 60.0  # seconds, if no better value is known
ESTIMATE = 0.8  # of the announced time of a drip: the least, because responses round and trips differ
SLOWEST = 64.0  # times as slow as promised
STILL = 1.75  # seconds: a reset that moves by less is the same one, rounded to whole seconds


class Kind(Enum):
    """Kind of return of spent units."""

    LOG = "log"
    WINDOW = "window"
    DRIP = "drip"


@define(eq=False, repr=False)
class Policy:
    """Policy of `limit` units in `window` seconds; the window is None if unknown.

    Attributes:
        named: whether responses named it; a limit that only the user set is kept by counting alone.
        reported: whether responses report what remains.
        proven: whether a response reported it after the last opening; else few requests leave at first.
        sized: whether a response announced `limit`; else it is the highest reported remainder.
        reset_at: announced time when all units are back; inf if unknown.
        probed: whether a probe was sent, or is unnecessary; `answered`: whether its response arrived.
        guessed: whether no response named the window.
        moving: whether the announced reset moved as units were spent: then it is not the end of a window.

    """

    limit: float
    window: float | None
    named: bool = False
    reported: bool = False
    kind: Kind = Kind.LOG
    sized: bool = True
    only_on_refusal: bool = False
    proven: bool = field(default=True, init=False)
    remaining: float = field(default=0.0, init=False)
    returned: float = field(default=0.0, init=False)
    recorded_at: float = field(default=-inf, init=False)
    reset_at: float = field(default=inf, init=False)
    moving: bool = field(default=False, init=False)
    tick: float = field(default=inf, init=False)
    reserve: float = field(default=0.0, init=False)
    probed: bool = field(default=False, init=False)
    answered: bool = field(default=False, init=False)
    ceiling: float = field(default=0.0, init=False)
    slowness: float = field(default=1.0, init=False)
    _spent: Ledger = field(factory=Ledger, init=False)
    _epoch: float | None = field(default=None, init=False)
    guessed: bool = field(default=False, init=False)
    _first_reset: float = field(default=inf, init=False)
    _first_left: float = field(default=0.0, init=False)  # units that remained at that time
    _counted: float = field(default=inf, init=False)  # units left by counting alone
    _silent_at: float = field(default=-inf, init=False)  # time of the last response without the remainder
    _sent: float = field(default=-inf, init=False)  # when the last request was sent whose response had it
    _lows: list[tuple[float, float]] = field(factory=list[tuple[float, float]], init=False)

    def __attrs_post_init__(self) -> None:
        self.remaining, self.guessed = self.limit, self.window is None

    # --- permitted requests ---------------------------------------------------------------

    def room(self, held: float) -> float:
        """Return the units left besides the `held` ones, as reported or else counted."""
        if self.reported:
            return self.remaining - self.reserve - held
        return self.remaining + self.returned - held

    def backed(self, cost: float, held: float) -> bool:
        """Return whether `cost` units are left.

        A request that costs more than the whole limit needs all of it.
        """
        if not self.proven:
            return False
        whole = self.limit - self.reserve if self.reported else self.limit
        return self.room(held) >= min(cost, whole) - EPSILON

    def collect(self, now: float) -> None:
        """Count the units that came back by `now`."""
        if self._spent and self._spent.first_back <= now:
            self.returned += self._spent.collect(now)

    def opens_at(self, now: float, cost: float, held: float) -> float:
        """Return the predicted time of `cost` units besides the `held`; inf if unknown."""
        return self._back_at(now, min(cost, self.limit) + held + self.reserve - self.remaining)

    def _back_at(self, now: float, missing: float) -> float:
        """Return the predicted time of `missing` units besides `remaining`."""
        if self.kind is Kind.DRIP and self.window:
            missing += min(CUSHION * self.limit, 0.25 * self.ceiling, 5.0)
            return max(now, self.recorded_at + missing * self.window * self.slowness / self.limit)
        return max(now, min(self._ledger_opens_at(missing - self.returned), self._reset(), self._next_tick()))

    def _ledger_opens_at(self, missing: float) -> float:
        if missing <= EPSILON:
            return -inf
        if not self._spent:
            return self.recorded_at + (self.window or DEFAULT_WINDOW)
        if self.kind is Kind.WINDOW:
            return self._spent.first_back
        back = self._spent.back_at(missing)
        return self._spent.last_back if back is None else back

    def _reset(self) -> float:
        """Return the announced reset; inf if it is that of units that drip."""
        return inf if self.moving or self.reset_at <= self.recorded_at else self.reset_at

    def _next_tick(self) -> float:
        """Return the next start of a window that the service's clock opens."""
        if self.tick == inf or not self.window:
            return inf
        behind = max(0.0, self.recorded_at - self.tick)
        return self.tick + (floor(behind / self.window) + 1) * self.window

    def probes_at(self, opens: float) -> float:
        """Return when a probe shows more than a wait until `opens`; inf for never."""
        if self.probed or not self.named or self.kind is Kind.DRIP or self._reset() < inf:
            return inf
        known_at = max(
            self.recorded_at, self._spent.last_back - self.window if self._spent and self.window else -inf
        )
        if not self.window:
            return known_at
        if opens - known_at <= FAR * self.window:
            return inf
        if not self.reported:
            return known_at
        return known_at + min(2.0 * self.window / self.limit, PATIENCE * self.window)

    @property
    def sure(self) -> bool:
        """Return whether a response reported `remaining`, and no later one omitted it."""
        return self.reported and self._sent >= self._silent_at

    # --- values of responses ----------------------------------------------------------------

    def name_window(self, limit: float, window: float | None) -> None:
        """Record limit and window from a list of policies."""
        if not self.sized:
            self.limit, self.sized = limit, True
        if window is not None:
            self.window, self.guessed = window, False

    def spend(self, sent: float, now: float, cost: float, *, counted: bool = False) -> None:
        """Record a request whose response does not name this policy.

        `counted` if the service has surely counted the request.
        """
        self._counted -= cost
        self._silent_at = now
        self._note(sent, now, cost)
        if not counted or not self.reported or self.kind is Kind.DRIP:
            self.remaining -= cost
            return
        # The reported remainder may include this request, but no more units are left than counted.
        self.remaining = min(self.remaining, max(self.remaining - cost, self._counted))
        self._lowest_since(now, now, self.remaining)

    def doubt(self, cost: float) -> None:
        """Record a request that the service may or may not have counted."""
        self._counted -= cost

    def _note(self, sent: float, now: float, cost: float) -> None:
        if self._epoch is None:
            self._epoch = sent
        if self.window:
            self._spent.add(sent, now, self.window, cost)

    def record(self, sent: float, now: float, remaining: float, cost: float, *, classify: bool) -> None:
        """Record the remainder of a response to a request of `cost` units; 0 if refused."""
        low = self._lowest_since(sent, now, remaining)
        if not self.sized and low + cost > self.limit:
            self.limit = low + cost
        if classify:
            self._classify(sent, now, low + cost)
        self._counted += self.returned - cost + self._forget(now)
        if not self.reported or low > self.remaining:
            self._counted = low
        if sent > self._sent:
            self._sent = sent
        if sent < self._silent_at and self._counted < low:
            low = self._lowest_since(now, now, self._counted)
        if low > self.remaining:
            # A new stretch: the announced end of the last one has passed.
            self.reset_at, self._first_reset, self._epoch = inf, inf, None
        self.reported = self.proven = True
        self.remaining, self.returned, self.recorded_at = low, 0.0, now
        if low > self.ceiling:
            self.ceiling = low
        if cost:
            self._note(sent, now, cost)
        self._spent.shrink(self.limit - low)

    def record_reset(self, now: float, seconds: float) -> None:
        """Record the announced seconds until all units are back, from a success."""
        end = now + seconds
        if self.guessed and max(seconds, 1.0) > (self.window or 0.0):
            self.window = max(seconds, 1.0)
            self._spent.postpone(now, self.window)
        if self._first_reset == inf:
            self._first_left = self.remaining
        self._first_reset = min(self._first_reset, end)
        self.moving = end - self._first_reset > STILL
        self.reset_at = end

    def _lowest_since(self, sent: float, now: float, remaining: float) -> float:
        """Return the least remainder reported since `sent`: responses overtake each other."""
        lows = self._lows
        while lows and lows[-1][1] >= remaining:
            lows.pop()
        lows.append((now, remaining))
        return lows[bisect_left(lows, (sent, -inf))][1]

    def prune(self, before: float) -> None:
        """Remove the responses from before the oldest request in flight was sent."""
        if len(self._lows) > 64:
            del self._lows[: bisect_left(self._lows, (before, -inf))]

    def _forget(self, now: float) -> float:
        """Remove units from the ledger that may be back; return their number.

        The response includes them.
        """
        if not self._spent or self._spent.first_sent > now - (self.window or 0.0):
            return 0.0
        return self._spent.forget(now - (self.window or 0.0))

    def exhaust(self, now: float) -> None:
        """Record all units as spent now: those back by the ledger were not back."""
        self.remaining, self.returned = 0.0, 0.0
        self._spent.clear()
        if self.window:
            self._spent.add(now, now, self.window, self.limit)

    def restart(self) -> None:
        """Restart the count after a wait if no response reports the units back."""
        self.remaining, self.returned, self.proven = self.limit, 0.0, False
        self._counted = self.limit
        self.reset_at, self._first_reset = inf, inf
        self._spent.clear()

    # --- return of units --------------------------------------------------------------------

    def _classify(self, sent: float, now: float, found: float) -> None:
        """Learn the kind of return from the first response after a pause.

        The request found `found` units.
        """
        if not self.window or not self.reported:
            return
        self.answered = self.answered or self.probed
        gain, whole = found - self.remaining, self.limit - self.remaining
        drip = self.drip(now - self.recorded_at)
        if self.kind is Kind.DRIP:
            self._measure(gain, drip, found)
            return
        # No drip is faster than announced; that counts if no response had the remainder before it.
        most = 2.0 * (drip + self.drip(now - sent)) + 2.0
        surely = self.returned + self._spent.back_by(sent)
        possibly = self.returned + self._spent.sent_by(now - self.window)
        if gain > possibly + 0.5:
            if gain >= 0.5 * (whole + max(possibly, min(drip, whole))):
                self._classify_as_window(now)
            elif (self.sure or gain <= most) and drip < (1 - FAR) * whole and possibly == 0:
                self.kind = Kind.DRIP
        elif gain + 0.5 < 0.5 * surely:
            self.kind = Kind.DRIP

    def drip(self, seconds: float) -> float:
        """Return the units that drip back within `seconds`."""
        return self.limit / self.window * seconds if self.window else 0.0

    def _measure(self, gain: float, drip: float, found: float) -> None:
        """Measure how much slower than announced the quota drips, as others use it too."""
        if found >= self.ceiling or gain >= drip:
            self.slowness = max(1.0, self.slowness * 0.8)
        elif drip >= 3.0:
            self.slowness += 0.2 * (min(drip / (max(gain, 0.0) + 0.5), SLOWEST) - self.slowness)

    def _classify_as_window(self, now: float) -> None:
        first = self._spent.first_back if self._spent else now
        if self.window and first - now > FAR * self.window:
            self.tick = now
        self.kind = Kind.WINDOW

    def refused(self, now: float, stop: float, cost: float, *, backed: bool) -> None:
        """Learn from a refusal of `cost` units with a wait until `stop`.

        `backed` if enough units seemed to be left.
        """
        self.answered, self.probed = self.answered or self.probed, True
        self.tick = inf
        self.reset_at, self._first_reset, self.moving = stop, inf, False
        if self._epoch is not None and self.guessed:
            self.window = max(self.window or 0.0, stop - self._epoch)
        self._epoch = None
        if self.kind is Kind.DRIP and self.window:
            # The refusal has the longest time that the missing units take.
            took = (stop - self.recorded_at) * self.limit / self.window / max(1.0, cost)
            slower = self.slowness * 1.25
            self.slowness = min(slower if backed else max(slower, took), SLOWEST)
            if stop - now > FAR * self.window + 2.0:
                self.kind = Kind.LOG
        if backed:
            self.reserve = min(self.reserve + 1.0, floor(LARGEST_RESERVE * self.limit))

    # --- forecasts --------------------------------------------------------------------------

    def wait_for(
        self, now: float, units: float, held: float = 0.0, *, least: bool = False, probe: bool = True
    ) -> float:
        """Return the seconds until `units` besides held and spent ones have passed.

        The `least` assumes the announced pace if units drip, or if a `probe` may still show that they do;
        and it assumes that the reported remainder already excludes the requests in flight.
        """
        if least and self.reported:
            held = -self._strange()
        missing = units - self.room(held) if self.proven else units + held
        if missing <= EPSILON:
            return 0.0
        drips = self.kind is Kind.DRIP and self.window is not None
        whole = 0.0 if drips else max(0.0, ceil(missing / self.limit - EPSILON) - 1)
        back = missing if drips else missing - whole * self.limit + self.returned
        opens = self._back_at(now, back) if drips or self.proven else now
        seconds = max(0.0, opens - now) + whole * (self.window or DEFAULT_WINDOW)
        if least and self.window and self.reported and (drips or (probe and not self.settled())):
            dripped = self.recorded_at + (missing - 1.0) * self.window / self.limit - now
            return min(seconds, max(0.0, ESTIMATE * dripped))
        # The response to a probe may have the time, but rounded up to whole seconds.
        return seconds if least or not probe or self._reset() < inf or self.settled() else seconds + 1.0

    def _strange(self) -> float:
        """Return the units neither left nor in the ledger: their return is unknown."""
        if self._reset() < inf or self.kind is not Kind.LOG:
            return 0.0
        return max(0.0, self.limit - self.remaining - self._spent.outstanding)

    def settled(self) -> bool:
        """Return whether the kind of return is known.

        A response after a pause shows it, or a reset that does not move.
        """
        if self.answered or self.kind is not Kind.LOG:
            return True
        dripped = self.drip(1.0) * 2.0 * STILL
        return not self.moving and self.reset_at < inf and self._first_left - self.remaining > dripped
