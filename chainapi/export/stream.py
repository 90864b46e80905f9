"""Stream of one source: the rows that each of its pages adds to an export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

from attrs import define, field

from chainapi.client.page import Page
from chainapi.client.pages import Pages
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.cursor import Trend, trend_of
from chainapi.core.paging.newest import mark_of_row
from chainapi.core.paging.order import Watermark
from chainapi.core.paging.stored import Since, StoredRows
from chainapi.export.position import Batch, SourcePosition

__all__ = ["SourceStream", "shows_new_rows"]


class SourceStream:
    """Stream of the batches of one source.

    It ends at the limit, and at the first row that the target has.

    Attributes:
        source: record of the source.

    """

    def __init__(
        self,
        source: SourcePosition,
        pages: Pages[Any],
        encode: Callable[[Sequence[Any]], tuple[bytes, bytes]],
        limit: int | None,
    ) -> None:
        self.source = source
        self._pages = pages
        self._walk = pages.walk
        self._walk.keeps_rows = True
        # Rows of the target that an older page lacks would count as withdrawn.
        self._walk.reads_cache = source.window is None
        self._cursor = pages.cursor
        self._encode = encode
        self._limit = limit
        ends = pages.ends
        self._reach = Reach(source.exported if ends.start is None else ends.start, ends.end)
        self._taken = source.taken  # until the committer matches rows
        self._newest = source.newest
        self._newest_ties = Counter(source.newest_ties)  # marks of the rows with that number
        self._trend = source.trend
        self._last = source.last
        self._rows_of_pass = 0
        # Whether this pass has had a row that an earlier one stored.
        self._has_met = limit is not None and _has_met(pages.checkpoint.watermark, source)
        # Marks of the target's rows with its newest number that this pass has met, and has not met.
        self._met = Counter(source.met_ties)
        self._unmet = Counter(source.exported_ties) - self._met
        self._done = False

    def continue_after(self, since: Since) -> None:
        """Leave out the rows that the export has, if the list grew since its last page.

        `since` returns those of the log.
        """
        falls = self._cursor is not None and self._trend is Trend.FALLING
        number = None if self._cursor is None else self._cursor.number
        last = self._last if falls else None
        self._walk.leave_out(StoredRows(since, last, number, self._newest, self.source.met_ties))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Fetch a page and return the rows that it adds."""
        if self.exhausted:
            raise StopAsyncIteration
        return self._batch(await anext(self._pages))

    @property
    def exhausted(self) -> bool:
        """Check whether the export needs no page after the last batch."""
        return self._done or self.source.limited or self.source.failure is not None

    @property
    def checkpoint(self) -> Checkpoint:
        """Position of the walk."""
        return self._pages.checkpoint

    async def aclose(self) -> None:
        """Close the stream."""
        await self._pages.aclose()

    def _batch(self, page: Page[Any]) -> Batch:
        """Return the rows of a page that the target may lack."""
        walk = self._walk
        matched = page.restarts > 0 and not walk.ordered and not self._in_whole_window
        if walk.depth == 1:
            self._begin_pass(matched=matched)
        numbers = self._numbers(page)
        self._reach.follow(numbers)
        self._follow(numbers)
        new = self._new_rows(page, numbers, matched=matched)
        repeats = [index for index in walk.stale if index not in walk.repeated]
        newest, oldest = (None, None) if matched else self._extent(numbers, new)
        return Batch(
            source=self.source,
            rows=page.items if len(new) == len(page.items) else [page.items[index] for index in new],
            digests=walk.digests(new),
            encode=self._encode,
            position=walk.end,
            done=self._done,
            repeats=walk.digests(repeats) if page.restarts and not (matched or self._in_whole_window) else (),
            newest=newest,
            oldest=oldest,
            ties=self._ties(new, numbers, newest),
            met_ties=tuple(self._met.elements()),
            trend=self._trend,
            last=self._last,
            matched=self._marked(new, numbers) if matched else None,
            limit=self._limit,
            seen=self._rows_of_pass,
            share=self._reach.share,
            size=len(page.body),
            indices=None if len(new) == len(page.items) else new,
            begins=self._begins_window,
        )

    @property
    def _in_whole_window(self) -> bool:
        """Check whether this pass has all rows of a window.

        One that restarted at the last row given lacks those above.
        """
        return self.source.window is not None and self._walk.end.bound is None

    @property
    def _begins_window(self) -> bool:
        return self._in_whole_window and self._walk.depth == 1

    def _begin_pass(self, *, matched: bool) -> None:
        self._rows_of_pass, self._last, self._has_met = 0, None, False
        if self._begins_window:
            self._newest, self._newest_ties = self.source.window, Counter()
        if matched or self._begins_window:  # rows with the newest number of the target come again
            self._met, self._unmet = Counter(), Counter(self.source.exported_ties)

    # Numbers

    def _numbers(self, page: Page[Any]) -> Sequence[int | None]:
        """Return the number of each row, by the order of the list or by its cursor."""
        if self._cursor is not None:
            return [self._cursor.number(row) for row in page.items]
        return self._walk.numbers()

    def _extent(self, numbers: Sequence[int | None], indices: Sequence[int]) -> tuple[int | None, int | None]:
        """Return the greatest and the least number of these rows; None without a number."""
        if self._walk.ordered and indices:
            return numbers[indices[0]], numbers[indices[-1]]
        found = [number for index in indices if (number := numbers[index]) is not None]
        return max(found, default=None), min(found, default=None)

    def _follow(self, numbers: Sequence[int | None]) -> None:
        """Follow the order of the rows of this pass."""
        repeated = self._walk.repeated
        rows = numbers
        if repeated:
            rows = [number for index, number in enumerate(numbers) if index not in repeated]
        self._rows_of_pass += len(rows)
        if self._cursor is None:
            return
        before = [] if self._last is None else [self._last]
        self._trend = self._trend.joined(trend_of([*before, *rows]))
        self._last = rows[-1] if rows else self._last

    def _ties(
        self, indices: Sequence[int], numbers: Sequence[int | None], newest: int | None
    ) -> tuple[str, ...]:
        """Return the marks of the rows that have the greatest number, `newest`.

        Only the newest number of the source has marks.
        """
        if newest is None or (self._newest is not None and newest < self._newest):
            return ()
        if newest != self._newest:
            self._newest, self._newest_ties = newest, Counter()
        marks = tuple(self._walk.marks(index) for index in indices if numbers[index] == newest)
        self._newest_ties.update(marks)
        return marks

    def _marked(
        self, indices: Sequence[int], numbers: Sequence[int | None]
    ) -> Sequence[tuple[int | None, str]]:
        """Return the number and the mark of each row.

        A row whose number cannot be the greatest of the source has no mark.
        """
        least = -1 if self._newest is None else self._newest
        marked = [(index, numbers[index]) for index in indices]
        return [
            (number, "" if number is None or number < least else self._walk.marks(index))
            for index, number in marked
        ]

    # New rows

    def _new_rows(self, page: Page[Any], numbers: Sequence[int | None], *, matched: bool) -> Sequence[int]:
        """Return the rows that the target may lack; end the stream after the last."""
        # A stream of pages does not count rows; the committer does, and matches a later pass without order.
        # Of a window the newest pass counts: its rows may have changed since the one before.
        stale = self._walk.repeated if matched or self._in_whole_window else self._walk.stale
        indices: Sequence[int] = range(len(page.items))
        if stale:
            indices = [index for index in indices if index not in stale]
        new = self._not_exported(indices, numbers)
        ends = self._is_behind_exported(numbers)
        if self._limit is not None and not matched:  # else the committer holds the limit
            if page.restarts:
                new = self._not_added(new, numbers)
            new = self._limited(new, self._limit)
            ends = ends or self._taken >= self._limit
        self._done = ends or self._walk.end.done
        return new

    def _not_added(self, new: Sequence[int], numbers: Sequence[int | None]) -> Sequence[int]:
        """Leave out what a later pass brings above the rows that the target may have.

        The limit is about the list as it was at first: these rows are left to the next run, because a limit
        inside of them would leave a gap. Those that share the newest number precede the rows of that pass.
        """
        newest, repeated = self._newest, self._walk.repeated
        if newest is None:
            return new
        # Rows that an earlier pass left out for the limit count as given, too.
        given = (index for index in self._walk.stale if index not in repeated)
        known = [index for index in given if self._is_stored(index, numbers[index])]
        first = -1 if self._has_met else min(known, default=len(numbers))
        self._has_met = self._has_met or bool(known)
        return [
            index
            for index in new
            if (number := numbers[index]) is None or number < newest or (number == newest and index > first)
        ]

    def _is_stored(self, index: int, number: int | None) -> bool:
        """Return whether a row that was given before is one that the export has."""
        if number is None or self._newest is None or number < self._newest:
            return True
        return number == self._newest and mark_of_row(self._newest_ties, self._walk.marks(index)) is not None

    def _limited(self, new: Sequence[int], limit: int) -> Sequence[int]:
        """Return as many rows as the limit allows."""
        new = new[: limit - self._taken]
        self._taken += len(new)
        return new

    def _not_exported(self, indices: Sequence[int], numbers: Sequence[int | None]) -> Sequence[int]:
        """Return the rows that the target lacks."""
        exported = self.source.exported
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

    def _is_behind_exported(self, numbers: Sequence[int | None]) -> bool:
        """Check whether the target has all rows after this page."""
        exported = self.source.exported
        if exported is None or not (self._walk.ordered or self._trend is Trend.FALLING):
            return False
        return any(number is not None and number < exported for number in numbers)

    def _is_tie(self, index: int) -> bool:
        """Return whether the target has this row of its newest number; use up its mark."""
        known = mark_of_row(self._unmet, self._walk.marks(index))
        if known is None:
            return False
        self._unmet -= Counter([known])
        self._met[known] += 1
        return True


def _has_met(reached: Watermark | None, source: SourcePosition) -> bool:
    """Return whether a pass at a watermark has had a stored row of a source."""
    newest = source.newest
    if reached is None or reached.at is None or newest is None:
        return False
    if reached.at != newest or not reached.met:  # without ties, no other row has the number
        return reached.at <= newest
    return any(mark_of_row(source.newest_ties, mark) for mark in reached.met)


def shows_new_rows(source: SourcePosition, pages: Pages[Any], *, limited: bool) -> bool:
    """Return whether the rows of a finished source show which of them are new.

    Args:
        source: the source.
        pages: its stream.
        limited: whether its first run had a limit.

    """
    if source.exported is None and not source.taken:
        return True  # the list was empty
    if pages.walk.ordered:
        return source.checkpoint is None or not source.checkpoint.unordered
    if pages.cursor is None or source.exported is None:
        return False
    orders = {Trend.LEVEL, Trend.FALLING}
    if pages.cursor.since is not None and not limited:  # with a limit, all of a rising list were new
        orders.add(Trend.RISING)
    return source.trend in orders


@define
class Reach:
    """Reach of a walk from its first row of a run toward the end of its list.

    The share is that of the numbers, as if rows were spread over them evenly. It never falls: a walk that
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
