"""Quota of a service: the units its responses report, and the requests allowed.

Pure arithmetic: times are seconds on any monotonic clock and arguments, like the jitter. The rules, in the
order in which they apply:

1. A refusal stops all requests until its wait ends; the end only moves later
   (`chainapi.core.limits.refusals`). A refusal that shows quota left stops only its route
   (`chainapi.core.limits.scope`).
2. The first request, and the first after every pause, leaves alone: the probe. Others follow a probe without
   a response, twice as many each time, until one of them is answered (`chainapi.core.limits.probe`).
3. The first request of a route with an unknown price leaves alone too (`chainapi.core.limits.costs`).
4. The units that a response reported to remain, minus those in flight, may leave at once, of each limit
   (`chainapi.core.limits.in_force`, `chainapi.core.limits.in_flight`, `chainapi.core.limits.balance`).
5. The units predicted to be back since then (`chainapi.core.limits.returns`) may leave too, few at first and
   more with every response that reports what remains (`chainapi.core.limits.guesses`).
6. Used up, with nothing in flight and a long wait ahead: one probe shows when the quota comes back.
7. Refusals show a limit that no response announces (`chainapi.core.limits.discovery`), which then paces
   requests. If there are announced limits, that holds for refusals while those have quota left.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from attrs import define, field

from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi._limits.view import Limit, QuotaSnapshot
from chainapi.core.limits.costs import Costs
from chainapi.core.limits.forecast import Forecast
from chainapi.core.limits.guesses import Guesses
from chainapi.core.limits.in_flight import InFlight
from chainapi.core.limits.in_force import LimitsInForce
from chainapi.core.limits.memory import OLDEST, VERSION, MemoryPart, amount, encode, read
from chainapi.core.limits.modes import Mode
from chainapi.core.limits.policy import Policy
from chainapi.core.limits.probe import Probes
from chainapi.core.limits.refusals import Refusals
from chainapi.core.limits.reservation import NEVER, Decision, Reservation
from chainapi.core.limits.scope import Routes
from chainapi.core.limits.verdict import Verdict

__all__ = ["Quota"]


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
    _limits: Sequence[Limit] = field(default=(), alias="limits")
    probe: bool = True
    max_stop: float = inf
    contradicted: list[tuple[str, PolicyField]] = field(init=False)  # see `LimitsInForce`
    costs: Costs = field(factory=Costs, init=False)
    routes: Routes = field(factory=Routes, init=False)
    probes: Probes = field(factory=Probes, init=False)
    _in_flight: InFlight = field(factory=InFlight, init=False)
    _in_force: LimitsInForce = field(init=False)
    _guesses: Guesses = field(init=False)
    _refusals: Refusals = field(init=False)
    _forecast: Forecast = field(init=False)
    _taught: bool = field(default=False, init=False)  # by a response

    def __attrs_post_init__(self) -> None:
        self._in_force = LimitsInForce(self.costs, self._in_flight)
        self.contradicted = self._in_force.contradicted
        self._guesses = Guesses(self._in_flight)
        self._refusals = Refusals(self._in_force, self.costs, self.routes)
        self._forecast = Forecast(self._in_force, self._in_flight, self._refusals, self.probes)
        self.add_limits(self._limits)

    def add_limits(self, limits: Sequence[Limit]) -> None:
        """Add limits given by the user to those given before."""
        self._in_force.add(limits)

    @property
    def in_flight(self) -> int:
        """Return the number of requests without a response."""
        return self._in_flight.number

    @property
    def full(self) -> bool:
        """Whether no place in flight is free: only a response lets a request leave."""
        return self._in_flight.number >= self.max_in_flight

    @property
    def mode(self) -> Mode:
        """Return the mode that the last event led to."""
        return self.probes.mode

    @property
    def stopped_until(self) -> float:
        """Return the end of the last stop; -inf before the first one."""
        return self._refusals.stopped_until

    # --- permitted requests ---------------------------------------------------------------

    def decide(self, now: float, cost: float, route: str = "") -> Decision:
        """Decide when a request of `cost` units may leave; change nothing."""
        number, limits = self._in_flight.number, self._in_force
        if number >= self.max_in_flight:
            return NEVER
        if now < self._refusals.stopped_until:
            return Decision(self._refusals.stopped_until)
        probes = self.probes
        hedge = probes.opens_at(now) if probes.in_flight else None
        if hedge is not None and hedge > now:
            return Decision(hedge)
        number -= len(probes.late)
        if number and hedge is None and self._alone(route):
            return NEVER
        probe, opens = probes.next or hedge is not None, now
        if limits.discovery is not None and not probe:
            opens = limits.discovery.opens_at(now, number)
        opens, scarce = limits.scarcest(now, cost, opens, probe=probes.next)
        if scarce is None or opens == inf:
            return Decision(opens, probe=probe)
        return self._guesses.decide(
            now, opens, scarce, probe=probe, hedge=hedge is not None, inquiries=self.probe
        )

    def _alone(self, route: str) -> bool:
        """Return whether a request must leave alone because its cost is unknown."""
        return self._in_force.announced.latest is not None and not self.costs.known(route)

    def room(self, now: float, route: str = "", cost: float = 1.0) -> float:
        """Return the units of a route that may leave before a more expensive request.

        0 in a pause; and 0 if units drip, because then they are not lost but only delay that request.
        """
        decision = self.decide(now, 0.0, route)
        if decision.when > now or self.probes.next or decision.guess:
            return 0.0
        return self._in_force.room(cost)

    def wait(self, decision: Decision) -> None:
        """Record a wait by a decision: after a pause the first guess leaves alone."""
        if decision.used_up:
            self._guesses.restart()
            self.probes.used_up()

    def send(
        self, decision: Decision, now: float, route: str, cost: float, prior: float | None = None
    ) -> Reservation:
        """Reserve units for a request that may leave now by a decision just made."""
        alone, discovery = self._in_flight.number == len(self.probes.late), self._in_force.discovery
        probe, stops = decision.probe, self._refusals.stops
        reservation = Reservation(route, cost, now, stops, probe, decision.guess, prior, alone)
        if probe or (alone and self._alone(route)):
            self.probes.send(reservation, now)
        else:
            self.probes.sent_other()
        if decision.used_up:
            self._guesses.restart()
        if decision.inquiry is not None:
            reservation.inquiry = decision.inquiry
            decision.inquiry.returns.probed = True
        if discovery is not None:
            discovery.send(now, self._in_force.counted(cost))
        if self.routes.known:
            self.routes.send(route)
        self._in_flight.add(reservation)
        return reservation

    def adopt(self, sent: float, route: str, cost: float, prior: float | None = None) -> Reservation:
        """Reserve units for a request under way that another quota permitted.

        It is a probe as long as nothing is known: others wait for its response.
        """
        unknown = self.mode in (Mode.LEARNING, Mode.PROBING) and not self._in_force.restored
        self._in_flight.found(sent, cost)
        return self.send(Decision(sent, probe=unknown), sent, route, cost, prior)

    def holds(self, reservation: Reservation, now: float) -> bool:
        """Return whether a request granted just before may still leave."""
        return reservation.stops == self._refusals.stops and now >= self._refusals.stopped_until

    def hold_back(self, until: float) -> None:
        """Stop all requests until a time: another client of the quota met a refusal."""
        self._refusals.stop(until)

    # --- end of a reservation ---------------------------------------------------------------

    def unsent(self, reservation: Reservation) -> None:
        """Take back an unused reservation."""
        self._land(reservation)
        self.probes.unsent(reservation)
        if reservation.inquiry is not None:
            reservation.inquiry.returns.probed = False

    def lost(self, reservation: Reservation, now: float) -> None:
        """Record a lost response: the service may have counted the request."""
        self._land(reservation)
        self.probes.lost(reservation)
        self._in_force.doubt(reservation, now)

    def answered(
        self, reservation: Reservation, now: float, status: int, info: RateLimitInfo, jitter: float
    ) -> Verdict:
        """Record a response, and return its meaning; `jitter` is random, from 0 to 1."""
        self._land(reservation)
        if status >= 500 and info.remaining is None:
            # It may not have met the limiter. A retry-after concerns this route, and is not kept here.
            self.probes.faulty(reservation)
            self._in_force.doubt(reservation, now)
            return Verdict.PASSED
        self._taught = True
        self.probes.answered(reservation, now)
        refused = status == 429
        policy = self._in_force.read(reservation, now, info, refused=refused)
        if refused:
            return self._refused(reservation, now, info, policy, jitter)
        self._passed(reservation, now, status, info, policy)
        self._in_force.account(reservation, now, info, policy, refused=False, max_stop=self.max_stop)
        return Verdict.PASSED

    def _refused(
        self, reservation: Reservation, now: float, info: RateLimitInfo, policy: Policy | None, jitter: float
    ) -> Verdict:
        """Stop requests after a refusal, and return its meaning."""
        verdict, used_up = self._refusals.refused(
            reservation, now, info, policy, jitter=jitter, max_stop=self.max_stop
        )
        if verdict is Verdict.QUOTA or verdict is Verdict.UNANNOUNCED:
            self.probes.refused()
            self._guesses.restart()
        else:
            self.probes.route_refused(reservation)
        self._in_force.account(reservation, now, info, policy, refused=True, max_stop=self.max_stop)
        if used_up is not None:
            backed = not reservation.guess and not reservation.probe
            used_up.refused(now, self._refusals.stopped_until, reservation.cost, backed=backed)
        return verdict

    def _passed(
        self, reservation: Reservation, now: float, status: int, info: RateLimitInfo, policy: Policy | None
    ) -> None:
        """Learn from a request that was not refused."""
        limits, route = self._in_force, reservation.route
        reported = info.remaining is not None
        met = reported or not any(one.balance.reported for one in limits.policies)
        if met:
            # Else it may not have met a limiter at all, and refusals may follow.
            self._refusals.passed()
        if self.routes.known:
            self.routes.passed(route, reservation.sent)
        reservation.counted = status < 400 and not reservation.probe and not reservation.guess
        if reservation.guess:
            self._guesses.passed(reported=met)
        if reservation.alone and not self.costs.known(route):
            self.costs.tried(route, reported=reported)
            if policy is not None and policy.sized:
                self._price(reservation, info.remaining, policy)
        if limits.discovery is not None:
            limits.find(limits.discovery, reservation, now, status)

    def _price(self, reservation: Reservation, left: float | None, policy: Policy) -> None:
        """Learn the cost of a request sent alone, from units `left` now and before it."""
        balance = policy.balance
        before = balance.remaining if balance.sure else None
        paused = reservation.probe and before is not None  # units came back in the pause before it
        if left is not None and not paused:
            self.costs.alone(reservation.route, reservation.prior, before, balance.limit, left)

    def _land(self, reservation: Reservation) -> None:
        self._in_flight.remove(reservation)
        if self.routes.known:
            self.routes.landed(reservation.route)

    # --- forecasts --------------------------------------------------------------------------

    def forecast(self, now: float, units: float, requests: float = 1.0, *, least: bool = False) -> float:
        """Return the seconds until a request leaves: see `Forecast.wait`."""
        return self._forecast.wait(now, units, requests, least=least, probe=self.probe)

    def promise(self, now: float, seconds: float) -> float:
        """Return the seconds after which a new attempt would leave at once."""
        return self._forecast.promise(now, seconds)

    def snapshot(self, now: float, waiting: int, unix_time: float | None = None) -> QuotaSnapshot:
        """Return the known state, for people to read."""
        return self._forecast.snapshot(now, waiting, unix_time)

    # --- memory -----------------------------------------------------------------------------

    def memory(self, now: float) -> bytes:
        """Return the learned state as bytes, for the next host of a shared quota.

        Units in flight are part of it as units that may have been counted.
        """
        in_flight = self._in_flight
        part = MemoryPart(
            VERSION,
            self._in_force.memory(now),
            self.costs.memory(),
            self._refusals.memory(now),
            self.routes.memory(now),
            amount(in_flight.units + in_flight.lost),
            in_flight.number,
            None if in_flight.number else min(self.decide(now, 1.0).when - now, OLDEST),
            amount(self.probes.trip),
        )
        return encode(part)

    def restore(self, memory: bytes, now: float, age: float) -> bool:
        """Continue from a memory made `age` seconds ago; return whether it counts.

        It does not if it is malformed, too old, or if a response arrived already: that is newer. A probe
        leaves first all the same, because others may have sent requests since then.
        """
        part = read(memory) if age <= OLDEST and not self._taught else None
        if part is None:
            return False
        then, idle = now - age, part.idle is not None and age <= part.idle
        self.costs.restore(part.costs)
        self._in_force.restore(part.limits, then, now, idle=idle)
        self._refusals.restore(part.refusals, then)
        self.routes.restore(part.routes, then)
        self._in_flight.restore(then, part.doubtful, part.in_flight)
        self.probes.restore(part.trip)
        return True
