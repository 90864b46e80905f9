"""Each row once: which rows of a page were given before, after a restart or where the list shifted.

Where the rows of a route come in a strict order of a whole-number key, the span of keys already given is
all that has to be remembered. Elsewhere a digest of 16 bytes is kept for each row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, Protocol

import msgspec
from attrs import frozen

from chainapi.core.digests import DigestSet

__all__ = ["Digests", "Ordered", "Seen", "Watermark"]


Spans = tuple[tuple[int, int], ...]  # newest and oldest key of each, both included; from new to old


@frozen
class Watermark:
    """The row keys already given: all from `newest` to `oldest`, both included, but for the `gaps`.

    A gap is a pair of keys that were given while what lies strictly between them was not: it is left where
    a walk began again in the midst of new rows at the head of the list.
    """

    newest: int
    oldest: int
    gaps: tuple[tuple[int, int], ...] = ()


class Seen(Protocol):
    """What was given so far."""

    def identity(self, row: Any) -> int | bytes:
        """Return what tells a row from all others of its list: its number in the order, else a digest."""
        ...

    def restart(self) -> None:
        """Begin another pass over the list."""
        ...

    def stale(self, rows: Sequence[Any]) -> Collection[int]:
        """Return the indices of the rows that were given before, and count all of them as given."""
        ...

    def watermark(self, rows: Sequence[Any], given: int) -> Watermark | None:
        """Return the span given when only the first `given` rows of the page taken last are."""
        ...

    def marks(self, rows: Sequence[Any]) -> tuple[str, ...]:
        """Return what tells each of these rows again, where a watermark does not."""
        ...

    def marks_given(self, given: int) -> tuple[str, ...]:
        """Return the marks of the first `given` rows of the page taken last, as they came."""
        ...

    def marked(self, rows: Sequence[Any], marks: Collection[str]) -> set[int]:
        """Return the indices of the rows that have one of these marks."""
        ...


class Ordered:
    """Rows in descending order of a whole-number key that no two rows share: O(1) memory.

    A list grows at its head only, so nothing lies between two neighbouring rows of one pass: each pass is
    one span of keys from the head down to its last row, and joins the spans that it meets. Only a pass that
    ends between rows that are all new leaves a span of its own: one for such a restart, not for each row.
    """

    def __init__(self, key: Callable[[Any], int], watermark: Watermark | None = None) -> None:
        self._key = key
        self._spans: Spans = () if watermark is None else _spans_of(watermark)
        # Key of the last row of this pass. A walk that is resumed stands at or inside the topmost span.
        self._last: int | None = self._spans[0][1] if self._spans else None
        self._before = (self._spans, self._last)  # both before the page taken last

    def identity(self, row: Any) -> int:
        """Return the row's number in the order."""
        return self._key(row)

    def restart(self) -> None:
        """Begin another pass: what lies above the newest row given so far is new."""
        self._last = None

    def stale(self, rows: Sequence[Any]) -> Collection[int]:
        """Return the indices of the rows given before; a page below all of them costs two look-ups."""
        spans, _ = self._before = (self._spans, self._last)
        if not rows:
            return ()
        first, last = self._key(rows[0]), self._key(rows[-1])
        if not spans or first < spans[-1][1]:
            newest = spans[0][0] if spans else first
            self._spans, self._last = ((newest, min(first, last)),), last
            return ()
        self._spans, self._last, stale = self._sift(rows)
        return stale

    def watermark(self, rows: Sequence[Any], given: int) -> Watermark | None:
        """Return what is given so far, up to the row `given` of the page taken last."""
        spans = self._spans if given >= len(rows) else self._sift(rows[:given])[0]
        return _watermark_of(spans) if spans else None

    def marks(self, rows: Sequence[Any]) -> tuple[str, ...]:
        """Return nothing: the watermark tells."""
        return ()

    def marks_given(self, given: int) -> tuple[str, ...]:
        """Return nothing: the watermark tells."""
        return ()

    def marked(self, rows: Sequence[Any], marks: Collection[str]) -> set[int]:
        """Return nothing: the watermark tells."""
        return set()

    def _sift(self, rows: Sequence[Any]) -> tuple[Spans, int | None, set[int]]:
        """Return the spans and the last key after `rows`, and the indices of those given before."""
        spans, last = self._before
        stale: set[int] = set()
        for index, row in enumerate(rows):
            key = self._key(row)
            if any(oldest <= key <= newest for newest, oldest in spans):
                stale.add(index)
            spans = _joined(spans, key if last is None or last < key else last, key)
            last = key
        return spans, last, stale


