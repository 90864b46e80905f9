"""Retry policy: waits between attempts, their number, and the session's budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.retry import RetryBudget, RetryPolicy, RetryState

pytestmark = pytest.mark.rule

SECONDS = st.floats(0, 1e6)


def waits(policy: RetryPolicy, count: int, jitter: float, asked: float | None = None) -> list[float]:
    """Return the waits after the first `count` faults of a call."""
    tries, drawn = RetryState(), []
    for _ in range(count):
        tries.fault(policy)
        drawn.append(policy.backoff(tries, jitter, asked))
    return drawn


def test_the_exact_series() -> None:
    """Waits without jitter double from twice the base to the cap."""
    assert waits(RetryPolicy(), 7, 1.0) == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    assert waits(RetryPolicy(base=0.1, cap=1.0), 5, 1.0) == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert waits(RetryPolicy(), 4, 0.5) == [0.5, 1.0, 2.0, 4.0]
    assert waits(RetryPolicy(), 3, 0.0) == [0.0, 0.0, 0.0]


@given(
    faults=st.integers(0, 10**9),
    jitter=st.floats(0, 1, exclude_max=True),
    base=st.floats(0.001, 100),
    cap=st.floats(0.001, 1_000),
)
def test_a_wait_lies_between_nothing_and_the_cap(faults: int, jitter: float, base: float, cap: float) -> None:
    """A wait is between 0 and `cap` seconds after any number of failures."""
    policy = RetryPolicy(base=base, cap=cap)
    wait = policy.backoff(RetryState(faults=faults), jitter)
    assert 0.0 <= wait <= cap
    assert wait <= base * 2.0 ** min(faults, 900)


@given(jitter=st.floats(0, 1, exclude_max=True), asked=SECONDS, faults=st.integers(1, 20))
def test_a_requested_wait_is_kept(jitter: float, asked: float, faults: int) -> None:
    """Retry-After is a lower bound of the wait, above the cap too."""
    policy = RetryPolicy()
    tries = RetryState(faults=faults)
    assert policy.backoff(tries, jitter, asked) == max(asked, policy.backoff(tries, jitter))


@pytest.mark.parametrize(("max_attempts", "refusals"), [(1, 0), (2, 5), (5, 20)])
def test_refusals_weigh_less(max_attempts: int, refusals: int) -> None:
    """Policies allow five 429s for each attempt past the first."""
    policy, tries = RetryPolicy(max_attempts), RetryState()
    assert policy.max_refusals == refusals
    left = [tries.refused(policy) for _ in range(refusals + 1)]
    assert left == [True] * refusals + [False]
    assert tries.refusals == refusals + 1


def test_faults_and_refusals_are_counted_apart() -> None:
    """429s use up none of the attempts that are kept for faults."""
    policy, tries = RetryPolicy(2), RetryState()
    assert [tries.refused(policy) for _ in range(5)] == [True] * 5
    assert tries.fault(policy)
    assert not tries.refused(policy)
    assert not tries.fault(policy)
    assert (tries.faults, tries.refusals) == (2, 6)


@given(
    capacity=st.floats(0, 600),
    steps=st.lists(st.tuples(st.sampled_from(["first", "retry", "lost"]), st.booleans()), max_size=300),
)
def test_the_level_stays_between_nothing_and_the_capacity(
    capacity: float, steps: list[tuple[str, bool]]
) -> None:
    """The budget's level stays from 0 to the capacity; refused retries are free."""
    budget = RetryBudget(capacity)
    assert budget.level == capacity
    for outcome, timed_out in steps:
        before = budget.level
        spent = None if outcome == "first" else budget.spend(timed_out=timed_out)
        if spent is not None:
            assert spent == (10.0 if timed_out else 5.0)
            assert budget.level == before - spent
        elif outcome != "first":
            assert budget.level == before < (10.0 if timed_out else 5.0)
        if outcome != "lost":
            budget.succeeded(spent or 0.0)
        assert 0.0 <= budget.level <= capacity


def test_an_outage_ends_the_retries() -> None:
    """An outage allows 100 retries for all calls together, 50 if they time out."""
    for timed_out, retries in ((False, 100), (True, 50)):
        budget = RetryBudget()
        assert sum(budget.spend(timed_out=timed_out) is not None for _ in range(1_000)) == retries
        assert budget.spend(timed_out=timed_out) is None


def test_success_gives_back() -> None:
    """A retry that succeeds refunds its cost; a first attempt that succeeds adds 1."""
    budget = RetryBudget(20.0)
    costs = [budget.spend(timed_out=True), budget.spend(timed_out=False)]
    assert (costs, budget.level) == ([10.0, 5.0], 5.0)
    budget.succeeded(5.0)
    assert budget.level == 10.0
    budget.succeeded(0.0)
    assert budget.level == 11.0
    budget.succeeded(50.0)
    assert budget.level == 20.0
