"""Matching of the rows of later passes of a walk with the rows that an export has.

A list without an order that restarts at its first page brings all of its rows again. They are matched one by
one, by digest, because the list may hold a row more than once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from chainapi.core.paging.digests import DIGEST_SIZE

__all__ = ["Matched", "Matcher", "digests_in"]


class Matched(msgspec.Struct, array_like=True):
    """Digests of rows of a source: those that a pass added, and those it had again.

    Each text is joined digests.
    """

    restarts: int
    added: bytes
    again: bytes = b""


def digests_in(joined: bytes) -> Iterator[bytes]:
    """Yield the digests in joined ones."""
    for place in range(0, len(joined), DIGEST_SIZE):
        yield joined[place : place + DIGEST_SIZE]


class Matcher:
    """Rows of a source by digest, and the part of them that the current pass has met."""

    def __init__(self, known: Iterable[Matched] = ()) -> None:
        self._all = Counter[bytes]()
        self._met = Counter[bytes]()
        self._pass = 0
        for one in known:
            self.replay(one)

    def replay(self, one: Matched) -> None:
        """Repeat the outcome of an earlier page."""
        self._begin(one.restarts)
        added = [*digests_in(one.added)]
        self._all.update(added)
        self._met.update(added)
        self._met.update(digests_in(one.again))

    def has_met(self, restarts: int) -> bool:
        """Check whether this pass has had a row that the export has."""
        self._begin(restarts)
        return bool(self._met)

    def match(self, restarts: int, digests: Sequence[bytes]) -> list[bool]:
        """Return for each row of a page whether the export has it; count it as met."""
        self._begin(restarts)
        return [self._match(digest) for digest in digests]

    def add(self, restarts: int, digests: Iterable[bytes]) -> None:
        """Add rows of this pass."""
        self.replay(Matched(restarts, b"".join(digests)))

    def _begin(self, restarts: int) -> None:
        if restarts > self._pass:
            self._pass = restarts
            self._met.clear()

    def _match(self, digest: bytes) -> bool:
        if self._met[digest] >= self._all[digest]:
            return False
        self._met[digest] += 1
        return True
