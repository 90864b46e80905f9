"""Digests of the rows that an export has of unfinished walks.

A list without an order that restarts at its first page brings all of its rows again. They are matched one by
one, by digest, because the list may hold a row more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Self, TypeAlias

import msgspec

from chainapi.core.paging.digests import DIGEST_SIZE, DigestCounter
from chainapi.core.paging.rows import RunDigests

__all__ = ["Given", "Walk", "counted", "counted_since"]

Walk: TypeAlias = tuple[str, int]  # label of a source, number of a range or 0


class Given(msgspec.Struct, array_like=True):
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
        return cls(restarts, _packed(added), _packed(again))

    def __bool__(self) -> bool:
        return bool(self.added or self.again)


def counted(pages: Callable[[], Iterable[Given]], restarts: int) -> DigestCounter:
    """Count the rows that an export has of a walk, and the rows that a pass has met.

    The pass is the one after `restarts` restarts.
    """
    counter, current = DigestCounter(), 0
    for page in chain(pages(), [Given(restarts, b"")]):
        if page.restarts > current:
            current = page.restarts
            counter.restart()
        for digest in _digests_in(page.added):
            counter.give(digest)
        for digest in _digests_in(page.again):
            counter.meet(digest)
    return counter


def counted_since(
    pages: Callable[[], Iterable[Given]], restarts: int, digests: Collection[bytes], whole: bool
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
            counter.give_new(had)
    if not found and whole:
        for had in _of_pass(pages(), restarts):
            counter.give_new(had)
    counter.restart()
    return counter if found or whole else None


def _of_pass(pages: Iterable[Given], restarts: int) -> Iterator[list[bytes]]:
    for page in pages:
        if page.restarts == restarts:
            yield [*_digests_in(page.again), *_digests_in(page.added)]


def _packed(digests: Sequence[bytes]) -> bytes:
    """Pack digests into bytes; a run of numbers as its start, stop and step."""
    if isinstance(digests, RunDigests) and digests:
        numbers = digests.numbers
        return b"%b%d,%d,%d" % (_RUN, numbers.start, numbers.stop, numbers.step)
    return _EACH + b"".join(digests) if digests else b""


def _digests_in(text: bytes) -> Iterator[bytes]:
    """Yield the digests that `_packed` has packed."""
    if text.startswith(_RUN):
        yield from RunDigests(range(*map(int, text.removeprefix(_RUN).split(b","))))
    else:
        for place in range(len(_EACH), len(text), DIGEST_SIZE):
            yield text[place : place + DIGEST_SIZE]


_RUN, _EACH = b"r", b"d"  # first bytes of packed digests
