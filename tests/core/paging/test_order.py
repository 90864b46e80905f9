"""Rows in descending order are given once, past any restart and resume.

Rows may share numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from attrs import define, field
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi.core.paging.history import Runs
from chainapi.core.paging.order import Order, Rows, Watermark, rising, with_run

Row = tuple[int, int]  # its number, and the rest of its content


def mark(row: Row) -> str:
    """Return the mark of a row: equal rows have equal marks."""
    return f"{row[0] % 2**32:08x}{row[1]:08x}"


@define
class Listed:
    """List whose numbers never rise, and that grows at its head.

    Page tokens are counted from its end.
    """

    rows: list[Row]

    def grow(self, news: Sequence[tuple[int, int]]) -> None:
        """Put rows on top; each lies some way above the newest one, or shares its number."""
        for step, rest in news:
            newest = self.rows[0][0] if self.rows else 0
            self.rows.insert(0, (newest + step, rest))

    def page(self, behind: int | None, size: int) -> tuple[list[Row], int | None]:
        """Return a page and the token of the next: the number of rows behind it."""
        begin = 0 if behind is None else len(self.rows) - behind
        left = len(self.rows) - begin - size
        return self.rows[begin : begin + size], left if left > 0 else None


@define
class Reader:
    """Reader of a list through an `Order`, with restarts and resumes anywhere.

    The rows given are kept.
    """

    listed: Listed
    unique: bool = False
    order: Order = field(init=False)
    token: int | None = None
    done: bool = False
    given: Counter[Row] = field(factory=Counter[Row])

    def __attrs_post_init__(self) -> None:
        self.order = Order(unique=self.unique)

    def read(self, size: int) -> None:
        """Take a page whole."""
        if not self.done:
            rows, token = self._page(size)
            stale = self.order.take(*self._asked(rows))
            self.given.update(row for index, row in enumerate(rows) if index not in stale)
            self.token, self.done = token, token is None

    def resume_inside(self, size: int, part: int) -> None:
        """Take a page partly, then begin from its checkpoint.

        Only some of its rows are given.
        """
        if self.done:
            return
        rows, _ = self._page(size)
        page, marks = self._asked(rows)
        stale = self.order.take(page, marks)
        self.given.update(row for index, row in enumerate(rows[:part]) if index not in stale)
        self._resume(self.order.watermark(page.before(part), marks))

    def resume_between(self) -> None:
        """Begin from a checkpoint between two pages."""
        self._resume(self.order.watermark())

    def restart(self) -> None:
        """Begin again at the first page."""
        self.token, self.done = None, False
        self.order.restart()

    def finish(self) -> None:
        """Read to the end, and once more for rows at the head since the pass began."""
        while not self.done:
            self.read(3)
        self.restart()
        while not self.done:
            self.read(3)

    def _page(self, size: int) -> tuple[list[Row], int | None]:
        return self.listed.page(self.token, size)

    def _resume(self, watermark: Watermark | None) -> None:
        text = Checkpoint("q", watermark=watermark).dumps()
        self.order = Order(unique=self.unique, watermark=Checkpoint.loads(text).watermark)

    @staticmethod
    def _asked(rows: Sequence[Row]) -> tuple[Rows, Callable[[int], str]]:
        return Rows(range(len(rows)), [number for number, _ in rows]), lambda index: mark(rows[index])


def steps(lowest: int) -> st.SearchStrategy[list[tuple[str, object]]]:
    """Return possible steps of a reader, with new rows above the newest one.

    New rows lie at least `lowest` above it.
    """
    new = st.tuples(st.integers(lowest, 2), st.integers(0, 2))
    return st.lists(
        st.one_of(
            st.tuples(st.just("read"), st.integers(1, 5)),
            st.tuples(st.just("grow"), st.lists(new, min_size=1, max_size=5)),
            st.tuples(st.just("restart"), st.none()),
            st.tuples(st.just("inside"), st.tuples(st.integers(1, 5), st.integers(0, 5))),
            st.tuples(st.just("between"), st.none()),
        ),
        max_size=30,
    )


def begun(lowest: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Return the steps from row to row of a list to begin with, from its end upwards."""
    return st.lists(st.tuples(st.integers(lowest, 2), st.integers(0, 2)), max_size=14)


