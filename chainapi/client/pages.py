"""Pages: the asynchronous stream of the pages, or the rows, of one list."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, cast

from chainapi.client.page import MetricPage, Page
from chainapi.client.runner import Runner
from chainapi.client.source import Source
from chainapi.core.arguments import whole_number
from chainapi.core.limits.limit import Limit
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.walk import Walk
from chainapi.errors import ChainAPIError
from chainapi.models.codec import OnInvalid as OnInvalid

if TYPE_CHECKING:
    from chainapi.core.limits.estimate import Estimate

__all__ = ["MetricPages", "OnInvalid", "Pages"]

T = TypeVar("T")


class Pages(Generic[T]):
    """Pages of one list query: an asynchronous stream that can be read once.

    Iterating gives pages as the service sent them; `items()` gives each row once, also where a restart or a
    list that shifted brings rows again. An error leaves the stream in place: iterate again to try again, or
    pass its `checkpoint` to `resume=`, in this process or another.
    """

    def __init__(self, walk: Walk, source: Source) -> None:
        self._walk = walk
        self._source = source
        self._runner = Runner(walk, source)
        self._reader: object = None  # the reader of rows, whose rows must not be interleaved with another's

    def __repr__(self) -> str:
        walk = self._walk
        state = "closed" if self._runner.closed else walk.state.value
        return f"<{type(self).__name__}: {walk.query.where}, {state}, {walk.depth} pages>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream cannot be pickled or copied: its checkpoint can")

    @property
    def exhausted(self) -> bool:
        """Return whether the last page, one without a token, was given whole."""
        return self._walk.exhausted

    @property
    def restarts(self) -> int:
        """Number of times the walk restarted at the first page."""
        return self._walk.restarts

    @property
    def checkpoint(self) -> Checkpoint:
        """Position of the stream: after the row or the page that was given last."""
        return self._walk.checkpoint

    @property
    def model(self) -> Any:
        """Class of the rows; None where they are plain JSON values."""
        return self._source.model

    @property
    def walk(self) -> Walk:
        """Walk of the stream, as the reader of pages or rows uses it.

        It has digests, numbers and repeats of the rows of the page given last.
        """
        return self._walk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Page[T]:
        """Return the next page.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        self._reader = None
        walk, closed = self._walk, self._runner.closed
        begun = walk.unread and not closed  # by items()
        if not begun and not await self._runner.advance():
            raise StopAsyncIteration
        rest = list(walk.rows()) if begun or walk.resumed_inside else None
        walk.skip()
        return self._page(rest)

    async def items(self) -> AsyncGenerator[T, None]:
        """Give the rows one by one, each once.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`, which resumes at the exact row.

        """
        walk, runner = self._walk, self._runner
        reader = self._begin_rows()
        try:
            while not runner.closed and (walk.unread or await runner.advance()):
                for row in walk.rows():
                    yield row
                    if self._reader is not reader:
                        self._refuse_second_reader()
                        return
        finally:
            self._end_rows(reader)

    async def collect(self, limit: int | None = None) -> list[T]:
        """Return all rows, each once; with `limit` at most that many.

        With `limit` the stream can be read on. A partial list is never returned: an error that ends the walk
        has the rows so far as `partial`.

        Raises:
            ConfigurationError: `limit` is not a whole number above 0.
            ChainAPIError: any of chainapi's errors, with `checkpoint` and `partial`.

        """
        if limit is not None:
            whole_number("limit", limit)
        walk, rows = self._walk, list[T]()
        walk.row_limit = inf if limit is None else self.checkpoint.rows + limit
        reader = self._begin_rows()
        try:
            await self._collect(rows, limit, reader)
        except ChainAPIError as error:
            error.partial = rows
            raise
        finally:
            walk.row_limit = inf
            self._end_rows(reader)
        return rows

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
        self._reader = None
        self._runner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _collect(self, rows: list[T], limit: int | None, reader: object) -> None:
        """Append rows until the list ends, or has `limit` rows."""
        walk, runner = self._walk, self._runner
        while not runner.closed and len(rows) != limit and (walk.unread or await runner.advance()):
            if self._reader is not reader:
                self._refuse_second_reader()
            rows.extend(islice(walk.rows(), None if limit is None else limit - len(rows)))
        if len(rows) != limit and not walk.exhausted:
            raise runner.refusal("the stream was closed before its end")

    def _begin_rows(self) -> object:
        """Return a reader of rows, which takes the place of any other."""
        reader = self._reader = object()
        self._walk.count_rows()
        return reader

    def _end_rows(self, reader: object) -> None:
        if self._reader is reader:
            self._runner.rest()

    def _refuse_second_reader(self) -> None:
        if not self._runner.closed:
            raise self._runner.refusal("another reader has taken this stream over: it can be read once")

    def _page(self, rows: list[T] | None) -> Page[T]:
        """Return the open page; with `rows`, with these instead of all its rows."""
        walk, page = self._walk, self._walk.page
        items = page.rows if rows is None else rows
        return Page(items, page.next_page_token, walk.end, walk.restarts, extra=self._extra(), body=page.body)

    def _extra(self) -> dict[str, Any]:
        return dict(zip(self._source.extra, self._walk.page.extra, strict=True))


class MetricPages(Pages[T]):
    """Pages of a metric: each also has the time when the data was last updated."""

    async def __anext__(self) -> MetricPage[T]:
        """Return the next page."""
        return cast("MetricPage[T]", await super().__anext__())

    def _page(self, rows: list[T] | None) -> MetricPage[T]:
        page, extra = super()._page(rows), self._extra()
        return MetricPage(
            page.items,
            page.next_page_token,
            page.checkpoint,
            page.restarts,
            extra=extra,
            body=page.body,
            status=extra["status"],
            last_run=extra["last_run"],
        )
