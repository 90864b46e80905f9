"""Matching of the rows of later passes of a walk with the rows that an export has.

A list without an order that restarts at its first page brings all of its rows again. They are matched one by
one, by digest, because the list may hold a row more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from chainapi.core.paging.digests import DIGEST_SIZE, DigestCounter

__all__ = ["Matched", "Matcher"]


class Matched(msgspec.Struct, array_like=True):
    """Digests of rows of a source: those that a pass added, and those it had again.

    Each text is joined digests.
    """

    restarts: int
    added: bytes
    again: bytes = b""


class Matcher:
    """Rows of a source by digest, and the part of them that the current pass has met.

    It takes about 28 bytes a row.
    """

    def __init__(self) -> None:
        self._counter = DigestCounter()
        self._pass = 0
        self._has_met = False

    def replay(self, one: Matched) -> None:
        """Repeat the outcome of an earlier page."""
        self._begin(one.restarts)
        for digest in _digests_in(one.added):
            self._counter.give(digest)
        for digest in _digests_in(one.again):
            self._counter.meet(digest)
        self._has_met |= bool(one.added or one.again)

    def has_met(self, restarts: int) -> bool:
        """Check whether this pass has had a row that the export has."""
        self._begin(restarts)
        return self._has_met

    def match(self, restarts: int, digests: Sequence[bytes]) -> list[bool]:
        """Return for each row of a page whether the export has it; count it as met."""
        self._begin(restarts)
        known = [self._counter.meet(digest) for digest in digests]
        self._has_met |= any(known)
        return known

    def add(self, restarts: int, digests: Iterable[bytes]) -> None:
        """Add rows of this pass."""
        self.replay(Matched(restarts, b"".join(digests)))

    def _begin(self, restarts: int) -> None:
        if restarts > self._pass:
            self._pass = restarts
            self._counter.restart()
            self._has_met = False


def _digests_in(joined: bytes) -> Iterator[bytes]:
    for place in range(0, len(joined), DIGEST_SIZE):
        yield joined[place : place + DIGEST_SIZE]
