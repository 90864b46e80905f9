"""A reader that does everything a reader may do, and the promise that no row is lost or given twice.

The machine draws the manners of a service, then reads pages and rows, leaves, resumes from any checkpoint
it has seen, through text and in a new session, waits for seconds or days, is cancelled, moves the wall
clock, and lets the service change its rows, forget tokens and fail. In the end it reads whatever is left,
and compares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal

from attrs import define, evolve, field, frozen
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from chainapi import Checkpoint, Session
from chainapi.core.events import Event, LoopFound, PageReceived, Restarted
from chainapi.errors import (
    APIConnectionError,
    ChainAPIError,
    DecodeError,
    PageTokenExpiredError,
    PaginationLoopError,
    PagingError,
    RateLimitedError,
    ServerError,
    SessionClosedError,
)
from chainapi.pages import Pages
from tests.paging.service import LIFETIME, Fault, Manners, NastyTransport, Service, rank
from tests.virtual_time import VirtualLoop

__all__ = ["PagingMachine"]

EPOCH = 1_700_000_000.0  # what the wall clock shows when the loop's shows 0
READS = 60  # attempts at reading the rest; every fault and every death of a token takes one


@define
class Walked:
    """What a reader has by now: the rows given, and what they are judged by.

    Attributes:
        whole: the rows that were there when it began; those still there when it ends have to be given.
        given: the rows given, each once.
        last: the row given last in this pass.
        loose: rows may come again: an event said so, or no client could tell.
        grown: it was resumed inside a first page, which may have grown; pages tell nothing of that.
        restarts: how often the walk began again.

    """

    whole: frozenset[int]
    given: dict[int, None] = field(factory=dict[int, None])
    last: int | None = None
    loose: bool = False
    grown: bool = False
    restarts: int = 0

    def copy(self) -> Walked:
        """Return a copy that goes its own way."""
        return evolve(self, given=dict(self.given))


@frozen
class Saved:
    """A checkpoint, and what had been given when it was taken."""

    checkpoint: Checkpoint
    walked: Walked


manners = st.builds(
    Manners,
    kind=st.sampled_from(["points", "rows", "ranged", "rows"]),
    tokens=st.sampled_from(["anchored", "anchored", "anchored", "position", "overlap", "scroll"]),
    page_size=st.integers(1, 4),
    latency=st.sampled_from([0.0, 2.0]),
    ending=st.sampled_from(["absent", "null", "empty"]),
    late_end=st.booleans(),
    empties=st.sampled_from([0, 0, 0, 1, 2]),
    nulls=st.booleans(),
    cycle=st.sampled_from([None] * 7 + [(1, 0), (2, 0), (3, 1), (4, 2)]),
    dead_status=st.sampled_from([400, 404, 410, 422]),
    stillborn=st.sampled_from([False] * 9 + [True]),
)
faults = st.sampled_from(
    [
        Fault(429),
        Fault(429, retry_after=1.0),
        Fault(429, retry_after=60.0),
        Fault(429, retry_after=90_000.0),
        Fault(500),
        Fault(503, retry_after=5.0),
        Fault(503, retry_after=90_000.0),
        Fault(broken="cut"),
        Fault(broken="garbled"),
        Fault(broken="stall"),
    ]
)


How = Literal["pages", "rows", "collect"]
readers: st.SearchStrategy[How] = st.sampled_from(["pages", "rows", "collect"])


def _sound(drawn: Manners) -> Manners:
    """Return the manners without what cannot go together."""
    if drawn.tokens == "scroll":  # the same token and twice no row would be a loop
        drawn = evolve(drawn, empties=0)
    if drawn.tokens == "overlap":
        drawn = evolve(drawn, page_size=max(2, drawn.page_size))
    return evolve(drawn, cycle=None) if drawn.tokens != "anchored" else drawn


class PagingMachine(RuleBasedStateMachine):
    """One service, one reader at a time, all in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.complaints: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self.wall = EPOCH
        self.sessions: list[Session] = []
        self.saved: list[Saved] = []
        self.hopeless = False
        self.failed = False

    # The beginning

    @initialize(drawn=manners, rows=st.integers(0, 14), prefetch=st.integers(0, 3), patience=st.booleans())
    def begin(self, drawn: Manners, rows: int, prefetch: int, patience: bool) -> None:
        """Make the service, and a stream over it."""
        self.manners = _sound(drawn)
        self.service = Service(self.manners)
        self.service.insert(rows)
        self.transport = NastyTransport(self.service)
        self.max_attempts = 4 if patience else 1
        self.walked = Walked(frozenset(self.service.rows))
        self._open(None, prefetch, "restart")

    @property
    def fragile(self) -> bool:
        """Whether what the service once gave it never gives again."""
        return self.manners.tokens == "scroll"

    def _open(
        self, resume: Checkpoint | None, prefetch: int, on_expired: Literal["restart", "raise"]
    ) -> None:
        session = Session(
            metrics_base_url="https://metrics.test",
            data_base_url="https://data.test",
            api_key="k",
            transport=self.transport,
            max_attempts=self.max_attempts,
            on_expired=on_expired,
            page_token_lifetime=timedelta(seconds=LIFETIME),
            now=lambda: self.wall + self.loop.time(),
            on_event=self._hear,
        )
        self.sessions.append(session)
        self.pages: Pages[Any]
        options: dict[str, Any] = {"resume": resume, "prefetch": prefetch}
        match self.manners.kind:
            case "points":
                self.pages = session.metrics.avg_tps(7, **options)
            case "ranged":
                self.pages = session.metrics.list(
                    "/v2/series", items="rows", newest_first="timestamp", until="end", **options
                )
            case "rows":
                self.pages = session.data.list("/v1/rows", items="rows", **options)
        self.closed = False
        self.serial = 0

    def _hear(self, event: Event) -> None:
        match event:
            case Restarted(exact=exact):
                self.walked.loose |= not exact
                assert exact or self.manners.kind == "rows"
                if "resumed" not in event.reason:
                    self.walked.restarts += 1
                    self.walked.last = None
                    self._check_reason(event)
                assert event.restarts == self.walked.restarts, "a restart was not told"
            case LoopFound():
                self.hopeless = True
            case PageReceived():
                assert event.rows <= self.manners.page_size

    def _check_reason(self, event: Restarted) -> None:
        """Only a token that died is a reason to begin again."""
        service, now = self.service, self.loop.time()
        if "refused" in event.reason:
            assert service.refused, "a restart without a refusal"
        elif not service.wall_went_back and self.wall == EPOCH:
            assert service.oldest is not None
            assert now - service.oldest >= LIFETIME - 1e-3, "a restart although no token is old"

    # What the reader does

    @rule(count=st.integers(1, 4))
    def read_pages(self, count: int) -> None:
        """Read pages as they are."""
        self._run(lambda: self._pages(count))

    @rule(count=st.integers(1, 9))
    def read_rows(self, count: int) -> None:
        """Read rows, and break."""
        self._run(lambda: self._rows(count))

    @rule(limit=st.one_of(st.none(), st.integers(1, 9)))
    def collect(self, limit: int | None) -> None:
        """Collect some rows, or all."""
        self._run(lambda: self._collect(limit))

    @precondition(lambda self: not self.fragile)
    @rule(delay=st.sampled_from([0.0, 0.5, 1.0, 1.5, 3.0, 30.0, 100_000.0]), how=readers)
    def cancelled(self, delay: float, how: How) -> None:
        """Cancel the reader at any time."""
        if how != "collect":  # whose rows would be lost with it
            self._run(lambda: self._stopped(delay, how, None))

    @precondition(lambda self: not self.fragile)
    @rule(delay=st.sampled_from([0.0, 0.5, 1.5, 3.0, 30.0]), how=readers, session=st.booleans())
    def closed_meanwhile(self, delay: float, how: How, session: bool) -> None:
        """Close the stream or its session while it is read; go on from where it stood."""
        end = self.sessions[-1].aclose if session else self.pages.aclose
        self.closed = True
        self._run(lambda: self._stopped(delay, how, end))
        self._resume(Saved(self.pages.checkpoint, self.walked), 0, "restart")

    @precondition(lambda self: not self.fragile)
    @rule(
        back=st.integers(0, 12),
        prefetch=st.integers(0, 3),
        on_expired=st.sampled_from(["restart", "restart", "raise"]),
        close=st.booleans(),
        grown=st.sampled_from([0, 0, 0, 1, 6]),
        shrunk=st.sampled_from([0, 0, 1, 2]),
    )
    def resume(
        self,
        back: int,
        prefetch: int,
        on_expired: Literal["restart", "raise"],
        close: bool,
        grown: int,
        shrunk: int,
    ) -> None:
        """Resume from a checkpoint seen before, through text, in a new session, of a changed list."""
        self.saved.append(Saved(self.pages.checkpoint, self.walked.copy()))
        if close:
            self._run(self.pages.aclose)
        self.service.insert(grown)
        for row in [row for row in reversed(self.walked.given) if row in self.service.rows][:shrunk]:
            self.service.delete(self.service.rows.index(row))
        self._resume(self.saved[-1 - back % len(self.saved)], prefetch, on_expired)

    @precondition(lambda self: not self.fragile)
    @rule(count=st.integers(1, 6), grown=st.sampled_from([0, 0, 1, 6]), shrunk=st.sampled_from([0, 1, 1, 2]))
    def interrupted(self, count: int, grown: int, shrunk: int) -> None:
        """Read some rows, and go on with the next one on another day, when the list has changed."""
        self._run(lambda: self._rows(count))
        self.resume(back=0, prefetch=0, on_expired="restart", close=True, grown=grown, shrunk=shrunk)

    def _resume(self, saved: Saved, prefetch: int, on_expired: Literal["restart", "raise"]) -> None:
        checkpoint = Checkpoint.loads(saved.checkpoint.dumps())
        self.walked = saved.walked.copy()
        if self.manners.kind == "rows" and self.manners.shifts:
            self.walked.loose = True  # the digests stay behind, and a shifted page does not tell
        if checkpoint.token is None or checkpoint.offset:
            self.walked.last = None  # rows that were inserted above are given now
            self.walked.grown |= checkpoint.token is None and checkpoint.offset > 0
        self._open(checkpoint, prefetch, on_expired)
        assert self.pages.checkpoint == checkpoint
        assert self.pages.exhausted == checkpoint.done

    # What happens meanwhile

    @rule(seconds=st.sampled_from([1.0, 100.0, LIFETIME / 2, LIFETIME, 3 * LIFETIME]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._run(lambda: asyncio.sleep(seconds))

    @rule(late=st.sampled_from([-61.0, -3.0, -1.0, -0.001, 0.0, 1.0]))
    def wait_for_death(self, late: float) -> None:
        """Wait until the token in hand is as old as its lifetime, or nearly."""
        token = self.service.tokens.get(self.pages.checkpoint.token or "")
        if token is not None:
            self._run(lambda: asyncio.sleep(max(0.0, token.asked + LIFETIME + late - self.loop.time())))

    @rule(seconds=st.sampled_from([-1e6, -3_600.0, 3_600.0, 1e6]))
    def move_wall_clock(self, seconds: float) -> None:
        """Set the wall clock."""
        self.wall += seconds
        self.service.wall_went_back |= seconds < 0

    @rule(count=st.integers(1, 5))
    def insert(self, count: int) -> None:
        """Add rows."""
        self.service.insert(count)

    @rule(index=st.integers(0, 20))
    def delete(self, index: int) -> None:
        """Delete a row."""
        self.service.delete(index)

    @rule(fault=faults, count=st.integers(1, 3))
    def fail(self, fault: Fault, count: int) -> None:
        """Let the next requests fail."""
        if not (self.fragile and fault.broken):
            self.service.faults.extend([fault] * count)

    @rule()
    def forget_tokens(self) -> None:
        """Let all tokens die early."""
        self.service.forget()

    # The end

    def teardown(self) -> None:
        """Read whatever is left, and look for what was left behind."""
        try:
            if hasattr(self, "manners"):
                self._finish()
                self._check_left()
        finally:
            self.loop.close()

    def _finish(self) -> None:
        for _ in range(READS):
            if self.hopeless or self.pages.exhausted:
                break
            self._run(lambda: self._collect(None))
        assert self.hopeless or self.pages.exhausted, "the walk never ends"

    def _check_whole(self) -> None:
        """All rows that were there all the time have been given."""
        missing = (self.walked.whole & set(self.service.rows)) - self.walked.given.keys()
        assert not missing, f"rows are lost: {sorted(missing)}"
        assert self.pages.checkpoint.done
        if self.manners.ordered:
            assert self.pages.checkpoint.rows == len(self.walked.given)

    def _check_left(self) -> None:
        self.loop.run_until_complete(self._leave())
        assert not asyncio.all_tasks(self.loop), "a task is left"
        timers = [timer for timer in self.loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        assert not timers, f"a timer is left: {timers}"
        assert not self.transport.flying, "a request is left"
        assert not self.complaints, self.complaints

    async def _leave(self) -> None:
        del self.pages
        for _ in range(4):
            await asyncio.sleep(0)
        for session in self.sessions:
            assert all(quota.in_flight == 0 for quota in session.quota.values()), "a permit is left"
            await session.aclose()
        await asyncio.sleep(0)

    # How it does so

    def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        self.loop.run_until_complete(self._met(work))
        assert not self.complaints, self.complaints
        if self.pages.exhausted and not self.closed:
            self._check_whole()

    async def _met(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do some work; an error is judged, and its checkpoint is where to go on."""
        try:
            await work()
        except ChainAPIError as error:
            self._judge(error)
            checkpoint = error.checkpoint
            assert checkpoint is not None, "an error without a checkpoint"
            assert checkpoint == self.pages.checkpoint
            self.saved.append(Saved(checkpoint, self.walked.copy()))
            if isinstance(error, PageTokenExpiredError) and not self.hopeless:
                self._resume(self.saved[-1], 0, "restart")

    def _judge(self, error: ChainAPIError) -> None:
        match error:
            case PaginationLoopError():
                assert self.manners.cycle is not None, "a loop where there is none"
                assert self.hopeless
                assert not self.pages.exhausted
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

    async def _stopped(self, delay: float, how: How, end: Callable[[], Awaitable[None]] | None) -> None:
        """Read on, and be cancelled, or closed, after `delay` seconds."""
        match how:
            case "pages":
                reading = self._pages(99)
            case "rows":
                reading = self._rows(99)
            case "collect":
                reading = self._collect(None)
        task = asyncio.ensure_future(reading)
        await asyncio.sleep(delay)
        if end is None:
            task.cancel()
        else:
            await end()
        try:
            await task
        except asyncio.CancelledError:
            assert end is None, "cancelled by nobody"

    async def _pages(self, count: int) -> None:
        for _ in range(count):
            try:
                page = await anext(self.pages)
            except StopAsyncIteration:
                return
            self._take_page(page)

    def _take_page(self, page: Any) -> None:
        walked = self.walked
        walked.loose |= self.manners.kind == "rows" and self.manners.shifts  # pages leave no digests
        rows = [self._number(row) for row in page.items]
        assert page.restarts == walked.restarts, "a restart was not told"
        serial = getattr(page, "last_run", None)
        if serial is not None:
            whole = self.service.bodies[serial]
            assert serial > self.serial, "a page was given twice"
            assert rows in (whole, [row for row in whole if row not in walked.given]), "not the page sent"
            self.serial = serial
        ranks = [rank(self.manners.kind, row) for row in rows]
        assert ranks == sorted(ranks, reverse=True), "a page out of order"
        again = walked.restarts or walked.loose or walked.grown or self.manners.shifts or self.manners.cycle
        for row in rows:
            if row in walked.given:
                assert again, f"row {row} was given twice"
            else:
                walked.given[row] = None
                walked.last = row
        self.saved.append(Saved(page.checkpoint, walked.copy()))

    async def _rows(self, count: int) -> None:
        left = count
        async for row in self.pages.items():
            self._take_row(row)
            self.saved.append(Saved(self.pages.checkpoint, self.walked.copy()))
            left -= 1
            if not left:
                break

    async def _collect(self, limit: int | None) -> None:
        try:
            rows = await self.pages.collect(limit)
        except ChainAPIError as error:
            for row in error.partial or ():
                self._take_row(row, passes=True)
            raise
        for row in rows:
            self._take_row(row, passes=True)
        assert len(rows) == limit or self.pages.exhausted, "a partial list"

    def _take_row(self, row: Any, *, passes: bool = False) -> None:
        """Note a row; `passes` where a restart may lie before it."""
        walked, number = self.walked, self._number(row)
        assert 0 < number < self.service.next_row, "a row that never was"
        if number in walked.given:
            # Without an order, and with rows read before the digests began, a circle shows when it closes.
            circle = self.manners.cycle is not None and not self.manners.ordered
            assert walked.loose or circle, f"row {number} was given twice"
            return
        before, kind = walked.last, self.manners.kind
        # A counted position may move up to rows that are new; a circle leads up as well.
        strict = self.manners.tokens != "position" and self.manners.cycle is None and not walked.loose
        if before is not None and strict and not passes:
            assert rank(kind, number) < rank(kind, before), "rows out of order"
        walked.given[number] = None
        walked.last = number

    def _number(self, row: Any) -> int:
        match self.manners.kind:
            case "points":
                assert row.value == row.timestamp / 2
                return int(row.timestamp)
            case "ranged":
                return int(row["timestamp"])
            case "rows":
                return int(row["name"].removeprefix("row "))
