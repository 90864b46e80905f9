"""Walk: which page of a list to fetch next, and what to do with each answer.

It does no I/O and reads no clock. A reader calls `next_fetch`, fetches that page, and calls `received` or
`failed`, until `received` returns True: then a page is open. The rules (specification, section 4, and what it
leaves open):

* A page token's age counts from when the request that returned it was sent. A token as old as its
  lifetime is never sent: the walk restarts at the first page.
* 400, 404, 410 or 422 to a request with a token may mean that the token died early, or that the page behind
  it is refused with any token. So the page before it is fetched once more, with its older token: if that
  is refused as well, tokens have died, and the walk restarts. If it is answered as before, its new token is
  tried; if that one is refused too, the walk ends with the service's own words.
* A restart has to get further than the pass before it, or the walk fails: no endless loop.
* A token that comes back together with the same rows as before is a loop; with new rows it is not.
* Too many pages in a row without a new row are a loop as well.

After an error the walk stands where it stood: `next_fetch` returns the same fetch again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from copy import copy
from enum import Enum
from itertools import islice
from math import inf
from operator import length_hint
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from chainapi._http.message import SentAt
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.given import Assumption, Given, JudgedRows, StoredBefore
from chainapi._paging.rows import EmptyPage, PageRows, RowsOfPage
from chainapi.core.private import Private
from chainapi.errors import (
    APIStatusError,
    ChainAPIError,
    CheckpointError,
    DecodeError,
    PageRefusedError,
    PageTokenExpiredError,
    PaginationLoopError,
    PagingError,
)

if TYPE_CHECKING:
    from chainapi.events import Event

__all__ = [
    "DEAD_TOKEN_STATUSES",
    "Answer",
    "Fetch",
    "Fetched",
    "ListPage",
    "ListQuery",
    "LoopGuard",
    "PageToken",
    "Walk",
    "WalkState",
]

E = TypeVar("E", bound=ChainAPIError)

DEAD_TOKEN_STATUSES = frozenset({400, 404, 410, 422})

# Seconds. Ages are differences of two floats: an age that falls short by rounding counts as the lifetime.
_ROUNDING = 1e-6

# Pages in a row that bring no new row: an empty page is not the end, equal rows are rows, and a list that
# grows may show old pages again, though never more than were read. Beyond that the service repeats itself.
MAX_IDLE_PAGES = 1_000

HUGE = 1 << 20  # bytes of a page whose rows take long to compare: up to a second for ten million bytes
LOOP_PAGES = 1_024  # pages that a walk remembers to find loops

_EMPTY = EmptyPage()
_NOTHING = JudgedRows()


class WalkState(Enum):
    """State of a walk."""

    FIRST = "first page next"
    NEXT = "token in hand"
    CHECK = "token refused, page before it next"
    EXHAUSTED = "exhausted"
    FAILED = "failed"


# The members of an Enum are slow to look up.
_FIRST, _NEXT, _CHECK = WalkState.FIRST, WalkState.NEXT, WalkState.CHECK
_EXHAUSTED, _FAILED = WalkState.EXHAUSTED, WalkState.FAILED


class PageToken(Struct, frozen=True):
    """Page token and when the request that returned it was sent, in seconds.

    `minted` is on the loop's clock, which no change of the wall clock moves; None if the token comes from
    a checkpoint. `minted_at` is Unix time.
    """

    value: str
    minted: float | None
    minted_at: float


class ListPage(RowsOfPage, Protocol):
    """Decoded page of a list."""

    @property
    def rows(self) -> list[Any]:
        """Rows of the page."""
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


Answer = Fetched | ChainAPIError | None


class Walk:
    """Position of a reader in a list, and the rows given so far.

    Args:
        query: facts about the list query.
        given: finds rows that were given before, from `start` on.
        start: position at which the walk begins.
        lifetime: seconds that a page token lives.
        on_expired: what happens when a token has died.

    Attributes:
        state: state of the walk.
        token: token of the page to fetch next; None for the first page.
        restarts: number of restarts at the first page.
        depth: pages received since the walk began or restarted.
        page: open page; an empty one if none is, and after the open one was left.
        response: response of the page that was opened last, as its source made it.
        keeps_rows: whether the rows of a page stay after it was left.
        reads_cache: whether a page may come from a cache.
        row_limit: rows in all, after which the reader stops.
        listens: whether somebody takes the `events`; without a listener no event is made.
        events: events of the last call, for the reader to emit.

    """

    def __init__(
        self,
        query: ListQuery,
        given: Given,
        start: Checkpoint,
        lifetime: float,
        on_expired: Literal["restart", "raise"] = "restart",
    ) -> None:
        self.query = query
        self.given = given
        self.state = _EXHAUSTED if start.done else _FIRST
        self.token: PageToken | None = None
        if start.token is not None and start.minted_at is not None:
            self.state, self.token = _NEXT, PageToken(start.token, None, start.minted_at)
        self.restarts: int = start.restarts
        self.depth: int = start.pages
        self.page: ListPage = _EMPTY
        self.response: Any = None
        self.keeps_rows: bool = False
        self.reads_cache: bool = True
        self.row_limit: float = inf
        self.listens = False
        self.events: list[Event] = []
        self._lifetime, self._on_expired = lifetime, on_expired
        self._begin = self._start = start  # before the open page
        self._end: Checkpoint | None = None  # after the open page; None without one
        self._size = 0  # rows of the open page
        self._judged_rows = _NOTHING  # which of these rows were given before
        self._moved = 0  # rows that were given or left out before `_left`
        self._left: Iterator[Any] | None = None  # unread rows: readers of rows share the iterator
        self._failure: PagingError | None = None
        self._answer: Fetched | ChainAPIError | None = None  # the last one, until its page is left
        self._call: int | None = None  # number of the call that was answered last
        # Restarts
        self._answered = self.token is not None  # the first page of this query was, once
        self._reached = 0  # the depth at which the pass before this one ended
        self._opener: PageToken | None = None  # token that opened the last page; None for the first one
        self._refusal: APIStatusError | None = None  # of a token, while the page before it is fetched again
        self._renewed = False  # the token in hand took the place of one that was refused
        # Loops
        self._guard = LoopGuard()
        self._deepest = 0  # the greatest depth of the passes before this one
        self._idle = 0  # pages in a row that brought nothing new

    # The next page

    def next_fetch(self, now: float, wall: float) -> Fetch:
        """Return the page to fetch next, of a list that has one.

        Args:
            now: time of the loop's clock in seconds.
            wall: Unix time in seconds; used once, for the age of a token from a checkpoint.

        Raises:
            PagingError: the walk cannot continue.

        """
        self.events = []
        if self._failure is not None:
            raise _copied(self._failure)
        if self._begin.following:
            raise CheckpointError("the checkpoint is one of follow(): call follow() on this stream")
        token = self.token
        if token is not None and token.minted is None:
            token = self.token = replace(token, minted=now - max(0.0, wall - token.minted_at))
        return self.fetch(token)

    def fetch(self, token: PageToken | None) -> Fetch:
        """Return the fetch of the page of a token."""
        minted = None if token is None else token.minted
        not_after = inf if minted is None else minted + self._lifetime - _ROUNDING
        fresh = not self.reads_cache or self.restarts > 0 or self.state is _CHECK
        return Fetch(token, self._start.bound, not_after, fresh)

    def received(self, fetched: Fetched) -> bool:
        """Open a page; False if another one has to be fetched first.

        Comparing the rows of a large page takes long (`is_slow`).

        Raises:
            PaginationLoopError: the service repeats itself.
            PageTokenExpiredError: the page before a refused token has changed, and a restart is not wanted or
                made no progress.
            DecodeError: a row lacks the field that the caller named; nothing has changed.

        """
        self._call, self._answer = fetched.sent.call, fetched
        try:
            if self.state is _CHECK:
                self._check(fetched)
                return False
            if self._end is None and self._start is self._begin:
                self._report_lost_rows()
            rows = self.given.judge(fetched.page)  # may raise: before anything changes
            self._open(fetched, rows)
        except PagingError as error:
            self._fail(error)
            raise
        except DecodeError as error:
            raise self.located(error) from None
        if self.listens:
            self._report_page()
        return True

    def failed(self, error: ChainAPIError) -> None:
        """Go on after an error without the token that died, or raise the error.

        Raises:
            PageTokenExpiredError: a token has died, and a restart is not wanted or made no progress.
            PageRefusedError: the service refuses a page with any token.
            ChainAPIError: the error, if it says nothing about the token.

        """
        self._call, self._answer = error.call, error
        try:
            if isinstance(error, PageTokenExpiredError):
                refusal = self._refusal if self.state is _CHECK else None
                self._expire("its page token has expired", refusal)
            elif not (isinstance(error, APIStatusError) and self._is_refused(error)):
                self._answer = None
                raise error
        except PagingError as raised:
            if raised is not error:
                self._fail(raised)
            raise

    def is_slow(self, fetched: Fetched) -> bool:
        """Check whether `received` takes long: it would block an event loop."""
        return len(fetched.page.body) > HUGE or self.given.reads_stored

    def _open(self, fetched: Fetched, rows: JudgedRows) -> None:
        """Make a page the open one, after its rows were compared with those given before."""
        start, token = self.end, fetched.token  # no row before it is unread
        self._answered = True
        self.depth += 1
        if token is not None and self._repeats(token, rows):
            self.state = _FAILED
            self._report_loop()
            raise PaginationLoopError(
                f"the service repeats itself: page {self.depth} brought nothing that was not there before"
            )
        self._opener, self._renewed, self.token = self.token, False, token
        self.state = _EXHAUSTED if token is None else _NEXT
        self.page, self._size, self._judged_rows = fetched.page, rows.size, rows
        self._moved, self._left, self.response = 0, None, fetched.response
        self._start, self._end = start, self._after(start)

    def _repeats(self, token: PageToken, rows: JudgedRows) -> bool:
        """Check whether the service goes round in circles."""
        fresh = rows.fresh
        if self._guard.is_new(rows.signature) if fresh is None else fresh:
            self._idle = 0
        elif self.depth > self._deepest:
            self._idle += 1
        too_many = self._idle > MAX_IDLE_PAGES and 2 * self._idle > self.depth
        return too_many or self._guard.loops(token.value, rows.signature)

    # Dead tokens

    def _is_refused(self, error: APIStatusError) -> bool:
        """Check whether a response refuses a page token, and go on without that token."""
        if error.status not in DEAD_TOKEN_STATUSES or not self._answered:
            return False
        if self.state is _CHECK:
            self._expire(_refused_with(error), error)
            return True
        if self.token is None:
            return False
        if self._renewed:
            self._renewed = False  # the next refusal is checked again: the new token may expire as well
            words = error.status, error.error, error.messages
            raise PageRefusedError(*words, where=error.where) from error
        if self._opener is None or self._opener.value == self.token.value:  # the first page is before it
            self._expire(_refused_with(error), error)
        else:
            self._refusal, self.token, self.state = error, self._opener, _CHECK
        return True

    def _check(self, fetched: Fetched) -> None:
        """Take the new token of the page before the one that was refused, or restart."""
        token, refusal = fetched.token, self._refusal
        if token is None or self.given.signature(fetched.page) != self._judged_rows.signature:
            self._expire("its page token was refused, and the page before it has changed", refusal)
            return
        self.token, self._refusal, self._renewed, self.state = token, None, True, _NEXT
        if self._end is not None:
            self._end = replace(self._end, token=token.value, minted_at=token.minted_at)
        if self.listens:
            from chainapi.events import TokenRenewed

            self._report(TokenRenewed, self.depth)

    def _expire(self, reason: str, refusal: APIStatusError | None = None) -> None:
        """Return to the first page, or to the last row given.

        The second needs a query that can be bounded by that row.

        Raises:
            PageTokenExpiredError: a restart is not wanted, or would come no further than the one before.

        """
        stuck = self.restarts and self.depth <= self._reached
        if self._on_expired == "raise" or stuck:
            self.state = _FAILED
            text = "the page token has reached its lifetime" if refusal is None else _refusal(refusal)
            place = ", at the same place as before the last restart" if self._on_expired != "raise" else ""
            raise PageTokenExpiredError(f"{text}{place}") from refusal
        self._reached, self.depth = self.depth, 0
        self._deepest = max(self._deepest, self._reached)
        self.restarts += 1
        self.token = self._opener = self._refusal = None
        self._renewed, self._idle, self._guard = False, 0, LoopGuard()
        self.state = _FIRST
        start = self.checkpoint
        bound = self._bound(start)
        if bound != start.bound:  # the first page of the pass begins where the one before ended: progress
            self._reached = self._deepest = 0
        self.given.restart()
        self._start = replace(
            start,
            token=None,
            minted_at=None,
            offset=0,
            pages=0,
            restarts=self.restarts,
            watermark=self.given.watermark,
            bound=bound,
            head=(),
        )
        self._end, self.page, self._size, self._judged_rows = None, _EMPTY, 0, _NOTHING
        self.move_to(0)
        self._report_restart(reason, exact=self.given.exact)

    def _bound(self, start: Checkpoint) -> int | None:
        """Return the upper end of the query for a restart."""
        watermark = start.watermark
        if not self.query.bounded or watermark is None or len(watermark.spans) > 1:
            return start.bound
        # Rows that share the last number may be missing, and not every service includes the bound itself.
        bound = watermark.oldest + 1 if watermark.ties else watermark.oldest
        return bound if self.query.end is None else min(bound, self.query.end)

    # The open page

    @property
    def unread(self) -> bool:
        """Whether the open page has rows neither given nor left out."""
        return self._offset < self._size

    @property
    def _offset(self) -> int:
        """Rows of the open page that were given or left out."""
        return self._moved if self._left is None else self._size - length_hint(self._left)

    @property
    def resumed_inside(self) -> bool:
        """Whether the walk was resumed inside the open page."""
        return self._start.offset > 0

    @property
    def repeated(self) -> Collection[int]:
        """Indices of the rows of the open page that a neighboring page of this pass had."""
        return self._judged_rows.repeated

    @property
    def stale(self) -> Collection[int]:
        """Indices of the rows of the open page that were given before."""
        return self._judged_rows.stale

    @property
    def judged(self) -> PageRows:
        """Keys, numbers and digests of the rows of the open page."""
        return self.given.page

    def rows(self, most: int | None = None) -> Iterator[Any]:
        """Give the unread rows of the open page, without those given before.

        They are at most `most` rows. The offset moves with each.
        """
        stale = self._judged_rows.stale
        if self._left is None:
            rows = self.page.rows if self.unread else ()
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
        begin, size, stale = self._offset, self._size, self._judged_rows.stale
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
        if self.page is _EMPTY:
            return  # left before
        self._moved, self._left = self._size, None
        if not self.keeps_rows:
            self.page, self.response = _EMPTY, None
            self.given.leave()

    def leave_out(self, stored: StoredBefore) -> None:
        """Leave out rows of this pass that the reader had before a resume.

        The walk was resumed between two pages.
        """
        self.given.leave_out(stored)

    def count_rows(self) -> None:
        """Count rows from now on, for a reader that gets each row once."""
        self.given.start_counting()

    # The position

    @property
    def fetched_all(self) -> bool:
        """Whether the last page, one without a token, was received."""
        return self.state is _EXHAUSTED

    @property
    def exhausted(self) -> bool:
        """Whether the last page was received and all of its rows were given."""
        return self.state is _EXHAUSTED and not self.unread

    @property
    def has_failed(self) -> bool:
        """Whether the walk ended with an error that no retry changes."""
        return self._failure is not None

    @property
    def rows_wanted(self) -> float:
        """Rows that the reader wants beyond the open page."""
        return self.row_limit - (self._start.rows + self._size - len(self._judged_rows.stale))

    @property
    def ordered(self) -> bool:
        """Whether the list has a descending number, and no page so far broke that order."""
        return self.given.ordered

    @property
    def checkpoint(self) -> Checkpoint:
        """Position after the row or the page that was given last."""
        if self._end is None:
            return self._start
        return self._inside() if self.unread else self._end

    @property
    def end(self) -> Checkpoint:
        """Position after the open page."""
        return self._start if self._end is None else self._end

    @property
    def rows_given(self) -> int:
        """Number of rows given so far."""
        if self._end is None:
            return self._start.rows
        return self._start.rows + self._given_inside() if self.unread else self._end.rows

    def _after(self, start: Checkpoint) -> Checkpoint:
        """Return the position after the whole open page, which begins at `start`."""
        token, given = self.token, self.given
        return Checkpoint(
            start.query,
            start.path,
            None if token is None else token.value,
            None if token is None else token.minted_at,
            0,
            self.depth,
            start.rows + self._size - len(self._judged_rows.stale),
            self.restarts,
            given.watermark,
            given.broken,
            given.keyless,
            start.bound,
            given.head,
            token is None,
            False,
            start.range,
        )

    def _given_inside(self) -> int:
        """Return the number of rows of the open page that were given."""
        offset = self._offset
        return offset - sum(index < offset for index in self._judged_rows.stale)

    def _inside(self) -> Checkpoint:
        """Return the position inside the open page."""
        start, given, offset = self._start, self.given, self._offset
        return replace(
            start,
            offset=offset,
            rows=start.rows + self._given_inside(),
            watermark=given.watermark_inside(start.watermark, offset),
            unordered=given.broken,
            keyless=given.keyless,
            head=(*given.head, *given.marks_given(offset, self._judged_rows.stale)),
        )

    # Errors and events; the module of events is loaded only if somebody listens

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

    def _fail(self, error: PagingError) -> None:
        """Add the call and the request to an error, and keep one that no retry changes."""
        self.located(error)
        if self.state is _FAILED:
            self._failure = _copied(error)  # a raised error refers to this walk by its traceback

    def _report_page(self) -> None:
        """Report the open page, and each assumption about the list that it refuted."""
        from chainapi.events import KeyNotUnique, OrderBroken, PageReceived, RowsUncounted

        depth = self.depth
        self._report(PageReceived, depth, self._size)
        for assumption in self._judged_rows.refuted:
            if assumption is Assumption.KEY:
                self._report(KeyNotUnique, depth)
            elif assumption is Assumption.MEMORY:
                self._report(RowsUncounted, depth)
            else:
                self._report(OrderBroken, depth, assumption.value)

    def _report_lost_rows(self) -> None:
        """Report a resume in a second pass: rows of the first one come again.

        Their hashes are lost.
        """
        start = self._begin
        if start.restarts and start.rows and not self.given.ordered:
            self._report_restart("it had begun again before it was resumed", exact=False)

    def _report_restart(self, reason: str, *, exact: bool) -> None:
        if self.listens:
            from chainapi.events import Restarted

            self._report(Restarted, self.restarts, reason, exact)

    def _report_loop(self) -> None:
        if self.listens:
            from chainapi.events import LoopFound

            self._report(LoopFound, self.depth)

    def _report(self, kind: Any, *values: object) -> None:
        query = self.query
        self.events.append(kind(query.service, query.where, *values, call=self._call, tag=query.tag))


class LoopGuard(Private, Struct, eq=False, gc=False):
    """Finds pages that came before, in constant memory for a walk of any length.

    It keeps the last `LOOP_PAGES` pages, and a sample of those before: as many, then those whose hash ends
    in ever more zeros. A short loop closes on a recent page, a longer one on a page of the sample.
    """

    _mask: int = 0
    # Empty dicts take less memory than empty sets.
    _pages: dict[int, None] = {}
    _tokens: dict[int, None] = {}  # with their tokens, those that are not recent
    _recent: dict[int, None] = {}  # with their tokens, in order

    def loops(self, token: str, rows: int) -> bool:
        """Check whether this token came before with these rows; `rows` is a hash of them."""
        page = hash((token, rows))
        if page in self._recent or page in self._tokens:
            return True
        # After many pages the sample may have none of a loop of a few.
        self._recent[page] = None
        if len(self._recent) > LOOP_PAGES:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            self._keep(self._tokens, oldest)
        return False

    def is_new(self, rows: int) -> bool:
        """Check whether these rows are new; False as well for rows outside the sample."""
        if rows & self._mask or rows in self._pages:
            return False
        self._keep(self._pages, rows)
        return True

    def _keep(self, sample: dict[int, None], value: int) -> None:
        if value & self._mask:
            return
        sample[value] = None
        while len(sample) > LOOP_PAGES:
            self._mask = 2 * self._mask + 1
            for kept in (self._pages, self._tokens):
                for one in [one for one in kept if one & self._mask]:
                    del kept[one]


def _copied(error: PagingError) -> PagingError:
    """Return an error without its traceback."""
    made = copy(error)
    made.__cause__ = error.__cause__
    return made


def _refused_with(error: APIStatusError) -> str:
    """Return the reason of a restart."""
    return f"its page token was refused with status {error.status}"


def _refusal(error: APIStatusError) -> str:
    """Return a message for a refused page token, with the words of the service."""
    words = "; ".join(error.messages) or error.error
    return f"the service refused the page token with status {error.status}" + (f" ({words})" if words else "")
