"""The walk over pages: its states, the age of tokens, restarts, and the guard against endless loops."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chainapi.core.checkpoint import Checkpoint
from chainapi.core.paging import (
    DEAD_TOKEN_STATUSES,
    MAX_EMPTY_PAGES,
    TRANSITIONS,
    LoopGuard,
    PageToken,
    State,
    Step,
    Walk,
)
from chainapi.errors import PageTokenExpiredError, PaginationLoopError

DAY = 86_400.0


def token(value: str = "t", minted: float = 0.0, minted_at: float = 0.0) -> PageToken:
    """Return a token minted at 0 s on both clocks."""
    return PageToken(value, minted, minted_at)


def fresh(on_expired: Literal["restart", "raise"] = "restart") -> Walk:
    """Return a walk that has not begun."""
    return Walk(DAY, on_expired)


def with_token(on_expired: Literal["restart", "raise"] = "restart") -> Walk:
    """Return a walk that holds a token."""
    walk = fresh(on_expired)
    walk.received(token(), rows=[1], body=1)
    return walk


def resumed(
    checkpoint: Checkpoint, on_expired: Literal["restart", "raise"] = "restart", lifetime: float = DAY
) -> Walk:
    """Return a walk taken up at a checkpoint."""
    return Walk.resume(checkpoint, lifetime=lifetime, on_expired=on_expired)


# Every transition, by what the caller of a walk does.


def first_page() -> Walk:
    """Walk one page, which names the next."""
    return with_token()


def only_page() -> Walk:
    """Walk a list of one page."""
    walk = fresh()
    walk.received(None, rows=[1], body=1)
    return walk


def nothing_at_all() -> Walk:
    """Let no row come for a thousand pages, nor after the restart."""
    walk = fresh()
    for number in range(MAX_EMPTY_PAGES):
        walk.received(token(str(number)), rows=[], body=number)
    assert walk.next_token(DAY, 0.0) is None
    assert walk.state is State.FIRST
    with pytest.raises(PaginationLoopError, match="page 1 "):
        walk.received(token(), rows=[], body=0)
    return walk


def another_page() -> Walk:
    """Walk a second page, which names the third."""
    walk = with_token()
    walk.received(token("u"), rows=[2], body=2)
    return walk


def last_page() -> Walk:
    """Walk a list of two pages."""
    walk = with_token()
    walk.received(None, rows=[2], body=2)
    return walk


def expired() -> Walk:
    """Let the token reach its lifetime."""
    walk = with_token()
    assert walk.next_token(DAY, 0.0) is None
    return walk


def given_up() -> Walk:
    """Let the token reach its lifetime where no restart is wanted."""
    walk = with_token("raise")
    with pytest.raises(PageTokenExpiredError, match=r"reached its lifetime$"):
        walk.next_token(DAY, 0.0)
    return walk


def looped() -> Walk:
    """Let the same token and the same rows come again."""
    walk = with_token()
    with pytest.raises(PaginationLoopError, match="page 2 "):
        walk.received(token(), rows=[1], body=1)
    return walk


SCENARIOS: dict[tuple[State, Step], Callable[[], Walk]] = {
    (State.FIRST, Step.PAGE): first_page,
    (State.FIRST, Step.LAST_PAGE): only_page,
    (State.FIRST, Step.LOOP): nothing_at_all,
    (State.NEXT, Step.PAGE): another_page,
    (State.NEXT, Step.LAST_PAGE): last_page,
    (State.NEXT, Step.EXPIRED): expired,
    (State.NEXT, Step.GIVE_UP): given_up,
    (State.NEXT, Step.LOOP): looped,
}


@pytest.mark.parametrize(("state", "step"), SCENARIOS)
def test_every_transition_is_reached(state: State, step: Step) -> None:
    """Each step leads where the table says."""
    assert SCENARIOS[state, step]().state is TRANSITIONS[state][step]


def test_no_other_transition_is_listed() -> None:
    """The table has the states that there are, and the steps that callers can take."""
    assert set(TRANSITIONS) == set(State)
    assert {(state, step) for state, steps in TRANSITIONS.items() for step in steps} == set(SCENARIOS)


@pytest.mark.parametrize("ended", [only_page, looped, given_up])
def test_an_ended_walk_takes_no_more_pages(ended: Callable[[], Walk]) -> None:
    """An exhausted or failed walk has no way on."""
    walk = ended()
    with pytest.raises(KeyError):
        walk.received(token("new"), rows=[9], body=9)


class AnyWalk(RuleBasedStateMachine):
    """Whatever happens to a walk, it steps as the table says, and never sends a dead token."""

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
    @rule(last=st.booleans(), rows=st.integers(0, 2), again=st.booleans())
    def a_page_comes(self, last: bool, rows: int, again: bool) -> None:
        """Answer a request, perhaps by a page that was here before."""
        self._ask()
        self.pages += not again
        minted = PageToken(f"t{self.pages}", self.now, self.now)
        try:
            self.walk.received(
                None if last else minted, rows=[self.pages] * rows, body=hash((self.pages, rows))
            )
        except PaginationLoopError:
            assert self.walk.state is State.FAILED

    @precondition(lambda self: self.walk.state in (State.FIRST, State.NEXT))
    @rule(status=st.sampled_from([400, 401, 403, 404, 410, 422, 429, 500]))
    def a_refusal_comes(self, status: int) -> None:
        """Refuse a request."""
        sent = self._ask()
        restarts = self.walk.restarts
        try:
            restarted = self.walk.refused(status)
        except PageTokenExpiredError:
            assert self.walk.state is State.FAILED
        else:
            assert restarted == (self.walk.restarts > restarts)
            assert restarted <= (sent is not None and status in DEAD_TOKEN_STATUSES)

    def _ask(self) -> str | None:
        held = self.walk.token
        try:
            sent = self.walk.next_token(self.now, self.now)
        except PageTokenExpiredError:
            self.walk = fresh()  # another walk goes on from here
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
        """Hold a token exactly in the state of that name, a failed walk apart."""
        if self.walk.state is not State.FAILED:
            assert (self.walk.token is not None) == (self.walk.state is State.NEXT)
        assert self.walk.exhausted == (self.walk.state is State.EXHAUSTED)


TestAnyWalk = AnyWalk.TestCase


# The age of tokens.


@settings(max_examples=500)
@given(minted=st.floats(0, 1e8), early=st.floats(0, 1e-9))
def test_a_token_as_old_as_its_lifetime_is_not_sent(minted: float, early: float) -> None:
    """24 h 0 s is too old and 23:59:59 is not, whatever rounding does to the loop's clock."""
    for age, sent in ((DAY - 1.0, "t"), (DAY - early, None), (DAY, None), (DAY + 1.0, None)):
        walk = fresh()
        walk.received(token(minted=minted), rows=[1], body=1)
        assert walk.next_token(minted + age, 0.0) == sent
        assert walk.restarts == (sent is None)


