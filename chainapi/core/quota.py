"""One quota of the service: what its answers say, and what may be sent because of it.

Pure arithmetic: times are seconds on any monotonic clock and come in as arguments, like the jitter. The
rules, in the order in which they are asked:

1. A refusal stops everybody until its wait ends; the end only ever moves later.
2. The first request, and the first after every pause, flies alone: the canary.
3. What an answer says remains, less what is in flight, may go at once.
4. What is predicted to have come back since may go too, few at first and more with every success.
5. Used up, with nothing in flight and a long wait ahead: one request asks when the quota comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf

from attrs import Attribute, define, field, frozen

from chainapi.core.allowance import Allowance, Kind
from chainapi.core.costs import Costs
from chainapi.core.headers import LimitNews
from chainapi.core.hidden import Hidden
from chainapi.errors import ConfigurationError

__all__ = ["Flight", "Limit", "Quota", "QuotaSnapshot"]

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 60.0
MOST_POLICIES = 8


def _above_zero(_: object, attribute: Attribute[float], value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < inf:  # type: ignore[operator]
        raise ConfigurationError(f"Limit {attribute.name}={value!r} must be a finite number above 0")


@frozen
class Limit:
    """`amount` units (requests, where a service does not weigh them) in any `per` seconds, 60 by default.

    Raises:
        ConfigurationError: one of them is no finite number above 0.

    """

    amount: float = field(validator=_above_zero)
    per: float = field(default=60.0, validator=_above_zero)


@frozen
class QuotaSnapshot:
    """The quota as it is known at `time`; times are seconds on the event loop's clock, amounts units."""

    time: float
    limit: float | None = None
    remaining: float | None = None
    window: float | None = None
    stopped_until: float | None = None
    reset_at: float | None = None
    costs: Mapping[str, float] = field(factory=dict[str, float])
    waiting: int = 0
    in_flight: int = 0

    @property
    def stopped_for(self) -> float:
        """Seconds until requests may leave again after a refusal; 0 when nothing is stopped."""
        return max(0.0, self.stopped_until - self.time) if self.stopped_until is not None else 0.0

    @property
    def reset_in(self) -> float | None:
        """Seconds until quota is predicted to come back; None when that is not known."""
        return max(0.0, self.reset_at - self.time) if self.reset_at is not None else None


@define(eq=False, repr=False)
class Flight:
    """One request that was granted: `sent` at this time, for `cost` units."""

    route: str
    cost: float
    sent: float
    stops: int
    canary: bool
    guess: bool


