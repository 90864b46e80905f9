"""Newest rows of a list that were given: which rows are new, whatever came since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Self

from chainapi._paging.checkpoint import Watermark

__all__ = ["NewestRows", "mark_of_row"]

_HALF = 16  # digits of the mark of a content; the mark of a key may follow


class NewestRows:
    """Newest rows given of a list: all below `since`, and above it those with a mark.

    A row is known by its key, else by its content. With a lookback it is known by its content alone, so that
    a row that changed is new again, until its number lies too far below the newest one.

    Args:
        newest: greatest number given.
        marks: marks of the rows given, by their numbers (see `PageRows.marks`).
        lookback: how far below the newest number rows are compared.
        adopted: rows below this number that have no mark were given; the first pass notes their marks.

    """

    def __init__(
        self,
        newest: int,
        marks: Mapping[int, Iterable[str]] | None = None,
        *,
        lookback: int = 0,
        adopted: float = -inf,
    ) -> None:
        self.newest = newest
        self._lookback = lookback
        self._marks = {number: Counter(given) for number, given in (marks or {}).items()}
        self._met: dict[int, Counter[str]] = {}
        self._keys = set[tuple[int, str]]()  # of the rows met
        self._adopted = adopted

    @classmethod
    def of(cls, watermark: Watermark, *, lookback: int = 0, following: bool) -> Self:
        """Return the newest rows of a watermark without gaps.

        `following`: the watermark has the mark of each row from its oldest number on. The watermark of a
        walk has marks only of rows that share a number with rows that were not given.
        """
        newest, marks = watermark.newest, dict(watermark.ties)
        whole = newest + 1 if newest not in marks else newest
        return cls(newest, marks, lookback=lookback, adopted=watermark.oldest if following else whole)

    @property
    def since(self) -> int:
        """Number from which on rows may be new."""
        return self.newest - self._lookback

    @property
    def noted(self) -> bool:
        """Whether all rows given from `since` on have a mark, for a watermark."""
        return self._adopted == -inf

    def begin(self) -> None:
        """Begin a pass over the list: no row was met yet."""
        self._met, self._keys = {}, set()

    def end(self) -> None:
        """End a pass that met all rows from `since` on."""
        self._adopted = -inf
        self._keys = set()

    def repeats(self, number: int, mark: str) -> bool:
        """Check whether this pass met a row with a key before.

        A list that shifted shows it again.
        """
        key, keys = (number, mark[_HALF:]), self._keys
        if key in keys:
            return True
        keys.add(key)
        return False

    def is_new(self, number: int, mark: str) -> bool:
        """Check whether a row was not given; count it as met."""
        if number < self.since:
            return False
        given = self._marks.get(number, Counter[str]())
        met = self._met.setdefault(number, Counter())
        if met[mark] < given[mark]:  # many rows may share a number, and few of them have changed
            met[mark] += 1
            return False
        for known, times in given.items():
            if met[known] < times and self._is_same(known, mark):
                met[known] += 1
                return False
        if number < self._adopted:
            self._marks.setdefault(number, Counter())[mark] += 1
            met[mark] += 1
            return False
        met[mark] += 1
        return True

    def give(self, number: int, mark: str) -> None:
        """Count a new row as given."""
        given = self._marks.setdefault(number, Counter())
        if self._lookback:
            met = self._met.get(number, Counter[str]())
            for known in [one for one in given if len(one) > _HALF and one[_HALF:] == mark[_HALF:]]:
                given[known] = min(given[known], met[known])  # without what the row was before it changed
                if not given[known]:
                    del given[known]
        given[mark] += 1
        if number > self.newest:
            self.newest = number
            for passed in [one for one in self._marks if one < self.since]:
                del self._marks[passed]

    def watermark(self, number_field: str) -> Watermark:
        """Return the rows as a watermark, for a checkpoint."""
        given = ((number, marks) for number, marks in self._marks.items() if number >= self.since)
        ties = tuple((number, tuple(marks.elements())) for number, marks in given)
        return Watermark(number_field, ((self.newest, self.since),), ties=ties)

    def _is_same(self, known: str, mark: str) -> bool:
        if self._lookback and len(known) == len(mark) == 2 * _HALF:
            return known[:_HALF] == mark[:_HALF]
        return _is_same_row(known, mark)


def mark_of_row(marks: Collection[str], mark: str) -> str | None:
    """Return the mark among others that is of the same row.

    It is an equal one if possible, else one of its key or its content; None without either.
    """
    if mark in marks:
        return mark
    return next((known for known in marks if _is_same_row(known, mark)), None)


def _is_same_row(known: str, mark: str) -> bool:
    """Check whether two marks belong to one row (see `PageRows.marks`).

    Rows with keys are compared by these, others by their content.
    """
    if len(known) == len(mark) == 2 * _HALF:
        return known[_HALF:] == mark[_HALF:]
    return bool({known[:_HALF], known[_HALF:]} & ({mark[:_HALF], mark[_HALF:]} - {""}))
