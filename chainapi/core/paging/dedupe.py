"""Deduplication: rows of a page that the reader has had before.

Three kinds of evidence, and nothing else, prove that a row is repeated:

* Within one pass, a *key*: attributes that identify a row by the service's definition. A row whose key was
  on a neighboring page is that row again, because the list shifted. Without a key nothing is dropped: equal
  rows are rows. A key that two rows of one page share identifies nothing, and is given up.
* After a restart, *counts*: each row is left out as often as it was given before. A row is counted under its
  key, else under its content as the service sent it.
* After a restart of a list in descending order, the *spans* of numbers given (see `order`), as long as the
  order holds. Where it breaks, rows are counted from there on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, cast

from msgspec import Struct

from chainapi.core.paging.digests import DigestCounter
from chainapi.core.paging.history import OrderHistory
from chainapi.core.paging.keys import KeyWindow
from chainapi.core.paging.order import MAX_TIES, Given, Order, Rows, Watermark, rising
from chainapi.core.paging.resumed import ResumedPage
from chainapi.core.paging.rows import EmptyPage, Identity, PageRows, RowsOfPage, mark_digest, number_digest
from chainapi.core.paging.stored import Fall, StoredRows

__all__ = ["Assumption", "Comparison", "Deduplicator"]


class Assumption(Enum):
    """Assumption about a list, by the evidence that refutes it."""

    KEY = "two rows of one page share a key"
    ORDER = "a row rises above the one before it, or has no number"
    TIES = "too many rows share one number"


class Comparison(Struct, eq=False):
    """Comparison of the rows of a page with those given before.

    Attributes:
        repeated: indices of rows that a neighboring page of this pass had.
        stale: indices of all rows that were given before, the repeated ones included.
        fresh: whether the page has a row that was never given before; None where rows are not counted, and
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
    refuted: tuple[Assumption, ...] = ()
    size: int = 0


_NONE = frozenset[int]()  # of all pages without such rows
_NOT_RESUMED = ResumedPage()  # without marks, so that nothing changes it
_NO_ROWS = PageRows(EmptyPage(), Identity(), keyed=False)


