"""Newest rows: a row is new once, whatever is known of it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi._paging.checkpoint import Watermark
from chainapi._paging.newest import NewestRows

pytestmark = pytest.mark.rule


def mark(content: int, key: int | None = None) -> str:
    """Return the marks of a row: of its content, and of its key if it has one."""
    return f"{content:016x}" + ("" if key is None else f"{key:016x}")


def taken(newest: NewestRows, rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the rows of a pass that are new, and count them as given."""
    newest.begin()
    new = [(number, one) for number, one in rows if newest.is_new(number, one)]
    newest.end()
    for number, one in sorted(new):
        newest.give(number, one)
    return new


@settings(max_examples=40)
@given(
    passes=st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=8), max_size=5),
    lookback=st.integers(0, 3),
    keyed=st.booleans(),
)
def test_rows_are_counted(passes: list[list[tuple[int, int]]], lookback: int, keyed: bool) -> None:
    """Rows that a growing list adds at the head are new as often as it has them, also read back from text."""
    newest, rows, top = NewestRows(-1, lookback=lookback), list[tuple[int, str]](), 0
    for serial, added in enumerate(passes):
        more = sorted((top + step, mark(content)) for step, content in added)
        if keyed:
            more = [(number, mark(0, 100 * serial + place)) for place, (number, _) in enumerate(more)]
        if keyed and lookback:  # known by content: equal ones are as many rows
            more = [(number, mark(int(one[16:], 16), int(one[16:], 16))) for number, one in more]
        rows += more
        top = max([top, *(number for number, _ in more)])
        assert Counter(taken(newest, rows[::-1])) == Counter(more)
        assert taken(newest, rows[::-1]) == []
        if rows:
            text = Checkpoint("query", watermark=newest.watermark("n"), following=True).dumps()
            read = Checkpoint.loads(text).watermark
            assert read is not None
            newest = NewestRows.of(read, lookback=lookback, following=True)


def test_a_changed_row_is_new_within_the_lookback() -> None:
    """Content decides within the lookback, the key without one, and the old content is forgotten."""
    for lookback, new in ((0, []), (5, [(10, mark(2, 7))])):
        newest = NewestRows(10, {10: [mark(1, 7)]}, lookback=lookback)
        assert taken(newest, [(10, mark(2, 7))]) == new
    assert taken(newest, [(10, mark(1, 7))]) == [(10, mark(1, 7))]
    assert taken(newest, [(4, mark(9, 9))]) == []


def test_marks_of_a_walk_are_known() -> None:
    """A watermark of a walk has one mark a row, of its key or content, and only where rows share numbers."""
    tied = Watermark("n", ((10, 1),), ties=((10, (mark(7),)), (1, (mark(3),))))
    newest = NewestRows.of(tied, following=False)
    assert taken(newest, [(10, mark(1, 7)), (10, mark(1, 8)), (9, mark(5, 5))]) == [(10, mark(1, 8))]
    whole = NewestRows.of(Watermark("n", ((10, 1),)), lookback=3, following=False)
    assert taken(whole, [(11, mark(4)), (10, mark(1)), (8, mark(2))]) == [(11, mark(4))]
    assert taken(whole, [(10, mark(5)), (8, mark(2))]) == [(10, mark(5))]