def walk_one(reader: Reader, happening: tuple[str, object]) -> None:
    """Apply one step to a reader."""
    match happening:
        case "read", int(size):
            reader.read(size)
        case "grow", list(news):
            reader.listed.grow(news)
        case "inside", (int(size), int(part)):
            reader.resume_inside(size, part)
        case "between", _:
            reader.resume_between()
        case _:
            reader.restart()


def walk(reader: Reader, happens: Sequence[tuple[str, object]]) -> None:
    """Apply steps to a reader, then read to the end."""
    for happening in happens:
        walk_one(reader, happening)
    reader.finish()


@pytest.mark.untraced
@settings(max_examples=800)
@given(rows=begun(0), happens=steps(0))
def test_rows_that_share_numbers_come_once(
    rows: list[tuple[int, int]], happens: list[tuple[str, object]]
) -> None:
    """Rows of a list with ties are given as often as the list holds them.

    Equal rows are too, and no row more often.
    """
    listed = Listed([])
    listed.grow(rows)
    reader = Reader(listed)
    walk(reader, happens)
    assert reader.given == Counter(listed.rows)


@settings(max_examples=300)
@given(rows=begun(1), happens=steps(1))
def test_rows_with_numbers_of_their_own_come_once(
    rows: list[tuple[int, int]], happens: list[tuple[str, object]]
) -> None:
    """Rows with numbers of their own are given once, without marks."""
    listed = Listed([])
    listed.grow(rows)
    reader = Reader(listed, unique=True)
    walk(reader, happens)
    assert reader.given == Counter(listed.rows)


@settings(max_examples=150)
@given(rows=begun(0), happens=steps(0))
def test_the_memory_of_an_order_is_flat(
    rows: list[tuple[int, int]], happens: list[tuple[str, object]]
) -> None:
    """An order takes one span, and at most one more for each new pass.

    It has one span when all rows were read.
    """
    listed = Listed([])
    listed.grow(rows)
    reader = Reader(listed)
    passes = 0
    for happening in happens:
        passes += happening[0] != "read"
        walk_one(reader, happening)
        watermark = reader.order.watermark()
        assert watermark is None or len(watermark.gaps) <= passes
        assert watermark is None or len(watermark.ties) <= 2 * len(watermark.gaps) + 2
    reader.finish()
    watermark = reader.order.watermark()
    assert watermark is None or watermark.gaps == ()


# Cases


def page(*numbers: int) -> Rows:
    """Return the rows of a page with these numbers."""
    return Rows(range(len(numbers)), numbers)


def alike(_: int) -> str:
    """Give all rows of a page the same mark."""
    return "0" * 16


def of_content(content: str) -> Callable[[int], str]:
    """Return marks of rows that hold a letter each."""
    return lambda index: f"{ord(content[index]):016x}"


def test_new_rows_that_share_the_newest_number() -> None:
    """New rows that share the newest number given are given.

    That is so also behind a row that lies above them.
    """
    order = Order(unique=False)
    order.take(page(9, 8, 7), of_content("abc"))
    order.restart()
    assert order.take(page(10, 9, 9, 9), of_content("xyza")) == {3}
    order.restart()
    assert order.take(page(10, 9, 9, 9, 8), of_content("xyzab")) == {0, 1, 2, 3, 4}


def marker(rows: Sequence[Row]) -> Callable[[int], str]:
    """Return the marks of the rows of a page by their indices."""
    return lambda index: mark(rows[index])


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6), max_size=6),
    st.lists(st.integers(1, 5), min_size=1, max_size=20),
    st.booleans(),
)
def test_a_page_is_its_rows_one_by_one(
    growth: list[list[tuple[int, int]]], sizes: list[int], unique: bool
) -> None:
    """A page has the stale rows and the watermark of its rows taken one by one, in each pass.

    The ways for usual pages change nothing.
    """
    listed = Listed([])
    whole, single = Order(unique=unique), Order(unique=unique)
    for news in growth:
        listed.grow([(step or int(unique), rest) for step, rest in news])
        begin = 0
        for size in sizes:
            rows = listed.rows[begin : begin + size]
            begin += size
            numbers = [number for number, _ in rows]
            stale = whole.take(Rows(range(len(rows)), numbers, with_run(numbers)[1]), marker(rows))
            each = [single.take(Rows([0], [row[0]]), marker([row])) for row in rows]
            assert stale == {index for index, found in enumerate(each) if found}
            assert whole.watermark() == single.watermark()
        whole.restart()
        single.restart()


