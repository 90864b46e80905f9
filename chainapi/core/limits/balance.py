"""Balance of a limit: units left, by reports of responses and by counting."""

from __future__ import annotations

from math import inf

from attrs import define, field

from chainapi.core.limits.ledger import EPSILON, Ledger
from chainapi.core.limits.memory import MOST_LOWS, BalancePart, amount, moment, relative, seconds, units
from chainapi.core.limits.remainders import Remainders, SilentCosts

__all__ = ["DEFAULT_WINDOW", "Balance"]

DEFAULT_WINDOW = 60.0  # seconds, if no better value is known
RECENT = 1.0  # seconds before a memory: requests sent since then show how many followed


@define(eq=False, repr=False)
class Balance:
    """Balance of `limit` units in `window` seconds; the window is None if unknown.

    Attributes:
        reported: whether responses report what remains; else the ledger alone counts.
        proven: whether a response reported it after the last opening; else few requests leave at first.
        remaining: units left at `recorded_at`, less those spent since; `returned`: units back since then.
        recorded_at: when the last response arrived that reported what remains.
        highest: highest remainder that was reported.
        reserve: units that stay unused, because requests for the last ones were refused.
        opened: when the first request since the last return of units was sent, as far as responses show it.
        spent: ledger of the spent units.
        remainders: those that responses reported; `silent`: costs of responses without one.
        stale: whether units may have been spent that it lacks, since a memory was made.

    """

    limit: float
    window: float | None = None
    reported: bool = False
    proven: bool = field(default=True, init=False)
    remaining: float = field(init=False)
    returned: float = field(default=0.0, init=False)
    recorded_at: float = field(default=-inf, init=False)
    highest: float = field(default=0.0, init=False)
    reserve: float = field(default=0.0, init=False)
    opened: float | None = field(default=None, init=False)
    spent: Ledger = field(factory=Ledger, init=False)
    stale: bool = field(default=False, init=False)
    remainders: Remainders = field(factory=Remainders, init=False)
    silent: SilentCosts = field(factory=SilentCosts, init=False)
    _counted: float = field(default=inf, init=False)  # units left by counting alone
    _silent_at: float = field(default=-inf, init=False)  # time of the last response without the remainder
    _sent: float = field(default=-inf, init=False)  # when the last request was sent whose response had it

    def __attrs_post_init__(self) -> None:
        self.remaining = self.limit

    # --- units left -------------------------------------------------------------------------

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

    def drip(self, seconds: float) -> float:
        """Return the units that come back within `seconds` if they drip."""
        return self.limit / self.window * seconds if self.window else 0.0

    @property
    def sure(self) -> bool:
        """Return whether a response reported `remaining`, and no later one omitted it."""
        return self.reported and self._sent >= self._silent_at

    # --- spent and returned units -----------------------------------------------------------

    def collect(self, now: float) -> None:
        """Count the units that came back by `now`."""
        self.returned += self.spent.collect(now)

    def spend(self, sent: float, now: float, cost: float, *, counted: bool = False) -> None:
        """Record a request whose response does not report what remains.

        `counted` if the service has surely counted the request.
        """
        if self._shows_return(sent, cost):
            self.opened = None
        self._counted -= cost
        self._silent_at = now
        self._note(sent, now, cost)
        left = self.remaining - cost
        if self.reported:
            self.silent.add(now, cost)
            if counted:
                # The reported remainder may include this request, but no more units are left than counted.
                left = min(self.remaining, max(left, self._counted))
        self.remaining = left

    def doubt(self, sent: float, cost: float) -> None:
        """Record a request that the service may or may not have counted."""
        if self._shows_return(sent, cost):
            self.opened = sent  # it may have opened a window
        self._counted -= cost

    def _shows_return(self, sent: float, cost: float) -> bool:
        """Return whether units came back before a request without a rise.

        Too few were left before it, or no response arrived for a window.
        """
        last = max(self.recorded_at, self._silent_at)
        if sent < last:
            return False  # then others in flight had the units
        return self.remaining < cost - EPSILON or sent > last + (self.window or DEFAULT_WINDOW)

    def record(self, sent: float, now: float, low: float, cost: float) -> bool:
        """Record the lowest remainder reported since a request of `cost` units was sent.

        Return whether units came back since the last one.
        """
        spent, window = self.spent, self.window
        # The response includes the units that may be back.
        self._counted += self.returned - cost + spent.forget(now - (window or 0.0))
        if sent > self._sent:
            self._sent = sent
        if sent < self._silent_at and self.reported:
            # The service may have counted requests of silent responses after it reported the remainder.
            low = min(low, max(self._counted, low - self.silent.since(sent)))
        self._counted = low
        rises = low > self.remaining
        if rises or (cost and self._shows_return(sent, cost)):
            self.opened = None
        self.reported = self.proven = True
        self.remaining, self.returned, self.recorded_at = low, 0.0, now
        if low > self.highest:
            self.highest = low
        if cost:
            self._note(sent, now, cost)
        spent.shrink(self.limit - low)
        if self.stale:
            self._catch_up(now)
        return rises

    def _catch_up(self, now: float) -> None:
        """Record the units spent since the memory: the response shows their number."""
        self.stale = False
        missing = self.limit - self.remaining - self.spent.outstanding
        if self.window and missing > EPSILON:
            self.spent.add(now, now, self.window, missing)

    def _note(self, sent: float, now: float, cost: float) -> None:
        if self.opened is None:
            self.opened = sent
        if self.window:
            self.spent.add(sent, now, self.window, cost)

    def exhaust(self, now: float) -> None:
        """Record all units as spent now: those back by the ledger were not back."""
        self.remaining, self.returned = 0.0, 0.0
        self.spent.clear()
        if self.window:
            self.spent.add(now, now, self.window, self.limit)

    def restart(self) -> None:
        """Restart the count after a wait if no response reports the units back."""
        self.remaining, self.returned, self.proven = self.limit, 0.0, False
        self._counted = self.limit
        self.spent.clear()

    # --- memory -----------------------------------------------------------------------------

    def memory(self, then: float, entries: int) -> BalancePart:
        """Return the state for a memory; the ledger has `entries` at most."""
        return BalancePart(
            amount(self.limit),
            None if self.window is None else amount(self.window),
            self.reported,
            self.proven,
            units(min(self.remaining, self.limit)),
            amount(self.returned),
            seconds(then, self.recorded_at),
            amount(self.highest),
            amount(self.reserve),
            None if self.opened is None else seconds(then, self.opened),
            None if self._counted == inf else units(self._counted),
            seconds(then, self._silent_at),
            seconds(then, self._sent),
            [
                (relative(then, sent), relative(then, back), amount(cost))
                for sent, back, cost in self.spent.entries(entries)
            ],
            [(relative(then, at), low) for at, low in self.remainders.lows[-MOST_LOWS:]],
        )

    def restore(self, part: BalancePart, then: float, now: float, *, idle: bool) -> None:
        """Continue from a memory; `idle` if no request has been sent since then.

        Without reports, the units count as spent that were likely spent until now.
        """
        self.reported, self.proven = part.reported, part.proven
        self.remaining, self.returned = part.remaining, part.returned
        self.recorded_at = moment(then, part.recorded_at, -inf)
        self.highest, self.reserve = part.highest, part.reserve
        self.opened = None if part.opened is None else then + part.opened
        self._counted = inf if part.counted is None else part.counted
        self._silent_at = moment(then, part.silent_at, -inf)
        if self.reported and self._silent_at > -inf:
            self.silent.add(self._silent_at, self.limit)  # a memory lacks the costs
        self._sent = moment(then, part.sent, -inf)
        self.spent.restore([(then + sent, then + back, cost) for sent, back, cost in part.spent])
        self.remainders.lows = [(then + at, low) for at, low in part.lows]
        self.stale = self.reported and not idle
        if not self.reported and not idle and now > then:
            recent = self.spent.outstanding - self.spent.sent_by(then - RECENT)
            self.spend(then, now, recent * min(1.0, (now - then) / RECENT))
