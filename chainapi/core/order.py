"""Descending numbers: which rows of an ordered list were given, in constant memory.

Rows of an ordered list never rise from row to row, and the list grows at its head only. So nothing lies
between two neighbouring rows of one pass: each pass is one span of numbers from the head down to its last
row, and joins the spans that it meets. Inside a span every row was given. At its two ends rows may share a
number with rows that were not: there the marks of the rows given are counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from attrs import field, frozen

__all__ = ["MAX_TIES", "Order", "Rows", "Runs", "Watermark"]

Spans = tuple[tuple[int, int], ...]  # newest and oldest number of each, both included; from new to old
Mark = Callable[[int], str]  # the mark of the row at an index of the page

ANY = "*"  # the mark of a row that only its number identifies
MAX_TIES = 1_000  # rows that share one number; a checkpoint holds the mark of each


@frozen(eq=False)
class Rows:
    """Rows of one page that keep the order: their indices in it, and their numbers."""

    indices: Sequence[int] = ()
    numbers: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.indices)

    def before(self, index: int) -> Rows:
        """Return those with a lower index."""
        count = bisect_left(self.indices, index)
        return Rows(self.indices[:count], self.numbers[:count])

    def without(self, indices: Collection[int]) -> Sequence[int]:
        """Return the numbers of all but some of them."""
        if not indices:
            return self.numbers
        return [
            number for index, number in zip(self.indices, self.numbers, strict=True) if index not in indices
        ]


@frozen
class Watermark:
    """The numbers given: all from `newest` to `oldest`, both included, except inside the `gaps`.

    Attributes:
        newest: the highest number given.
        oldest: the lowest number given.
        gaps: pairs of numbers that were given while what lies strictly between them was not; a walk that
            restarted in the midst of new rows at the head of the list leaves one.
        at: number of the row before the page to fetch next; None for the first page.
        ties: for each end of a span where rows may share a number, the marks of the rows given there.
        met: those of the marks at number `at` that this pass has met.

    """

    newest: int
    oldest: int
    gaps: tuple[tuple[int, int], ...] = ()
    at: int | None = None
    ties: tuple[tuple[int, tuple[str, ...]], ...] = ()
    met: tuple[str, ...] = ()


@frozen(eq=False)
class _Position:
    """A place between two pages. The counters are never changed, only replaced."""

    spans: Spans = ()
    last: int | None = None
    ties: dict[int, Counter[str]] = field(factory=dict[int, Counter[str]])
    met: Counter[str] = field(factory=Counter[str])


class Order:
    """The rows given of a list whose numbers never rise. `unique`: no two rows share a number."""

    def __init__(self, *, unique: bool, watermark: Watermark | None = None) -> None:
        self._unique = unique
        self._after = _Position() if watermark is None else _read(watermark)
        self._before = self._after

    @property
    def last(self) -> int | None:
        """Number of the last row of this pass; None before the first one."""
        return self._after.last

    def restart(self) -> None:
        """Begin another pass: what lies above the newest row given is new."""
        after = self._after
        self._before = self._after = _Position(after.spans, None, after.ties)

    def share_numbers(self) -> None:
        """Note that rows do share numbers: at the ends of spans, only one row for each number was given."""
        if self._unique:
            self._unique = False
            after = self._after
            ends = {end: Counter({ANY: 1}) for span in after.spans for end in span}
            met = Counter[str]() if after.last is None else Counter({ANY: 1})
            self._before = self._after = _Position(after.spans, after.last, ends, met)

    @property
    def tied(self) -> int:
        """How many rows of this pass share the number of its last row; 1 where no two rows may."""
        return self._after.met.total() or 1

    def take(self, rows: Rows, mark: Mark) -> set[int]:
        """Count rows as given, and return the indices of those that were given before."""
        self._before = self._after
        if self._all_below(rows):
            self._after = self._extended(rows, mark)
            return set()
        self._after, stale = self._sift(rows, mark)
        return stale

    def watermark(self, rows: Rows | None = None, mark: Mark | None = None) -> Watermark | None:
        """Return the numbers given; with `rows`, when only these rows of the last page were."""
        if rows is None or mark is None:
            return _written(self._after, self._after)
        return _written(self._sift(rows, mark)[0], self._before)

    def _all_below(self, rows: Rows) -> bool:
        """Check whether all rows lie below every span and no two share a number: the usual page."""
        spans, numbers = self._before.spans, rows.numbers
        if not numbers or (spans and numbers[0] >= spans[-1][1]):
            return False
        return self._unique or len(set(numbers)) == len(numbers)

    def _extended(self, rows: Rows, mark: Mark) -> _Position:
        before = self._before
        first, last = rows.numbers[0], rows.numbers[-1]
        newest = before.spans[0][0] if before.spans else first
        spans = ((newest, last),)
        if self._unique:
            return _Position(spans, last)
        met = Counter({mark(rows.indices[-1]): 1})
        head = before.ties.get(newest) if before.spans else Counter({mark(rows.indices[0]): 1})
        return _Position(spans, last, {newest: head or Counter(), last: met}, met)

    def _sift(self, rows: Rows, mark: Mark) -> tuple[_Position, set[int]]:
        """Return the position after `rows`, and the indices of those given before."""
        before = self._before
        spans, last = before.spans, before.last
        ties = {number: Counter(marks) for number, marks in before.ties.items()}
        met = Counter(before.met)
        stale: set[int] = set()
        for index, number in zip(rows.indices, rows.numbers, strict=True):
            if number != last:
                met = Counter()
            if self._given(index, number, spans, ties, met, mark):
                stale.add(index)
            spans = _joined(spans, number if last is None else max(last, number), number)
            last = number
        ends = {end for span in spans for end in span}
        ties = {number: marks for number, marks in ties.items() if number in ends}
        return _Position(spans, last, ties, met), stale

    def _given(
        self,
        index: int,
        number: int,
        spans: Spans,
        ties: dict[int, Counter[str]],
        met: Counter[str],
        mark: Mark,
    ) -> bool:
        """Check whether a row was given before; count it as met, and as given."""
        if self._unique:
            return any(oldest <= number <= newest for newest, oldest in spans)
        if any(oldest < number < newest for newest, oldest in spans):
            return True
        marks = ties.setdefault(number, Counter())
        own = mark(index)
        name = own if met[own] < marks[own] or met[ANY] >= marks[ANY] else ANY
        before = met[name] < marks[name]
        met[name] += 1
        if not before:
            marks[name] += 1
        return before


def _joined(spans: Spans, newest: int, oldest: int) -> Spans:
    """Return the spans with one more, joined with those that it touches."""
    above = tuple(span for span in spans if span[1] > newest)
    below = tuple(span for span in spans if span[0] < oldest)
    for touched in spans[len(above) : len(spans) - len(below)]:
        newest, oldest = max(newest, touched[0]), min(oldest, touched[1])
    return (*above, (newest, oldest), *below)


def _read(watermark: Watermark) -> _Position:
    above = (watermark.newest, *(below for _, below in watermark.gaps))
    below = (*(above for above, _ in watermark.gaps), watermark.oldest)
    return _Position(
        tuple(zip(above, below, strict=True)),
        watermark.at,
        {number: Counter(marks) for number, marks in watermark.ties},
        Counter(watermark.met),
    )


def _written(given: _Position, before: _Position) -> Watermark | None:
    """Return what was `given`, for a walk that fetches the page behind the position `before` next."""
    spans = given.spans
    if not spans:
        return None
    return Watermark(
        spans[0][0],
        spans[-1][1],
        tuple((above[1], below[0]) for above, below in pairwise(spans)),
        before.last,
        tuple((number, tuple(marks.elements())) for number, marks in given.ties.items()),
        tuple(before.met.elements()),
    )


class Runs:
    """Numbers as arithmetic runs, such as consecutive blocks or daily points; a bounded number of runs.

    An order that breaks proves nothing about the rows given before the break: this says which they were.
    """

    LIMIT = 1_024

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] | None = []  # first number, step, count

    @property
    def overflowed(self) -> bool:
        """Whether the numbers took too many runs, and were dropped."""
        return self._runs is None

    def __iter__(self) -> Iterator[int]:
        for first, step, count in self._runs or ():
            for place in range(count):
                yield first + step * place

    def extend(self, numbers: Sequence[int]) -> None:
        """Add numbers in the order in which their rows were given."""
        runs = self._runs
        if runs is None or _lengthened(runs, numbers):
            return
        for number in numbers:
            _append(runs, number)
        if len(runs) > self.LIMIT:
            self._runs = None


def _lengthened(runs: list[tuple[int, int, int]], numbers: Sequence[int]) -> bool:
    """Lengthen the last run by a whole page, where that fits: the usual case, at little cost."""
    if not runs or not numbers:
        return False
    first, step, count = runs[-1]
    start = first + step * count
    if not step or numbers != list(range(start, start + step * len(numbers), step)):
        return False
    runs[-1] = first, step, count + len(numbers)
    return True


def _append(runs: list[tuple[int, int, int]], number: int) -> None:
    first, step, count = runs[-1] if runs else (number, 0, 0)
    if count == 1:
        runs[-1] = first, number - first, 2
    elif count and number == first + step * count:
        runs[-1] = first, step, count + 1
    else:
        runs.append((number, 0, 1))


def rising(numbers: Sequence[int | None], last: int | None) -> int | None:
    """Return the place of the first number that rises above the one before it, or is missing."""
    known = [number for number in numbers if number is not None]
    follows = last is None or not known or known[0] <= last
    if follows and len(known) == len(numbers) and known == sorted(known, reverse=True):  # at the speed of C
        return None
    for place, number in enumerate(numbers):
        if number is None or (last is not None and number > last):
            return place
        last = number
    return None
