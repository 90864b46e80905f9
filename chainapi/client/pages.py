"""Pages: the asynchronous stream of the pages, or the rows, of one list."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from chainapi.client.page import MetricPage, Page
from chainapi.client.runner import WalkRunner
from chainapi.client.source import Source
from chainapi.core.arguments import whole_number
from chainapi.core.limits.limit import Limit
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.walk import Walk
from chainapi.errors import ChainAPIError
from chainapi.models.codec import OnInvalid as OnInvalid

if TYPE_CHECKING:
    from chainapi.client.split import Split
    from chainapi.core.limits.estimate import Estimate

__all__ = ["MetricPages", "OnInvalid", "Pages"]

T = TypeVar("T")


class Pages(Generic[T]):
    """Pages of one list query: an asynchronous stream that can be read once.

    Iterating gives pages as the service sent them; `items()` gives each row once, also where a restart or a
    list that shifted brings rows again. An error leaves the stream in place: iterate again to try again, or
    pass its `checkpoint` to `resume=`, in this process or another.

    Attributes:
        walk: the walk of the stream; it has digests, numbers and repeats of the rows of the open page.

    """

    _page_type: type[Page[Any]] = Page

    def __init__(self, walk: Walk, source: Source) -> None:
        self.walk = walk
        self._source = source
        self._runner = WalkRunner(walk, source)

    def __repr__(self) -> str:
        walk = self.walk
        state = "closed" if self._runner.closed else walk.state.value
        return f"<{type(self).__name__}: {walk.query.where}, {state}, {walk.depth} pages>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream cannot be pickled or copied: its checkpoint can")

    @property
    def exhausted(self) -> bool:
        """Return whether the last page, one without a token, was given whole."""
        return self.walk.exhausted

    @property
    def restarts(self) -> int:
        """Number of times the walk restarted at the first page."""
        return self.walk.restarts

    @property
    def checkpoint(self) -> Checkpoint:
        """Position of the stream: after the row or the page that was given last."""
        return self._runner.checkpoint

    @property
    def address(self) -> str:
        """Base address of the service."""
        return self._source.address

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the query: equal for streams of the same list, whatever their page size."""
        return self._source.fingerprint

    @property
    def quota_wait(self) -> float:
        """Seconds until the service takes requests again; 0 without a wait for quota.

        Read it inside a running event loop.
        """
        return self._source.quota_wait

    @property
    def model(self) -> Any:
        """Class of the rows; None where they are plain JSON values."""
        return self._source.model

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Page[T]:
        """Return the next page.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        walk, runner = self.walk, self._runner
        runner.refuse_inside_batch()
        begun = walk.unread  # by items()
        runner.reader = None
        if not await runner.advance():
            raise StopAsyncIteration
        rest = list(walk.rows()) if begun or walk.resumed_inside else None
        walk.skip()
        return self._page_type.of(walk, self._source.extra, rest)

    async def first(self) -> T | None:
        """Return the first row; None for an empty list.

        It is the next row if rows were read before. The stream can be read on.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        return next(iter(await self.collect(limit=1)), None)

    def items(self, limit: int | None = None) -> AsyncGenerator[T, None]:
        """Give the rows one by one, each once; with `limit` at most that many.

        With `limit` the stream can be read on.

        Raises:
            ConfigurationError: `limit` is not a whole number above 0; raised by the call itself.
            ChainAPIError: any of chainapi's errors, with `checkpoint`, which resumes at the exact row.

        """
        if limit is not None:
            whole_number("limit", limit)
        return self._items(limit)

    async def _items(self, left: int | None) -> AsyncGenerator[T, None]:
        walk, runner = self.walk, self._runner
        with runner.reading(left) as reader:
            while left != 0 and await runner.advance():
                before = 0 if left is None else walk.checkpoint.rows
                for row in islice(walk.rows(), left):
                    yield row
                    if runner.reader is not reader:
                        runner.check(reader)
                        return
                if left is not None:
                    left -= walk.checkpoint.rows - before

    def batches(self, size: int | None = None, limit: int | None = None) -> AsyncGenerator[list[T], None]:
        """Give the rows in lists, each row once; with `limit` at most that many rows.

        With `limit` the stream can be read on. Each batch has `size` rows, the last one what is left. Without
        `size`, a batch has the rows of a page as soon as it arrives. No row that was fetched is lost: before
        an error the rows of the unfinished batch are given, and after a cancelled wait the next call of
        `batches` continues it. `checkpoint` is the position after the batch that was given last.

        Raises:
            ConfigurationError: `size` or `limit` is not a whole number above 0; raised by the call itself.
            PagingError: there is a `limit`, and a batch is unfinished after a cancelled wait.
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        for name, number in (("size", size), ("limit", limit)):
            if number is not None:
                whole_number(name, number)
        return self._batches(size, limit)

    async def _batches(self, size: int | None, left: int | None) -> AsyncGenerator[list[T], None]:
        runner = self._runner
        with runner.reading(left, batches=left is None) as reader:
            while left != 0:
                result = await runner.fill_batch(size, left, reader)
                if batch := runner.take_batch():
                    left = None if left is None else left - len(batch)
                    yield batch
                    if runner.reader is not reader:
                        runner.check(reader)
                        return
                if isinstance(result, ChainAPIError):
                    raise result
                if not result:
                    return

    async def collect(self, limit: int | None = None, *, progress: bool = False) -> list[T]:
        """Return all rows, each once; with `limit` at most that many.

        With `limit` the stream can be read on. A partial list is never returned: an error that ends the walk
        has the rows so far as `partial`. `progress` shows rows, speed and the time left, in a notebook or on
        a terminal.

        Raises:
            ConfigurationError: `limit` is not a whole number above 0.
            ChainAPIError: any of chainapi's errors, with `checkpoint` and `partial`.

        """
        if limit is not None:
            whole_number("limit", limit)
        rows = list[T]()
        if not progress:
            return await self._collect(rows, limit)
        from chainapi.client.progress import WalkProgress, shown

        async with shown(WalkProgress(self, rows, limit)):
            return await self._collect(rows, limit)

    async def _collect(self, rows: list[T], limit: int | None) -> list[T]:
        walk, runner = self.walk, self._runner
        try:
            with runner.reading(limit) as reader:
                while len(rows) != limit and await runner.advance():
                    runner.check(reader)
                    rows.extend(islice(walk.rows(), None if limit is None else limit - len(rows)))
            if len(rows) != limit and not walk.exhausted:
                raise runner.refusal("the stream was closed before its end")
        except ChainAPIError as error:
            error.partial = rows
            raise
        return rows

    def split(
        self, ranges: int | None = None, *, blocks: int | None = None, days: float | None = None
    ) -> Split[Self]:
        """Split the list into ranges, each a stream of its own, to walk side by side.

        Await the result for a list of streams, or pass it to `merge`. Together they have each row once, with
        the arguments of this stream, which stays unread. A range whose end is open has the rows that the list
        gains meanwhile. For an open end one request asks for the newest row, for an open start one more for
        the oldest, where the route has an order to choose.

        Args:
            ranges: number of ranges of equal width; there may be fewer. They need not have as many rows each.
            blocks: width of each range, for lists by block; borders are its multiples.
            days: width of each range, for lists by time; borders are its multiples, in UTC.

        Raises:
            ConfigurationError: an argument cannot be used, or the list cannot be split.
            PagingError: the stream was read already.

        """
        from chainapi.client.split import Split, Widths

        if self.walk.checkpoint.pages or self.walk.checkpoint.rows:
            raise self._runner.refusal("a stream that was read cannot be split: call split() before")
        return Split(type(self), self._source.ranges, Widths(ranges, blocks, days))

    def seconds_left(self, requests: float) -> float:
        """Return the least seconds until a number of further requests has left.

        It follows from the quota as the gate knows it now: what is left, when it comes back, and a stop. 0
        if the quota suffices or is unknown. Call it inside a running event loop.
        """
        return self._source.seconds_left(requests)

    def estimate(
        self, rows: int, *, limits: Sequence[Limit] | None = None, page_size: int | None = None
    ) -> Estimate:
        """Return what fetching `rows` rows takes; nothing is sent.

        Args:
            rows: number of rows wanted.
            limits: the limits of the plan; else those passed to the session.
            page_size: rows a page, where the query has no page size; most routes give 10 by default.

        Raises:
            ConfigurationError: a number is not above 0, or the page size is not known.

        """
        return self._source.estimate(rows, limits, page_size)

    async def aclose(self) -> None:
        """End the stream; nothing more is sent. Closing it again does nothing."""
        self._runner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class MetricPages(Pages[T]):
    """Pages of a metric: each also has the time when the data was last updated."""

    _page_type = MetricPage

    if TYPE_CHECKING:

        async def __anext__(self) -> MetricPage[T]:
            """Return the next page."""
            ...