def test_a_restart_among_rows_that_share_a_number() -> None:
    """Rows of a number not reached before a restart are given after it."""
    order = Order(unique=False)
    order.take(page(9, 8), of_content("ab"))
    order.restart()
    assert order.take(page(10, 9), of_content("xy")) == set()
    watermark = order.watermark()
    assert watermark is not None
    assert (watermark.gaps, watermark.at, watermark.met) == (((9, 9),), 9, (f"{ord('y'):016x}",))
    order.restart()
    assert order.take(page(10, 9, 9, 9), of_content("xyza")) == {0, 1, 3}
    order.take(page(8), of_content("b"))
    watermark = order.watermark()
    assert watermark is not None
    assert (watermark.newest, watermark.oldest, watermark.gaps) == (10, 8, ())


def test_equal_rows_are_counted() -> None:
    """Equal rows with one number are left out as often as they were given."""
    order = Order(unique=False)
    order.take(page(5, 5, 5), alike)
    order.restart()
    assert order.take(page(5, 5), alike) == {0, 1}
    assert order.take(page(5, 5, 4), alike) == {0}


def test_a_second_restart_loses_no_row_of_the_head() -> None:
    """Rows at the head not reached before a second restart are given after it."""
    order = Order(unique=True)
    assert order.take(page(10, 9, 8), alike) == set()
    order.restart()
    assert order.take(page(14, 13), alike) == set()
    assert order.watermark() == Watermark(14, 8, gaps=((13, 10),), at=13)
    order.restart()
    assert order.take(page(14, 13, 12, 11, 10), alike) == {0, 1, 4}
    assert order.watermark() == Watermark(14, 8, at=10)


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("first", [(7, 6, 5), (6, 5), (3, 2)])
def test_a_pass_that_begins_at_the_watermark_or_below(unique: bool, first: tuple[int, ...]) -> None:
    """A pass from the oldest row given, or below, repeats no row and leaves no gap."""
    order = Order(unique=unique)
    order.take(page(9, 8, 7), of_content("abc"))
    order.restart()
    assert order.take(page(*first), of_content("cde")) == ({0} if first[0] == 7 else set())
    watermark = order.watermark()
    assert watermark is not None
    assert (watermark.newest, watermark.oldest, watermark.gaps) == (9, first[-1], ())


@given(part=st.integers(0, 6))
def test_the_watermark_of_a_part_of_a_page(part: int) -> None:
    """The span after the first rows of a page ends with the last of them."""
    rows = page(9, 8, 7, 5, 4, 2)
    order = Order(unique=True)
    order.take(rows, alike)
    expected = Watermark(9, rows.numbers[part - 1]) if part else None
    assert order.watermark(rows.before(part), alike) == expected


def test_an_empty_page_changes_nothing() -> None:
    """An empty page has no row given before, and leaves the spans as they were."""
    order = Order(unique=True, watermark=Watermark(9, 3, at=3))
    assert order.take(Rows(), alike) == set()
    assert order.watermark() == Watermark(9, 3, at=3)


def test_lost_marks() -> None:
    """Lost marks repeat rows at the ends of spans, and lose none."""
    order = Order(unique=True)
    order.take(page(9, 8, 7), alike)
    assert order.tied == 1
    order.lose_marks()
    assert order.watermark() == Watermark(9, 7, at=7, ties=((9, ()), (7, ())))
    assert order.take(page(7, 7), of_content("ab")) == set(), "in the same pass all are given"
    order.restart()
    assert order.take(page(9, 9, 8, 8, 7, 7, 6), of_content("xyzvabc")) == {2, 3, 4, 5}


