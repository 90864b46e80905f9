"""Guard against loops: a bounded sample of pages notices any circle."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi._paging.walk import LOOP_PAGES, LoopGuard

pytestmark = pytest.mark.rule


@settings(max_examples=30)
@example(cycle=2, lead=20_000, same_token=False)
@given(
    cycle=st.integers(1, 40) | st.sampled_from([1_023, 1_024, 1_500]),
    lead=st.integers(0, 20) | st.sampled_from([1_024, 2_000]),
    same_token=st.booleans(),
)
def test_cycles_of_any_length_are_noticed(cycle: int, lead: int, same_token: bool) -> None:
    """A cycle of pages with their tokens is noticed in its second round, also beyond the guard's sample."""
    guard = LoopGuard()
    for number in range(lead + 2 * cycle + 1):
        place = number if number < lead else lead + (number - lead) % cycle
        if guard.loops("t" if same_token else f"t{place}", hash((place, "rows"))):
            assert number >= lead + cycle
            return
    raise AssertionError("never noticed")


def test_the_memory_of_the_guard_is_flat() -> None:
    """The guard keeps a bounded sample of pages, and confuses none, in a walk of any length."""
    guard = LoopGuard()
    new = 0
    for number in range(50_000):
        assert not guard.loops(f"t{number}", hash((number, "rows")))
        new += guard.is_new(hash((number, "rows")))
    assert max(len(guard._tokens), len(guard._pages), len(guard._recent)) <= LOOP_PAGES
    assert LOOP_PAGES / 2 <= new <= 16 * LOOP_PAGES