def test_the_first_page_is_asked_for_without_a_token() -> None:
    """A walk that has not begun sends no token, and that is no restart."""
    walk = fresh()
    assert walk.next_token(DAY * 9, DAY * 9) is None
    assert walk.restarts == 0


@given(jump=st.floats(-1e10, 1e10))
def test_the_wall_clock_does_not_age_a_token_of_this_process(jump: float) -> None:
    """Within a process only the loop's clock counts, however the wall clock jumps."""
    walk = with_token()
    assert walk.next_token(DAY - 1, jump) == "t"
    assert walk.next_token(DAY - 1, -jump) == "t"


READ_BACK = Checkpoint("q", token="t", minted_at=1_000.0, pages=3)


@pytest.mark.parametrize(
    ("away", "sent"), [(0.0, "t"), (DAY - 1, "t"), (DAY, None), (DAY * 30, None), (-DAY * 30, "t")]
)
def test_a_token_read_back_has_aged_by_the_wall_clock(away: float, sent: str | None) -> None:
    """The age of a checkpoint's token is wall-clock time; a clock that is behind makes it new, not older."""
    walk = resumed(READ_BACK)
    assert walk.state is State.NEXT
    assert walk.next_token(50.0, 1_000.0 + away) == sent


def test_the_wall_clock_is_asked_once() -> None:
    """After the first look the loop's clock counts the age on."""
    walk = resumed(READ_BACK)
    assert walk.next_token(50.0, 1_000.0 + DAY - 10) == "t"
    assert walk.token == PageToken("t", 50.0 - (DAY - 10), 1_000.0)
    assert walk.next_token(59.0, 1e12) == "t"
    assert walk.next_token(60.0, 0.0) is None


