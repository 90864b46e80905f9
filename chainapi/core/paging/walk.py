"""Walk over the pages of a list, as a generator of commands.

It does no I/O and reads no clock. `Walk.advance` yields the commands that open the next page, and receives
their results:

* `Fetch`: fetch a page. The result is a `Fetched`, the error in its place, or None where nothing was fetched.
* `Discard`: drop the pages that were fetched ahead; their tokens are dead.
* `Offload`: run a computation that would block an event loop for long.
* `Report`: emit an event.
* `Deliver`: the page is open. This is the last command; the reader takes its rows from the walk.

A generator may be closed at any command: the walk then stands where it stood, and the next `advance` repeats
what was not answered. An error that ends a generator leaves the walk in place as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from copy import copy
from itertools import islice
from math import inf
from operator import length_hint
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from attrs import evolve
from msgspec import Struct

from chainapi.core.call import SentAt
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.dedupe import Assumption, Comparison, Deduplicator
from chainapi.core.paging.position import PagePosition, PageToken, Position, Start, checkpoint_of
from chainapi.core.paging.rows import EmptyPage, RowsOfPage
from chainapi.core.paging.states import State, StateMachine
from chainapi.core.paging.stored import StoredRows
from chainapi.core.private import Private
from chainapi.errors import (
    APIStatusError,
    ChainAPIError,
    CheckpointError,
    DecodeError,
    PageTokenExpiredError,
    PaginationLoopError,
    PagingError,
)

if TYPE_CHECKING:
    from chainapi.core.events import Event

__all__ = [
    "Answer",
    "Command",
    "Deliver",
    "Discard",
    "Fetch",
    "Fetched",
    "ListPage",
    "ListQuery",
    "Offload",
    "Report",
    "Steps",
    "Walk",
]

E = TypeVar("E", bound=ChainAPIError)
R = TypeVar("R")

_EMPTY = EmptyPage()
# The members of an Enum are slow to look up.
_FIRST, _NEXT, _EXHAUSTED = State.FIRST, State.NEXT, State.EXHAUSTED
HUGE = 1 << 20  # bytes of a page whose rows take long to compare: up to a second for ten million bytes


class ListPage(RowsOfPage, Protocol):
    """Decoded page of a list."""

    @property
    def rows(self) -> list[Any]:
        """Rows of the page; a page of columns makes them at the first access."""
        ...

    @property
    def next_page_token(self) -> str | None:
        """Token to the next page; None on the last one."""
        ...

    @property
    def extra(self) -> tuple[Any, ...]:
        """Values of further fields that the route names."""
        ...

    @property
    def body(self) -> bytes:
        """Body as the service sent it."""
        ...


class ListQuery(Struct, frozen=True):
    """Facts about a list query.

    Attributes:
        service: name of the service, for events.
        where: method and path, for events.
        bounded: the query has an upper end that a restart can move to the last row given.
        end: the upper end that the caller passed.
        tag: name of the spender, for events.

    """

    service: str
    where: str
    bounded: bool = False
    end: int | None = None
    tag: str = ""


class Fetched(Private, Struct, eq=False):
    """Page, when its request was sent, and the response that its source made it of."""

    page: ListPage
    sent: SentAt
    response: Any = None

    @property
    def call(self) -> int | None:
        """Number of the call that fetched it; None for a page of a cache."""
        return self.sent.call

    @property
    def request_id(self) -> str | None:
        """Id that the service gave to its request; None without one."""
        return None if self.response is None else self.response.request_id

    @property
    def token(self) -> PageToken | None:
        """Token to the page after this one."""
        value = self.page.next_page_token
        return None if value is None else PageToken(value, self.sent.at, self.sent.wall)


class Fetch(Struct):
    """Fetch the page of `token` (None for the first page).

    Attributes:
        token: the page token to send.
        bound: replacement of the upper end of the query; None for the query as it is.
        not_after: time of the loop's clock from which on the token must not be sent; the answer is then a
            PageTokenExpiredError.
        fresh: whether the page must come from the service: one from a cache may have the token that died, or
            lack rows that the caller has.

    """

    token: PageToken | None
    bound: int | None
    not_after: float
    fresh: bool = False


class Discard(Struct):
    """Drop the pages that were fetched ahead."""


class Offload(Struct, eq=False):
    """Offload `work` from the event loop; it raises no error but chainapi's."""

    work: Callable[[], None]


