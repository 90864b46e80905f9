"""Limits without headers: found by being refused, and then kept by counting.

Requests begin few and grow to a moderate number in flight. After a refusal single requests try again, after
1, 2, 4 ... 60 seconds with jitter, and after eight minutes an eighth more each time; within that, at the end
of a window that services usually have. When one passes, a second refusal shows what the first one was about:

* as much passed as before the first refusal, or more: a window. Its limit is what passed between both
  refusals, since what passed before the first may be less: others, or a session before this one, used the
  window as well.
* much less: the quota drips. Requests are paced (`chainapi.core.limits.drip`), and slowly faster; each
  further refusal brackets the rate between what passed since the last one and the pace that was too fast.

A learned window is tried out from time to time, with more requests in it or a little earlier, so that a limit
that was learned too low grows. Each trial that is refused doubles the windows until the next one.

A limit beside others that are announced is taken to drip: that uses a window as well, if not at once.
"""

from __future__ import annotations

from math import inf

from attrs import define, field

from chainapi.core.limits.drip import Drip
from chainapi.core.limits.policy import Policy

__all__ = ["Discovery"]

SLOW_START = 18.0  # requests in flight before a limit is known
AFTERWARDS = 24.0  # and then: there may be more limits than that
FEW = 6.0  # while a limit that was just found is not proven
PROVEN = 64  # requests
NEAR = 2.0  # requests in flight close to where a refusal is expected
FIRST_TRY, LONGEST_TRY = 1.0, 60.0  # seconds
USUAL = (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
WHOLE = 0.5  # of what passed before the first refusal: less than that is no window
STEP = 0.05  # of a learned limit: how much more a trial takes
EARLIER = 0.9  # of a learned window: how much shorter a trial takes it
EARLIER_BY_FAR = 0.5  # and one of seconds
SHORTEST = 0.5  # seconds: a shorter window is none, the quota drips
FIRST_TRIAL, RAREST_TRIAL = 4, 64  # windows
LEAST = 3.0  # units that passed, or there is nothing to compare with
SOON = 5.0  # seconds: what is back by then may drip
CAUTIOUS = 3.0  # requests in flight that answers without fields allow
MOST_ENTRIES = 1024


@define(eq=False, repr=False)
class Trial:
    """Tries out whether a learned limit is higher, or its window shorter, than was learned."""

    limit: Policy
    _every: int = FIRST_TRIAL  # windows that are used up before the next trial
    _full: int = 0
    _step: float = STEP
    _shorter: bool = False  # whether the next trial takes the window for shorter
    _runs: bool = False
    _kept: tuple[float, float] = (0.0, 0.0)  # limit and window before the trial
    _bound: bool = False  # whether the window was used up
    drips: bool = False  # whether so short a window was proven that it is none
    _since: float = 0.0

    def beyond(self, in_flight: float) -> bool:
        """Return whether a trial runs and so much is used that the next refusal may come any time."""
        return self._runs and self.limit.limit - self.limit.room(in_flight) >= self._kept[0]

    def passed(self, now: float) -> None:
        """Note a success; once enough windows were used up, begin a trial."""
        window = self.limit.window or 1.0
        self._bound = self._bound or self.limit.room(0.0) < 2.0 + self.limit.limit / 10.0
        if now < self._since + window:
            return
        self._since, self._full = now, self._full + self._bound
        self._bound = False
        if self._full >= self._enough():
            self._begin(window)

    def _enough(self) -> int:
        """Return the windows that are used up before the next step."""
        if not self._runs:
            return self._every
        # What was spent before a shorter window is tried out comes back after the longer one.
        return 3 if self._shorter else 1

    def _begin(self, window: float) -> None:
        self._step = min(1.0, self._step * 2.0) if self._runs else STEP
        self._kept, self._runs, self._full = (self.limit.limit, window), True, 0
        if self._shorter:
            self.limit.window = window * (EARLIER if window > SOON else EARLIER_BY_FAR)
            self.drips = self.limit.window < SHORTEST
        else:
            more = max(1.0, round(self.limit.limit * self._step))
            self.limit.limit += more
            self.limit.remaining += more

    def refused(self, now: float, in_flight: float) -> None:
        """Note a refusal: take back a trial that runs, else take less for left than was learned."""
        limit, window = self.limit, self.limit.window
        limit.collect(now)
        if self._runs:
            kept, limit.window = self._kept
            shorter = limit.window != window
            self._shorter = not shorter and (limit.window not in USUAL or limit.window <= SOON)
        else:
            counted = limit.limit - limit.remaining - limit.returned + in_flight
            kept = max(1.0, min(limit.limit, max(limit.limit / 2.0, counted)))
        limit.remaining -= limit.limit - kept
        limit.limit = kept
        if limit.window != window:
            limit.exhaust(now)
        self._every, self._full = min(2 * self._every, RAREST_TRIAL), 0
        self._runs, self._bound, self._since = False, False, now


@define(eq=False, repr=False)
class Discovery:
    """Limits without headers, as far as found; `drips` if they are taken to."""

    drips: bool = False
    most: float = 1.0
    drip: Drip | None = None
    learned: Policy | None = None
    _opened: float = inf  # when the first request left since the last opening
    _anchor: float = inf  # when it was answered: no sooner than it was counted
    _refused: float | None = None  # when the first refusal came that nothing passed since
    _tried: float = -inf  # when the last request was sent that was refused
    _tries: int = 0
    _announced: bool = False  # whether a wait was announced since: then trying did not show it
    _passed: float = 0.0  # units since the opening
    _count: int = 0  # requests since the opening
    _before: float | None = None  # units that passed from the opening before it to the refusal
    _window: float | None = None  # seconds that this opening took to come, by trying
    _found: bool = False  # the last refusal confirmed that a window is used up
    _last_refused: float | None = None
    _since_refused: float = 0.0
    _trial: Trial | None = None
    _history: list[tuple[float, float, float]] = field(factory=list[tuple[float, float, float]])

    def opens_at(self, now: float, in_flight: int) -> float:
        """Return when a request may leave: `now`, later, or inf when an answer decides."""
        most = self.most
        if self._trial is not None and self._trial.beyond(in_flight):
            most = min(most, NEAR)
        if in_flight >= most:
            return inf
        return now if self.drip is None else max(now, self.drip.next)

    def disproved(self) -> bool:
        """Return whether so much passed since the last refusal that there is likely no limit."""
        return self._count >= PROVEN if self.drip is None else self.drip.disproved()

    def longest(self) -> float:
        """Return the longest wait in seconds that a limit which drips has."""
        return max(SOON, 0.0 if self.drip is None else 2.0 / self.drip.rate)

    def wait_for(self, now: float, units: float, *, least: bool = False) -> float:
        """Return the seconds until `units` have left at the measured pace, or the `least`."""
        return 0.0 if self.drip is None else self.drip.wait_for(now, units, least=least)

    def surely_at(self, now: float) -> float:
        """Return when trying will likely have found the window: after a minute, or twice what it took."""
        if (
            self._refused is None
            or self._announced
            or self.drip is not None
            or self._foreseen(self._refused) > now
        ):
            return now
        begun = min(self._anchor, self._refused)
        return max(begun + LONGEST_TRY, now + (now - begun if now - begun > LONGEST_TRY else 0.0))

    def send(self, now: float, cost: float) -> None:
        """Note that a request leaves."""
        self._opened = min(self._opened, now)
        if self.drip is not None:
            self.drip.send(now, cost)

    # --- refusals ---------------------------------------------------------------------------

    def refused(self, sent: float, now: float, in_flight: float, *, announced: bool) -> None:
        """Note a refusal, while `in_flight` units are out; `announced` if it named a wait."""
        self._tried = max(self._tried, sent)
        if self._refused is not None:
            return
        self._refused, self._tries, self._announced, self._found = now, 0, announced, False
        self.most = min(self.most, SLOW_START)
        if self._trial is not None:
            self._trial.refused(now, in_flight)
        elif self._dripped():
            self._measure(now, self._last_refused)
        else:
            # More than a window passed: what was counted is no limit of one.
            within = self._window is None or sent <= self._opened + self._window
            self._found = self.drip is None and (self._before or 0.0) >= LEAST and within

    def _dripped(self) -> bool:
        """Return whether what passed since the opening is too little for a window."""
        if self._before is None or self.drip is not None or self.drips:
            return self._last_refused is not None
        return self._passed < max(LEAST, WHOLE * self._before)

    def _measure(self, now: float, last: float | None) -> None:
        """Bracket the rate of a drip."""
        if last is None or now <= last:
            return
        measured = self._since_refused / (now - last)
        if not measured:
            return
        if self.drip is None:
            self.drip = Drip(measured, now)
        else:
            self.drip.refused(measured, self._since_refused)

    def tries_at(self, now: float, jitter: float) -> float:
        """Return when to try again after a refusal at `now`; `jitter` is a random number from 0 to 1."""
        self._tries += 1
        if self._tries == 1 and (at := self._foreseen(now)) > now:
            return at
        elapsed = 0.0 if self._refused is None else now - self._refused
        longest = min(max(LONGEST_TRY, elapsed / 8.0), FIRST_TRY * 2.0 ** min(self._tries - 1, 16))
        # A window that others used up ends at the latest one window after it was met.
        begun = self._anchor if self._refused is None else min(self._anchor, self._refused)
        for window in USUAL:
            if now + longest / 4.0 <= begun + window <= now + longest:
                return begun + window
        return now + longest * (1.0 - 0.25 * jitter)

    def _foreseen(self, now: float) -> float:
        """Return when what was learned so far opens, by the first answer of the window."""
        if self.learned is not None:
            return self.learned.opens_at(now, 1.0, 0.0)
        if self.drip is not None:
            return self.drip.tries_at(now)
        return self._anchor + self._window if self._found and self._window else -inf

    # --- successes --------------------------------------------------------------------------

    def passed(self, sent: float, now: float, cost: float, *, answered: bool = True) -> None:
        """Note a request that was not refused; `answered` is False where no limiter may have met it."""
        if self._refused is not None and sent > self._refused:
            self._back(sent, self._refused)
        if not self._count:
            self._anchor = now
        if answered or self.most < CAUTIOUS:
            self._grow(now - sent)
        self._since_refused += cost
        self._passed += cost
        self._count += 1
        if self.learned is not None and self._trial is not None:
            self._trial.passed(now)
            if self._trial.drips:
                self._pace_instead(now, self.learned)
        elif self.drip is None:
            self._note(sent, now, cost)

    def _pace_instead(self, now: float, learned: Policy) -> None:
        """Take a limit whose window proved ever shorter for a drip."""
        # The trial itself is not proven.
        self.drip = Drip(EARLIER_BY_FAR * learned.limit / (learned.window or SHORTEST), now)
        self.learned, self._trial = None, None

    def _note(self, sent: float, now: float, cost: float) -> None:
        self._history.append((sent, now, cost))
        if len(self._history) > MOST_ENTRIES:
            self._history = [
                (one[0], two[1], one[2] + two[2])
                for one, two in zip(self._history[::2], self._history[1::2], strict=False)
            ]

    def _grow(self, trip: float) -> None:
        before = self._before
        if self.learned is not None:
            self.most = min(self.most + 1.0, FEW if self._count < PROVEN else AFTERWARDS)
        elif self.drip is not None:
            # Two more than its pace has find out how fast it drips.
            self.most = NEAR + self.drip.pace() * trip
        elif before is None:
            self.most += 1.0 if self.most < SLOW_START else 1.0 / 512.0
        elif self._passed < before - FEW:
            self.most = min(self.most + 1.0, FEW)
        else:
            # Close to where the last refusal came: most of more would be refused.
            self.most = max(NEAR, min(SLOW_START, self._passed - before))

    def _back(self, sent: float, refused: float) -> None:
        """Begin to count again with the first request that passes after refusals."""
        longer = self._tried - self._opened
        window = self._usual(longer, sent - self._opened)
        if self._found and self._window is not None and longer < self._window < window:
            window = self._window  # from the opening before; no try since says that it is longer
        if self.learned is None and self._found:
            self._learn(window)
        elif self.drip is not None and not self.drips and sent - refused > SOON:
            # So long a wait is no drip: begin again.
            self.drip, self._last_refused = None, None
        else:
            if self.drip is not None:
                self.drip.reopened(sent)
            self._last_refused, self._since_refused = refused, 0.0
        self.most = 1.0
        self._before, self._window = self._passed, None if self._announced else window
        self._refused, self._opened, self._found = None, sent, False
        self._passed, self._count = 0.0, 0
        self._history.clear()

    def _learn(self, window: float) -> None:
        self.learned = Policy(max(1.0, self._passed), window)
        for one in self._history:
            self.learned.spend(*one)
        self._trial = Trial(self.learned)
        self.drip, self._last_refused = None, None

    def _usual(self, longer: float, at_most: float) -> float:
        """Return the usual window between both bounds, else the upper one."""
        return max((one for one in USUAL if longer < one <= at_most + 0.05), default=at_most)
