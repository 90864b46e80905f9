"""Each row once: after restarts and resumes at arbitrary places, while the list grows at its head."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.core.checkpoint import Checkpoint
from chainapi.core.dedupe import Digests, Ordered, Seen, Watermark
from chainapi.models.metrics import MetricPoint


def key(row: int) -> int:
    """Rows of these tests are their own keys."""
    return row


class Growing:
    """A list, newest row first, that grows at its head; page tokens name the row that comes next."""

    def __init__(self, length: int) -> None:
        self.rows = list(range(length - 1, -1, -1))

    def grow(self, by: int) -> None:
        """Put new rows at the head."""
        newest = len(self.rows)
        self.rows[:0] = range(newest + by - 1, newest - 1, -1)

    def page(self, token: int | None, size: int) -> tuple[list[int], int | None]:
        """Return a page and the token to the next."""
        below = [row for row in self.rows if token is None or row <= token]
        return below[:size], below[size] if len(below) > size else None


@define
class Walker:
    """A walk in miniature: it reads a growing list through `seen`, and may restart or be resumed anywhere."""

    growing: Growing
    make: Callable[[Watermark | None], Seen]
    seen: Seen = field(init=False)
    token: int | None = None
    done: bool = False
    given: list[int] = field(factory=list)
    by_pass: list[list[int]] = field(factory=lambda: [[]])

    def __attrs_post_init__(self) -> None:
        self.seen = self.make(None)

    def read(self, size: int) -> None:
        """Take a page in whole."""
        if not self.done:
            rows, token = self.growing.page(self.token, size)
            self._give(rows, self.seen.stale(rows), len(rows))
            self.token, self.done = token, token is None

    def resume_inside(self, size: int, part: int) -> None:
        """Take the first rows of a page, then begin anew from what a checkpoint would hold."""
        if not self.done:
            rows, _ = self.growing.page(self.token, size)
            part = min(part, len(rows))
            self._give(rows, self.seen.stale(rows), part)
            mark = self.seen.watermark(rows, part)
            text = Checkpoint("q", watermark=mark).dumps()
            self.seen = self.make(Checkpoint.loads(text).watermark)
            if self.token is None:  # the first page is asked for again: another pass
                self.by_pass.append([])

    def restart(self) -> None:
        """Begin again at the first page, as after the death of a token."""
        self.token, self.done = None, False
        self.seen.restart()
        self.by_pass.append([])

    def finish(self) -> None:
        """Read to the end, in one more pass if rows came after this one had begun."""
        while not self.done:
            self.read(3)
        self.restart()
        while not self.done:
            self.read(3)

    def _give(self, rows: list[int], stale: Any, part: int) -> None:
        new = [row for index, row in enumerate(rows[:part]) if index not in stale]
        self.given += new
        self.by_pass[-1] += new


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.just("grow"), st.integers(1, 5)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("resume"), st.integers(0, 3)),
    ),
    max_size=30,
)


def walked(walker: Walker, steps: list[tuple[str, int]], *, resuming: bool) -> Walker:
    """Drive a walker through `steps`, then to the end."""
    for name, number in steps:
        if name == "read":
            walker.read(number)
        elif name == "grow":
            walker.growing.grow(number)
        elif name == "restart":
            walker.restart()
        elif resuming:
            walker.resume_inside(4, number)
    walker.finish()
    return walker


@settings(max_examples=400)
@given(length=st.integers(0, 12), steps=STEPS)
def test_ordered_rows_come_once_and_in_order(length: int, steps: list[tuple[str, int]]) -> None:
    """Each row of a list that grows is given once, in the order of each pass, past any restart and resume."""
    walker = walked(Walker(Growing(length), lambda mark: Ordered(key, mark)), steps, resuming=True)
    assert sorted(walker.given, reverse=True) == walker.growing.rows
    for rows in walker.by_pass:
        assert rows == sorted(rows, reverse=True)


@settings(max_examples=200)
@given(length=st.integers(0, 12), steps=STEPS)
def test_digests_give_rows_once_and_in_order(length: int, steps: list[tuple[str, int]]) -> None:
    """The same holds without an order to rely on, within one process."""
    walker = walked(Walker(Growing(length), lambda _: Digests()), steps, resuming=False)
    assert sorted(walker.given, reverse=True) == walker.growing.rows
    for rows in walker.by_pass:
        assert rows == sorted(rows, reverse=True)


@settings(max_examples=200)
@given(length=st.integers(0, 12), steps=STEPS)
def test_memory_of_an_order_does_not_grow_with_rows(length: int, steps: list[tuple[str, int]]) -> None:
    """An order is remembered as one span, and at most one more for each restart."""
    marks: list[Watermark] = []
    walker = Walker(Growing(length), lambda mark: Ordered(key, mark))
    restarts = 0
    for name, number in steps:
        walked_before = len(walker.by_pass)
        if name == "grow":
            walker.growing.grow(number)
        elif name == "restart":
            walker.restart()
        else:
            walker.resume_inside(4, number)
            walker.read(number + 1)
        restarts += len(walker.by_pass) - walked_before
        mark = walker.seen.watermark((), 0)
        marks += [] if mark is None else [mark]
        assert all(len(mark.gaps) <= restarts for mark in marks)
    walker.finish()
    mark = walker.seen.watermark((), 0)
    assert mark is None or mark.gaps == ()


def test_a_second_restart_loses_no_row_of_the_head() -> None:
    """Rows that were new at the head, and not reached before the next restart, are given after it."""
    seen = Ordered(key)
    assert seen.stale([10, 9, 8]) == ()
    seen.restart()
    assert not seen.stale([14, 13])
    assert seen.watermark([14, 13], 2) == Watermark(14, 8, gaps=((13, 10),))
    seen.restart()
    assert seen.stale([14, 13, 12, 11, 10]) == {0, 1, 4}
    assert seen.watermark([14, 13, 12, 11, 10], 5) == Watermark(14, 8)


@given(given_rows=st.integers(0, 6))
def test_the_watermark_of_a_part_of_a_page(given_rows: int) -> None:
    """The span after the first rows of a page ends with the last of them."""
    rows = [9, 8, 7, 5, 4, 2]
    seen = Ordered(key)
    seen.stale(rows)
    expected = Watermark(9, rows[given_rows - 1]) if given_rows else None
    assert seen.watermark(rows, given_rows) == expected


def test_an_empty_page_changes_nothing() -> None:
    """An empty page has no stale row and leaves the span as it was."""
    seen = Ordered(key, Watermark(9, 3))
    assert not seen.stale([])
    assert seen.watermark([], 0) == Watermark(9, 3)


def test_a_page_again_after_a_resume_is_stale_where_it_was_given() -> None:
    """A resume inside a page fetches the page again: the rows given before are not given twice."""
    seen = Ordered(key, Watermark(9, 7))
    assert seen.stale([9, 8, 7, 6, 5]) == {0, 1, 2}


def test_a_list_that_shifts_under_the_walk() -> None:
    """Where tokens are positions and rows came in at the head, rows that come again are not given again."""
    seen = Ordered(key)
    seen.stale([9, 8, 7])
    assert seen.stale([8, 7, 6]) == {0, 1}
    assert seen.watermark([8, 7, 6], 3) == Watermark(9, 6)


def test_digests_have_no_watermark() -> None:
    """Without an order nothing small can say which rows were given."""
    seen = Digests()
    seen.stale([1, 2])
    assert seen.watermark([1, 2], 1) is None


def test_digests_mark_the_rows_of_a_page() -> None:
    """Marks of 16 hexadecimal digits tell which rows of a page were given, wherever they are found again."""
    seen = Digests()
    marks = seen.marks(["a", {"b": 1}])
    assert [len(mark) for mark in marks] == [16, 16]
    assert all(int(mark, 16) >= 0 for mark in marks)
    assert seen.marked(["new", "a", "c", {"b": 1}], marks) == {1, 3}
    assert seen.marked(["a"], ()) == set()
    assert not seen.stale(["a"]), "marks are no memory"


def test_an_order_needs_no_marks() -> None:
    """Where the watermark tells, there is nothing to mark."""
    seen = Ordered(key)
    assert seen.marks([3, 2, 1]) == ()
    assert seen.marked([3, 2, 1], ["0" * 16]) == set()


def test_a_pass_that_begins_at_the_watermark() -> None:
    """A restart may begin at the oldest row given, or below it: nothing comes twice, and no gap is left."""
    for first in ([7, 6, 5], [6, 5]):
        seen = Ordered(key)
        seen.stale([9, 8, 7])
        seen.restart()
        assert seen.stale(first) == ({0} if first[0] == 7 else ())
        assert seen.watermark(first, len(first)) == Watermark(9, 5)


class Colour(enum.Enum):
    """An enumeration in a row."""

    RED = "red"


@frozen
class Foreign:
    """A row with what JSON does not know."""

    address: object
    when: datetime
    colour: Colour = Colour.RED


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}),
        ({"n": 10**40}, {"n": 10**40}, {"n": 10**40 + 1}),
        (MetricPoint(1, 2.0), MetricPoint(1, 2.0), MetricPoint(1, 2.5)),
        ("half \ud800", "half \ud800", "half \ud801"),
        ({(1, 2): 3}, {(1, 2): 3}, {(1, 3): 3}),
        (
            Foreign(ip_address("::1"), datetime.fromtimestamp(0, UTC)),
            Foreign(ip_address("::1"), datetime.fromtimestamp(0, UTC)),
            Foreign(ip_address("::2"), datetime.fromtimestamp(0, UTC)),
        ),
    ],
)
def test_digests_tell_rows_by_what_they_hold(one: object, same: object, other: object) -> None:
    """Rows of any type are told apart by their contents, whatever order the fields of a dict have."""
    seen = Digests()
    assert not seen.stale([one])
    assert seen.stale([same, other]) == {0}
