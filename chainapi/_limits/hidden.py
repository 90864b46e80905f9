"""A limit that no response announces: refusals show it, counting keeps it.

More and more requests are in flight until a refusal. Then single requests try again, after 1, 2, 4 ... 60
seconds with jitter, and after eight minutes an eighth more each time; within that, at the end of a usual
window. When one passes, the next refusal shows the kind of limit:

* as many units passed as before the first refusal, or more: a window. Its limit is what passed between both
  refusals, because others, or an earlier session, may have used the window before the first one.
* much less: units drip. Requests leave at a pace: it begins at what passed between the refusals, doubles
  until it is refused, and then approaches the pace that was too fast. After a minute it doubles slowly again.
  A refusal ends just this test, unless more passed since the last one than at the pace that was too fast.

Two refusals show neither if they are further apart than ten times the longest announced wait, or than the
time in which requests were under way or waited.

A learned limit is tested: in a window that was used up, one more request leaves, and many more if it passes.
Each test that is refused doubles the number of windows until the next one. And no request waits for a learned
window longer than for the longest announced wait and one backoff: then one tries.
"""

from __future__ import annotations

from math import exp, exp2, inf

from msgspec import Struct, field

from chainapi._limits.policy import EPSILON, Ledger, Policy

__all__ = ["Hidden", "backoff"]

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds
OFTEN = 10.0  # seconds between tries until 40 seconds have passed; then a quarter of the time, up to a minute
MOST = 24.0  # requests in flight until a limit is known: a burst that a service refuses may be as large
NEAR = 2.0  # requests in flight close to the expected refusal
SILENT = 3.0  # requests in flight that errors without fields allow: they may not have met a limit
USUAL = (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
PART = 0.5  # of the units before the first refusal: with fewer before the second one, units drip
LEAST = 3.0  # units that must have passed for a comparison
SOON = 5.0  # seconds: units that are back within them may drip; a shorter gap between requests is no pause
FAR = 10.0  # times the longest announced wait: refusals further apart have no common cause
RAREST_TEST = 2  # windows between two tests of a learned limit; more of windows shorter than a minute
WHOLE = 0.9  # of a learned limit that pass since an opening: then all of it came back at once
PROVEN = 64  # requests that pass: then a limit beside announced ones is no more
MOST_ENTRIES = 512

MARGIN = 0.05  # below the rate found, at first; and growth a second
SURE = 0.003  # the part of both left after many refusals
SURER = 0.4  # factor of both at each refusal
DOUBLES = 1.0  # seconds, or a request, in which the pace doubles until a refusal
HALFWAY = 2.0  # seconds in which its distance from the refused pace halves
CLOSE = 0.98  # of the refused pace
STEADY = 60.0  # seconds, or requests, at a pace until it is tested
SLOWLY = 10.0  # seconds, or requests, in which the pace doubles in a test
KEPT = 0.9  # the part of a rate kept after a lower measurement
DROPS = 4.0  # units that come back before the next try, once a pace was refused
DISPROVED = 4.0  # times the refused pace


def backoff(number: int, longest: float = LONGEST_BACKOFF) -> float:
    """Return the seconds after refusal `number` in a row: 1, 2, 4 ... `longest`."""
    return min(longest, FIRST_BACKOFF * 2.0 ** min(max(number - 1, 0), 16))


class Drip(Struct):
    """Units a second that may leave: between a measured rate and a refused pace.

    What passed between two refusals gives a rate that is never too high, but too low if a small burst was
    full for a part of that time.
    """

    rate: float
    next: float
    low: float
    measured: float
    too_fast: float = inf
    doubt: float = 1.0
    seconds: float = 0.0  # during which the pace grew, few for a request
    steady: float = 0.0  # seconds, or requests, since the last refusal

    @classmethod
    def begin(cls, measured: float, now: float) -> Drip:
        """Return the pace of a measured rate."""
        one = cls(measured, now, measured, measured)
        one.restart(measured)
        return one

    def restart(self, rate: float) -> None:
        """Begin at a rate, and be surer of it each time."""
        self.rate = rate * (1.0 - MARGIN * self.doubt)
        self.doubt = max(SURE, SURER * self.doubt)
        self.seconds = self.steady = 0.0

    def pace(self) -> float:
        """Return the units a second that may leave now."""
        if self.too_fast == inf:
            return self.rate * exp2(min(self.seconds / DOUBLES, 64.0))
        return self._near() * exp2(min(max(0.0, self.steady - STEADY) / SLOWLY, 64.0))

    def _near(self) -> float:
        """Return the pace without the growth of a test.

        It nears the refused pace, then grows slowly.
        """
        most = CLOSE * self.too_fast
        near = most - max(0.0, most - self.rate) * exp2(-self.seconds / HALFWAY)
        return near * exp(MARGIN * self.doubt * self.seconds)

    def send(self, now: float, cost: float) -> None:
        """Record a sent request."""
        seconds = cost / self.pace()
        self.next = max(self.next, now) + seconds
        self.seconds += min(seconds, DOUBLES if self.too_fast == inf else 0.1)
        self.steady += min(seconds, DOUBLES)

    def refused(self, measured: float, units: float) -> None:
        """Record a refusal: `units` passed since the last one, `measured` per second."""
        if self.steady > STEADY and measured <= self.too_fast < inf:  # just the test was too fast
            near = self._near()
            self.too_fast = max(self.too_fast, near / CLOSE)
            self.restart(near)
            return
        # A burst that is never full shows the same rate each time, plus or minus one unit.
        rises = measured > self.measured * (1.0 + 2.0 / units)
        self.too_fast = max(measured, self.pace())
        self.low = max(measured, self.rate if rises else KEPT * self.low)
        self.measured = measured
        self.restart((self.low + self.too_fast) / 2.0)

    def tries_at(self, now: float) -> float:
        """Return when to try again after a refusal that names no wait."""
        drops = inf if self.too_fast == inf else DROPS
        return now + max(1.0 / self.rate, min(FIRST_BACKOFF, drops / self.rate))

    @property
    def disproved(self) -> bool:
        """Whether the pace is so high that there is likely no such limit."""
        return self.pace() > min(DISPROVED * self.too_fast, 1024.0 * self.low)


class Hidden(Struct):
    """Search for a limit that no response announces, and the limit found.

    An `inner` limit, beside announced ones, counts as a drip: a pace keeps a window as well, if not at once.

    Attributes:
        most: requests in flight that are allowed.
        learned: the limit of a window; None until it is known. `drip`: the pace, likewise.
        opened: when the first request since the last opening left; `anchor`: when its response arrived.
        passed: units since then; `count`: requests.
        closed: when the first refusal since the last success arrived; None while requests pass.
        tried: when the last refused request was sent; `tries`: refusals since the last success.
        announced: whether one of them named a wait: then the tries did not find the opening.
        before: units that passed in the opening before; None without one. `window`: seconds from its first
            request to this opening, if tries found it.
        found: whether the last refusal confirmed that a window was used up.
        last_closed: when the refusal before the last opening arrived.
        until_test: windows to use up until the next test; `gap`: the same after a refused test.
        used_at: when the last window was used up.
        testing: the limit that was learned before the test that runs; 0 for no test. It began at `tested_at`.
        busy: seconds since the last refusal in which requests were under way or waited, until `busy_until`.
        longest_wait: the longest announced wait.
        seen: units that passed, each back as soon as it was answered.

    """

    inner: bool = False
    most: float = 1.0
    learned: Policy | None = None
    drip: Drip | None = None
    opened: float = inf
    anchor: float = inf
    passed: float = 0.0
    count: int = 0
    closed: float | None = None
    tried: float = -inf
    tries: int = 0
    announced: bool = False
    before: float | None = None
    window: float | None = None
    found: bool = False
    last_closed: float | None = None
    until_test: int = 1
    gap: int = 1
    testing: float = 0.0
    tested_at: float = -inf
    used_at: float = -inf
    busy: float = 0.0
    busy_until: float = -inf
    longest_wait: float = 0.0
    seen: Ledger = field(default_factory=Ledger)

    # --- permitted requests -----------------------------------------------------------------

    def opens_at(self, now: float, cost: float, in_flight: int, held: float) -> float:
        """Return when a request may leave: `now`, later, or inf if a response decides."""
        if in_flight >= self.most:
            return inf
        if self.drip is not None:
            return max(now, self.drip.next)
        if self.learned is None or self.testing:
            return now
        if self.learned.kind == "window":
            end = self._end(self.learned)
            room = self.learned.limit - self.passed - held
            return now if now >= end or room >= cost - EPSILON else self._held_until(end, now, in_flight)
        if self.learned.backed(now, cost, held):
            return now
        opens = self.learned.opens_at(now, cost, held)
        return inf if opens <= now else self._held_until(opens, now, in_flight)

    def _end(self, learned: Policy) -> float:
        """Return the end of the window that is open."""
        return self.anchor + (learned.window or 0.0) if self.count else -inf

    def _held_until(self, opens: float, now: float, in_flight: int) -> float:
        """Return when a request leaves: one tries, long before a window is over."""
        tries = self.busy_until + self.longest_wait + LONGEST_BACKOFF
        if opens <= tries:
            return opens
        return inf if in_flight and now >= tries else max(now, tries)

    def wait_for(self, now: float, units: float, requests: float, held: float, *, least: bool) -> float:
        """Return the seconds until `units` have left, or the `least`."""
        if self.drip is not None:
            pace = self.drip.too_fast if least else self.drip.pace()
            counted = requests if self.inner else units + held
            return max(0.0, self.drip.next - now) + max(0.0, counted - 1.0) / pace
        if self.learned is None or self.testing:
            return 0.0
        return self.learned.wait_for(now, units, held, least=least, probe=False)

    def surely_at(self, now: float) -> float:
        """Return when tries have likely found the opening: a minute, or twice as long."""
        if (
            self.closed is None
            or self.announced
            or self.drip is not None
            or self._foreseen(self.closed) > now
        ):
            return now
        begun = min(self.anchor, self.closed)
        return max(begun + LONGEST_BACKOFF, now + (now - begun if now - begun > LONGEST_BACKOFF else 0.0))

    def send(self, now: float, cost: float) -> None:
        """Record a sent request."""
        if self.learned is not None and self.learned.kind == "window" and now >= self._end(self.learned):
            self.opened, self.passed, self.count = now, 0.0, 0
        self.opened = min(self.opened, now)
        if self.drip is not None:
            self.drip.send(now, cost)

    # --- refusals ---------------------------------------------------------------------------

    def refused(self, sent: float, now: float, held: float, wait: float | None) -> None:
        """Record a refusal with `held` units in flight, and the `wait` that it named."""
        self.tried = max(self.tried, sent)
        self._occupied(sent, now)
        if self.closed is None:
            self._close(sent, now, held, announced=wait is not None)
        if wait is not None:
            self.longest_wait = max(self.longest_wait, wait)
            self._occupied(now, now + wait)

    def _occupied(self, since: float, until: float) -> None:
        """Record for how long requests were under way or waited, with short gaps."""
        if until > self.busy_until:
            idle = max(0.0, since - self.busy_until)
            self.busy += min(idle, SOON) + until - max(since, self.busy_until)
            self.busy_until = until

    def _close(self, sent: float, now: float, held: float, *, announced: bool) -> None:
        """Record the first refusal after a success."""
        if self.learned is None and self.drip is None and self._is_unrelated(now):
            self.before, self.last_closed = None, None
            self.anchor = max(self.anchor, now - self.busy)
        self.busy, self.busy_until = 0.0, now
        self.closed, self.tries, self.announced, self.found = now, 0, announced, False
        if self.learned is not None and self._refuted(self.learned) and self.last_closed is not None:
            self.learned, self.testing = None, 0.0
            self._measure(now, self.last_closed)
        elif self.learned is not None:
            self._relearn(self.learned, now, held)
        elif self.last_closed is not None and (self.inner or self.drip is not None or self._dripped()):
            self._measure(now, self.last_closed)
        else:
            # More than a window passed: the count is not the limit of a window.
            within = self.window is None or sent <= self.opened + self.window
            self.found = self.drip is None and (self.before or 0.0) >= LEAST and within
            if self.found and self.window is not None:
                self._learn(self.window, now)

    def _is_unrelated(self, now: float) -> bool:
        """Return whether a refusal is too far from the last one to show a limit with it."""
        apart = now - (self.opened if self.last_closed is None else self.last_closed)
        return apart > self.busy + SOON or 0.0 < FAR * self.longest_wait < apart

    def _dripped(self) -> bool:
        """Return whether too few units passed for a window, or it is no usual one."""
        few = self.before is not None and self.passed < max(LEAST, PART * self.before)
        return few or (self.window is not None and self.window < SOON and self.window not in USUAL)

    def _refuted(self, learned: Policy) -> bool:
        """Return whether a short window was no window: much less passed since the opening."""
        return (learned.window or inf) < SOON and not self.testing and self.passed < 0.75 * learned.limit

    def _measure(self, now: float, last: float) -> None:
        """Bracket the rate of a drip."""
        if now <= last or not self.passed:
            return
        measured = self.passed / (now - last)
        if self.drip is None:
            self.drip = Drip.begin(measured, now)
        else:
            self.drip.refused(measured, self.passed)

    def _relearn(self, learned: Policy, now: float, held: float) -> None:
        """Count what passed in the window that a refusal showed to be used up."""
        learned.ledger.collect(now)
        counted = self._used(learned)
        if self.testing:
            grew = counted >= 1.5 * self.testing
            self.gap = 1 if grew else min(2 * self.gap, self._rarest(learned))
            learned.limit = max(1.0, counted if grew else self.testing, min(counted, self.testing + MOST))
        elif learned.kind == "window" and self.passed < WHOLE * learned.limit:
            learned.kind = "log"  # less came back than all of it
        else:
            learned.limit = max(1.0, min(learned.limit, max(learned.limit / 2.0, counted + held)))
        self.testing, self.until_test = 0.0, self.gap

    def tries_at(self, now: float, jitter: float) -> float:
        """Return when to try again after a refusal; `jitter` is random, from 0 to 1."""
        self.tries += 1
        at = self._next_try(now, jitter)
        self._occupied(now, at)
        return at

    def _next_try(self, now: float, jitter: float) -> float:
        if self.tries == 1 and (at := self._foreseen(now)) > now:
            return min(at, now + self.longest_wait + LONGEST_BACKOFF)
        elapsed = 0.0 if self.closed is None else now - self.closed
        longest = backoff(self.tries, min(max(OFTEN, elapsed / 4.0), max(LONGEST_BACKOFF, elapsed / 8.0)))
        # A window that others used up ends at most one window after the first request in it.
        begun = self.anchor if self.closed is None else min(self.anchor, self.closed)
        for window in USUAL:
            if now + longest / 8.0 <= begun + window <= now + longest:
                return begun + window
        return now + longest * (1.0 - 0.25 * jitter)

    def _foreseen(self, now: float) -> float:
        """Return when the limit learned so far opens, by the first response of its window."""
        if self.learned is not None:
            return (
                self._end(self.learned)
                if self.learned.kind == "window"
                else self.learned.opens_at(now, 1.0, 0.0)
            )
        if self.drip is not None:
            return self.drip.tries_at(now)
        return self.anchor + self.window if self.found and self.window else -inf

    # --- successes --------------------------------------------------------------------------

    def succeeded(self, sent: float, now: float, cost: float, held: float, *, answered: bool = True) -> None:
        """Record a request that was not refused.

        `answered` is false if it may not have met a limit.
        """
        self._occupied(sent, now)
        if self.closed is not None and sent > self.closed:
            self._open(sent, self.closed)
        if not self.count:
            self.anchor = now
        self.passed += cost
        self.count += 1
        if self.learned is not None:
            self.learned.spend(sent, now, cost)
            self._check(self.learned, now)
            self._test(self.learned, now, held)
        elif self.drip is None:
            self._note(sent, now, cost)
        if (answered or self.most < SILENT) and not (self.testing and sent < self.tested_at):
            self._grow(now - sent)

    def _check(self, learned: Policy, now: float) -> None:
        """Learn a window, once more has passed than a sliding log can allow."""
        learned.ledger.collect(now)
        known = self.testing or learned.limit
        more = learned.ledger.outstanding >= known + max(LEAST, (1.0 - WHOLE) * known)
        if learned.kind == "log" and more and self.passed <= known + LEAST:
            learned.kind = "window"
        counted = self._used(learned)
        if self.closed is not None:  # it passed beside refused ones
            learned.limit = max(learned.limit, counted)

    def _test(self, learned: Policy, now: float, held: float) -> None:
        """Begin a test once enough windows were used up."""
        if learned.kind == "window":
            left = learned.limit - self.passed - held >= 1.0
        else:
            left = learned.backed(now, 1.0, held)
        if self.testing or left or now < self.used_at + WHOLE * (learned.window or 0.0):
            return
        self.used_at, self.until_test = now, self.until_test - 1
        if self.until_test <= 0:
            self.testing, self.tested_at, self.most = learned.limit, now, 1.0

    def _note(self, sent: float, now: float, cost: float) -> None:
        seen = self.seen
        seen.add(sent, now, SOON, cost)
        if len(seen.sent) > MOST_ENTRIES:
            seen.sent, seen.back, seen.totals = seen.sent[::2], seen.back[1::2], seen.totals[1::2]

    def _rarest(self, learned: Policy) -> int:
        """Return the number of windows between two tests at most."""
        return max(RAREST_TEST, int(LONGEST_BACKOFF / (learned.window or LONGEST_BACKOFF)))

    def _used(self, learned: Policy) -> float:
        """Return the units that count against a learned limit."""
        return self.passed if learned.kind == "window" else learned.ledger.outstanding

    def _is_near(self, learned: Policy) -> bool:
        """Return whether a test is close to the limit that was learned before it."""
        return self.testing - MOST <= self._used(learned) < self.testing + LEAST

    def _grow(self, trip: float) -> None:
        """Allow more requests in flight."""
        if self.drip is not None:
            # Two requests more than its pace needs show how fast it drips.
            self.most = NEAR + self.drip.pace() * trip
        elif self.testing and self.learned is not None and self._is_near(self.learned):
            self.most = NEAR
        elif self.learned is not None or self.before is None or self.passed < self.before - MOST:
            self.most = min(self.most + 1.0, MOST)
        else:
            # Close to the last refusal: the service would refuse most requests beyond that.
            self.most = max(NEAR, min(MOST, self.passed - self.before))

    def _open(self, sent: float, closed: float) -> None:
        """Begin to count anew with the first request that passes after refusals."""
        longer = self.tried - self.opened
        window = self._usual(longer, sent - self.opened)
        if self.found and self.window is not None and longer < self.window < window:
            window = self.window  # from the opening before; no try since shows a longer one
        if self.found and self.learned is None:
            self._learn(window, closed)
        elif self.found and self.learned is not None and longer >= (self.learned.window or 0.0):
            self.learned.ledger.move_by(window - (self.learned.window or 0.0))
            self.learned.window = window
        elif self.drip is not None and not self.inner and sent - closed > SOON:
            # A drip has no wait as long as this: begin again.
            self.drip = None
        elif self.drip is not None:
            self.drip.next = sent + 1.0 / self.drip.rate
        self.most = 1.0
        self.before, self.window = self.passed, None if self.announced else window
        self.closed, self.opened, self.found, self.last_closed = None, sent, False, closed
        self.passed, self.count = 0.0, 0

    def _learn(self, window: float, closed: float) -> None:
        """Keep a window from now on; it was used up when it closed."""
        in_window = self.seen.outstanding - self.seen.sent_by(closed - window)
        self.learned = Policy(max(1.0, self.passed, in_window), window, ledger=self.seen)
        self.seen.move_by(window - SOON)
        self.seen, self.drip = Ledger(), None
        self.gap = self.until_test = 1

    def _usual(self, longer: float, at_most: float) -> float:
        """Return the usual window between both bounds, else the upper one."""
        return max((one for one in USUAL if longer < one <= at_most + 0.05), default=at_most)

    @property
    def disproved(self) -> bool:
        """Whether the successes since the last refusal disprove a limit."""
        return self.count >= PROVEN if self.drip is None else self.drip.disproved
