"""Retry rules: backoff with jitter, attempts of a call, a session's retry budget."""

from __future__ import annotations

from attrs import define, field
from msgspec import Struct

__all__ = ["RETRIED_STATUSES", "RetryBudget", "RetryPolicy", "RetryState"]

# 429 is retried as well, but the gate waits for it: all requests of the quota wait together.
RETRIED_STATUSES = frozenset({500, 502, 503, 504})

# A 429 weighs less than a fault: it names the time to come back, and the first request in the queue tries on
# behalf of all others. The end of a fault is unknown.
REFUSALS_PER_ATTEMPT = 5


class RetryPolicy(Struct, frozen=True):
    """Number of attempts of one call, and the pauses between them.

    `max_attempts` counts requests, the first included; 1 retries nothing. `base` and `cap` are seconds:
    the n-th pause is drawn from 0 to `min(cap, base * 2 ** n)` ("full jitter").
    """

    max_attempts: int = 5
    base: float = 0.5
    cap: float = 20.0

    @property
    def max_refusals(self) -> int:
        """Number of 429s that one call takes before it gives up."""
        return (self.max_attempts - 1) * REFUSALS_PER_ATTEMPT

    def backoff(self, state: RetryState, jitter: float, retry_after: float | None = None) -> float:
        """Return the seconds to wait after a fault, never less than `retry_after`.

        `jitter` is in [0, 1).
        """
        drawn = jitter * min(self.cap, self.base * 2.0 ** min(state.faults, 64))
        return drawn if retry_after is None else max(drawn, retry_after)


class RetryState(Struct, eq=False):
    """Failed requests of one call so far."""

    faults: int = 0
    refusals: int = 0

    def fault(self, policy: RetryPolicy) -> bool:
        """Count a fault; return whether another attempt is left.

        A fault is a 5xx, a response that is not whole, or a body that is no JSON.
        """
        self.faults += 1
        return self.faults < policy.max_attempts

    def refused(self, policy: RetryPolicy, *, patient: bool = False) -> bool:
        """Count a 429 of the whole quota; return whether another attempt is left.

        A `patient` call always has one: the gate tries on behalf of all calls, ever more slowly.
        """
        self.refusals += 1
        return patient or self.refusals <= policy.max_refusals

    def route_refused(self, policy: RetryPolicy) -> bool:
        """Count a 429 of the call's own route; return whether another attempt is left."""
        self.refusals += 1
        return self.refusals < policy.max_attempts


@define(eq=False, repr=False)
class RetryBudget:
    """Retry budget: tokens that all calls of a session share.

    With it, an outage does not multiply the load. A retry costs 5, after a timeout 10; its success gives that
    back, a first success gives 1. Without tokens a fault is raised at once; the first attempt of a call is
    never held back.
    """

    capacity: float = 500.0
    level: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.level = self.capacity

    def spend(self, *, timed_out: bool) -> float | None:
        """Take the cost of one retry and return it, or None if too little is left."""
        cost = 10.0 if timed_out else 5.0
        if self.level < cost:
            return None
        self.level -= cost
        return cost

    def succeeded(self, spent: float) -> None:
        """Give back the cost of a retry that succeeded, or 1 for a first attempt.

        The cost is `spent`.
        """
        self.level = min(self.capacity, self.level + (spent or 1.0))
