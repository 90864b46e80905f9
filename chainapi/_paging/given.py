"""Rows given: which rows of a page the reader has had before.

* Within one pass, a *key* proves that a row is repeated: attributes that identify it by the service's
  definition. Without a key nothing is dropped: equal rows are rows. A key that two rows of one page share
  identifies nothing, and is given up.
* After a restart each row is left out as often as it was given before. It is known by its key, else by its
  content. The process keeps a hash of each row that it gave: of at most `MOST` rows in a pass, and of the
  first `HEAD` rows if the list is in descending order of a number.
* Rows of an ordered list without a hash are known by their *numbers*. A list grows at its head, and may
  replace rows there; so far below it, and for rows given by another process, each pass is a span of numbers
  that the reader has (`Watermark`). The order is checked on each page, and not used any more once it breaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from itertools import chain
from math import inf
from operator import attrgetter, gt
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from chainapi._paging.checkpoint import Spans, Watermark
from chainapi._paging.rows import Content, EmptyPage, Identity, PageRows, RowsOfPage

__all__ = ["Assumption", "Fall", "Given", "Hashes", "JudgedRows", "StoredBefore"]

HEAD = 1_024  # rows at the head of a pass over an ordered list, which the service may replace
MOST = 1 << 20  # rows of a pass that are known by their hashes; each takes about 60 bytes
NEIGHBORS = 128  # rows, in whole pages, among which a key that comes again is looked at more closely
MAX_TIES = 1_000  # rows that share one number; a checkpoint holds the mark of each


class Assumption(Enum):
    """Assumption about a list, by the evidence that refutes it."""

    KEY = "two rows of one page share a key"
    ORDER = "a row rises above the one before it, or has no number"
    TIES = "too many rows share one number"
    MEMORY = "the list has too many rows to keep a hash of each"


class JudgedRows(Struct, eq=False):
    """Which rows of a page were given before.

    Attributes:
        repeated: indices of rows that this pass had before.
        stale: indices of all rows that were given before, the repeated ones included.
        fresh: whether the page has a row that was never given before; None if rows are not counted, and
            for a page without rows: it may have had rows of the neighbors of a range.
        signature: a hash of the rows: of their keys where those identify them, else of their content, as the
            service sent it.
        refuted: assumptions that this page refuted.
        size: number of the rows.

    """

    repeated: Collection[int] = ()
    stale: Collection[int] = ()
    fresh: bool | None = None
    signature: int = 0
    refuted: Sequence[Assumption] = ()
    size: int = 0


class Fall(NamedTuple):
    """Numbers of rows given of a list in descending order.

    Attributes:
        newest: greatest number given.
        last: number of the row before the page to come.

    """

    newest: int
    last: int


class StoredBefore(Protocol):
    """Rows of this pass that the reader stored before a resume.

    See `chainapi.export.stored`.
    """

    done: bool
    skipped: bool

    @property
    def unread(self) -> bool:
        """Whether `read` may block."""
        ...

    def read(self, page: PageRows, order: Fall | None) -> None:
        """Read what the reader has stored, if the page may have rows of it."""
        ...

    def match(self, page: PageRows, indices: Sequence[int], order: Fall | None) -> set[int]:
        """Return the indices of rows to leave out."""
        ...


_NONE = frozenset[int]()  # of all pages without such rows
_NO_ROWS = PageRows(EmptyPage(), Identity(), keyed=False)


class Given:
    """Rows given so far of one list, in all passes of its walk.

    Args:
        identity: readers of what identifies a row.
        watermark: the numbers given before a resume.
        unordered: the order broke before the resume, or was not checked then.
        keyless: the key was given up before the resume.
        resumed: rows were given before the resume.
        head: marks of the rows that were given of the page to come.

    Attributes:
        exact: whether a restart leaves out each row that was given, and no other one.

    """

    def __init__(
        self,
        identity: Identity,
        *,
        watermark: Watermark | None = None,
        unordered: bool = False,
        keyless: bool = False,
        resumed: bool = False,
        head: Sequence[str] = (),
    ) -> None:
        self._identity = identity
        self._keyed = identity.key is not None and not keyless
        self._watermark: Watermark | None = None
        if identity.number is not None and not unordered:
            self._watermark = watermark or Watermark(identity.number_field)
        self._unique = identity.unique and not keyless
        self.exact: bool = not resumed
        # Rows with this number or a lower one are known by the watermark alone.
        self._floor = inf if resumed else -inf
        self._counting = False
        self._first_pass = not resumed
        self._before, self._met = Hashes(), Hashes()  # rows given in passes before, and met in this one
        self._neighbors = _Neighbors(unique=identity.unique)
        self._resumed = _Marks(head) if head else None
        self._stored: StoredBefore | None = None
        self._page = _NO_ROWS

    # The position

    @property
    def watermark(self) -> Watermark | None:
        """Numbers given so far; None before the first row, and without an order."""
        watermark = self._watermark
        return watermark if watermark is not None and watermark.spans else None

    @property
    def ordered(self) -> bool:
        """Whether the list has a descending number that no page has refuted."""
        return self._watermark is not None

    @property
    def broken(self) -> bool:
        """Whether the list has a descending number, and a page broke its order."""
        return self._identity.number is not None and self._watermark is None

    @property
    def keyless(self) -> bool:
        """Whether the list has a key, and a page refuted it."""
        return self._identity.key is not None and not self._keyed

    @property
    def head(self) -> tuple[str, ...]:
        """Marks of rows given before a resume that no page has had since."""
        return () if self._resumed is None else self._resumed.left

    def watermark_inside(self, before: Watermark | None, given: int) -> Watermark | None:
        """Return the numbers given before the last page and in its first `given` rows.

        Args:
            before: the numbers given before that page.
            given: number of rows.

        """
        if self._watermark is None:
            return None
        before, page = before or Watermark(self._identity.number_field), self._page
        indices = [index for index in range(given) if index not in page.repeated]
        after, _ = self._passed(before, page, indices)
        # The walk fetches the same page again.
        after = Watermark(after.number_field, after.spans, before.at, after.ties, before.met)
        return after if after.spans else None

    def marks_given(self, given: int, stale: Collection[int]) -> tuple[str, ...]:
        """Return marks of the rows of the last page that a resume inside it leaves out."""
        page = self._page
        return tuple(page.marks(index) for index in range(page.size) if index < given or index in stale)

    # Settings of the reader

    def start_counting(self) -> None:
        """Keep the hashes of rows from now on, for a reader that gets each row once."""
        if not self._counting:
            self._counting = True
            if self.watermark is not None and not self._keyed:
                self._floor = inf

    @property
    def reads_stored(self) -> bool:
        """Whether `judge` may read what the reader has stored, which blocks."""
        return self._stored is not None and self._stored.unread

    def leave_out(self, stored: StoredBefore) -> None:
        """Leave out rows that the reader had of this pass before a resume."""
        self._stored = stored

    # Pages

    def restart(self) -> None:
        """Begin another pass over the list."""
        self._before.add_pass(self._met)
        self._met = Hashes()
        self._first_pass = False
        self._neighbors.clear()
        self._resumed = self._stored = None
        if (mark := self._watermark) is not None:
            self._watermark = Watermark(mark.number_field, mark.spans, ties=mark.ties)

    def judge(self, page: RowsOfPage) -> JudgedRows:
        """Count the rows of the next page as given.

        Return which of them were given before.

        Rows that the reader had stored before a resume count as rows of this pass.

        Raises:
            DecodeError: a row lacks the field that the caller named; nothing was counted.

        """
        rows = PageRows(page, self._identity, keyed=self._keyed)
        if self._stored is not None:
            self._stored.read(rows, self._fall())  # may raise: nothing is counted yet
        self._page = rows
        refuted: list[Assumption] = []
        below = self._is_below(rows)
        if below:
            self._neighbors.remember(rows)
        elif self._keyed and not self._find_repeated(rows):
            self._give_up_key(rows)
            refuted.append(Assumption.KEY)
        skipped = self._stored is not None and self._match_stored(self._stored, rows)
        indices: Sequence[int] = range(rows.size)
        if rows.repeated:
            indices = [index for index in indices if index not in rows.repeated]
        records = self._records()
        order = self._watermark
        if order is not None:
            kept, fault = (len(indices), None) if below else self._in_order(order, rows, indices)
            stale, fresh = self._judge_ordered(order, rows, indices[:kept], records=records)
            if fault is not None:
                self._break_order()
                refuted.append(fault)
                records = self._records()
                more, new = self._judge_counted(rows, indices[kept:], records=records)
                stale, fresh = stale | more, fresh or new
        else:
            stale, fresh = self._judge_counted(rows, indices, records=records)
        if self._resumed is not None:
            stale = {*stale, *self._given_before_resume(self._resumed, rows, indices, stale)}
        if records and indices:
            hashes = rows.hashes
            self._met.add(hashes if len(indices) == rows.size else [hashes[index] for index in indices])
        elif indices:
            refuted += self._forget(rows, indices)
        stale = {*stale, *rows.repeated} if rows.repeated else stale
        fresh = (skipped or fresh) if rows.size else None
        return JudgedRows(rows.repeated, stale, fresh, rows.signature, refuted, rows.size)

    def signature(self, page: RowsOfPage) -> int:
        """Return the signature of a page without counting its rows (see `JudgedRows`)."""
        return PageRows(page, self._identity, keyed=self._keyed).signature

    def leave(self) -> None:
        """Drop the rows of the last page: nobody asks for one of them any more."""
        self._page = _NO_ROWS

    @property
    def page(self) -> PageRows:
        """Rows of the last page; none after it was left."""
        return self._page

    # Order

    def _fall(self) -> Fall | None:
        mark = self._watermark
        return None if mark is None or mark.at is None else Fall(mark.newest, mark.at)

    def _is_below(self, rows: PageRows) -> bool:
        """Check that numbers which are keys fall, from below the last one."""
        mark = self._watermark
        numbers: Sequence[Any] = rows.numbers
        if mark is None or not self._unique or not self._keyed or not numbers:
            return False
        falls = isinstance(numbers, range) or (None not in numbers and all(map(gt, numbers, numbers[1:])))
        return falls and (mark.at is None or numbers[0] < mark.at)

    def _in_order(
        self, mark: Watermark, rows: PageRows, indices: Sequence[int]
    ) -> tuple[int, Assumption | None]:
        """Return how many of these rows keep the order, and what broke it."""
        numbers: Sequence[Any] = rows.numbers
        if len(indices) < rows.size:
            numbers = [numbers[index] for index in indices]
        if not numbers:
            return 0, None
        if len(mark.met) > MAX_TIES and numbers[0] == mark.at:
            return 0, Assumption.TIES
        falls = isinstance(numbers, range) or (
            None not in numbers and sorted(numbers, reverse=True) == numbers
        )
        if falls and (mark.at is None or numbers[0] <= mark.at):
            return len(numbers), None
        above = mark.at
        for place, number in enumerate(numbers):
            if number is None or (above is not None and number > above):
                return place, Assumption.ORDER
            above = number
        return len(numbers), None

    def _break_order(self) -> None:
        """Recognize rows by their hashes only from here on."""
        self._watermark = None
        self.exact = self.exact and self._floor == -inf

    def _judge_ordered(
        self, before: Watermark, rows: PageRows, indices: Sequence[int], *, records: bool
    ) -> tuple[AbstractSet[int], bool | None]:
        """Return the rows given before, and whether the page makes progress."""
        self._watermark, tied = self._passed(before, rows, indices)
        numbers: Sequence[Any] = rows.numbers
        stale: AbstractSet[int] = _NONE
        if not self._first_pass:
            floor = self._floor if records else inf
            below = [index for index in indices if numbers[index] <= floor]
            stale = {
                index
                for index in below
                if index in tied or _is_inside(before, numbers[index], unique=self._unique)
            }
            above = indices[: len(indices) - len(below)]
            # A row keeps its number. If its number was never given, another row has the same key.
            again = self._again(rows, above)
            stale |= {index for index in again if _is_inside(before, numbers[index], unique=True)}
        falls = bool(indices) and (before.at is None or numbers[indices[-1]] < before.at)
        return stale, falls or len(stale) < len(indices)

    def _passed(
        self, before: Watermark, rows: PageRows, indices: Sequence[int]
    ) -> tuple[Watermark, AbstractSet[int]]:
        """Return the numbers given after some rows of a page.

        The second value has the rows at the ends of spans whose marks the reader has.
        """
        if not indices:
            return before, _NONE
        numbers: Sequence[Any] = rows.numbers
        if len(indices) < rows.size:
            numbers = [numbers[index] for index in indices]
        first, last, field = numbers[0], numbers[-1], before.number_field
        start = first if before.at is None else before.at
        if before.at is None and before.spans:  # the list has no rows above the first one of a pass
            start = max(first, before.spans[-1][1])
        spans = _joined(before.spans, start, last, unique=self._unique)
        if self._unique:
            return Watermark(field, spans, last), _NONE
        ends, ties = {*chain.from_iterable(spans)}, dict(before.ties)
        stale, met = set[int](), before.met
        for number in ends | ties.keys():
            if not (tied := numbers.count(number)):
                continue
            place = numbers.index(number)  # rows that share a number stand together
            here = Counter(before.met if number == before.at else ())
            ties[number] = _met(rows, indices[place : place + tied], here, ties.get(number, ()), stale)
            if number == last:
                met = tuple(here.elements())
        for inside in ties.keys() - ends:
            del ties[inside]
        return Watermark(field, spans, last, tuple(ties.items()), met), stale

    # Counts

    def _records(self) -> bool:
        """Return whether the hashes of the next page are kept."""
        if self._watermark is not None:
            return (self._keyed or self._counting) and self._met.size < HEAD
        return self._counting and self._met.size < MOST

    def _forget(self, rows: PageRows, indices: Sequence[int]) -> Sequence[Assumption]:
        """Note that rows were given whose hashes are not kept."""
        if self._watermark is not None:
            self._floor = max(self._floor, rows.numbers[indices[0]] or 0)
            return ()
        was_exact, self.exact = self.exact, False
        return (Assumption.MEMORY,) if self._counting and was_exact else ()

    def _judge_counted(
        self, rows: PageRows, indices: Sequence[int], *, records: bool
    ) -> tuple[AbstractSet[int], bool | None]:
        """Return the rows given before, and whether there is another one.

        The second is None if rows are not counted.
        """
        if not records:
            return _NONE, None if indices else False
        return self._again(rows, indices), self._are_fresh(rows, indices)

    def _are_fresh(self, rows: PageRows, indices: Sequence[int]) -> bool:
        return any(
            rows.hashes[index] not in self._met and rows.hashes[index] not in self._before
            for index in indices
        )

    def _again(self, rows: PageRows, indices: Sequence[int]) -> AbstractSet[int]:
        """Return the rows that passes before have given more often than this one met them."""
        before = self._before
        if not indices or not before.size or before.are_new(rows.hashes):
            return _NONE
        hashes = rows.hashes
        here, stale = Counter[int](), set[int]()
        for index in indices:
            one = hashes[index]
            here[one] += 1
            if self._met.count(one) + here[one] <= before.count(one):
                stale.add(index)
        return stale

    # Keys

    def _find_repeated(self, rows: PageRows) -> bool:
        """Find the rows whose keys this pass had; False if the key identifies no row."""
        if not self._neighbors.add(rows):
            return False
        if self._records() and not self._met.are_new(rows.hashes):
            last = None if self._watermark is None else self._watermark.at
            met = {
                index
                for index, one in enumerate(rows.hashes)
                if one in self._met
                and rows.has_key(index)
                and (last is None or (number := rows.numbers[index]) is None or number >= last)
            }
            rows.repeated = {*rows.repeated, *met}
        return True

    def _give_up_key(self, rows: PageRows) -> None:
        """Recognize rows by their content from here on.

        Those given so far are known by their keys.
        """
        self._keyed = self._unique = rows.keyed = False
        rows.repeated = _NONE
        self._neighbors.clear()
        if self._before.size or self._met.size or self.watermark is not None or not self._first_pass:
            self.exact = False
        if self.watermark is not None:
            self._floor = inf
            mark = self.watermark
            self._watermark = Watermark(mark.number_field, mark.spans, mark.at)

    # Resumes

    def _match_stored(self, stored: StoredBefore, rows: PageRows) -> bool:
        """Count the rows that the reader stored as rows of this pass.

        Return whether rows were left out that it did not have.
        """
        indices = [index for index in range(rows.size) if index not in rows.repeated]
        rows.repeated = {*rows.repeated, *stored.match(rows, indices, self._fall())}
        if stored.done:
            self._stored = None
        return stored.skipped

    def _given_before_resume(
        self, resumed: _Marks, rows: PageRows, indices: Sequence[int], stale: AbstractSet[int]
    ) -> AbstractSet[int]:
        """Return the rows of a page begun before the resume that were given of it."""
        resumed.match(rows, sorted(stale))  # the order is the surer evidence
        again: AbstractSet[int] = _NONE
        if self._watermark is None or self.keyless:
            again = resumed.match(rows, [index for index in indices if index not in stale])
        resumed.pass_by(rows, again or stale)
        return again


class Hashes:
    """Hashes or digests of rows, each as often as it was added.

    Attributes:
        size: number of those added.

    """

    def __init__(self) -> None:
        self._once = set[Hashable]()
        self._more = dict[Hashable, int]()  # how often those were added that were added again
        self.size = 0

    def __contains__(self, one: Hashable) -> bool:
        return one in self._once

    def count(self, one: Hashable) -> int:
        """Return how often a hash was added."""
        return self._more.get(one, 1) if one in self._once else 0

    def are_new(self, hashes: Sequence[Hashable]) -> bool:
        """Check that none of the hashes was added."""
        return self._once.isdisjoint(hashes)

    def add(self, hashes: Sequence[Hashable]) -> None:
        """Add hashes."""
        self.size += len(hashes)
        distinct = {*hashes}
        if len(distinct) < len(hashes) or not self._once.isdisjoint(distinct):
            for one, times in Counter(hashes).items():
                if (count := self.count(one) + times) > 1:
                    self._more[one] = count
        self._once |= distinct

    def add_pass(self, later: Hashes) -> None:
        """Count each hash as often as it was added here or in `later`, whichever is more."""
        for one, count in later._more.items():
            self._more[one] = max(count, self.count(one))
        self._once |= later._once
        self.size = len(self._once)


class _Neighbor(Struct, eq=False):
    """Keys and numbers of a page of this pass, and its content if that matters."""

    keys: Sequence[Hashable]
    numbers: Sequence[int | None]
    size: int
    content: Content | None
    contents: Sequence[bytes] | None = None  # made when a row is compared


_keys = attrgetter("keys")


class _Neighbors:
    """Keys of the last rows of this pass.

    `unique`: the descending number of a row is its key.
    """

    def __init__(self, *, unique: bool) -> None:
        self._unique = unique
        self._pages: list[_Neighbor] = []
        self._size = 0

    def clear(self) -> None:
        """Forget all rows: another pass begins, or the key is given up."""
        self._pages.clear()
        self._size = 0

    def add(self, page: PageRows) -> bool:
        """Find the rows that the last pages had; False if the key fails.

        The key fails where the page shows that it identifies no row.
        """
        if len(page.distinct) < page.size and _repeats(page):
            return False
        if not page.distinct.isdisjoint(chain.from_iterable(map(_keys, self._pages))):
            known, repeated = self._known(), set[int]()
            for index, key in enumerate(page.keys):
                if key is not None and key in known:
                    if self._is_other(page, index, *known[key]):
                        return False
                    repeated.add(index)
            page.repeated = repeated
        self.remember(page)
        return True

    def _known(self) -> Mapping[Hashable, tuple[_Neighbor, int]]:
        """Return the keys of the last rows of this pass, and the place of each."""
        places = [(page, index) for page in self._pages for index in range(len(page.keys))]
        return {page.keys[index]: (page, index) for page, index in places[-NEIGHBORS:]}

    def remember(self, page: PageRows) -> None:
        """Remember the rows of a page, and forget those too far behind."""
        if not page.size:
            return
        pages = self._pages
        pages.append(_Neighbor(page.keys, page.numbers, page.size, page.content if self._unique else None))
        self._size += page.size
        while self._size - pages[0].size >= NEIGHBORS:
            self._size -= pages.pop(0).size

    def _is_other(self, page: PageRows, index: int, known: _Neighbor, place: int) -> bool:
        """Check whether a row differs from a row with the same key.

        A row keeps its number, while its other fields may change. Only if the number is the key, the row
        consists of them.
        """
        if self._unique:
            if known.contents is None:
                known.contents = () if known.content is None else known.content.canonical_rows()
            return not known.contents or page.contents[index] != known.contents[place]
        return bool(page.numbers) and page.numbers[index] != known.numbers[place]


def _repeats(page: PageRows) -> bool:
    """Check whether two rows share a key; a row without a key shares none."""
    given = [key for key in page.keys if key is not None]
    return len(page.distinct - {None}) < len(given)


class _Marks:
    """Marks of rows that were given of a page before a resume inside it."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = Counter(marks)
        self._by_part: dict[str, set[str]] = {}
        for mark in self._marks:
            for part in _parts(mark):
                self._by_part.setdefault(part, set()).add(mark)
        self._behind: int | None = None  # rows after the last one given before; None above the first

    @property
    def left(self) -> tuple[str, ...]:
        """Those that were not met."""
        return tuple(self._marks.elements())

    def match(self, page: PageRows, indices: Sequence[int]) -> AbstractSet[int]:
        """Return the indices of rows that have a mark; each mark matches one row."""
        if not self._marks:
            return _NONE
        return {index for index in indices if self._matches(page.marks(index))}

    def pass_by(self, page: PageRows, again: Collection[int]) -> None:
        """Drop the marks once enough rows follow the last row that has one.

        `again` holds the indices of the rows of this page that were given before. The list may have grown by
        any number of rows above the first of them. After the last one, a row equal to one of them is a
        different row.
        """
        if again:
            self._behind = page.size - 1 - max(again)
        elif self._behind is not None:
            self._behind += page.size
        if self._behind is not None and self._behind >= NEIGHBORS:
            self._marks.clear()

    def _matches(self, own: str) -> bool:
        for part in _parts(own):
            for mark in self._by_part.get(part, ()):
                if self._marks[mark] and _same(mark, own):
                    self._marks -= Counter((mark,))
                    return True
        return False


