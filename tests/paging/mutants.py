"""Mutants of the walk: each replaces one function or attribute of the code.

This is the one place where parts of chainapi are patched, because that is its point: a promise that a broken
walk keeps as well is no promise.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from math import inf
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import evolve, frozen
from msgspec.structs import replace

from chainapi import Checkpoint, Page, Pages
from chainapi._api.source import ListSource
from chainapi.client.prefetch import Prefetcher
from chainapi.client.runner import WalkRunner
from chainapi.client.source import Source
from chainapi.core.call import Call
from chainapi.core.paging import dedupe, order
from chainapi.core.paging.dedupe import Comparison, Deduplicator
from chainapi.core.paging.digests import DigestCounter
from chainapi.core.paging.history import OrderHistory
from chainapi.core.paging.keys import KeyWindow
from chainapi.core.paging.loop_guard import LoopGuard
from chainapi.core.paging.order import Order, Rows, Watermark
from chainapi.core.paging.position import PageToken, checkpoint_of
from chainapi.core.paging.resumed import ResumedPage
from chainapi.core.paging.rows import RowsOfPage
from chainapi.core.paging.states import State, StateMachine
from chainapi.core.paging.walk import Answer, Fetch, Fetched, Walk
from chainapi.errors import APIStatusError, ServerError
from tests.paging.machine import FlowMachine, PagingMachine

__all__ = ["MUTANTS"]

Make = Callable[[], AbstractContextManager[object]]


@frozen
class Mutant:
    """Mutant, in force while the context of `make` is open, and its scripts.

    The scripts catch it. They run on the walk alone, or on a session, for what only a session does: prefetch,
    the queue for quota, and the time at which a page arrives.
    """

    make: Make
    scripts: tuple[int, ...]
    machine: type[PagingMachine]


MUTANTS: dict[str, Mutant] = {}


def mutant(*scripts: int, machine: type[PagingMachine] = FlowMachine) -> Callable[[Make], Make]:
    """Enter a mutant in the list. `python -m tests.paging --hunt NAME` finds scripts."""

    def enter(make: Make) -> Make:
        MUTANTS[make.__name__] = Mutant(make, scripts, machine)
        return make

    return enter


@mutant(4, 54)
def no_age_check() -> AbstractContextManager[object]:
    """Let tokens live for ever."""
    return patch.object(StateMachine, "expires_at", lambda self, token: inf)


@mutant(99, 175, machine=PagingMachine)
def age_from_receipt() -> AbstractContextManager[object]:
    """Count the age of a token from the arrival of its page."""

    def token(self: Fetched) -> PageToken | None:
        value = self.page.next_page_token
        now = asyncio.get_running_loop().time()
        return None if value is None else PageToken(value, now, self.sent.wall)

    return patch.object(Fetched, "token", property(token))


@mutant(9, 22, machine=PagingMachine)
def age_by_the_wall_clock() -> AbstractContextManager[object]:
    """Age every token by the wall clock, as if it came from a checkpoint."""

    def token(self: Fetched) -> PageToken | None:
        value = self.page.next_page_token
        return None if value is None else PageToken(value, None, self.sent.wall)

    return patch.object(Fetched, "token", property(token))


@mutant(54, 282)
def age_forgotten_on_resume() -> AbstractContextManager[object]:
    """Take the token of a checkpoint for new."""

    def set_age(self: StateMachine, now: float, wall: float) -> None:
        if self.token is not None and self.token.minted is None:
            self.token = replace(self.token, minted=now)

    return patch.object(StateMachine, "set_age", set_age)


@mutant(129, 196)
def counted_a_row_late() -> AbstractContextManager[object]:
    """Count a row only when the next one is given."""
    real = DigestCounter.give
    late: dict[int, bytes] = {}

    def give(self: DigestCounter, digest: bytes) -> None:
        before, late[id(self)] = late.get(id(self)), digest
        if before is not None:
            real(self, before)

    return patch.object(DigestCounter, "give", give)


@mutant(70, 165)
def span_a_page_short() -> AbstractContextManager[object]:
    """Leave the last page out of the span of numbers given."""
    real = Order.take

    def take(self: Order, rows: Rows, *marks: Callable[[int], Any]) -> AbstractSet[int]:
        stale = real(self, rows, *marks)
        if rows and self._before.spans:
            self._after = self._before
        return stale

    return patch.object(Order, "take", take)


@mutant(21, 27)
def offset_lost_on_resume() -> AbstractContextManager[object]:
    """Begin the page again in which the reader stood."""
    return patch.object(Walk, "_inside", lambda self: evolve(checkpoint_of(self._start), watermark=None))


@mutant(21, 27)
def offset_off_by_one() -> AbstractContextManager[object]:
    """Count the row in hand as given before it is, and the next one with it."""
    real = Walk._inside

    def inside(self: Walk) -> Checkpoint:
        with patch.object(Walk, "_offset", self._offset + 1):
            return real(self)

    return patch.object(Walk, "_inside", inside)


@mutant(0, 4)
def restart_keeps_the_token() -> AbstractContextManager[object]:
    """Restart with the token that has died."""
    real = StateMachine._expire

    def expire(self: StateMachine, reason: str, cause: APIStatusError | None = None) -> None:
        token = self.token
        real(self, reason, cause)
        self.token = token

    return patch.object(StateMachine, "_expire", expire)


@mutant(3, 9)
def loop_guard_on_tokens_alone() -> AbstractContextManager[object]:
    """Take every token that comes again for a loop."""
    real = LoopGuard.loops
    return patch.object(LoopGuard, "loops", lambda self, token, rows: real(self, token, 0))


@mutant(64, 71)
def no_loop_guard() -> AbstractContextManager[object]:
    """Go round in circles."""
    return patch.object(LoopGuard, "loops", lambda self, token, rows: False)


@mutant(2, 26)
def idle_pages_unbounded() -> AbstractContextManager[object]:
    """Take any number of pages that bring nothing new."""

    def goes_nowhere(self: StateMachine, token: PageToken, rows: int, fresh: bool | None) -> bool:
        return self._guard.loops(token.value, rows)

    return patch.object(StateMachine, "_goes_nowhere", goes_nowhere)


@mutant(99, 175, machine=PagingMachine)
def prefetch_ignores_age() -> AbstractContextManager[object]:
    """Fetch pages ahead with tokens that are dead."""
    real = Prefetcher.__init__

    def init(self: Prefetcher, owner: object, source: Source, walk: Walk) -> None:
        ageless: Any = SimpleNamespace(fetch=lambda token: replace(walk.fetch(token), not_after=inf))
        real(self, owner, source, ageless)

    return patch.object(Prefetcher, "__init__", init)


@mutant(2, 9, machine=PagingMachine)
def prefetch_gives_a_page_twice() -> AbstractContextManager[object]:
    """Leave the page that was taken where it was, once."""
    real = Prefetcher.take

    async def take(self: Prefetcher) -> Answer:
        task = self._tasks[0]
        outcome = await real(self)
        if self._tasks and outcome is not None and not getattr(task, "taken", False):
            task.taken = True  # type: ignore[attr-defined]
            self._tasks.appendleft(task)
        return outcome

    return patch.object(Prefetcher, "take", take)


@mutant(1486, machine=PagingMachine)
def prefetch_outlives_the_stream() -> AbstractContextManager[object]:
    """Cancel nothing that is on its way."""
    return patch.object(Prefetcher, "cancel", lambda self: self._tasks.clear())


@mutant(1486, machine=PagingMachine)
def prefetch_survives_a_restart() -> AbstractContextManager[object]:
    """Give pages fetched with the old token after a restart.

    They follow its first page.
    """

    def holds(self: Prefetcher, token: PageToken | None) -> bool:
        return token is not None and bool(self._tasks)

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(Prefetcher, "holds", holds),
            patch.object(WalkRunner, "_discard", lambda self: None),
        ):
            yield

    return both()


@mutant(6, 43)
def error_ends_the_walk() -> AbstractContextManager[object]:
    """Take a failed page for the end, as if the list were whole."""
    real = WalkRunner.advance

    async def advance(self: WalkRunner) -> bool:
        try:
            return await real(self)
        except ServerError:
            self._walk._states.state = State.EXHAUSTED
            return False

    return patch.object(WalkRunner, "advance", advance)


@mutant(21, 27)
def checkpoint_of_the_next_page() -> AbstractContextManager[object]:
    """Return, for the page in hand, the checkpoint one page further on."""
    real = Pages.__anext__
    given: dict[int, Page[Any]] = {}

    async def next_page(self: Pages[Any]) -> Page[Any]:
        page = await real(self)
        if (before := given.get(id(self))) is not None:
            before._end = page.checkpoint
        given[id(self)] = page
        return page

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(Pages, "__anext__", next_page),
            patch.object(Walk, "_inside", lambda self: self._end),
        ):
            yield

    return both()


def _resumed_from(change: Callable[[Watermark], Watermark | None]) -> AbstractContextManager[object]:
    """Change the watermark from which an ordered walk is resumed."""
    real = Order.__init__

    def init(self: Order, *, watermark: Watermark | None = None, **options: Any) -> None:
        real(self, watermark=None if watermark is None else change(watermark), **options)

    return patch.object(Order, "__init__", init)


@mutant(197, 323)
def watermark_forgotten_on_resume() -> AbstractContextManager[object]:
    """Begin with no number given after a resume."""
    return _resumed_from(lambda watermark: None)


@mutant(21, 415)
def marks_forgotten() -> AbstractContextManager[object]:
    """Count the rows of a page that were given, instead of comparing their marks."""
    return patch.object(Deduplicator, "marks_given", lambda self, given, stale: ())


@mutant(441, 442)
def marks_as_a_set() -> AbstractContextManager[object]:
    """Leave out, after a resume inside a page, all rows that have one of its marks."""
    real = ResumedPage._matches

    def matches(self: ResumedPage, own: str) -> bool:
        marks = Counter(self.marks)
        try:
            return real(self, own)
        finally:
            self.marks = marks

    return patch.object(ResumedPage, "_matches", matches)


@mutant(0, 27)
def refused_token_is_an_error() -> AbstractContextManager[object]:
    """Raise the refusal of a token as any other error."""
    return patch.object(StateMachine, "refused", lambda self, error: False)


@mutant(0, 28)
def restarts_without_end() -> AbstractContextManager[object]:
    """Restart again and again, without regard to progress."""
    real = StateMachine._expire

    def expire(self: StateMachine, reason: str, cause: APIStatusError | None = None) -> None:
        self.reached = 0
        real(self, reason, cause)

    return patch.object(StateMachine, "_expire", expire)


@mutant(28, 116)
def restart_forgets_the_spans() -> AbstractContextManager[object]:
    """Forget the numbers given when the walk restarts."""

    def restart(self: Order) -> None:
        self._before = self._after = type(self._after)()

    return patch.object(Order, "restart", restart)


@mutant(129, 196)
def restart_forgets_the_counts() -> AbstractContextManager[object]:
    """Forget the rows counted when the walk restarts."""

    def restart(self: DigestCounter) -> None:
        self._tables, self._large = DigestCounter()._tables, {}

    return patch.object(DigestCounter, "restart", restart)


@mutant(129, 196)
def restart_keeps_what_was_met() -> AbstractContextManager[object]:
    """Take the rows that the pass before met for rows of the new one."""
    return patch.object(DigestCounter, "restart", lambda self: None)


@mutant(2, 4)
def empty_page_is_the_end() -> AbstractContextManager[object]:
    """Take an empty page for the last one."""
    real: Callable[[Fetched], PageToken | None] = Fetched.token.fget  # type: ignore[attr-defined]
    return patch.object(Fetched, "token", property(lambda self: real(self) if self.page.rows else None))


# Equal rows, keys and order


def _also_stale(
    drop: Callable[[Deduplicator, RowsOfPage, Comparison], set[int]],
) -> AbstractContextManager[object]:
    """Leave more rows out than the real code."""
    real = Deduplicator.add

    def take(self: Deduplicator, page: RowsOfPage) -> Comparison:
        taken = real(self, page)
        return replace(taken, stale=set(taken.stale) | drop(self, page, taken))

    return patch.object(Deduplicator, "add", take)


@mutant(6, 10)
def equal_rows_of_a_page_dropped() -> AbstractContextManager[object]:
    """Give one of the rows of a page that are equal."""

    def drop(_: Deduplicator, page: RowsOfPage, __: Comparison) -> set[int]:
        contents = list(page.canonical_rows())
        return {index for index, content in enumerate(contents) if content in contents[:index]}

    return _also_stale(drop)


@mutant(11, 21)
def equal_rows_of_two_pages_dropped() -> AbstractContextManager[object]:
    """Take a row for repeated that is equal to one of the page before, without a key."""
    before: dict[int, set[bytes]] = {}

    def drop(self: Deduplicator, page: RowsOfPage, _: Comparison) -> set[int]:
        contents = list(page.canonical_rows())
        known, before[id(self._identity)] = before.get(id(self._identity), set()), set(contents)
        return {index for index, content in enumerate(contents) if content in known}

    return _also_stale(drop)


@mutant(154, 204)
def seen_or_not_after_a_restart() -> AbstractContextManager[object]:
    """Leave out, in a later pass, every row that is equal to one that was given."""
    real = DigestCounter.meet

    def meet(self: DigestCounter, digest: bytes) -> bool:
        return real(self, digest) or (self.passes > 0 and digest in self)  # type: ignore[attr-defined]

    restart = DigestCounter.restart

    def begin(self: DigestCounter) -> None:
        self.passes += 1  # type: ignore[attr-defined]
        restart(self)

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(DigestCounter, "meet", meet),
            patch.object(DigestCounter, "restart", begin),
            patch.object(DigestCounter, "passes", 0, create=True),
        ):
            yield

    return both()


@mutant(7, 95)
def shifted_rows_given_again() -> AbstractContextManager[object]:
    """Compare no keys with those of the pages before."""
    return patch.object(KeyWindow, "_known", lambda self: {})


@mutant(42, 67)
def key_never_given_up() -> AbstractContextManager[object]:
    """Use a key that rows of one page share."""
    return patch.object(Deduplicator, "_give_up_key", lambda self, page: None)


@mutant(73, 91)
def key_given_up_by_the_page_only() -> AbstractContextManager[object]:
    """Use a key again on the page after the one that refuted it."""
    real = Deduplicator._give_up_key

    def give_up(self: Deduplicator, page: Any) -> None:
        real(self, page)
        self._keyed = True

    return patch.object(Deduplicator, "_give_up_key", give_up)


@mutant(4, 311)
def restart_after_a_refuted_key_is_exact() -> AbstractContextManager[object]:
    """Promise, once the key is given up, that no row comes again."""
    return patch.object(Deduplicator, "complete", True)


@mutant(0, 26)
def order_believed() -> AbstractContextManager[object]:
    """Check no number but those of the spans."""
    return patch.object(dedupe, "rising", lambda *_: None)


@mutant(2, 10)
def spans_believed_after_a_break() -> AbstractContextManager[object]:
    """Leave out the rows behind a break whose numbers lie in a span."""

    def drop(self: Deduplicator, _: RowsOfPage, __: Comparison) -> set[int]:
        spans = self.spans.get(id(self._identity), ())  # type: ignore[attr-defined]
        numbers = self._page.numbers or ()
        late = enumerate(numbers) if not self.ordered else ()
        return {
            index
            for index, number in late
            if number is not None and any(low <= number <= high for high, low in spans)
        }

    @contextmanager
    def both() -> Iterator[None]:
        spans: dict[int, Any] = {}
        real = Deduplicator._compare_ordered

        def compare(self: Deduplicator, order: Order, *args: Any) -> Any:
            outcome = real(self, order, *args)
            spans[id(self._identity)] = order._after.spans
            return outcome

        with (
            patch.object(Deduplicator, "spans", spans, create=True),
            patch.object(Deduplicator, "_compare_ordered", compare),
            _also_stale(drop),
        ):
            yield

    return both()


@mutant(12, 34)
def ties_at_the_end_of_a_span_dropped() -> AbstractContextManager[object]:
    """Take every row for given that has the number at which a span ends."""

    def given(self: Order, index: int, number: int, spans: Any, ties: Any, met: Any, mark: Any) -> bool:
        return any(oldest <= number <= newest for newest, oldest in spans)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(Order, "_given", given), patch.object(order, "_meet", lambda *_: True):
            yield

    return both()


@mutant(28, 70)
def ties_at_the_end_of_a_span_given_again() -> AbstractContextManager[object]:
    """Take no row for given that has the number at which a span ends."""

    def given(self: Order, index: int, number: int, spans: Any, ties: Any, met: Any, mark: Any) -> bool:
        return any(oldest < number < newest for newest, oldest in spans)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(Order, "_given", given), patch.object(order, "_meet", lambda *_: False):
            yield

    return both()


@mutant(165, 1041)
def spans_joined_by_a_tie() -> AbstractContextManager[object]:
    """Join two spans at a number although only some of its rows were given."""
    real = order._walked

    def walked(spans: Any, last: int, number: int, *, unique: bool) -> Any:
        return real(spans, last, number, unique=True)

    return patch.object(order, "_walked", walked)


@mutant(341, 484)
def ties_met_not_in_the_checkpoint() -> AbstractContextManager[object]:
    """Forget at a resume which rows with the last number this pass has met."""
    return _resumed_from(lambda watermark: evolve(watermark, met=()))


# Refused tokens


@mutant(91, 387)
def refused_token_restarts_at_once() -> AbstractContextManager[object]:
    """Take every refusal for the death of the token."""
    real = StateMachine.refused

    def refused(self: StateMachine, error: APIStatusError) -> bool:
        self._opener = None
        return real(self, error)

    return patch.object(StateMachine, "refused", refused)


@mutant(756, 1312)
def renewed_token_not_used() -> AbstractContextManager[object]:
    """Continue with the token that was refused, not with the new one."""
    real, refuse = StateMachine.checked, StateMachine.refused
    refused_tokens: dict[int, PageToken | None] = {}

    def refused(self: StateMachine, error: APIStatusError) -> bool:
        refused_tokens[id(self)] = self.token
        return refuse(self, error)

    def checked(self: StateMachine, token: PageToken | None, *, rows: int) -> bool:
        return real(self, token and refused_tokens[id(self)], rows=rows)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(StateMachine, "refused", refused), patch.object(StateMachine, "checked", checked):
            yield

    return both()


@mutant(1327)
def page_before_not_compared() -> AbstractContextManager[object]:
    """Continue with a new token although the page that it came with has changed."""
    real = StateMachine.checked

    def checked(self: StateMachine, token: PageToken | None, *, rows: int) -> bool:
        return real(self, token, rows=rows if self._page is None else self._page)

    return patch.object(StateMachine, "checked", checked)


@mutant(543, 7779)
def refused_page_refused_for_good() -> AbstractContextManager[object]:
    """Take a token for tried once and for all, although it may have died since."""
    real = StateMachine.refused

    def refused(self: StateMachine, error: APIStatusError) -> bool:
        renewed = self._renewed
        try:
            return real(self, error)
        finally:
            self._renewed = renewed

    return patch.object(StateMachine, "refused", refused)


@mutant(232, 388, machine=PagingMachine)
def dead_in_the_queue_yet_sent() -> AbstractContextManager[object]:
    """Check the age of a token only before its request waits for quota."""
    real = ListSource._call

    def call(self: ListSource, fetch: Fetch, needed: Callable[[], bool] | None) -> Call:
        return real(self, Fetch(fetch.token, fetch.bound, inf, fetch.fresh), needed)

    return patch.object(ListSource, "_call", call)


@mutant(3, 11)
def exhausted_too_early() -> AbstractContextManager[object]:
    """Call the walk exhausted at its last page, though its rows were not given."""
    return patch.object(Walk, "exhausted", property(lambda self: self.fetched_all))


@mutant(2, 26)
def partial_list_after_close() -> AbstractContextManager[object]:
    """Return a partial list when the stream is closed under `collect`."""

    async def collect(self: Pages[Any], limit: int | None = None) -> list[Any]:
        rows = []
        async for row in self.items():
            rows.append(row)
            if len(rows) == limit:
                break
        return rows

    return patch.object(Pages, "collect", collect)


@mutant(51_296)
def earlier_passes_forgotten_at_a_break() -> AbstractContextManager[object]:
    """Give rows of passes before again, below a break of the order.

    The order breaks in a later pass.
    """
    return patch.object(OrderHistory, "later", False)


@mutant(2_255, 2_770)
def rows_before_a_break_forgotten() -> AbstractContextManager[object]:
    """Count only the rows behind the break of an order."""
    return patch.object(OrderHistory, "move_to", lambda self, counter: None)


@mutant(263, 1_573)
def refuted_key_believed_after_a_resume() -> AbstractContextManager[object]:
    """Leave out of checkpoints that the key was given up."""
    return patch.object(Deduplicator, "keyless", False)


@mutant(396, 513)
def changed_row_refutes_no_number() -> AbstractContextManager[object]:
    """Use a number as key although another row had it on the page before."""
    return patch.object(KeyWindow, "_is_other", lambda self, page, index, known, place: False)