@define(eq=False, repr=False)
class Quota:
    """Ask `opens_at`; when it says now, `send`; then say how the flight ended."""

    max_in_flight: int = 100
    limits: Sequence[Limit] = ()
    ask: bool = True
    in_flight: int = 0
    stopped_until: float = -inf
    costs: Costs = field(factory=Costs, init=False)
    _allowances: list[Allowance] = field(factory=list[Allowance], init=False)
    _told: Allowance | None = field(default=None, init=False)
    _said: object = field(default=None, init=False)  # limit and policies that the last answer named
    _hidden: Hidden | None = field(factory=Hidden, init=False)
    _held: float = field(default=0.0, init=False)
    _flights: dict[Flight, None] = field(factory=dict[Flight, None], init=False)
    _lost: deque[tuple[float, float]] = field(factory=deque[tuple[float, float]], init=False)
    _lost_units: float = field(default=0.0, init=False)
    _stops: int = field(default=0, init=False)
    _refusals: int = field(default=0, init=False)
    _canary_due: bool = field(default=True, init=False)
    _canary: Flight | None = field(default=None, init=False)
    _guesses: int = field(default=0, init=False)
    _most_guesses: int = field(default=1, init=False)
    _guessing: bool = field(default=False, init=False)
    _asking: Allowance | None = field(default=None, init=False)
    _trip: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._allowances = [Allowance(one.amount, one.per) for one in self.limits]
        if self.limits and self._hidden is not None:
            self._hidden.most = inf

    # --- what may be sent -----------------------------------------------------------------

    def opens_at(self, now: float, cost: float) -> float:
        """Return from when a request may leave: `now`, a later time, or inf when an answer decides."""
        if self.in_flight >= self.max_in_flight or self._canary is not None:
            return inf
        if now < self.stopped_until:
            return self.stopped_until
        self._guessing, self._asking = False, None
        opens = now
        if self._hidden is not None and not self._canary_due:
            opens = self._hidden.opens_at(now, self.in_flight)
        scarce: Allowance | None = None
        for one in self._allowances:
            if one.named and self._canary_due:
                continue
            one.collect(now)
            held = self._held + self._lost_units if one.named else self._held
            if one.backed(cost, held):
                continue
            at = one.opens_at(now, cost, held)
            if at <= now and not one.named:
                # A limit that is kept by counting is no guess: an answer has to come first.
                at = inf
            if at >= opens:
                opens, scarce = at, one
        if scarce is None or opens == inf:
            return opens
        return self._guess_at(now, opens, scarce)

    def _guess_at(self, now: float, opens: float, scarce: Allowance) -> float:
        """Return when a request may leave that no answer covers."""
        if opens > now:
            if self.in_flight:
                return opens
            self._most_guesses = 1
            if not self.ask:
                return opens
            asks = scarce.asks_at(opens)
            if asks > now:
                return min(opens, asks)
            self._asking = scarce
        if self.in_flight and (self._guesses >= self._most_guesses or not self.ask):
            return inf
        self._guessing = True
        return now

    def room(self, now: float) -> float:
        """Return the units that may go before a dearer request that has to wait for more.

        None in a pause; and none where units drip, for there they are not lost but only delay it.
        """
        if self.opens_at(now, 0.0) > now or self._canary_due or self._guessing:
            return 0.0
        if any(one.kind is Kind.DRIP for one in self._allowances):
            return 0.0
        held = self._held + self._lost_units
        return min((one.room(held) for one in self._allowances), default=inf)

    def send(self, now: float, route: str, cost: float) -> Flight:
        """Count one request out, for which `opens_at` or `room` has just said that it may go."""
        guess = self._guessing
        canary = self._canary_due or (guess and not self.in_flight and self._most_guesses == 1)
        flight = Flight(route, cost, now, self._stops, canary, guess)
        if canary:
            self._canary, self._canary_due = flight, False
        if guess:
            self._guesses += 1
            if self._asking is not None:
                self._asking.asked = True
        if self._hidden is not None:
            self._hidden.send(now, cost)
        self.in_flight += 1
        self._held += cost
        self._flights[flight] = None
        return flight

    def holds(self, flight: Flight, now: float) -> bool:
        """Tell whether a request that was granted a moment ago may still leave."""
        return flight.stops == self._stops and now >= self.stopped_until

    # --- how it ended -----------------------------------------------------------------------

    def unsent(self, flight: Flight) -> None:
        """Take back a grant that was not used."""
        self._land(flight)
        self._canary_due = self._canary_due or flight.canary

    def lost(self, flight: Flight, now: float) -> None:
        """Note that no answer will come: the service may have counted the request."""
        self._land(flight)
        self._canary_due = self._canary_due or flight.canary
        for one in self._allowances:
            if not one.told:
                one.spend(flight.sent, now, flight.cost)
        self._lost.append((now, flight.cost))
        self._lost_units += flight.cost

    def answered(self, flight: Flight, now: float, status: int, news: LimitNews, jitter: float) -> None:
        """Take in an answer; `jitter` is a random number from 0 to 1."""
        self._land(flight)
        tells = news.limit is not None or news.remaining is not None or news.retry_after is not None
        if status >= 500 and not tells:
            # It never met the limiter, or the limiter would have added its fields.
            self._canary_due = self._canary_due or flight.canary
            return
        trip = now - flight.sent
        self._trip += 0.1 * (trip - self._trip) if self._trip else trip
        refused = status == 429
        told = self._read(news, refused=refused)
        if refused:
            self._refused(flight, now, news, told, jitter)
        else:
            self._refusals = 0
            if flight.guess:
                self._most_guesses += 1
        self._account(flight, now, news, told, refused=refused)

    def _account(
        self, flight: Flight, now: float, news: LimitNews, told: Allowance | None, *, refused: bool
    ) -> None:
        """Book what the request cost, and what the answer says remains."""
        for one in self._allowances:
            if one is told and news.remaining is not None and not (refused and one.only_on_refusal):
                self._believe(one, flight, now, news, news.remaining, refused=refused)
            elif not refused:
                if flight.canary and one.named and not one.backed(flight.cost, 0.0):
                    # Counting said that nothing was left, and yet it passed: a new window has begun.
                    one.restart()
                one.spend(flight.sent, now, flight.cost)
            elif one is told and one.only_on_refusal:
                one.restart()
        if self._hidden is not None and not refused:
            learned = self._hidden.passed(flight.sent, now, flight.cost)
            if learned is not None:
                self._learn(learned)
        while self._lost and self._lost[0][0] <= flight.sent:
            self._lost_units -= self._lost.popleft()[1]

    def _believe(
        self,
        one: Allowance,
        flight: Flight,
        now: float,
        news: LimitNews,
        remaining: float,
        *,
        refused: bool,
    ) -> None:
        cost = 0.0 if refused else flight.cost
        one.believe(flight.sent, now, remaining, cost, judge=flight.canary and not refused)
        one.reset_at = now + news.reset if news.reset is not None and not refused else inf
        one.prune(next(iter(self._flights)).sent if self._flights else now)
        if not refused:
            self.costs.sample(one, flight.route, remaining, flight.sent, now, fresh=flight.canary)

    def _land(self, flight: Flight) -> None:
        del self._flights[flight]
        self.in_flight -= 1
        # Back to exactly zero, or rounding errors would add up over the years.
        self._held = self._held - flight.cost if self.in_flight else 0.0
        if flight.guess:
            self._guesses -= 1
        if self._canary is flight:
            self._canary = None

    def _refused(
        self, flight: Flight, now: float, news: LimitNews, told: Allowance | None, jitter: float
    ) -> None:
        wait = news.retry_after if news.retry_after is not None else news.reset
        if self._hidden is not None:
            self._hidden.refused(now)
        if flight.canary:
            self._refusals += 1
        backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(max(self._refusals - 1, 0), 16))
        if wait is not None:
            stop = now + (wait if self._refusals < 2 else max(wait, jitter * backoff))
        elif self._hidden is not None:
            at = self._hidden.tries_at(now, self._known_opening(now, flight.cost))
            stop = at + 0.05 * jitter * (at - now)
        else:
            stop = now + jitter * backoff
        self.stopped_until = max(self.stopped_until, stop)
        self._stops += 1
        self._canary_due = True
        self._most_guesses = 1
        if told is not None:
            backed = not flight.guess and not flight.canary
            told.refused(now, self.stopped_until, flight.cost, backed=backed)

    def _known_opening(self, now: float, cost: float) -> float:
        """Return when the limits that count alone would admit `cost` units; inf when there are none."""
        if not self._allowances:
            return inf
        return max(one.opens_at(now, cost, 0.0) for one in self._allowances)

    # --- policies ---------------------------------------------------------------------------

    def _read(self, news: LimitNews, *, refused: bool) -> Allowance | None:
        """Follow the policies that an answer names; return the one that its numbers are about."""
        if news.limit is None and not news.policies and news.remaining is None:
            return self._told if refused else None
        said = (news.limit, news.policies)
        if said == self._said and not refused:
            return self._told
        self._said = None if refused else said
        named: list[tuple[float, float | None]] = [
            (policy.quota, policy.window or None) for policy in news.policies if policy.quota > 0
        ]
        if not named and news.limit:
            named = [(news.limit, None)]
        if self._told is not None and len(named) == 1 == len(self._allowances):
            quota, window = named[0]
            if self._told.limit == quota and window in (None, self._told.window):
                return self._told
        return self._follow(named, news, refused=refused)

    def _follow(
        self, named: list[tuple[float, float | None]], news: LimitNews, *, refused: bool
    ) -> Allowance | None:
        keep = [one for one in self._allowances if not one.named or one.only_on_refusal]
        current = []
        for quota, window in named:
            one = self._known(quota, window)
            if one is None:
                one = Allowance(quota, window, named=True, only_on_refusal=refused and bool(self._allowances))
            elif not refused:
                one.only_on_refusal = False
            current.append(one)
        if refused:
            keep = [one for one in self._allowances if all(one.window != new.window for new in current)]
        self._allowances = [*current, *(one for one in keep if one not in current)][:MOST_POLICIES]
        if current:
            self._hidden = None
            self.costs.roof = min(one.limit for one in current)
        matching = [one for one in current if one.limit == news.limit]
        self._told = matching[0] if matching else current[0] if current else None
        return self._told

    def _learn(self, learned: Allowance) -> None:
        """Keep a limit that was found out, in place of others of about its window."""
        near = (learned.window or 0.0) / 2.0
        given = len(self.limits)
        keep = [one for one in self._allowances[given:] if (one.window or 0.0) < near]
        self._allowances = [*self._allowances[:given], *keep, learned]

    def _known(self, quota: float, window: float | None) -> Allowance | None:
        for one in self._allowances:
            if one.named and one.limit == quota and (window is None or one.window == window):
                return one
        return None

    # --- for people -------------------------------------------------------------------------

    def forecast(self, now: float, cost: float, units_ahead: float, ahead: int) -> float:
        """Return the seconds until a request of `cost` leaves that has `ahead` others before it."""
        stop = max(now, self.stopped_until)
        units = units_ahead + cost + self._held + self._lost_units
        wait = stop - now
        for one in self._allowances:
            one.collect(now)
            wait = max(wait, one.wait_for(now, units, stop))
        turns = (ahead + self.in_flight) // self.max_in_flight
        return max(wait, turns * self._trip)

    def snapshot(self, now: float, waiting: int) -> QuotaSnapshot:
        """Return what is known, to be read by people."""
        told = self._told
        stopped = self.stopped_until if self.stopped_until > now else None
        reset = stopped
        if told is not None and stopped is None and not told.backed(1.0, self._held):
            opens = told.opens_at(now, 1.0, self._held)
            reset = opens if opens < inf else None
        return QuotaSnapshot(
            time=now,
            limit=told.limit if told else None,
            remaining=told.remaining if told else None,
            window=told.window if told else None,
            stopped_until=stopped,
            reset_at=reset,
            costs=dict(self.costs.learned),
            waiting=waiting,
            in_flight=self.in_flight,
        )
