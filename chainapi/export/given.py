"""Digests of the rows that an export has of unfinished walks.

A list without an order that restarts at its first page brings all of its rows again. They are matched one by
one, by digest, because the list may hold a row more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Self, TypeAlias

import msgspec

from chainapi._paging.given import Hashes
from chainapi._paging.rows import DIGEST_SIZE

__all__ = ["DigestCounter", "PageDigests", "WalkId", "counted", "counted_since"]

WalkId: TypeAlias = tuple[str, int]  # label of a source, number of a range or 0


class PageDigests(msgspec.Struct, array_like=True):
    """Digests of the rows of a page.

    Attributes:
        restarts: number of the pass, from 0.
        added: digests of the rows added, packed.
        again: digests of the others, packed.

    """

    restarts: int
    added: bytes
    again: bytes = b""

    @classmethod
    def of(cls, restarts: int, added: Sequence[bytes], again: Sequence[bytes]) -> Self:
        """Pack the digests of a page."""
        return cls(restarts, b"".join(added), b"".join(again))

    def __bool__(self) -> bool:
        return bool(self.added or self.again)


class DigestCounter:
    """Rows of a walk: how often each was given, and how often this pass has met it."""

    def __init__(self) -> None:
        self._given, self._met = Hashes(), Hashes()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._given

    def give(self, digests: Sequence[bytes]) -> None:
        """Count rows as given, and as met in this pass."""
        self._given.add(digests)
        self._met.add(digests)

    def meet(self, digest: bytes) -> bool:
        """Count a row as met that was given more often than met; False for any other one."""
        if self._met.count(digest) >= self._given.count(digest):
            return False
        self._met.add((digest,))
        return True

    def restart(self) -> None:
        """Begin another pass: nothing was met in it yet."""
        self._met = Hashes()


def counted(pages: Callable[[], Iterable[PageDigests]], restarts: int) -> DigestCounter:
    """Count the rows that an export has of a walk, and the rows that a pass has met.

    The pass is the one after `restarts` restarts.
    """
    counter, current = DigestCounter(), 0
    for page in chain(pages(), [PageDigests(restarts, b"")]):
        if page.restarts > current:
            current = page.restarts
            counter.restart()
        counter.give([*_digests_in(page.added)])
        for digest in _digests_in(page.again):
            counter.meet(digest)
    return counter


def counted_since(
    pages: Callable[[], Iterable[PageDigests]], restarts: int, digests: Collection[bytes], whole: bool
) -> DigestCounter | None:
    """Count the rows of a pass, from the first page on that has one of `digests`.

    If none has, count all rows of the pass for `whole`, and return None otherwise.

    Args:
        pages: returns the pages of the walk.
        restarts: number of the pass.
        digests: digests of rows.
        whole: whether to count all rows if no page has one of these.

    """
    wanted, counter = {*digests}, DigestCounter()
    found = False
    for had in _of_pass(pages(), restarts):
        found = found or not wanted.isdisjoint(had)
        if found:
            counter.give(had)
    if not found and whole:
        for had in _of_pass(pages(), restarts):
            counter.give(had)
    counter.restart()
    return counter if found or whole else None


def _of_pass(pages: Iterable[PageDigests], restarts: int) -> Iterator[list[bytes]]:
    for page in pages:
        if page.restarts == restarts:
            yield [*_digests_in(page.again), *_digests_in(page.added)]


def _digests_in(text: bytes) -> Iterator[bytes]:
    """Yield packed digests."""
    for place in range(0, len(text), DIGEST_SIZE):
        yield text[place : place + DIGEST_SIZE]