def test_a_walk_is_resumed_where_it_stood() -> None:
    """A checkpoint's token, depth and restarts are taken over; one that is done stays done."""
    walk = resumed(Checkpoint("q", token="t", minted_at=1_000.0, pages=3, restarts=2))
    assert (walk.depth, walk.restarts, walk.exhausted) == (3, 2, False)
    done = resumed(Checkpoint("q", pages=3, done=True))
    assert done.exhausted
    begun = resumed(Checkpoint("q"))
    assert (begun.state, begun.token, begun.proven) == (State.FIRST, None, False)


def test_when_tokens_die() -> None:
    """A token dies one lifetime after it was minted; where there is none, or its age is unknown, never."""
    walk = with_token()
    assert walk.next_token(walk.token_dies_at - 1e-3, 0.0) == "t"
    assert walk.token_dies_at == pytest.approx(DAY)
    assert walk.next_token(walk.token_dies_at, 0.0) is None
    assert walk.token_dies_at == inf
    read_back = resumed(READ_BACK)
    assert read_back.token_dies_at == inf
    read_back.next_token(50.0, 1_000.0 + 60.0)
    assert read_back.token_dies_at == pytest.approx(50.0 + DAY - 60.0)


# Refusals and restarts.


@pytest.mark.parametrize("status", sorted(DEAD_TOKEN_STATUSES))
def test_a_refused_token_restarts_the_walk(status: int) -> None:
    """400, 404, 410 and 422 to a token, where the first page was answered, mean that it has died."""
    walk = with_token()
    assert walk.refused(status)
    assert (walk.state, walk.token, walk.restarts, walk.depth) == (State.FIRST, None, 1, 0)


@pytest.mark.parametrize("status", [401, 403, 402, 405, 408, 409, 418, 429, 500, 502, 503, 504, 301])
def test_other_statuses_do_not_restart(status: int) -> None:
    """Any other status has nothing to do with the token."""
    walk = with_token()
    assert not walk.refused(status)
    assert (walk.state, walk.restarts) == (State.NEXT, 0)


@pytest.mark.parametrize("status", sorted(DEAD_TOKEN_STATUSES))
def test_a_refused_first_page_is_no_dead_token(status: int) -> None:
    """Without a token, at the beginning or after a restart, the request itself is wrong."""
    walk = fresh()
    assert not walk.refused(status)
    walk = with_token()
    assert walk.refused(400)
    assert not walk.refused(status)
    assert walk.restarts == 1


def test_a_token_without_a_proven_first_page_does_not_restart() -> None:
    """Where nothing was answered yet, the token is not the only thing that may be wrong."""
    walk = Walk(DAY, state=State.NEXT, token=token())
    assert not walk.refused(400)


def test_a_resumed_walk_has_a_proven_first_page() -> None:
    """A checkpoint with a token comes from a walk whose first page was answered."""
    assert resumed(READ_BACK).refused(404)


@pytest.mark.parametrize("how", [400, None])
def test_a_restart_without_progress_fails(how: int | None) -> None:
    """A walk whose token dies again at the same depth gives up, and says so."""
    walk = with_token()
    assert walk.refused(400)
    walk.received(token("u", minted=5.0), rows=[1], body=1)
    reason = "refused the page token with status 400" if how else "has reached its lifetime"
    with pytest.raises(PageTokenExpiredError, match=f"{reason}, at the same place as before"):
        walk.next_token(DAY * 2, 0.0) if how is None else walk.refused(how)
    assert walk.state is State.FAILED


def test_restarts_go_on_while_each_gets_further() -> None:
    """Progress by one page is enough, and the number of restarts is counted."""
    walk = fresh()
    for deepest in range(1, 20):
        for number in range(deepest):
            walk.received(token(str(number)), rows=[number], body=number)
        assert walk.refused(410)
        assert walk.restarts == deepest
        assert walk.reached == deepest


@pytest.mark.parametrize("deep", [1, 2, 5])
def test_a_pass_that_ends_earlier_fails(deep: int) -> None:
    """A token that dies before the place where the last one died is no progress either."""
    walk = fresh()
    for number in range(5):
        walk.received(token(str(number)), rows=[number], body=number)
    walk.refused(400)
    for number in range(deep):
        walk.received(token(str(number)), rows=[number], body=number)
    with pytest.raises(PageTokenExpiredError):
        walk.refused(400)