class Deduplicator:
    """Rows given so far of one list, in all passes of its walk.

    Args:
        identity: readers of what identifies a row.
        watermark: the numbers given before a resume.
        unordered: the order broke before the resume, or was not checked then.
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
            self._order = Order(unique=unique, watermark=watermark, number_field=identity.number_field)
        self._resumed = resumed
        self._any_given = resumed
        # Rows given before a key was given up may be known by it alone.
        self._complete = not resumed or (self._order is not None and not keyless)
        self._history = OrderHistory()
        self._counter: DigestCounter | None = None
        self._numbered = False  # the counter has rows that were given in order
        self._keys = KeyWindow(unique=identity.unique)
        self._resumed_page = _NOT_RESUMED
        self._stored: StoredRows | None = None
        self._page = _NO_ROWS

    @property
    def ordered(self) -> bool:
        """Return whether the list has a descending number that no page has refuted."""
        return self._order is not None

    @property
    def broken(self) -> bool:
        """Return whether the list has a descending number, and a page broke its order."""
        return self._identity.number is not None and self._order is None

    @property
    def keyless(self) -> bool:
        """Return whether the list has a key, and a page refuted it."""
        return self._identity.key is not None and not self._keyed

    @property
    def reads_stored(self) -> bool:
        """Return whether `add` may read what the reader has stored, which blocks."""
        return self._stored is not None and self._stored.unread

    @property
    def complete(self) -> bool:
        """Return whether each row that was given is left out after a restart."""
        return self._complete

    @property
    def head(self) -> tuple[str, ...]:
        """Marks of rows given before a resume that no page has had since."""
        marks = self._resumed_page.marks
        return tuple(marks.elements()) if marks else ()

    @property
    def position(self) -> tuple[Given | None, str, bool, bool, tuple[str, ...]]:
        """Fields of a `PagePosition` that the rows given determine; they never change.

        Numbers given, as long as the order of the list holds; the name of the field with the number; whether
        the order broke; whether the key was given up; the `head`.
        """
        given = None if self._order is None else self._order.given
        head = self.head if self._resumed_page.marks else ()
        return given, self._identity.number_field, self.broken, self.keyless, head

    def start_counting(self) -> None:
        """Count rows from now on, for a reader of rows."""
        if self._counter is None:
            self._counter = DigestCounter()

    def resume_inside(self, head: Collection[str]) -> None:
        """Leave out the rows with these marks: they were given of the page to come."""
        self._resumed_page = ResumedPage(head) if head else _NOT_RESUMED

    def leave_out(self, stored: StoredRows) -> None:
        """Leave out rows that the reader had of this pass before a resume."""
        self._stored = stored

    def restart(self) -> None:
        """Begin another pass over the list."""
        self._keys.clear()
        self._resumed_page, self._stored = _NOT_RESUMED, None
        if self._order is not None:
            self._order.restart()
            self._history.restart()
        elif self._counter is not None:
            self._history.move_to(self._counter)
        if self._counter is not None:
            self._counter.restart()

    def add(self, page: RowsOfPage) -> Comparison:
        """Count the rows of the next page as given.

        Return their comparison with those given before. Rows that the reader had stored before a resume count
        as rows of a neighboring page.

        Raises:
            DecodeError: a row lacks the field that the caller named; nothing was counted.

        """
        rows = self._page = PageRows(page, self._identity, keyed=self._keyed)
        order, run = self._order, rows.run
        if order is not None and run is not None and order.is_below(run[0]) and not self._resumed_page.marks:
            return self._add_below(order, rows)
        return self._add_any(order, rows)

    def _add_below(self, order: Order, rows: PageRows) -> Comparison:
        """Count the usual page of a list in order: a run below all rows given.

        Each of its rows is new.
        """
        refuted: tuple[Assumption, ...] = ()
        self._stored = None
        if self._keyed and not self._keys.add(rows, all_new=True):
            self._give_up_key(rows)
            refuted = (Assumption.KEY,)
        numbers = cast("Sequence[int]", rows.numbers)  # a run has them all
        ordered = rows.ordered = Rows(range(rows.size), numbers, rows.run)
        order.extend(ordered, rows.mark, rows.late_mark)
        self._history.extend(ordered, ())
        self._any_given = True
        return Comparison(_NONE, _NONE, True, rows.signature, refuted, rows.size)

    def _add_any(self, order: Order | None, rows: PageRows) -> Comparison:
        """Count the rows of a page that may repeat some, or be in no order."""
        numbers: Sequence[int | None] = rows.numbers or ()
        rise = None if order is None else rising(numbers, order.last)
        all_new = order is not None and bool(numbers) and rise is None and numbers[0] != order.last
        self._read_stored(rows, all_new=all_new)
        refuted: list[Assumption] = []
        if self._keyed and not self._keys.add(rows, all_new=all_new):
            self._give_up_key(rows)
            refuted.append(Assumption.KEY)
        skipped = self._match_stored(rows)
        indices: Sequence[int] = range(rows.size)
        if rows.repeated:
            indices = [index for index in indices if index not in rows.repeated]
            numbers = [numbers[index] for index in indices] if numbers else ()
            rise = None if order is None else rising(numbers, order.last)
        if order is not None:
            cut = None
            if not all_new:
                cut, broken = _cut(order, numbers, rise)
                refuted += broken
            stale, fresh = self._compare_ordered(order, indices, numbers, cut)
        else:
            again = self._resumed_page.match(rows, indices)
            if again or self._resumed_page.marks:
                self._resumed_page.pass_by(rows, again)
            stale, fresh = self._compare_counted(indices, again)
        self._any_given = self._any_given or rows.size > 0
        stale = rows.repeated | stale if rows.repeated else stale
        return Comparison(
            rows.repeated or _NONE,
            stale or _NONE,
            (skipped or fresh) if rows.size else None,
            rows.signature,
            tuple(refuted),
            rows.size,
        )

    def leave(self) -> None:
        """Drop the rows of the last page: nobody asks for one of them any more."""
        self._page = _NO_ROWS

    def signature(self, page: RowsOfPage) -> int:
        """Return the signature of a page without counting its rows (see `Comparison`)."""
        return PageRows(page, self._identity, keyed=self._keyed).signature

    def watermark(self, given: int | None = None) -> Watermark | None:
        """Return the numbers given; with `given`, up to that row of the last page.

        With `given`, only that many rows of the last page count as given.
        """
        page, order = self._page, self._order
        if order is None:
            return None
        return order.watermark() if given is None else order.watermark(page.ordered.before(given), page.mark)

    def marks_given(self, given: int, stale: Collection[int]) -> tuple[str, ...]:
        """Return marks of the rows of the last page that a resume inside it leaves out."""
        page = self._page
        return tuple(page.marks(index) for index in range(page.size) if index < given or index in stale)

    def digests(self, indices: Sequence[int]) -> Sequence[bytes]:
        """Return the digests under which rows of the last page are counted."""
        if not indices:
            return ()
        return self._with(indices[-1]).digests(indices)

    def numbers(self) -> Sequence[int | None]:
        """Return the descending number, or None, of each row of the last page."""
        page = self._page
        return [None] * page.size if page.numbers is None else page.numbers

    def marks(self, index: int) -> str:
        """Return the marks of a row of the last page: of its content, and of its key."""
        return self._with(index).marks(index)

    def has_key(self, index: int) -> bool:
        """Return whether a row of the last page has a key that identifies it."""
        page = self._with(index)
        return page.keyed and page.keys[index] is not None

    def number(self, index: int) -> int | None:
        """Return the descending number of a row of the last page; None where it has none."""
        numbers = self._with(index).numbers
        return None if numbers is None else numbers[index]

    def _with(self, index: int) -> PageRows:
        """Return the last page, which has a row at this index.

        Raises:
            IndexError: it has not, or it was left.

        """
        if index >= self._page.size:
            raise IndexError(f"no row {index}: the page was left, or has fewer rows")
        return self._page

    def _give_up_key(self, page: PageRows) -> None:
        self._keyed = page.keyed = False
        page.repeated = set()
        self._keys.clear()
        self._complete = self._complete and not self._any_given  # rows given so far are known by their keys
        if self._order is not None:
            self._order.lose_marks()

    # Rows stored before a resume

    def _read_stored(self, page: PageRows, *, all_new: bool) -> None:
        """Read what the reader has stored, before anything is counted.

        That may raise an error. A page of new rows proves that no later page has rows that come again.
        """
        if all_new:
            self._stored = None
        if self._stored is not None:
            self._stored.read(page, self._fall())

    def _match_stored(self, page: PageRows) -> bool:
        """Count rows that the reader had as those of a neighboring page.

        Return whether rows were left out that it did not have.
        """
        stored = self._stored
        if stored is None:
            return False
        indices = [index for index in range(page.size) if index not in page.repeated]
        page.repeated = {*page.repeated, *stored.match(page, indices, self._fall())}
        if stored.done:
            self._stored = None
        return stored.skipped

    def _fall(self) -> Fall | None:
        """Return the numbers given of a list in descending order."""
        given = None if self._order is None else self._order.given
        return None if given is None or given.last is None else Fall(given.spans[0][0], given.last)

    # Order

    def _compare_ordered(
        self, order: Order, indices: Sequence[int], numbers: Sequence[int | None], cut: int | None
    ) -> tuple[AbstractSet[int], bool | None]:
        """Count rows in descending order up to `cut`.

        Return the stale ones, and whether any is fresh.
        """
        page, last, resumed = self._page, order.last, self._resumed_page
        kept: Sequence[Any] = numbers if cut is None else numbers[:cut]  # none is missing before a cut
        page.ordered = ordered = Rows(indices[:cut], kept, page.run if len(kept) == page.size else None)
        if cut is not None:
            self._history.keep_ends(order)
        stale = order.take(ordered, page.mark, page.late_mark)
        # A number that falls is progress, also past rows that were given before.
        fresh: bool | None = len(stale) < len(kept) or _falls(kept, last)
        if resumed.marks:
            stale = stale | self._given_before_resume(order, stale)
        if cut is None:
            self._history.extend(ordered, stale)
        else:
            self._break_order(stale)
            again = resumed.match(page, indices[cut:])
            known, counted_fresh = self._compare_counted(indices[cut:], again)
            stale, fresh = stale | known, fresh or counted_fresh
        if resumed.marks:
            resumed.pass_by(page, stale)
        return stale, fresh

    def _given_before_resume(self, order: Order, stale: Collection[int]) -> set[int]:
        """Return rows of a page begun before the resume whose marks the order has lost."""
        page = self._page
        self._resumed_page.match(page, stale)  # the order is the surer evidence
        if not order.lost_marks:
            return set()
        return self._resumed_page.match(page, [index for index in page.ordered.indices if index not in stale])

    def _break_order(self, stale: Collection[int]) -> None:
        """Break the order: count rows by their content from here on.

        The rows that were given in order are counted, and those of the page that broke it.
        """
        self._order = None
        self._numbered = True
        self._complete = self._complete and not (self._resumed or self._history.overflowed)
        counter, page = self._counter, self._page
        if counter is None:
            return
        if self._history.later and not self._history.overflowed:
            self._history.move_to(counter)
        for index in page.ordered.indices:
            if index in stale:
                any(counter.meet(digest) for digest in self._digests(index))
            else:
                counter.give(page.digest(index))

    # Counts

    def _compare_counted(
        self, indices: Sequence[int], again: Collection[int]
    ) -> tuple[AbstractSet[int], bool | None]:
        """Count rows one by one; return the stale ones, and whether any is fresh.

        The rows in `again` are among the stale ones.
        """
        counter = self._counter
        stale = set(again)
        if counter is None:
            if indices:
                self._complete = False  # a reader of pages: nothing is kept that identifies these rows later
            return stale, None if indices else False
        if counter.first_pass and not stale:  # no row was given before, whatever its digest
            return stale, counter.give_new(self._page.digests(indices))
        fresh = False
        for index in indices:
            digests = self._digests(index)
            fresh = fresh or not any(digest in counter for digest in digests)
            if index not in stale and any(counter.meet(digest) for digest in digests):
                stale.add(index)
            else:
                counter.give(digests[0])
        return stale, fresh

    def _digests(self, index: int) -> list[bytes]:
        """Return the digests under which a row may have been counted, the surest first."""
        page = self._page
        own = page.digest(index)
        number = self.number(index) if self._numbered else None
        if number is None:
            return [own]
        return [own, mark_digest(number, page.mark(index)), number_digest(number)]


def _cut(
    order: Order, numbers: Sequence[int | None], rise: int | None
) -> tuple[int | None, list[Assumption]]:
    """Return the index from which on rows are counted, and the reason.

    Return None where the order holds.
    """
    if rise is not None:
        return rise, [Assumption.ORDER]
    if order.tied > MAX_TIES and order.last in numbers[:1]:
        return 0, [Assumption.TIES]
    return None, []


def _falls(numbers: Sequence[int], last: int | None) -> bool:
    return bool(numbers) and (last is None or numbers[-1] < last)
