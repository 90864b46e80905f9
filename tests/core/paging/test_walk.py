"""Walk as a generator: its commands, and its position between them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from attrs import Factory, define, evolve

from chainapi import Checkpoint
from chainapi.core.call import SentAt
from chainapi.core.events import Event, LoopFound, PageReceived, Restarted, TokenRenewed
from chainapi.core.paging.dedupe import Deduplicator
from chainapi.core.paging.rows import Identity
from chainapi.core.paging.states import State, StateMachine
from chainapi.core.paging.walk import (
    HUGE,
    Answer,
    Command,
    Deliver,
    Discard,
    Fetch,
    Fetched,
    ListQuery,
    Offload,
    Report,
    Steps,
    Walk,
)
from chainapi.errors import (
    APIStatusError,
    BadRequestError,
    PageTokenExpiredError,
    PaginationLoopError,
    ServerError,
)

DAY = 86_400.0


@define
class Body:
    """Decoded page."""

    rows: list[Any]
    next_page_token: str | None = None
    extra: tuple[Any, ...] = ()
    body: bytes = b"{}"

    @property
    def key_rows(self) -> list[Any]:
        """Return the rows."""
        return self.rows

    @property
    def digest(self) -> int:
        """Return a hash of the rows."""
        return hash(repr(self.rows))

    @property
    def content(self) -> Body:
        """Return the page itself."""
        return self

    def canonical_rows(self) -> list[bytes]:
        """Return the rows as bytes."""
        return [repr(row).encode() for row in self.rows]


@define
class Played:
    """Commands of one step of a walk, with the events that it reported."""

    commands: list[Command] = Factory(list[Command])
    events: list[Event] = Factory(list[Event])


def walk_of(start: Checkpoint | None = None, *, bounded: bool = False) -> Walk:
    """Return a walk over plain rows; with `bounded`, over bounded numbers.

    A query parameter bounds them.
    """
    start = start or Checkpoint("query")
    number = (lambda row: int(row)) if bounded else None
    identity = Identity(number=number, unique=bounded)
    states = StateMachine.resume(start, lifetime=DAY, on_expired="restart")
    dedupe = Deduplicator(identity, watermark=start.watermark, resumed=start.rows > 0)
    return Walk(ListQuery("data", "GET /v1/rows", bounded=bounded), states, dedupe, start)


def page(*rows: Any, token: str | None = None, at: float = 0.0) -> Fetched:
    """Return a page that was requested at a time."""
    return Fetched(Body(list(rows), token), SentAt(at, at))


def play(walk: Walk, *answers: Answer, now: float = 0.0) -> Played:
    """Answer the fetches of one step; perform its other commands."""
    played, left = Played(), list(answers)
    steps: Steps = walk.advance(now, now)
    answer: Answer = None
    while True:
        try:
            command = steps.send(answer)
        except StopIteration:
            return played
        answer = None
        match command:
            case Fetch():
                answer = left.pop(0)
            case Offload(work=work):
                work()
            case Report(event=event):
                played.events.append(event)
            case _:
                pass
        played.commands.append(command)


def kinds(played: Played) -> list[type[object]]:
    """Return the types of the commands."""
    return [type(command) for command in played.commands]


def test_a_page_is_fetched_reported_and_delivered() -> None:
    """A step fetches one page, reports it and delivers it as the last command.

    Then its rows are read.
    """
    walk = walk_of()
    played = play(walk, page("a", "b", token="t"))
    assert kinds(played) == [Fetch, Report, Deliver]
    assert played.events == [PageReceived("data", "GET /v1/rows", 1, 2)]
    assert list(walk.rows()) == ["a", "b"]
    assert (walk.checkpoint.token, walk.checkpoint.rows, walk.checkpoint.pages) == ("t", 2, 1)


def test_a_fetch_has_the_time_at_which_its_token_expires() -> None:
    """A fetch has the time at which its token expires; the first page has none.

    The token of a page expires one lifetime after its request was sent.
    """
    walk = walk_of()
    first = play(walk, page("a", token="t", at=5.0)).commands[0]
    assert isinstance(first, Fetch)
    assert (first.token, first.not_after) == (None, float("inf"))
    second = play(walk, page("b"), now=9.0).commands[0]
    assert isinstance(second, Fetch)
    assert second.token is not None
    assert second.token.value == "t"
    assert second.not_after == pytest.approx(5.0 + DAY)


def test_a_token_of_a_checkpoint_has_its_age() -> None:
    """A checkpoint's token takes its age from the wall clock once.

    The loop's clock continues it.
    """
    walk = walk_of(Checkpoint("query", token="t", minted_at=1_000.0, pages=1))
    next(walk.advance(50.0, 1_060.0))
    fetch = next(walk.advance(55.0, 9e9))
    assert isinstance(fetch, Fetch)
    assert fetch.not_after == pytest.approx(50.0 - 60.0 + DAY)


def test_a_walk_that_is_left_at_any_command_stands_where_it_stood() -> None:
    """A walk closed at any command keeps its position, and fetches the page again."""
    walk = walk_of()
    play(walk, page("a", token="t"))
    walk.leave()
    before = walk.checkpoint
    steps = walk.advance(0.0, 0.0)
    fetch = next(steps)
    steps.close()
    assert walk.checkpoint == before
    assert next(walk.advance(0.0, 0.0)) == fetch
    repeated = play(walk, None, page("b")).commands
    assert repeated[:2] == [fetch, fetch], "no outcome: the same again"


def test_the_offset_moves_with_each_row() -> None:
    """The offset moves with each row: a resume gives the rest of the page.

    A checkpoint inside a page has the number of rows given so far.
    """
    walk = walk_of()
    play(walk, page("a", "b", "c", token="t"))
    rows = walk.rows()
    assert (next(rows), next(rows)) == ("a", "b")
    assert (walk.checkpoint.offset, walk.checkpoint.rows, walk.unread) == (2, 2, True)
    assert list(walk.rows()) == ["c"]
    assert not walk.unread


def test_an_expired_token_restarts_the_walk() -> None:
    """An expired token restarts the walk: pages ahead are dropped, rows counted.

    PageTokenExpiredError is the answer to a fetch.
    """
    walk = walk_of()
    walk.count_rows()
    play(walk, page("a", "b", token="t"))
    walk.leave()
    played = play(walk, PageTokenExpiredError("too old"), page("new", "a", "b"))
    assert kinds(played) == [Fetch, Discard, Report, Fetch, Report, Deliver]
    assert [event for event in played.events if isinstance(event, Restarted)]
    assert (walk.restarts, list(walk.rows())) == (1, ["new"])


def test_a_restart_of_a_bounded_query_begins_at_the_last_number() -> None:
    """A restart of a bounded query fetches from the last row given."""
    walk = walk_of(bounded=True)
    play(walk, page(9, 8, token="t"))
    walk.leave()
    played = play(walk, PageTokenExpiredError("too old"), page(8, 7))
    fetches = [command for command in played.commands if isinstance(command, Fetch)]
    assert [fetch.bound for fetch in fetches] == [None, 8]
    assert list(walk.rows()) == [7]


def test_a_refused_token_is_renewed() -> None:
    """A refused token is renewed: the page before it is fetched again.

    The same rows with a new token continue the walk.
    """
    walk = walk_of()
    for number, token in enumerate(("t1", "t2")):
        play(walk, page(number, token=token))
        walk.leave()
    played = play(walk, BadRequestError(400, "", ()), page(1, token="new"), page(2))
    fetches = [command for command in played.commands if isinstance(command, Fetch)]
    assert [fetch.token and fetch.token.value for fetch in fetches] == ["t2", "t1", "new"]
    assert any(isinstance(event, TokenRenewed) for event in played.events)
    assert walk.restarts == 0


@pytest.mark.parametrize("error", [ServerError(500, "", ()), APIStatusError(404, "", ())])
def test_other_errors_are_raised(error: APIStatusError) -> None:
    """An error without bearing on the token is raised, and the walk can continue."""
    walk = walk_of()
    with pytest.raises(APIStatusError) as caught:
        play(walk, error)
    assert caught.value is error
    assert not walk.failed
    play(walk, page("a"))
    assert walk.fetched_all


def test_a_loop_fails_the_walk_for_good() -> None:
    """A loop is reported and raised, now and on each further step.

    A token returned with the same rows.
    """
    walk = walk_of()
    play(walk, page("a", token="t"))
    walk.leave()
    before, events = walk.checkpoint, list[Event]()
    steps = walk.advance(0.0, 0.0)
    next(steps)
    command = steps.send(page("a", token="t"))
    assert isinstance(command, Report)
    events.append(command.event)
    with pytest.raises(PaginationLoopError) as caught:
        next(steps)
    assert [type(event) for event in events] == [LoopFound]
    assert (walk.state, walk.failed, walk.checkpoint) == (State.FAILED, True, before)
    with pytest.raises(PaginationLoopError) as again:
        play(walk)
    assert (again.value.args, vars(again.value)) == (caught.value.args, vars(caught.value))


def test_large_pages_are_compared_outside_of_the_event_loop() -> None:
    """A page of more than a MiB is compared outside of the event loop.

    The walk yields that computation before it opens the page.
    """
    walk = walk_of()
    large = Fetched(Body(["a"], body=b" " * (HUGE + 1)), SentAt(0.0, 0.0))
    assert kinds(play(walk, large)) == [Fetch, Offload, Report, Deliver]
    assert list(walk.rows()) == ["a"]


def test_no_event_is_made_without_a_listener() -> None:
    """A walk without a listener makes no event."""
    walk = walk_of()
    steps = walk.advance(0.0, 0.0, reports=False)
    assert isinstance(next(steps), Fetch)
    assert isinstance(steps.send(page("a")), Deliver)


def test_rows_wanted_beyond_the_open_page() -> None:
    """The row limit less the rows of the open page are wanted of the pages behind it."""
    walk = walk_of()
    walk.row_limit = 5
    play(walk, page("a", "b", token="t"))
    assert walk.rows_wanted == 3


@pytest.mark.parametrize("keeps_rows", [False, True])
def test_a_page_that_was_left_is_dropped(keeps_rows: bool) -> None:
    """A walk drops the rows of a page that it left, unless somebody reads their digests."""

    class Row(dict[str, int]):
        """A row that can be referred to weakly."""

    walk, row = walk_of(), Row()
    walk.keeps_rows = keeps_rows
    play(walk, page(row, token="t"))
    digest, position, held = walk.digests([0]), walk.checkpoint, weakref.ref(row)
    walk.leave()
    del row
    gc.collect()
    assert walk.checkpoint == evolve(position, rows=1, offset=0, token="t", minted_at=0.0, pages=1, head=())
    assert (held() is not None, walk.unread, list(walk.rows())) == (keeps_rows, False, [])
    if keeps_rows:
        assert walk.digests([0]) == digest
        return
    for read in (lambda index: walk.digests([index]), walk.marks):
        with pytest.raises(IndexError, match="left"):
            read(0)