def _parts(mark: str) -> tuple[str, ...]:
    """Return the mark of the key, if there is one, then the mark of the content."""
    return (mark[16:], mark[:16]) if len(mark) > 16 else (mark,)


def _same(mark: str, own: str) -> bool:
    """Compare the marks of a row: by key where both have one, else by content."""
    part = 0 if len(mark) > 16 and len(own) > 16 else -1
    return _parts(mark)[part] == _parts(own)[part]


def _met(
    rows: PageRows, indices: Iterable[int], met: Counter[str], given: Sequence[str], stale: set[int]
) -> tuple[str, ...]:
    """Count rows that share a number as met, and add those given before to `stale`.

    Return the marks of all rows given with that number.
    """
    known = Counter(given)
    for index in indices:
        mark = rows.mark(index)
        met[mark] += 1
        if met[mark] <= known[mark]:
            stale.add(index)
        else:
            known[mark] = met[mark]
    return tuple(known.elements())


def _is_inside(mark: Watermark, number: int, *, unique: bool) -> bool:
    """Check whether the walk has given all rows with a number."""
    if unique:
        return any(oldest <= number <= newest for newest, oldest in mark.spans)
    return any(oldest < number < newest for newest, oldest in mark.spans)


def _joined(spans: Spans, above: int, number: int, *, unique: bool) -> Spans:
    """Return the spans of a pass that went from the number `above` down to `number`.

    The reader has all rows between the two, and those with the number `above`. More rows with `number` may
    follow: a span that begins there is not joined before the next step.
    """
    if not spans:
        return ((above, number),)
    if spans[-1][1] == above > number:  # as of nearly all pages: below all rows given
        return (*spans[:-1], (spans[-1][0], number))
    if above == number and any(oldest <= number <= newest for newest, oldest in spans):
        return spans
    reached = number - 1 if unique else number
    higher = tuple(span for span in spans if span[1] > above)
    lower = tuple(span for span in spans if span[0] <= reached and span[1] < number)
    met = spans[len(higher) : len(spans) - len(lower)]
    newest = max([above, *(span[0] for span in met)])
    oldest = min([number, *(span[1] for span in met)])
    return (*higher, (newest, oldest), *lower)
