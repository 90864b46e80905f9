"""Stream of a source: it decides which rows of its pages an export lacks.

A page may bring rows again: of this walk, because the list shifted or the walk restarted, and of earlier
walks, because an update reads down to the rows of the target. `SourceStream` leaves them out, and moves the
position with each page. The thread of the export stores both (`Committer`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Self, TypeAlias

from attrs import define, evolve, field

from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.cursor import Trend, trend_of
from chainapi._paging.newest import mark_of_row
from chainapi._paging.page import Page
from chainapi._paging.pages import Pages
from chainapi.errors import ColumnValueError
from chainapi.export.given import DigestCounter, PageDigests, counted, counted_since
from chainapi.export.position import Source, SourcePosition
from chainapi.export.stored import StoredRows

__all__ = ["Count", "ReadGiven", "SourceBatch", "SourceStream", "shows_new_rows"]


@define(eq=False)
class SourceBatch:
    """Rows that a page adds to a source, and the position after them.

    Attributes:
        source: the source.
        place: number of its range, or 0.
        rows: rows of the page that the target lacks.
        indices: their indices in the page.
        position: position of the source or the range after the page.
        given: digests of the rows of the page.
        newest: greatest number among the rows; None for a list without such numbers.
        oldest: least number among them.
        share: share of the walk that this run has done; None if it is not known.
        size: bytes of the page as the service sent it.
        begins: whether the walk of a window began, or began again, with this page: it takes the place of the
            pages before.
        written: whether the thread of the export has taken it.

    """

    source: Source
    place: int
    rows: Sequence[Any]
    indices: Sequence[int]
    position: SourcePosition
    given: PageDigests
    newest: int | None
    oldest: int | None
    share: float | None
    size: int
    begins: bool
    written: bool = False

    def in_page(self, error: ColumnValueError) -> ColumnValueError:
        """Return the error of one of the rows with the index of that row in its page."""
        return error.changed(row=self.indices[error.row or 0])


Numbers: TypeAlias = Sequence[int | None]
Count: TypeAlias = Callable[[Callable[[], Iterable[PageDigests]]], DigestCounter | None]
# Runs a count over the digests of a walk, in the thread that stores them; takes the batches sent to it.
ReadGiven: TypeAlias = Callable[[Sequence[SourceBatch], Count], Future[DigestCounter | None]]


class SourceStream:
    """Stream of the batches of one walk of a source.

    It ends at the limit, and at the first row that the target has.

    Attributes:
        position: position after the last batch.

    """

    def __init__(
        self,
        source: Source,
        place: int,
        pages: Pages[Any],
        limit: int | None,
        read_given: ReadGiven,
    ) -> None:
        self.position: SourcePosition = evolve(source.at(place), done=False)  # an update begins after the end
        self._source, self._place = source, place
        self._pages = pages
        self._walk = pages.walk
        self._walk.keeps_rows = True
        if self._walk.ordered:
            self._walk.count_rows()
        # Rows of the target that an older page lacks would count as withdrawn.
        self._walk.reads_cache = source.window is None
        self._cursor = pages.cursor
        self._limit = limit
        self._read_given = read_given
        self._sent = deque[SourceBatch]()  # batches that the thread may not have taken
        self._counter: DigestCounter | None = None  # rows of all passes, once rows have to be counted
        ends = pages.ends
        self._reach = Reach(self.position.exported if ends.start is None else ends.start, ends.end)
        self._seen = 0  # rows of this pass
        # Marks of the target's rows with its newest number that this pass has met, and has not met.
        self._met = Counter(self.position.met_ties)
        self._unmet = Counter(self.position.exported_ties) - self._met
        if pages.checkpoint.token is not None:
            self._leave_out_stored()

    def _leave_out_stored(self) -> None:
        """Leave out the rows that the export has, if the list grew since its last page."""
        at, cursor, restarts = self.position, self._cursor, self._walk.restarts
        falls = cursor is not None and at.trend is Trend.FALLING
        number = None if cursor is None else cursor.number

        def since(digests: Collection[bytes], whole: bool) -> DigestCounter | None:
            count = partial(counted_since, restarts=restarts, digests=digests, whole=whole)
            return self._read_given([*self._sent], count).result()

        last = at.last if falls else None
        self._walk.leave_out(StoredRows(since, last, number, at.newest, at.met_ties))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SourceBatch:
        """Fetch a page and return the rows that it adds."""
        if self.exhausted:
            raise StopAsyncIteration
        page = await anext(self._pages)
        if self._counts and self._counter is None:
            count = partial(counted, restarts=self._walk.restarts)
            self._counter = await asyncio.to_thread(self._read_given([*self._sent], count).result)
        return self._batch(page)

    @property
    def exhausted(self) -> bool:
        """Check whether the export needs no page after the last batch."""
        return self.position.done or self._place in self._source.failures

    @property
    def checkpoint(self) -> Checkpoint:
        """Position of the walk."""
        return self._pages.checkpoint

    async def aclose(self) -> None:
        """Close the stream."""
        await self._pages.aclose()

    def _batch(self, page: Page[Any]) -> SourceBatch:
        """Find the rows of a page that the target lacks, and move the position past it."""
        walk = self._walk
        if walk.depth == 1:
            self._begin_pass()
        begins = self._in_whole_window and walk.depth == 1
        numbers = self._numbers(page)
        self._reach.follow(numbers)
        self._follow(numbers)
        again = self._again(page)
        indices = range(len(page.items))
        new = self._lacking([one for one in indices if one not in again] if again else indices, numbers)
        ends = walk.end.done or self._is_behind_exported(numbers)
        if self._limit is not None:
            new = self._limited(new, again, numbers, self._limit)
        newest, oldest = self._extent(numbers, new)
        self._move(new, numbers, newest, oldest, ends=ends)
        whole = len(new) == len(indices)
        rows = page.items if whole else [page.items[index] for index in new]
        given, share = self._given(new, again), self._reach.share
        size, source = len(page.body), self._source
        batch = SourceBatch(
            source, self._place, rows, new, self.position, given, newest, oldest, share, size, begins
        )
        while self._sent and self._sent[0].written:
            self._sent.popleft()
        self._sent.append(batch)
        return batch

    @property
    def _in_whole_window(self) -> bool:
        """Check whether this pass has all rows of a window.

        A pass that restarted at the last row given lacks the rows above it.
        """
        return self._source.window is not None and self._walk.end.bound is None

    @property
    def _counts(self) -> bool:
        """Check whether this pass brings all rows again, in no order that tells them."""
        walk = self._walk
        return walk.restarts > 0 and not walk.ordered and not self._in_whole_window

    # The position

    def _begin_pass(self) -> None:
        """Begin the list, or begin it again at its first page."""
        self._seen = 0
        self.position = evolve(self.position, last=None, met=False)
        if self._counter is not None:
            self._counter.restart()
        window = self._source.window
        if window is not None and self._in_whole_window:
            self.position = evolve(self.position, newest=window.start, newest_ties=())
        if self._counts or self._in_whole_window:  # rows with the newest number of the target come again
            self._met, self._unmet = Counter(), Counter(self.position.exported_ties)

    def _numbers(self, page: Page[Any]) -> Numbers:
        """Return the number of each row: from the cursor of the list, or from its order."""
        if self._cursor is not None:
            return [self._cursor.number(row) for row in page.items]
        return self._walk.judged.numbers or [None] * len(page.items)

    def _follow(self, numbers: Numbers) -> None:
        """Follow the order of the rows of this pass."""
        repeated, at = self._walk.repeated, self.position
        if repeated:
            numbers = [number for index, number in enumerate(numbers) if index not in repeated]
        self._seen += len(numbers)
        if self._cursor is not None and numbers:
            before = [] if at.last is None else [at.last]
            trend = at.trend.joined(trend_of([*before, *numbers]))
            self.position = evolve(at, trend=trend, last=numbers[-1])

    def _extent(self, numbers: Numbers, indices: Sequence[int]) -> tuple[int | None, int | None]:
        """Return the greatest and the least number of these rows; None without a number."""
        if self._walk.ordered and indices:
            return numbers[indices[0]], numbers[indices[-1]]
        found = [number for index in indices if (number := numbers[index]) is not None]
        return max(found, default=None), min(found, default=None)

    def _move(
        self, new: Sequence[int], numbers: Numbers, newest: int | None, oldest: int | None, *, ends: bool
    ) -> None:
        """Move the position behind the page, whose rows `new` the target gets."""
        at, walk, limit = self.position, self._walk.end, self._limit
        taken = at.taken + (len(new) if at.exported is None else 0)
        # With a limit, a later pass also ends if it has as many rows above the rows of the target, which are
        # too far down, or gone.
        unmet = self._counts and not at.met and limit is not None and self._seen >= limit
        done = ends or unmet or (limit is not None and taken >= limit)
        ties = at.newest_ties
        if newest is not None and (at.newest is None or newest >= at.newest):
            marks = tuple(self._walk.judged.marks(index) for index in new if numbers[index] == newest)
            ties = (*ties, *marks) if newest == at.newest else marks
        else:
            newest = at.newest
        if walk.unordered:
            newest, ties = None, ()
        self.position = evolve(
            at,
            walk=walk,
            taken=taken,
            newest=newest,
            newest_ties=ties,
            exported=newest if done else at.exported,
            exported_ties=ties if done else at.exported_ties,
            met_ties=() if done else tuple(self._met.elements()),
            met=at.met and not done,
            last=None if done else at.last,
            oldest=min((one for one in (at.oldest, oldest) if one is not None), default=None),
            done=done,
        )

    def _given(self, new: Sequence[int], again: Collection[int]) -> PageDigests:
        """Return the digests of the rows of the page.

        A window and a walk that has ended need none.
        """
        walk = self._walk
        if self.position.done or self._source.window is not None:
            return PageDigests(walk.restarts, b"")
        added = walk.judged.digests(new)
        if self._counter is not None:
            self._counter.give(added)
        had = sorted({*again} - {*walk.repeated}) if walk.restarts else ()
        return PageDigests.of(walk.restarts, added, walk.judged.digests(had))

    # New rows

    def _again(self, page: Page[Any]) -> Collection[int]:
        """Return the indices of the rows that this walk had: by its order, or by counts."""
        walk, counter = self._walk, self._counter
        if self._in_whole_window:  # its newest pass counts: rows may have changed since the one before
            return walk.repeated
        if counter is None or not self._counts:
            return walk.stale
        indices = [index for index in range(len(page.items)) if index not in walk.repeated]
        digests = walk.judged.digests(indices)
        met = {index for index, digest in zip(indices, digests, strict=True) if counter.meet(digest)}
        return met | {*walk.repeated}

    def _lacking(self, indices: Sequence[int], numbers: Numbers) -> Sequence[int]:
        """Return the rows that earlier walks did not bring into the target."""
        exported = self.position.exported
        if exported is None:
            return indices
        new: list[int] = []
        for index in indices:
            number = numbers[index]
            if number is None or number > exported:
                new.append(index)
            elif number < exported:
                if self._walk.ordered:
                    break
            elif not self._is_tie(index):
                new.append(index)
        return new

    def _is_tie(self, index: int) -> bool:
        """Return whether the target has this row of its newest number; use up its mark."""
        known = mark_of_row(self._unmet, self._walk.judged.marks(index))
        if known is None:
            return False
        self._unmet -= Counter([known])
        self._met[known] += 1
        return True

    def _is_behind_exported(self, numbers: Numbers) -> bool:
        """Check whether the target has all rows after this page."""
        exported = self.position.exported
        if exported is None or not (self._walk.ordered or self.position.trend is Trend.FALLING):
            return False
        return any(number is not None and number < exported for number in numbers)

    def _limited(
        self, new: Sequence[int], again: Collection[int], numbers: Numbers, limit: int
    ) -> Sequence[int]:
        """Return as many rows as the limit allows.

        The limit is about the list as it was at first. Rows that a later pass brings above the rows of the
        target are left to the next run: a limit inside of them would leave a gap.
        """
        at, walk = self.position, self._walk
        if walk.restarts and at.taken and not at.met:
            had = (index for index in again if index not in walk.repeated)
            known = [index for index in had if not self._is_above(numbers[index])]
            first = min(known, default=len(numbers))
            new = [index for index in new if index > first or self._is_below(numbers[index])]
            self.position = evolve(at, met=bool(known or new))
        elif walk.restarts and new:
            self.position = evolve(at, met=True)
        return new[: max(0, limit - at.taken)]

    def _is_above(self, number: int | None) -> bool:
        """Check whether a row is above the newest one of the target.

        Rows that a limit left out are above it.
        """
        newest = self.position.newest
        return number is not None and newest is not None and number > newest

    def _is_below(self, number: int | None) -> bool:
        """Check whether a row of an ordered list is below the newest one of the target."""
        newest = self.position.newest
        return self._walk.ordered and number is not None and newest is not None and number < newest


def shows_new_rows(at: SourcePosition, pages: Pages[Any], *, limited: bool) -> bool:
    """Return whether the rows of a finished source show which of them are new.

    Args:
        at: position of the source.
        pages: its stream.
        limited: whether its first run had a limit.

    """
    if at.exported is None and not at.taken:
        return True  # the list was empty
    if pages.walk.ordered:
        return at.walk is None or not at.walk.unordered
    if pages.cursor is None or at.exported is None:
        return False
    orders = {Trend.LEVEL, Trend.FALLING}
    if pages.cursor.since is not None and not limited:  # with a limit, all of a rising list were new
        orders.add(Trend.RISING)
    return at.trend in orders


@define
class Reach:
    """Reach of a walk from its first row of a run toward the end of its list.

    The share is a share of the numbers, as if rows were spread over them evenly. It never falls: a walk that
    restarts passes rows again.

    Attributes:
        start: least number of the list, at which descending rows end; None if it is not known.
        end: greatest number, at which ascending rows end; None if it is not known.
        share: share of the walk, above 0 and up to 1; None if it is not known.

    """

    start: int | None
    end: int | None
    share: float | None = field(default=None, init=False)
    _first: int | None = field(default=None, init=False)

    def follow(self, numbers: Sequence[int | None]) -> None:
        """Take the numbers of the rows of a page, in the order of the list."""
        if self.start is None and self.end is None:
            return
        last = next((number for number in reversed(numbers) if number is not None), None)
        if last is None:
            return
        if self._first is None:
            self._first = next(number for number in numbers if number is not None)
        first = self._first
        passed = abs(last - first)
        bound = self.start if last < first else self.end
        if bound is None or not passed:
            return
        whole = first - bound if last < first else bound - first
        if whole > 0:
            self.share = min(1.0, max(self.share or 0.0, passed / whole))
