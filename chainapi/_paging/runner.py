"""WalkRunner: fetches the pages of a walk, for one reader at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Protocol, Self

from msgspec import Struct, field

from chainapi._api.source import ListSource
from chainapi._http.threads import finish_in_thread
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.prefetch import Prefetcher
from chainapi._paging.walk import Answer, Fetch, Fetched, Walk
from chainapi.errors import ChainAPIError, PagingError

__all__ = ["Batch", "CollectedRows", "RowBatch", "WalkRunner"]


class Batch(Protocol):
    """Rows that were taken for a batch, which is not given yet.

    Its length is their number.
    """

    @property
    def reader(self) -> str:
        """Method that gives such batches."""
        ...

    @property
    def size(self) -> int:
        """Number of the rows that the reader gets, without those left out."""
        ...

    def __len__(self) -> int: ...

    def take(self, walk: Walk, most: int | None) -> None:
        """Take the next rows of the open page, at most that many.

        Raises:
            ChainAPIError: a row cannot be taken; the walk stands where it stood.

        """
        ...

    def given(self) -> Any:
        """Return the rows as they are given to the reader."""
        ...

    def partial(self) -> Any:
        """Return the rows as an error has them that ends a reader of all rows."""
        ...

    def split(self, count: int) -> Self | None:
        """Take the first rows out, as a batch; None for rows that cannot be divided."""
        ...


class RowBatch(Struct, eq=False):
    """Batch of rows as a list."""

    rows: list[Any] = field(default_factory=list[Any])

    @property
    def reader(self) -> str:
        """Method that gives such batches."""
        return "batches()"

    @property
    def size(self) -> int:
        """Number of the rows."""
        return len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, walk: Walk, most: int | None) -> None:
        """Take the next rows of the open page, at most that many."""
        self.rows.extend(walk.rows(most))

    def given(self) -> list[Any]:
        """Return the rows."""
        return self.rows

    def partial(self) -> list[Any]:
        """Return the rows."""
        return self.rows

    def split(self, count: int) -> Self:
        """Take the first rows out, as a batch."""
        first, self.rows = self.rows[:count], self.rows[count:]
        return type(self)(first)


class CollectedRows(RowBatch):
    """Rows of a list that `collect()` has begun."""

    @property
    def reader(self) -> str:
        """Method that returns such lists."""
        return "collect()"


class WalkRunner:
    """Runs a walk page by page, with the requests and events of a session.

    Attributes:
        reader: the reader of rows, if there is one; another reader takes its place.
        batch: the batch that is not given yet; None without one.
        closed: whether nothing more is sent.

    """

    def __init__(self, walk: Walk, source: ListSource) -> None:
        self._walk = walk
        self._source = source
        self._running = False
        self._ahead: Prefetcher | None = None
        self.reader: object = None
        self.batch: Batch | None = None
        self.closed = False
        self._before_batch: Checkpoint | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """Position after the last yielded row or page."""
        before = self._before_batch if self.batch else None
        return self._walk.checkpoint if before is None else before

    async def advance(self) -> bool:
        """Open the next page, unless the open one has unread rows.

        Returns False at the end of the list, and after `close`.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        walk = self._walk
        if self.closed or walk.unread or walk.fetched_all:
            return walk.unread and not self.closed
        self.refuse_while_reading()
        self._running = True
        answer: Answer = None
        try:
            walk.listens = bool(self._source.emit)
            walk.leave()
            times = self._source.times()
            while not self.closed:
                answer = await self._fetch(walk.next_fetch(*times))
                if await self._opens(answer):
                    break
        except ChainAPIError as error:
            self._failed(error)
            answer = None
            error.__traceback__ = None  # its frames have the answer, which may be the error itself
            raise
        finally:
            self._running = False
        if self._source.prefetch and not self.closed:
            self._fetch_ahead()
        return not self.closed

    async def _opens(self, answer: Answer) -> bool:
        """Let the walk take an answer, and emit its events; return whether a page is open."""
        walk = self._walk
        if answer is None or self.closed:
            return False
        try:
            if not isinstance(answer, Fetched):
                walk.failed(answer)
                return False
            if not walk.is_slow(answer):
                return walk.received(answer)
            opened = list[bool]()
            cancelled = await finish_in_thread(lambda: opened.append(walk.received(answer)))
            if cancelled is not None:  # the rows were counted: the page is open all the same
                raise cancelled
            return opened[0]
        finally:
            for event in walk.events:
                self._source.emit(event)

    @contextmanager
    def reading(self, limit: int | None = None, *, batches: str = "") -> Iterator[object]:
        """Let a reader of at most `limit` rows take the place of any other.

        `batches` is the method of a reader of batches.

        Raises:
            PagingError: another reader waits for a page; or a batch is unfinished, and the reader is not one
                of such batches.

        """
        self.refuse_while_reading()
        self.refuse_inside_batch(batches)
        walk = self._walk
        walk.count_rows()
        taken = walk.rows_given - (len(self.batch) if self.batch else 0)
        walk.row_limit = inf if limit is None else taken + limit
        reader = self.reader = object()
        try:
            yield reader
        finally:
            if self.reader is reader:
                self.end_reading()

    def end_reading(self) -> None:
        """Drop the limit of the last reader, which cannot read any more."""
        self.reader, self._walk.row_limit = None, inf

    @contextmanager
    def collecting(self, limit: int | None, reader: object, begin: Callable[[], Batch]) -> Iterator[Batch]:
        """Let a reader collect all rows, or at most `limit`, in one batch.

        After a cancellation the batch stays, and the next reader of the same kind continues it. If it has
        more rows than `limit`, that reader gets the first of them. Without an unfinished batch, `begin` makes
        one.

        Raises:
            PagingError: the unfinished batch has more rows, and cannot be divided.

        """
        if limit is not None and self.batch and len(self.batch) > limit:
            if (first := self.batch.split(limit)) is None:
                raise self._too_few("limit", self.batch.reader, len(self.batch))
            yield first
            return
        before = self._before_batch if self.batch else self._walk.checkpoint
        batch = self.take_batch() or begin()
        try:
            yield batch
        except asyncio.CancelledError:
            if self.reader is reader:
                self.batch, self._before_batch = batch, before
            raise

    async def collect(self, batch: Batch, limit: int | None, reader: object) -> Any:
        """Take all rows, or rows until the batch has `limit`; return them as given.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`, and with the rows so far as `partial`.

        """
        try:
            full = await self._fill(batch, inf, limit, reader)
            if not full and not self._walk.exhausted:
                raise self.refusal("the stream was closed before its end")
            return batch.given()
        except ChainAPIError as error:
            error.partial = batch.partial()
            raise

    def check(self, reader: object) -> None:
        """Refuse a reader of rows whose place another one took.

        Raises:
            PagingError: the stream is open, and its reader is another one.

        """
        if self.reader is not reader and not self.closed:
            raise self.refusal("another reader has taken this stream over: it can be read once")

    def refuse_while_reading(self) -> None:
        """Refuse a reader while another one waits for a page.

        It would take rows out of the reach of that one.

        Raises:
            PagingError: one waits.

        """
        if self._running and not self.closed:
            raise self.refusal("this stream is being read already: only one reader at a time")

    def refuse_inside_batch(self, batches: str = "") -> None:
        """Refuse readers, except of such `batches`, while a batch is unfinished.

        Raises:
            PagingError: it is.

        """
        if self.batch and self.batch.reader != batches:
            raise self.refusal(f"the stream stands inside a batch: read on with {self.batch.reader}")

    async def fill_batch(
        self, size: int | None, left: int | None, reader: object, begin: Callable[[], Batch]
    ) -> bool | ChainAPIError:
        """Take rows until the batch has `size` of them, or without it the rows of a page.

        It takes at most `left` rows. `begin` makes a batch if none is unfinished.

        Returns whether there may be more rows, or the error that ended the walk. The rows taken so far stay
        in `batch`, after a cancellation too.

        Raises:
            PagingError: the unfinished batch has more rows.

        """
        batch = self.batch
        if not batch:
            batch, self._before_batch = begin(), self._walk.checkpoint
        elif size is not None and batch.size > size:
            raise self._too_few("size", batch.reader, batch.size)
        self.batch = batch
        try:
            return await self._fill(batch, size, left, reader)
        except ChainAPIError as error:
            return error

    async def _fill(self, batch: Batch, size: float | None, limit: int | None, reader: object) -> bool:
        """Take rows until the batch has `size` of them, or has taken `limit`.

        Without a size it takes the rows of a page. Returns False if the list, or the stream, ends before.
        """
        most = inf if limit is None else limit
        enough, largest = (1, inf) if size is None else (size, size)
        while batch.size < enough and len(batch) < most:
            if not await self.advance():
                return False
            self.check(reader)
            room = min(most - len(batch), largest - batch.size)
            self._take(batch, None if room == inf else int(room))
        return True

    def _take(self, batch: Batch, most: int | None) -> None:
        """Take the next rows of the open page for a batch, at most that many.

        Raises:
            ChainAPIError: a row cannot be taken; with `checkpoint`.

        """
        try:
            batch.take(self._walk, most)
        except ChainAPIError as error:
            located = self._walk.located(error)
            located.checkpoint = self._walk.checkpoint
            raise located from error.__cause__

    def take_batch(self) -> Batch | None:
        """Return the batch, if it has rows, and begin another one."""
        batch, self.batch, self._before_batch = self.batch, None, None
        return batch or None

    def close(self) -> None:
        """Send nothing more, and cancel the requests for further pages."""
        self.reader, self.closed = None, True
        self._discard()

    def _is_open(self) -> bool:
        return not self.closed

    def refusal(self, message: str) -> PagingError:
        """Return an error with the checkpoint of the walk."""
        error = PagingError(message)
        error.checkpoint = self.checkpoint
        return error

    def _too_few(self, name: str, reader: str, rows: int) -> PagingError:
        return self.refusal(
            f"a cancelled call of {reader} has taken {rows:,} rows: read on with a {name} of as many or more"
        )

    def _failed(self, error: ChainAPIError) -> None:
        """Add the checkpoint to an error; drop further pages if the walk cannot continue."""
        error.checkpoint = self._walk.checkpoint
        if self._walk.has_failed:
            self._discard()

    def _fetch(self, fetch: Fetch) -> Coroutine[Any, Any, Answer]:
        """Return the page that was fetched ahead, or fetch it now."""
        if self._ahead is not None:
            if self._ahead.holds(fetch.token):
                return self._ahead.take()
            self._discard()  # a token has died, and the tokens of the pages ahead with it
        return self._source.fetch(fetch, self._is_open)

    def _fetch_ahead(self) -> None:
        """Prefetch the next pages unless the row limit will stop the reader first."""
        walk = self._walk
        if self._ahead is None:
            self._ahead = Prefetcher(self, self._source, walk)
        self._ahead.start(walk.token, rows=walk.rows_wanted)

    def _discard(self) -> None:
        """Cancel the requests for further pages."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None
