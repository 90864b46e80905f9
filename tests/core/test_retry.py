"""Retry rules: pauses between attempts, their number, and the session's budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi._http.retry import Failure, RetryBudget, RetryPolicy, Tries, pause_after
from chainapi._limits.verdict import Verdict
from chainapi.errors import APITimeoutError, RateLimitedError, ServerError

pytestmark = pytest.mark.rule

FAULT: Failure = ServerError(503, "Service Unavailable", ())
REFUSAL: Failure = RateLimitedError(429, "Too Many Requests", ())
ENDLESS = RetryPolicy(1_000)
LATE: Failure = APITimeoutError("no whole answer within 30 s")


class Failing:
    """A call whose attempts fail, with a budget of its own unless one is given."""

    def __init__(self, policy: RetryPolicy = ENDLESS, budget: RetryBudget | None = None) -> None:
        self.policy = policy
        self.budget = RetryBudget(1e9) if budget is None else budget
        self.tries = Tries()

    def pause(self, failure: Failure = FAULT, jitter: float = 1.0, **named: Any) -> float | None:
        """Return the pause after one more failed attempt."""
        return pause_after(failure, self.tries, self.policy, self.budget, jitter=jitter, **named)


def pauses(policy: RetryPolicy, count: int, jitter: float) -> list[float | None]:
    """Return the pauses after the first `count` faults of a call."""
    call = Failing(policy)
    return [call.pause(jitter=jitter) for _ in range(count)]


def test_the_exact_series() -> None:
    """Pauses without jitter double from twice the base to the cap."""
    assert pauses(RetryPolicy(9), 7, 1.0) == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    assert pauses(RetryPolicy(9, base=0.1, cap=1.0), 5, 1.0) == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert pauses(RetryPolicy(9), 4, 0.5) == [0.5, 1.0, 2.0, 4.0]
    assert pauses(RetryPolicy(9), 3, 0.0) == [0.0, 0.0, 0.0]


@given(
    faults=st.integers(0, 10**9),
    jitter=st.floats(0, 1, exclude_max=True),
    base=st.floats(0.001, 100),
    cap=st.floats(0.001, 1_000),
    asked=st.just(0.0) | st.floats(0, 1e6),
)
def test_a_pause_lies_between_what_is_asked_and_the_cap(
    faults: int, jitter: float, base: float, cap: float, asked: float
) -> None:
    """A pause is at most `cap` seconds after any number of faults, and never less than Retry-After."""
    call = Failing(RetryPolicy(10**10, base, cap))
    call.tries.faults = faults
    pause = call.pause(jitter=jitter, asked=asked)
    assert pause is not None
    assert asked <= pause <= max(asked, min(cap, base * 2.0 ** min(faults + 1, 900)))


def test_faults_and_refusals_are_counted_apart() -> None:
    """429s use up none of the attempts that are kept for faults."""
    call = Failing(RetryPolicy(2))
    assert [call.pause(REFUSAL, verdict=Verdict.QUOTA) for _ in range(5)] == [0.0] * 5
    assert call.pause() == 1.0
    assert call.pause(REFUSAL, verdict=Verdict.QUOTA) is None
    assert call.pause() is None
    assert (call.tries.faults, call.tries.refusals) == (2, 6)


@pytest.mark.parametrize(
    ("verdict", "max_wait", "attempts", "allowed"),
    [
        (Verdict.QUOTA, None, 1, 0),
        (Verdict.QUOTA, None, 2, 5),
        (Verdict.QUOTA, None, 5, 20),
        (Verdict.ROUTE, None, 5, 4),
        (Verdict.TOO_EXPENSIVE, None, 5, 0),
        (Verdict.UNANNOUNCED, 60.0, 5, 20),
        (Verdict.UNANNOUNCED, None, 1, 0),
        (Verdict.UNANNOUNCED, None, 5, 1_000),
    ],
)
def test_the_verdict_decides_how_many_refusals(
    verdict: Verdict, max_wait: float | None, attempts: int, allowed: int
) -> None:
    """Five 429s of the whole quota weigh as much as an attempt; a limit that nobody announces is tried on."""
    call = Failing(RetryPolicy(attempts))
    found = [call.pause(REFUSAL, verdict=verdict, max_wait=max_wait) for _ in range(1_000)]
    assert found == [0.0] * allowed + [None] * (1_000 - allowed)
    assert call.budget.level == 1e9


@given(
    capacity=st.floats(0, 600),
    steps=st.lists(st.tuples(st.sampled_from(["first", "retry", "lost"]), st.booleans()), max_size=300),
)
def test_the_level_stays_between_nothing_and_the_capacity(
    capacity: float, steps: list[tuple[str, bool]]
) -> None:
    """The level stays from 0 to the capacity; a success gives back what its retries cost, without them 1."""
    budget = RetryBudget(capacity)
    assert budget.level == capacity
    for outcome, timed_out in steps:
        call, before, cost = Failing(budget=budget), budget.level, 10.0 if timed_out else 5.0
        if outcome != "first" and call.pause(LATE if timed_out else FAULT) is None:
            assert budget.level == before < cost
        elif outcome != "first":
            assert budget.level == before - cost
            assert call.tries.spent == cost
        if outcome != "lost":
            level = budget.level
            budget.succeeded(call.tries.spent)
            assert budget.level == min(capacity, level + (call.tries.spent or 1.0))
        assert 0.0 <= budget.level <= capacity


def test_an_outage_ends_the_retries() -> None:
    """An outage allows 100 retries for all calls together, 50 if they time out."""
    for failure, retries in ((FAULT, 100), (LATE, 50)):
        call = Failing(budget=RetryBudget())
        assert sum(call.pause(failure) is not None for _ in range(900)) == retries
        assert call.pause(failure) is None
