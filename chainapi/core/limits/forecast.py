"""Forecasts of a quota: waits for callers, and snapshots for people."""

from __future__ import annotations

from math import inf

from attrs import define

from chainapi._limits.view import QuotaSnapshot
from chainapi.core.limits.in_flight import InFlight
from chainapi.core.limits.in_force import LimitsInForce
from chainapi.core.limits.policy import Policy
from chainapi.core.limits.probe import Probes
from chainapi.core.limits.refusals import Refusals

__all__ = ["Forecast"]

ROUNDED = 0.05  # seconds by which a promise exceeds a forecast at least while requests are in flight
ESTIMATE = 0.75  # of the time predicted from a measured pace: the real pace may be faster


@define(eq=False, repr=False)
class Forecast:
    """Forecast of the time when requests may leave, by the limits and the last stop."""

    limits: LimitsInForce
    in_flight: InFlight
    refusals: Refusals
    probes: Probes

    def wait(self, now: float, units: float, requests: float, *, least: bool, probe: bool) -> float:
        """Return the seconds until a request leaves, `units` including all before it.

        `requests` is their number. With `least`, the earliest possible time: an estimate alone must fail
        no request; with `probe`, a probe may still show that units drip. `units` excludes requests in
        flight, and the forecast excludes the time of responses.
        """
        limits, discovery = self.limits, self.limits.discovery
        stop, held = max(now, self.refusals.stopped_until), self.in_flight.units + self.in_flight.lost
        ends = [stop - now]
        for one in limits.policies:
            one.balance.collect(now)
            needed, beside = (requests, limits.held(one)) if one.requests else (units, held)
            ends.append(one.wait_for(now, needed, beside, least=least, probe=probe))
        if discovery is not None:
            counted = requests + self.in_flight.number if limits.announced.known else units + held
            seconds = discovery.wait_for(stop, counted, least=least)
            ends.append(stop - now + (ESTIMATE if least else 1.0) * seconds)
        return max(ends)

    def promise(self, now: float, seconds: float) -> float:
        """Return the seconds after which a new attempt would leave at once."""
        if self.limits.discovery is not None:
            seconds = max(seconds, self.limits.discovery.surely_at(now) - now)
        # Responses under way may still report a time that is a round trip later.
        return seconds + (max(ROUNDED, self.probes.trip) if self.in_flight.number else 0.0)

    def _used_up(self, now: float) -> tuple[float, Policy | None]:
        """Return the policy that holds a request back for the longest, and until when."""
        opens, used_up = now, None
        for one in self.limits.policies:
            one.balance.collect(now)
            held = self.in_flight.number if one.requests else self.in_flight.units
            if not one.balance.backed(1.0, held) and (at := one.opens_at(now, 1.0, held)) > opens:
                opens, used_up = at, one
        return opens, used_up

    def snapshot(self, now: float, waiting: int, unix_time: float | None) -> QuotaSnapshot:
        """Return the known state, for people to read."""
        limits = self.limits
        policy, discovery = limits.announced.latest, limits.discovery
        if policy is None and discovery is not None:
            policy = discovery.learned
        plan = limits.plan
        if policy is None and plan is not None:
            policy = plan[1]
        stopped = self.refusals.stopped_until if self.refusals.stopped_until > now else None
        reset = stopped
        if stopped is None:
            opens, used_up = self._used_up(now)
            policy, reset = used_up or policy, opens if now < opens < inf else None
        return QuotaSnapshot(
            time=now,
            limit=policy.limit if policy else None,
            remaining=policy.left_at(now) if policy else None,
            window=policy.window if policy else None,
            stopped_for=0.0 if stopped is None else stopped - now,
            reset_in=None if reset is None else reset - now,
            costs=dict(limits.costs.learned),
            waiting=waiting,
            in_flight=self.in_flight.number,
            unix_time=unix_time,
            requests=policy is not None and policy.requests,
            plan="" if plan is None else plan[0],
        )
