"""Each row once: which rows of a page were given before, after a restart or where the list shifted.

Where the rows of a route come in a strict order of a whole-number key, the span of keys already given is
all that has to be remembered. Elsewhere a digest of 16 bytes is kept for each row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec
from attrs import frozen

__all__ = ["Digests", "Ordered", "Seen", "Watermark"]


@frozen
class Watermark:
    """The span of row keys already given, both ends included."""

    newest: int
    oldest: int


class Seen(Protocol):
    """What was given so far."""

    def restart(self) -> None:
        """Begin another pass over the list."""
        ...

    def stale(self, rows: Sequence[Any]) -> Collection[int]:
        """Return the indices of the rows that were given before, and count all of them as given."""
        ...

    def watermark(self, rows: Sequence[Any], given: int) -> Watermark | None:
        """Return the span given when only the first `given` rows of the page taken last are."""
        ...


class Ordered:
    """Rows in descending order of a whole-number key that no two rows share: O(1) memory.

    A row is new when its key lies below all that was given, above all that was given, or, in a pass after
    a restart, in the run of new rows at the head of the list.
    """

    def __init__(self, key: Callable[[Any], int], watermark: Watermark | None = None) -> None:
        self._key = key
        self._span = watermark
        self._before: Watermark | None = watermark  # the span before the page taken last
        self._ceiling = None if watermark is None else watermark.newest  # rows above it are new in this pass
        self._last: int | None = None  # key of the last row of this pass

    def restart(self) -> None:
        """Begin another pass: what lies above the newest row given so far is new."""
        self._ceiling = None if self._span is None else self._span.newest
        self._last = None

    def stale(self, rows: Sequence[Any]) -> Collection[int]:
        """Return the indices of the rows given before; a page below the span costs two look-ups."""
        self._before = self._span
        if not rows:
            return ()
        first, last = self._key(rows[0]), self._key(rows[-1])
        if self._span is None or first < self._span.oldest:
            newest = first if self._span is None else self._span.newest
            self._span = Watermark(newest, min(first, last))
            self._last = last
            return ()
        return self._sift(self._span, rows)

    def _sift(self, span: Watermark, rows: Sequence[Any]) -> set[int]:
        newest, oldest = span.newest, span.oldest
        stale: set[int] = set()
        for index, row in enumerate(rows):
            key = self._key(row)
            at_head = self._ceiling is not None and key > self._ceiling
            if key < oldest or key > newest or (at_head and self._last is not None and key < self._last):
                newest, oldest = max(newest, key), min(oldest, key)
            else:
                stale.add(index)
            self._last = key
        self._span = Watermark(newest, oldest)
        return stale

    def watermark(self, rows: Sequence[Any], given: int) -> Watermark | None:
        """Return the span given so far, up to the row `given` of the page taken last."""
        if given >= len(rows):
            return self._span
        span = self._before
        for row in rows[:given]:
            key = self._key(row)
            span = (
                Watermark(key, key)
                if span is None
                else Watermark(max(span.newest, key), min(span.oldest, key))
            )
        return span


class Digests:
    """Rows in any order: each is known by a digest of what it holds."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def restart(self) -> None:
        """Begin another pass; the digests stay."""

    def stale(self, rows: Sequence[Any]) -> Collection[int]:
        """Return the indices of the rows whose like was given before."""
        stale: set[int] = set()
        for index, row in enumerate(rows):
            digest = hashlib.blake2b(msgspec.json.encode(row, order="deterministic"), digest_size=16).digest()
            if digest in self._known:
                stale.add(index)
            self._known.add(digest)
        return stale

    def watermark(self, rows: Sequence[Any], given: int) -> Watermark | None:
        """Return None: without an order there is no span."""
        return None
