"""Request that waits for a permit of a shared quota."""

from __future__ import annotations

import asyncio
from math import inf

from attrs import define
from msgspec.structs import replace

from chainapi.client.member import Member
from chainapi.core.limits.waiting import WaitingLimit
from chainapi.core.share.messages import Acquire, Refused, amount_of
from chainapi.errors import APITimeoutError, QuotaWaitError
from chainapi.share.permits import SharedPermit

__all__ = ["Request", "limit_of"]


@define(eq=False, repr=False)
class Request:
    """Request of a session, in one or more attempts to get a permit.

    Attributes:
        message: the request of a permit; each attempt has a number of its own.
        member: the session.
        waits_until: latest time of its turn by `max_wait`, on the loop's clock.
        deadline: latest time of its turn by the deadline of its call.
        max_wait: seconds, for the error.
        limit: of the requests that wait, for the error.
        future: result of the attempt; None repeats it.

    """

    message: Acquire
    member: Member
    waits_until: float
    deadline: float
    max_wait: float | None
    limit: WaitingLimit | None = None
    future: asyncio.Future[SharedPermit | None] | None = None

    def acquire(self, now: float) -> Acquire:
        """Return the message, with the seconds that are left by now.

        The next host has to let the request wait if this one does.
        """
        message = replace(self.message, max_wait=_left(self.waits_until, now), left=_left(self.deadline, now))
        self.message = replace(self.message, most_waiting=None)
        return message

    def attempt(self, number: int) -> None:
        """Begin an attempt with a number of its own."""
        self.message = replace(self.message, number=number)

    def repeat_first(self) -> None:
        """Let the next attempt go before all other requests: this one had its turn."""
        self.message = replace(self.message, again=True)

    def wait(self) -> asyncio.Future[SharedPermit | None]:
        """Return the future of an attempt, which `grant` or `refuse` ends."""
        self.future = asyncio.get_running_loop().create_future()
        return self.future

    @property
    def waits(self) -> bool:
        """Whether its task still waits for a result."""
        return self.future is not None and not self.future.done()

    @property
    def granted(self) -> SharedPermit | None:
        """The permit of an attempt that ended with one."""
        future = self.future
        if future is None or not future.done() or future.cancelled() or future.exception() is not None:
            return None
        return future.result()

    def grant(self, permit: SharedPermit | None) -> None:
        """End the attempt with a permit, or repeat it."""
        if self.future is not None and self.waits:
            self.future.set_result(permit)

    def refuse(self, message: Refused, now: float) -> None:
        """End the attempt with the error of a refusal by the host."""
        if self.future is not None and self.waits:
            self.future.set_exception(self._error(message, now))

    def _error(self, message: Refused, now: float) -> QuotaWaitError | APITimeoutError:
        if message.seconds is None:
            return APITimeoutError(message.reason)
        if message.full and self.limit is not None:
            return self.member.queue_full(message.seconds, self.limit.most)
        left = self.deadline - now if self.deadline < self.waits_until else None
        return self.member.too_long(message.seconds, self.max_wait or 0.0, left)


def limit_of(message: Acquire) -> WaitingLimit | None:
    """Return the limit of a request among those that wait."""
    if message.limit is None:
        return None
    return WaitingLimit(inf if message.most_waiting is None else message.most_waiting, message.limit)


def _left(until: float, now: float) -> float | None:
    return None if until == inf else amount_of(max(0.0, until - now))
