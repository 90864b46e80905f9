"""Rate-limit policy: units left of it, and the time when spent units come back."""

from __future__ import annotations

from math import ceil, floor, inf

from attrs import define, field

from chainapi.core.limits.balance import DEFAULT_WINDOW, Balance
from chainapi.core.limits.ledger import EPSILON
from chainapi.core.limits.memory import PolicyPart
from chainapi.core.limits.reset import ROUNDED, Reset
from chainapi.core.limits.returns import FAR, Returns

__all__ = ["Policy"]

PATIENCE = 0.02  # of a window: the probe waits this long at most for a unit to drip in
LARGEST_RESERVE = 0.01  # of the limit
DOUBTFUL = 2.0  # times the proven window: the most by which refusals that others may have caused lengthen it
ESTIMATE = 0.8  # of the announced time of a drip: the least, because responses round and trips differ


@define(eq=False, repr=False)
class Policy:
    """Policy: its balance, and predictions of the return of units.

    Attributes:
        named: whether responses named it; a limit that only the user set is kept by counting alone.
        sized: whether a response announced the limit; else it is the highest reported remainder.
        only_on_refusal: whether only refusals named it.
        guessed: whether no response named the window.
        requests: whether it counts requests, whatever they cost in units.
        reset: the announced time when all units are back.
        returns: the kind of return of spent units.

    """

    balance: Balance
    named: bool = False
    sized: bool = True
    only_on_refusal: bool = False
    guessed: bool = field(init=False)
    requests: bool = field(default=False, kw_only=True)
    reset: Reset = field(factory=Reset, init=False)
    returns: Returns = field(factory=Returns)
    _proven: float = field(default=0.0, init=False)  # a guessed window that an announced time showed

    def __attrs_post_init__(self) -> None:
        self.guessed = self.balance.window is None

    @property
    def limit(self) -> float:
        """Return the units of a window."""
        return self.balance.limit

    @property
    def window(self) -> float | None:
        """Return the window in seconds; None if unknown."""
        return self.balance.window

    # --- predictions ------------------------------------------------------------------------

    def counted(self, cost: float) -> float:
        """Return what it counts of a request of `cost` units."""
        return float(cost > 0.0) if self.requests else cost

    def opens_at(self, now: float, cost: float, held: float) -> float:
        """Return the predicted time of `cost` units besides the `held`; inf if unknown."""
        balance = self.balance
        return self._back_at(now, min(cost, balance.limit) + held + balance.reserve - balance.remaining)

    def _back_at(self, now: float, missing: float) -> float:
        """Return the predicted time of `missing` units besides those that remain."""
        back = self.returns.kind.back_at(self.balance, missing)
        return max(now, back if self.returns.kind.drips else min(back, self._reset()))

    def _reset(self) -> float:
        """Return the announced end of the window; inf if unknown."""
        return self.reset.after(self.balance.recorded_at)

    def left_at(self, now: float) -> float:
        """Return the units left at a time: as reported, and predicted to be back.

        Units of requests in flight count as left. Without a known window or reset, no units come back.
        """
        balance = self.balance
        balance.collect(now)
        back = balance.returned
        if balance.reported:
            kind = self.returns.kind
            if self._reset() <= now and not kind.drips and (self.reset.announced or not kind.default):
                back = balance.limit
            elif balance.window:
                back = kind.back_by(balance, now)
        return max(0.0, min(balance.limit, balance.remaining + back))

    def probes_at(self, opens: float) -> float:
        """Return when a probe shows more than a wait until `opens`; inf for never."""
        balance, window = self.balance, self.balance.window
        if self.returns.probed or not self.named or self.returns.kind.drips or self._reset() < inf:
            return inf
        known_at = max(
            balance.recorded_at, balance.spent.last_back - window if balance.spent and window else -inf
        )
        if not window:
            return known_at
        if opens - known_at <= FAR * window:
            return inf
        if not balance.reported:
            return known_at
        return known_at + min(2.0 * window / balance.limit, PATIENCE * window)

    def wait_for(
        self, now: float, units: float, held: float = 0.0, *, least: bool = False, probe: bool = True
    ) -> float:
        """Return the seconds until `units` besides held and spent ones have passed.

        The `least` assumes the announced pace if units drip, or if a `probe` may still show that they do;
        and it assumes that the reported remainder already excludes the requests in flight.
        """
        balance, window = self.balance, self.balance.window
        if least and balance.reported:
            held = -self._unaccounted()
        missing = units - balance.room(held) if balance.proven else units + held
        if missing <= EPSILON:
            return 0.0
        drips = self.returns.kind.drips
        whole = 0.0 if drips else max(0.0, ceil(missing / balance.limit - EPSILON) - 1)
        back = missing if drips else missing - whole * balance.limit + balance.returned
        opens = self._back_at(now, back) if drips or balance.proven else now
        seconds = max(0.0, opens - now) + whole * (window or DEFAULT_WINDOW)
        if least and window and balance.reported and (drips or (probe and not self._settled())):
            dripped = balance.recorded_at + (missing - 1.0) * window / balance.limit - now
            return min(seconds, max(0.0, ESTIMATE * dripped))
        # The response to a probe may have the time, but rounded up to whole seconds.
        return seconds if least or not probe or self._reset() < inf or self._settled() else seconds + 1.0

    def _unaccounted(self) -> float:
        """Return the units neither left nor in the ledger: their return is unknown."""
        balance = self.balance
        if self._reset() < inf or not self.returns.kind.default:
            return 0.0
        return max(0.0, balance.limit - balance.remaining - balance.spent.outstanding)

    def _settled(self) -> bool:
        """Return whether the kind of return is known.

        A response after a pause shows it, or a reset that does not move.
        """
        dripped = self.balance.drip(1.0) * 2.0 * ROUNDED
        return self.returns.known or self.reset.stays(self.balance.remaining, dripped)

    # --- responses --------------------------------------------------------------------------

    def name_window(self, now: float, limit: float, window: float | None) -> None:
        """Record limit and window from a list of policies that arrived at `now`."""
        if not self.sized:
            self.balance.limit, self.sized = limit, True
        if window is not None:
            if self.guessed:
                self.balance.spent.hasten(now + window)
            self.balance.window, self.guessed = window, False

    def spend(self, sent: float, now: float, cost: float, *, counted: bool = False) -> None:
        """Record a request whose response does not name this policy.

        `counted` if the service has surely counted the request.
        """
        self.balance.spend(sent, now, cost, counted=counted and not self.returns.kind.drips)

    def record(
        self, sent: float, now: float, remaining: float, cost: float, *, classify: bool, priced: bool = True
    ) -> None:
        """Record the remainder of a response to a request of `cost` units; 0 if refused.

        `classify` if it shows how units come back; `priced` if responses showed the cost.
        """
        balance = self.balance
        low = balance.remainders.add(sent, now, remaining)
        if not self.sized and low + cost > balance.limit:
            balance.limit = low + cost
        if classify and not balance.stale:
            self.returns.classify(balance, sent, now, low + cost, priced=priced)
        if balance.record(sent, now, low, cost):
            self.reset.clear()

    def record_reset(self, now: float, seconds: float) -> None:
        """Record the announced seconds until all units are back, from a success."""
        balance = self.balance
        if self.guessed and max(seconds, 1.0) > (balance.window or 0.0):
            balance.window = self._proven = max(seconds, 1.0)
            balance.spent.postpone(now, balance.window)
        self.reset.announce(now + seconds, balance.remaining)

    def refused(self, now: float, stop: float, cost: float, *, backed: bool) -> None:
        """Learn from a refusal of `cost` units with a wait until `stop`.

        `backed` if enough units seemed to be left.
        """
        balance = self.balance
        self.reset.refused(stop)
        if balance.opened is not None and self.guessed:
            self._guess_window(now, stop, balance.opened)
        balance.opened = None
        self.returns.refused(balance, now, stop, cost, backed=backed)
        if backed:
            balance.reserve = min(balance.reserve + 1.0, floor(LARGEST_RESERVE * balance.limit))

    def _guess_window(self, now: float, stop: float, opened: float) -> None:
        """Guess a window that opened at a time by a refusal with a wait until `stop`.

        A wait longer than the last guess shows that it was too short. Else others may have spent the units.
        """
        window, found = self.balance.window or 0.0, stop - opened
        if stop - now > window:
            self._proven = found
        self.balance.window = max(window, min(found, DOUBTFUL * self._proven)) or None

    def restart(self) -> None:
        """Restart the count after a wait if no response reports the units back."""
        self.balance.restart()
        self.reset.clear()

    # --- memory -----------------------------------------------------------------------------

    def memory(self, then: float, entries: int) -> PolicyPart:
        """Return the state for a memory; the ledger has `entries` at most."""
        return PolicyPart(
            self.balance.memory(then, entries),
            self.named,
            self.sized,
            self.only_on_refusal,
            self.guessed,
            self.requests,
            self.reset.memory(then),
            self.returns.memory(then),
        )

    @classmethod
    def restored(cls, part: PolicyPart, then: float, now: float, *, idle: bool) -> Policy:
        """Return a policy from a memory; see `Balance.restore`."""
        one = cls(Balance(part.balance.limit, part.balance.window), part.named, part.sized)
        one.only_on_refusal, one.guessed, one.requests = part.only_on_refusal, part.guessed, part.requests
        one.balance.restore(part.balance, then, now, idle=idle)
        one.reset.restore(part.reset, then)
        one.returns.restore(part.returns, then)
        one._proven = one.window or 0.0
        return one
