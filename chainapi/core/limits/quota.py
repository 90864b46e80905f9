"""Quota of a service: the units its responses report, and the requests allowed.

Pure arithmetic: times are seconds on any monotonic clock and arguments, like the jitter. The rules, in the
order in which they apply:

1. A refusal stops all requests until its wait ends; the end only moves later. A refusal that shows quota
   left stops only its route (`chainapi.core.limits.scope`).
2. The first request, and the first after every pause, leaves alone: the probe. Others follow a probe without
   a response, twice as many each time (`chainapi.core.limits.probe`).
3. The first request of a route with an unknown price leaves alone too.
4. The units that a response reported to remain, minus those in flight, may leave at once.
5. The units predicted to be back since then may leave too, few at first and more with every response that
   reports what remains.
6. Used up, with nothing in flight and a long wait ahead: one probe shows when the quota comes back.
7. Refusals show a limit that no response announces (`chainapi.core.limits.discovery`), which then paces
   requests. If there are announced limits, that holds for refusals while those have quota left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf

from attrs import define, field

from chainapi.core.limits.backoff import LONGEST_BACKOFF, backoff
from chainapi.core.limits.balance import Balance
from chainapi.core.limits.costs import Costs
from chainapi.core.limits.discovery import SOON, Discovery
from chainapi.core.limits.headers import RateLimitInfo, hold
from chainapi.core.limits.limit import Limit
from chainapi.core.limits.modes import TRANSITIONS, Event, Mode, sends_probe
from chainapi.core.limits.policies import Policies
from chainapi.core.limits.policy import Policy
from chainapi.core.limits.probe import Probes
from chainapi.core.limits.reservation import NEVER, Decision, Reservation
from chainapi.core.limits.scope import Routes, Verdict
from chainapi.core.limits.snapshot import QuotaSnapshot

__all__ = ["Quota"]

OF_WINDOW = 1 / 6  # of a known window: the longest backoff if no refusal has the wait
LEFT = 0.25  # of the limit: with more left, a refusal does not concern the quota
ROUNDED = 0.05  # seconds by which a promise exceeds a forecast at least while requests are in flight
ESTIMATE = 0.75  # of the time predicted from a measured pace: the real pace may be faster
CAUTIOUS = 3  # guesses at once allowed by responses without fields
# Constants, because access to the member of an Enum takes as long as a call.
PROBING, KNOWN, DRAINED = Mode.PROBING, Mode.KNOWN, Mode.DRAINED


@define(eq=False, repr=False)
class Quota:
    """Quota that decides about requests and learns from their responses.

    Call `decide`; then `send` if it returned now, else `wait`; then report the end of the reservation.

    Args:
        max_in_flight: most requests without a response at once.
        limits: limits given by the user, kept by counting.
        probe: whether the quota may risk one request to find out when it comes back.
        max_stop: seconds after which a request leaves although an announced wait is longer.

    """

    max_in_flight: int = 100
    limits: Sequence[Limit] = ()
    probe: bool = True
    max_stop: float = inf
    in_flight: int = 0
    stopped_until: float = -inf
    costs: Costs = field(factory=Costs, init=False)
    routes: Routes = field(factory=Routes, init=False)
    probes: Probes = field(factory=Probes, init=False)
    mode: Mode = field(default=Mode.LEARNING, init=False)
    _probe_next: bool = field(default=True, init=False)  # by the mode
    policies: Policies = field(factory=Policies, init=False)
    _given: list[Policy] = field(factory=list[Policy], init=False)
    _in_force: list[Policy] = field(factory=list[Policy], init=False)
    _discovery: Discovery | None = field(factory=Discovery, init=False)
    _held: float = field(default=0.0, init=False)
    _reservations: dict[Reservation, None] = field(factory=dict[Reservation, None], init=False)
    _lost: deque[tuple[float, float]] = field(factory=deque[tuple[float, float]], init=False)
    _lost_units: float = field(default=0.0, init=False)
    _stops: int = field(default=0, init=False)
    _refusals: int = field(default=0, init=False)
    _passed_any: bool = field(default=False, init=False)
    _refused_route: str | None = field(default=None, init=False)
    _guesses: int = field(default=0, init=False)
    _most_guesses: int = field(default=1, init=False)

    def __attrs_post_init__(self) -> None:
        limits, self.limits = self.limits, ()
        self.add_limits(limits)

    def add_limits(self, limits: Sequence[Limit]) -> None:
        """Add limits given by the user to those given before."""
        new = [one for one in limits if one not in self.limits]
        if not new:
            return
        self.limits = (*self.limits, *new)
        self._given = [*self._given, *(Policy(Balance(one.amount, one.per)) for one in new)]
        self._list()
        if self._discovery is not None:
            self._discovery.most = inf
        if any(one.units for one in new):
            self.costs.units = True

    def _list(self) -> None:
        """List all limits: those of the user, those announced, and the one discovered."""
        learned = None if self._discovery is None else self._discovery.learned
        self._in_force = [*self._given, *self.policies.known, *([] if learned is None else [learned])]

    # --- permitted requests ---------------------------------------------------------------

    def opens_at(self, now: float, cost: float, route: str = "") -> float:
        """Return when a request may leave: `now`, later, or inf if a response decides."""
        return self.decide(now, cost, route).when

    def decide(self, now: float, cost: float, route: str = "") -> Decision:
        """Decide when a request of `cost` units may leave; change nothing."""
        if self.in_flight >= self.max_in_flight:
            return NEVER
        if now < self.stopped_until:
            return Decision(self.stopped_until)
        hedge = self.probes.opens_at(now)
        if hedge is not None and hedge > now:
            return Decision(hedge)
        if self.in_flight and hedge is None and self._alone(route):
            return NEVER
        probe = self._probe_next or hedge is not None
        opens = now
        if self._discovery is not None and not probe:
            opens = self._discovery.opens_at(now, self.in_flight)
        return self._by_policies(now, cost, opens, probe)

    def _alone(self, route: str) -> bool:
        """Return whether a request must leave alone because its cost is unknown."""
        return self.policies.latest is not None and not self.costs.known(route)

    def _by_policies(self, now: float, cost: float, opens: float, probe: bool) -> Decision:
        """Decide by the policies; `opens` is the earliest time they may choose."""
        scarce: Policy | None = None
        for one in self._in_force:
            one.balance.collect(now)
            held = self._held + self._lost_units if one.named else self._held
            if one.balance.backed(cost, held) or (not self.in_flight and one.balance.backed(cost, 0.0)):
                # Held back are units that may have been counted, but not for ever: the next response
                # includes them.
                continue
            if one.named and self._probe_next and one.reset.at <= now:
                continue
            at = one.opens_at(now, cost, held)
            if at <= now and not one.named:
                # No guess against a limit kept by counting: a response must arrive first.
                at = inf
            if at >= opens:
                opens, scarce = at, one
        if scarce is None or opens == inf:
            return Decision(opens, probe=probe)
        return self._guess(now, opens, scarce, probe)

    def _guess(self, now: float, opens: float, scarce: Policy, probe: bool) -> Decision:
        """Decide about a request that no response covers."""
        used_up = opens > now
        inquiry = None
        most = self._most_guesses
        if used_up:
            if self.in_flight:
                return Decision(opens)
            most = 1
            probes_at = scarce.probes_at(opens) if self.probe else inf
            if probes_at > now:
                return Decision(min(opens, probes_at), used_up=True)
            inquiry = scarce
        careful = not self.probe and scarce.balance.proven
        if self.in_flight and (self._guesses >= most or careful):
            return NEVER
        return Decision(now, True, probe or (most == 1 and not self.in_flight), inquiry, used_up)

    def room(self, now: float) -> float:
        """Return the units that may leave before a more expensive request that waits.

        0 in a pause; and 0 if units drip, because then they are not lost but only delay that request.
        """
        decision = self.decide(now, 0.0)
        if decision.when > now or self._probe_next or decision.guess:
            return 0.0
        if any(one.returns.kind.drips for one in self._in_force):
            return 0.0
        held = self._held + self._lost_units
        return min((one.balance.room(held) for one in self._in_force), default=inf)

    def wait(self, decision: Decision) -> None:
        """Record a wait by a decision: after a pause the first guess leaves alone."""
        if decision.used_up:
            self._most_guesses = 1
            if self.mode is KNOWN:
                self._take(Event.USED_UP)

    def send(
        self, decision: Decision, now: float, route: str, cost: float, prior: float | None = None
    ) -> Reservation:
        """Reserve units for a request that may leave now by a decision just made."""
        alone = not self.in_flight
        _, guess, probe, inquiry, used_up = decision
        reservation = Reservation(route, cost, now, self._stops, probe, guess, prior, alone)
        if probe or (alone and self._alone(route)):
            self.probes.send(reservation, now)
            self._take(Event.PROBE_SENT)
        elif self.mode is DRAINED:
            self._take(Event.UNITS_BACK)
        if guess:
            self._guesses += 1
            if used_up:
                self._most_guesses = 1
            if inquiry is not None:
                inquiry.returns.probed = True
        if self._discovery is not None:
            self._discovery.send(now, self._counted(cost))
        if self.routes.known:
            self.routes.send(route)
        self.in_flight += 1
        self._held += cost
        self._reservations[reservation] = None
        return reservation

    def holds(self, reservation: Reservation, now: float) -> bool:
        """Return whether a request granted a moment ago may still leave."""
        return reservation.stops == self._stops and now >= self.stopped_until

    # --- end of a reservation ---------------------------------------------------------------

    def unsent(self, reservation: Reservation) -> None:
        """Take back an unused reservation."""
        self._land(reservation)
        self.probes.unsent(reservation)
        self._probe_ended(failed=reservation.required_probe)

    def lost(self, reservation: Reservation, now: float) -> None:
        """Record a lost response: the service may have counted the request."""
        self._land(reservation)
        self.probes.lost(reservation, failed=reservation.required_probe)
        self._probe_ended(failed=reservation.required_probe)
        self._unclear(reservation, now)

    def _probe_ended(self, *, failed: bool) -> None:
        """Leave the mode PROBING if a probe `failed`, or no probe is in flight any more."""
        if failed:
            self._take(Event.PROBE_FAILED)
        elif self.mode is PROBING and not self.probes:
            self._take(Event.PROBES_ENDED)

    def _take(self, event: Event) -> None:
        self.mode = TRANSITIONS[self.mode][event]
        self._probe_next = sends_probe(self.mode)

    def _unclear(self, reservation: Reservation, now: float) -> None:
        """Hold back possibly counted units until a later response includes them."""
        for one in self._in_force:
            if one.balance.reported:
                one.balance.doubt(reservation.cost)
            else:
                one.spend(reservation.sent, now, reservation.cost)
        self._lost.append((now, reservation.cost))
        self._lost_units += reservation.cost

    def answered(
        self, reservation: Reservation, now: float, status: int, info: RateLimitInfo, jitter: float
    ) -> Verdict:
        """Record a response, and return its meaning; `jitter` is random, from 0 to 1."""
        self._land(reservation)
        if status >= 500 and info.remaining is None:
            # It may not have met the limiter. A retry-after concerns this route, and is not kept here.
            self.probes.faulty(reservation, failed=reservation.required_probe)
            self._probe_ended(failed=reservation.required_probe)
            self._unclear(reservation, now)
            return Verdict.PASSED
        self.probes.answered(reservation)
        if self.mode is PROBING:
            self._probe_ended(failed=False)
        trip = now - reservation.sent
        self.probes.trip += 0.1 * (trip - self.probes.trip) if self.probes.trip else trip
        refused = status == 429
        policy = self._read(reservation, now, info, refused=refused)
        if not refused:
            self._passed(reservation, now, status, info, policy)
            self._account(reservation, now, info, policy, refused=False)
            return Verdict.PASSED
        verdict, used_up = self._refused(reservation, now, info, policy, jitter)
        self._account(reservation, now, info, policy, refused=True)
        if used_up is not None:
            backed = not reservation.guess and not reservation.probe
            used_up.refused(now, self.stopped_until, reservation.cost, backed=backed)
        return verdict

    def _read(
        self, reservation: Reservation, now: float, info: RateLimitInfo, *, refused: bool
    ) -> Policy | None:
        """Return the policy that the numbers of a response report."""
        policies = self.policies
        known, cost = policies.known, 0.0 if refused else reservation.cost
        policy = policies.read(info, now, cost, refused=refused)
        if policies.known is not known:
            if policies.known and not known:
                self._discovery = None
            self.costs.roof = policies.roof()
            self._list()
        return policy

    def _passed(
        self,
        reservation: Reservation,
        now: float,
        status: int,
        info: RateLimitInfo,
        policy: Policy | None,
    ) -> None:
        """Learn from a request that was not refused."""
        reports = info.remaining is not None or not any(one.balance.reported for one in self._in_force)
        if reports:
            # Else it may not have met a limiter at all, and refusals may follow.
            self._refusals, self._refused_route, self._passed_any = 0, None, True
        if self.routes.known:
            self.routes.passed(reservation.route, reservation.sent)
        reservation.counted = status < 400 and not reservation.probe and not reservation.guess
        if reservation.guess and (reports or self._most_guesses < CAUTIOUS):
            self._most_guesses += 1
        if reservation.alone and not self.costs.known(reservation.route):
            self.costs.tried(reservation.route, reported=info.remaining is not None)
            if policy is not None and policy.sized:
                self._price(reservation, now, info.remaining, policy)
        if self._discovery is not None:
            self._find(self._discovery, reservation, now, status)

    def _find(self, discovery: Discovery, reservation: Reservation, now: float, status: int) -> None:
        """Learn from a success about limits without headers, or of their absence."""
        learned = discovery.learned
        discovery.passed(reservation.sent, now, self._counted(reservation.cost), answered=status < 400)
        if self.policies.known and discovery.disproved():
            self._discovery = None
        if discovery.learned is not learned or self._discovery is None:
            self._list()

    def _counted(self, cost: float) -> float:
        """Return the amount counted against a discovered limit.

        Beside announced limits, which count units, that is requests.
        """
        return 1.0 if self.policies.known else cost

    def _price(self, reservation: Reservation, now: float, left: float | None, policy: Policy) -> None:
        """Learn the cost of a request sent alone, from units `left` now and before it."""
        before = policy.balance.remaining if policy.balance.sure else None
        if reservation.probe and before is not None:
            return  # units came back in the pause before it
        if left is None or before is None:
            self.costs.bound(reservation.route, 0.0, policy.balance.drip(now - reservation.sent))
        else:
            self.costs.bound(
                reservation.route, before - left, policy.balance.drip(now - policy.balance.recorded_at)
            )
        if left is not None:
            self.costs.alone(reservation.route, reservation.prior, before, policy.limit, left)

    def _account(
        self,
        reservation: Reservation,
        now: float,
        info: RateLimitInfo,
        policy: Policy | None,
        *,
        refused: bool,
    ) -> None:
        """Record the cost of a request, and the remainder that its response reports."""
        claims = self.policies.claims(info)
        if policy is not None and info.remaining is not None:
            claims[policy] = (info.remaining, info.reset)
        for one in self._in_force:
            claim = claims.get(one)
            if claim is not None and not (refused and one.only_on_refusal):
                self._record(one, reservation, now, *claim, refused=refused)
            elif not refused:
                if (
                    one.named
                    and one.reset.at <= reservation.sent
                    and not one.balance.backed(reservation.cost, 0.0)
                ):
                    # The wait is over, and a request passed; no response reported the units back.
                    one.restart()
                one.spend(reservation.sent, now, reservation.cost, counted=reservation.counted)
            elif one is policy and one.only_on_refusal:
                one.restart()
        while self._lost and self._lost[0][0] <= reservation.sent:
            self._lost_units -= self._lost.popleft()[1]

    def _record(
        self,
        one: Policy,
        reservation: Reservation,
        now: float,
        remaining: float,
        reset: float | None,
        *,
        refused: bool,
    ) -> None:
        cost = 0.0 if refused else reservation.cost
        one.record(reservation.sent, now, remaining, cost, classify=reservation.probe and not refused)
        if reset is not None and not refused and remaining <= one.balance.remaining:
            # Otherwise responses that overtook it are newer.
            one.record_reset(now, min(reset, self.max_stop))
        one.balance.remainders.prune(next(iter(self._reservations)).sent if self._reservations else now)
        if not refused:
            drips = one.returns.kind.drips and one.balance.drip(now - reservation.sent) >= 1.0
            self.costs.sample(
                one, reservation.route, remaining, reservation.sent, now, fresh=reservation.probe, drips=drips
            )

    def _land(self, reservation: Reservation) -> None:
        del self._reservations[reservation]
        self.in_flight -= 1
        # Reset to exactly zero, or rounding errors would accumulate over the years.
        self._held = self._held - reservation.cost if self.in_flight else 0.0
        if reservation.guess:
            self._guesses -= 1
        if self.routes.known:
            self.routes.landed(reservation.route)

    # --- refusals ---------------------------------------------------------------------------

    def _refused(
        self, reservation: Reservation, now: float, info: RateLimitInfo, policy: Policy | None, jitter: float
    ) -> tuple[Verdict, Policy | None]:
        """Return the meaning of a refusal, and the announced policy that is used up."""
        left = None
        if policy is not None and info.remaining is not None:
            needed = min(
                max(reservation.cost, reservation.prior or 0.0, LEFT * policy.limit, 1.0), policy.limit
            )
            left = info.remaining - self._held >= needed
        wait = min(hold(429, info), self.max_stop) if info.retry_after is not None or info.reset else None
        hidden = self._is_hidden(reservation, left, wait)
        shared = hidden and self._is_shared(reservation, now, left)
        if not shared and self.routes.concerns_route_only(reservation.route, now, left=left):
            whole = policy is not None and info.remaining == policy.limit
            return self._refuse_route(reservation, now, wait, jitter, whole=whole), None
        if hidden and self._discovery is None:
            self._discovery = Discovery(drips=True)
        if reservation.alone and not left and policy is not None and info.remaining is not None:
            self.costs.refused(reservation.route, info.remaining)
        if reservation.probe:
            self._refusals += 1
        if self._discovery is not None and (hidden or not self.policies.known):
            self._discovery.refused(reservation.sent, now, self._held, announced=wait is not None)
        self._stop(reservation, now, wait, policy, jitter)
        if left is None and reservation.probe:
            if reservation.route == self._refused_route:
                self.routes.step_back(reservation.route, now, self.stopped_until)
            self._refused_route = reservation.route
        if hidden:
            return Verdict.UNANNOUNCED, None
        return Verdict.UNANNOUNCED if wait is None and self._passed_any else Verdict.QUOTA, policy

    def _is_hidden(self, reservation: Reservation, left: bool | None, wait: float | None) -> bool:
        """Return whether a refusal shows an unannounced limit: the others have quota left."""
        known = self.policies.known
        longest = SOON if self._discovery is None else self._discovery.longest()
        if not known or not self.costs.known(reservation.route) or (wait is not None and wait > longest):
            return False
        return left if left is not None else all(one.balance.backed(reservation.cost, 0.0) for one in known)

    def _is_shared(self, reservation: Reservation, now: float, left: bool | None) -> bool:
        """Return whether an unannounced limit surely concerns more than one closed route."""
        if self._discovery is not None:
            return not reservation.probe and self.routes.passes(reservation.route)
        others = (one for one in self.routes.closed(now) if one != reservation.route)
        return bool(left) and (
            self.routes.passes_alone(reservation.route) or any(map(self.costs.known, others))
        )

    def _refuse_route(
        self, reservation: Reservation, now: float, wait: float | None, jitter: float, *, whole: bool
    ) -> Verdict:
        """Stop the requests of one route."""
        if reservation.required_probe:
            self._take(Event.PROBE_FAILED)
        refusals = self.routes.refused(reservation.route, now)
        backoff = self._backoff(refusals, jitter)
        if wait is None or refusals > 1:
            wait = max(wait or 0.0, backoff)
        self.routes.close(reservation.route, now + wait)
        return Verdict.TOO_EXPENSIVE if whole and refusals > 1 else Verdict.ROUTE

    def _backoff(self, refusals: int, jitter: float, window: float | None = None) -> float:
        """Return 1, 2, 4 ... 60 seconds with jitter, and more for a long known window."""
        longest = max(LONGEST_BACKOFF, OF_WINDOW * (window or 0.0))
        return (0.5 + 0.5 * jitter) * backoff(refusals, longest)

    def _stop(
        self, reservation: Reservation, now: float, wait: float | None, policy: Policy | None, jitter: float
    ) -> None:
        """Stop all requests."""
        backoff = self._backoff(self._refusals, jitter, policy.window if policy is not None else None)
        if wait is not None:
            stop = now + (wait if self._refusals < 2 else max(wait, backoff))
        elif self._discovery is not None and (policy is None or self._discovery.drip is not None):
            stop = self._discovery.tries_at(now, jitter) if now >= self.stopped_until else self.stopped_until
        else:
            known = (
                policy.opens_at(now, reservation.cost, 0.0)
                if policy is not None and self._refusals < 2
                else inf
            )
            stop = known if now + backoff < known < inf else now + backoff
        self.stopped_until = max(self.stopped_until, stop)
        self._stops += 1
        self._take(Event.REFUSED)
        self._most_guesses = 1

    # --- for people -------------------------------------------------------------------------

    def forecast(self, now: float, units: float, requests: float = 1.0, *, least: bool = False) -> float:
        """Return the seconds until a request leaves, `units` including all before it.

        `requests` is their number. With `least`, the earliest possible time: an estimate alone must fail
        no request. `units` excludes requests in flight, and the forecast excludes the time of responses.
        """
        stop, held, discovery = max(now, self.stopped_until), self._held + self._lost_units, self._discovery
        ends = [stop - now]
        for one in self._in_force:
            one.balance.collect(now)
            ends.append(one.wait_for(now, units, held, least=least, probe=self.probe))
        if discovery is not None:
            counted = requests + self.in_flight if self.policies.known else units + held
            seconds = discovery.wait_for(stop, counted, least=least)
            ends.append(stop - now + (ESTIMATE if least else 1.0) * seconds)
        return max(ends)

    def promise(self, now: float, seconds: float) -> float:
        """Return the seconds after which a new attempt would leave at once."""
        if self._discovery is not None:
            seconds = max(seconds, self._discovery.surely_at(now) - now)
        # Responses under way may still report a time that is a round trip later.
        return seconds + (max(ROUNDED, self.probes.trip) if self.in_flight else 0.0)

    def snapshot(self, now: float, waiting: int, unix_time: float | None = None) -> QuotaSnapshot:
        """Return the known state, for people to read."""
        policy = self.policies.latest
        if policy is None and self._discovery is not None:
            policy = self._discovery.learned
        stopped = self.stopped_until if self.stopped_until > now else None
        reset = stopped
        if stopped is None:
            used_up = [one for one in self._in_force if not one.balance.backed(1.0, self._held)]
            policy = max(used_up, key=lambda one: one.opens_at(now, 1.0, self._held), default=policy)
            opens = policy.opens_at(now, 1.0, self._held) if used_up and policy is not None else inf
            reset = opens if opens < inf else None
        return QuotaSnapshot(
            time=now,
            limit=policy.limit if policy else None,
            remaining=max(
                0.0, policy.balance.remaining + (0.0 if policy.balance.reported else policy.balance.returned)
            )
            if policy
            else None,
            window=policy.window if policy else None,
            stopped_until=stopped,
            reset_at=reset,
            costs=dict(self.costs.learned),
            waiting=waiting,
            in_flight=self.in_flight,
            unix_time=unix_time,
        )
