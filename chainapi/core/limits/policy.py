"""One rate-limit policy: what is left of it, and when spent units come back.

A header tells what was left when an answer was written. Between answers the return of spent units has to
be predicted, and how they return is not in any header:

======  ==================================================================================
LOG     each unit returns one window after it was spent (the default; never too early for a
        window that opens anew either, since all of it returns with its oldest unit)
WINDOW  all units return at once, one window after the oldest of them was spent
DRIP    units return all the time, the whole limit in one window
======  ==================================================================================

Which of them it is shows when the quota was used up and the next request is answered.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum
from math import ceil, floor, inf

from attrs import define, field

from chainapi.core.limits.ledger import Ledger

__all__ = ["Kind", "Policy"]

FAR = 0.05  # of a window: a probe is worth a refusal only if it may save more than this
PATIENCE = 0.02  # of a window: the probe waits this long at most for a unit to drip in
CUSHION = 0.005  # of the limit: a predicted drip is used when it is this much more than needed
LARGEST_RESERVE = 0.01  # of the limit
UNTOLD_WINDOW = 60.0  # seconds, where nothing better is known
ESTIMATE = 0.8  # of the time that a drip takes as promised: the least, for answers round and trips differ
SLOWEST = 64.0  # times as slow as promised
STILL = 1.75  # seconds: a reset that moves by less is the same, rounded to whole seconds
EPSILON = 1e-6


class Kind(Enum):
    """How spent units come back."""

    LOG = "log"
    WINDOW = "window"
    DRIP = "drip"


@define(eq=False, repr=False)
class Policy:
    """`limit` units in `window` seconds, as far as known; the window is None if unknown.

    Attributes:
        named: whether responses named it; a limit that only the user set is kept by counting alone.
        reported: whether responses report what remains.
        proven: whether that is known since it opened last; else requests leave few at first.
        sized: whether `limit` was announced; else it is the most that was ever reported to remain.
        reset_at: when all comes back, as announced; inf if unknown.
        probed: whether a probe was sent, or need not be; `answered`: whether its response came.
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
    _first_left: float = field(default=0.0, init=False)  # what remained at that time
    _counted: float = field(default=inf, init=False)  # what is left by counting alone
    _silent_at: float = field(default=-inf, init=False)  # when an answer last did not say what remains
    _sent: float = field(default=-inf, init=False)  # when the last request was sent whose answer said it
    _lows: list[tuple[float, float]] = field(factory=list[tuple[float, float]], init=False)

    def __attrs_post_init__(self) -> None:
        self.remaining, self.guessed = self.limit, self.window is None

    # --- what may be sent -----------------------------------------------------------------

    def room(self, held: float) -> float:
        """Return the units beside the `held` ones that an answer reported, or that counting allows."""
        if self.reported:
            return self.remaining - self.reserve - held
        return self.remaining + self.returned - held

    def backed(self, cost: float, held: float) -> bool:
        """Return whether `cost` units are there; a request above the whole limit needs all of it."""
        if not self.proven:
            return False
        whole = self.limit - self.reserve if self.reported else self.limit
        return self.room(held) >= min(cost, whole) - EPSILON

    def collect(self, now: float) -> None:
        """Count what came back by `now`."""
        if self._spent and self._spent.first_back <= now:
            self.returned += self._spent.collect(now)

    def opens_at(self, now: float, cost: float, held: float) -> float:
        """Return when `cost` units beside the `held` ones are predicted to be there; inf when unknown."""
        return self._back_at(now, min(cost, self.limit) + held + self.reserve - self.remaining)

    def _back_at(self, now: float, missing: float) -> float:
        """Return when `missing` units beside `remaining` are predicted to be there."""
        if self.kind is Kind.DRIP and self.window:
            missing += min(CUSHION * self.limit, 0.25 * self.ceiling, 5.0)
            return max(now, self.recorded_at + missing * self.window * self.slowness / self.limit)
        return max(now, min(self._ledger_opens_at(missing - self.returned), self._reset(), self._next_tick()))

    def _ledger_opens_at(self, missing: float) -> float:
        if missing <= EPSILON:
            return -inf
        if not self._spent:
            return self.recorded_at + (self.window or UNTOLD_WINDOW)
        if self.kind is Kind.WINDOW:
            return self._spent.first_back
        back = self._spent.back_at(missing)
        return self._spent.last_back if back is None else back

    def _reset(self) -> float:
        """Return the announced reset, unless it is that of units which drip."""
        return inf if self.moving or self.reset_at <= self.recorded_at else self.reset_at

    def _next_tick(self) -> float:
        """Return the next beginning of a window that the service's clock decides."""
        if self.tick == inf or not self.window:
            return inf
        behind = max(0.0, self.recorded_at - self.tick)
        return self.tick + (floor(behind / self.window) + 1) * self.window

    def probes_at(self, opens: float) -> float:
        """Return when a probe is due that shows more than a wait until `opens`; inf for never."""
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
        """Return whether `remaining` is from a response, and no response since left it out."""
        return self.reported and self._sent >= self._silent_at

    # --- what the answers say ---------------------------------------------------------------

    def name_window(self, limit: float, window: float | None) -> None:
        """Take in limit and window as a list of policies names them."""
        if not self.sized:
            self.limit, self.sized = limit, True
        if window is not None:
            self.window, self.guessed = window, False

    def spend(self, sent: float, now: float, cost: float, *, counted: bool = False) -> None:
        """Note a request whose response does not name this policy; `counted` if the service surely did so."""
        self._counted -= cost
        self._silent_at = now
        self._note(sent, now, cost)
        if not counted or not self.reported or self.kind is Kind.DRIP:
            self.remaining -= cost
            return
        # The reported remainder may include this request, but never more than was counted is left.
        self.remaining = min(self.remaining, max(self.remaining - cost, self._counted))
        self._lowest_since(now, now, self.remaining)

    def doubt(self, cost: float) -> None:
        """Note a request that the service may or may not have counted."""
        self._counted -= cost

    def _note(self, sent: float, now: float, cost: float) -> None:
        if self._epoch is None:
            self._epoch = sent
        if self.window:
            self._spent.add(sent, now, self.window, cost)

    def record(self, sent: float, now: float, remaining: float, cost: float, *, classify: bool) -> None:
        """Take in what an answer says remains, after a request of `cost` units (0 when it was refused)."""
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
            # A new stretch: the announced end of the last one is past.
            self.reset_at, self._first_reset, self._epoch = inf, inf, None
        self.reported = self.proven = True
        self.remaining, self.returned, self.recorded_at = low, 0.0, now
        if low > self.ceiling:
            self.ceiling = low
        if cost:
            self._note(sent, now, cost)
        self._spent.shrink(self.limit - low)

    def record_reset(self, now: float, seconds: float) -> None:
        """Take in that all comes back in so many seconds, as an answer says that was not refused."""
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
        """Return the least reported since `sent`: responses overtake each other."""
        lows = self._lows
        while lows and lows[-1][1] >= remaining:
            lows.pop()
        lows.append((now, remaining))
        return lows[bisect_left(lows, (sent, -inf))][1]

    def prune(self, before: float) -> None:
        """Forget the answers from before the oldest request in flight was sent."""
        if len(self._lows) > 64:
            del self._lows[: bisect_left(self._lows, (before, -inf))]

    def _forget(self, now: float) -> float:
        """Drop from the ledger what may be back already, for the answer shows it, and return its units."""
        if not self._spent or self._spent.first_sent > now - (self.window or 0.0):
            return 0.0
        return self._spent.forget(now - (self.window or 0.0))

    def exhaust(self, now: float) -> None:
        """Take all of it for spent now: what had come back by the ledger had not."""
        self.remaining, self.returned = 0.0, 0.0
        self._spent.clear()
        if self.window:
            self._spent.add(now, now, self.window, self.limit)

    def restart(self) -> None:
        """Begin to count again: the wait is over, and no answer says what is back."""
        self.remaining, self.returned, self.proven = self.limit, 0.0, False
        self._counted = self.limit
        self.reset_at, self._first_reset = inf, inf
        self._spent.clear()

    # --- how units come back ----------------------------------------------------------------

    def _classify(self, sent: float, now: float, found: float) -> None:
        """Learn from the first answer after a pause, which found `found` units, how units come back."""
        if not self.window or not self.reported:
            return
        self.answered = self.answered or self.probed
        gain, whole = found - self.remaining, self.limit - self.remaining
        drip = self.drip(now - self.recorded_at)
        if self.kind is Kind.DRIP:
            self._measure(gain, drip, found)
            return
        # No drip is faster than promised; that counts where answers did not say how much was left before.
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
        """Follow how much slower than promised the quota drips, because others use it too."""
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
        """Learn from a refusal of `cost` units with a wait until `stop`; `backed` if there seemed room."""
        self.answered, self.probed = self.answered or self.probed, True
        self.tick = inf
        self.reset_at, self._first_reset, self.moving = stop, inf, False
        if self._epoch is not None and self.guessed:
            self.window = max(self.window or 0.0, stop - self._epoch)
        self._epoch = None
        if self.kind is Kind.DRIP and self.window:
            # The refusal tells how long what was missing takes at most.
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
        """Return the seconds until `units` beside the `held` ones and those already spent have passed.

        The `least` is that of a drip as promised, where units drip, or a `probe` may
        still show it; and what was reported to remain may be without those in flight already.
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
        seconds = max(0.0, opens - now) + whole * (self.window or UNTOLD_WINDOW)
        if least and self.window and self.reported and (drips or (probe and not self.settled())):
            dripped = self.recorded_at + (missing - 1.0) * self.window / self.limit - now
            return min(seconds, max(0.0, ESTIMATE * dripped))
        # The response to a probe may have the time, rounded up to whole seconds.
        return seconds if least or not probe or self._reset() < inf or self.settled() else seconds + 1.0

    def _strange(self) -> float:
        """Return the units that are not left, and not in the ledger: nobody knows when they come back."""
        if self._reset() < inf or self.kind is not Kind.LOG:
            return 0.0
        return max(0.0, self.limit - self.remaining - self._spent.outstanding)

    def settled(self) -> bool:
        """Return whether it is known how units come back: by an answer, or by a reset that does not move."""
        if self.answered or self.kind is not Kind.LOG:
            return True
        dripped = self.drip(1.0) * 2.0 * STILL
        return not self.moving and self.reset_at < inf and self._first_left - self.remaining > dripped
