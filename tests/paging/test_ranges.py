"""Ranges: intervals that cover all numbers once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi._paging.ranges import Interval, borders, borders_at_multiples, intervals

pytestmark = pytest.mark.rule

NUMBERS = st.integers(-(10**6), 10**6)
ENDS = st.tuples(NUMBERS, NUMBERS).map(sorted)


@settings(max_examples=30)
@given(
    ends=ENDS,
    count=st.integers(1, 50),
    grid=st.sampled_from([1, 7, 86_400]),
)
def test_each_number_is_in_one_interval(ends: list[int], count: int, grid: int) -> None:
    """Every number, also one beyond both ends, is in exactly one interval."""
    cuts = borders(ends[0], ends[1], count, grid)
    found = intervals(cuts, Interval())
    assert len(found) == len(cuts) + 1 <= count
    assert not any(cut % grid for cut in cuts)
    for number in (ends[0] - 1, *ends, ends[1] + 1, *cuts, *(cut - 1 for cut in cuts)):
        assert sum(one.owns(number) for one in found) == 1


@settings(max_examples=30)
@given(ends=ENDS, count=st.integers(1, 50))
def test_ranges_have_equal_widths(ends: list[int], count: int) -> None:
    """The widths of ranges differ by one at most, and none is empty."""
    oldest, newest = ends
    cuts = [oldest, *borders(oldest, newest, count), newest + 1]
    widths = {end - start for start, end in pairwise(cuts)}
    assert min(widths) > 0
    assert max(widths) - min(widths) <= 1


@settings(max_examples=30)
@given(ends=ENDS, step=st.integers(1000, 10**6))
def test_borders_at_multiples(ends: list[int], step: int) -> None:
    """Borders of a step are all of its multiples that part the numbers."""
    oldest, newest = ends
    cuts = borders_at_multiples(oldest, newest, step)
    assert list(cuts) == [step * k for k in range(-(10**3) - 1, 10**3 + 2) if oldest < step * k <= newest]


@pytest.mark.parametrize(
    ("interval", "near", "far"),
    [
        (Interval(10, 20), [9, 20], [8, 21]),
        (Interval(None, 20), [20], [21]),
        (Interval(10, None), [9], [8, -1]),
    ],
)
def test_numbers_on_a_border(interval: Interval, near: list[int], far: list[int]) -> None:
    """One number beyond each end may come from a service that counts the end otherwise, and no more."""
    assert all(interval.borders_on(number) for number in near)
    assert not any(interval.borders_on(number) for number in far)
    assert not any(interval.owns(number) for number in (*near, *far))


@settings(max_examples=30)
@given(start=st.none() | NUMBERS, end=st.none() | NUMBERS)
def test_a_checkpoint_keeps_its_interval(start: int | None, end: int | None) -> None:
    """The text of a checkpoint of a range has the interval, and that of a whole list has none."""
    checkpoint = Checkpoint("query", range=Interval(start, end))
    assert Checkpoint.loads(checkpoint.dumps()) == checkpoint
    assert "range" not in Checkpoint("query").dumps()
