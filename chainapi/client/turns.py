"""Turns of requests that wait for a quota: asynchronous shell of its scheduler.

The pure `chainapi.core.limits.scheduler` decides who leaves when. Here are only a future for each request
that waits, one timer for all, and the listeners of waits. A request is granted immediately before it is
sent, so a stop that begins while a granted task has not run yet still holds it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from math import inf
from typing import assert_never

from chainapi.client.member import Member, Members
from chainapi.client.timer import Timer
from chainapi.core.limits.deadlines import CLOSE, GRACE
from chainapi.core.limits.group import Group
from chainapi.core.limits.reservation import Reservation
from chainapi.core.limits.scheduler import Due, Granted, Scheduler, Step, TooLate, Unanswered, Wait
from chainapi.core.limits.ticket import Ticket
from chainapi.core.limits.waiting import WaitingLimit
from chainapi.errors import APITimeoutError, QuotaWaitError

__all__ = ["Turn", "Turns"]


class Turn(Ticket, kw_only=True):
    """Request of a member in the queue.

    Attributes:
        member: the member.
        future: its task awaits this.
        reservation: set by the grant.
        alarm: fires when `max_wait` is over.

    """

    member: Member
    future: asyncio.Future[None]
    reservation: Reservation | None = None
    alarm: asyncio.TimerHandle | None = None

    @property
    def over(self) -> bool:
        """Whether its task awaits no turn: it was woken, or gave up."""
        return self.future.done()

    def too_late(self, now: float, seconds: float) -> QuotaWaitError:
        """Return the error of a request that could leave after some seconds."""
        left = self.deadline - now if self.deadline < self.waits_until else None
        return self.member.too_long(seconds, self.max_wait, left)


class Turns:
    """Turns of the requests of one quota, in the order of their scheduler."""

    def __init__(self, scheduler: Scheduler[Turn], random: Callable[[], float], members: Members) -> None:
        self.random = random  # from 0 to 1, for jitter
        self.scheduler = scheduler
        self.queue = scheduler.queue
        self.quota = scheduler.quota
        self.members = members
        self._numbers = count()
        self._timer = Timer(self.advance)
        self._woken = 0  # granted, but their tasks did not run yet: no other request may leave before them

    # --- requests ---------------------------------------------------------------------------

    def reserve(self, now: float, route: str, cost: float | None, member: Member) -> Reservation | None:
        """Reserve units for a request that may leave now; return None if it has to wait."""
        group = member.group
        if self._woken or self.queue.waiting or (group is not None and (group.paced or not group.room(inf))):
            return None
        reservation = self.scheduler.reserve(now, route, cost)
        if reservation is None:
            self._timer.set(self.scheduler.wakes_at)
        elif group is not None:
            group.in_flight += 1
        return reservation

    def adopt(self, sent: float, route: str, cost: float | None, member: Member) -> Reservation:
        """Reserve units for a request of a member that left before; see `Scheduler.adopt`."""
        if member.group is not None:
            member.group.in_flight += 1
        return self.scheduler.adopt(sent, route, cost)

    def enter(
        self,
        member: Member,
        route: str,
        cost: float | None,
        *,
        rank: float,
        max_wait: float | None,
        deadline: float,
        full: WaitingLimit | None = None,
    ) -> Turn:
        """Put a request in the queue; the caller awaits it in `wait` at once.

        `full` is its limit if as many wait as that allows.

        Raises:
            QuotaWaitError: its turn will be too late.
            QueueFullError: a limit is full.

        """
        loop = asyncio.get_running_loop()
        now, most = loop.time(), inf if max_wait is None else max_wait
        turn = Turn(
            next(self._numbers),
            rank,
            route,
            cost,
            member.group,
            member.process,
            ceiling=member.ceiling,
            max_wait=most,
            waits_until=now + most,
            deadline=deadline,
            member=member,
            future=loop.create_future(),
        )
        deadlines = self.scheduler.deadlines
        if full is not None and not self.scheduler.ready(now, turn):
            raise member.queue_full(deadlines.cleared(now, turn, joins=not full.most), full.most)
        if deadlines.misses(now, turn):
            raise turn.too_late(now, deadlines.again(now, turn))
        if self.queue.add(turn) and not self.quota.full:
            self.advance()
        wait = self.scheduler.wait
        if turn.queued and wait is not None:
            member.report_wait(wait.reason, now, wait.until, self.queue.waiting)
        if max_wait is not None:
            turn.alarm = loop.call_later(max_wait, self._overdue, turn)
        return turn

    async def wait(self, turn: Turn) -> Reservation:
        """Wait until a request is granted and may still leave.

        Raises:
            QuotaWaitError, APITimeoutError: see `Gate.acquire`.

        """
        try:
            while True:
                if self._woken > 1 and turn.over:
                    await asyncio.sleep(0)  # after the requests granted before
                await turn.future
                if turn.reservation is None:
                    await self._pay(turn)
                reservation = self._claim(turn)
                now = asyncio.get_running_loop().time()
                if reservation is not None and self.quota.holds(reservation, now):
                    return reservation
                self._wait_again(turn, reservation)
        except BaseException:
            self._give_up(turn)
            raise
        finally:
            if turn.alarm is not None:
                turn.alarm.cancel()

    async def _pay(self, turn: Turn) -> None:
        """Pay the ceiling of a request's session; its other requests wait meanwhile.

        Others that use the ceiling may take the tokens first.

        Raises:
            QuotaWaitError: the payment would take longer than the request may wait.

        """
        ceiling, until = turn.member.ceiling, turn.waits_until + CLOSE
        assert ceiling is not None  # noqa: S101 - otherwise no request is woken without a grant
        try:
            async with asyncio.timeout_at(None if until == inf else until):
                await ceiling.pay(ceiling.toll(self.quota.costs.shown(turn.route, turn.prior)))
        except TimeoutError:
            now = asyncio.get_running_loop().time()
            raise turn.too_late(now, self.scheduler.deadlines.again(now, turn)) from None
        turn.paid = True

    def _claim(self, turn: Turn) -> Reservation | None:
        """Take the reservation of a request; None without a grant."""
        reservation, turn.reservation = turn.reservation, None
        self._woken -= reservation is not None
        return reservation

    def _wait_again(self, turn: Turn, reservation: Reservation | None) -> None:
        """Return a request to its place: it has paid, or a stop came before it left."""
        turn.future = asyncio.get_running_loop().create_future()
        if reservation is not None:
            self._take_back(turn, reservation)
            self.queue.add(turn, returns=True)
        elif turn.queued:
            self.queue.step_in(turn)
        self.advance()

    def _give_up(self, turn: Turn) -> None:
        """Remove a request, and let the next one have its turn."""
        reservation = self._claim(turn)
        if reservation is not None:
            self._take_back(turn, reservation)
        elif turn.queued:
            self.queue.remove(turn)
        self.advance()

    def _take_back(self, turn: Turn, reservation: Reservation) -> None:
        """Take a grant back whose request did not leave."""
        if turn.group is not None:
            self.landed(turn.group)
        self.queue.take_back(turn)
        self.quota.unsent(reservation)

    def landed(self, group: Group) -> None:
        """Record that a request of a group ended; the next one of the group may follow."""
        group.in_flight -= 1
        self.queue.freed(group)

    # --- rounds -----------------------------------------------------------------------------

    def advance(self) -> None:
        """Give all requests their turns that may leave now."""
        if not self.queue.waiting and not self._timer.running:
            return
        now = asyncio.get_running_loop().time()
        try:
            for step in self.scheduler.round(now):
                self._carry_out(now, step)
        finally:
            self._timer.set(self.scheduler.wakes_at)

    def _carry_out(self, now: float, step: Step[Turn]) -> None:
        match step:
            case Granted(turn, reservation):
                turn.reservation = reservation
                self._woken += 1
                turn.future.set_result(None)
            case Due(turn, seconds):
                turn.member.report_wait("rate", now, now + seconds, self.queue.waiting)
                turn.future.set_result(None)
            case TooLate(turn, seconds):
                turn.future.set_exception(turn.too_late(now, seconds))
            case Wait(until, reason):
                for member in {turn.member for turn in self.queue.all()}:
                    member.report_wait(reason, now, until, self.queue.waiting)
            case _:
                assert_never(step)

    def _overdue(self, turn: Turn) -> None:
        """Fail a request whose time is over, unless its turn is close or it pays."""
        if not turn.queued:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        match None if turn.over else self.scheduler.overdue(now, turn):
            case None:
                turn.alarm = loop.call_later(GRACE, self._overdue, turn)
                return
            case TooLate(_, seconds):
                turn.future.set_exception(turn.too_late(now, seconds))
            case Unanswered(_, seconds):
                error = APITimeoutError(f"no answer to any request for {seconds:.0f} s")
                turn.future.set_exception(error)
        self.advance()
