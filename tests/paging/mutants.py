"""Broken variants of the walk: each replaces one function or attribute of the real code.

This is the one place where parts of chainapi are patched, because that is its point: a promise that a broken
walk keeps as well is no promise.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import Any
from unittest.mock import patch

from attrs import evolve

from chainapi import prefetch
from chainapi.core import paging
from chainapi.core.checkpoint import Checkpoint
from chainapi.core.dedupe import Digests, Ordered
from chainapi.core.paging import LoopGuard, PageToken, Walk
from chainapi.errors import ChainAPIError, ServerError
from chainapi.models.decode import DecodedPage
from chainapi.pages import Page, Pages
from chainapi.prefetch import Ahead, Fetched

__all__ = ["MUTANTS"]

Mutant = Callable[[], AbstractContextManager[object]]
MUTANTS: dict[str, Mutant] = {}


def mutant(make: Callable[[], AbstractContextManager[object]]) -> Mutant:
    """Enter a mutant in the list."""
    MUTANTS[make.__name__] = make
    return make


@mutant
def no_age_check() -> AbstractContextManager[object]:
    """Let tokens live for ever."""
    return patch.object(Walk, "dies_at", lambda self, token: inf)


@mutant
def age_from_receipt() -> AbstractContextManager[object]:
    """Count the age of a token from when its page came."""

    def token(self: Fetched) -> PageToken | None:
        value = self.page.next_page_token
        now = asyncio.get_running_loop().time()
        return None if value is None else PageToken(value, now, self.sent.wall)

    return patch.object(Fetched, "token", property(token))


@mutant
def age_by_the_wall_clock() -> AbstractContextManager[object]:
    """Judge every token by the wall clock, as if it came from a checkpoint."""

    def token(self: Fetched) -> PageToken | None:
        value = self.page.next_page_token
        return None if value is None else PageToken(value, None, self.sent.wall)

    return patch.object(Fetched, "token", property(token))


@mutant
def age_forgotten_on_resume() -> AbstractContextManager[object]:
    """Take the token of a checkpoint for new."""
    real = Walk.next_token

    def next_token(self: Walk, now: float, wall: float) -> str | None:
        if self.token is not None and self.token.minted is None:
            self.token = evolve(self.token, minted=now)
        return real(self, now, wall)

    return patch.object(Walk, "next_token", next_token)


@mutant
def digests_a_page_late() -> AbstractContextManager[object]:
    """Compare rows with those of all pages but the last."""
    real = Digests.stale
    late: dict[int, Sequence[Any]] = {}

    def stale(self: Digests, rows: Sequence[Any]) -> Collection[int]:
        before, late[id(self)] = late.get(id(self), ()), rows
        known = Digests()
        known._known = self._known
        met = [index for index, row in enumerate(rows) if not _is_new(known, row)]
        real(self, before)
        return met

    return patch.object(Digests, "stale", stale)


def _is_new(digests: Digests, row: object) -> bool:
    """Tell whether a row is new, without putting it in."""
    from chainapi.core.dedupe import _digest
    from chainapi.core.digests import SIZE, TABLES, _find

    digest = _digest(row)
    table = digests._known._tables[digest[0] % TABLES]
    at = _find(table, digest)
    return bool(table[at : at + SIZE] != digest)


@mutant
def span_a_page_short() -> AbstractContextManager[object]:
    """Leave the last page out of the span of keys given."""
    real = Ordered.stale

    def stale(self: Ordered, rows: Sequence[Any]) -> Collection[int]:
        met = real(self, rows)
        spans, last = self._before
        if rows and spans:
            self._spans, self._last = spans, last
        return met

    return patch.object(Ordered, "stale", stale)


@mutant
def offset_lost_on_resume() -> AbstractContextManager[object]:
    """Begin the page again in which the reader stood."""
    return patch.object(
        Pages, "_inside", lambda self: evolve(self._start, rows=self._start.rows, watermark=None)
    )


@mutant
def offset_off_by_one() -> AbstractContextManager[object]:
    """Count the row in hand as given before it is, and the next one with it."""
    real = Pages._inside

    def inside(self: Pages[Any]) -> Checkpoint:
        offset, self._offset = self._offset, self._offset + 1
        try:
            return real(self)
        finally:
            self._offset = offset

    return patch.object(Pages, "_inside", inside)


@mutant
def restart_keeps_the_token() -> AbstractContextManager[object]:
    """Restart with the token that has died."""
    real = Walk._expire

    def expire(self: Walk, reason: str) -> None:
        token = self.token
        real(self, reason)
        self.token = token

    return patch.object(Walk, "_expire", expire)


@mutant
def loop_guard_on_tokens_alone() -> AbstractContextManager[object]:
    """Take every token that comes again for a loop."""
    known: dict[int, set[str]] = {}

    def loops(self: LoopGuard, token: str, rows: Sequence[object], body: int) -> bool:
        tokens = known.setdefault(id(self._recent), set())
        known[-1] = set()
        again = token in tokens
        tokens.add(token)
        return again

    real = LoopGuard.__init__

    def init(self: LoopGuard) -> None:
        real(self)
        self._recent = OrderedDict()
        known.pop(id(self._recent), None)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(LoopGuard, "loops", loops), patch.object(LoopGuard, "__init__", init):
            yield

    return both()


@mutant
def no_loop_guard() -> AbstractContextManager[object]:
    """Go round in circles."""
    return patch.object(LoopGuard, "loops", lambda self, token, rows, body: False)


@mutant
def prefetch_ignores_age() -> AbstractContextManager[object]:
    """Fetch pages ahead with tokens that are dead."""
    real = Ahead.__init__

    def init(self: Ahead, owner: Any, depth: int, fetch: Any, alive: Any) -> None:
        source, bound = owner._source, owner._start.bound
        real(
            self,
            owner,
            depth,
            fetch=lambda token: source.fetch(token.value, bound, inf),
            alive=lambda token: True,
        )

    return patch.object(Ahead, "__init__", init)


@mutant
def prefetch_gives_a_page_twice() -> AbstractContextManager[object]:
    """Leave the page that was taken where it was, once."""

    async def take(self: Ahead) -> Fetched | ChainAPIError | None:
        task = self._tasks[0]
        await asyncio.wait((task,))
        if not self._tasks:
            return None
        if getattr(task, "taken", False) or len(self._tasks) == 1:
            self._tasks.popleft()
            self._token = prefetch._token_after(task.result())
        else:
            task.taken = True  # type: ignore[attr-defined]
            self._token = prefetch._token_after(task.result())
        return task.result()

    return patch.object(Ahead, "take", take)


@mutant
def prefetch_outlives_the_stream() -> AbstractContextManager[object]:
    """Cancel nothing that is on its way."""
    return patch.object(Ahead, "cancel", lambda self: self._tasks.clear())


@mutant
def prefetch_survives_a_restart() -> AbstractContextManager[object]:
    """Give the pages fetched with the old token after a restart, as if they came after its first page."""

    def holds(self: Ahead, token: PageToken | None) -> bool:
        return token is not None and bool(self._tasks)

    @contextmanager
    def both() -> Iterator[None]:
        with patch.object(Ahead, "holds", holds), patch.object(Pages, "_drop_ahead", lambda self: None):
            yield

    return both()


@mutant
def error_ends_the_walk() -> AbstractContextManager[object]:
    """Take a failed page for the end, as if the list were whole."""
    real = Pages._fetch

    async def fetch(self: Pages[Any]) -> Page[Any] | None:
        try:
            return await real(self)
        except ServerError:
            self._walk.state = paging.State.EXHAUSTED
            return None

    return patch.object(Pages, "_fetch", fetch)


@mutant
def checkpoint_of_the_next_page() -> AbstractContextManager[object]:
    """Give out, for the page in hand, where the stream stands one page further on."""
    real = Pages._open

    def opened(self: Pages[Any], decoded: DecodedPage, token: PageToken | None) -> Page[Any]:
        before = self._page
        page = real(self, decoded, token)
        if before is not None:
            before.checkpoint = page.checkpoint
        return page

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(Pages, "_open", opened),
            patch.object(Pages, "_inside", lambda self: self._page.checkpoint),
        ):
            yield

    return both()


@mutant
def watermark_forgotten_on_resume() -> AbstractContextManager[object]:
    """Begin with no key given after a resume."""
    real = Ordered.__init__

    def init(self: Ordered, key: Callable[[Any], int], watermark: object = None) -> None:
        real(self, key)

    return patch.object(Ordered, "__init__", init)


@mutant
def marks_forgotten() -> AbstractContextManager[object]:
    """Count the rows of a page that were given, instead of telling them by their marks."""
    return patch.object(Digests, "marks", lambda self, rows: ())


@mutant
def refused_token_is_an_error() -> AbstractContextManager[object]:
    """Raise the refusal of a token as any other error."""
    return patch.object(Walk, "refused", lambda self, status: False)


@mutant
def restarts_without_end() -> AbstractContextManager[object]:
    """Restart again and again, without regard to progress."""
    real = Walk._expire

    def expire(self: Walk, reason: str) -> None:
        self.reached = 0
        real(self, reason)

    return patch.object(Walk, "_expire", expire)


@mutant
def restart_forgets_the_spans() -> AbstractContextManager[object]:
    """Forget the keys given when the walk restarts."""

    def restart(self: Ordered) -> None:
        self._spans, self._last = (), None

    return patch.object(Ordered, "restart", restart)


@mutant
def restart_forgets_the_digests() -> AbstractContextManager[object]:
    """Forget the digests when the walk restarts."""

    def restart(self: Digests) -> None:
        self._known = Digests()._known

    return patch.object(Digests, "restart", restart)


@mutant
def empty_page_is_the_end() -> AbstractContextManager[object]:
    """Take an empty page for the last one."""
    real = Walk.received

    def received(self: Walk, token: PageToken | None, *, rows: Sequence[object], body: int) -> None:
        real(self, token if rows else None, rows=rows, body=body)

    return patch.object(Walk, "received", received)


@mutant
def dead_in_the_queue_yet_sent() -> AbstractContextManager[object]:
    """Look at the age of a token only before its request waits for quota."""
    from chainapi.calls import Ask

    real = Ask.__init__

    def init(self: Ask, service: Any, query: Any, page_token: str | None = None, *_: object) -> None:
        real(self, service, query, page_token)

    return patch.object(Ask, "__init__", init)


@mutant
def exhausted_too_early() -> AbstractContextManager[object]:
    """Call the walk exhausted as soon as its last page is here, though its rows were not given."""
    return patch.object(Pages, "exhausted", property(lambda self: self._walk.exhausted))


@mutant
def partial_list_after_close() -> AbstractContextManager[object]:
    """Give what there is when the stream is closed under `collect`."""

    async def collect(self: Pages[Any], limit: int | None = None) -> list[Any]:
        rows = []
        async for row in self.items():
            rows.append(row)
            if len(rows) == limit:
                break
        return rows

    return patch.object(Pages, "collect", collect)
