"""Discovery of limits without headers: refusals show them, counting keeps them.

Few requests are in flight at first, then more, up to a moderate number. After a refusal the client retries
with single requests, after 1, 2, 4 ... 60 seconds with jitter, and after eight minutes an eighth more each
time; within that, at the end of a usual window. When one passes, a second refusal shows the kind of limit:

* as much passed as before the first refusal, or more: a window. Its limit is what passed between both
  refusals, because less may have passed before the first one: others, or an earlier session, used the
  window as well.
* much less: the quota drips. `chainapi.core.limits.drip` paces requests, and makes them slowly faster; each
  further refusal brackets the rate between what passed since the last one and the pace that was too fast.

Two refusals show neither if they are further apart than ten times the longest announced wait, or than the
time in which requests were under way or waited: they may have nothing to do with each other.

A trial sends more requests in a learned window from time to time, or sends them a little earlier, so that a
limit that was learned too low grows. Each refused trial doubles the number of windows until the next one.

A discovered limit beside announced ones counts as a drip: pacing uses a window as well, if not at once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf

from attrs import define, field

from chainapi.core.limits.backoff import LONGEST_BACKOFF, backoff
from chainapi.core.limits.balance import Balance
from chainapi.core.limits.drip import Drip
from chainapi.core.limits.memory import MOST_ENTRIES as MOST_REMEMBERED
from chainapi.core.limits.memory import (
    DiscoveryPart,
    PolicyPart,
    TrialPart,
    amount,
    moment,
    relative,
    seconds,
)
from chainapi.core.limits.policy import Policy

__all__ = ["Discovery"]

SLOW_START = 18.0  # requests in flight before a limit is known
AFTERWARDS = 24.0  # once it is known: there may be further limits
FEW = 6.0  # in flight until a new limit is proven
PROVEN = 64  # requests
NEAR = 2.0  # requests in flight close to the expected refusal
USUAL = (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
WHOLE = 0.5  # of the units that passed before the first refusal: with fewer, the quota drips
STEP = 0.05  # of a learned limit: increase in a trial
EARLIER = 0.9  # of a learned window: its length in a trial
EARLIER_BY_FAR = 0.5  # the same, for a window of seconds
SHORTEST = 0.5  # seconds: with a shorter window, the quota drips
FIRST_TRIAL, RAREST_TRIAL = 4, 64  # windows
LEAST = 3.0  # units that must have passed for a comparison
SOON = 5.0  # seconds: units back within them may drip
CAUTIOUS = 3.0  # requests in flight allowed by responses without fields
MOST_ENTRIES = 1024
FAR = 10.0  # times the longest announced wait: refusals further apart have no common cause


@define(eq=False, repr=False)
class Trial:
    """Trials with a higher learned limit, or a shorter window of it."""

    balance: Balance
    _every: int = FIRST_TRIAL  # windows to use up before the next trial
    _full: int = 0
    _step: float = STEP
    _shorter: bool = False  # whether the next trial shortens the window
    _runs: bool = False
    _kept: tuple[float, float] = (0.0, 0.0)  # limit and window before the trial
    _bound: bool = False  # whether the window was used up
    drips: bool = False  # whether the proven window is so short that the quota drips
    _since: float = 0.0

    def beyond(self, in_flight: float) -> bool:
        """Return whether a trial runs and has used up the limit learned before it.

        From then on any request may be refused.
        """
        return self._runs and self.balance.limit - self.balance.room(in_flight) >= self._kept[0]

    def passed(self, now: float) -> None:
        """Record a success; begin a trial once enough windows were used up."""
        window = self.balance.window or 1.0
        self._bound = self._bound or self.balance.room(0.0) < 2.0 + self.balance.limit / 10.0
        if now < self._since + window:
            return
        self._since, self._full = now, self._full + self._bound
        self._bound = False
        if self._full >= self._enough():
            self._begin(window)

    def _enough(self) -> int:
        """Return the number of windows to use up before the next step."""
        if not self._runs:
            return self._every
        # Units spent before the trial of a shorter window come back after the longer one.
        return 3 if self._shorter else 1

    def _begin(self, window: float) -> None:
        self._step = min(1.0, self._step * 2.0) if self._runs else STEP
        self._kept, self._runs, self._full = (self.balance.limit, window), True, 0
        if self._shorter:
            self.balance.window = window * (EARLIER if window > SOON else EARLIER_BY_FAR)
            self.drips = self.balance.window < SHORTEST
        else:
            more = max(1.0, round(self.balance.limit * self._step))
            self.balance.limit += more
            self.balance.remaining += more

    def refused(self, now: float, in_flight: float) -> None:
        """Record a refusal: undo a running trial, else lower the learned limit."""
        balance, window = self.balance, self.balance.window
        balance.collect(now)
        if self._runs:
            kept, balance.window = self._kept
            shorter = balance.window != window
            self._shorter = not shorter and (balance.window not in USUAL or balance.window <= SOON)
        else:
            counted = balance.limit - balance.remaining - balance.returned + in_flight
            kept = max(1.0, min(balance.limit, max(balance.limit / 2.0, counted)))
        balance.remaining -= balance.limit - kept
        balance.limit = kept
        if balance.window != window:
            balance.exhaust(now)
        self._every, self._full = min(2 * self._every, RAREST_TRIAL), 0
        self._runs, self._bound, self._since = False, False, now

    def memory(self, then: float) -> TrialPart:
        """Return the state for a memory."""
        kept = amount(self._kept[0]), amount(self._kept[1])
        return TrialPart(
            self._every,
            self._full,
            self._step,
            self._shorter,
            self._runs,
            kept,
            self._bound,
            self.drips,
            relative(then, self._since),
        )

    @classmethod
    def restored(cls, balance: Balance, part: TrialPart, then: float) -> Trial:
        """Return the trials of a limit from a memory."""
        return cls(
            balance,
            part.every,
            part.full,
            part.step,
            part.shorter,
            part.runs,
            part.kept,
            part.bound,
            part.drips,
            then + part.since,
        )


@define(eq=False, repr=False)
class Discovery:
    """Limits found without headers; with `drips`, each one counts as a drip."""

    drips: bool = False
    most: float = 1.0
    drip: Drip | None = None
    learned: Policy | None = None
    _opened: float = inf  # when the first request left since the last opening
    _anchor: float = inf  # when its response arrived: never before the service counted it
    _refused: float | None = None  # when the first refusal after the last success arrived
    _tried: float = -inf  # when the last refused request was sent
    _tries: int = 0
    _announced: bool = False  # whether a refusal since then named a wait: then retries did not find it
    _passed: float = 0.0  # units since the opening
    _count: int = 0  # requests since the opening
    _before: float | None = None  # units that passed between the opening before it and the refusal
    _window: float | None = None  # seconds until this opening, found by retries
    _found: bool = False  # whether the last refusal confirmed that a window is used up
    _last_refused: float | None = None
    _since_refused: float = 0.0
    _trial: Trial | None = None
    _busy: float = 0.0  # seconds since the last refusal in which requests were under way or waited
    _busy_until: float = -inf
    _longest_wait: float = 0.0  # announced
    _history: list[tuple[float, float, float]] = field(factory=list[tuple[float, float, float]])

    def opens_at(self, now: float, in_flight: int) -> float:
        """Return when a request may leave: `now`, later, or inf if a response decides."""
        most = self.most
        if self._trial is not None and self._trial.beyond(in_flight):
            most = min(most, NEAR)
        if in_flight >= most:
            return inf
        return now if self.drip is None else max(now, self.drip.next)

    def disproved(self) -> bool:
        """Return whether the successes since the last refusal disprove a limit."""
        return self._count >= PROVEN if self.drip is None else self.drip.disproved()

    def longest(self) -> float:
        """Return the longest wait in seconds of a limit that drips."""
        return max(SOON, 0.0 if self.drip is None else 2.0 / self.drip.rate)

    def wait_for(self, now: float, units: float, *, least: bool = False) -> float:
        """Return the seconds until `units` have left at the measured pace, or the `least`."""
        return 0.0 if self.drip is None else self.drip.wait_for(now, units, least=least)

    def surely_at(self, now: float) -> float:
        """Return when retries will likely have found the window.

        That is after a minute, or twice the time since the first refusal.
        """
        if (
            self._refused is None
            or self._announced
            or self.drip is not None
            or self._foreseen(self._refused) > now
        ):
            return now
        begun = min(self._anchor, self._refused)
        return max(begun + LONGEST_BACKOFF, now + (now - begun if now - begun > LONGEST_BACKOFF else 0.0))

    def send(self, now: float, cost: float) -> None:
        """Record a sent request."""
        self._opened = min(self._opened, now)
        if self.drip is not None:
            self.drip.send(now, cost)

    # --- refusals ---------------------------------------------------------------------------

    def refused(self, sent: float, now: float, in_flight: float, wait: float | None) -> None:
        """Record a refusal with `in_flight` units out, and the `wait` that it named."""
        self._tried = max(self._tried, sent)
        self._occupied(sent, now)
        if self._refused is None:
            self._first_refused(sent, now, in_flight, announced=wait is not None)
        if wait is not None:
            self._longest_wait = max(self._longest_wait, wait)
            self._occupied(now, now + wait)

    def _occupied(self, since: float, until: float) -> None:
        """Record for how long requests were under way or waited, with short gaps."""
        if until > self._busy_until:
            idle = max(0.0, since - self._busy_until)
            self._busy += min(idle, SOON) + until - max(since, self._busy_until)
            self._busy_until = until

    def _first_refused(self, sent: float, now: float, in_flight: float, *, announced: bool) -> None:
        """Record the first refusal after a success."""
        if self._trial is None and self.drip is None and self._is_unrelated(now):
            self._before, self._last_refused = None, None
            self._anchor = max(self._anchor, now - self._busy)
        self._busy, self._busy_until = 0.0, now
        self._refused, self._tries, self._announced, self._found = now, 0, announced, False
        self.most = min(self.most, SLOW_START)
        if self._trial is not None:
            self._trial.refused(now, in_flight)
        elif self._dripped():
            self._measure(now, self._last_refused)
        else:
            # More than a window passed: the count is not the limit of a window.
            within = self._window is None or sent <= self._opened + self._window
            self._found = self.drip is None and (self._before or 0.0) >= LEAST and within

    def _is_unrelated(self, now: float) -> bool:
        """Return whether a refusal is too far from the last one to show a limit with it."""
        apart = now - (self._opened if self._last_refused is None else self._last_refused)
        return apart > self._busy + SOON or 0.0 < FAR * self._longest_wait < apart

    def _dripped(self) -> bool:
        """Return whether too few units passed since the opening for a window."""
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
        """Return when to retry after a refusal; `jitter` is a random number from 0 to 1."""
        self._tries += 1
        at = self._next_try(now, jitter)
        self._occupied(now, at)
        return at

    def _next_try(self, now: float, jitter: float) -> float:
        if self._tries == 1 and (at := self._foreseen(now)) > now:
            return at
        elapsed = 0.0 if self._refused is None else now - self._refused
        longest = backoff(self._tries, max(LONGEST_BACKOFF, elapsed / 8.0))
        # A window that others used up ends at most one window after the first request in it.
        begun = self._anchor if self._refused is None else min(self._anchor, self._refused)
        for window in USUAL:
            if now + longest / 4.0 <= begun + window <= now + longest:
                return begun + window
        return now + longest * (1.0 - 0.25 * jitter)

    def _foreseen(self, now: float) -> float:
        """Return when the limit learned so far opens, by the first response of its window."""
        if self.learned is not None:
            return self.learned.opens_at(now, 1.0, 0.0)
        if self.drip is not None:
            return self.drip.tries_at(now)
        return self._anchor + self._window if self._found and self._window else -inf

    # --- successes --------------------------------------------------------------------------

    def passed(self, sent: float, now: float, cost: float, *, answered: bool = True) -> None:
        """Record a request that was not refused.

        `answered` is False if it may not have met a limiter.
        """
        self._occupied(sent, now)
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
        """Replace a limit whose window became shorter in each trial by a drip."""
        # The last trial itself is not proven.
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
            # Two requests more than its pace needs show how fast it drips.
            self.most = NEAR + self.drip.pace() * trip
        elif before is None:
            self.most += 1.0 if self.most < SLOW_START else 1.0 / 512.0
        elif self._passed < before - FEW:
            self.most = min(self.most + 1.0, FEW)
        else:
            # Close to the last refusal: the service would refuse most requests beyond that.
            self.most = max(NEAR, min(SLOW_START, self._passed - before))

    def _back(self, sent: float, refused: float) -> None:
        """Restart the counts with the first request that passes after refusals."""
        longer = self._tried - self._opened
        window = self._usual(longer, sent - self._opened)
        if self._found and self._window is not None and longer < self._window < window:
            window = self._window  # from the opening before; no retry since shows a longer one
        if self.learned is None and self._found:
            self._learn(window)
        elif self.drip is not None and not self.drips and sent - refused > SOON:
            # A drip has no wait as long as this: begin again.
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
        balance = Balance(max(1.0, self._passed), window)
        for one in self._history:
            balance.spend(*one)
        self.learned, self._trial = Policy(balance), Trial(balance)
        self.drip, self._last_refused = None, None

    def _usual(self, longer: float, at_most: float) -> float:
        """Return the usual window between both bounds, else the upper one."""
        return max((one for one in USUAL if longer < one <= at_most + 0.05), default=at_most)

    # --- memory -----------------------------------------------------------------------------

    def memory(self, then: float, entries: int) -> DiscoveryPart:
        """Return the state for a memory; its ledger has `entries` at most."""
        return DiscoveryPart(
            drips=self.drips,
            most=amount(self.most),
            drip=None if self.drip is None else self.drip.memory(then),
            learned=None if self.learned is None else self.learned.memory(then, entries),
            trial=None if self._trial is None else self._trial.memory(then),
            opened=seconds(then, self._opened),
            anchor=seconds(then, self._anchor),
            refused=None if self._refused is None else seconds(then, self._refused),
            tried=seconds(then, self._tried),
            tries=self._tries,
            announced=self._announced,
            passed=amount(self._passed),
            count=min(self._count, PROVEN),
            before=None if self._before is None else amount(self._before),
            window=None if self._window is None else amount(self._window),
            found=self._found,
            last_refused=None if self._last_refused is None else seconds(then, self._last_refused),
            since_refused=amount(self._since_refused),
            busy=amount(self._busy),
            busy_until=seconds(then, self._busy_until),
            longest_wait=amount(self._longest_wait),
            history=self._condensed(then),
        )

    def _condensed(self, then: float) -> list[tuple[float, float, float]]:
        """Return the history in few entries."""
        history = self._history
        size = max(1, ceil(len(history) / MOST_REMEMBERED))
        parts = [history[place : place + size] for place in range(0, len(history), size)]
        return [
            (relative(then, part[0][0]), relative(then, part[-1][1]), amount(sum(one[2] for one in part)))
            for part in parts
        ]

    @classmethod
    def restored(
        cls, part: DiscoveryPart, then: float, restored: Callable[[PolicyPart], Policy]
    ) -> Discovery:
        """Return a search from a memory; `restored` makes a policy of its part."""
        one = cls(part.drips, min(part.most, FEW))
        one.drip = None if part.drip is None else Drip.restored(part.drip, then)
        if part.learned is not None and part.trial is not None:
            one.learned = restored(part.learned)
            one._trial = Trial.restored(one.learned.balance, part.trial, then)
        one._opened, one._anchor = moment(then, part.opened), moment(then, part.anchor)
        one._refused = None if part.refused is None else then + part.refused
        one._last_refused = None if part.last_refused is None else then + part.last_refused
        one._tried, one._tries = moment(then, part.tried, -inf), part.tries
        one._announced, one._found = part.announced, part.found
        one._passed, one._count, one._since_refused = part.passed, part.count, part.since_refused
        one._before, one._window = part.before, part.window
        one._busy, one._busy_until = part.busy, moment(then, part.busy_until, -inf)
        one._longest_wait = part.longest_wait
        one._history = [(then + sent, then + back, units) for sent, back, units in part.history]
        return one