def _joined(spans: Spans, newest: int, oldest: int) -> Spans:
    """Return the spans with one more, joined with those that it touches."""
    above = tuple(span for span in spans if span[1] > newest)
    below = tuple(span for span in spans if span[0] < oldest)
    for touched in spans[len(above) : len(spans) - len(below)]:
        newest, oldest = max(newest, touched[0]), min(oldest, touched[1])
    return (*above, (newest, oldest), *below)


def _spans_of(watermark: Watermark) -> Spans:
    above = (watermark.newest, *(below for _, below in watermark.gaps))
    below = (*(above for above, _ in watermark.gaps), watermark.oldest)
    return tuple(zip(above, below, strict=True))


def _watermark_of(spans: Spans) -> Watermark:
    gaps = tuple((above[1], below[0]) for above, below in pairwise(spans))
    return Watermark(spans[0][0], spans[-1][1], gaps)


class Digests:
    """Rows in any order: each is known by a digest of its key, or else of all that it holds."""

    def __init__(self, key: Callable[[Any], Any] | None = None) -> None:
        self._known = DigestSet()
        self._key = key
        # Of the page taken last: its reader may change the rows that it was given.
        self._page: list[bytes] = []

    def identity(self, row: Any) -> bytes:
        """Return the digest of the row's key, or else of all that it holds."""
        return self._digest(row)

    def restart(self) -> None:
        """Begin another pass; the digests stay."""

    def stale(self, rows: Sequence[Any]) -> Collection[int]:
        """Return the indices of the rows whose like was given before."""
        self._page = [self._digest(row) for row in rows]
        return {index for index, digest in enumerate(self._page) if not self._known.add(digest)}

    def watermark(self, rows: Sequence[Any], given: int) -> Watermark | None:
        """Return None: without an order there is no span."""
        return None

    def marks(self, rows: Sequence[Any]) -> tuple[str, ...]:
        """Return half of each digest, in hexadecimal: enough to tell the rows of one page apart."""
        return tuple(self._digest(row)[:8].hex() for row in rows)

    def marks_given(self, given: int) -> tuple[str, ...]:
        """Return the marks of the first `given` rows of the page taken last, as they came."""
        return tuple(digest[:8].hex() for digest in self._page[:given])

    def marked(self, rows: Sequence[Any], marks: Collection[str]) -> set[int]:
        """Return the indices of the rows that have one of these marks."""
        known = set(marks)
        return {index for index, mark in enumerate(self.marks(rows)) if mark in known}

    def _digest(self, row: Any) -> bytes:
        if self._key is None:
            return _digest(row)
        try:
            return _digest(self._key(row))
        except AttributeError:  # a row of a kind that nobody knows yet
            return _digest(row)


def _digest(row: object) -> bytes:
    return hashlib.blake2b(_written(row), digest_size=16).digest()


def _written(row: object) -> bytes:
    """Return what a row holds; types that JSON does not know, in the models of users, by their repr."""
    try:
        return msgspec.json.encode(row, enc_hook=repr, order="deterministic")
    except (TypeError, ValueError):  # keys that are no text, texts that are no Unicode
        return repr(row).encode("utf-8", "surrogatepass")
