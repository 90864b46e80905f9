"""Pages as an asynchronous stream: what a user iterates, and where the stream stands."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Sequence,
)
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar, cast

from attrs import evolve, field, frozen

from chainapi.client.emitter import Emitter
from chainapi.client.page import MetricPage, Page
from chainapi.client.prefetch import Fetched, Prefetcher
from chainapi.client.threads import in_thread
from chainapi.core.arguments import whole_number
from chainapi.core.call import SentAt
from chainapi.core.limits.quota import Limit
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.dedupe import Deduplicator, Doubt, Taken
from chainapi.core.paging.states import State, StateMachine
from chainapi.errors import (
    APIStatusError,
    ChainAPIError,
    ConfigurationError,
    PageTokenExpiredError,
    PaginationLoopError,
    PagingError,
)
from chainapi.models.codec import DecodedPage
from chainapi.models.codec import OnInvalid as OnInvalid

if TYPE_CHECKING:
    from chainapi.core.limits.estimate import Estimate

__all__ = ["MetricPages", "OnInvalid", "Pages", "Source"]

T = TypeVar("T")

HUGE = 1 << 20  # bytes of a page whose rows are many to count: up to a second for ten million bytes


class Fetch(Protocol):
    """Asks for one page, by its token."""

    def __call__(
        self,
        page_token: str | None,
        bound: int | None,
        not_after: float,
        needed: Callable[[], bool] | None = None,
    ) -> Awaitable[tuple[DecodedPage, SentAt]]:
        """Return the decoded page, and when its request was sent: before `not_after`, a time of the loop.

        `bound` replaces the upper end of the query's range; `needed` is checked before anything is sent.
        """
        ...


@frozen(eq=False, repr=False)
class Source:
    """What a stream reads from: one query of one service."""

    service: str
    where: str
    fetch: Fetch
    walk: StateMachine
    seen: Deduplicator
    start: Checkpoint
    clock: Callable[[], float]
    now: Callable[[], float]
    emit: Emitter
    prefetch: int = 0
    model: Callable[[], Any] = field(default=lambda: None)  # returns the class of the rows
    bounded: bool = False  # the query's range has an upper end that a restart can move to the watermark
    end: int | None = None  # the upper end that the caller gave
    others: tuple[str, ...] = ()  # names of what else a page holds
    page_size: int | None = None  # rows a page, where it was asked for
    price: Callable[[], float] = field(default=lambda: 1.0)  # of a request, in units
    limits: Sequence[Limit] = ()  # that the session was told


class Pages(Generic[T]):
    """The pages of one query: an asynchronous stream that can be read once.

    Iterating gives pages as the service gave them; `items()` gives each row once, also where a restart or a
    list that shifted brings rows again. An error leaves the stream where it was: iterate again to try again,
    or give its `checkpoint` to `resume=`, in this process or another.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._walk = source.walk
        self._rows: Sequence[Any] = ()  # of the open page
        self._taken = Taken()  # which of them were given before
        self._offset = 0  # how many of them are done with
        self._page: Page[T] | None = None  # the open page
        self._start = source.start  # where the stream stood before it
        self._reader: object = None
        self._fetching = False
        self._failure: PagingError | None = None
        self._closed = False
        self._ahead: Prefetcher | None = None
        self._target = inf  # of rows in all, after which the reader will stop
        source.seen.expect(source.start.head)

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._walk.state.value
        return f"<{type(self).__name__}: {self._source.where}, {state}, {self._walk.depth} pages>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream cannot be pickled or copied: its checkpoint can")

    @property
    def exhausted(self) -> bool:
        """True only when the last page, one without a token, was given whole."""
        return self._walk.exhausted and self._offset >= len(self._rows)

    @property
    def restarts(self) -> int:
        """How often the walk has begun again at the first page."""
        return self._walk.restarts

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the stream stands: after the row or the page that was given last."""
        if self._page is None:
            return self._start
        return self._inside() if self._offset < len(self._rows) else self._page.checkpoint

    @property
    def model(self) -> Any:
        """Class of the rows; None where they are plain JSON values."""
        return self._source.model()

    @property
    def ordered(self) -> bool:
        """Whether the list has a descending number, and no page so far broke that order."""
        return self._source.seen.ordered

    @property
    def repeated(self) -> Collection[int]:
        """Indices of the rows of the page given last that a neighbouring page of this pass had."""
        return self._taken.repeated

    @property
    def stale(self) -> Collection[int]:
        """Indices of the rows of the page given last that are known to have been given before."""
        return self._taken.stale

    def digest(self, index: int) -> bytes:
        """Return the digest of a row of the page given last, under which it is counted."""
        return self._source.seen.digest(index)

    def mark(self, index: int) -> str:
        """Return the mark of a row of the page given last, as a watermark has it."""
        return self._source.seen.mark(index)

    def number(self, index: int) -> int | None:
        """Return the descending number of a row of the page given last; None where the list has none."""
        return self._source.seen.number(index)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Page[T]:
        """Return the next page.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`.

        """
        self._reader = None
        begun = self._offset < len(self._rows)  # by items()
        page = self._page if begun and not self._closed else await self._advance()
        if page is None:
            raise StopAsyncIteration
        if begun or self._start.offset:
            page = evolve(
                page, items=[row for index, row in self._unread() if index not in self._taken.stale]
            )
        self._offset = len(self._rows)
        return page

    async def items(self) -> AsyncGenerator[T, None]:
        """Give the rows one by one, each once.

        Raises:
            ChainAPIError: any of chainapi's errors, with `checkpoint`, which resumes at the exact row.

        """
        reader = self._reader = object()
        self._source.seen.count()
        try:
            while not self._closed and (self._offset < len(self._rows) or await self._advance() is not None):
                stale = self._taken.stale
                for index, row in self._unread():
                    self._offset = index + 1
                    if stale and index in stale:
                        continue
                    yield row
                    if self._reader is not reader:
                        self._refuse_second_reader()
                        return
        finally:
            if self._reader is reader and self._ahead is not None:
                self._ahead.rest()

    async def collect(self, limit: int | None = None) -> list[T]:
        """Return all rows, each once; with `limit` at most so many, and the stream can be read on.

        A partial list is never returned: an error that ends the walk has the rows so far as `partial`.

        Raises:
            ConfigurationError: `limit` is not a whole number above 0.
            ChainAPIError: any of chainapi's errors, with `checkpoint` and `partial`.

        """
        if limit is not None:
            whole_number("limit", limit)
        rows: list[T] = []
        self._target = inf if limit is None else self.checkpoint.rows + limit
        try:
            async for row in self.items():
                rows.append(row)
                if len(rows) == limit:
                    break
            if len(rows) != limit and not self.exhausted:
                raise self._refusal("the stream was closed before its end")
        except ChainAPIError as error:
            error.partial = rows
            raise
        finally:
            self._target = inf
        return rows

    def estimate(
        self, rows: int, *, limits: Sequence[Limit] | None = None, page_size: int | None = None
    ) -> Estimate:
        """Say what fetching so many rows would take, before anything is sent.

        Args:
            rows: how many rows are wanted.
            limits: the limits of the plan; else those that the session was told.
            page_size: rows a page, where the query does not say; most routes give 10 by default.

        Raises:
            ConfigurationError: a number is not above 0, or nobody said how many rows a page has.

        """
        from chainapi.core.limits.estimate import estimate

        size = self._source.page_size if page_size is None else page_size
        if size is None:
            raise ConfigurationError(f"page_size is not known for {self._source.where}: pass page_size=")
        return estimate(
            rows, size, self._source.price(), self._source.limits if limits is None else tuple(limits)
        )

    async def aclose(self) -> None:
        """End the stream; nothing is asked for any more. Closing it again does nothing."""
        self._closed = True
        self._reader = None
        self._drop_ahead()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _refuse_second_reader(self) -> None:
        if not self._closed:
            raise self._refusal("another reader has taken this stream over: it can be read once")

    def _refusal(self, message: str) -> PagingError:
        error = PagingError(message)
        error.checkpoint = self.checkpoint
        return error

    def _unread(self) -> Iterator[tuple[int, Any]]:
        rows = self._rows[self._offset :] if self._offset else self._rows
        return enumerate(rows, self._offset)

    async def _advance(self) -> Page[T] | None:
        """Fetch the next page and make it the open one; None at the end."""
        if self._closed:
            return None
        if self._failure is not None:
            raise self._failure
        if self._fetching:
            raise self._refusal("this stream is being read already: only one reader at a time")
        self._fetching = True
        try:
            return await self._fetch()
        except ChainAPIError as error:
            error.checkpoint = self.checkpoint
            if isinstance(error, PagingError) and self._walk.state is State.FAILED:
                self._failure = error
                self._drop_ahead()
            if isinstance(error, PaginationLoopError) and (source := self._source).emit:
                from chainapi.core.events import LoopFound

                source.emit(LoopFound(source.service, source.where, self._walk.depth))
            raise
        finally:
            self._fetching = False

    async def _fetch(self) -> Page[T] | None:
        walk, ahead = self._walk, self._ahead
        while not walk.exhausted:
            if ahead is not None and ahead.holds(walk.token):
                fetched = await ahead.take()
            else:
                fetched = await self._ask()
            if self._closed:  # by another task, meanwhile
                return None
            if fetched is None:
                continue
            if not isinstance(fetched, Fetched):
                self._restart_or_raise(fetched)
            elif walk.state is State.CHECK:
                self._check(fetched)
            else:
                return await self._take(fetched)
        return None

    def _restart_or_raise(self, error: ChainAPIError) -> None:
        """Go on without the token, where that is what the service refused; else raise the error."""
        walk, restarts = self._walk, self._walk.restarts
        match error:
            case APIStatusError(status=status) if walk.refused(error):
                self._drop_ahead()
                if walk.restarts > restarts:
                    self._restarted(f"its page token was refused with status {status}")
            case PageTokenExpiredError():  # in the queue for quota
                walk.expired()
                self._restarted("its page token has expired")
            case _:
                raise error

    def _check(self, fetched: Fetched) -> None:
        """Take the new token of the page before the one that was refused, or restart."""
        if not self._walk.checked(fetched.token, rows=self._source.seen.signature(fetched.page)):
            self._restarted("its page token was refused, and the page before it has changed")
            return
        if self._page is not None:
            self._page = evolve(self._page, checkpoint=self._after())
        if (source := self._source).emit:
            from chainapi.core.events import TokenRenewed

            source.emit(TokenRenewed(source.service, source.where, self._walk.depth))

    async def _ask(self) -> Fetched | ChainAPIError:
        """Ask for the next page now, as one request; restart first where the token has expired."""
        source, walk = self._source, self._walk
        restarts = walk.restarts
        token = walk.next_token(source.clock(), source.now())
        if walk.restarts > restarts:
            self._restarted("its page token has expired")
        try:
            page, sent = await source.fetch(token, self._start.bound, walk.token_dies_at)
        except (APIStatusError, PageTokenExpiredError) as error:
            return error
        return Fetched(page, sent)

    async def _take(self, fetched: Fetched) -> Page[T] | None:
        """Find the rows given before, in a thread where they are many, and open the page."""
        take, decoded = self._source.seen.take, fetched.page
        if self._page is None and self._start is self._source.start:
            self._tell_of_lost_digests()
        # Before anything changes: a row without its number is an error after which the page is fetched again.
        if len(decoded.body) <= HUGE:
            return self._open(fetched, take(decoded))
        work = in_thread(take, decoded)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:  # its rows are counted, so that it has to be the open page
            await asyncio.wait([work])
            if work.exception() is None and not self._closed:
                self._open(fetched, work.result())
            raise
        return None if self._closed else self._open(fetched, work.result())

    def _open(self, fetched: Fetched, taken: Taken) -> Page[T]:
        source, start, decoded, token = self._source, self.checkpoint, fetched.page, fetched.token
        self._walk.received(token, rows=taken.signature, size=len(decoded.rows), fresh=taken.fresh)
        self._start, self._rows, self._taken, self._offset = start, tuple(decoded.rows), taken, 0
        page = self._page = self._make_page(decoded)
        if source.emit:
            from chainapi.core.events import PageReceived

            source.emit(PageReceived(source.service, source.where, self._walk.depth, len(decoded.rows)))
            self._report(taken.doubts)
        if source.prefetch:
            self._look_ahead()
        return page

    def _look_ahead(self) -> None:
        """Let the next pages be fetched while the reader works on this one, if it will come to them."""
        if self._ahead is None:
            source, walk, bound = self._source, self._walk, self._start.bound
            self._ahead = Prefetcher(
                self,
                source.prefetch,
                fetch=lambda token, needed: source.fetch(token.value, bound, walk.dies_at(token), needed),
                alive=lambda token: source.clock() < walk.dies_at(token),
            )
        given = self._start.rows + len(self._rows) - len(self._taken.stale)  # once the open page is
        self._ahead.start(self._walk.token, rows=self._target - given)

    def _drop_ahead(self) -> None:
        """Cancel the pages that are on their way: nobody will come to them."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    def _make_page(self, decoded: DecodedPage) -> Page[T]:
        return Page(
            decoded.rows,
            decoded.next_page_token,
            self._after(),
            self._walk.restarts,
            others=self._others(decoded),
            body=decoded.body,
        )

    def _others(self, decoded: DecodedPage) -> dict[str, Any]:
        return dict(zip(self._source.others, decoded.others, strict=True))

    def _after(self) -> Checkpoint:
        """Where the stream stands after the whole open page."""
        walk, start, rows, seen = self._walk, self._start, self._rows, self._source.seen
        token = walk.token
        return Checkpoint(
            query=start.query,
            path=start.path,
            token=None if token is None else token.value,
            minted_at=None if token is None else token.minted_at,
            offset=0,
            pages=walk.depth,
            rows=start.rows + len(rows) - len(self._taken.stale),
            restarts=walk.restarts,
            watermark=seen.watermark(),
            unordered=seen.broken,
            keyless=seen.keyless,
            bound=start.bound,
            head=seen.head,
            done=walk.exhausted,
        )

    def _inside(self) -> Checkpoint:
        """Where the stream stands inside the open page."""
        start, seen, offset = self._start, self._source.seen, self._offset
        stale = self._taken.stale
        given = offset - sum(index < offset for index in stale)
        return evolve(
            start,
            offset=offset,
            rows=start.rows + given,
            watermark=seen.watermark(offset),
            unordered=seen.broken,
            keyless=seen.keyless,
            head=(*seen.head, *seen.marks_given(offset, stale)),
        )

    def _restarted(self, reason: str) -> None:
        walk, seen = self._walk, self._source.seen
        self._drop_ahead()
        start = self.checkpoint
        bound = self._bound(start)
        if bound != start.bound:
            walk.moved()
        seen.restart()
        self._start = evolve(
            start,
            token=None,
            minted_at=None,
            offset=0,
            pages=0,
            restarts=walk.restarts,
            watermark=seen.watermark(),
            bound=bound,
            head=(),
        )
        self._page, self._rows, self._taken, self._offset = None, (), Taken(), 0
        self._tell_restarted(reason, exact=seen.complete)

    def _bound(self, start: Checkpoint) -> int | None:
        """Return the upper end of the query for a restart: the last row given, where that is known."""
        mark = start.watermark
        if not self._source.bounded or mark is None or mark.gaps:
            return start.bound
        # Rows that share the last number may be missing, and not every service includes the bound itself.
        bound = mark.oldest + 1 if mark.ties else mark.oldest
        return bound if self._source.end is None else min(bound, self._source.end)

    def _tell_of_lost_digests(self) -> None:
        """Tell of a resume in a second pass: rows given in the first lie ahead, their digests are gone."""
        start = self._source.start
        if start.restarts and start.rows and not self._source.seen.ordered:
            self._tell_restarted("it had begun again before it was resumed", exact=False)

    def _report(self, doubts: Sequence[Doubt]) -> None:
        """Emit an event for each assumption about the list that its newest page refuted."""
        from chainapi.core.events import KeyNotUnique, OrderBroken

        source = self._source
        service, where, page = source.service, source.where, self._walk.depth
        for doubt in doubts:
            if doubt is Doubt.KEY:
                source.emit(KeyNotUnique(service, where, page))
            else:
                source.emit(OrderBroken(service, where, page, doubt.value))

    def _tell_restarted(self, reason: str, *, exact: bool) -> None:
        source = self._source
        if source.emit:
            from chainapi.core.events import Restarted

            source.emit(Restarted(source.service, source.where, self._walk.restarts, reason, exact))


class MetricPages(Pages[T]):
    """The pages of a metric: each page also says when the data was last updated."""

    async def __anext__(self) -> MetricPage[T]:
        """Return the next page."""
        return cast("MetricPage[T]", await super().__anext__())

    def _make_page(self, decoded: DecodedPage) -> MetricPage[T]:
        others = self._others(decoded)
        return MetricPage(
            decoded.rows,
            decoded.next_page_token,
            self._after(),
            self._walk.restarts,
            others=others,
            body=decoded.body,
            status=others["status"],
            last_run=others["last_run"],
        )
