"""Permits of one process in a shared quota: under way, or ended without a host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from contextlib import suppress
from itertools import count
from typing import Protocol

from attrs import define, field, frozen

from chainapi.client.permit import Permit
from chainapi.core.limits.info import RateLimitInfo, hold
from chainapi.core.limits.verdict import Verdict
from chainapi.core.share import messages
from chainapi.core.share.messages import (
    HOLDING,
    Acquire,
    Answered,
    FromParticipant,
    Holding,
    Lost,
    Unsent,
    Watch,
    limits_of,
)

__all__ = ["Permits", "Sender", "SharedPermit"]

FIRST_STATE = 0.5  # seconds for which the first response waits for the state of the quota
FRESH = 5.0  # seconds after which the limit headers of a response are too old for a host


class Sender(Protocol):
    """Connection to a host, as the permits use it."""

    @property
    def up(self) -> bool:
        """Whether there is a link."""
        ...

    def send(self, message: FromParticipant) -> None:
        """Send a message; without a link, drop it."""


@define(eq=False, repr=False)
class SharedPermit:
    """Permit to send one request; exactly one of its methods ends it.

    Attributes:
        number: its number at its host, or for the next one.
        request: the request that it was granted for.
        breaks: stops and broken links that the gate had met when it was granted.
        sent: time of the loop at which the request was sent; None before.
        alone: permit of the gate of this process alone, which granted it without a host; else None.

    """

    number: int
    request: Acquire
    breaks: int
    sent: float | None
    _permits: Permits | None
    alone: Permit | None = None

    async def answered(self, status: int, info: RateLimitInfo) -> Verdict:
        """Report a response: its status and limit headers; see `Permit.answered`."""
        if (permits := self._settle()) is None:
            return Verdict.PASSED
        return await permits.answered(self, status, info)

    def lost(self) -> None:
        """Report that no response arrived: the service may have counted the request."""
        if (permits := self._settle()) is not None:
            permits.end(self, Lost(self.number))

    def unsent(self) -> None:
        """Return the permit unused: the request was not sent."""
        if (permits := self._settle()) is not None:
            permits.unsent(self)

    def drop(self) -> None:
        """End the permit without a report: its host ended it."""
        self._permits = None
        if self.alone is not None:
            self.alone.lost()

    def _settle(self) -> Permits | None:
        permits, self._permits = self._permits, None
        return permits


@frozen(eq=False, repr=False)
class _Report:
    """End of a permit for the next host, and the time of it."""

    permit: SharedPermit
    message: Answered | Lost
    ended: float


@frozen(eq=False, repr=False)
class _Refusal:
    """Refusal whose meaning the host did not send yet."""

    permit: SharedPermit
    message: Answered
    info: RateLimitInfo
    verdict: asyncio.Future[Verdict]


@define(eq=False, repr=False)
class Permits:
    """Permits of a process for its requests under way.

    Args:
        sender: connection to the host.
        on_stop: called with the seconds of a stop that the service announced while no host could be informed.

    """

    _sender: Sender
    _on_stop: Callable[[float], None]
    _under_way: dict[SharedPermit, None] = field(factory=dict[SharedPermit, None], init=False)
    _unreported: list[_Report] = field(factory=list[_Report], init=False)
    _refusals: dict[int, _Refusal] = field(factory=dict[int, _Refusal], init=False)
    _numbers: count[int] = field(factory=lambda: count(HOLDING), init=False)  # for a host that is new
    _responded: bool = field(default=False, init=False)  # whether any response arrived
    _state_came: asyncio.Event = field(factory=asyncio.Event, init=False)

    def add(self, number: int, request: Acquire, breaks: int) -> SharedPermit:
        """Return the permit of a request, with its number at the host."""
        permit = SharedPermit(number, request, breaks, None, self)
        self._under_way[permit] = None
        return permit

    def add_alone(self, alone: Permit, request: Acquire) -> SharedPermit:
        """Return the permit of a request that leaves now, without a host.

        The next host gets it as under way.
        """
        now = asyncio.get_running_loop().time()
        permit = SharedPermit(next(self._numbers), request, 0, now, self, alone)
        self._under_way[permit] = None
        return permit

    # --- ends, called by the permits --------------------------------------------------------

    async def answered(self, permit: SharedPermit, status: int, info: RateLimitInfo) -> Verdict:
        """Record a response, and return its meaning for the quota."""
        message = Answered(permit.number, status, limits_of(info))
        if permit.alone is not None:
            return self._answered_alone(permit, permit.alone, message, info)
        if status != 429:
            if self.end(permit, message):
                await self._first_state()
            return Verdict.PASSED
        if not self.end(permit, message):
            self._on_stop(hold(status, info))
            return Verdict.QUOTA
        refusal = _Refusal(permit, message, info, asyncio.get_running_loop().create_future())
        self._refusals[permit.number] = refusal
        try:
            return await refusal.verdict
        finally:
            if self._refusals.get(message.permit) is refusal:
                del self._refusals[message.permit]

    def _answered_alone(
        self, permit: SharedPermit, alone: Permit, message: Answered, info: RateLimitInfo
    ) -> Verdict:
        """Record a response to a request that left without a host.

        A host that is back by now gets it too.
        """
        verdict = alone.answered(message.status, info)
        self.end(permit, message)
        if verdict is Verdict.QUOTA:  # and the report may be lost with its link
            self._on_stop(hold(message.status, info))
        return verdict

    async def _first_state(self) -> None:
        """Wait for the state after the first response, for the snapshot."""
        if self._responded:
            return
        self._responded = True
        self._state_came.clear()
        self._sender.send(Watch())
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_STATE):
                await self._state_came.wait()

    def end(self, permit: SharedPermit, message: Answered | Lost) -> bool:
        """Report the end of a permit; False without a host: the next one gets it."""
        self._under_way.pop(permit, None)
        if permit.alone is not None:
            permit.alone.lost()  # unless its response ended it
        if not self._sender.up:
            if permit.alone is None:
                self._keep(permit, message)
            return False
        self._sender.send(message)
        return True

    def unsent(self, permit: SharedPermit) -> None:
        """Return a permit unused; without a host it ended already."""
        self._under_way.pop(permit, None)
        if permit.alone is not None:
            permit.alone.unsent()
        self._sender.send(Unsent(permit.number))

    # --- the host ---------------------------------------------------------------------------

    def informed(self) -> None:
        """Note that the host reported its state."""
        self._state_came.set()

    def verdict(self, message: messages.Verdict) -> None:
        """Hand the meaning of a refusal to its request."""
        refusal = self._refusals.pop(message.permit, None)
        if refusal is not None and not refusal.verdict.done():
            refusal.verdict.set_result(message.verdict)

    def broken(self) -> None:
        """Keep what is under way for the next host; the last one ended its permits."""
        self._state_came.set()  # nobody waits for a host that ended
        for permit in [permit for permit in self._under_way if permit.sent is None]:
            del self._under_way[permit]
            permit.drop()
        refusals, self._refusals = self._refusals, {}
        for refusal in refusals.values():
            self._keep(refusal.permit, refusal.message)
            self._on_stop(hold(429, refusal.info))
            if not refusal.verdict.done():
                refusal.verdict.set_result(Verdict.QUOTA)

    def greeting(self, known: Container[int], now: float) -> list[FromParticipant]:
        """Return the requests under way of `known` sessions, and the ends of others.

        Permits of other sessions are dropped: a new host may use their numbers again.
        """
        messages: list[FromParticipant] = []
        for permit in list(self._under_way):
            if permit.request.session in known:
                permit.number = next(self._numbers)
                messages.append(_holding(permit, now))
            else:
                del self._under_way[permit]
                permit.drop()
        unreported, self._unreported = self._unreported, []
        for report in unreported:
            if report.permit.request.session in known:
                report.permit.number = number = next(self._numbers)
                messages += [_holding(report.permit, now), _renumbered(report, number, now)]
        return messages

    def _keep(self, permit: SharedPermit, message: Answered | Lost) -> None:
        self._unreported.append(_Report(permit, message, asyncio.get_running_loop().time()))


def _holding(permit: SharedPermit, now: float) -> Holding:
    request = permit.request
    elapsed = 0.0 if permit.sent is None else now - permit.sent
    return Holding(permit.number, request.session, request.route, request.cost, elapsed, request.tag)


def _renumbered(report: _Report, number: int, now: float) -> Answered | Lost:
    """Return the end of a permit for a new host, without an old response."""
    message = report.message
    if isinstance(message, Lost) or now - report.ended > FRESH:
        return Lost(number)
    return Answered(number, message.status, message.limits)
