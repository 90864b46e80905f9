"""Trends of numbers: the order in which the rows of a list came so far."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.paging.cursor import Trend, trend_of

NUMBERS = st.lists(st.integers(0, 4), max_size=6)


@pytest.mark.parametrize(
    ("numbers", "trend"),
    [
        ([], Trend.LEVEL),
        ([5, 5], Trend.LEVEL),
        ([5, 5, 3], Trend.FALLING),
        ([3, 5, 5], Trend.RISING),
        ([3, 5, 4], Trend.MIXED),
        ([3, None], Trend.MIXED),
        ([None], Trend.MIXED),
    ],
)
def test_the_trend_of_a_page(numbers: list[int | None], trend: Trend) -> None:
    """Numbers rise or fall, or do both; a missing number has no place in an order."""
    assert trend_of(numbers) is trend


@given(NUMBERS, NUMBERS)
def test_a_trend_over_pages_is_that_of_all_rows(first: list[int], second: list[int]) -> None:
    """The trend that is joined page by page is the trend of all numbers at once."""
    joined = trend_of(first).joined(trend_of([*first[-1:], *second]))
    assert joined is trend_of([*first, *second])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_sums_rise(steps: list[int]) -> None:
    """Numbers that never fall rise, or are level; in reverse they fall, or are level."""
    rising = [*accumulate(steps)]
    assert trend_of(rising) in (Trend.RISING, Trend.LEVEL)
    assert trend_of(rising[::-1]) in (Trend.FALLING, Trend.LEVEL)
