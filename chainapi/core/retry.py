"""When a request is sent again, and after how long: one decision for each outcome, one budget a session."""

from __future__ import annotations

from attrs import define, field, frozen

__all__ = ["RETRIED_STATUSES", "RetryBudget", "RetryPolicy", "RetryState"]

# 429 is retried as well, but it is the rate-limit gate that waits for it.
RETRIED_STATUSES = frozenset({500, 502, 503, 504})

# A refusal (429) says when to come back, and one request in front asks on behalf of all that wait
# behind it: it weighs less than a fault, of which nobody knows whether it ends.
REFUSALS_PER_ATTEMPT = 5


@frozen
class RetryPolicy:
    """How often and how slowly one call is repeated.

    `max_attempts` counts requests, the first included; 1 means never again. `base` and `cap` are seconds:
    the n-th wait is drawn from 0 to `min(cap, base * 2 ** n)` ("full jitter").
    """

    max_attempts: int = 5
    base: float = 0.5
    cap: float = 20.0

    @property
    def max_refusals(self) -> int:
        """How many 429s one call takes before it gives up."""
        return (self.max_attempts - 1) * REFUSALS_PER_ATTEMPT

    def backoff(self, tries: RetryState, jitter: float, asked: float | None = None) -> float:
        """Return seconds to wait after a fault; `jitter` is in [0, 1), `asked` what a Retry-After said."""
        drawn = jitter * min(self.cap, self.base * 2.0 ** min(tries.faults, 64))
        return drawn if asked is None else max(drawn, asked)


@define(eq=False, repr=False)
class RetryState:
    """What one call has been through so far."""

    faults: int = 0
    refusals: int = 0

    @property
    def attempts(self) -> int:
        """Requests that failed."""
        return self.faults + self.refusals

    def fault(self, policy: RetryPolicy) -> bool:
        """Count a fault (5xx, no whole answer, no JSON); tell whether another attempt is left."""
        self.faults += 1
        return self.faults < policy.max_attempts

    def refused(self, policy: RetryPolicy, *, patient: bool = False) -> bool:
        """Count a 429; tell whether another attempt is left.

        A `patient` call does not give up: the gate tries on behalf of all, ever more slowly.
        """
        self.refusals += 1
        return patient or self.refusals <= policy.max_refusals

    def turned_back(self, policy: RetryPolicy) -> bool:
        """Count a 429 that was about the call's own route; tell whether another attempt is left."""
        self.refusals += 1
        return self.refusals < policy.max_attempts


@define(eq=False, repr=False)
class RetryBudget:
    """Tokens that all calls of a session share, so that an outage does not multiply the load.

    A retry costs 5, after a timeout 10; its success gives that back, a first success gives 1. Without tokens
    a fault is raised at once; the first attempt of a call is never held back.
    """

    capacity: float = 500.0
    level: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.level = self.capacity

    def spend(self, *, timed_out: bool) -> float | None:
        """Take the cost of one retry and return it, or None where too little is left."""
        cost = 10.0 if timed_out else 5.0
        if self.level < cost:
            return None
        self.level -= cost
        return cost

    def succeeded(self, spent: float) -> None:
        """Give back what the retry that succeeded had cost, or a little where none was needed."""
        self.level = min(self.capacity, self.level + (spent or 1.0))
