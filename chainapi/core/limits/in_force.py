"""Limits in force: set by the user, announced, and discovered."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from attrs import define, field

from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi._limits.view import Limit, whole
from chainapi.core.limits.balance import Balance
from chainapi.core.limits.costs import Costs
from chainapi.core.limits.discovery import Discovery
from chainapi.core.limits.in_flight import InFlight
from chainapi.core.limits.memory import MOST_ENTRIES, LimitsPart, PolicyPart
from chainapi.core.limits.policies import Policies
from chainapi.core.limits.policy import Policy
from chainapi.core.limits.reservation import Reservation

__all__ = ["LimitsInForce"]

MOST_REMAINDERS = 64  # kept of a policy before old ones are removed
MOST_COUNTED = 8  # limits of the user in a memory
LONGEST_DISCOVERED = 86_400.0  # seconds: an older memory of an unannounced limit is of no use


@define(eq=False, repr=False)
class LimitsInForce:
    """Limits that hold together: a request needs units of each of them.

    Attributes:
        given: limits that the user set, kept by counting.
        announced: policies that responses named.
        discovery: search for a limit that no response announces; None if there is no sign of one.
        policies: all of them.
        restored: whether it continues from a memory.
        contradicted: plans that a response contradicted, each with what it announced instead, until the gate
            has reported them.
        remembered: limits of a memory by amount, window and what they count, until a session sets them.

    """

    costs: Costs
    in_flight: InFlight
    given: tuple[Limit, ...] = ()
    announced: Policies = field(factory=Policies, init=False)
    discovery: Discovery | None = field(factory=Discovery, init=False)
    policies: list[Policy] = field(factory=list[Policy], init=False)
    restored: bool = field(default=False, init=False)
    remembered: dict[tuple[float, float | None, bool], Policy] = field(
        factory=dict[tuple[float, float | None, bool], Policy], init=False
    )
    contradicted: list[tuple[str, PolicyField]] = field(factory=list[tuple[str, PolicyField]], init=False)
    _plans: tuple[str, ...] = field(default=(), init=False)  # names of those among the given limits
    _counted: list[Policy] = field(factory=list[Policy], init=False)  # of the given limits

    def add(self, limits: Sequence[Limit]) -> None:
        """Add limits of the user to those given before."""
        new = [one for one in limits if one not in self.given]
        if not new:
            return
        self.given = (*self.given, *new)
        self._counted += [self._count(one) for one in new]
        self._list()
        if self.discovery is not None:
            self.discovery.most = inf
        if any(one.units for one in new):
            self.costs.units = True
        self._plans = tuple(dict.fromkeys(one.plan for one in self.given if one.plan))

    @property
    def plan(self) -> tuple[str, Policy] | None:
        """Name of the plan that counts, and its limit of which the least share is left."""
        policies = [
            (one.plan, counted) for one, counted in zip(self.given, self._counted, strict=True) if one.plan
        ]
        return min(policies, key=lambda one: one[1].balance.remaining / one[1].limit, default=None)

    def _judge_plans(self, info: RateLimitInfo) -> None:
        """Drop the plans that a response contradicts, with their limits."""
        for name in self._plans:
            plan = [one for one in self.given if one.plan == name]
            announced = contradiction(plan, info, counts_requests=self.costs.units is False)
            if announced is not None:
                self._drop(name)
                self.contradicted.append((name, announced))

    def _drop(self, plan: str) -> None:
        pairs = zip(self.given, self._counted, strict=True)
        kept = [(one, counted) for one, counted in pairs if one.plan != plan]
        self.given, self._counted = tuple(one for one, _ in kept), [counted for _, counted in kept]
        self._plans = tuple(name for name in self._plans if name != plan)
        if self.costs.units and not any(one.units for one in self.given):
            self.costs.units = None  # the plan alone said so
        self._list()

    def _count(self, given: Limit) -> Policy:
        """Return the count of a limit, with what a memory has of it."""
        (limit, window), requests = whole(given), not given.units
        known = self.remembered.pop((limit, window, requests), None)
        return known or Policy(Balance(limit, window), requests=requests)

    def _list(self) -> None:
        learned = None if self.discovery is None else self.discovery.learned
        self.policies = [*self._counted, *self.announced.known, *([] if learned is None else [learned])]

    # --- permitted requests -----------------------------------------------------------------

    def scarcest(self, now: float, cost: float, opens: float, *, probe: bool) -> tuple[float, Policy | None]:
        """Return when `cost` units are free, and the policy that decides that.

        That is at `opens` or later; None if all policies have the units. A `probe` needs no units of a
        policy whose announced reset has passed.
        """
        in_flight = self.in_flight
        scarce: Policy | None = None
        for one in self.policies:
            balance, counted, held = one.balance, one.counted(cost), self.held(one)
            balance.collect(now)
            if balance.backed(counted, held):
                continue
            if not in_flight.number and not balance.stale and balance.backed(counted, 0.0):
                # Held back are units that may have been counted, but not for ever: the next response
                # includes them. By a memory they were counted, and so may be more since then.
                continue
            if one.named and probe and one.reset.at <= now:
                continue
            at = one.opens_at(now, counted, held)
            if at <= now and not one.named:
                # No guess against a limit kept by counting: a response must arrive first.
                at = inf
            if at >= opens:
                opens, scarce = at, one
        return opens, scarce

    def held(self, one: Policy) -> float:
        """Return what a policy holds back for requests that are, or may be, in flight."""
        in_flight = self.in_flight
        if one.requests:
            return in_flight.number + in_flight.remembered_requests
        return in_flight.units + (in_flight.lost if one.named else in_flight.remembered)

    def room(self, cost: float) -> float:
        """Return the units that may leave in requests of `cost` units; 0 if units drip."""
        if any(one.returns.kind.drips for one in self.policies):
            return 0.0
        held = self.in_flight.units + self.in_flight.lost
        rooms = (
            cost * one.balance.room(self.held(one)) if one.requests else one.balance.room(held)
            for one in self.policies
        )
        return min(rooms, default=inf)

    # --- responses --------------------------------------------------------------------------

    def counted(self, cost: float) -> float:
        """Return the amount counted against a discovered limit.

        Beside announced limits, which count units, that is requests.
        """
        return 1.0 if self.announced.known else cost

    def read(
        self, reservation: Reservation, now: float, info: RateLimitInfo, *, refused: bool
    ) -> Policy | None:
        """Return the policy that the numbers of a response report."""
        if self._plans:
            self._judge_plans(info)
        announced = self.announced
        known, cost = announced.known, 0.0 if refused else reservation.cost
        policy = announced.read(info, now, cost, refused=refused)
        if announced.known is not known:
            if announced.known and not known:
                self.discovery = None
            self.costs.limit(announced.roof())
            self._list()
        return policy

    def find(self, discovery: Discovery, reservation: Reservation, now: float, status: int) -> None:
        """Learn from a success about limits without headers, or of their absence."""
        learned = discovery.learned
        discovery.passed(reservation.sent, now, self.counted(reservation.cost), answered=status < 400)
        if self.announced.known and discovery.disproved():
            self.discovery = None
        if discovery.learned is not learned or self.discovery is None:
            self._list()

    def refused(self, reservation: Reservation, now: float, wait: float | None, *, unannounced: bool) -> None:
        """Learn about limits without headers from a refusal and the `wait` it named.

        `unannounced` if no announced limit caused it.
        """
        if unannounced and self.discovery is None:
            self.discovery = Discovery(drips=True)
        if self.discovery is not None and (unannounced or not self.announced.known):
            self.discovery.refused(reservation.sent, now, self.in_flight.units, wait)

    def doubt(self, reservation: Reservation, now: float) -> None:
        """Record a request that the service may or may not have counted."""
        for one in self.policies:
            if one.balance.reported:
                one.balance.doubt(reservation.sent, reservation.cost)
            else:
                one.spend(reservation.sent, now, one.counted(reservation.cost))
        self.in_flight.lose(now, reservation.cost)

    def account(
        self,
        reservation: Reservation,
        now: float,
        info: RateLimitInfo,
        policy: Policy | None,
        *,
        refused: bool,
        max_stop: float,
    ) -> None:
        """Record the cost of a request, and the remainder that its response reports.

        No reset counts that is more than `max_stop` seconds away.
        """
        claims = self.announced.claims(info) if info.service_limits else {}
        if policy is not None and info.remaining is not None:
            claims[policy] = (info.remaining, info.reset)
        for one in self.policies:
            claim = claims.get(one)
            if claim is not None and not (refused and one.only_on_refusal):
                remaining, reset = claim
                self._record(one, reservation, now, remaining, refused=refused)
                if reset is not None and not refused and remaining <= one.balance.remaining:
                    # Otherwise responses that overtook it are newer.
                    one.record_reset(now, min(reset, max_stop))
            elif not refused:
                self._spend(one, reservation, now)
            elif one is policy and one.only_on_refusal:
                one.restart()
        if self.in_flight.losses:
            units, requests = self.in_flight.include(reservation.sent)
            for one in self.policies if units else ():
                if not one.balance.reported:
                    one.spend(reservation.sent, now, requests if one.requests else units)

    def _spend(self, one: Policy, reservation: Reservation, now: float) -> None:
        """Record a request whose response does not report what remains of a policy."""
        if one.named and one.reset.at <= reservation.sent and not one.balance.backed(reservation.cost, 0.0):
            # The wait is over, and a request passed; no response reported the units back.
            one.restart()
        one.spend(reservation.sent, now, one.counted(reservation.cost), counted=reservation.counted)
        if len(one.balance.silent.costs) > MOST_REMAINDERS:
            one.balance.silent.prune(self.in_flight.oldest(now))

    def _record(
        self, one: Policy, reservation: Reservation, now: float, remaining: float, *, refused: bool
    ) -> None:
        """Record the reported remainder of a policy."""
        balance, sent = one.balance, reservation.sent
        cost = 0.0 if refused else reservation.cost
        # The first probe after a memory may leave beside others: then it shows no return of units.
        first = reservation.probe and (reservation.alone or not self.restored)
        priced = first and self.costs.learned.get(reservation.route) == reservation.cost
        one.record(sent, now, remaining, cost, classify=first and not refused, priced=priced)
        if len(balance.remainders.lows) > MOST_REMAINDERS:
            balance.remainders.prune(self.in_flight.oldest(now))
        if not refused:
            drips = one.returns.kind.drips and balance.drip(now - sent) >= 1.0
            self.costs.sample(
                one, reservation.route, remaining, sent, now, fresh=reservation.probe, drips=drips
            )

    # --- memory -----------------------------------------------------------------------------

    def memory(self, then: float) -> LimitsPart:
        """Return the state for a memory."""
        entries = MOST_ENTRIES // max(1, len(self.policies))
        return LimitsPart(
            [one.memory(then, entries) for one in self._counted[:MOST_COUNTED]],
            self.announced.memory(then, entries),
            None if self.discovery is None else self.discovery.memory(then, entries),
        )

    def restore(self, part: LimitsPart, then: float, now: float, *, idle: bool) -> None:
        """Continue from a memory; see `Balance.restore`."""

        def restored(policy: PolicyPart) -> Policy:
            return Policy.restored(policy, then, now, idle=idle)

        self.restored = True
        counted = [restored(one) for one in part.counted]
        self.remembered = {(one.limit, one.window, one.requests): one for one in counted}
        self._counted = [self._count(one) for one in self.given]
        self.announced.restore(part.announced, restored)
        self.costs.limit(self.announced.roof())
        if part.discovery is None:
            self.discovery = None
        elif now - then <= LONGEST_DISCOVERED:
            self.discovery = Discovery.restored(part.discovery, then, restored)
        self._list()


def contradiction(
    plan: Sequence[Limit], info: RateLimitInfo, *, counts_requests: bool | None
) -> PolicyField | None:
    """Return the announced limit that contradicts a plan; None without one.

    It has another amount for a window of the plan, or no window and an amount that the plan has for none. If
    the service `counts_requests`, it is any: a plan counts units.
    """
    amounts = {limit.per: limit.amount for limit in plan}
    announced = info.policies or ((PolicyField(info.limit),) if info.limit else ())
    for one in announced:
        own = amounts.values() if one.window is None else [amounts.get(one.window, one.quota)]
        if one.quota and (counts_requests or one.quota not in own):
            return one
    return None
