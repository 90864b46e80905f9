"""One limit: the units left of it, and when spent units come back.

Responses report what remains. Between two reports the client has to predict, and no header has the kind of
limit:

========== ==========================================================================================
``log``    each unit comes back one window after it was spent (assumed until a response shows another
           kind: it is never too early for a window either, whose units return with the oldest one)
``window`` all units come back at once, one window after the oldest one was spent, or at a time of the
           service's clock
``drip``   units come back all the time, the whole limit in one window
========== ==========================================================================================

The first response after a pause shows the kind. All times are seconds on the clock of the quota.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import ceil, floor, inf
from typing import Literal

from msgspec import Struct, field

from chainapi._limits.bucket import EARLIEST, TokenBucket

__all__ = ["DEFAULT_WINDOW", "EPSILON", "Policy"]

DEFAULT_WINDOW = 60.0  # seconds, if no better value is known
EPSILON = 1e-6  # units: below it a difference is the rounding of floats
GRAINS = 1024  # entries of the ledger per window at most
MOST_LOWS = 64  # reports kept although no request in flight was sent before them
MOST_UNSEEN = 64  # entries; more are added up
ROUNDED = 1.75  # seconds: a reset that moves by less is the same one, rounded to whole seconds
FAR = 0.05  # of a window: a probe may cost a refusal only if it may save more than this
PATIENCE = 0.02  # of a window: the longest that a probe waits for a unit to drip in
LARGEST_RESERVE = 0.01  # of the limit
PROOF = 6  # reports of units that came back one by one


class Ledger(Struct, array_like=True):
    """Spent units in the order of their return, with running totals.

    Units sent within a thousandth of a window are one entry, which returns with its last request.
    """

    sent: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    gone: float = 0.0  # units before the first entry

    @property
    def outstanding(self) -> float:
        """Units of all entries."""
        return self.totals[-1] - self.gone if self.totals else 0.0

    def add(self, sent: float, now: float, window: float, cost: float) -> None:
        """Add units that return one window from now, and after all others."""
        total = self.gone + self.outstanding + cost
        back = max(now + window, self.back[-1]) if self.back else now + window
        if self.sent and now - self.sent[-1] < window / GRAINS:
            self.back[-1], self.totals[-1] = back, total
        else:
            self.sent.append(sent)
            self.back.append(back)
            self.totals.append(total)

    def back_by(self, time: float) -> float:
        """Return the units that are back by a time."""
        place = bisect_right(self.back, time)
        return self.totals[place - 1] - self.gone if place else 0.0

    def sent_by(self, time: float) -> float:
        """Return the units that were sent by a time."""
        place = bisect_right(self.sent, time)
        return self.totals[place - 1] - self.gone if place else 0.0

    def back_at(self, units: float) -> float:
        """Return when the oldest `units` are back; all of them if it has fewer."""
        place = bisect_left(self.totals, self.gone + units - EPSILON)
        return self.back[min(place, len(self.back) - 1)]

    def keep(self, units: float) -> None:
        """Forget the oldest units until at most `units` are left."""
        excess = self.outstanding - units
        if excess > EPSILON:
            place = bisect_right(self.totals, self.gone + excess + EPSILON)
            self.gone += excess
            self._cut(place)

    def collect(self, now: float) -> None:
        """Forget the units that are back."""
        if self.back and self.back[0] <= now:
            place = bisect_right(self.back, now)
            self.gone = self.totals[place - 1]
            self._cut(place)

    def _cut(self, place: int) -> None:
        if place >= len(self.back):
            self.gone = 0.0  # else rounding errors would accumulate over the years
        del self.sent[:place], self.back[:place], self.totals[:place]

    def move(self, earliest: float, latest: float) -> None:
        """Let all units return between two times."""
        self.back = [min(max(one, earliest), latest) for one in self.back]

    def move_by(self, seconds: float) -> None:
        """Let all units return later."""
        self.back = [one + seconds for one in self.back]

    def clear(self) -> None:
        """Forget everything."""
        self.sent, self.back, self.totals, self.gone = [], [], [], 0.0


class Policy(Struct, eq=False):
    """Limit of `limit` units in `window` seconds.

    Attributes:
        limit: units; the highest reported remainder while `sized` is false.
        window: seconds; None if unknown.
        name: the name that responses give it; `plan`: of the published plan that it belongs to.
        requests: whether it counts requests, whatever they cost in units.
        announced: whether responses named it; a limit that only the user set is kept by counting.
        listed: whether the last list of policies has it.
        on_refusal: whether only refusals named it.
        named_window: whether a response named the window; else it is the longest announced wait.
        reported: whether responses report what remains; else the ledger alone counts.
        proven: whether a response reported it since the end of the last stop; else few requests leave.
        left: units that remained by the report of `read_at`, less those that passed unreported.
        empty: reports in a row of nothing left; without a window each one doubles the wait for the next one.
        most_left: the highest remainder that was reported; `bucket`: the level of units that drip.
        reserve: units that stay unused, because requests for the last ones were refused.
        lows: time and remainder of reports, both ascending: one that a later report undercut is dropped.
        unseen: time and units of requests that the last report need not include; `unseen_units` in all.
        reset_at: announced time when all units are back; inf if unknown.
        kind: how units come back; see the module.
        drops_in: reports in a row of few units that came back although none were due.
        opened: when the first request was sent since the whole limit was left.
        asked: whether a probe for the kind was sent, or is unnecessary; `answered`: whether it was answered.

    """

    limit: float
    window: float | None = None
    name: str | None = None
    plan: str = ""
    requests: bool = False
    announced: bool = False
    sized: bool = True
    listed: bool = False
    on_refusal: bool = False
    named_window: bool = False
    reported: bool = False
    proven: bool = True
    left: float = 0.0
    read_at: float = -inf
    empty: int = 0
    most_left: float = 0.0
    bucket: TokenBucket | None = None
    reserve: float = 0.0
    lows: list[tuple[float, float]] = field(default_factory=list)
    unseen: list[tuple[float, float]] = field(default_factory=list)
    unseen_units: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    reset_at: float = inf
    first_reset: float = inf  # the first one announced since units came back
    left_at_first: float = 0.0
    kind: Literal["log", "window", "drip"] = "log"
    drops_in: int = 0
    opened: float = inf
    asked: bool = False
    answered: bool = False

    def same(self, other: Policy) -> bool:
        """Return whether a limit of the user is the same as another one."""
        return (self.limit, self.window, self.requests, self.plan) == (
            other.limit,
            other.window,
            other.requests,
            other.plan,
        )

    # --- units left -------------------------------------------------------------------------

    def counted(self, cost: float) -> float:
        """Return what the limit counts for a request of `cost` units: these, or 1."""
        return float(cost > 0.0) if self.requests else cost

    def room(self, now: float, held: float) -> float:
        """Return the units left besides the `held` ones, as reported or else counted."""
        if self.reported:
            return self.left - self.reserve - self.unseen_units - held
        self.ledger.collect(now)
        return self.limit - self.ledger.outstanding - held

    def backed(self, now: float, cost: float, held: float) -> bool:
        """Return whether `cost` units are left.

        A request that costs more than the whole limit needs all of it.
        """
        if not self.proven:
            return False
        whole = self.limit - self.reserve if self.reported else self.limit
        return self.room(now, held) >= min(cost, whole) - EPSILON

    def drip(self, seconds: float) -> float:
        """Return the units that come back within `seconds` if they drip."""
        return self.limit / self.window * seconds if self.window else 0.0

    # --- predictions ------------------------------------------------------------------------

    def opens_at(self, now: float, cost: float, held: float) -> float:
        """Return when `cost` units will be free while `held` others stay taken."""
        if self.bucket is not None:
            return self.bucket.opens_at(now, cost)
        needed = min(cost, self.limit) + held
        if self.reported:
            needed += self.reserve + self.unseen_units - self.left
        else:
            self.ledger.collect(now)
            needed -= self.limit - self.ledger.outstanding
        return self._back_at(now, needed)

    def _back_at(self, now: float, missing: float) -> float:
        """Return the predicted time when `missing` spent units are back, not before now."""
        if missing <= EPSILON:
            return now
        window, ledger = self.window or min(DEFAULT_WINDOW, 2.0 ** max(0, self.empty - 2)), self.ledger
        if self.kind == "window":
            back = ledger.back[0] if ledger.back else self.read_at + window
        else:
            back = ledger.back_at(missing) if ledger.back else self.read_at + window
        return max(now, min(back, self.reset()))

    def reset(self) -> float:
        """Return the announced end of the window; inf if unknown, or if it moves."""
        moves = self.reset_at - self.first_reset > ROUNDED
        return inf if moves or self.reset_at <= self.read_at else self.reset_at

    def returns_by(self, time: float) -> bool:
        """Return whether spent units may come back by a time, if not one by one."""
        margin, back = FAR * (self.window or 0.0), self.ledger.back
        if self.kind == "log":
            return time + margin >= self.opened + (self.window or DEFAULT_WINDOW)
        return bool(back) and back[0] <= time + margin

    def left_at(self, now: float) -> float:
        """Return the units left at a time, with those predicted to be back."""
        if not self.reported:
            return max(0.0, min(self.limit, self.room(now, 0.0)))
        if self.bucket is not None:
            return max(0.0, float(floor(self.bucket.level_at(now) + EPSILON)))
        left = self.left - self.unseen_units
        if self.kind == "window" or self.reset() <= now:
            back = self.limit if self._back_at(-inf, self.limit - left) <= now else 0.0
        else:
            back = self.ledger.back_by(now)
            if self.window and not self.ledger.back and self.read_at + self.window <= now:
                back = self.limit
        return max(0.0, min(self.limit, left + back))

    def probes_at(self, opens: float) -> float:
        """Return when a probe shows more than a wait until `opens`; inf for never."""
        if self.asked or not self.announced or self.kind == "drip" or self.reset() < inf:
            return inf
        window = self.window
        known_at = self.read_at
        if self.ledger.back and window:
            known_at = max(known_at, self.ledger.back[-1] - window)
        if not window or (opens - known_at > FAR * window and not self.reported):
            return known_at
        if opens - known_at <= FAR * window:
            return inf
        return known_at + min(2.0 * window / self.limit, PATIENCE * window)

    def wait_for(self, now: float, units: float, held: float, *, least: bool, probe: bool) -> float:
        """Return the seconds until `units` besides held and spent ones have passed.

        The `least` assumes the announced pace if units drip, or if a `probe` may still show that they do;
        and it assumes that the reported remainder already excludes the requests in flight.
        """
        if least and self.reported:
            # Others may have spent what is neither left nor in the ledger: it may be back at any time.
            known = self.reset() < inf or self.kind != "log"
            held = 0.0 if known else -max(0.0, self.limit - self.left - self.ledger.outstanding)
        missing = units - self.room(now, held) if self.proven else units + held
        if missing <= EPSILON:
            return 0.0
        if self.bucket is not None:
            return self.bucket.wait_for(now, units, least=least)
        window = self.window or DEFAULT_WINDOW
        whole = max(0.0, ceil(missing / self.limit - EPSILON) - 1)
        opens = self._back_at(now, missing - whole * self.limit) if self.proven else now
        seconds = opens - now + whole * window
        if least and self.window and self.reported and probe and not self._settled():
            dripped = self.read_at + (missing - 1.0) * window / self.limit - now
            return min(seconds, max(0.0, EARLIEST * dripped))
        # The response to a probe may have the time, but rounded up to whole seconds.
        return seconds if least or not probe or self.reset() < inf or self._settled() else seconds + 1.0

    def _settled(self) -> bool:
        """Return whether the kind is known: by a probe, or by a reset that does not move."""
        if self.answered or self.kind != "log":
            return True
        stays = self.reset_at < inf and self.reset_at - self.first_reset <= ROUNDED
        return stays and self.left_at_first - self.left > self.drip(2.0 * ROUNDED)

    # --- responses --------------------------------------------------------------------------

    def spend(self, sent: float, now: float, cost: float) -> None:
        """Record a request that the service may have counted, without a report."""
        if self.reported:
            before = self.unseen.pop()[1] if len(self.unseen) >= MOST_UNSEEN else 0.0
            self.unseen.append((now, before + cost))
            self.unseen_units += cost
        if self.window and self.bucket is None:
            self.ledger.add(sent, now, self.window, cost)

    def record(
        self, sent: float, now: float, remaining: float, cost: float, oldest: float, *, careful: bool
    ) -> bool:
        """Record a report; return whether the remainder rose.

        The request cost `cost` units, 0 if it was refused. `oldest` is when the oldest request in flight was
        sent. If it is `careful`, one unit that was due and is not back delays all others.
        """
        low = self._lowest(sent, now, remaining, oldest)
        if not self.sized and low + cost > self.limit:
            self.limit = low + cost
        rises = not self.reported or not self.proven or low > self.left
        gain = low + cost - self.left
        if self.reported and self.proven and (rises or (sent >= self.read_at and gain > 0.5)):
            self._notice(now, gain)
        self._see(sent)
        if self.opened == inf or self.limit - low <= cost + EPSILON:
            self.opened = sent
        if sent >= self.read_at:
            self.empty = min(self.empty + 1, 8) if low < 1.0 else 0
        self.left, self.reported, self.proven, self.read_at = low, True, True, now
        self.most_left = max(self.most_left, low)
        if self.bucket is None:  # else its level predicts when units come back
            self._count(sent, now, low, cost, careful=careful)
        if rises:
            self.reset_at = self.first_reset = inf
        return rises

    def _count(self, sent: float, now: float, low: float, cost: float, *, careful: bool) -> None:
        """Count the units of a reported request, and forget those that are back."""
        ledger = self.ledger
        if careful:
            ledger.keep(self.limit - low - cost)
            if ledger.back and ledger.back[0] <= sent:
                # Sliding counters, or others: the log is no prediction, but its last unit is the latest.
                ledger.move(ledger.back[-1], inf)
        ledger.collect(now)
        if cost and self.window:
            ledger.add(sent, now, self.window, cost)
        ledger.keep(self.limit - low)

    def _notice(self, now: float, gain: float) -> None:
        """Learn from units that came back although none were due: they drip.

        A window or a log of others would return more at once.
        """
        if self.kind != "log" or not self.window or self.returns_by(now):
            return
        self.drops_in = self.drops_in + 1 if gain <= 2.0 * self.drip(now - self.read_at) + 2.0 else 0
        if self.drops_in >= PROOF:
            self.kind = "drip"

    def _lowest(self, sent: float, now: float, remaining: float, oldest: float) -> float:
        """Return the lowest remainder since a request was sent: responses overtake."""
        lows = self.lows
        while lows and lows[-1][1] >= remaining:
            lows.pop()
        lows.append((now, remaining))
        if len(lows) == 1:
            return remaining
        if len(lows) > MOST_LOWS:
            del lows[: bisect_left(lows, (min(oldest, sent), -inf))]
        return lows[bisect_left(lows, (sent, -inf))][1]

    def _see(self, sent: float) -> None:
        """Release the requests that a report to one sent at a time includes."""
        unseen = self.unseen
        if unseen and unseen[0][0] <= sent:
            place = bisect_right(unseen, (sent, inf))
            self.unseen_units -= sum(units for _, units in unseen[:place])
            del unseen[:place]
            if not unseen:
                self.unseen_units = 0.0

    def announce_reset(self, now: float, seconds: float) -> None:
        """Record the announced seconds until all units are back, from a success."""
        if not self.named_window and max(seconds, 1.0) > (self.window or 0.0):
            self.set_window(now, max(seconds, 1.0), named=False)
        if self.first_reset == inf:
            self.left_at_first = self.left
        self.reset_at = now + seconds
        self.first_reset = min(self.first_reset, self.reset_at)

    def set_window(self, now: float, window: float, *, named: bool) -> None:
        """Use another window: spent units return within it, or after a guessed one."""
        if named:
            self.ledger.move(-inf, now + window)
        else:
            self.ledger.move(now + window, inf)
        self.window, self.named_window = window, named
        if self.bucket is not None:
            self.bucket.rate = self.limit / window

    def refused(self, now: float, stop: float, *, announced: bool, sure: bool, guess: bool) -> None:
        """Learn from a refusal with a wait until `stop`.

        It is `sure` that enough units seemed to be left, as reported, or as predicted for a `guess`.
        """
        if announced and not self.named_window and stop - now > (self.window or 0.0):
            self.set_window(now, stop - now, named=False)
        self.reset_at, self.first_reset = stop, inf
        self.asked, self.answered = True, self.answered or self.asked
        if guess and self.left < 1.0 and self.bucket is not None and self.window and not self.named_window:
            # The guessed pace is too fast. A unit is back after the wait, so it is not slower than that.
            slower = min(2.0 * self.window, self.limit * (stop - now))
            self.set_window(now, max(self.window, slower), named=False)
        elif sure and guess and self.bucket is not None:
            self.bucket.refused()
        elif sure and not guess:
            self.reserve = min(self.reserve + 1.0, floor(LARGEST_RESERVE * self.limit))
        if self.bucket is not None and stop - now > FAR * (self.window or 0.0) + 2.0:
            self.kind, self.bucket = "log", None

    def follow(self, sent: float, remaining: float, least: float, held: float) -> None:
        """Correct the level of units that drip, or begin to predict it.

        A report shows `remaining` units after a request of the `least` price.
        """
        least = self.counted(least)
        if self.bucket is not None:
            self.bucket.report(remaining, least)
        elif self.kind == "drip" and self.window:
            size, level = max(self.most_left, self.left + least), self.left - held
            self.bucket = TokenBucket.begin(self.limit, self.window, size, level, sent)
            self.ledger.clear()

    def restart(self) -> None:
        """Begin anew after a wait if no response reports the units back."""
        self.left, self.proven = self.limit, False
        self.reset_at = self.first_reset = inf
        self.ledger.clear()

    def classify(self, sent: float, now: float, found: float, *, sure: bool, inquiry: bool) -> None:
        """Learn the kind from the first report after a pause.

        Its request found `found` units, or more; `sure` if no more. An `inquiry` that shows nothing is
        followed by another one.
        """
        if self.window:
            self.answered = self.answered or self.asked
            if self.kind != "drip":
                self._classify(sent, now, found, self.window, sure=sure)
        if inquiry and not sure and self.kind == "log":
            self.asked = False

    def _classify(self, sent: float, now: float, found: float, window: float, *, sure: bool) -> None:
        gain, whole = found - self.left, self.limit - self.left
        drip = self.drip(now - self.read_at)
        # No drip is faster than announced.
        most = 2.0 * (drip + self.drip(now - sent)) + 2.0
        surely = self.ledger.back_by(sent)
        possibly = max(self.ledger.back_by(now), self.ledger.sent_by(now - window))
        if gain > possibly + 0.5:
            if gain >= 0.5 * (whole + max(possibly, min(drip, whole))):
                self.kind = "window"
            elif gain <= most and drip < (1 - FAR) * whole and possibly == 0:
                self.kind = "drip"
        elif sure and gain + 0.5 < 0.5 * surely:
            self.kind = "drip"
