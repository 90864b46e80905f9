"""Order of a list: the rows given, as spans of descending numbers.

They take constant memory. Rows of an ordered list never rise from row to row, and the list grows at its head
only. So nothing lies between two neighboring rows of one pass: each pass is one span of numbers from the
head down to its last row, and joins the spans that it passes. Inside a span every row was given. At its two
ends rows may share a number with rows that were not: there the marks of the rows given are counted.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain, pairwise, repeat
from typing import Any, cast

import msgspec
from attrs import frozen
from msgspec import Struct

__all__ = [
    "MAX_TIES",
    "Given",
    "Marks",
    "Order",
    "Rows",
    "Run",
    "Watermark",
    "listed",
    "rising",
    "with_run",
]

Run = tuple[int, int, int]  # first number, step from one to the next, count
Spans = tuple[tuple[int, int], ...]  # newest and oldest number of each, both included; from new to old
Mark = Callable[[int], str]  # the mark of the row at an index of the page
Marks = Mapping[str, int]  # how many rows have each mark
LateMark = Callable[[int], Marks]

MAX_TIES = 1_000  # rows that share one number; a checkpoint holds the mark of each


class Rows(Struct, eq=False):
    """Rows of one page that keep the order: their indices in it, and their numbers.

    `run` is set where the numbers are an arithmetic one, with steps down.
    """

    indices: Sequence[int] = ()
    numbers: Sequence[int] = ()
    run: Run | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def before(self, index: int) -> Rows:
        """Return the rows with a lower index."""
        count = bisect_left(self.indices, index)
        return Rows(self.indices[:count], self.numbers[:count])

    def behind(self, count: int) -> Rows:
        """Return the rows after the first `count`."""
        return Rows(self.indices[count:], self.numbers[count:])

    def without(self, indices: Collection[int]) -> Sequence[int]:
        """Return the numbers of the rows without those at `indices`."""
        if not indices:
            return self.numbers
        return [
            number for index, number in zip(self.indices, self.numbers, strict=True) if index not in indices
        ]


@frozen
class Watermark:
    """Watermark: the numbers given, all from `newest` to `oldest` except the `gaps`.

    Both ends are included.

    Attributes:
        newest: the highest number given.
        oldest: the lowest number given.
        gaps: pairs of numbers that were given while what lies strictly between them was not; a walk that
            restarted in the midst of new rows at the head of the list leaves one. Both are the same where
            only some of the rows that share a number were given.
        at: number of the row before the page to fetch next; None for the first page.
        ties: for each end of a span where rows may share a number, the marks of the rows given there.
        met: those of the marks at number `at` that this pass has met.
        number_field: name of the field with that number, as the service spells it.

    """

    newest: int
    oldest: int
    gaps: tuple[tuple[int, int], ...] = ()
    at: int | None = None
    ties: tuple[tuple[int, tuple[str, ...]], ...] = ()
    met: tuple[str, ...] = ()
    number_field: str = ""


_NO_INDICES = frozenset[int]()
_NO_TIES: Mapping[int, Marks] = {}  # of all places where no two rows share a number


class Given(Struct, frozen=True, eq=False):
    """Numbers given up to a place between two pages; mappings are only replaced.

    Attributes:
        spans: spans of the numbers given.
        last: number of the row before the place; None for the first page.
        ties: marks of the rows given at the ends of spans.
        met: those of these marks that this pass has met.

    """

    spans: Spans = ()
    last: int | None = None
    ties: Mapping[int, Marks] = msgspec.field(default_factory=dict[int, Marks])
    met: Mapping[int, Marks] = msgspec.field(default_factory=dict[int, Marks])

    def watermark(self, number_field: str) -> Watermark | None:
        """Return the watermark at this place; None before the first number."""
        return _written(self, self, number_field)


_NOTHING = Given()


class Order:
    """Rows given of a list whose numbers never rise. `unique`: no two share one.

    `number_field` is the name of the field with the number.
    """

    def __init__(self, *, unique: bool, watermark: Watermark | None = None, number_field: str = "") -> None:
        self._unique = unique
        self._number_field = number_field
        self.lost_marks = False  # rows at the ends of spans may have been given without a mark
        self._after = _NOTHING if watermark is None else _read(watermark)
        self._before = self._after

    @property
    def last(self) -> int | None:
        """Number of the last row of this pass; None before the first one."""
        return self._after.last

    @property
    def given(self) -> Given:
        """Numbers given so far."""
        return self._after

    def restart(self) -> None:
        """Begin another pass: rows above the newest row given are new."""
        after = self._after
        self._before = self._after = Given(after.spans, None, after.ties)

    def lose_marks(self) -> None:
        """Drop all marks: rows at the ends of spans come again after a restart."""
        self._unique = False
        self.lost_marks = True
        after = self._after
        ends: dict[int, Marks] = {end: {} for span in after.spans for end in span}
        self._before = self._after = Given(after.spans, after.last, ends)

    @property
    def tied(self) -> int:
        """Return the number of rows of this pass that share the number of its last row.

        It is 1 where no two rows may share a number.
        """
        after = self._after
        met = None if after.last is None else after.met.get(after.last)
        return 1 if met is None else sum(met.values())

    def ends(self) -> Iterator[tuple[int, Marks, Marks]]:
        """Yield each number at an end of a span, its marks given and its marks met.

        The marks met are those of this pass.
        """
        for number, marks in self._after.ties.items():
            yield number, marks, self._after.met.get(number, {})

    def is_below(self, number: int) -> bool:
        """Check whether a number is below all numbers given."""
        spans = self._after.spans
        return not spans or number < spans[-1][1]

    def extend(self, rows: Rows, mark: Mark, late: LateMark | None = None) -> None:
        """Count rows below all numbers given; see `take`."""
        self._before = self._after
        self._after = self._extended(rows, mark, late)

    def take(self, rows: Rows, mark: Mark, late: LateMark | None = None) -> AbstractSet[int]:
        """Count rows as given, and return the indices of those that were given before.

        `late` returns the mark of one row, counted once; it may be made when it is read.
        """
        self._before = self._after
        stale: AbstractSet[int] = _NO_INDICES
        numbers, last = rows.numbers, self._after.last
        tied = self._tied(rows) if numbers and numbers[0] == last else 0
        if tied:
            self._after, stale = self._joined(rows.indices[:tied], mark)
            rows = rows.behind(tied)
        if rows and self.is_below(rows.numbers[0]):
            self._after = self._extended(rows, mark, late)
        elif rows:
            self._after, more = self._sift(rows, mark, self._after)
            stale = stale | more
        return stale

    def watermark(self, rows: Rows | None = None, mark: Mark | None = None) -> Watermark | None:
        """Return the numbers given; with `rows`, when only these of the page were.

        The page is the last one.
        """
        if rows is None or mark is None:
            return self._after.watermark(self._number_field)
        return _written(self._sift(rows, mark)[0], self._before, self._number_field)

    def _tied(self, rows: Rows) -> int:
        """Count the rows with the number of the last row before them; the first has it."""
        before = self._after
        if self._unique or before.last is None or before.spans[-1][1] != before.last:
            return 0
        return rows.numbers.count(before.last)

    def _joined(self, indices: Sequence[int], mark: Mark) -> tuple[Given, set[int]]:
        """Return the position after rows that share the lowest number given.

        The second value holds the indices of those given before.
        """
        before = self._after
        number = cast("int", before.last)
        given, here = dict(before.ties.get(number, {})), dict(before.met.get(number, {}))
        stale = {index for index in indices if _meet(mark(index), given, here)}
        ties, met = {**before.ties, number: given}, {**before.met, number: here}
        return Given(before.spans, number, ties, met), stale

    def _extended(self, rows: Rows, mark: Mark, late: LateMark | None) -> Given:
        before = self._after
        first, last = rows.numbers[0], rows.numbers[-1]
        newest = before.spans[0][0] if before.spans else first
        spans = ((newest, last),)
        if self._unique:
            return Given(spans, last, _NO_TIES, _NO_TIES)
        at_end = _marks(rows.indices[-rows.numbers.count(last) :], mark, late)
        if before.spans:
            ties = {newest: before.ties.get(newest, {}), last: at_end}
            return Given(spans, last, ties, {newest: before.met.get(newest, {}), last: at_end})
        ties = {newest: _marks(rows.indices[: rows.numbers.count(first)], mark, late), last: at_end}
        return Given(spans, last, ties, ties)

    def _sift(self, rows: Rows, mark: Mark, before: Given | None = None) -> tuple[Given, set[int]]:
        """Return the position after `rows`, and the indices of those given before."""
        before = self._before if before is None else before
        spans, last = before.spans, before.last
        ties = {number: dict(marks) for number, marks in before.ties.items()}
        met = {number: dict(marks) for number, marks in before.met.items()}
        stale: set[int] = set()
        for index, number in zip(rows.indices, rows.numbers, strict=True):
            if self._given(index, number, spans, ties, met, mark):
                stale.add(index)
            spans = _walked(spans, number if last is None else last, number, unique=self._unique)
            last = number
        ends = {end for span in spans for end in span}
        return Given(spans, last, _only(ties, ends), _only(met, ends)), stale

    def _given(
        self,
        index: int,
        number: int,
        spans: Spans,
        ties: dict[int, dict[str, int]],
        met: dict[int, dict[str, int]],
        mark: Mark,
    ) -> bool:
        """Check whether a row was given before; count it as met, and as given."""
        if self._unique:
            return any(oldest <= number <= newest for newest, oldest in spans)
        if any(oldest < number < newest for newest, oldest in spans):
            return True
        return _meet(mark(index), ties.setdefault(number, {}), met.setdefault(number, {}))


def listed(marks: Marks) -> tuple[str, ...]:
    """Return each mark as often as it is counted."""
    if len(marks) == 1:  # of nearly all places
        (mark,) = marks
        return (mark,) * marks[mark]
    return tuple(chain.from_iterable(map(repeat, marks, marks.values()))) if marks else ()


def _meet(own: str, given: dict[str, int], here: dict[str, int]) -> bool:
    """Count a mark as met, and as given; return whether it was given before."""
    met, before = here.get(own, 0), given.get(own, 0)
    here[own] = met + 1
    if met < before:
        return True
    given[own] = before + 1
    return False


def _marks(indices: Sequence[int], mark: Mark, late: LateMark | None) -> Marks:
    """Count the marks of rows."""
    if late is not None and len(indices) == 1:
        return late(indices[0])
    counted: dict[str, int] = {}
    for own in map(mark, indices):
        counted[own] = counted.get(own, 0) + 1
    return counted


def _only(marks: Mapping[int, Marks], ends: Collection[int]) -> dict[int, Marks]:
    return {number: counted for number, counted in marks.items() if number in ends}


def _walked(spans: Spans, last: int, number: int, *, unique: bool) -> Spans:
    """Return the spans after a step from the number `last` to `number`.

    Both are numbers of neighboring rows. A step down proves that all rows between the two were given, and
    those that have `last` as well. Of those that have `number` more may follow: a span that begins there is
    not joined before the next step.
    """
    if last == number and any(oldest <= number <= newest for newest, oldest in spans):
        return spans
    above = tuple(span for span in spans if span[1] > last)
    reached = number - 1 if unique else number
    below = tuple(span for span in spans if span[0] <= reached and span[1] < number)
    newest, oldest = last, number
    for met in spans[len(above) : len(spans) - len(below)]:
        newest, oldest = max(newest, met[0]), min(oldest, met[1])
    return (*above, (newest, oldest), *below)


def _read(watermark: Watermark) -> Given:
    above = (watermark.newest, *(below for _, below in watermark.gaps))
    below = (*(above for above, _ in watermark.gaps), watermark.oldest)
    return Given(
        tuple(zip(above, below, strict=True)),
        watermark.at,
        {number: Counter(marks) for number, marks in watermark.ties},
        {} if watermark.at is None else {watermark.at: Counter(watermark.met)},
    )


def _written(given: Given, before: Given, number_field: str) -> Watermark | None:
    """Return the watermark of `given` for a walk at the position `before`.

    The walk fetches the page after that position next.
    """
    spans = given.spans
    if not spans:
        return None
    return Watermark(
        spans[0][0],
        spans[-1][1],
        tuple((above[1], below[0]) for above, below in pairwise(spans)),
        before.last,
        tuple([(number, listed(marks)) for number, marks in given.ties.items()]),
        () if before.last is None else listed(before.met.get(before.last, {})),
        number_field,
    )


def with_run(numbers: list[Any]) -> tuple[Sequence[Any], Run | None]:
    """Return numbers and the run that they form, if they form one.

    The numbers of a run are returned as a `range`, which takes little memory.
    """
    count = len(numbers)
    if count < 2 or type(first := numbers[0]) is not int or type(second := numbers[1]) is not int:
        return numbers, None
    step = second - first
    run = range(first, first + step * count, step) if step < 0 else range(0)
    if not run or numbers[-1] != run[-1] or not _are(numbers, run):
        return numbers, None
    return run, (first, step, count)


def _are(numbers: list[Any], run: range) -> bool:
    """Check whether numbers are those of a run, with the same ends.

    An object for each number of the run would take twice as long. Numbers of 32 bits are the digits of one
    large number, and that of a run is a sum of two products.
    """
    pack, ones, places = _powers(len(run))
    try:
        digits = pack(*numbers)
    except struct.error:  # one of them is negative, larger, or no whole number
        return numbers == list(run)
    return int.from_bytes(digits, "little") == run.start * ones + run.step * places


@lru_cache(maxsize=32)  # pages of a list have the same size, but for the last one
def _powers(count: int) -> tuple[Callable[..., bytes], int, int]:
    """Return the packer of digits, and the numbers of digits 1, 1, 1 and 0, 1, 2."""
    pack = struct.Struct(f"<{count}I").pack
    return (
        pack,
        int.from_bytes(pack(*repeat(1, count)), "little"),
        int.from_bytes(pack(*range(count)), "little"),
    )


def rising(numbers: Sequence[int | None], last: int | None) -> int | None:
    """Return the place of the first number that rises or is missing."""
    known = [number for number in numbers if number is not None]
    follows = last is None or not known or known[0] <= last
    if follows and len(known) == len(numbers) and known == sorted(known, reverse=True):  # in C
        return None
    before = [last, *numbers]
    return next(
        place
        for place, number in enumerate(numbers)
        if number is None or ((above := before[place]) is not None and number > above)
    )
