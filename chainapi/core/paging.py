"""The walk over pages as a state machine.

The rules (specification, section 4, and what it leaves open):

* The walk is in one of four states; `TRANSITIONS` lists every step between them.
* A page token's age counts from when the request that returned it was sent. A token as old as its
  lifetime is never sent: the walk restarts at the first page.
* 400, 404, 410 or 422 to a request with a token, in a walk whose first page was answered, means that the
  token has died early: nothing else is new in that request. The walk restarts as well.
* A restart has to get further than the pass before it, or the walk fails: no endless loop.
* A token that comes back together with the same rows as before is a loop; with new rows it is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Literal

from attrs import define, evolve, field, frozen

from chainapi.core.checkpoint import Checkpoint
from chainapi.errors import PageTokenExpiredError, PaginationLoopError

__all__ = [
    "DEAD_TOKEN_STATUSES",
    "TRANSITIONS",
    "PageToken",
    "State",
    "Step",
    "Walk",
]

DEAD_TOKEN_STATUSES = frozenset({400, 404, 410, 422})

# Ages are differences of two floats: one that is this much short of the lifetime has reached it. Seconds.
_ROUNDING = 1e-6

# An empty page is not the end, but a service that never gives a row again is broken.
MAX_EMPTY_PAGES = 1_000


class State(Enum):
    """Where a walk stands."""

    FIRST = "first page next"
    NEXT = "token in hand"
    EXHAUSTED = "exhausted"
    FAILED = "failed"


class Step(Enum):
    """What moves a walk from one state to another."""

    PAGE = "page with a token"
    LAST_PAGE = "page without a token"
    EXPIRED = "token expired or refused"
    GIVE_UP = "no progress, or no restart wanted"
    LOOP = "same token, same rows"


TRANSITIONS: Mapping[State, Mapping[Step, State]] = {
    State.FIRST: {Step.PAGE: State.NEXT, Step.LAST_PAGE: State.EXHAUSTED, Step.LOOP: State.FAILED},
    State.NEXT: {
        Step.PAGE: State.NEXT,
        Step.LAST_PAGE: State.EXHAUSTED,
        Step.EXPIRED: State.FIRST,
        Step.GIVE_UP: State.FAILED,
        Step.LOOP: State.FAILED,
    },
    State.EXHAUSTED: {},
    State.FAILED: {},
}


@frozen
class PageToken:
    """A page token and when the request that returned it was sent, in seconds.

    `minted` is on the loop's clock, which no change of the wall clock moves; None where the token comes from
    a checkpoint. `minted_at` is Unix time.
    """

    value: str
    minted: float | None
    minted_at: float


class LoopGuard:
    """Notices a page token that comes back with the rows it came with before.

    It remembers the last `WINDOW` pages, and those whose number is a power of two for good: a loop of any
    length closes on one of them, and memory stays flat however long the walk is. Rows are compared only
    where a token comes back in another body, because the time of the last update may be all that differs:
    such a loop is noticed when the page comes for the third time.
    """

    WINDOW = 1_024

    def __init__(self) -> None:
        self._pages = 0
        self._recent: dict[Hashable, int] = {}  # the page seen last is the last
        self._pinned: dict[Hashable, int] = {}

    def loops(self, token: str, rows: Sequence[object], body: int) -> bool:
        """Tell whether this page was here before; `body` is a hash of it."""
        known = self._known(token)
        if known is None:
            if self._remember(token, body):
                self._pinned[_with_rows(token, rows)] = body
            return False
        page = _with_rows(token, rows)
        if known == body or self._known(page) is not None:
            return True
        self._remember(page, body)
        return False

    def _known(self, page: Hashable) -> int | None:
        body = self._recent.pop(page, None)
        if body is None:
            return self._pinned.get(page)
        self._recent[page] = body
        return body

    def _remember(self, page: Hashable, body: int) -> bool:
        """Take note of a page; True when it is kept for good."""
        self._pages += 1
        if self._pages & (self._pages - 1) == 0:
            self._pinned[page] = body
            return True
        self._recent[page] = body
        if len(self._recent) > self.WINDOW:
            del self._recent[next(iter(self._recent))]
        return False


def _with_rows(token: str, rows: Sequence[object]) -> Hashable:
    return token, hash(repr(rows))


@define
class Walk:
    """One walk over the pages of one query. Pure: times are arguments, requests are the caller's.

    Ask `next_token` before each request, then say how it went: `received`, or `refused`.
    """

    lifetime: float
    on_expired: Literal["restart", "raise"] = "restart"
    state: State = State.FIRST
    token: PageToken | None = None
    restarts: int = 0
    depth: int = 0  # pages received in this pass
    reached: int = 0  # the depth at which the pass before this one ended
    proven: bool = False  # the first page of this query was answered once
    _guard: LoopGuard = field(factory=LoopGuard, repr=False)
    _empty: int = 0

    @classmethod
    def resume(
        cls,
        checkpoint: Checkpoint,
        *,
        lifetime: float,
        on_expired: Literal["restart", "raise"],
    ) -> Walk:
        """Take a walk up at a checkpoint."""
        walk = cls(lifetime, on_expired, restarts=checkpoint.restarts, depth=checkpoint.pages)
        if checkpoint.done:
            walk.state = State.EXHAUSTED
        elif checkpoint.token is not None and checkpoint.minted_at is not None:
            walk.state = State.NEXT
            walk.proven = True
            walk.token = PageToken(checkpoint.token, None, checkpoint.minted_at)
        return walk

    @property
    def exhausted(self) -> bool:
        """True only after a last page, one without a token."""
        return self.state is State.EXHAUSTED

    def next_token(self, now: float, wall: float) -> str | None:
        """Return the token to send (None for the first page); restart where it has expired.

        `now` is the loop's time; `wall` is Unix time, used once, for a token from a checkpoint.

        Raises:
            PageTokenExpiredError: it has expired and a restart is not wanted or got no further.

        """
        token = self.token
        if token is None:
            return None
        if token.minted is None:
            age = max(0.0, wall - token.minted_at)
            token = self.token = evolve(token, minted=now - age)
        if now < self.dies_at(token):
            return token.value
        self.expired()
        return None

    def dies_at(self, token: PageToken) -> float:
        """Return from when on a token is not to be sent, on the loop's clock."""
        return inf if token.minted is None else token.minted + self.lifetime - _ROUNDING

    @property
    def token_dies_at(self) -> float:
        """From when on the token in hand is not to be sent, on the loop's clock."""
        return inf if self.token is None else self.dies_at(self.token)

    def expired(self) -> None:
        """Note that the token has reached its lifetime: the walk restarts.

        Raises:
            PageTokenExpiredError: a restart is not wanted or got no further.

        """
        self._expire("the page token has reached its lifetime")

    def refused(self, status: int) -> bool:
        """Tell whether an error status means that the token has died; the walk has restarted then.

        Raises:
            PageTokenExpiredError: it has died and a restart is not wanted or got no further.

        """
        if self.token is None or not self.proven or status not in DEAD_TOKEN_STATUSES:
            return False
        self._expire(f"the service refused the page token with status {status}")
        return True

    def moved(self) -> None:
        """Note that the restart begins where the pass before it ended: its first page is progress already."""
        self.reached = 0

    def received(self, token: PageToken | None, *, rows: Sequence[object], body: int) -> None:
        """Take in a page: its `token` to the next one, its rows and a hash of its body.

        Raises:
            PaginationLoopError: token and rows are those of an earlier page, or no row comes any more.

        """
        self.proven = True
        self.depth += 1
        self._empty = 0 if rows else self._empty + 1
        if token is not None and (
            self._empty > MAX_EMPTY_PAGES or self._guard.loops(token.value, rows, body)
        ):
            self._take(Step.LOOP)
            raise PaginationLoopError(
                f"the service repeats itself: page {self.depth} brought nothing that was not there before"
            )
        self.token = token
        self._take(Step.LAST_PAGE if token is None else Step.PAGE)

    def _expire(self, reason: str) -> None:
        if self.on_expired == "raise" or (self.restarts and self.depth <= self.reached):
            stuck = "" if self.on_expired == "raise" else ", at the same place as before the last restart"
            self._take(Step.GIVE_UP)
            raise PageTokenExpiredError(f"{reason}{stuck}")
        self.reached, self.depth = self.depth, 0
        self.restarts += 1
        self.token = None
        self._guard = LoopGuard()
        self._take(Step.EXPIRED)

    def _take(self, step: Step) -> None:
        self.state = TRANSITIONS[self.state][step]
