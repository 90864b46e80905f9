"""Machine: a reader that uses all of paging, and loses or repeats no row.

The machine draws the manners of a service, then reads pages and rows, leaves, resumes from any checkpoint
it has seen, through text and in a new session, waits for seconds or days, is cancelled, moves the wall
clock, and lets the service change its rows, forget tokens, shut pages and fail. In the end it reads all that
is left, and compares.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any, Literal
from unittest.mock import patch

from attrs import evolve, frozen

from chainapi import Checkpoint
from chainapi._paging import given, walk
from chainapi.errors import (
    APIConnectionError,
    ChainAPIError,
    DecodeError,
    PageRefusedError,
    PageTokenExpiredError,
    PaginationLoopError,
    PagingError,
    RateLimitedError,
    ServerError,
    SessionClosedError,
)
from chainapi.events import (
    Event,
    KeyNotUnique,
    LoopFound,
    OrderBroken,
    PageReceived,
    Restarted,
    TokenRenewed,
)
from tests.paging.oracle import Walked
from tests.paging.service import LIFETIME, SHUT, Fault, Label, Manners, Service
from tests.paging.worlds import EPOCH, World

__all__ = ["PagingMachine"]

READS = 60  # attempts at reading the rest; every fault and every death of a token takes one


@frozen
class Saved:
    """Checkpoint, and the rows that had been given when it was taken."""

    checkpoint: Checkpoint
    walked: Walked


How = Literal["pages", "rows", "collect"]


def _sound(drawn: Manners) -> Manners:
    """Return the manners without those that exclude each other."""
    if drawn.tokens == "scroll":  # the same token with equal pages would be a loop
        drawn = evolve(drawn, empties=0, repeat=None, names="own", ties=1, clash=1)
    if drawn.tokens == "overlap":
        drawn = evolve(drawn, page_size=max(2, drawn.page_size), repeat=None)
    if drawn.tokens != "anchored":
        drawn = evolve(drawn, cycle=None)
    if drawn.cycle is not None:
        drawn = evolve(drawn, repeat=None)
    if drawn.stillborn:  # no page behind the first one, so no end to repeat
        drawn = evolve(drawn, repeat=None)
    if drawn.repeat is not None:  # with the real limits the walk would end after 1,000 pages
        drawn = evolve(drawn, small=True)
    return evolve(drawn, until=drawn.until and drawn.kind in ("ordered", "both", "bykey"))


def _scaled_down(manners: Manners) -> ExitStack:
    """Scale the limits of the client down, so that lists of a few rows reach them."""
    stack = ExitStack()
    if not manners.small:
        return stack
    stack.enter_context(patch.object(given, "NEIGHBORS", 6))
    stack.enter_context(patch.object(given, "MAX_TIES", 4))
    stack.enter_context(patch.object(given, "HEAD", 8))
    if manners.repeat is not None:  # else many equal rows are no loop
        stack.enter_context(patch.object(walk, "MAX_IDLE_PAGES", 40))
    return stack


class PagingMachine:
    """Machine of one service and one reader at a time, all in virtual time.

    It makes the service, and a stream over it in a session, as users have it.
    """

    model: Any = None  # of rows that are no points

    def __init__(self, drawn: Manners, rows: int, prefetch: int, patience: bool) -> None:
        self.saved: list[Saved] = []
        self.hopeless = False
        self.collecting = False
        self.renewed = False  # a token was, and none died since
        self.depth = 0  # pages since a stream or a pass began
        self.manners = _sound(drawn)
        self.limits = _scaled_down(self.manners)
        self.service = Service(self.manners)
        self.service.insert(rows)
        self.max_attempts = 4 if patience else 1
        self.world = World(self.service, self.max_attempts, self._hear, self.model)
        self._start_over(prefetch)

    def _start_over(self, prefetch: int = 0) -> None:
        """Begin with another walk: the rows to be given are those of now."""
        self.hopeless = False
        self.walked = Walked(frozenset(row.serial for row in self.service.rows))
        self._open(None, prefetch, "restart")

    @property
    def fragile(self) -> bool:
        """Return whether the service never repeats what it once gave."""
        return self.manners.tokens == "scroll"

    def _open(
        self, resume: Checkpoint | None, prefetch: int, on_expired: Literal["restart", "raise"]
    ) -> None:
        self.pages = self.world.open(resume, prefetch, on_expired)
        self.closed = False
        self.serial = self.depth = 0

    # What the reader learns

    def _hear(self, event: Event) -> None:
        walked, service, manners = self.walked, self.service, self.manners
        match event:
            case Restarted():
                self._hear_restart(event)
            case LoopFound():
                assert manners.circles, "a loop where there is none"
                self.hopeless = True
            case PageReceived():
                assert event.rows <= manners.page_size
                self.depth = event.page
            case TokenRenewed():
                assert service.refused, "a new token without a refusal"
                self.renewed = True
            case KeyNotUnique():
                assert manners.keyed, "a key where none is declared"
                assert any(count > 1 for count in service.shared.values()) or (
                    manners.numbered and (manners.shifts or manners.circles) and service.changed
                ), "a key is refuted that is unique"
                walked.refute_key(self._names_before())
            case OrderBroken():
                assert manners.ordered, "an order where none is declared"
                assert self._may_break(event), f"an order is refuted that holds: {event}"
                walked.refute_order()

    def _names_before(self) -> set[int]:
        """Return the names of the rows on pages before the one in hand."""
        serial = json.loads(self.pages.walk.page.body)["lastRun"]
        return {name for at, labels in self.service.pages.items() if at < serial for name, _ in labels}

    def _may_break(self, event: OrderBroken) -> bool:
        """Check whether a page may show rows that rise, or too many with one number."""
        walked, service, manners = self.walked, self.service, self.manners
        if "share" in event.reason:
            return manners.small
        if service.disordered or manners.tokens == "position":  # which lets new rows in below older ones
            return True
        known = manners.keyed and not (walked.resumed or walked.keyless or manners.small)
        return (manners.shifts or manners.circles) and not known

    def _hear_restart(self, event: Restarted) -> None:
        walked, manners = self.walked, self.manners
        if not event.exact:
            walked.inexact = True
            assert not manners.ordered or walked.broken or walked.keyless or walked.resumed, (
                "hashes and the order tell which rows were given"
            )
            lost = walked.paged or walked.resumed or walked.keyless or manners.small
            assert lost, "each row was counted"
        if "resumed" not in event.reason:
            walked.restarts += 1
            walked.begin_again(known=not self.collecting)
            walked.begin_pass(self.service)
            walked.last = None
            self._check_reason(event)
            self.depth = 0
        assert event.restarts == walked.restarts, "a restart was not reported"

    def _check_reason(self, event: Restarted) -> None:
        """Check that a restart has a token that died as its reason."""
        service, now = self.service, self.world.time()
        if "refused" in event.reason:
            assert service.refused, "a restart without a refusal"
            proof = service.forgot or service.altered or self.manners.stillborn or self.depth <= 1
            same = self.fragile or self.manners.circles  # pages that one and the same token opens
            assert proof or same, "a restart although no token died"
        elif not service.wall_went_back and self.world.wall == EPOCH:
            assert service.oldest is not None
            assert now - service.oldest >= LIFETIME - 1e-3, "a restart although no token is old"

    # What the reader does

    def read_pages(self, count: int) -> None:
        """Read pages as they are."""
        self._run(lambda: self._pages(count))

    def read_rows(self, count: int) -> None:
        """Read rows, and break."""
        self._run(lambda: self._rows(count))

    def collect(self, limit: int | None) -> None:
        """Collect some rows, or all."""
        self._run(lambda: self._collect(limit))

    def cancelled(self, delay: float, how: How) -> None:
        """Cancel the reader at any time."""
        if how != "collect":  # whose rows would be lost with it
            self._run(lambda: self._stopped(delay, how, None))

    def closed_meanwhile(self, delay: float, how: How, session: bool) -> None:
        """Close the stream or its session in a read; resume from its checkpoint."""
        end = "session" if session else "stream"
        self.closed = True
        self._run(lambda: self._stopped(delay, how, end))
        self._resume(Saved(self.pages.checkpoint, self.walked), 0, "restart")

    def resume(
        self,
        back: int,
        prefetch: int,
        on_expired: Literal["restart", "raise"],
        close: bool,
        grown: int,
        shrunk: int,
    ) -> None:
        """Resume from a checkpoint seen before, through text, in a new session.

        The list has changed.
        """
        self.saved.append(Saved(self.pages.checkpoint, self.walked.copy()))
        if close:
            self._run(self.pages.aclose)
        self.service.insert(grown)
        given = [at for at, row in enumerate(self.service.rows) if self.walked.given[row.label]]
        for at in reversed(given[-shrunk:] if shrunk else []):
            self.service.delete(at)
        self._resume(self.saved[-1 - back % len(self.saved)], prefetch, on_expired)

    def interrupted(self, count: int, grown: int, shrunk: int) -> None:
        """Read some rows, and read on another day, when the list has changed."""
        self._run(lambda: self._rows(count))
        self.resume(back=0, prefetch=0, on_expired="restart", close=True, grown=grown, shrunk=shrunk)

    def _resume(self, saved: Saved, prefetch: int, on_expired: Literal["restart", "raise"]) -> None:
        if self.hopeless and self.manners.repeat is not None:
            self._start_over()  # resumed behind a loop, a walk goes round for twice as many pages
            return
        checkpoint = Checkpoint.loads(saved.checkpoint.dumps())
        self.walked = walked = saved.walked.copy()
        walked.resumed = True
        walked.inside |= checkpoint.offset > 0
        walked.begin_again()
        if checkpoint.token is None or checkpoint.offset:
            walked.last = None  # rows that were inserted above are given now
        self._open(checkpoint, prefetch, on_expired)
        assert self.pages.checkpoint == checkpoint
        assert self.pages.exhausted == checkpoint.done

    # What happens meanwhile

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._run(lambda: asyncio.sleep(seconds))

    def wait_for_death(self, late: float) -> None:
        """Wait until the token in hand is as old as its lifetime, or nearly."""
        token = self.service.tokens.get(self.pages.checkpoint.token or "")
        if token is not None:
            self._run(lambda: asyncio.sleep(max(0.0, token.requested + LIFETIME + late - self.world.time())))

    def move_wall_clock(self, seconds: float) -> None:
        """Set the wall clock."""
        self.world.wall += seconds
        self.service.wall_went_back |= seconds < 0

    def insert(self, count: int) -> None:
        """Add rows."""
        self.service.insert(count)

    def delete(self, index: int) -> None:
        """Delete a row."""
        self.service.delete(index)

    def copy(self, index: int) -> None:
        """Add a row equal to another one, beside it."""
        self.service.copy(index)

    def mislay(self, index: int) -> None:
        """Add a new row anywhere, even against the descending order of a list."""
        self.service.mislay(index)

    def change(self, index: int) -> None:
        """Change a row."""
        self.service.change(index)

    def move(self, index: int) -> None:
        """Move a row, as if it was written again."""
        self.service.move(index)

    def shut(self) -> None:
        """Refuse the next page, whichever its token."""
        self.service.shut_page(next(reversed(self.service.tokens), None))

    def reopen(self) -> None:
        """Refuse no page any more."""
        self.service.shut_page(None)

    def fail(self, fault: Fault, count: int) -> None:
        """Let the next requests fail."""
        if not (self.fragile and fault.broken):
            self.service.faults.extend([fault] * count)

    def forget_tokens(self, newest: int | None) -> None:
        """Let tokens die early: all, or the newest."""
        self.service.forget(newest)
        self.renewed = False

    # The end

    def end(self) -> None:
        """End the world, and restore the limits of the client."""
        self.limits.close()
        self.world.close()

    def finish(self) -> None:
        """Read all that is left, and look for leftovers."""
        self.service.shut_page(None)
        for _ in range(READS):
            if self.hopeless or self.pages.exhausted:
                break
            self._run(lambda: self._collect(None))
        assert self.hopeless or self.pages.exhausted, "the walk never ends"
        if self.hopeless and self.manners.repeat is not None:
            self._check_whole()  # all pages were there before the service began to repeat them
        del self.pages
        self.world.check_left()

    def _check_whole(self) -> None:
        """Check that all rows that were always there have been given."""
        missing = self.walked.missing(self.service)
        assert not missing, f"rows are lost: {missing}"

    # How it does so

    def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        self.world.run(self._met(work))
        if self.pages.exhausted and not self.closed:
            assert self.pages.checkpoint.done
            self._check_whole()

    async def _met(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run some work; check an error, and resume at its checkpoint."""
        try:
            await work()
        except ChainAPIError as error:
            self._check_error(error)
            checkpoint = error.checkpoint
            assert checkpoint is not None, "an error without a checkpoint"
            assert checkpoint == self.pages.checkpoint
            self.saved.append(Saved(checkpoint, self.walked.copy()))
            refused = isinstance(error, PageRefusedError)  # the same request may be sent again
            if isinstance(error, PageTokenExpiredError) and not self.hopeless and not refused:
                self._resume(self.saved[-1], 0, "restart")

    def _check_error(self, error: ChainAPIError) -> None:
        match error:
            case PaginationLoopError():
                assert self.hopeless
                assert not self.pages.exhausted
            case PageRefusedError():
                assert error.status == self.manners.dead_status
                assert error.messages == (SHUT,) or not self.renewed, "a new token was not tried"
            case PageTokenExpiredError():
                self.hopeless |= self.manners.stillborn  # however often it is resumed
            case SessionClosedError():
                pass
            case ServerError() | RateLimitedError() | APIConnectionError() | DecodeError():
                assert self.max_attempts == 1 or self.service.requests > 1
            case PagingError():
                assert self.closed, error
            case _:
                raise error

    async def _stopped(self, delay: float, how: How, end: str | None) -> None:
        """Read on, and be cancelled, or closed, after `delay` seconds."""
        match how:
            case "pages":
                reading = self._pages(99)
            case "rows":
                reading = self._rows(99)
            case "collect":
                reading = self._collect(None)
        await self.world.stop(reading, delay, end)

    async def _pages(self, count: int) -> None:
        for _ in range(count):
            offset, restarts = self.pages.checkpoint.offset, self.pages.restarts
            try:
                page = await anext(self.pages)
            except StopAsyncIteration:
                return
            self._take_page(page, begun=offset > 0 and page.restarts == restarts)

    def _take_page(self, page: Any, begun: bool) -> None:
        walked, labels = self.walked, [self._label(row) for row in page.items]
        assert page.restarts == walked.restarts, "a restart was not reported"
        serial = page.raw["lastRun"]
        sent, stale = self.service.pages[serial], set[int]()
        if begun:  # the rest of it
            assert _is_part(labels, sent), "not the page sent"
        else:
            assert labels == sent, "not the page sent"
            assert serial > self.serial, "a page was given twice"
            stale = set(self.pages.walk.stale)
        self.serial = serial
        walked.paged = True
        for index, row in enumerate(page.items):
            if index not in stale:
                walked.take(labels[index], self._number(row), self.service)
        walked.last = None
        self.saved.append(Saved(page.checkpoint, walked.copy()))

    async def _rows(self, count: int) -> None:
        left = count
        if self.pages.exhausted:
            return  # a stream is read once
        async for row in self._each():
            self._take_row(row)
            self.saved.append(Saved(self.pages.checkpoint, self.walked.copy()))
            left -= 1
            if not left:
                break

    def _each(self) -> AsyncIterator[Any]:
        """Read the rows one by one."""
        return self.pages.items()

    async def _all(self, limit: int | None) -> Any:
        """Read all rows at once."""
        return await self.pages.collect(limit)

    def _listed(self, result: Any) -> list[Any]:
        """Return the rows of a result of `_all`, or of the part before an error."""
        return result or []

    async def _collect(self, limit: int | None) -> None:
        if self.pages.exhausted:
            return  # a stream is read once
        self.collecting = True
        try:
            rows = self._listed(await self._all(limit))
        except ChainAPIError as error:
            for row in self._listed(error.partial):
                self._take_row(row, passes=True)
            raise
        finally:
            self.collecting = False
        for row in rows:
            self._take_row(row, passes=True)
        assert len(rows) == limit or self.pages.exhausted, "a partial list"

    def _take_row(self, row: Any, *, passes: bool = False) -> None:
        """Record a row; `passes` where a restart may lie before it."""
        walked, label = self.walked, self._label(row)
        walked.take(label, self._number(row), self.service)
        if not passes and walked.total == self.pages.checkpoint.rows:
            self._check_place(label)

    def _check_place(self, label: Label) -> None:
        """Check that rows are in the order of the list.

        The list must not change, and must show which row is which.
        """
        walked, service, manners = self.walked, self.service, self.manners
        if manners.names != "own" or service.changed or manners.shifts or manners.circles:
            return
        before, walked.last = walked.last, manners.place(label[0])
        assert before is None or walked.last < before or walked.inexact or walked.doubted, "rows out of order"

    def _label(self, row: Any) -> Label:
        value = row.value if self.manners.kind == "points" else row["value"]
        assert isinstance(value, int | float)
        return int(value), int(value % 1 * 8)

    def _number(self, row: Any) -> int:
        return int(row.timestamp if self.manners.kind == "points" else row["timestamp"])


def _is_part(labels: Sequence[Label], sent: Sequence[Label]) -> bool:
    """Check whether these rows are some of those, in the same order."""
    rest = iter(sent)
    return all(label in rest for label in labels)
