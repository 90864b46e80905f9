"""Ledger of spent units: the order and the time of their return."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.limits.ledger import Ledger

WINDOWS = st.sampled_from([0.5, 1.0, 5.0, 60.0])


@given(st.lists(st.tuples(st.floats(0.0, 2.0), WINDOWS), max_size=30))
def test_units_return_in_the_order_of_their_entries(spent: list[tuple[float, float]]) -> None:
    """Units return in the order in which they were spent, whatever the windows, and never early."""
    ledger, now = Ledger(), 0.0
    for number, (pause, window) in enumerate(spent, 1):
        now += pause
        ledger.add(now, now, window, 1.0)
        back = ledger.back_at(number)
        assert back is not None
        assert back >= now + window
    backs = [back for _, back, _ in ledger.entries(len(spent))]
    assert backs == sorted(backs)


def test_units_return_by_a_time_at_the_latest() -> None:
    """A window that proves shorter than assumed ends early for later units alone."""
    ledger = Ledger()
    ledger.add(0.0, 0.0, 1.0, 1.0)
    ledger.add(2.0, 2.0, 300.0, 1.0)
    ledger.hasten(13.0)
    assert [back for _, back, _ in ledger.entries(2)] == [1.0, 13.0]
