"""States of a walk over pages: token age, restarts, and the guard against loops."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chainapi import Checkpoint
from chainapi.core.paging.loop_guard import LoopGuard
from chainapi.core.paging.position import PageToken
from chainapi.core.paging.states import (
    DEAD_TOKEN_STATUSES,
    MAX_IDLE_PAGES,
    TRANSITIONS,
    State,
    StateMachine,
    Step,
)
from chainapi.errors import (
    APIStatusError,
    BadRequestError,
    NotFoundError,
    PageRefusedError,
    PageTokenExpiredError,
    PaginationLoopError,
)

DAY = 86_400.0


def token(value: str = "t", minted: float = 0.0, minted_at: float = 0.0) -> PageToken:
    """Return a token minted at 0 s on both clocks."""
    return PageToken(value, minted, minted_at)


def fresh(on_expired: Literal["restart", "raise"] = "restart") -> StateMachine:
    """Return a walk that has not begun."""
    return StateMachine(DAY, on_expired)


def refusal(status: int, *words: str) -> APIStatusError:
    """Return the error of a refused request."""
    kind = {400: BadRequestError, 404: NotFoundError}.get(status, APIStatusError)
    return kind(status, "Refused", words, where="GET /v1/rows")


def page(walk: StateMachine, value: str | None = "t", rows: int = 1, *, fresh: bool | None = True) -> None:
    """Receive a page that names the next one by `value`.

    `rows` stands for its content.
    """
    walk.received(None if value is None else token(value), rows=rows, fresh=fresh)


def with_token(on_expired: Literal["restart", "raise"] = "restart") -> StateMachine:
    """Return a walk that holds the token of the second page."""
    walk = fresh(on_expired)
    page(walk)
    return walk


def deep(pages: int = 3, on_expired: Literal["restart", "raise"] = "restart") -> StateMachine:
    """Return a walk after some pages, and the token of the next one."""
    walk = fresh(on_expired)
    for number in range(1, pages + 1):
        page(walk, f"to {number + 1}", number)
    return walk


def sent_by(walk: StateMachine, now: float, wall: float) -> str | None:
    """Return the token that is sent, or None where it reached its lifetime."""
    walk.set_age(now, wall)
    if now >= walk.expires_at(walk.token):
        walk.expired()
    return None if walk.token is None else walk.token.value


def refused_twice(walk: StateMachine, status: int = 400) -> None:
    """Refuse the token in hand, and then that of the page before it as well."""
    assert walk.refused(refusal(status))
    assert walk.state is State.CHECK
    assert walk.refused(refusal(status))


def resumed(
    checkpoint: Checkpoint, on_expired: Literal["restart", "raise"] = "restart", lifetime: float = DAY
) -> StateMachine:
    """Return a walk resumed at a checkpoint."""
    return StateMachine.resume(checkpoint, lifetime=lifetime, on_expired=on_expired)


# Every transition, by what the caller of a walk does.


def first_page() -> StateMachine:
    """Receive one page, which names the next."""
    return with_token()


def only_page() -> StateMachine:
    """Receive the only page of a list."""
    walk = fresh()
    page(walk, None)
    return walk


def another_page() -> StateMachine:
    """Receive a second page, which names the third."""
    return deep(2)


def last_page() -> StateMachine:
    """Receive two pages, the last one without a token."""
    walk = with_token()
    page(walk, None, 2)
    return walk


def expired() -> StateMachine:
    """Let the token reach its lifetime."""
    walk = with_token()
    assert sent_by(walk, DAY, 0.0) is None
    return walk


def given_up() -> StateMachine:
    """Let the token reach its lifetime where no restart is wanted."""
    walk = with_token("raise")
    with pytest.raises(PageTokenExpiredError, match=r"reached its lifetime$"):
        sent_by(walk, DAY, 0.0)
    return walk


def looped() -> StateMachine:
    """Receive the same token and the same rows again."""
    walk = with_token()
    with pytest.raises(PaginationLoopError, match="page 2 "):
        page(walk)
    return walk


def checking() -> StateMachine:
    """Refuse a token."""
    walk = deep(3)
    assert walk.refused(refusal(400))
    return walk


def renewed() -> StateMachine:
    """Receive the page before the refused one unchanged, with a new token."""
    walk = checking()
    assert walk.checked(token("new"), rows=3)
    return walk


def died() -> StateMachine:
    """Refuse the page before the refused one as well."""
    walk = deep(3)
    refused_twice(walk)
    return walk


def refused_for_good() -> StateMachine:
    """Refuse the page before the refused one as well, with restarts off."""
    walk = deep(3, "raise")
    assert walk.refused(refusal(400))
    with pytest.raises(PageTokenExpiredError, match="refused the page token with status 400"):
        walk.refused(refusal(400))
    return walk


SCENARIOS: dict[tuple[State, Step], Callable[[], StateMachine]] = {
    (State.FIRST, Step.PAGE): first_page,
    (State.FIRST, Step.LAST_PAGE): only_page,
    (State.NEXT, Step.PAGE): another_page,
    (State.NEXT, Step.LAST_PAGE): last_page,
    (State.NEXT, Step.EXPIRED): expired,
    (State.NEXT, Step.GIVE_UP): given_up,
    (State.NEXT, Step.LOOP): looped,
    (State.NEXT, Step.REFUSED): checking,
    (State.CHECK, Step.SAME_PAGE): renewed,
    (State.CHECK, Step.EXPIRED): died,
    (State.CHECK, Step.GIVE_UP): refused_for_good,
}


@pytest.mark.parametrize(("state", "step"), SCENARIOS)
def test_every_transition_is_reached(state: State, step: Step) -> None:
    """Each step leads to the state in the table."""
    assert SCENARIOS[state, step]().state is TRANSITIONS[state][step]


def test_no_other_transition_is_listed() -> None:
    """The table has exactly the existing states, and the steps of callers."""
    assert set(TRANSITIONS) == set(State)
    assert {(state, step) for state, steps in TRANSITIONS.items() for step in steps} == set(SCENARIOS)


@pytest.mark.parametrize("ended", [only_page, looped, given_up])
def test_an_ended_walk_takes_no_more_pages(ended: Callable[[], StateMachine]) -> None:
    """An exhausted or failed walk takes no more pages."""
    walk = ended()
    with pytest.raises(KeyError):
        page(walk, "new", 9)


class AnyWalk(RuleBasedStateMachine):
    """Machine of any walk: it steps as in the table, and never sends a dead token."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.pages = 0
        self.walk = fresh()
        self.before = self.walk.state

    @rule(seconds=st.sampled_from([0.0, 60.0, DAY - 1, DAY, DAY * 2]))
    def time_passes(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    @precondition(lambda self: self.walk.state in (State.FIRST, State.NEXT))
    @rule(last=st.booleans(), size=st.integers(0, 2), again=st.booleans(), new=st.none() | st.booleans())
    def a_page_comes(self, last: bool, size: int, again: bool, new: bool | None) -> None:
        """Answer a request, perhaps by an earlier page."""
        self._ask()
        if self.walk.state is State.CHECK:
            return
        self.pages += not again
        minted = PageToken(f"t{self.pages}", self.now, self.now)
        try:
            self.walk.received(None if last else minted, rows=hash((self.pages, size)), fresh=new)
        except PaginationLoopError:
            assert self.walk.state is State.FAILED

    @precondition(lambda self: self.walk.state is State.CHECK)
    @rule(changed=st.booleans(), last=st.booleans())
    def the_page_before_comes(self, changed: bool, last: bool) -> None:
        """Answer the request for the page before the one that was refused."""
        self._ask()
        if self.walk.state is not State.CHECK:
            return
        rows = self.walk._page if not changed else -1
        assert rows is not None
        self.pages += 1
        minted = PageToken(f"t{self.pages}", self.now, self.now)
        restarts = self.walk.restarts
        try:
            same = self.walk.checked(None if last else minted, rows=rows)
        except PageTokenExpiredError:
            self._failed()
        else:
            assert same == (not changed and not last)
            assert same == (self.walk.restarts == restarts)

    @precondition(lambda self: self.walk.state in (State.FIRST, State.NEXT, State.CHECK))
    @rule(status=st.sampled_from([400, 401, 403, 404, 410, 422, 429, 500]))
    def a_refusal_comes(self, status: int) -> None:
        """Refuse a request."""
        sent = self._ask()
        before, restarts = self.walk.state, self.walk.restarts
        try:
            taken = self.walk.refused(refusal(status))
        except PageRefusedError:
            assert self.walk.state is State.NEXT
        except PageTokenExpiredError:
            assert self.walk.state is State.FAILED
        else:
            dead = sent is not None or before is State.CHECK
            assert taken == (self.walk.restarts > restarts or self.walk.state is not before)
            assert taken <= (dead and status in DEAD_TOKEN_STATUSES)

    def _failed(self) -> None:
        assert self.walk.state is State.FAILED

    def _ask(self) -> str | None:
        held = self.walk.token
        try:
            sent = sent_by(self.walk, self.now, self.now)
        except PageTokenExpiredError:
            self.walk = fresh()  # another walk continues from here
            self.before = self.walk.state
            return None
        if held is not None:
            assert held.minted is not None
            assert (sent is None) == (self.now - held.minted >= DAY)
        self._stepped()
        return sent

    @invariant()
    def _stepped(self) -> None:
        after = self.walk.state
        assert after is self.before or after in TRANSITIONS[self.before].values()
        self.before = after

    @invariant()
    def token_and_state_agree(self) -> None:
        """Check that a walk has a token exactly in the state for it, unless it failed."""
        if self.walk.state is not State.FAILED:
            assert (self.walk.token is not None) == (self.walk.state in (State.NEXT, State.CHECK))
        assert self.walk.exhausted == (self.walk.state is State.EXHAUSTED)


TestAnyWalk = AnyWalk.TestCase


# The age of tokens.


@settings(max_examples=500)
@given(minted=st.floats(0, 1e8), early=st.floats(0, 1e-9))
def test_a_token_as_old_as_its_lifetime_is_not_sent(minted: float, early: float) -> None:
    """A token as old as its lifetime is not sent: 24 h is too old, 23:59:59 is not.

    Rounding of the loop's clock does not matter.
    """
    for age, sent in ((DAY - 1.0, "t"), (DAY - early, None), (DAY, None), (DAY + 1.0, None)):
        walk = fresh()
        walk.received(token(minted=minted), rows=1, fresh=True)
        assert sent_by(walk, minted + age, 0.0) == sent
        assert walk.restarts == (sent is None)


def test_the_first_page_is_requested_without_a_token() -> None:
    """A walk sends no token for the first page, and counts no restart."""
    walk = fresh()
    assert sent_by(walk, DAY * 9, DAY * 9) is None
    assert walk.restarts == 0


@given(jump=st.floats(-1e10, 1e10))
def test_the_wall_clock_does_not_age_a_token_of_this_process(jump: float) -> None:
    """The wall clock does not age a token of this process, however it jumps.

    Only the loop's clock counts.
    """
    walk = with_token()
    assert sent_by(walk, DAY - 1, jump) == "t"
    assert sent_by(walk, DAY - 1, -jump) == "t"


READ_BACK = Checkpoint("q", token="t", minted_at=1_000.0, pages=3)


@pytest.mark.parametrize(
    ("away", "sent"), [(0.0, "t"), (DAY - 1, "t"), (DAY, None), (DAY * 30, None), (-DAY * 30, "t")]
)
def test_a_token_read_back_has_aged_by_the_wall_clock(away: float, sent: str | None) -> None:
    """A checkpoint's token ages by the wall clock; a clock that is behind adds no age."""
    walk = resumed(READ_BACK)
    assert walk.state is State.NEXT
    assert sent_by(walk, 50.0, 1_000.0 + away) == sent


def test_the_wall_clock_is_read_once() -> None:
    """The wall clock is read once; then the loop's clock counts the age."""
    walk = resumed(READ_BACK)
    assert sent_by(walk, 50.0, 1_000.0 + DAY - 10) == "t"
    assert walk.token == PageToken("t", 50.0 - (DAY - 10), 1_000.0)
    assert sent_by(walk, 59.0, 1e12) == "t"
    assert sent_by(walk, 60.0, 0.0) is None


def test_a_walk_is_resumed_where_it_stood() -> None:
    """A walk resumes with its checkpoint's token, depth and restarts.

    One that is done stays done.
    """
    walk = resumed(Checkpoint("q", token="t", minted_at=1_000.0, pages=3, restarts=2))
    assert (walk.depth, walk.restarts, walk.exhausted) == (3, 2, False)
    done = resumed(Checkpoint("q", pages=3, done=True))
    assert done.exhausted
    begun = resumed(Checkpoint("q"))
    assert (begun.state, begun.token, begun.proven) == (State.FIRST, None, False)


def test_when_tokens_die() -> None:
    """A token dies one lifetime after it was minted; without a known age, never.

    Without a token nothing dies either.
    """
    walk = with_token()
    assert sent_by(walk, walk.expires_at(walk.token) - 1e-3, 0.0) == "t"
    assert walk.expires_at(walk.token) == pytest.approx(DAY)
    assert sent_by(walk, walk.expires_at(walk.token), 0.0) is None
    assert walk.expires_at(walk.token) == inf
    read_back = resumed(READ_BACK)
    assert read_back.expires_at(read_back.token) == inf
    sent_by(read_back, 50.0, 1_000.0 + 60.0)
    assert read_back.expires_at(read_back.token) == pytest.approx(50.0 + DAY - 60.0)


# Refusals and restarts.


@pytest.mark.parametrize("status", sorted(DEAD_TOKEN_STATUSES))
def test_a_token_refused_behind_the_first_page_restarts_the_walk(status: int) -> None:
    """A refused token behind the first page restarts the walk.

    This holds for 400, 404, 410 and 422: the page before is the first one.
    """
    walk = with_token()
    assert walk.refused(refusal(status))
    assert (walk.state, walk.token, walk.restarts, walk.depth) == (State.FIRST, None, 1, 0)


@pytest.mark.parametrize("status", sorted(DEAD_TOKEN_STATUSES))
def test_a_refused_token_is_checked_by_the_page_before_it(status: int) -> None:
    """A refused token deep in a walk is checked by the page before it.

    The request has the token that opened that page.
    """
    walk = deep(3)
    assert sent_by(walk, 0.0, 0.0) == "to 4"
    assert walk.refused(refusal(status))
    assert (walk.state, walk.restarts, walk.depth) == (State.CHECK, 0, 3)
    assert sent_by(walk, 0.0, 0.0) == "to 3"


@pytest.mark.parametrize("status", sorted(DEAD_TOKEN_STATUSES))
def test_tokens_that_are_both_refused_have_died(status: int) -> None:
    """A walk restarts where the page before the refused one is refused as well."""
    walk = deep(3)
    refused_twice(walk, status)
    assert (walk.state, walk.token, walk.restarts, walk.reached) == (State.FIRST, None, 1, 3)
    assert sent_by(walk, 0.0, 0.0) is None


def test_a_page_before_that_answers_as_before_renews_the_token() -> None:
    """The same rows with a new token continue the walk, and no page counts twice."""
    walk = renewed()
    assert (walk.state, walk.depth, walk.restarts) == (State.NEXT, 3, 0)
    assert sent_by(walk, 0.0, 0.0) == "new"
    page(walk, "to 5", 4)
    assert walk.depth == 4
    assert walk.refused(refusal(400)), "a later refusal is checked again"
    assert walk.state is State.CHECK
    assert sent_by(walk, 0.0, 0.0) == "new"


@pytest.mark.parametrize(("value", "rows"), [("new", 99), (None, 3)])
def test_a_page_before_that_has_changed_restarts_the_walk(value: str | None, rows: int) -> None:
    """A changed page before the refused one restarts the walk.

    It has other rows, or the same ones without a token: the place to continue is unknown.
    """
    walk = checking()
    assert not walk.checked(None if value is None else token(value), rows=rows)
    assert (walk.state, walk.token, walk.restarts) == (State.FIRST, None, 1)


def test_a_page_that_is_refused_whatever_its_token() -> None:
    """A new token that is refused as well is an error with the service's words.

    The walk can be tried again.
    """
    walk = renewed()
    error = refusal(404, "under maintenance", "until 17:00")
    for _ in range(2):
        with pytest.raises(PageRefusedError) as caught:
            walk.refused(error)
        assert isinstance(caught.value, PageTokenExpiredError)
        assert isinstance(caught.value, APIStatusError)
        assert (caught.value.status, caught.value.messages) == (404, ("under maintenance", "until 17:00"))
        assert str(caught.value) == "404 Refused for GET /v1/rows: under maintenance; until 17:00"
        assert caught.value.__cause__ is error
        assert (walk.state, walk.restarts) == (State.NEXT, 0)
        assert walk.refused(error), "whoever asks again has it checked again: the new token may have died"
        assert walk.checked(token("newer"), rows=3)
    page(walk, "to 5", 4)
    assert walk.depth == 4


def test_the_older_token_may_have_reached_its_lifetime() -> None:
    """A walk restarts without a request if the older token has expired too."""
    walk = fresh()
    for number in range(3):
        walk.received(token(f"t{number}", minted=100.0 * number), rows=number, fresh=True)
    assert walk.refused(refusal(400))
    assert sent_by(walk, DAY + 150.0, 0.0) is None
    assert (walk.state, walk.restarts) == (State.FIRST, 1)


def test_a_token_that_never_changes_cannot_be_checked() -> None:
    """A token that is the same for all pages cannot be checked: the walk restarts."""
    walk = fresh()
    for number in range(3):
        page(walk, "same", number)
    assert walk.refused(refusal(400))
    assert (walk.state, walk.restarts) == (State.FIRST, 1)


@pytest.mark.parametrize("status", [401, 403, 402, 405, 408, 409, 418, 429, 500, 502, 503, 504, 301])
def test_other_statuses_do_not_restart(status: int) -> None:
    """Any other status does not restart the walk, also in a check of the page before."""
    walk = deep(3)
    assert not walk.refused(refusal(status))
    assert (walk.state, walk.restarts) == (State.NEXT, 0)
    assert walk.refused(refusal(400))
    assert not walk.refused(refusal(status))
    assert (walk.state, walk.restarts) == (State.CHECK, 0)


@pytest.mark.parametrize("status", sorted(DEAD_TOKEN_STATUSES))
def test_a_refused_first_page_is_no_dead_token(status: int) -> None:
    """A refused first page is no dead token: the request itself is wrong.

    It may come at the beginning or after a restart.
    """
    walk = fresh()
    assert not walk.refused(refusal(status))
    walk = with_token()
    assert walk.refused(refusal(400))
    assert not walk.refused(refusal(status))
    assert walk.restarts == 1


def test_a_token_without_a_proven_first_page_does_not_restart() -> None:
    """A token without an answered first page does not restart the walk.

    Something else than the token may be wrong.
    """
    walk = StateMachine(DAY, state=State.NEXT, token=token())
    assert not walk.refused(refusal(400))


def test_a_resumed_walk_has_a_proven_first_page() -> None:
    """A resumed walk has a proven first page, and no older token."""
    walk = resumed(READ_BACK)
    assert walk.refused(refusal(404))
    assert (walk.state, walk.restarts) == (State.FIRST, 1)


@pytest.mark.parametrize("how", [400, None])
def test_a_restart_without_progress_fails(how: int | None) -> None:
    """A restart without progress fails with the service's words.

    The token dies again at the same depth.
    """
    walk = with_token()
    assert walk.refused(refusal(400))
    walk.received(token("u", minted=5.0), rows=1, fresh=True)
    error = None if how is None else refusal(how, "no such page")
    with pytest.raises(PageTokenExpiredError) as caught:
        sent_by(walk, DAY * 2, 0.0) if error is None else walk.refused(error)
    reason = "the page token has reached its lifetime"
    if error is not None:
        reason = "the service refused the page token with status 400 (no such page)"
    assert str(caught.value) == f"{reason}, at the same place as before the last restart"
    assert caught.value.__cause__ is error
    assert walk.state is State.FAILED


def test_a_page_that_changes_while_it_is_refused_has_the_words_of_the_service() -> None:
    """A page that changes in each check ends the walk with the refusal's words.

    It fails at the second time.
    """
    walk = deep(3)
    for number in range(2):
        error = refusal(422, "under maintenance until 17:00")
        assert walk.refused(error)
        if number == 0:
            assert not walk.checked(token("new"), rows=-1)
            for place in range(1, 4):
                page(walk, f"to {place + 1}", place, fresh=False)
            continue
        with pytest.raises(PageTokenExpiredError, match="under maintenance until 17:00") as caught:
            walk.checked(token("newer"), rows=-2)
        assert caught.value.__cause__ is error
    assert walk.state is State.FAILED


def test_a_refusal_without_words_has_the_name_of_the_status() -> None:
    """A refusal without a message is described by its error type or status."""
    for error, words in ((refusal(410), "status 410 (Refused)"), (APIStatusError(410), "status 410")):
        walk = with_token("raise")
        with pytest.raises(PageTokenExpiredError) as caught:
            walk.refused(error)
        assert str(caught.value) == f"the service refused the page token with {words}"


def test_restarts_go_on_while_each_gets_further() -> None:
    """Restarts continue while each gets a page further, and are counted."""
    walk = fresh()
    for deepest in range(1, 20):
        for number in range(deepest):
            page(walk, str(number), number)
        assert walk.refused(refusal(410))
        assert walk.state is (State.CHECK if deepest > 1 else State.FIRST)
        if deepest > 1:
            assert walk.refused(refusal(410))
        assert walk.restarts == deepest
        assert walk.reached == deepest


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_pass_that_ends_earlier_fails(depth: int) -> None:
    """A pass that ends earlier than the last one fails."""
    walk = deep(5)
    refused_twice(walk)
    for number in range(depth):
        page(walk, f"second {number}", number)
    walk.refused(refusal(400)) if depth > 1 else None
    with pytest.raises(PageTokenExpiredError):
        walk.refused(refusal(400))


def test_a_restart_behind_the_rows_given_is_progress() -> None:
    """A pass that begins where the last one ended may get fewer pages far."""
    walk = deep(5)
    for pages in (5, 1, 1):
        walk.moved()
        assert walk.refused(refusal(400))
        if walk.state is State.CHECK:
            assert walk.refused(refusal(400))
        walk.moved()
        for number in range(pages):
            page(walk, f"behind {number}", number)
    assert walk.restarts == 3
    for number in range(MAX_IDLE_PAGES):
        page(walk, f"idle {number}", 7, fresh=False)
    with pytest.raises(PaginationLoopError):
        page(walk, "one more", 7, fresh=False)


@pytest.mark.parametrize("walk", [with_token("raise"), resumed(READ_BACK, "raise")])
def test_raise_means_raise(walk: StateMachine) -> None:
    """on_expired="raise" ends the walk at a refused token, without a restart."""
    error = refusal(404)
    with pytest.raises(PageTokenExpiredError, match=r"with status 404 \(Refused\)$") as caught:
        walk.refused(error)
    assert caught.value.__cause__ is error
    assert (walk.state, walk.restarts) == (State.FAILED, 0)


# The guard against loops.


def walk_of(pages: list[tuple[str, int, bool | None]]) -> StateMachine:
    """Receive pages of token, rows, and whether one of them is new."""
    walk = fresh()
    for value, rows, new in pages:
        page(walk, value, rows, fresh=new)
    return walk


@pytest.mark.parametrize("new", [True, None])
def test_a_token_that_never_changes_is_no_loop_while_rows_do(new: bool | None) -> None:
    """The same token with new rows each time is no loop."""
    assert walk_of([("t", number, new) for number in range(5_000)]).depth == 5_000


def test_rows_that_are_new_are_no_loop_though_pages_look_alike() -> None:
    """Pages that look alike under new tokens are no loop if their rows are new."""
    assert walk_of([(str(number), 7, True) for number in range(5_000)]).depth == 5_000


def pages_until_noticed(cycle: int, lead: int, *, same_token: bool = False) -> int:
    """Return the number of pages before the guard notices a cycle."""
    guard = LoopGuard()
    for number in range(20 * (cycle + lead) + 100):
        place = number if number < lead else lead + (number - lead) % cycle
        if guard.loops("t" if same_token else f"t{place}", hash((place, "rows"))):
            return number
    raise AssertionError("never noticed")


@settings(deadline=None, max_examples=60)
@example(cycle=1, lead=1_024, same_token=True)
@example(cycle=2, lead=20_000, same_token=False)
@given(
    cycle=st.integers(1, 40) | st.sampled_from([1_023, 1_024, 1_025, 1_500, 4_000]),
    lead=st.integers(0, 20) | st.sampled_from([1_024, 2_000]),
    same_token=st.booleans(),
)
def test_cycles_of_any_length_are_noticed(cycle: int, lead: int, same_token: bool) -> None:
    """A cycle of pages with their tokens is noticed, of any length.

    It may be longer than the guard's sample.
    """
    noticed = pages_until_noticed(cycle, lead, same_token=same_token)
    assert lead + cycle <= noticed <= lead + 2 * cycle


@pytest.mark.parametrize("cycle", [1, 2, 1_000])
def test_short_cycles_are_noticed_at_once(cycle: int) -> None:
    """A short cycle is noticed at the first page that returns with its token.

    That is so as long as the guard holds all pages.
    """
    assert pages_until_noticed(cycle, 5) == 5 + cycle


@pytest.mark.untraced
def test_the_memory_of_the_guard_is_flat() -> None:
    """The guard keeps a bounded sample of pages, and confuses none.

    The walk may be of any length.
    """
    guard = LoopGuard()
    new = 0
    for number in range(50_000):
        assert not guard.loops(f"t{number}", hash((number, "rows")))
        new += guard.is_new(hash((number, "rows")))
    assert len(guard._tokens) <= LoopGuard.LIMIT
    assert len(guard._pages) <= LoopGuard.LIMIT
    assert len(guard._recent) <= LoopGuard.LIMIT
    assert LoopGuard.LIMIT / 2 <= new <= 16 * LoopGuard.LIMIT


def test_a_restart_forgets_the_pages_before_it() -> None:
    """The same pages after a restart are no loop."""
    walk = with_token()
    assert walk.refused(refusal(400))
    page(walk)
    assert walk.state is State.NEXT


@pytest.mark.parametrize("new", [False, None])
def test_pages_that_bring_nothing_go_on_up_to_a_bound(new: bool | None) -> None:
    """A thousand pages in a row without a new row pass; one more fails the walk."""
    walk = fresh()
    page(walk, "first", 7, fresh=None if new is None else True)
    for number in range(MAX_IDLE_PAGES):
        page(walk, str(number), 7, fresh=new)
    with pytest.raises(PaginationLoopError, match="page 1002 brought nothing"):
        page(walk, "one more", 7, fresh=new)
    assert walk.state is State.FAILED


@pytest.mark.parametrize("new", [True, None])
def test_one_new_row_in_between_counts_from_the_beginning(new: bool | None) -> None:
    """A page with a new row lets another thousand pages pass."""
    idle = False if new else None
    pages: list[tuple[str, int, bool | None]] = [("first", 7, new)]
    pages += [(f"a{number}", 7, idle) for number in range(MAX_IDLE_PAGES)]
    pages += [("row", 8, new), *((f"b{number}", 7, idle) for number in range(MAX_IDLE_PAGES))]
    walk = walk_of(pages)
    assert walk.state is State.NEXT
    if new is None:  # nobody counts rows: in a longer walk, fewer pages than half of all are no loop
        page(walk, "one more", 7, fresh=None)


def test_pages_that_bring_nothing_are_more_than_half_of_a_long_walk() -> None:
    """After 3,000 pages with new rows, 3,000 without pass, and one more fails."""
    walk = deep(3_000)
    for number in range(3_000):
        page(walk, f"idle {number}", 7, fresh=False)
    assert walk.state is State.NEXT
    with pytest.raises(PaginationLoopError):
        page(walk, "one more", 7, fresh=False)


def test_pages_of_earlier_passes_are_no_loop() -> None:
    """Pages of a later pass, up to the deepest page before, are no loop.

    They bring nothing new.
    """
    walk = deep(2_500)
    refused_twice(walk)
    for number in range(2_500):
        page(walk, f"again {number}", number, fresh=False)
    for number in range(100):
        page(walk, f"new {number}", -number, fresh=True)
    refused_twice(walk)
    for number in range(2_600):
        page(walk, f"third {number}", number, fresh=False)
    for number in range(2_600):
        page(walk, f"idle {number}", 7, fresh=False)
    with pytest.raises(PaginationLoopError):
        page(walk, "one more", 7, fresh=False)


def test_an_empty_last_page_is_the_end() -> None:
    """An empty last page ends the walk well, after any number of empty pages."""
    walk = fresh()
    for number in range(MAX_IDLE_PAGES):
        page(walk, str(number), number, fresh=False)
    page(walk, None, -1, fresh=False)
    assert walk.exhausted