def test_ends() -> None:
    """`ends` yields the ends of spans with the marks given there and met.

    Marks are met in this pass.
    """
    order = Order(unique=False)
    order.take(page(9, 8, 7), of_content("abc"))
    order.restart()
    order.take(page(9), of_content("a"))
    found = {number: (sum(given.values()), sum(met.values())) for number, given, met in order.ends()}
    assert found == {9: (1, 1), 7: (1, 0)}
    assert order.tied == 1
    order.take(page(9, 9), of_content("bc"))
    assert order.tied == 3


def test_rows_before_and_without() -> None:
    """Rows in order are cut, and taken out, by their indices in the page.

    They may be some of its rows.
    """
    rows = Rows([0, 2, 3, 7], [9, 8, 8, 5])
    assert len(rows) == 4
    assert rows.before(3).indices == [0, 2]
    assert rows.before(4).numbers == [9, 8, 8]
    assert rows.without(()) == [9, 8, 8, 5]
    assert rows.without({2, 7}) == [9, 8]


# Runs of numbers


@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(-9, 9), max_size=6),
            st.builds(
                lambda first, step, count: list(range(first, first + step * count, step)),
                st.integers(),
                st.sampled_from([-86_400, -3, -1, 1]),
                st.integers(1, 30),
            ),
        ),
        max_size=20,
    )
)
def test_runs_hold_what_was_put_in(pages: list[list[int]]) -> None:
    """Runs return all numbers, each as often as it was added, in order."""
    runs = Runs()
    for numbers in pages:
        runs.extend(numbers, with_run(numbers)[1])
    assert list(runs) == [number for numbers in pages for number in numbers]
    assert not runs.overflowed


def test_runs_are_bounded() -> None:
    """Runs are bounded: past 1,024 runs all numbers are dropped.

    Numbers of a pattern take one run, however many.
    """
    runs = Runs()
    for first in range(10**9, 0, -100):
        numbers = list(range(first, first - 100, -1))
        runs.extend(numbers, with_run(numbers)[1])
        if first < 10**9 - 10**6:
            break
    assert runs._runs is not None
    assert len(runs._runs) == 1
    for number in range(2 * Runs.LIMIT + 1):
        runs.extend([number * number])
    assert runs.overflowed
    assert list(runs) == []
    runs.extend([1, 2])
    assert runs.overflowed


# Disorder


NUMBERS = st.lists(st.none() | st.integers(0, 5), max_size=8)


@given(NUMBERS, st.none() | st.integers(0, 5))
def test_rising(numbers: list[int | None], last: int | None) -> None:
    """`rising` finds the first number that is missing or above the one before it."""
    expected = None
    for place, number in enumerate(numbers):
        before = numbers[place - 1] if place else last
        if number is None or (before is not None and number > before):
            expected = place
            break
    assert rising(numbers, last) == expected


# At 32 bits the check of a run changes; a carry from one number to the next must not hide a change.
LARGEST = 2**32
CHANGES = st.none() | st.integers(-2, 2) | st.sampled_from([LARGEST, -LARGEST, LARGEST - 1, 0.5])


@given(
    st.integers(-9, 9) | st.integers(LARGEST - 9, LARGEST + 9),
    st.integers(-5, 5),
    st.integers(0, 9),
    st.dictionaries(st.integers(0, 8), CHANGES, max_size=2),
)
@example(LARGEST - 1, -1, 5, {})
@example(9, -1, 5, {1: 1, 2: -LARGEST})
def test_with_run(first: int, step: int, count: int, changes: dict[int, float | None]) -> None:
    """`with_run` finds two or more numbers with equal steps down, and nothing else."""
    numbers: list[Any] = [first + step * place for place in range(count)]
    for place, change in changes.items():
        if place < count:
            numbers[place] = None if change is None else first + step * place + change
    whole = [number for number in numbers if isinstance(number, int)]
    steps = {below - above for above, below in pairwise(whole)} if len(whole) == count else set[int]()
    run = (whole[0], min(steps), count) if len(steps) == 1 and max(steps) < 0 else None
    assert with_run(numbers) == (numbers if run is None else range(run[0], min(whole) - 1, run[1]), run)
