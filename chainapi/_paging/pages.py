"""Pages: the asynchronous stream of the pages, or the rows, of one list."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar

from chainapi._api.source import ListSource
from chainapi._hints import AsyncStreamOnly, to_await
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.cursor import Cursor
from chainapi._paging.page import MetricPage, Page
from chainapi._paging.ranges import Interval
from chainapi._paging.runner import Batch, CollectedRows, RowBatch, WalkRunner
from chainapi._paging.walk import Walk
from chainapi.core.arguments import boolean, whole_numbers
from chainapi.errors import ChainAPIError
from chainapi.models.codec import OnInvalid as OnInvalid
from chainapi.models.invalid import Invalid

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from chainapi._limits.view import Estimate, Limit
    from chainapi._paging.follow import Follow
    from chainapi._paging.split import Split
    from chainapi._paging.tables import Tables
    from chainapi._tables.types import Amounts

__all__ = ["MetricPages", "OnInvalid", "Pages"]

T = TypeVar("T")
_UNKNOWN = object()  # a model that is not loaded yet; None is for plain JSON values


class Pages(AsyncStreamOnly, Generic[T]):
    """Pages of one list query: an asynchronous stream that can be read once.

    Iterating gives pages as the service sent them; `items()` gives each row once, also where a restart or a
    list that shifted brings rows again. An error leaves the stream in place: iterate again to try again, or
    pass its `checkpoint` to `resume=`, in this process or another.

    Attributes:
        walk: the walk of the stream; it has digests, numbers and repeats of the rows of the open page.
        left_out: the invalid rows that tables left out.

    """

    _page_type: type[Page[Any]] = Page

    def __init__(self, walk: Walk, source: ListSource) -> None:
        self.walk = walk
        self._source = source
        self._runner = WalkRunner(walk, source)
        self.left_out: list[Invalid] = []
        self._model: Any = _UNKNOWN
        self._was_read = False  # to its end, by a reader of the whole list

    def __repr__(self) -> str:
        walk = self.walk
        state = "closed" if self._runner.closed else walk.state.value
        return f"<{type(self).__name__}: {walk.query.where}, {state}, {walk.depth} pages>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream cannot be pickled or copied: its checkpoint can")

    @property
    def exhausted(self) -> bool:
        """Return whether the last page, one without a token, was yielded as a whole."""
        return self.walk.exhausted

    @property
    def restarts(self) -> int:
        """Number of times the stream restarted at the first page."""
        return self.walk.restarts

    @property
    def checkpoint(self) -> Checkpoint:
        """Position of the stream: after the last yielded row or page."""
        return self._runner.checkpoint

    @property
    def address(self) -> str:
        """Base address of the service."""
        return self._source.address

    @property
    def cursor(self) -> Cursor | None:
        """Number that shows a later walk which rows are new.

        None if rows have no such number, or the list descends by it.
        """
        return self._source.cursor

    @property
    def ends(self) -> Interval:
        """Bounds that the query sets to the number of its rows; open if it sets none."""
        ranges = self._source.ranges
        return Interval() if ranges is None else ranges.ends

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of the number that shows a later walk which rows are new.

        They name row attributes; the first one that a row has counts. Empty if rows have no such
        number.
        """
        return self._source.number_names

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the query, whatever its page size."""
        return self._source.fingerprint

    @property
    def quota_wait(self) -> float:
        """Seconds until the service takes requests again; 0 without a wait for quota.

        Read it inside a running event loop.
        """
        return self._source.quota_wait

    @property
    def model(self) -> Any:
        """Class of the rows; None if they are plain JSON values."""
        return self._source.model

    def __aiter__(self) -> Self:
        self._begin_whole()
        return self

    async def __anext__(self) -> Page[T]:
        """Return the next page.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        walk, runner = self.walk, self._runner
        if runner.batch is not None:
            runner.refuse_inside_batch()
        begun = walk.unread  # by items()
        if runner.reader is not None:
            runner.refuse_while_reading()
            runner.end_reading()
        if not await runner.advance():
            self._was_read |= walk.exhausted
            raise StopAsyncIteration
        rest = list(walk.rows()) if begun or walk.resumed_inside else None
        page = self._page_type.of(walk, self._source.extra, rest)
        walk.leave()
        if self._model is _UNKNOWN:
            self._model = self._source.model  # now its module is loaded
        page.model, page.lenient = self._model, self._source.on_invalid == "raw"
        return page

    @to_await
    async def first(self) -> T | None:
        """Return the first row; None for an empty list.

        It is the next row if rows were read before. The stream can be read on.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        return next(iter(await self.collect(limit=1)), None)

    def items(self, limit: int | None = None) -> AsyncGenerator[T, None]:
        """Yield the rows one by one, each once; with `limit` at most that many.

        With `limit` you can then continue to read the stream.

        Raises:
            ArgumentError: `limit` is not a whole number above 0; raised by the call itself.
            ChainAPIError: any of chainapi's errors, with `checkpoint`, which resumes at the exact row.

        """
        whole_numbers(limit=limit)
        return self._items(limit)

    async def _items(self, left: int | None) -> AsyncGenerator[T, None]:
        walk, runner = self.walk, self._runner
        if left is None:
            self._begin_whole()
        with runner.reading(left) as reader:
            while left != 0 and await runner.advance():
                before = 0 if left is None else walk.rows_given
                for row in walk.rows(left):
                    yield row
                    if runner.reader is not reader:
                        runner.check(reader)
                        return
                if left is not None:
                    left -= walk.rows_given - before
        self._was_read |= left is None and walk.exhausted

    def batches(self, size: int | None = None, limit: int | None = None) -> AsyncGenerator[list[T], None]:
        """Yield the rows in lists, each row once; with `limit` at most that many rows.

        With `limit` you can then continue to read the stream. Each batch has `size` rows; the last one has
        the rest. Without `size`, a batch has the rows of a page as soon as it arrives. No row that was
        fetched is lost: before an error the rows of the unfinished batch are yielded, and after a cancelled
        wait the next call of `batches` continues it. `checkpoint` is the position after the last yielded
        batch.

        Raises:
            ArgumentError: `size` or `limit` is not a whole number above 0; raised by the call itself.
            PagingError: there is a `limit`, and a batch is unfinished after a cancelled wait.
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        whole_numbers(size=size, limit=limit)
        return self._batches(size, limit, RowBatch)

    async def _batches(
        self, size: int | None, left: int | None, begin: Callable[[], Batch], tables: Tables | None = None
    ) -> AsyncGenerator[Any, None]:
        runner = self._runner
        if left is None:
            self._begin_whole()
        if tables is not None:
            await tables.load(fixed=True)
        batches = "" if left is not None else "batches()" if tables is None else tables.batches
        with runner.reading(left, batches=batches) as reader:
            while left != 0:
                result = await runner.fill_batch(size, left, reader, begin)
                if batch := runner.take_batch():
                    left = None if left is None else left - len(batch)
                    if batch.size:
                        yield batch.given()
                    if runner.reader is not reader:
                        runner.check(reader)
                        return
                if isinstance(result, ChainAPIError):
                    try:
                        raise result
                    finally:
                        del result  # else the frame and the error would refer to each other
                if not result:
                    self._was_read |= left is None and self.walk.exhausted
                    return

    @to_await
    async def collect(self, limit: int | None = None, *, progress: bool = False) -> list[T]:
        """Return all rows, each once; with `limit` at most that many.

        With `limit` you can then continue to read the stream. A partial list is never returned: an error that
        ends the stream has the rows so far as `partial`; after a cancelled wait the next call has them too.
        `progress` shows rows, speed and the time left, in a notebook or on a terminal.

        Raises:
            ArgumentError: `limit` is not a whole number above 0, or `progress` is no bool.
            ChainAPIError: any of chainapi's errors, with `checkpoint` and `partial`.

        """
        rows: list[T] = await self._collect(limit, progress, CollectedRows)
        return rows

    async def _collect(
        self, limit: int | None, progress: bool, begin: Callable[[], Batch], tables: Tables | None = None
    ) -> Any:
        whole_numbers(limit=limit)
        boolean("progress", progress)
        if limit is None:
            self._begin_whole()
        if tables is not None:
            await tables.load()
        runner = self._runner
        with (
            runner.reading(limit, batches="collect()" if tables is None else tables.whole) as reader,
            runner.collecting(limit, reader, begin) as batch,
        ):
            if not progress:
                rows = await runner.collect(batch, limit, reader)
            else:
                from chainapi._paging.progress import WalkProgress, shown

                async with shown(WalkProgress(self, batch, limit)):
                    rows = await runner.collect(batch, limit, reader)
            self._was_read |= limit is None
            return rows

    def _begin_whole(self) -> None:
        """Refuse a reader of the whole list after one that read it to its end.

        Raises:
            PagingError: there was one.

        """
        if self._was_read and not self._runner.closed:
            raise self._runner.refusal(
                "this stream was read to its end, and can be read once: call the method of the list again for"
                " a new one, or keep its rows in a list"
            )

    def arrow_batches(
        self, size: int | None = 10_000, limit: int | None = None, *, amounts: Amounts = "text"
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yield the rows as Arrow record batches, each row once.

        It yields batches as `batches()` does, with `limit` at most that many rows; with ``size=None`` each
        has the rows of a page. All of them have the same schema. With ``on_invalid="raw"``, invalid rows are
        left out.

        Raises:
            ConfigurationError: an argument is invalid; raised by the call itself. The rows have no model, or
                pyarrow is not installed; raised by the first step.
            PagingError: there is a `limit`, and a batch is unfinished after a cancelled wait.
            ColumnValueError: a value does not fit its column; with `checkpoint`.
            ChainAPIError: any other of chainapi's errors, with `checkpoint`.

        """
        whole_numbers(size=size, limit=limit)
        tables = self._tables(amounts)
        return self._batches(size, limit, tables.begin, tables)

    @to_await
    async def to_arrow(
        self, limit: int | None = None, *, amounts: Amounts = "text", progress: bool = False
    ) -> pa.Table:
        """Return all rows as a table of Arrow, each row once.

        With `limit` it has at most that many rows, and you can then continue to read the stream. A partial
        table is never returned: an error that ends the stream has the rows so far as `partial`, a table of
        Arrow too (a list of dicts without a model), and after a cancelled wait the next call has them. With
        ``on_invalid="raw"``, invalid rows are left out.

        Args:
            limit: number of rows.
            amounts: form of amounts, which have up to 256 bits: ``text``, ``decimal`` (38 digits) or
                ``float``.
            progress: show rows, speed and the time left, in a notebook or on a terminal.

        Raises:
            ConfigurationError: an argument is invalid, pyarrow is not installed, or rows without a model have
                values without a common type.
            ColumnValueError: a value does not fit its column; with `checkpoint` and `partial`.
            ChainAPIError: any other of chainapi's errors, with `checkpoint` and `partial`.

        """
        tables = self._tables(amounts)
        return await self._collect(limit, progress, tables.begin_whole, tables)

    @to_await
    async def to_pandas(
        self, limit: int | None = None, *, amounts: Amounts | Literal["int"] = "int", progress: bool = False
    ) -> pd.DataFrame:
        """Return all rows as a data frame of pandas; its columns have the types of Arrow.

        By default amounts are Python ints of any size in columns of objects, so that sums are right; inside
        of records and lists they are strings. Arguments and errors are as in `to_arrow()`.

        Raises:
            ChainAPIError: as `to_arrow()` raises.

        """
        from chainapi._paging.tables import library, pandas_frame

        pandas, form = await library("pandas"), "text" if amounts == "int" else amounts
        table = await self.to_arrow(limit, amounts=form, progress=progress)
        return pandas_frame(pandas, table, self._source.model if amounts == "int" else None)

    @to_await
    async def to_polars(
        self, limit: int | None = None, *, amounts: Amounts = "text", progress: bool = False
    ) -> pl.DataFrame:
        """Return all rows as a data frame of polars.

        Arguments and errors are as in `to_arrow()`.

        Raises:
            ChainAPIError: as `to_arrow()` raises.

        """
        from chainapi._paging.tables import library

        polars = await library("polars")
        frame: pl.DataFrame = polars.DataFrame(await self.to_arrow(limit, amounts=amounts, progress=progress))
        return frame

    def _tables(self, amounts: Amounts) -> Tables:
        from chainapi._paging.tables import Tables

        return Tables(self._source, self.left_out, amounts)

    def split(
        self, ranges: int | None = None, *, blocks: int | None = None, days: float | None = None
    ) -> Split[Self]:
        """Split the list into ranges, each a stream of its own, to read side by side.

        Await the result for a list of streams, or pass it to `merge`. Together they have each row once, with
        the arguments of this stream, which stays unread. A range whose end is open has the rows that the list
        gains meanwhile. For an open end one request asks for the newest row, for an open start one more for
        the oldest, if the route has an order to choose.

        Args:
            ranges: number of ranges of equal width; there may be fewer. They need not have as many rows each.
            blocks: width of each range, for lists by block; borders are its multiples.
            days: width of each range, for lists by time; borders are its multiples, in UTC.

        Raises:
            ConfigurationError: an argument cannot be used, or the list cannot be split.
            PagingError: the stream was read already.

        """
        from chainapi._paging.split import Split, Widths

        at = self.walk.checkpoint
        if at.pages or at.rows or at.following:
            raise self._runner.refusal("a stream that was read cannot be split: call split() before")
        return Split(type(self), self._source.ranges, Widths(ranges, blocks, days))

    def follow(self, *, every: float, lookback: int = 0) -> Follow[T]:
        """Follow the list: an endless stream of its new rows, the oldest first, each once.

        It polls the list, and pages down to the rows that it knows. New rows are those that come after the
        first poll; with a start, such as ``start_block=``, all rows from there on; on a stream that was read
        or resumed, those newer than the yielded rows. The rows of one poll are in memory. The requests have
        the lowest priority, unless the list method got ``priority=``.

        Args:
            every: least seconds between the beginnings of two polls.
            lookback: how far below the newest row, in blocks or seconds as the list counts, changed rows are
                yielded again.

        Raises:
            ConfigurationError: an argument cannot be used, or the list cannot be followed.
            CheckpointError: the stream has not yielded all rows below its newest one.

        """
        from chainapi._paging.follow import Follow

        return Follow(self._source, self.checkpoint, every, lookback)

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
            limits: the limits of the plan, in units with ``units=True``; else the session's.
            page_size: rows a page, if the query has no page size; most routes give 10 by default.

        Raises:
            ConfigurationError: a number is not above 0, the page size is not known, or one request costs more
                than a limit.

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
