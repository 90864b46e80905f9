"""Mutants of the walk: each replaces one function or attribute of the code.

This is the one place where parts of chainapi are patched, because that is its point: a promise that a broken
walk keeps as well is no promise.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import Any
from unittest.mock import patch

from attrs import frozen
from msgspec.structs import replace

from chainapi import Checkpoint, Page, Pages
from chainapi._api.source import ListSource
from chainapi._http.options import Call
from chainapi._paging import given
from chainapi._paging.checkpoint import Watermark
from chainapi._paging.given import Given, Hashes, JudgedRows, _Marks, _Neighbors
from chainapi._paging.prefetch import Prefetcher
from chainapi._paging.rows import RowsOfPage
from chainapi._paging.runner import WalkRunner
from chainapi._paging.walk import Answer, Fetch, Fetched, LoopGuard, PageToken, Walk, WalkState
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
    real = Walk.fetch
    return patch.object(Walk, "fetch", lambda self, token: _ageless(real(self, token)))


def _ageless(fetch: Fetch) -> Fetch:
    return Fetch(fetch.token, fetch.bound, inf, fetch.fresh)


@mutant(99, 175, machine=PagingMachine)
def age_from_receipt() -> AbstractContextManager[object]:
    """Count the age of a token from the arrival of its page."""

    def token(self: Fetched) -> PageToken | None:
        value = self.page.next_page_token
        now = asyncio.get_running_loop().time()
        return None if value is None else PageToken(value, now, self.sent.wall)

    return patch.object(Fetched, "token", property(token))


@mutant(62, 130, machine=PagingMachine)
def age_by_the_wall_clock() -> AbstractContextManager[object]:
    """Age every token by the wall clock, as if it came from a checkpoint."""

    def token(self: Fetched) -> PageToken | None:
        value = self.page.next_page_token
        return None if value is None else PageToken(value, None, self.sent.wall)

    return patch.object(Fetched, "token", property(token))


@mutant(54, 282)
def age_forgotten_on_resume() -> AbstractContextManager[object]:
    """Take the token of a checkpoint for new."""
    real = Walk.next_fetch
    return patch.object(Walk, "next_fetch", lambda self, now, wall: real(self, now, 0.0))


@mutant(129, 196)
def counted_a_row_late() -> AbstractContextManager[object]:
    """Count all rows of a page but the last one."""
    real = Hashes.add
    return patch.object(Hashes, "add", lambda self, hashes: real(self, hashes[:-1]))


@mutant(165, 27)
def span_a_page_short() -> AbstractContextManager[object]:
    """Leave the last page out of the span of numbers given."""
    real = Given._passed

    def passed(self: Given, before: Watermark, rows: Any, indices: Any) -> Any:
        after, stale = real(self, before, rows, indices)
        short = Watermark(after.number_field, before.spans or after.spans, after.at, before.ties, after.met)
        return (short if before.spans else after), stale

    return patch.object(Given, "_passed", passed)


@mutant(21, 27)
def offset_lost_on_resume() -> AbstractContextManager[object]:
    """Begin the page again in which the reader stood."""
    return patch.object(Walk, "_inside", lambda self: replace(self._start, watermark=None))


@mutant(21, 27)
def offset_off_by_one() -> AbstractContextManager[object]:
    """Count the row in hand as given before it is, and the next one with it."""
    real = Walk._inside

    def inside(self: Walk) -> Checkpoint:
        with patch.object(Walk, "_offset", self._offset + 1):
            return real(self)

    return patch.object(Walk, "_inside", inside)


@mutant(93, 116)
def restart_keeps_the_token() -> AbstractContextManager[object]:
    """Restart with the token that has died."""
    real = Walk._expire

    def expire(self: Walk, reason: str, refusal: APIStatusError | None = None) -> None:
        token = self.token
        real(self, reason, refusal)
        self.token = token

    return patch.object(Walk, "_expire", expire)


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

    def repeats(self: Walk, token: PageToken, judged: JudgedRows) -> bool:
        return self._guard.loops(token.value, judged.signature)

    return patch.object(Walk, "_repeats", repeats)


@mutant(99, 175, machine=PagingMachine)
def prefetch_ignores_age() -> AbstractContextManager[object]:
    """Fetch pages ahead with tokens that are dead."""
    real = Prefetcher._spawn

    def spawn(self: Prefetcher, token: PageToken | None) -> None:
        fetch = Walk.fetch
        with patch.object(Walk, "fetch", lambda self, token: _ageless(fetch(self, token))):
            real(self, token)

    return patch.object(Prefetcher, "_spawn", spawn)


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

    def fetch(self: WalkRunner, fetch: Fetch) -> Any:
        ahead = self._ahead
        if ahead is not None and fetch.token is not None and ahead._tasks:
            return ahead.take()
        return self._source.fetch(fetch, self._is_open)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(WalkRunner, "_fetch", fetch), patch.object(Prefetcher, "cancel", lambda self: None):
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
            self._walk.state = WalkState.EXHAUSTED
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
            before.checkpoint = page.checkpoint
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
    real = Given.__init__

    def init(self: Given, identity: Any, *, watermark: Watermark | None = None, **options: Any) -> None:
        real(self, identity, watermark=None if watermark is None else change(watermark), **options)

    return patch.object(Given, "__init__", init)


@mutant(197, 323)
def watermark_forgotten_on_resume() -> AbstractContextManager[object]:
    """Begin with no number given after a resume."""
    return _resumed_from(lambda watermark: None)


@mutant(21, 415)
def marks_forgotten() -> AbstractContextManager[object]:
    """Count the rows of a page that were given, instead of comparing their marks."""
    return patch.object(Given, "marks_given", lambda self, given, stale: ())


@mutant(441, 442)
def marks_as_a_set() -> AbstractContextManager[object]:
    """Leave out, after a resume inside a page, all rows that have one of its marks."""
    real = _Marks._matches

    def matches(self: _Marks, own: str) -> bool:
        marks = Counter(self._marks)
        try:
            return real(self, own)
        finally:
            self._marks = marks

    return patch.object(_Marks, "_matches", matches)


@mutant(0, 27)
def refused_token_is_an_error() -> AbstractContextManager[object]:
    """Raise the refusal of a token as any other error."""
    return patch.object(Walk, "_is_refused", lambda self, error: False)


@mutant(0, 28)
def restarts_without_end() -> AbstractContextManager[object]:
    """Restart again and again, without regard to progress."""
    real = Walk._expire

    def expire(self: Walk, reason: str, refusal: APIStatusError | None = None) -> None:
        self._reached = 0
        real(self, reason, refusal)

    return patch.object(Walk, "_expire", expire)


@mutant(527, 734)
def restart_forgets_the_spans() -> AbstractContextManager[object]:
    """Forget the numbers given when the walk restarts."""
    real = Given.restart

    def restart(self: Given) -> None:
        real(self)
        if self._watermark is not None:
            self._watermark = Watermark(self._watermark.number_field)

    return patch.object(Given, "restart", restart)


@mutant(129, 196)
def restart_forgets_the_counts() -> AbstractContextManager[object]:
    """Forget the rows counted when the walk restarts."""
    return patch.object(Hashes, "add_pass", lambda self, later: None)


@mutant(202, 248)
def restart_keeps_what_was_met() -> AbstractContextManager[object]:
    """Take the rows that the pass before met for rows of the new one."""
    real = Given.restart

    def restart(self: Given) -> None:
        met = self._met
        real(self)
        self._met = met

    return patch.object(Given, "restart", restart)


@mutant(2, 4)
def empty_page_is_the_end() -> AbstractContextManager[object]:
    """Take an empty page for the last one."""
    real: Callable[[Fetched], PageToken | None] = Fetched.token.fget  # type: ignore[attr-defined]
    return patch.object(Fetched, "token", property(lambda self: real(self) if self.page.rows else None))


# Equal rows, keys and order


def _also_stale(drop: Callable[[Given, RowsOfPage, JudgedRows], set[int]]) -> AbstractContextManager[object]:
    """Leave more rows out than the real code."""
    real = Given.judge

    def judge(self: Given, page: RowsOfPage) -> JudgedRows:
        judged = real(self, page)
        return replace(judged, stale={*judged.stale, *drop(self, page, judged)})

    return patch.object(Given, "judge", judge)


@mutant(6, 10)
def equal_rows_of_a_page_dropped() -> AbstractContextManager[object]:
    """Give one of the rows of a page that are equal."""

    def drop(_: Given, page: RowsOfPage, __: JudgedRows) -> set[int]:
        contents = list(page.canonical_rows())
        return {index for index, content in enumerate(contents) if content in contents[:index]}

    return _also_stale(drop)


@mutant(11, 21)
def equal_rows_of_two_pages_dropped() -> AbstractContextManager[object]:
    """Take a row for repeated that is equal to one of the page before, without a key."""
    before: dict[int, set[bytes]] = {}

    def drop(self: Given, page: RowsOfPage, _: JudgedRows) -> set[int]:
        contents = list(page.canonical_rows())
        known, before[id(self._identity)] = before.get(id(self._identity), set()), set(contents)
        return {index for index, content in enumerate(contents) if content in known}

    return _also_stale(drop)


@mutant(154, 204)
def seen_or_not_after_a_restart() -> AbstractContextManager[object]:
    """Leave out, in a later pass, every row that is equal to one that was given."""

    def again(self: Given, rows: Any, indices: Any) -> set[int]:
        return {index for index in indices if rows.hashes[index] in self._before}

    return patch.object(Given, "_again", again)


@mutant(7, 95)
def shifted_rows_given_again() -> AbstractContextManager[object]:
    """Do not compare keys with earlier pages."""

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(_Neighbors, "_known", lambda self: {}),
            patch.object(Hashes, "__contains__", lambda self, one: False),
        ):
            yield

    return both()


@mutant(26, 70)
def rows_beyond_the_neighbors_given_again() -> AbstractContextManager[object]:
    """Compare keys with those of the last pages only."""
    return patch.object(Hashes, "__contains__", lambda self, one: False)


@mutant(42, 73)
def key_never_given_up() -> AbstractContextManager[object]:
    """Use a key that rows of one page share."""
    return patch.object(Given, "_give_up_key", lambda self, page: None)


@mutant(73, 91)
def key_given_up_by_the_page_only() -> AbstractContextManager[object]:
    """Use a key again on the page after the one that refuted it."""
    real = Given._give_up_key

    def give_up(self: Given, page: Any) -> None:
        real(self, page)
        self._keyed = True

    return patch.object(Given, "_give_up_key", give_up)


@mutant(4, 311)
def each_restart_is_exact() -> AbstractContextManager[object]:
    """Promise that no row comes again."""
    return patch.object(Given, "exact", property(lambda self: True, lambda self, value: None), create=True)


@mutant(26, 70)
def order_believed() -> AbstractContextManager[object]:
    """Check no number but those of the spans."""
    return patch.object(Given, "_in_order", lambda self, mark, rows, indices: (len(indices), None))


@mutant(93, 248)
def order_is_proof() -> AbstractContextManager[object]:
    """Know all rows of an ordered list by their numbers."""
    return patch.object(Given, "_records", lambda self: self._watermark is None and self._counting)


@mutant(11, 127)
def spans_believed_after_a_break() -> AbstractContextManager[object]:
    """Leave out the rows behind a break whose numbers lie in a span."""
    spans = dict[int, Any]()
    real = Given._break_order

    def break_order(self: Given) -> None:
        spans[id(self._identity)] = () if self._watermark is None else self._watermark.spans
        real(self)

    def drop(self: Given, _: RowsOfPage, __: JudgedRows) -> set[int]:
        known = spans.get(id(self._identity), ()) if not self.ordered else ()
        numbers = enumerate(self.page.numbers)
        return {
            index
            for index, number in numbers
            if number is not None and any(low <= number <= high for high, low in known)
        }

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(Given, "_break_order", break_order), _also_stale(drop):
            yield

    return both()


@mutant(48, 91)
def ties_at_the_end_of_a_span_dropped() -> AbstractContextManager[object]:
    """Take every row for given that has the number at which a span ends."""
    real = given._is_inside
    return patch.object(given, "_is_inside", lambda mark, number, *, unique: real(mark, number, unique=True))


@mutant(1225, 1489)
def ties_at_the_end_of_a_span_given_again() -> AbstractContextManager[object]:
    """Take no row for given that has the number at which a span ends."""
    real = Given._passed
    return patch.object(Given, "_passed", lambda self, *args: (real(self, *args)[0], frozenset()))


@mutant(1041)
def spans_joined_by_a_tie() -> AbstractContextManager[object]:
    """Join two spans at a number although only some of its rows were given."""
    real = given._joined

    def joined(spans: Any, above: int, number: int, *, unique: bool) -> Any:
        return real(spans, above, number, unique=True)

    return patch.object(given, "_joined", joined)


@mutant(341, 484)
def ties_met_not_in_the_checkpoint() -> AbstractContextManager[object]:
    """Forget at a resume which rows with the last number this pass has met."""
    return _resumed_from(lambda watermark: replace(watermark, met=()))


# Refused tokens


@mutant(91, 387)
def refused_token_restarts_at_once() -> AbstractContextManager[object]:
    """Take every refusal for the death of the token."""
    real = Walk._is_refused

    def refused(self: Walk, error: APIStatusError) -> bool:
        self._opener = None
        return real(self, error)

    return patch.object(Walk, "_is_refused", refused)


@mutant(756, 1312)
def renewed_token_not_used() -> AbstractContextManager[object]:
    """Continue with the token that was refused, not with the new one."""
    real, refuse = Walk._check, Walk._is_refused
    refused_tokens: dict[int, PageToken | None] = {}

    def refused(self: Walk, error: APIStatusError) -> bool:
        refused_tokens[id(self)] = self.token
        return refuse(self, error)

    def check(self: Walk, fetched: Fetched) -> None:
        restarts = self.restarts
        real(self, fetched)
        if self.restarts == restarts:
            self.token = refused_tokens[id(self)]

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(Walk, "_is_refused", refused), patch.object(Walk, "_check", check):
            yield

    return both()


@mutant(1327)
def page_before_not_compared() -> AbstractContextManager[object]:
    """Continue with a new token although the page that it came with has changed."""
    real = Walk._check

    def check(self: Walk, fetched: Fetched) -> None:
        with patch.object(Given, "signature", lambda given, page: self._judged_rows.signature):
            real(self, fetched)

    return patch.object(Walk, "_check", check)


@mutant(543, 7779)
def refused_page_refused_for_good() -> AbstractContextManager[object]:
    """Take a token for tried once and for all, although it may have died since."""
    real = Walk._is_refused

    def refused(self: Walk, error: APIStatusError) -> bool:
        renewed = self._renewed
        try:
            return real(self, error)
        finally:
            self._renewed = renewed

    return patch.object(Walk, "_is_refused", refused)


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
    real = Given._break_order

    def break_order(self: Given) -> None:
        real(self)
        self._before = Hashes()

    return patch.object(Given, "_break_order", break_order)


@mutant(2_255, 2_770)
def rows_before_a_break_forgotten() -> AbstractContextManager[object]:
    """Count only the rows behind the break of an order."""
    real = Given._break_order

    def break_order(self: Given) -> None:
        real(self)
        self._met = Hashes()

    return patch.object(Given, "_break_order", break_order)


@mutant(263, 1_573)
def refuted_key_believed_after_a_resume() -> AbstractContextManager[object]:
    """Leave out of checkpoints that the key was given up."""
    return patch.object(Given, "keyless", False)


@mutant(396, 513)
def changed_row_refutes_no_number() -> AbstractContextManager[object]:
    """Use a number as key although another row had it on the page before."""
    return patch.object(_Neighbors, "_is_other", lambda self, page, index, known, place: False)
