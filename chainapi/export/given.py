"""Matching of the rows of later passes of a walk with the rows that an export has.

A list without an order that restarts at its first page brings all of its rows again. They are matched one by
one, by digest, because the list may hold a row more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from chainapi.core.paging.digests import DIGEST_SIZE, DigestCounter
from chainapi.core.paging.rows import RunDigests
from chainapi.errors import ColumnValueError
from chainapi.export.position import Batch

__all__ = ["Given", "Matchers", "NewRows", "Walk"]

T = TypeVar("T")
Walk: TypeAlias = tuple[str, int]  # label of a source, place of a range


class Given(msgspec.Struct, array_like=True):
    """Digests of rows of a source: those that a pass added, and those it had again.

    `_packed` makes both.
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

    def replay(self, one: Given) -> None:
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

    def add(self, restarts: int, digests: Sequence[bytes]) -> None:
        """Add rows of this pass."""
        self.replay(Given(restarts, _packed(digests)))

    def _begin(self, restarts: int) -> None:
        if restarts > self._pass:
            self._pass = restarts
            self._counter.restart()
            self._has_met = False


class NewRows(NamedTuple):
    """Rows of a page that the export lacks.

    Attributes:
        batch: the page with these rows alone.
        again: digests of the other rows, which the export has.
        met: whether this pass had a row that the export has; True if no rows are matched.

    """

    batch: Batch
    again: Sequence[bytes] = ()
    met: bool = True


class Matchers:
    """Matchers of the walks of a log, and the digests that it has yet to store.

    Args:
        stored: returns what the log has stored of a walk, page by page.

    Attributes:
        unstored: the outcomes of further pages by walk.

    """

    def __init__(self, stored: Callable[[Walk], Iterable[Given]]) -> None:
        self.unstored: dict[Walk, list[Given]] = {}
        self._stored = stored
        self._matchers: dict[Walk, Matcher] = {}

    def take(self, batch: Batch, encode: Callable[[Sequence[Any]], T]) -> tuple[NewRows, T] | None:
        """Return the rows that the log lacks, and what `encode` makes of them.

        Their digests are kept. Return None if a value does not fit its column, or one of an earlier page of
        the source did not; `SourceRecord.failure` has the error.
        """
        walk = batch.source.label, batch.source.place
        if batch.source.failure is None:  # else the page was under way
            new = self._new_rows(walk, batch)
            try:
                encoded = encode(new.batch.rows)
            except ColumnValueError as error:
                batch.source.failure = new.batch.in_page(error)
            else:
                self._keep(walk, new)
                return new, encoded
        self._matchers.pop(walk, None)  # it has met rows that are not taken
        return None

    def given_since(
        self, walk: Walk, restarts: int, digests: Collection[bytes], whole: bool
    ) -> DigestCounter | None:
        """Count the stored digests of a pass, from the first one on among `digests`.

        If it has none of these, count all digests for `whole`, and return None otherwise.
        """
        wanted, given = {*digests}, None
        for had in self._digests_of(walk, restarts):
            if given is None and not wanted.isdisjoint(had):
                given = DigestCounter()
            if given is not None:
                given.give_new(had)
        if given is None and whole:
            given = DigestCounter()
            for had in self._digests_of(walk, restarts):
                given.give_new(had)
        if given is not None:
            given.restart()
        return given

    def _digests_of(self, walk: Walk, restarts: int) -> Iterator[list[bytes]]:
        """Yield the digests that a pass has stored, page by page."""
        for one in self._outcomes(walk):
            if one.restarts == restarts:
                yield [*_digests_in(one.again), *_digests_in(one.added)]

    def _outcomes(self, walk: Walk) -> Iterator[Given]:
        """Yield the outcomes of the pages of a walk, in their order."""
        yield from self._stored(walk)
        yield from self.unstored.get(walk, ())

    def _new_rows(self, walk: Walk, batch: Batch) -> NewRows:
        """Return the rows of a batch that the log lacks; in a later pass, match them.

        Equal rows are matched one by one: the list may hold a row more than once.
        """
        restarts = batch.position.restarts
        if not restarts or not (batch.repeats or batch.matched is not None):
            return NewRows(batch)
        matcher = self._matcher(walk)
        again = _known(batch.repeats, matcher.match(restarts, batch.repeats))
        if batch.matched is None:
            return NewRows(batch, again)
        met = matcher.has_met(restarts)
        known = matcher.match(restarts, batch.digests)
        new = batch.unmatched(known, met=met)
        return NewRows(new, again + _known(batch.digests, known), met or any(known))

    def _matcher(self, walk: Walk) -> Matcher:
        """Return the matcher of a walk; make it at its first use, from all digests."""
        if walk not in self._matchers:
            matcher = self._matchers[walk] = Matcher()
            for one in self._outcomes(walk):
                matcher.replay(one)
        return self._matchers[walk]

    def _keep(self, walk: Walk, new: NewRows) -> None:
        batch, again = new.batch, new.again
        restarts, added = batch.position.restarts, batch.digests
        if walk in self._matchers:
            self._matchers[walk].add(restarts, added)
        if not batch.done and batch.source.window is None and (added or again):
            outcome = Given(restarts, _packed(added), _packed(again))
            self.unstored.setdefault(walk, []).append(outcome)

    def forget(self, walk: Walk) -> None:
        """Forget a walk that has ended."""
        self._matchers.pop(walk, None)
        self.unstored.pop(walk, None)

    def take_unstored(self) -> dict[Walk, list[Given]]:
        """Return the outcomes that the log has yet to store, for the next commit."""
        taken, self.unstored = self.unstored, {}
        return taken


def _known(digests: Sequence[bytes], known: Sequence[bool]) -> list[bytes]:
    return [digest for digest, old in zip(digests, known, strict=True) if old]


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
