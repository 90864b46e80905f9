"""Permits of one process in a shared quota, until a host heard of their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from contextlib import suppress
from itertools import count

from attrs import define, field

from chainapi._limits.headers import RateLimitInfo, hold
from chainapi._limits.verdict import Verdict
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
    info_of,
    limits_of,
)

__all__ = ["Permits", "SharedPermit"]

FIRST_STATE = 0.5  # seconds for which the first response waits for the state of the quota
FRESH = 5.0  # seconds after which the limit headers of a response are too old for a host


@define(eq=False, repr=False)
class SharedPermit:
    """Permit to send one request; exactly one of its methods ends it.

    Attributes:
        number: its number at its host, or for the next one.
        request: the request that it was granted for.
        valid: whether it has not ended yet.
        sent: time of the loop at which the request was sent; None before.
        end: its end, if the next host has to be informed of it.
        ended: time of the loop at that end.
        verdict: meaning of its refusal, until the host sent it.

    """

    number: int
    request: Acquire
    _permits: Permits
    valid: bool = True
    sent: float | None = None
    end: Answered | Lost | None = None
    ended: float = 0.0
    verdict: asyncio.Future[Verdict] | None = None

    def answered(self, status: int, info: RateLimitInfo) -> Verdict | Awaitable[Verdict]:
        """Report a response: its status and limit headers; see `AnyPermit.answered`."""
        return self._permits.answered(self, status, info) if self._settle() else Verdict.PASSED

    def lost(self) -> None:
        """Report that no response arrived: the service may have counted the request."""
        if self._settle():
            self._permits.end(self, Lost(self.number))

    def unsent(self) -> None:
        """Return the permit unused: the request was not sent."""
        if self._settle():
            self._permits.unsent(self)

    def _settle(self) -> bool:
        valid, self.valid = self.valid, False
        return valid


@define(eq=False, repr=False)
class Permits:
    """Permits of a process whose end no host has heard of.

    Args:
        send: sends a message to the host; False without one.
        on_stop: called with the seconds of a stop that the service announced while no host could be informed.

    Attributes:
        state_came: set when the host reports its state.

    """

    _send: Callable[[FromParticipant], bool]
    _on_stop: Callable[[float], None]
    state_came: asyncio.Event = field(factory=asyncio.Event, init=False)
    _known: dict[int, SharedPermit] = field(factory=dict[int, SharedPermit], init=False)  # by number
    _numbers: count[int] = field(factory=lambda: count(HOLDING), init=False)  # for a host that is new
    _responded: bool = field(default=False, init=False)  # whether any response arrived

    def add(self, number: int, request: Acquire) -> SharedPermit:
        """Return the permit of a request, with its number at the host."""
        permit = self._known[number] = SharedPermit(number, request, self)
        return permit

    # --- ends, called by the permits --------------------------------------------------------

    def answered(
        self, permit: SharedPermit, status: int, info: RateLimitInfo
    ) -> Verdict | Awaitable[Verdict]:
        """Record a response, and return its meaning for the quota."""
        reported = self.end(permit, Answered(permit.number, status, limits_of(info)))
        if status != 429:
            return self._first_state() if reported and not self._responded else Verdict.PASSED
        if not reported:
            self._on_stop(hold(status, info))
            return Verdict.QUOTA
        self._known[permit.number] = permit  # until the host sends its meaning
        permit.verdict = asyncio.get_running_loop().create_future()
        return permit.verdict

    async def _first_state(self) -> Verdict:
        """Wait for the state after the first response, for the snapshot."""
        self._responded = True
        self.state_came.clear()
        self._send(Watch())
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_STATE):
                await self.state_came.wait()
        return Verdict.PASSED

    def end(self, permit: SharedPermit, message: Answered | Lost) -> bool:
        """Report the end of a permit; False without a host: the next one gets it."""
        permit.end, permit.ended = message, asyncio.get_running_loop().time()
        if not self._send(message):
            return False
        self._known.pop(permit.number, None)
        return True

    def unsent(self, permit: SharedPermit) -> None:
        """Return a permit unused; without a host it ended already."""
        self._known.pop(permit.number, None)
        self._send(Unsent(permit.number))

    # --- the host ---------------------------------------------------------------------------

    def hold_back(self) -> None:
        """Return the permits of requests that did not leave yet."""
        for permit in [permit for permit in self._known.values() if permit.sent is None]:
            permit.unsent()

    def verdict(self, message: messages.PermitVerdict) -> None:
        """Hand the meaning of a refusal to its request."""
        permit = self._known.get(message.permit)
        if permit is not None and permit.verdict is not None:
            del self._known[message.permit]
            if not permit.verdict.done():
                permit.verdict.set_result(message.verdict)

    def broken(self) -> None:
        """Keep what is under way for the next host; the last one ended its permits."""
        self.state_came.set()  # nobody waits for a host that ended
        self.hold_back()
        for permit in self._known.values():
            if permit.verdict is not None and isinstance(permit.end, Answered):
                self._on_stop(hold(429, info_of(permit.end.limits)))
                if not permit.verdict.done():
                    permit.verdict.set_result(Verdict.QUOTA)

    def greeting(self, sessions: Container[int], now: float) -> list[FromParticipant]:
        """Return the requests of some sessions that are under way, or ended meanwhile.

        Permits of other sessions end here: a new host may use their numbers again.
        """
        first: list[FromParticipant] = []
        known, self._known = self._known, {}
        for permit in known.values():
            if permit.request.session not in sessions:
                permit.valid = False
                continue
            permit.number = next(self._numbers)
            first.append(_holding(permit, now))
            if permit.end is None:
                self._known[permit.number] = permit
            else:
                first.append(_end(permit, now))
        return first


def _holding(permit: SharedPermit, now: float) -> Holding:
    request = permit.request
    elapsed = 0.0 if permit.sent is None else now - permit.sent
    return Holding(permit.number, request.session, request.route, request.cost, elapsed, request.tag)


def _end(permit: SharedPermit, now: float) -> Answered | Lost:
    """Return the end of a permit for a new host, without an old response."""
    if isinstance(permit.end, Answered) and now - permit.ended <= FRESH:
        return Answered(permit.number, permit.end.status, permit.end.limits)
    return Lost(permit.number)