class Report(Struct):
    """Emit an event."""

    event: Event


class Deliver(Struct, eq=False):
    """Deliver the open page. Its rows are read from the walk."""

    page: ListPage


Command: TypeAlias = Fetch | Discard | Offload | Report | Deliver
Answer: TypeAlias = Fetched | ChainAPIError | None
Steps: TypeAlias = Generator[Command, Answer, None]


class Walk:
    """Position of a reader in a list, and record of the rows given so far.

    It holds page, row, restarts and counts.

    Args:
        query: facts about the list query.
        states: the state machine of page tokens and restarts, at `start`.
        dedupe: finds rows that were given before, from `start` on.
        start: position at which the walk begins.

    """

    def __init__(self, query: ListQuery, states: StateMachine, dedupe: Deduplicator, start: Start) -> None:
        self.query = query
        self.keeps_rows = False  # their digests stay after a page was left
        self.reads_cache = True  # whether a page may come from a cache
        self.row_limit = inf  # rows in all, after which the reader stops
        self.response: Any = None  # of the page that was opened last, as its source made it
        self._states = states
        self._dedupe = dedupe
        self._begin = start
        self._start: Position = start  # before the open page
        self._end: PagePosition | None = None  # after the open page; None without one
        self._page: ListPage = _EMPTY
        self._size = 0  # rows of the open page
        self._compared = Comparison()  # which of these rows were given before
        self._moved = 0  # rows that were given or left out before `_left`
        self._left: Iterator[Any] | None = None  # unread rows: readers of rows share the iterator
        self._failure: PagingError | None = None
        self._reports = False
        self._call: int | None = None  # number of the call that was answered last
        self._answer: Fetched | ChainAPIError | None = None  # that answer, until its page is left
        dedupe.resume_inside(start.head)

    # The open page

    @property
    def page(self) -> ListPage:
        """Open page; an empty one where none is, and after the open one was left."""
        return self._page

    @property
    def unread(self) -> bool:
        """Return whether the open page has rows neither given nor left out."""
        left = self._left
        return (self._moved if left is None else self._size - length_hint(left)) < self._size

    @property
    def _offset(self) -> int:
        """Rows of the open page that were given or left out."""
        return self._moved if self._left is None else self._size - length_hint(self._left)

    @property
    def resumed_inside(self) -> bool:
        """Return whether the walk was resumed inside the open page."""
        return self._start.offset > 0

    @property
    def repeated(self) -> Collection[int]:
        """Indices of the rows of the open page that a neighboring page of this pass had."""
        return self._compared.repeated

    @property
    def stale(self) -> Collection[int]:
        """Indices of the rows of the open page that were given before."""
        return self._compared.stale

    def rows(self, most: int | None = None) -> Iterator[Any]:
        """Give the unread rows of the open page, without those given before.

        They are at most `most` rows. The offset moves with each.
        """
        stale = self._compared.stale
        if self._left is None:
            rows = self._page.rows if self.unread else ()
            # Other sequences make rows when they are read, and their iterators lack a length.
            plain = isinstance(rows, list) and not self._moved
            self._left = iter(rows if plain else list(rows[self._moved :]))
        fresh = self._fresh(self._left, self._size, stale) if stale else self._left
        # A number beyond 64 bits is a limit, too, but no argument of islice.
        return fresh if most is None or most >= self._size else islice(fresh, most)

    @staticmethod
    def _fresh(left: Iterator[Any], size: int, stale: Collection[int]) -> Iterator[Any]:
        for row in left:
            if size - length_hint(left) - 1 not in stale:
                yield row

    def next_rows(self, most: int | None = None) -> tuple[Sequence[int], int]:
        """Return the indices of the rows to give next, and the offset after them.

        They are at most `most` rows. Nothing moves: see `move_to`.
        """
        begin, size, stale = self._offset, self._size, self._compared.stale
        unread: Sequence[int] = range(begin, size)
        if stale:
            unread = [index for index in unread if index not in stale]
        if most is None or most > len(unread):
            return unread, size
        return unread[:most], unread[most - 1] + 1 if most else begin

    def move_to(self, offset: int) -> None:
        """Move the offset forward: the rows before it were given or left out."""
        self._moved, self._left = offset, None

    def leave(self) -> None:
        """Leave the open page, whose rows were all given; drop its rows and its body."""
        self._answer = None
        if self._page is _EMPTY:
            return  # left before
        self._moved, self._left = self._size, None
        if not self.keeps_rows:
            self._page, self.response = _EMPTY, None
            self._dedupe.leave()

    def numbers(self) -> Sequence[int | None]:
        """Return the descending number of each row of the open page."""
        return self._dedupe.numbers()

    def digests(self, indices: Sequence[int]) -> Sequence[bytes]:
        """Return the digests under which rows of the open page are counted."""
        return self._dedupe.digests(indices)

    def marks(self, index: int) -> str:
        """Return the marks of a row of the open page: of its content, and of its key."""
        return self._dedupe.marks(index)

    def has_key(self, index: int) -> bool:
        """Return whether a row of the open page has a key that identifies it."""
        return self._dedupe.has_key(index)

    def leave_out(self, stored: StoredRows) -> None:
        """Leave out rows of this pass that the reader had before a resume.

        The walk was resumed between two pages.
        """
        self._dedupe.leave_out(stored)

    def count_rows(self) -> None:
        """Count rows from now on, for a reader of rows."""
        self._dedupe.start_counting()

    # The position

    @property
    def state(self) -> State:
        """State of the walk."""
        return self._states.state

    @property
    def depth(self) -> int:
        """Pages received since the walk began or restarted."""
        return self._states.depth

    @property
    def restarts(self) -> int:
        """Number of restarts at the first page."""
        return self._states.restarts

    @property
    def fetched_all(self) -> bool:
        """Return whether the last page, one without a token, was received."""
        return self._states.state is _EXHAUSTED

    @property
    def exhausted(self) -> bool:
        """Return whether the last page was received and all of its rows were given."""
        return self._states.exhausted and not self.unread

    @property
    def failed(self) -> bool:
        """Return whether the walk ended with an error that no retry changes."""
        return self._failure is not None

    @property
    def token(self) -> PageToken | None:
        """Token of the page to fetch next; None for the first page."""
        return self._states.token

    @property
    def rows_wanted(self) -> float:
        """Rows that the reader wants beyond the open page."""
        return self.row_limit - (self._start.rows + self._size - len(self._compared.stale))

    @property
    def ordered(self) -> bool:
        """Return whether the list has a descending number, and kept that order.

        No page so far broke it.
        """
        return self._dedupe.ordered

    @property
    def checkpoint(self) -> Checkpoint:
        """Checkpoint after the row or the page that was given last."""
        return checkpoint_of(self.position)

    @property
    def position(self) -> Position:
        """Position after the row or the page that was given last."""
        if self._end is None:
            return self._start
        return self._inside() if self.unread else self._end

    @property
    def end(self) -> Position:
        """Position after the open page."""
        return self._start if self._end is None else self._end

    @property
    def rows_given(self) -> int:
        """Number of rows given so far."""
        if self._end is None:
            return self._start.rows
        return self._start.rows + self._given_inside() if self.unread else self._end.rows

    def fetch(self, token: PageToken | None) -> Fetch:
        """Return the command that fetches the page of `token`."""
        states = self._states
        fresh = not self.reads_cache or states.restarts > 0 or states.state is State.CHECK
        return Fetch(token, self._start.bound, states.expires_at(token), fresh)

    # The next page

    def advance(self, now: float, wall: float, *, reports: bool = True) -> Steps:
        """Open the next page of a list that has one.

        Args:
            now: time of the loop's clock in seconds.
            wall: Unix time in seconds; used once, for the age of a token from a checkpoint.
            reports: whether somebody listens: without a listener no event is made.

        Raises:
            PagingError: the walk cannot continue; the same error again where no retry changes that.
            DecodeError: a row lacks the field that the caller named.
            ChainAPIError: the error that answered `Fetch`.

        """
        if self._failure is not None:
            raise _copied(self._failure)
        if self._begin.following:
            raise CheckpointError("the checkpoint is one of follow(): call follow() on this stream")
        self._reports = reports
        self._states.set_age(now, wall)
        try:
            fetched = yield from self._fetch_next()
            page = fetched.page
            # Before anything changes: after a row without its number the page is fetched again.
            slow = len(page.body) > HUGE or self._dedupe.reads_stored
            compared = (yield from self._compare_slowly(page)) if slow else self._read(self._dedupe.add, page)
            self._open(fetched, compared)
            if reports:
                yield from self._report_page()
            yield Deliver(page)
        except PagingError as error:
            self._fail(error)
            if reports and isinstance(error, PaginationLoopError):
                yield from self._report_loop()
            raise

    def expected(self) -> Fetch | None:
        """Return the fetch of a page that nearly always arrives, for `open_expected`.

        None where the state of the walk makes it unlikely. It does what `advance` does for a reader without a
        listener, in one step.
        """
        states = self._states
        token = states.token
        if self._failure is not None or self._begin.following:
            return None
        if states.state is not (_FIRST if token is None else _NEXT) or (token and token.minted is None):
            return None
        return self.fetch(token)

    def open_expected(self, answer: Answer) -> bool:
        """Open the page that answered the fetch of `expected`.

        False if that takes commands: `advance` then begins with the same fetch, and takes the same answer.

        Raises:
            PagingError, DecodeError: as `advance` raises.

        """
        if not isinstance(answer, Fetched) or len(answer.page.body) > HUGE or self._dedupe.reads_stored:
            return False
        self._call, self._answer = answer.sent.call, answer
        try:
            self._open(answer, self._read(self._dedupe.add, answer.page))
        except PagingError as error:
            self._fail(error)
            raise
        return True

    def located(self, error: E) -> E:
        """Return an error about the last answer or its rows with its call and its request.

        An error that has them already keeps them.
        """
        answer = self._answer
        if isinstance(error, DecodeError) and not error.where:
            error = error.changed(where=self.query.where)
        if answer is not None and error.call is None and error.request_id is None:
            error.call, error.request_id = answer.call, answer.request_id
        return error

    def _read(self, read: Callable[[ListPage], R], page: ListPage) -> R:
        """Return what a function reads from the rows of a page that was just fetched.

        Raises:
            DecodeError: a row lacks the field that the caller named.

        """
        try:
            return read(page)
        except DecodeError as error:
            raise self.located(error) from None

    def _fail(self, error: PagingError) -> None:
        """Add the call and the request to an error, and keep one that no retry changes."""
        self.located(error)
        if self._states.state is State.FAILED:
            self._failure = _copied(error)  # a raised error refers to this walk by its traceback

    def _fetch_next(self) -> Generator[Command, Answer, Fetched]:
        """Fetch until a page arrives that the walk can open.

        Restart where its token has died.
        """
        states = self._states
        while True:
            answer = yield self.fetch(states.token)
            if answer is None:
                continue
            self._call, self._answer = answer.call, answer
            if not isinstance(answer, Fetched):
                yield from self._recover(answer)
            elif states.state is State.CHECK:
                yield from self._check(answer)
            else:
                break
        if self._end is None and self._start is self._begin:
            yield from self._report_lost_digests()
        return answer

    def _compare_slowly(self, page: ListPage) -> Generator[Command, Answer, Comparison]:
        """Compare the rows of a page outside of the event loop."""
        results: list[Comparison] = []
        yield Offload(lambda: results.append(self._read(self._dedupe.add, page)))
        return results[0]

    def _recover(self, error: ChainAPIError) -> Steps:
        """Continue without the token that was refused or expired; else raise the error."""
        states, restarts = self._states, self._states.restarts
        match error:
            case APIStatusError(status=status) if states.refused(error):
                if states.restarts > restarts:
                    yield from self._restart(f"its page token was refused with status {status}")
                else:
                    yield Discard()
            case PageTokenExpiredError():
                states.expired()
                yield from self._restart("its page token has expired")
            case _:
                self._answer = None
                raise error

    def _check(self, fetched: Fetched) -> Steps:
        """Take the new token of the page before the one that was refused, or restart."""
        rows = self._read(self._dedupe.signature, fetched.page)
        if not self._states.checked(fetched.token, rows=rows):
            yield from self._restart("its page token was refused, and the page before it has changed")
            return
        if self._end is not None:
            self._end = self._after()
        if self._reports:
            from chainapi.core.events import TokenRenewed

            yield self._report(TokenRenewed, self.depth)

    def _open(self, fetched: Fetched, compared: Comparison) -> None:
        """Make a page the open one, after its rows were compared with those given before."""
        start, token, size = self.end, fetched.token, compared.size  # no row before it is unread
        self._states.received(token, rows=compared.signature, fresh=compared.fresh)
        self._page, self._size, self._compared = fetched.page, size, compared
        self._moved, self._left, self.response = 0, None, fetched.response
        self._start = start
        self._end = self._after()

    def _restart(self, reason: str) -> Steps:
        """Return to the first page, or to the last row given.

        The second needs a query that can be bounded by that row.
        """
        states, dedupe = self._states, self._dedupe
        start = self.checkpoint
        bound = self._restart_bound(start)
        if bound != start.bound:
            states.moved()
        dedupe.restart()
        self._start = evolve(
            start,
            token=None,
            minted_at=None,
            offset=0,
            pages=0,
            restarts=states.restarts,
            watermark=dedupe.watermark(),
            bound=bound,
            head=(),
        )
        self._end, self._page, self._size = None, _EMPTY, 0
        self.move_to(0)
        self._compared = Comparison()
        yield Discard()
        yield from self._report_restart(reason, exact=dedupe.complete)

    def _restart_bound(self, start: Checkpoint) -> int | None:
        """Return the upper end of the query for a restart.

        That is the last row given, where it is known.
        """
        watermark = start.watermark
        if not self.query.bounded or watermark is None or watermark.gaps:
            return start.bound
        # Rows that share the last number may be missing, and not every service includes the bound itself.
        bound = watermark.oldest + 1 if watermark.ties else watermark.oldest
        return bound if self.query.end is None else min(bound, self.query.end)

    # Checkpoints

    def _after(self) -> PagePosition:
        """Return the position after the whole open page."""
        states, start = self._states, self._start
        return PagePosition(
            self._begin,
            states.token,
            states.depth,
            start.rows + self._size - len(self._compared.stale),
            states.restarts,
            *self._dedupe.position,
            start.bound,
            states.state is _EXHAUSTED,
        )

    def _given_inside(self) -> int:
        """Return the number of rows of the open page that were given."""
        offset = self._offset
        return offset - sum(index < offset for index in self._compared.stale)

    def _inside(self) -> Checkpoint:
        """Return the position inside the open page."""
        start, dedupe, offset = checkpoint_of(self._start), self._dedupe, self._offset
        stale = self._compared.stale
        return evolve(
            start,
            offset=offset,
            rows=start.rows + self._given_inside(),
            watermark=dedupe.watermark(offset),
            unordered=dedupe.broken,
            keyless=dedupe.keyless,
            head=(*dedupe.head, *dedupe.marks_given(offset, stale)),
        )

    # Events; their module is loaded only where somebody listens

    def _report_page(self) -> Steps:
        """Report the open page, and each assumption about the list that it refuted."""
        from chainapi.core.events import KeyNotUnique, OrderBroken, PageReceived

        depth = self.depth
        yield self._report(PageReceived, depth, self._size)
        for assumption in self._compared.refuted:
            if assumption is Assumption.KEY:
                yield self._report(KeyNotUnique, depth)
            else:
                yield self._report(OrderBroken, depth, assumption.value)

    def _report_lost_digests(self) -> Steps:
        """Report a resume in a second pass: rows of the first one come again.

        Their digests are lost.
        """
        start = self._begin
        if start.restarts and start.rows and not self._dedupe.ordered:
            yield from self._report_restart("it had begun again before it was resumed", exact=False)

    def _report_restart(self, reason: str, *, exact: bool) -> Steps:
        if self._reports:
            from chainapi.core.events import Restarted

            yield self._report(Restarted, self.restarts, reason, exact)

    def _report_loop(self) -> Steps:
        from chainapi.core.events import LoopFound

        yield self._report(LoopFound, self.depth)

    def _report(self, kind: Callable[..., Event], *values: object) -> Report:
        query = self.query
        return Report(kind(query.service, query.where, *values, call=self._call, tag=query.tag))


def _copied(error: PagingError) -> PagingError:
    """Return an error without its traceback."""
    made = copy(error)
    made.__cause__ = error.__cause__
    return made
