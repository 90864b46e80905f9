"""Follow: an endless stream of the new rows of one list."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

from chainapi._api.identity import Numbered
from chainapi._api.source import ListSource
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.newest import NewestRows
from chainapi._paging.runner import WalkRunner
from chainapi.core.arguments import seconds_of, whole_number
from chainapi.errors import ChainAPIError, CheckpointError, ConfigurationError, PagingError

__all__ = ["Follow"]

T = TypeVar("T")


class Follow(Generic[T]):
    """Endless stream of the new rows of one list, the oldest of them first, each once.

    An error leaves the stream in place: iterate again to continue. It can be given to `merge`, which then
    yields rows in place of pages.

    Args:
        source: the list query.
        start: position to continue from; at the start of the list, rows count as new from now on.
        every: least seconds between the beginnings of two polls.
        lookback: how far below the newest number a row that changed is yielded again.

    Raises:
        ConfigurationError: an argument cannot be used, or the list cannot be followed.
        CheckpointError: rows below the newest one of `start` were not given yet.

    """

    def __init__(self, source: ListSource, start: Checkpoint, every: float, lookback: int) -> None:
        self._every = seconds_of("every", every)
        self._lookback = whole_number("lookback", lookback, 0)
        self._source = source
        self._numbered = _numbered(source)
        self._rows = start.rows
        self._start = start
        self._given = self._begin(start)
        self._ready: deque[tuple[int, str, T]] = deque()
        self._next_poll = 0.0
        self._unfinished_poll: _Poll | None = None  # which the next call continues
        self._limit: asyncio.Timeout | None = None  # of the poll, while it runs
        self._closed = asyncio.Event()
        self._reading = False

    def __repr__(self) -> str:
        return f"<Follow: {self._start.path}, {self._rows} rows>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream cannot be pickled or copied: its checkpoint can")

    @property
    def exhausted(self) -> bool:
        """Whether the stream was closed: the list itself has no end."""
        return self._closed.is_set()

    @property
    def checkpoint(self) -> Checkpoint:
        """Position after the last yielded row, for ``resume=`` and `Pages.follow`."""
        if self._given is None or not self._given.noted:  # then no row was yielded yet
            return self._start
        watermark = self._given.watermark(self._numbered.name)
        start = self._start
        return Checkpoint(
            start.query, start.path, rows=self._rows, range=start.range, watermark=watermark, following=True
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return the next new row; wait for it.

        Raises:
            PagingError: the service does not keep to the order or the start of the list.
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        if self._reading:
            raise self._refusal("this stream is being read already: only one reader at a time")
        self._reading = True
        try:
            while not self._ready and not self._closed.is_set():
                await self._wait()
                await self._poll()
        except ChainAPIError as error:
            error.checkpoint = self.checkpoint
            raise
        finally:
            self._reading = False
        return self._next_row()

    async def aclose(self) -> None:
        """End the stream; nothing more is sent. Closing it again does nothing."""
        self._closed.set()
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())
            self._limit = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _next_row(self) -> T:
        if self._closed.is_set() or self._given is None:
            raise StopAsyncIteration
        number, mark, row = self._ready.popleft()
        self._given.give(number, mark)
        self._rows += 1
        return row

    def _begin(self, start: Checkpoint) -> NewestRows | None:
        """Return the newest rows at a position; None if the first poll finds them."""
        watermark = start.watermark
        if watermark is None or not (start.following or self._numbered.descends):
            return self._begin_without_rows(start)
        if len(watermark.spans) > 1:
            raise CheckpointError(
                f"rows below {watermark.newest} were not given yet: read the list to its end before follow()"
            )
        if start.following and watermark.number_field != self._numbered.name:
            raise CheckpointError(
                f"the checkpoint follows the list by {watermark.number_field!r}, and this stream by"
                f" {self._numbered.name!r}: follow it by the same number"
            )
        return NewestRows.of(watermark, lookback=self._lookback, following=start.following)

    def _begin_without_rows(self, start: Checkpoint) -> NewestRows | None:
        """Return the newest rows of a list that gave none, if all rows count as new."""
        ranges = self._source.ranges
        if start.rows:
            raise CheckpointError(
                f"follow() cannot continue this stream, which kept no {self._numbered.name} of the rows that"
                " it gave: follow the list from a start, such as start_block=, or from a checkpoint of"
                " follow()"
            )
        begun = start.done or (ranges is not None and ranges.ends.start is not None)
        return NewestRows(-1, lookback=self._lookback) if begun else None

    async def _wait(self) -> None:
        """Wait until the next poll is due, or the stream is closed."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._next_poll):
                await self._closed.wait()
        except TimeoutError:
            pass
        self._next_poll = loop.time() + self._every

    async def _poll(self) -> None:
        """Fetch the new rows, down to the first one that was yielded before.

        A poll that a cancellation or an error interrupts is continued: a poll that takes longer than its
        readers wait, or than the service is without errors, would otherwise never end. After a cancellation
        it continues at once the first time, and whenever a page came.
        """
        if self._closed.is_set():
            return
        poll, self._unfinished_poll = self._unfinished_poll, None
        before = None if poll is None else poll.pages
        poll = poll or _Poll(self._source, self._numbered, self._given, self._lookback)
        limit = self._limit = asyncio.timeout(None)
        try:
            async with limit:
                await poll.run(self._closed)
        except ChainAPIError:  # first: an APITimeoutError is a TimeoutError, too
            self._unfinished_poll = poll if poll.continues else None
            raise
        except TimeoutError:
            if not limit.expired():  # then it is not the end of a closed stream
                raise
            return
        except asyncio.CancelledError:
            self._unfinished_poll = poll
            if poll.pages != before:
                self._next_poll = 0.0
            raise
        finally:
            self._limit = None
        if self._closed.is_set():
            return
        self._given = poll.given
        self._ready.extend(poll.oldest_first())

    def _refusal(self, message: str) -> PagingError:
        error = PagingError(message)
        error.checkpoint = self.checkpoint
        return error


