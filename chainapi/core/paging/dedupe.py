"""Deduplication: which rows of a page a reader has had before.

Three kinds of evidence, and nothing else, make a row a repeated one:

* Within one pass, a *key*: attributes that identify a row by the service's definition. A row whose key was
  on a neighbouring page is that row again, because the list shifted. Without a key nothing is dropped: equal
  rows are rows. A key that two rows of one page share is no key, and is given up.
* After a restart, *counts*: each row is left out as often as it was given before. A row is counted under its
  key, else under its content as the service sent it.
* After a restart of a list in descending order, the *spans* of numbers given (see `order`), as long as the
  order holds. Where it breaks, rows are counted from there on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Sequence
from enum import Enum

from attrs import define, frozen

from chainapi.core.paging.digests import DigestCounter
from chainapi.core.paging.history import OrderHistory
from chainapi.core.paging.order import MAX_TIES, Order, Rows, Watermark, rising
from chainapi.core.paging.resumed import ResumedPage
from chainapi.core.paging.rows import (
    Identity,
    NoRows,
    PageRows,
    RowsOfPage,
    mark_digest,
    number_digest,
)

__all__ = ["Deduplicator", "Doubt", "Taken"]

NEIGHBOURS = 128  # rows, in whole pages, among which a key that comes again is a repeated row


class Doubt(Enum):
    """An assumption about a list that one of its pages refuted."""

    KEY = "two rows of one page share a key"
    ORDER = "a row rises above the one before it"
    TIES = "too many rows share one number"


@frozen(eq=False)
class Taken:
    """The verdict on the rows of a page.

    Attributes:
        repeated: indices of rows that a neighbouring page of this pass had.
        stale: indices of all rows that were given before, those among them.
        fresh: whether a row came that never came before; None where rows are not counted.
        signature: a hash of the rows: of their keys where those identify them, else of their content.
        doubts: assumptions that this page refuted.

    """

    repeated: Collection[int] = ()
    stale: Collection[int] = ()
    fresh: bool | None = None
    signature: int = 0
    doubts: tuple[Doubt, ...] = ()


@define(eq=False)
class _Neighbour:
    """The keys and numbers of a page of this pass; the page, where its content matters or it is the last."""

    keys: Sequence[Hashable]
    numbers: Sequence[int | None] | None
    page: PageRows | None


class Deduplicator:
    """What was given so far of one list, in all passes of its walk.

    Args:
        identity: the means of telling rows apart.
        watermark: the numbers given before a resume.
        unordered: the order broke before the resume, or nobody looked at it.
        keyless: the key was given up before the resume.
        resumed: rows were given before the resume.

    """

    def __init__(
        self,
        identity: Identity,
        *,
        watermark: Watermark | None = None,
        unordered: bool = False,
        keyless: bool = False,
        resumed: bool = False,
    ) -> None:
        self._identity = identity
        self._keyed = identity.key is not None and not keyless
        self._order: Order | None = None
        if identity.number is not None and not unordered:
            unique = identity.unique and not keyless
            self._order = Order(unique=unique, watermark=watermark, name=identity.number_name)
        self._resumed = resumed
        self._began = resumed  # rows were given
        # Rows given before a key was given up may be known by it alone.
        self._complete = not resumed or (self._order is not None and not keyless)
        self._descent = OrderHistory()
        self._counter: DigestCounter | None = None
        self._numbered = False  # the counter has rows that were given in order
        self._neighbours: deque[_Neighbour] = deque()
        self._begun = ResumedPage()
        self._page = PageRows(NoRows(), identity, keyed=False)

    @property
    def ordered(self) -> bool:
        """Whether the list has a descending number, and no page has refuted it."""
        return self._order is not None

    @property
    def broken(self) -> bool:
        """Whether the list has a descending number, and a page broke its order."""
        return self._identity.number is not None and self._order is None

    @property
    def keyless(self) -> bool:
        """Whether the list has a key, and a page refuted it."""
        return self._identity.key is not None and not self._keyed

    @property
    def complete(self) -> bool:
        """Whether after a restart each row would be left out that was given."""
        return self._complete

    @property
    def head(self) -> tuple[str, ...]:
        """Marks of rows given before a resume that have not come again yet."""
        return tuple(self._begun.marks.elements())

    def count(self) -> None:
        """Count rows from now on: somebody reads rows."""
        if self._counter is None:
            self._counter = DigestCounter()

    def expect(self, head: Collection[str]) -> None:
        """Leave out the rows with these marks: they were given of the page to come."""
        self._begun = ResumedPage(head)

    def restart(self) -> None:
        """Begin another pass over the list."""
        self._neighbours.clear()
        self._begun = ResumedPage()
        if self._order is not None:
            self._order.restart()
            self._descent.restart()
        elif self._counter is not None:
            self._descent.move_to(self._counter)
        if self._counter is not None:
            self._counter.restart()

    def take(self, page: RowsOfPage) -> Taken:
        """Count the rows of the next page as given, and return the verdict on them.

        Raises:
            DecodeError: a row lacks the field that a caller named; nothing was counted.

        """
        rows = self._page = PageRows(page, self._identity, keyed=self._keyed)
        doubts: list[Doubt] = []
        if self._keyed and not self._key_holds(rows):
            self._give_up_key(rows)
            doubts.append(Doubt.KEY)
        others: Sequence[int] = range(rows.size)
        if rows.repeated:
            others = [index for index in others if index not in rows.repeated]
        if self._order is not None:
            stale, fresh, doubt = self._take_ordered(self._order, rows, others)
            doubts += doubt
        else:
            again = self._begun.match(rows, others)
            self._begun.passed(rows, again)
            stale, fresh = self._take_counted(rows, others, again)
        self._began = self._began or rows.size > 0
        return Taken(rows.repeated, rows.repeated | stale, fresh, rows.signature, tuple(doubts))

    def signature(self, page: RowsOfPage) -> int:
        """Return the signature of a page that is not taken (see `Taken`)."""
        return PageRows(page, self._identity, keyed=self._keyed).signature

    def watermark(self, given: int | None = None) -> Watermark | None:
        """Return the numbers given; with `given`, when only so many rows of the last page were."""
        page, order = self._page, self._order
        if order is None:
            return None
        return order.watermark() if given is None else order.watermark(page.ordered.before(given), page.mark)

    def marks_given(self, given: int, stale: Collection[int]) -> tuple[str, ...]:
        """Return marks of the rows of the last page that a resume inside of it leaves out."""
        page = self._page
        return tuple(page.marks(index) for index in range(page.size) if index < given or index in stale)

    def digest(self, index: int) -> bytes:
        """Return the digest under which a row of the last page is counted."""
        return self._page.digest(index)

    def mark(self, index: int) -> str:
        """Return the mark of a row of the last page, as a watermark has it."""
        return self._page.mark(index)

    def number(self, index: int) -> int | None:
        """Return the descending number of a row of the last page; None where it has none."""
        numbers = self._page.numbers
        return None if numbers is None else numbers[index]

    # Keys

    def _key_holds(self, page: PageRows) -> bool:
        """Find the rows that neighbouring pages had; False where the key is shown to identify no row."""
        if _repeats(page.keys):
            return False
        if not self._all_below(page):
            known = self._known_keys()
            for index, key in enumerate(page.keys):
                if key is not None and key in known:
                    if self._is_other(page, index, *known[key]):
                        return False
                    page.repeated.add(index)
        self._remember(page)
        return True

    def _all_below(self, page: PageRows) -> bool:
        """Check whether all rows lie below those of this pass: none is repeated."""
        numbers = page.numbers
        if self._order is None or not numbers or numbers[0] == self._order.last:
            return False
        return rising(numbers, self._order.last) is None

    def _known_keys(self) -> dict[Hashable, tuple[_Neighbour, int]]:
        """Return the keys of the last rows of this pass, and where each was."""
        places = [(page, index) for page in self._neighbours for index in range(len(page.keys))]
        return {page.keys[index]: (page, index) for page, index in places[-NEIGHBOURS:]}

    def _remember(self, page: PageRows) -> None:
        if not page.size:
            return
        neighbours = self._neighbours
        if neighbours and not self._identity.unique:
            neighbours[-1].page = None  # else a stream would hold its last pages
        neighbours.append(_Neighbour(page.keys, page.numbers, page))
        while sum(len(one.keys) for one in neighbours) - len(neighbours[0].keys) >= NEIGHBOURS:
            neighbours.popleft()

    def _is_other(self, page: PageRows, index: int, known: _Neighbour, place: int) -> bool:
        """Check whether a row is another one than a row with the same key.

        A row keeps its number, while its other fields may change. Only where the number is the key, they are
        what the row consists of.
        """
        if self._identity.unique:
            return known.page is None or page.content_digest(index) != known.page.content_digest(place)
        return (
            page.numbers is not None
            and known.numbers is not None
            and page.numbers[index] != known.numbers[place]
        )

    def _give_up_key(self, page: PageRows) -> None:
        self._keyed = page.keyed = False
        page.repeated = set()
        self._neighbours.clear()
        self._complete = self._complete and not self._began  # rows given so far are known by their keys
        if self._order is not None:
            self._order.lose_marks()

    # Order

    def _take_ordered(
        self, order: Order, page: PageRows, indices: Sequence[int]
    ) -> tuple[set[int], bool | None, list[Doubt]]:
        """Count the rows of a list in descending order; return the stale ones, and whether any is fresh."""
        numbers: Sequence[int | None] = page.numbers or ()
        if page.repeated:
            numbers = [numbers[index] for index in indices]
        cut, doubts = _cut(order, numbers)
        last = order.last
        page.ordered = Rows(indices[:cut], [number for number in numbers[:cut] if number is not None])
        if cut is not None:
            self._descent.end(order)
        stale = order.take(page.ordered, page.mark)
        # A number that falls is progress, also past rows that were given before.
        fresh: bool | None = len(stale) < len(page.ordered) or _falls(page.ordered.numbers, last)
        stale |= self._given_before_resume(order, page, stale)
        if cut is None:
            self._descent.extend(page.ordered, stale)
        else:
            self._break_order(page, stale)
            again = self._begun.match(page, indices[cut:])
            known, news = self._take_counted(page, indices[cut:], again)
            stale, fresh = stale | known, fresh or news
        self._begun.passed(page, stale)
        return stale, fresh, doubts

    def _given_before_resume(self, order: Order, page: PageRows, stale: Collection[int]) -> set[int]:
        """Return rows that were given of a begun page, where the order has lost what tells them."""
        self._begun.match(page, stale)  # the order is the surer evidence
        if not order.lost_marks:
            return set()
        return self._begun.match(page, [index for index in page.ordered.indices if index not in stale])

    def _break_order(self, page: PageRows, stale: Collection[int]) -> None:
        """Count the rows that were given in order, those of the page that broke it by what they hold."""
        self._order = None
        self._numbered = True
        self._complete = self._complete and not (self._resumed or self._descent.overflowed)
        counter = self._counter
        if counter is None:
            return
        if self._descent.later and not self._descent.overflowed:
            self._descent.move_to(counter)
        for index in page.ordered.indices:
            if index in stale:
                any(counter.meet(name) for name in self._names(page, index))
            else:
                counter.give(page.digest(index))

    # Counts

    def _take_counted(
        self, page: PageRows, indices: Sequence[int], again: Collection[int]
    ) -> tuple[set[int], bool | None]:
        """Count rows one by one; return the stale ones, `again` among them, and whether any is fresh."""
        counter = self._counter
        stale = set(again)
        if counter is None:
            if indices:
                self._complete = False  # a reader of pages: nothing is kept that tells these rows again
            return stale, None if indices else False
        fresh = False
        for index in indices:
            names = self._names(page, index)
            fresh = fresh or not any(name in counter for name in names)
            if index not in stale and any(counter.meet(name) for name in names):
                stale.add(index)
            else:
                counter.give(names[0])
        return stale, fresh

    def _names(self, page: PageRows, index: int) -> list[bytes]:
        """Return the digests under which a row may have been counted, from the surest on."""
        own = page.digest(index)
        number = self.number(index) if self._numbered else None
        if number is None:
            return [own]
        return [own, mark_digest(number, page.mark(index)), number_digest(number)]


def _cut(order: Order, numbers: Sequence[int | None]) -> tuple[int | None, list[Doubt]]:
    """Return the place from which on rows are counted, and why; None where the order holds."""
    place = rising(numbers, order.last)
    if place is not None:
        return place, [Doubt.ORDER]
    if order.tied > MAX_TIES and order.last in numbers[:1]:
        return 0, [Doubt.TIES]
    return None, []


def _falls(numbers: Sequence[int], last: int | None) -> bool:
    return bool(numbers) and (last is None or numbers[-1] < last)


def _repeats(keys: Sequence[Hashable]) -> bool:
    """Check whether two rows share a key; a row without a key shares none."""
    given = [key for key in keys if key is not None]
    return len(set(given)) < len(given)
