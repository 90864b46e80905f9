"""Quota of a service: when may a request leave, and what its response shows.

Pure arithmetic: arguments have the time, in seconds on the clock of the quota, and the jitter. The rules, in
the order in which they apply:

1. A refusal stops all requests until its wait ends; the end only moves later. One that shows quota left, or
   that meets one route again and again while others pass, stops that route alone (`chainapi._limits.routes`).
2. The first request, and the first one after every pause, leaves alone: a probe. Others follow a probe
   without a response, twice as many each time, until one of them is answered.
3. The units that a response reported, less those in flight, may leave at once, of each limit
   (`chainapi._limits.policy`). Of a route whose price is unknown, few requests are in flight
   (`chainapi._limits.costs`).
4. The units that are predicted to be back may leave too, one request at first, and one more with every
   response that reports what remains. If they drip, `chainapi._limits.bucket` predicts them.
5. Used up, with nothing in flight and a long wait ahead, one probe shows when units come back.
6. Refusals show a limit that no response announces (`chainapi._limits.hidden`), also beside announced ones.

A `Quota` is the whole state: `encode` and `restore` hand it to the next host of a shared quota.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import inf

from msgspec import DecodeError, Struct, field
from msgspec.msgpack import Decoder, Encoder

from chainapi._limits.announced import Announced, contradiction
from chainapi._limits.costs import Costs
from chainapi._limits.headers import PolicyField, RateLimitInfo, hold
from chainapi._limits.hidden import LONGEST_BACKOFF, SOON, Hidden, backoff
from chainapi._limits.policy import Policy
from chainapi._limits.routes import Routes
from chainapi._limits.verdict import Verdict
from chainapi._limits.view import Limit, QuotaSnapshot, whole

__all__ = ["Decision", "Quota", "Reservation"]

VERSION = 4
OLDEST = 604_800.0  # seconds: services change their limits, so an older state is of no use
LONGEST_STATE = 262_144  # bytes that a reader accepts
RECENT = 1.0  # seconds before a state was written: requests sent since then show how many followed
SOONEST_HEDGE = 1.0  # seconds
TRIPS = 4.0  # round trips that a request may take before it is late
FAULTY = 3  # probes at once, after responses that did not pass the limiter
MOST_PROBES = 1 << 10  # at once, however many were lost: a service may be unreachable for days
CAUTIOUS = 3  # guesses at once that responses without fields allow
LEFT = 0.25  # of the limit: with more left, a refusal does not concern the quota
OF_WINDOW = 1 / 6  # of a known window: the longest backoff if no refusal has the wait
ROUNDED = 0.05  # seconds by which a promise exceeds a forecast at least while requests are in flight
EARLIEST = 0.75  # of the time predicted from a measured pace: the real pace may be faster


class Decision(Struct, frozen=True):
    """Decision of `Quota.decide`; pass it to `Quota.send` or `Quota.wait`.

    Attributes:
        when: `now`, a later time, or inf if a response decides.
        guess: whether no response covers the request.
        probe: whether it leaves as a probe.
        inquiry: the limit that it should show the return of units of, although they are used up.
        used_up: whether units have to come back first and nothing is in flight.

    """

    when: float
    guess: bool = False
    probe: bool = False
    inquiry: Policy | None = None
    used_up: bool = False


NEVER = Decision(inf)  # until a response decides


class Reservation(Struct, eq=False):
    """Units of a request that left: `sent` at this time, for `cost` units.

    They are held; once it is answered or lost, `cost` is its price. `stops` is the number of stops before it,
    `probe` the number of the round of probes that it belongs to, or 0. `alone` is set if no other was in
    flight.
    """

    number: int
    route: str
    prior: float | None
    cost: float
    sent: float
    stops: int
    probe: int
    guess: bool
    inquiry: bool
    alone: bool


class Quota(Struct, eq=False):
    """Quota that decides about requests and learns from their responses.

    Call `decide`; then `send` if it returned now, else `wait`; then report the end of the reservation.

    Attributes:
        max_in_flight: most requests without a response at once.
        probe: whether the quota may risk one request to find out when it comes back.
        max_stop: seconds after which a request leaves although an announced wait is longer.
        announced: limits that responses named.
        given: limits of the user, kept by counting.
        contradicted: plans that a response contradicted, each with what it announced instead.
        hidden: limit that no response announces; None if there is no sign of one.
        costs: prices of routes; `routes`: routes with few requests at once.
        flying: requests without a response, by number; `units`: what they cost.
        doubtful: units of requests in flight when another host took over, and their number, at `doubtful_at`.
        probing: whether the next request is a probe. `probes` are in flight, in round `probe_round`.
        most_probes: probes that may be; at `hedge_at` one more. `late`: probes of earlier rounds.
        trip: mean round trip in seconds.
        most_guesses: requests in flight that no response covers.
        stopped_until: end of the last stop; `stops`: their number.
        in_a_row: refused probes in a row; `refused_route`: the route of the last one.
        passed_at: when the last request passed a limiter; -inf for none.
        heard: whether a response arrived.
        written_at: when the state was encoded.

    """

    version: int = VERSION
    max_in_flight: int = 100
    probe: bool = True
    max_stop: float = inf
    announced: Announced = field(default_factory=Announced)
    given: list[Policy] = field(default_factory=list)
    contradicted: list[tuple[str, PolicyField]] = field(default_factory=list)
    hidden: Hidden | None = field(default_factory=Hidden)
    costs: Costs = field(default_factory=Costs)
    routes: Routes = field(default_factory=Routes)
    flying: dict[int, Reservation] = field(default_factory=dict)
    numbers: int = 0
    units: float = 0.0
    doubtful: tuple[float, int] = (0.0, 0)
    doubtful_at: float = -inf
    probing: bool = True
    probes: int = 0
    most_probes: int = 1
    probe_round: int = 1
    hedge_at: float = inf
    late: int = 0
    trip: float = 0.0
    most_guesses: int = 1
    stopped_until: float = -inf
    stops: int = 0
    in_a_row: int = 0
    refused_route: str | None = None
    passed_at: float = -inf
    heard: bool = False
    written_at: float = 0.0

    # --- settings ---------------------------------------------------------------------------

    def add_limits(self, limits: Sequence[Limit]) -> None:
        """Add limits of the user to those given before."""
        for limit in limits:
            amount, window = whole(limit)
            one = Policy(amount, window, requests=not limit.units, plan=limit.plan)
            if not any(one.same(other) for other in self.given):
                self.given.append(one)
            if limit.units and self.costs.units is None:
                self.costs.units, self.costs.assumed = True, bool(limit.plan)
        if limits and self.hidden is not None and self.hidden.closed is None:
            self.hidden.most = inf

    @property
    def in_flight(self) -> int:
        """Number of requests without a response."""
        return len(self.flying)

    @property
    def full(self) -> bool:
        """Whether no place in flight is free: only a response lets a request leave."""
        return len(self.flying) >= self.max_in_flight

    @property
    def patience(self) -> float:
        """Seconds after which a request without a response is late, and holds no other."""
        return max(SOONEST_HEDGE, TRIPS * self.trip)

    # --- permitted requests -----------------------------------------------------------------

    def decide(self, now: float, cost: float, route: str = "", prior: float | None = None) -> Decision:
        """Decide when a request of `cost` units may leave."""
        if len(self.flying) >= self.max_in_flight:
            return NEVER
        if now < self.stopped_until:
            return Decision(self.stopped_until)
        hedge = self.probing and self.probes > 0
        if hedge and self.probes >= self.most_probes and now < self.hedge_at:
            return Decision(self.hedge_at)
        opens, scarce = now, None
        if self.hidden is not None and not self.probing:
            opens = self.hidden.opens_at(
                now, self._hidden_cost(cost), self._awaited(now), self._hidden_held()
            )
        for policy in self.limits:
            at = self._opens_at(policy, now, cost, route, prior, hedge=hedge)
            if at >= opens:
                opens, scarce = at, policy
        if scarce is None or opens == inf:
            return Decision(opens, probe=self.probing)
        return self._guess(now, opens, scarce, hedge=hedge)

    @property
    def limits(self) -> list[Policy]:
        """All limits but the hidden one."""
        return self.announced.policies + self.given if self.given else self.announced.policies

    def _opens_at(
        self, policy: Policy, now: float, cost: float, route: str, prior: float | None, *, hedge: bool
    ) -> float:
        """Return when a limit has units; -inf for now, inf if a response decides."""
        counted, held = policy.counted(cost), self._held(policy)
        if policy.backed(now, counted, held):
            return -inf
        if not self.flying:
            # Units that may have been counted are held back, but not for ever: the next response has them.
            # A price that is not sure is likely lower than what is held for it: alone, a request shows it.
            counted = min(counted, self.costs.alone(route, prior))
            if policy.backed(now, counted, -policy.unseen_units if policy.reported else held):
                return -inf
        if policy.announced and self.probing and not hedge and policy.reset_at <= now:
            return -inf
        at = policy.opens_at(now, counted, held)
        # No guess against a limit kept by counting: a response must arrive first.
        return inf if at <= now and not policy.announced else at

    def _held(self, policy: Policy) -> float:
        """Return what a limit holds back for requests that are, or may be, in flight."""
        return len(self.flying) + self.doubtful[1] if policy.requests else self.units + self.doubtful[0]

    def _hidden_cost(self, cost: float) -> float:
        """Return what a request counts against a hidden limit: beside announced ones, one."""
        return 1.0 if self.announced else cost

    def _hidden_held(self) -> float:
        """Return what requests in flight count against a hidden limit."""
        return float(len(self.flying)) if self.announced else self.units

    def _awaited(self, now: float) -> int:
        """Return the number of requests in flight that are not late."""
        before = now - self.patience
        for place, one in enumerate(self.flying.values()):
            if one.sent > before:
                return len(self.flying) - place
        return 0

    def _guess(self, now: float, opens: float, scarce: Policy, *, hedge: bool) -> Decision:
        """Decide about a request while a limit has no units for it until `opens`."""
        alone = len(self.flying) <= self.late
        if opens > now:
            if not alone:
                return Decision(opens)
            probes_at = scarce.probes_at(opens) if self.probe else inf
            if probes_at > now:
                return Decision(min(opens, probes_at), used_up=True)
            return Decision(now, guess=True, probe=True, inquiry=scarce, used_up=True)
        careful = not self.probe and scarce.proven
        if not alone and not hedge and (careful or self._guesses(now) >= self.most_guesses):
            return NEVER
        return Decision(now, guess=True, probe=self.probing or (self.most_guesses == 1 and alone))

    def _guesses(self, now: float) -> int:
        """Return the number of guesses in flight that are not late."""
        before = now - self.patience
        return sum(one.guess and one.sent > before for one in self.flying.values())

    def room(self, now: float, route: str = "", cost: float = 1.0) -> float:
        """Return the units of a route that may leave before a more expensive request.

        0 in a pause; and 0 if units drip, because then they are not lost but only delay that request.
        """
        decision = self.decide(now, 0.0, route)
        if decision.when > now or self.probing or decision.guess:
            return 0.0
        rooms = [inf]
        for one in self.limits:
            if one.kind == "drip":
                return 0.0
            room = one.room(now, self._held(one))
            rooms.append(cost * room if one.requests else room)
        return min(rooms)

    def wait(self, decision: Decision) -> None:
        """Record a wait by a decision: after a pause the first guess leaves alone."""
        if decision.used_up:
            self.most_guesses = 1

    def send(
        self, decision: Decision, now: float, route: str, cost: float, prior: float | None = None
    ) -> Reservation:
        """Reserve units for a request that may leave now by a decision just made."""
        self.numbers += 1
        alone = len(self.flying) <= self.late
        probe = self.probe_round if decision.probe else 0
        inquiry = decision.inquiry is not None
        reservation = Reservation(
            self.numbers, route, prior, cost, now, self.stops, probe, decision.guess, inquiry, alone
        )
        if probe:
            self._send_probe(now)
        self.wait(decision)
        if decision.inquiry is not None:
            decision.inquiry.asked = True
        if self.hidden is not None:
            self.hidden.send(now, self._hidden_cost(cost))
        if self.announced and not self.costs.known(route):
            self.routes.try_price(route, self.costs.most_unknown(prior))
        if self.routes.known:
            self.routes.send(route, now)
        self.flying[reservation.number] = reservation
        self.units += cost
        for one in self.announced.policies:
            if one.bucket is not None:
                one.bucket.send(reservation.number, now, one.counted(self.costs.likely(route, prior)))
        return reservation

    def _send_probe(self, now: float) -> None:
        if self.probes >= self.most_probes:
            self.most_probes = min(MOST_PROBES, 2 * self.most_probes)
        self.probing, self.probes = True, self.probes + 1
        self.hedge_at = now + self.patience * self.most_probes

    def hedges_at(self, now: float) -> float | None:
        """Return when one more request may join the probes; None if none is in flight."""
        if not self.probes:
            return None
        return now if self.probes < self.most_probes else self.hedge_at

    def adopt(self, sent: float, route: str, cost: float, prior: float | None = None) -> Reservation:
        """Reserve units for a request under way that another quota permitted.

        It is a probe as long as nothing is known: others wait for its response.
        """
        units, requests = self.doubtful
        if requests and sent <= self.doubtful_at:
            self.doubtful = max(0.0, units - cost), requests - 1
        unknown = self.probing and not self.announced
        return self.send(Decision(sent, probe=unknown), sent, route, cost, prior)

    def holds(self, reservation: Reservation, now: float) -> bool:
        """Return whether a request granted just before may still leave."""
        stopped = reservation.stops != self.stops or now < self.stopped_until
        return not stopped and now >= self.routes.closed_until(reservation.route)

    def hold_back(self, until: float) -> None:
        """Stop all requests until a time: another client of the quota met a refusal."""
        self.stopped_until = max(self.stopped_until, until)

    # --- end of a reservation ---------------------------------------------------------------

    def unsent(self, reservation: Reservation) -> None:
        """Take back an unused reservation."""
        self._land(reservation, counted=False)
        if reservation.probe == self.probe_round:
            self._end_probe(reservation)
        if reservation.inquiry:
            for policy in self.announced.policies:
                policy.asked = policy.answered

    def lost(self, reservation: Reservation, now: float) -> None:
        """Record a lost response: the service may have counted the request."""
        self._land(reservation)
        if reservation.probe == self.probe_round:
            self.most_probes = min(MOST_PROBES, 2 * self.most_probes)
            self._end_probe(reservation)
        self._spend(reservation, now)

    def answered(
        self, reservation: Reservation, now: float, status: int, info: RateLimitInfo, jitter: float
    ) -> Verdict:
        """Record a response, and return its meaning; `jitter` is random, from 0 to 1."""
        self._land(reservation, counted=status != 429)
        if status >= 500 and info.remaining is None:
            # It may not have met the limiter. A retry-after concerns this route, and is not kept here.
            if reservation.probe == self.probe_round:
                self.most_probes = min(FAULTY, self.most_probes + 1)
                self._end_probe(reservation)
            self._spend(reservation, now)
            return Verdict.PASSED
        self.heard = True
        was_probe = self._end_probing(reservation, now)
        policy = self._read(reservation, now, info, refused=status == 429)
        if status == 429:
            return self._refused(reservation, now, info, policy, jitter, was_probe=was_probe)
        self._passed(reservation, now, status, info)
        self._account(reservation, now, info, policy, refused=False, probe=was_probe)
        if self.doubtful[1] and reservation.sent >= self.doubtful_at:
            self._count_doubtful(now)
        return Verdict.PASSED

    def _land(self, reservation: Reservation, *, counted: bool = True) -> None:
        """Count a request out, which the service `counted` unless it refused it."""
        del self.flying[reservation.number]
        for one in self.announced.policies:
            if one.bucket is not None:
                one.bucket.land(reservation.number, counted=counted)
        # Reset to exactly zero, or rounding errors would accumulate over the years.
        self.units = self.units - reservation.cost if self.flying else 0.0
        if reservation.probe and reservation.probe != self.probe_round:
            self.late -= 1
        if self.routes.known:
            self.routes.landed(reservation.route)

    def _end_probe(self, reservation: Reservation) -> None:
        """Record that a probe ended without information: another one may follow.

        A guess while units are used up is not: without it, they come back all the same.
        """
        self.probes -= 1
        if reservation.guess and not self.probes:
            self.probing = False

    def _end_probing(self, reservation: Reservation, now: float) -> bool:
        """Record a response; return whether it was to a probe, which ends probing."""
        trip = now - reservation.sent
        self.trip += 0.1 * (trip - self.trip) if self.trip else trip
        self.most_probes = 1
        if not reservation.probe or reservation.probe != self.probe_round:
            return False
        # The other probes are requests in flight from now on: what they show is older than this response.
        self.probe_round += 1
        self.late += self.probes - 1
        self.probing, self.probes = False, 0
        return True

    def _spend(self, reservation: Reservation, now: float) -> None:
        """Record a request that the service may have counted."""
        cost = reservation.cost = self.costs.shown(reservation.route, reservation.prior)
        self.costs.unreported()
        for one in self.limits:
            one.spend(reservation.sent, now, one.counted(cost))

    def _count_doubtful(self, now: float) -> None:
        """Count the units that an earlier host left in flight."""
        (units, requests), self.doubtful = self.doubtful, (0.0, 0)
        for one in self.limits:
            if not one.reported:
                one.spend(self.doubtful_at, now, requests if one.requests else units)

    # --- responses --------------------------------------------------------------------------

    def _read(
        self, reservation: Reservation, now: float, info: RateLimitInfo, *, refused: bool
    ) -> Policy | None:
        """Update the limits that a response names; return the one that its numbers report."""
        known, announced = self.announced.last, self.announced
        policy = announced.read(info, now, 0.0 if refused else reservation.cost, refused=refused)
        if announced and (announced.last is not known or refused):
            if self.hidden is not None and not self.hidden.inner:
                self.hidden = None
            self.costs.announced(min(one.limit for one in announced.policies))
        if self.given:
            self._judge_plans(info)
        return policy

    def _judge_plans(self, info: RateLimitInfo) -> None:
        """Drop the plans that a response contradicts, with their limits."""
        for name in {one.plan for one in self.given if one.plan}:
            plan = [one for one in self.given if one.plan == name]
            announced = contradiction(plan, info, counts_requests=self.costs.units is False)
            if announced is not None:
                self.contradicted.append((name, announced))
                self.given = [one for one in self.given if one.plan != name]
                if all(one.requests for one in self.given):
                    self.costs.units = None  # the plan alone said so

    def _passed(self, reservation: Reservation, now: float, status: int, info: RateLimitInfo) -> None:
        """Learn from a request that was not refused."""
        met = info.remaining is not None or not any(one.reported for one in self.announced.policies)
        if met:
            # Else it may not have met a limiter at all, and refusals may follow.
            self.in_a_row, self.refused_route, self.passed_at = 0, None, now
        if self.routes.known:
            self.routes.passed(reservation.route, reservation.sent)
        if reservation.guess and (met or self.most_guesses < CAUTIOUS):
            self.most_guesses += 1
        if self.hidden is not None:
            cost, held = self._hidden_cost(reservation.cost), self._hidden_held()
            self.hidden.succeeded(reservation.sent, now, cost, held, answered=status < 400)
            if self.announced and self.hidden.disproved:
                self.hidden = None

    def _account(
        self,
        reservation: Reservation,
        now: float,
        info: RateLimitInfo,
        policy: Policy | None,
        *,
        refused: bool,
        probe: bool,
    ) -> None:
        """Record the cost of a request, and what its response reports of each limit."""
        claims = self.announced.claims(info) if policy is not None else {}
        cost = reservation.cost = self.costs.shown(reservation.route, reservation.prior)
        for place, one in enumerate(self.limits):
            claim = claims.get(place) if one.announced else None
            if claim is not None and not (refused and one.on_refusal):
                remaining, reset = claim
                self._record(one, reservation, now, remaining, refused=refused, probe=probe)
                if reset is not None and not refused and remaining <= one.left:
                    # Otherwise responses that overtook it are newer.
                    one.announce_reset(now, min(reset, self.max_stop))
            elif not refused:
                over = one.announced and one.reset_at <= reservation.sent
                if over and not one.backed(now, cost, 0.0):
                    # The wait is over, and a request passed; no response reported the units back.
                    one.restart()
                if one is self.announced.first:
                    self.costs.unreported()
                one.spend(reservation.sent, now, one.counted(cost))
            elif one is policy and one.on_refusal:
                one.restart()
        if self.routes.known and self.costs.known(reservation.route):
            self.routes.priced(reservation.route)

    def _record(
        self,
        one: Policy,
        reservation: Reservation,
        now: float,
        remaining: float,
        *,
        refused: bool,
        probe: bool,
    ) -> None:
        """Record the reported remainder of a limit, and what it shows of prices."""
        sent, costs, first = reservation.sent, self.costs, not one.reported
        cost, least, sure = reservation.cost, costs.low(reservation.route), costs.sure(reservation.route)
        if refused:
            cost = least = 0.0
        ends_soon = one.kind != "drip" and one.returns_by(now + 2.0 * self.trip)
        if probe and not refused and not first:
            found = remaining + (cost if sure else least)
            one.classify(sent, now, found, sure=sure, inquiry=reservation.inquiry)
        oldest = next(iter(self.flying.values())).sent if self.flying else now
        came_back = one.record(sent, now, remaining, cost, oldest, careful=not self.probe)
        one.follow(sent, remaining, least, self._held(one))
        if one is not self.announced.first:
            return
        if refused:
            if came_back:
                costs.begin(now, sent, one.left, quiet=not self.flying)
        elif one.sized and one.kind != "drip" and (first or (came_back and probe)):
            self._compare(one, reservation, now, begin=-inf)  # at most the whole limit was left
        else:
            self._compare(one, reservation, now, begin=now if came_back or ends_soon else None)

    def _compare(self, one: Policy, reservation: Reservation, now: float, *, begin: float | None) -> None:
        """Learn prices from a report and the first one, which may `begin` anew."""
        costs, route, sent, drips = self.costs, reservation.route, reservation.sent, one.kind == "drip"
        drip = 0.0 if one.kind == "window" else one.drip(1.0)
        if drips and one.named_window:  # units come back all the time: only more than may drip count
            begin = now if costs.came_back(sent, now, one.left, drip) else None
        if begin == -inf:
            costs.begin(-inf, -inf, one.limit, quiet=False)
        elif begin is not None:
            costs.begin(now, sent, one.left, quiet=not self.flying)
        alone = not self.flying
        before = () if alone else self._before(sent)
        costs.report(route, reservation.prior, sent, now, one.left, drip, before, alone=alone, drips=drips)

    def _before(self, sent: float) -> Iterator[str]:
        """Yield the routes of the requests in flight that a response may include."""
        return (one.route for one in takewhile(lambda one: one.sent <= sent, self.flying.values()))

    # --- refusals ---------------------------------------------------------------------------

    def _refused(
        self,
        reservation: Reservation,
        now: float,
        info: RateLimitInfo,
        policy: Policy | None,
        jitter: float,
        *,
        was_probe: bool,
    ) -> Verdict:
        """Stop requests after a refusal, and return its meaning."""
        route, announced = reservation.route, info.retry_after is not None or bool(info.reset)
        wait = min(hold(429, info), self.max_stop) if announced else None
        left = self._left(reservation, info.remaining, policy)
        inner = self._is_inner(reservation, wait, left)
        shared = inner and self._is_shared(reservation, now, left)
        if not shared and self.routes.concerns_only(route, now, left):
            self.probing = self.probing or was_probe  # it showed nothing about the quota
            whole = policy is not None and info.remaining == policy.limit
            self._account(reservation, now, info, policy, refused=True, probe=was_probe)
            return self._close_route(route, now, wait, jitter, whole=whole)
        if reservation.alone and not left and policy is not None and info.remaining is not None:
            self.costs.refused(route, info.remaining)
        self._stop(reservation, now, wait, policy, jitter, inner=inner, was_probe=was_probe)
        if left is None and was_probe:
            if route == self.refused_route:
                self.routes.step_back(route, now, self.stopped_until)
            self.refused_route = route
        self._account(reservation, now, info, policy, refused=True, probe=was_probe)
        if not inner and policy is not None:
            sure, guess = self.costs.sure(route), reservation.guess or was_probe
            policy.refused(now, self.stopped_until, announced=announced, sure=sure, guess=guess)
        # Waits that nobody announced end some time: a call waits for its turn only as long as some pass.
        patient = self.passed_at > -inf and now - self.passed_at <= self.max_stop
        return Verdict.UNANNOUNCED if inner or (wait is None and patient) else Verdict.QUOTA

    def _stop(
        self,
        reservation: Reservation,
        now: float,
        wait: float | None,
        policy: Policy | None,
        jitter: float,
        *,
        inner: bool,
        was_probe: bool,
    ) -> None:
        """Stop all requests until the next one may try."""
        self.in_a_row += was_probe
        if inner and self.hidden is None:
            self.hidden = Hidden(inner=True)
        if self.hidden is not None and (inner or not self.announced):
            self.hidden.refused(reservation.sent, now, self._hidden_held(), wait)
        tries_at = self._tries_at(reservation, now, wait, policy, jitter)
        self.stopped_until, self.stops = max(self.stopped_until, tries_at), self.stops + 1
        self.probing, self.most_guesses = True, 1

    def _left(self, reservation: Reservation, remaining: float | None, policy: Policy | None) -> bool | None:
        """Return whether quota is left for a request and those in flight; None if unknown."""
        if policy is None or remaining is None:
            return None
        needed = max(reservation.cost, reservation.prior or 0.0, LEFT * policy.limit, 1.0)
        return remaining - self.units >= min(needed, policy.limit)

    def _is_inner(self, reservation: Reservation, wait: float | None, left: bool | None) -> bool:
        """Return whether a refusal shows a limit that is not announced."""
        longest = SOON
        if self.hidden is not None and self.hidden.drip is not None:
            longest = max(SOON, 2.0 / self.hidden.drip.rate)
        if not self.announced or reservation.route not in self.costs.prices:
            return False
        if wait is not None and wait > longest:
            return False
        if left is not None:
            return left
        now = reservation.sent
        return all(one.backed(now, reservation.cost, 0.0) for one in self.announced.policies)

    def _is_shared(self, reservation: Reservation, now: float, left: bool | None) -> bool:
        """Return whether an unannounced limit surely concerns more than one closed route."""
        route = reservation.route
        if self.hidden is not None:
            return not reservation.probe
        others = any(map(self.costs.known, self.routes.closed(now, route)))
        return bool(left) and (self.routes.passes_alone(route) or others)

    def _close_route(
        self, name: str, now: float, wait: float | None, jitter: float, *, whole: bool
    ) -> Verdict:
        """Stop the requests of one route; `whole` if the whole limit was left."""
        route = self.routes.refuse(name, now)
        if wait is None or route.refusals > 1:
            wait = max(wait or 0.0, self._backoff(route.refusals, jitter))
        route.until = max(route.until, now + wait)
        return Verdict.TOO_EXPENSIVE if whole and route.refusals > 1 else Verdict.ROUTE

    def _backoff(self, refusals: int, jitter: float, window: float | None = None) -> float:
        """Return 1, 2, 4 ... 60 seconds with jitter, and more for a long known window."""
        return (0.5 + 0.5 * jitter) * backoff(refusals, max(LONGEST_BACKOFF, OF_WINDOW * (window or 0.0)))

    def _tries_at(
        self, reservation: Reservation, now: float, wait: float | None, policy: Policy | None, jitter: float
    ) -> float:
        """Return when the next request may try."""
        pause = self._backoff(self.in_a_row, jitter, None if policy is None else policy.window)
        if wait is not None:
            return now + (wait if self.in_a_row < 2 else max(wait, pause))
        hidden = self.hidden
        if hidden is not None and (policy is None or hidden.drip is not None):
            return self.stopped_until if now < self.stopped_until else hidden.tries_at(now, jitter)
        if policy is not None and self.in_a_row < 2:
            opens = policy.opens_at(now, reservation.cost, 0.0)
            if now + pause < opens < inf:
                return opens
        return now + pause

    # --- forecasts --------------------------------------------------------------------------

    def forecast(self, now: float, units: float, requests: float = 1.0, *, least: bool = False) -> float:
        """Return the seconds until a request leaves, `units` including all before it.

        `requests` is their number. With `least`, the earliest possible time: an estimate alone must fail no
        request. `units` excludes requests in flight, and the forecast the time of responses.
        """
        stop = max(now, self.stopped_until)
        ends = [stop - now]
        for one in self.limits:
            needed = requests if one.requests else units
            ends.append(one.wait_for(now, needed, self._held(one), least=least, probe=self.probe))
        if self.hidden is not None:
            seconds = self.hidden.wait_for(stop, units, requests + len(self.flying), self.units, least=least)
            ends.append(stop - now + (EARLIEST if least else 1.0) * seconds)
        return max(ends)

    def promise(self, now: float, seconds: float) -> float:
        """Return the seconds after which a new attempt would leave at once."""
        if self.hidden is not None:
            seconds = max(seconds, self.hidden.surely_at(now) - now)
        # Responses under way may still report a time that is a round trip later.
        return seconds + (max(ROUNDED, self.trip) if self.flying else 0.0)

    def snapshot(self, now: float, waiting: int, unix_time: float | None = None) -> QuotaSnapshot:
        """Return the known state, for people to read."""
        plan = min(
            (one for one in self.given if one.plan),
            key=lambda one: one.left_at(now) / one.limit,
            default=None,
        )
        learned = None if self.hidden is None else self.hidden.learned
        policy = self.announced.first or learned or plan
        stop, reset = max(0.0, self.stopped_until - now), None
        if not stop:
            opens = now
            for one in (*self.limits, *([] if learned is None else [learned])):
                held = len(self.flying) if one.requests else self.units
                at = now if one.backed(now, 1.0, held) else one.opens_at(now, 1.0, held)
                if at > opens:
                    opens, policy = at, one
            reset = opens - now if now < opens < inf else None
        return QuotaSnapshot(
            time=now,
            limit=policy.limit if policy else None,
            remaining=policy.left_at(now) if policy else None,
            window=policy.window if policy else None,
            stopped_for=stop,
            reset_in=stop or reset,
            costs=self.costs.learned,
            waiting=waiting,
            in_flight=len(self.flying),
            unix_time=unix_time,
            counts_requests=policy is not None and policy.requests,
            plan="" if plan is None else plan.plan,
        )

    # --- the next host ----------------------------------------------------------------------

    def encode(self, now: float) -> bytes:
        """Return the state, for the next host of a shared quota."""
        self.written_at = now
        return _ENCODER.encode(self)

    def restore(self, state: bytes, now: float, age: float) -> float | None:
        """Continue from a state encoded `age` seconds ago; return its time now.

        None if it does not count: it is malformed, too old, or a response arrived already, which is newer. A
        probe leaves first all the same, because others may have sent requests since then.
        """
        other = _decoded(state) if age <= OLDEST and not self.heard else None
        if other is None:
            return None
        then, shift = other.written_at, other.written_at + age - now
        for one in other.given:
            # Without reports, the units count as spent that were likely spent until now.
            recent = one.ledger.outstanding - one.ledger.sent_by(then - RECENT)
            one.spend(then, then + age, recent * min(1.0, age / RECENT))
        self.given = [*other.given, *(one for one in self.given if not any(map(one.same, other.given)))]
        self.announced, self.hidden, self.costs = other.announced, other.hidden, other.costs
        self.routes = other.routes
        for route in self.routes.known.values():
            route.in_flight = 0
        for one in self.announced.policies:
            if one.bucket is not None:
                one.bucket.sent.clear()
        self.in_a_row, self.refused_route = other.in_a_row, other.refused_route
        self.passed_at, self.trip = other.passed_at, self.trip or other.trip
        self.stopped_until = max(self.stopped_until + shift, other.stopped_until)
        self.doubtful_at = then
        self.doubtful = other.units + other.doubtful[0], len(other.flying) + other.doubtful[1]
        for reservation in self.flying.values():
            reservation.sent += shift
        self.probing, self.hedge_at = True, self.hedge_at + shift
        return then + age


def _decoded(state: bytes) -> Quota | None:
    """Return the quota of a state; None if it is malformed or of another version."""
    if not state or len(state) > LONGEST_STATE:
        return None
    try:
        quota = _DECODER.decode(state)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return quota if quota.version == VERSION else None


_ENCODER = Encoder()
_DECODER: Decoder[Quota] = Decoder(Quota)
