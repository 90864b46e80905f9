"""Limits that no header tells: found by being refused once, and then kept.

Requests begin few and grow to a moderate number in flight. After a refusal single requests try again,
soon at first and then at times that windows usually have. When one passes:

* within a few seconds: the quota drips. Requests are paced, and slowly faster; each further refusal
  brackets the rate between what passed since the last one and the pace that was too fast.
* later: the limit is what passed since the window opened, the window is how long it took to open again.
  From then on it is kept by counting, like a limit that the user told.
"""

from __future__ import annotations

from math import inf

from attrs import define, field

from chainapi.core.allowance import Allowance

__all__ = ["Hidden"]

SLOW_START = 18.0  # requests in flight before a limit is known
AFTERWARDS = 24.0  # and then: there may be more limits than that
FEW = 6.0  # while a limit that was just found is not proven
PROVEN = 64  # requests
TRIES = (0.5, 3.0)  # seconds after the refusal
SOON = 4.5  # seconds: what is back by then drips
LATER = (9, 13, 16, 19, 22, 25, 28, 31, 34, 38, 42, 47, 52, 57, 90)  # seconds after the refusal
USUAL = (10, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)  # ... after the opening
MARGIN = 0.05  # below the measured rate, at first
GROWTH = 0.05  # a second, at first
MOST_ENTRIES = 1024


@define(eq=False, repr=False)
class Hidden:
    """What is found out about limits of which nothing is told."""

    most: float = 1.0
    rate: float | None = None
    _knows: bool = False
    _doubt: float = 1.0
    _rated_at: float = 0.0
    _next: float = -inf
    _opened: float = inf
    _refused: float | None = None
    _waited: bool = False
    _last_refused: float | None = None
    _since_refused: float = 0.0
    _history: list[tuple[float, float, float]] = field(factory=list[tuple[float, float, float]])

    def opens_at(self, now: float, in_flight: int) -> float:
        """Return when a request may leave: `now`, later, or inf when an answer decides."""
        if in_flight >= self.most:
            return inf
        return now if self.rate is None else max(now, self._next)

    def send(self, now: float, cost: float) -> None:
        """Note that a request leaves."""
        self._opened = min(self._opened, now)
        if self.rate is not None:
            pace = cost / self._pace(now)
            self._next = max(self._next, now - pace) + pace

    def _pace(self, now: float) -> float:
        assert self.rate is not None  # noqa: S101 - only called when there is one
        faster: float = (1.0 + GROWTH * self._doubt) ** max(0.0, min(now - self._rated_at, 600.0))
        return self.rate * faster

    def refused(self, now: float) -> None:
        """Note a refusal."""
        if self._refused is not None:
            return
        self._refused, self._waited = now, False
        self.most = min(self.most, SLOW_START)
        if self._last_refused is not None and now > self._last_refused:
            measured = self._since_refused / (now - self._last_refused)
            too_fast = measured if self.rate is None else max(measured, self._pace(now))
            if too_fast < 1.1 * measured:
                too_fast = measured
            self.rate = (measured + too_fast) / 2.0 * (1.0 - MARGIN * self._doubt)
            self._doubt = max(0.04, self._doubt * 0.6)

    def tries_at(self, now: float, opens: float) -> float:
        """Return when to try again after a refusal at `now`; known limits, if any, open at `opens`."""
        first = now if self._refused is None else self._refused
        soon = [first + seconds for seconds in TRIES if first + seconds > now + 0.25]
        if soon:
            return soon[0]
        if now + 0.25 < opens < inf and not self._waited:
            self._waited = True
            return opens
        later = [first + seconds for seconds in LATER if first + seconds > now + 0.5]
        usual = [self._opened + window for window in USUAL if self._opened + window > now + 0.1]
        if not later or (usual and usual[0] < later[0] + 2.0):
            return usual[0] if usual else now + USUAL[-1] / 4.0
        return later[0]

    def passed(self, sent: float, now: float, cost: float) -> Allowance | None:
        """Note a request that was not refused; return the limit that it reveals, if any."""
        learned = None
        if self._refused is not None and sent > self._refused:
            learned = self._back(sent, now, cost, self._refused)
        self._grow()
        self._since_refused += cost
        self._history.append((sent, now, cost))
        if len(self._history) > MOST_ENTRIES:
            self._history = [
                (one[0], two[1], one[2] + two[2])
                for one, two in zip(self._history[::2], self._history[1::2], strict=False)
            ]
        return learned

    def _grow(self) -> None:
        if self._last_refused is not None and self.rate is None:
            # Only two at once find out how fast it drips: most of more would be refused.
            self.most = 2.0
        elif not self._knows:
            self.most += 1.0 if self.most < SLOW_START else 1.0 / 512.0
        elif len(self._history) < PROVEN:
            self.most = min(self.most + 1.0, FEW)
        else:
            self.most = min(self.most + 0.5, AFTERWARDS)

    def _back(self, sent: float, now: float, cost: float, refused: float) -> Allowance | None:
        """Learn from the first request that passes after refusals."""
        learned = None
        passed = sum(cost for _, _, cost in self._history)
        if sent - refused <= SOON:
            self._rated_at = self._next = sent
            self._last_refused, self._since_refused = refused, 0.0
        elif passed:
            learned = Allowance(passed, sent - self._opened)
            for one in self._history:
                learned.spend(*one)
            learned.spend(sent, now, cost)
            learned.collect(now)
            self.rate, self._last_refused, self._doubt = None, None, 1.0
            self.most, self._knows = 1.0, True
        self._refused, self._opened = None, sent
        self._history.clear()
        return learned
