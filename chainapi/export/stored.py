"""Rows that a reader stored before a resume: a list that grew shows them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from chainapi._paging.given import Fall
from chainapi._paging.newest import mark_of_row
from chainapi._paging.rows import PageRows
from chainapi.export.given import DigestCounter

__all__ = ["Since", "StoredRows"]

# Counts the digests that this pass had before the resume, from the first one on that is among some digests.
# If it had none of these, it counts all for True, and returns None for False.
Since: TypeAlias = Callable[[Collection[bytes], bool], DigestCounter | None]

Numbers: TypeAlias = Sequence[int | None]


class StoredRows:
    """Rows of this pass that a reader had before a resume.

    Page tokens may count rows from the head of the list. If it grew there before the resume, the next pages
    begin with rows that the reader has, or above those. A row is left out for one of three reasons:

    * The reader has its key. Where numbers fall, the row is not below the last one given.
    * Numbers fall, the reader has its content, and the row rises above the last one given, or has the same
      number behind such a row. Equal rows are counted.
    * The list is in descending order, the page begins with rows above the newest one given, and nothing or a
      row that the reader has follows them. A later walk begins with them.

    Other rows are kept. Without a key and an order an equal row proves nothing: the list may have it twice.

    An update does not store again the rows of the newest number that an earlier walk stored, and reads past
    them. Those that this pass had before the resume count as rows that the reader had, too.

    Args:
        since: counts digests of the rows that the reader had.
        last: number of the last row given, if numbers fell without a promise of the service.
        number: returns the number of a row, with `last`.
        newest: greatest number of the rows that the reader had, which may have left out newer ones.
        passed: marks of the rows of an earlier walk that this pass had (see `PageRows.marks`).

    Attributes:
        done: whether the pages to come have no such rows.
        skipped: whether the last page had rows above the newest one given.

    """

    def __init__(
        self,
        since: Since,
        last: int | None = None,
        number: Callable[[Any], int | None] | None = None,
        newest: int | None = None,
        passed: Iterable[str] = (),
    ) -> None:
        self.done: bool = False
        self.skipped: bool = False
        self._since = since
        self._last = last
        self._number = number
        self._newest = newest
        self._passed = Counter(passed)
        self._given: DigestCounter | None = None
        self._risen = False  # a row that the reader had rose above the last row given

    @property
    def unread(self) -> bool:
        """Return whether `read` may call `since`, which blocks."""
        return self._given is None

    def read(self, page: PageRows, order: Fall | None) -> None:
        """Read what the reader has stored, if the page may have rows of it."""
        if self._given is not None:
            return
        last = self._last_of(order)
        numbers = self._numbers(page, last)
        if found := _suspects(page, range(page.size), numbers, last):
            # From now on rows of later pages are stored, too.
            whole = last is None or _rises(numbers, last)
            self._given = self._since(() if last is None else page.digests(found), whole)

    def match(self, page: PageRows, indices: Sequence[int], order: Fall | None) -> set[int]:
        """Return the indices of rows to leave out.

        Args:
            page: the next page, after `read`.
            indices: rows that no neighboring page of this pass had.
            order: numbers given, if the list is in descending order.

        """
        last = self._last_of(order)
        numbers = self._numbers(page, last)
        again = self._again(page, indices, numbers, last)
        newer = set[int]() if order is None else self._newer(indices, again, numbers, order)
        self.skipped = bool(newer)
        if indices and not again and not newer:
            self.done = not _may_come_again(page, numbers, last)
        return again | newer

    def _newer(
        self, indices: Sequence[int], again: Collection[int], numbers: Numbers, order: Fall
    ) -> set[int]:
        """Return the indices of rows that a later walk begins with."""
        newest = order.newest if self._newest is None else self._newest
        if newest < order.last:  # the reader takes no row above its own ones
            return {index for index in indices if _rises((numbers[index],), order.last)}
        above = max(newest - 1, order.last)
        newer = [*takewhile(lambda index: index not in again and _rises((numbers[index],), above), indices)]
        behind = indices[len(newer) : len(newer) + 1]
        return {*newer} if not behind or behind[0] in again else set()

    def _last_of(self, order: Fall | None) -> int | None:
        return self._last if order is None else order.last

    def _numbers(self, page: PageRows, last: int | None) -> Numbers:
        """Return the number of each row; None for all where numbers do not fall."""
        if last is not None and self._last is not None and self._number is not None:
            return page.read(self._number)
        return page.numbers if last is not None and page.numbers else (None,) * page.size

    def _again(self, page: PageRows, indices: Sequence[int], numbers: Numbers, last: int | None) -> set[int]:
        """Return the indices of rows that the reader had."""
        again = set[int]()
        if self._given is None and not self._passed:
            return again
        suspects = _suspects(page, indices, numbers, last)
        for index, digest in zip(suspects, page.digests(suspects), strict=True):
            rises = last is not None and _rises((numbers[index],), last)
            if self._had(page, index, digest, shifted=rises or self._risen):
                again.add(index)
                self._risen = self._risen or rises
        return again

    def _had(self, page: PageRows, index: int, digest: bytes, *, shifted: bool) -> bool:
        """Check whether the reader had a row; without a key, use up its count.

        `shifted`: a row that the reader had has proved that the list shifted.
        """
        given, keyed = self._given, page.has_key(index)
        if not keyed and not shifted:
            return False
        if given is not None and (digest in given if keyed else given.meet(digest)):
            return True
        known = mark_of_row(self._passed, page.marks(index)) if self._passed else None
        if known is not None and not keyed:
            self._passed -= Counter([known])
        return known is not None


def _suspects(page: PageRows, indices: Sequence[int], numbers: Numbers, last: int | None) -> list[int]:
    """Return the indices of rows that may come again.

    They have a number from the last one on, or a key and no number.
    """
    return [
        index
        for index in indices
        if (page.has_key(index) if last is None or (number := numbers[index]) is None else number >= last)
    ]


def _may_come_again(page: PageRows, numbers: Numbers, last: int | None) -> bool:
    """Check whether rows that the reader had may stand below a page without any.

    So they may below rows above the last one given; with a key, also below rows that are level with it.
    """
    if last is None:
        return page.keyed
    return _rises(numbers, last) or (page.keyed and numbers[-1] == last)


def _rises(numbers: Iterable[int | None], last: int) -> bool:
    """Check for a number above the last one."""
    return any(number is not None and number > last for number in numbers)