class _Poll:
    """One walk from the head of a list to the rows that were yielded before.

    Attributes:
        given: the newest rows given; without them, no row is new, and all rows of the list count as given.
        pages: number of pages read.

    """

    def __init__(
        self, source: ListSource, numbered: Numbered, given: NewestRows | None, lookback: int
    ) -> None:
        self._walk, polled = source.poll(None if given is None else given.since)
        self._numbered = numbered
        self._new: list[tuple[int, str, Any]] = []
        self._lookback = lookback
        self._first = given is None
        self._descends = self._walk.ordered  # as the route declares, whatever the pages show
        self._ascends = polled.ranges is not None and polled.ranges.ascending  # as the caller asked
        self._whole = polled.ranges is not None and not self._first  # the query has a start: all rows count
        self.given = given or NewestRows(-1, lookback=lookback)
        self.given.begin()
        self.pages = 0
        self._runner = WalkRunner(self._walk, polled)
        self._walk.count_rows()

    @property
    def continues(self) -> bool:
        """Whether `run` can read the rest after an error.

        Not if the error refused a page that came.
        """
        return not self._walk.has_failed and not self._walk.unread

    async def run(self, closed: asyncio.Event) -> None:
        """Read the pages with new rows, unless the stream is `closed`.

        After a cancellation or an error, read the rest of them.
        """
        reached = False
        while not reached and not closed.is_set() and await self._runner.advance():
            self.pages += 1
            reached = self._read_page()
        if not closed.is_set():
            self.given.end()
        self._runner.close()

    def oldest_first(self) -> list[tuple[int, str, Any]]:
        """Return the number, mark and content of each new row, the oldest row first."""
        new = self._new
        falls = bool(new) and not self._ascends and new[0][0] >= new[-1][0]
        if self._descends or falls:  # a restart adds the newest rows last
            new = new[::-1]
        return sorted(new, key=_number_of)

    def _read_page(self) -> bool:
        """Take the new rows of the open page.

        Return whether all rows after it were yielded.
        """
        walk = self._walk
        indices, behind = walk.next_rows()
        rows = walk.page.rows
        numbers = [self._number(rows[index]) for index in indices]
        if not self._descends and not self._whole:
            self._check_falling(numbers)
        if self._first and numbers and self.given.newest < 0:
            self.given = NewestRows(max(numbers), lookback=self._lookback, adopted=max(numbers) + 1)
        known, reached, given = 0, False, self.given
        for index, number in zip(indices, numbers, strict=True):
            if number < given.since:
                known, reached = known + 1, True
                continue
            mark = walk.judged.marks(index)
            if walk.judged.has_key(index) and given.repeats(number, mark):
                continue
            if given.is_new(number, mark):
                self._new.append((number, mark, rows[index]))
            else:
                known += 1
        walk.move_to(behind)
        if self._whole:
            return False
        broken = self._descends and not walk.ordered and not self._first
        return known == len(numbers) > 0 if broken else reached

    def _number(self, row: Any) -> int:
        number = self._numbered.read(row)
        if number is None:
            raise self._error(
                f"a row has no {self._numbered.name}, by which follow() finds out whether it is new"
            )
        return number

    def _check_falling(self, numbers: Sequence[int]) -> None:
        """Refuse a page whose rows are not newest first, in a list that promises no order.

        Raises:
            PagingError: a number rises.

        """
        if any(above < below for above, below in pairwise(numbers)):
            raise self._error(
                "follow() needs a list whose newest rows come first, and the rows of this one do not: pass a"
                " start, such as start_block=, or sort_order=, if the method has one"
            )

    def _error(self, message: str) -> PagingError:
        """Return an error about the open page."""
        return self._walk.located(PagingError(message))


def _numbered(source: ListSource) -> Numbered:
    """Return the number that a list can be followed by.

    Raises:
        ConfigurationError: it has none, or has an end.

    """
    numbered, ranges = source.numbered, source.ranges
    if numbered is None:
        raise ConfigurationError(
            "this list cannot be followed: its rows have no number that descends or that a start bounds. If"
            " its newest rows come first, name their number: session.data.list(path, descending_key=...)"
        )
    if ranges is not None and ranges.ends.end is not None:
        raise ConfigurationError(
            "a list with an end cannot be followed: leave out end_block= or end_timestamp="
        )
    return numbered


def _number_of(entry: tuple[int, str, Any]) -> int:
    return entry[0]
