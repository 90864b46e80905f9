"""Calls of a session: the asynchronous shell of `chainapi.core.call`.

It carries out the commands of that module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TypeVar, assert_never, cast

from attrs import define, field

from chainapi.client.limiter import Permit
from chainapi.client.service import Service
from chainapi.client.transport import Transport
from chainapi.core.call import (
    Acquire,
    Call,
    CallFlow,
    CallSettings,
    Decode,
    Describe,
    Exchange,
    Flow,
    Pause,
    Send,
    SentAt,
)
from chainapi.core.http import Response
from chainapi.core.limits.headers import read_limits
from chainapi.errors import APIConnectionError, APITimeoutError, ChainAPIError, SessionClosedError

__all__ = ["Dispatcher"]

R = TypeVar("R")


@define(eq=False, repr=False)
class Dispatcher:
    """Sends the calls of a session, each until it succeeds or fails for good.

    Calls also end when the session is closed. `timeout` is how many seconds one attempt may take; `now`
    returns Unix time in seconds.
    """

    transport: Transport
    settings: CallSettings
    timeout: float
    now: Callable[[], float]
    _scopes: set[asyncio.Timeout] = field(factory=set[asyncio.Timeout], init=False)  # one for each call
    _closed: bool = field(default=False, init=False)

    def close(self) -> None:
        """End all calls under way with SessionClosedError."""
        self._closed = True
        for scope in tuple(self._scopes):
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())

    async def call(
        self, service: Service, call: Call, decode: Callable[[bytes], R], began: float | None = None
    ) -> tuple[R, SentAt]:
        """Return the decoded response and when its request was sent.

        Its deadline counts from `began` on, a time of the loop; else from now.

        Raises:
            SessionClosedError: the session was closed meanwhile.
            QuotaWaitError: the quota frees up too late.
            DeadlineExceededError: the deadline passed, or will pass before the next attempt.
            ChainAPIError, GivenUp: as `CallFlow.run` documents.

        """
        clock = asyncio.get_running_loop().time
        now = clock()
        flow = CallFlow(call, self.settings, now if began is None else began)
        scope = asyncio.timeout_at(None if flow.deadline == inf else flow.deadline)
        self._scopes.add(scope)
        try:
            async with scope:
                return await self._carry_out(flow.run(now), service, call, decode)
        except (TimeoutError, APIConnectionError) as error:
            if not self._closed and (isinstance(error, ChainAPIError) or not scope.expired()):
                raise
        finally:
            self._scopes.discard(scope)
        # Outside of the handler: the cancelled frames hold the headers of the request, the key among them.
        if self._closed:
            raise SessionClosedError(f"the session was closed during {call.query.where}")
        raise flow.exceeded(clock()) from flow.last

    async def _carry_out(
        self, flow: Flow[tuple[R, SentAt]], service: Service, call: Call, decode: Callable[[bytes], R]
    ) -> tuple[R, SentAt]:
        """Carry out the commands of a flow until it returns."""
        clock = asyncio.get_running_loop().time
        permit: Permit | None = None
        try:
            command = next(flow)
            while True:
                result: object = None
                match command:
                    case Acquire():
                        try:
                            permit = await service.acquire(call, command)
                        except APITimeoutError as error:
                            result = error.with_traceback(None)
                    case Send():
                        assert permit is not None  # noqa: S101 - a flow acquires before it sends
                        used, permit = permit, None
                        result = await self._send(service, call, used, command.attempt)
                    case Decode():
                        result = await service.decode(decode, command.response.body)
                    case Describe():
                        result = service.describe(command.response)
                    case Pause():
                        await _pause(service, call, command)
                    case _:
                        assert_never(command)
                command = flow.send((clock(), result))
        except StopIteration as end:
            return cast("tuple[R, SentAt]", end.value)
        finally:
            if permit is not None:
                permit.unsent()

    async def _send(self, service: Service, call: Call, permit: Permit, attempt: int) -> Exchange:
        """Send a request once, and report its outcome to the gate."""
        events = service.events if service.events.emit else None
        clock = asyncio.get_running_loop().time
        outcome: Response | APIConnectionError
        try:
            sent = SentAt(clock(), self.now())
            if events is not None:
                events.sent(call.query.where, attempt)
            try:
                async with asyncio.timeout_at(sent.at + self.timeout):
                    outcome = await self.transport.send(service.request(call))
            except APIConnectionError as error:
                outcome = error.with_traceback(None)  # its frames hold the headers of the request
            except TimeoutError:
                outcome = APITimeoutError(f"no whole answer within {self.timeout:g} s")
            if isinstance(outcome, APIConnectionError):
                permit.lost()
                exchange = Exchange(sent, outcome)
            else:
                limits = read_limits(outcome.headers, self.now())
                exchange = Exchange(sent, outcome, limits, permit.answered(outcome.status, limits))
        except BaseException:
            _abandon(permit)
            raise
        if events is not None:
            events.received(call.query.where, outcome, clock() - sent.at)
        return exchange


async def _pause(service: Service, call: Call, pause: Pause) -> None:
    if service.events.emit:
        service.events.retry(call.query.where, pause.attempt, pause.seconds, pause.reason)
    await asyncio.sleep(pause.seconds)


def _abandon(permit: Permit) -> None:
    """End the permit of a request whose outcome will stay unknown."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # the call was dropped after its loop had closed: no other request waits there
        return
    permit.lost()
