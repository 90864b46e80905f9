"""State machine of a walk: page tokens, restarts and loops.

The rules (specification, section 4, and what it leaves open):

* The walk is in one of five states; `TRANSITIONS` lists every step between them.
* A page token's age counts from when the request that returned it was sent. A token as old as its
  lifetime is never sent: the walk restarts at the first page.
* 400, 404, 410 or 422 to a request with a token may mean that the token died early, or that the page behind
  it is refused with any token. So the page before it is fetched once more, with its older token: if that
  is refused as well, tokens have died, and the walk restarts. If it is answered as before, its new token is
  tried; if that one is refused too, the walk ends with the service's own words.
* A restart has to get further than the pass before it, or the walk fails: no endless loop.
* A token that comes back together with the same rows as before is a loop; with new rows it is not.
* Too many pages in a row without a new row are a loop as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from math import inf
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from chainapi.core.paging.loop_guard import LoopGuard
from chainapi.core.paging.position import PageToken, Start
from chainapi.core.private import Private
from chainapi.errors import APIStatusError, PageRefusedError, PageTokenExpiredError, PaginationLoopError

__all__ = [
    "DEAD_TOKEN_STATUSES",
    "TRANSITIONS",
    "State",
    "StateMachine",
    "Step",
]

DEAD_TOKEN_STATUSES = frozenset({400, 404, 410, 422})

# Seconds. Ages are differences of two floats: an age that falls short by rounding counts as the lifetime.
_ROUNDING = 1e-6

# Pages in a row that bring no new row: an empty page is not the end, equal rows are rows, and a list that
# grows may show old pages again, though never more than were read. Beyond that the service repeats itself.
MAX_IDLE_PAGES = 1_000


class State(Enum):
    """State of a walk."""

    __hash__ = object.__hash__  # in C: that of an Enum is computed in Python, for each page

    FIRST = "first page next"
    NEXT = "token in hand"
    CHECK = "token refused, page before it next"
    EXHAUSTED = "exhausted"
    FAILED = "failed"


class Step(Enum):
    """Step of a walk from one state to another."""

    __hash__ = object.__hash__

    PAGE = "page with a token"
    LAST_PAGE = "page without a token"
    REFUSED = "token refused"
    SAME_PAGE = "same page, new token"
    EXPIRED = "token expired"
    GIVE_UP = "no progress, or no restart wanted"
    LOOP = "nothing new comes"


TRANSITIONS: Mapping[State, Mapping[Step, State]] = {
    State.FIRST: {Step.PAGE: State.NEXT, Step.LAST_PAGE: State.EXHAUSTED},
    State.NEXT: {
        Step.PAGE: State.NEXT,
        Step.LAST_PAGE: State.EXHAUSTED,
        Step.REFUSED: State.CHECK,
        Step.EXPIRED: State.FIRST,
        Step.GIVE_UP: State.FAILED,
        Step.LOOP: State.FAILED,
    },
    State.CHECK: {
        Step.SAME_PAGE: State.NEXT,
        Step.EXPIRED: State.FIRST,
        Step.GIVE_UP: State.FAILED,
    },
    State.EXHAUSTED: {},
    State.FAILED: {},
}


_PAGE, _LAST_PAGE = Step.PAGE, Step.LAST_PAGE  # the members of an Enum are slow to look up


class StateMachine(Private, Struct, eq=False):
    """State of one walk over the pages of one query, with the page token to send next.

    Send `token` before `expires_at`, then call the method for the outcome: `received`, `checked` (in the
    state CHECK), `refused` or `expired`.
    """

    lifetime: float
    on_expired: Literal["restart", "raise"] = "restart"
    state: State = State.FIRST
    token: PageToken | None = None
    restarts: int = 0
    depth: int = 0  # pages received in this pass
    reached: int = 0  # the depth at which the pass before this one ended
    proven: bool = False  # the first page of this query was answered once
    _guard: LoopGuard = field(default_factory=LoopGuard)
    _deepest: int = 0  # the greatest depth of the passes before this one
    _idle: int = 0  # pages in a row that brought nothing new
    _page: int | None = None  # hash of the rows of the page received last; None after a resume
    _opener: PageToken | None = None  # the token that opened it; None for the first page, after a resume
    _refusal: APIStatusError | None = None  # of a token, while the page before it is fetched once more
    _renewed: bool = False  # the token in hand took the place of one that was refused

    @classmethod
    def resume(
        cls,
        start: Start,
        *,
        lifetime: float,
        on_expired: Literal["restart", "raise"],
    ) -> StateMachine:
        """Return the state machine of a walk that begins at a position."""
        states = cls(lifetime, on_expired, restarts=start.restarts, depth=start.pages)
        if start.done:
            states.state = State.EXHAUSTED
        elif start.token is not None and start.minted_at is not None:
            states.state = State.NEXT
            states.proven = True
            states.token = PageToken(start.token, None, start.minted_at)
        return states

    @property
    def exhausted(self) -> bool:
        """Return whether the last page, one without a token, was received."""
        return self.state is State.EXHAUSTED

    def set_age(self, now: float, wall: float) -> None:
        """Set the age of a token from a checkpoint, once.

        `now` is the time of the loop's clock, `wall` is Unix time, both in seconds.
        """
        token = self.token
        if token is not None and token.minted is None:
            self.token = replace(token, minted=now - max(0.0, wall - token.minted_at))

    def expires_at(self, token: PageToken | None) -> float:
        """Return the time at which a token expires; infinite without one.

        It is a time of the loop's clock.
        """
        if token is None or token.minted is None:
            return inf
        return token.minted + self.lifetime - _ROUNDING

    def expired(self) -> None:
        """Restart the walk: the token has reached its lifetime.

        Raises:
            PageTokenExpiredError: a restart is not wanted or made no progress.

        """
        if self._refusal is not None and self.state is State.CHECK:
            self._expire(_refusal(self._refusal), self._refusal)
        else:
            self._expire("the page token has reached its lifetime")

    def refused(self, error: APIStatusError) -> bool:
        """Handle an error status; False if the caller has to raise it.

        If True, `token` now opens the page before the one that was refused (state CHECK), or the walk has
        restarted at the first page.

        Raises:
            PageTokenExpiredError: the token is dead, and a restart is not wanted or made no progress.
            PageRefusedError: a new token was refused as well.

        """
        if error.status not in DEAD_TOKEN_STATUSES or not self.proven:
            return False
        if self.state is State.CHECK:
            self._expire(_refusal(error), error)
            return True
        if self.token is None:
            return False
        if self._renewed:
            self._renewed = False  # the next refusal is checked again: the new token may expire as well
            words = error.status, error.error, error.messages
            raise PageRefusedError(*words, where=error.where) from error
        if self._opener is None or self._opener.value == self.token.value:  # the first page is before it
            self._expire(_refusal(error), error)
            return True
        self._refusal, self.token = error, self._opener
        self._take(Step.REFUSED)
        return True

    def checked(self, token: PageToken | None, *, rows: int) -> bool:
        """Handle the page before the refused one; True if its new token is used.

        Return False after a restart.

        Raises:
            PageTokenExpiredError: the page changed, and a restart is not wanted or made no progress.

        """
        if token is None or rows != self._page:
            self.expired()
            return False
        self.token, self._refusal, self._renewed = token, None, True
        self._take(Step.SAME_PAGE)
        return True

    def moved(self) -> None:
        """Count the first page of a restart as progress.

        It begins where the pass before it ended.
        """
        self.reached = self._deepest = 0

    def received(self, token: PageToken | None, *, rows: int, fresh: bool | None = None) -> None:
        """Handle a page: its `token` to the next one, and a hash of its rows.

        `fresh`: whether one of the rows is new; None if that is not known.

        Raises:
            PaginationLoopError: token and rows are those of an earlier page, or no new row comes any more.

        """
        self.proven = True
        self.depth += 1
        self._opener, self._page, self._renewed = self.token, rows, False
        if token is not None and self._goes_nowhere(token, rows, fresh):
            self._take(Step.LOOP)
            raise PaginationLoopError(
                f"the service repeats itself: page {self.depth} brought nothing that was not there before"
            )
        self.token = token
        self._take(_LAST_PAGE if token is None else _PAGE)

    def _goes_nowhere(self, token: PageToken, rows: int, fresh: bool | None) -> bool:
        new = self._guard.is_new(rows) if fresh is None else fresh
        if new:
            self._idle = 0
        elif self.depth > self._deepest:
            self._idle += 1
        too_many = self._idle > MAX_IDLE_PAGES and 2 * self._idle > self.depth
        return too_many or self._guard.loops(token.value, rows)

    def _expire(self, reason: str, cause: APIStatusError | None = None) -> None:
        if self.on_expired == "raise" or (self.restarts and self.depth <= self.reached):
            stuck = "" if self.on_expired == "raise" else ", at the same place as before the last restart"
            self._take(Step.GIVE_UP)
            raise PageTokenExpiredError(f"{reason}{stuck}") from cause
        self.reached, self.depth = self.depth, 0
        self._deepest = max(self._deepest, self.reached)
        self.restarts += 1
        self.token = self._opener = self._page = self._refusal = None
        self._renewed, self._idle = False, 0
        self._guard = LoopGuard()
        self._take(Step.EXPIRED)

    def _take(self, step: Step) -> None:
        self.state = TRANSITIONS[self.state][step]


def _refusal(error: APIStatusError) -> str:
    """Return a message for a refused page token, with the words of the service."""
    words = "; ".join(error.messages) or error.error
    return f"the service refused the page token with status {error.status}" + (f" ({words})" if words else "")