@pytest.mark.parametrize("walk", [with_token("raise"), resumed(READ_BACK, "raise")])
def test_raise_means_raise(walk: Walk) -> None:
    """With on_expired="raise" a refused token ends the walk; nothing is begun again."""
    with pytest.raises(PageTokenExpiredError, match=r"with status 404$"):
        walk.refused(404)
    assert (walk.state, walk.restarts) == (State.FAILED, 0)


# The guard against loops.


def walk_of(pages: list[tuple[str, list[int], int]]) -> Walk:
    """Walk over pages of token, rows and body."""
    walk = fresh()
    for value, rows, body in pages:
        walk.received(token(value), rows=rows, body=body)
    return walk


def test_a_token_that_never_changes_is_no_loop_while_rows_do() -> None:
    """The same token with new rows each time goes on."""
    assert walk_of([("t", [number], number) for number in range(5_000)]).depth == 5_000


def test_rows_that_never_change_are_no_loop_while_tokens_do() -> None:
    """The same rows under new tokens go on: rows may be equal."""
    assert walk_of([(str(number), [7], 7) for number in range(5_000)]).depth == 5_000


def pages_until_noticed(cycle: int, lead: int, *, same_body: bool, same_token: bool = False) -> int:
    """Return how many pages a service that cycles gives before the guard notices."""
    guard = LoopGuard()
    for number in range(20 * (cycle + lead) + 100):
        place = number if number < lead else lead + (number - lead) % cycle
        value = "t" if same_token else f"t{place}"
        if guard.loops(value, [place], place if same_body else number):
            return number
    raise AssertionError("never noticed")


@settings(deadline=None, max_examples=60)
@given(
    cycle=st.integers(1, 40) | st.sampled_from([1_023, 1_024, 1_025, 1_500, 4_000]),
    lead=st.integers(0, 20) | st.sampled_from([1_024, 2_000]),
    same_body=st.booleans(),
    same_token=st.booleans(),
)
def test_cycles_of_any_length_are_noticed(cycle: int, lead: int, same_body: bool, same_token: bool) -> None:
    """A cycle is noticed, longer than the window too, and where bodies differ in more than rows."""
    noticed = pages_until_noticed(cycle, lead, same_body=same_body, same_token=same_token)
    assert noticed >= lead + cycle
    assert noticed <= 6 * (lead + cycle) + 8


@pytest.mark.parametrize("cycle", [1, 2, 1_000])
def test_short_cycles_are_noticed_at_once(cycle: int) -> None:
    """Within the window the first page that comes again whole is noticed."""
    assert pages_until_noticed(cycle, 5, same_body=True) == 5 + cycle


def test_bodies_that_differ_only_in_the_last_update() -> None:
    """The same token and rows are a loop though `lastRun` rises: noticed at the third time."""
    assert pages_until_noticed(3, 4, same_body=False) <= 4 + 3 * 2
    with pytest.raises(PaginationLoopError):
        walk_of([("t", [1, 2], body) for body in range(3)])


def test_the_memory_of_the_guard_is_flat() -> None:
    """However long the walk, the guard keeps its window and two entries for each power of two."""
    guard = LoopGuard()
    for number in range(20_000):
        assert not guard.loops(f"t{number}", [number], number)
    assert len(guard._recent) == LoopGuard.WINDOW
    assert len(guard._pinned) == 2 * 15


def test_a_restart_forgets_the_pages_before_it() -> None:
    """After a restart the same pages come again: that is no loop."""
    walk = with_token()
    assert walk.refused(400)
    walk.received(token(), rows=[1], body=1)
    assert walk.state is State.NEXT


def test_empty_pages_go_on_up_to_a_bound() -> None:
    """A thousand empty pages in a row go on; one more and the walk fails; a row in between counts anew."""
    pages: list[tuple[str, list[int], int]] = [(str(n), [], n) for n in range(MAX_EMPTY_PAGES)]
    more: list[tuple[str, list[int], int]] = [(f"b{n}", [], -n - 2) for n in range(MAX_EMPTY_PAGES)]
    walk = walk_of([*pages, ("row", [1], -1), *more])
    assert walk.state is State.NEXT
    with pytest.raises(PaginationLoopError):
        walk.received(token("one more"), rows=[], body=-9_999)


def test_an_empty_last_page_is_the_end() -> None:
    """However many empty pages came, one without a token ends the walk well."""
    walk = walk_of([(str(n), [], n) for n in range(MAX_EMPTY_PAGES)])
    walk.received(None, rows=[], body=-1)
    assert walk.exhausted
