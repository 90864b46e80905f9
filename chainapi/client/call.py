"""CallRunner: carries out the commands of `chainapi.core.call`, for one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from math import inf
from typing import Any, Generic, TypeVar, assert_never, cast

from attrs import define, field

from chainapi.client.emitter import CallEvents
from chainapi.client.permit import AnyPermit
from chainapi.client.service import Service
from chainapi.core.call import (
    Acquire,
    Call,
    CallFlow,
    Command,
    Decode,
    Describe,
    Exchange,
    Pause,
    Send,
    SentAt,
)
from chainapi.core.http import Response
from chainapi.core.limits.headers import read_limits
from chainapi.core.limits.scope import Verdict
from chainapi.errors import APIConnectionError, APITimeoutError, ChainAPIError, SessionClosedError

__all__ = ["CallRunner"]

E = TypeVar("E", bound=ChainAPIError)
R = TypeVar("R")

_NUMBERS = count(1)  # of the calls of this process


@define(eq=False, repr=False)
class CallRunner(Generic[R]):
    """Runs one call until it succeeds, fails for good, or is closed.

    Attributes:
        service: the service that is called.
        call: its request.
        decode: decodes the body of a successful response.
        flow: decides about attempts, pauses and the outcome.
        under_way: the calls of the session; this one is among them while it runs.
        number: number of the call, unique in the process.

    """

    service: Service
    call: Call
    decode: Callable[[bytes], R]
    flow: CallFlow
    under_way: set[CallRunner[Any]]
    number: int = field(factory=_NUMBERS.__next__, init=False)
    _scope: asyncio.Timeout = field(init=False)
    _closed: bool = field(default=False, init=False)
    _permit: AnyPermit | None = field(default=None, init=False)  # of the attempt under way
    _sent: bool = field(default=False, init=False)  # whether that attempt has begun
    _outcome: Response | APIConnectionError | None = field(default=None, init=False)  # of the last attempt
    _events: CallEvents | None = field(default=None, init=False)  # None where nobody listens

    def close(self) -> None:
        """End the call, which is under way, with SessionClosedError."""
        self._closed = True
        if not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> tuple[R, Exchange]:
        """Return the decoded response and the exchange that it belongs to.

        Raises:
            SessionClosedError: the session was closed meanwhile.
            QuotaWaitError: the quota frees up too late.
            DeadlineExceededError: the deadline passed, or will pass before the next attempt.
            OutcomeUnknownError: the server may have carried out a write.
            ChainAPIError, GivenUp: as `CallFlow.run` documents.

        """
        clock, deadline = asyncio.get_running_loop().time, self.flow.deadline
        self._scope = asyncio.timeout_at(None if deadline == inf else deadline)
        self.under_way.add(self)
        try:
            async with self._scope:
                commands = self.flow.run(clock())
                command = next(commands)
                while True:
                    result = await self._carry_out(command)
                    command = commands.send((clock(), result))
        except StopIteration as end:
            return cast("tuple[R, Exchange]", end.value)
        except ChainAPIError as error:
            if not (self._closed and isinstance(error, APIConnectionError)):
                self._identify(error)
                raise
        except TimeoutError:
            if not self._closed and not self._scope.expired():
                raise
        finally:
            self.under_way.discard(self)
            if self._permit is not None:
                self._abandon(self._permit)
        # Outside of the handler: the cancelled frames hold the headers of the request, the key among them.
        if self._closed:
            where, doubt = self.call.query.where, self.flow.doubt
            raise self._identify(SessionClosedError(f"the session was closed during {where}{doubt}"))
        raise self._identify(self.flow.overdue(clock()))

    async def run_observed(self) -> tuple[R, Exchange]:
        """Do as `run`, with events."""
        service, call = self.service, self.call
        where, tag = call.query.where, service.tag(call.options)
        events = self._events = CallEvents(service.events, service.member, where, self.number, tag)
        error = ""
        try:
            events.began(call.query.shape, service.shown_url(call))
            return await self.run()
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            events.ended(error)

    def _identify(self, error: E) -> E:
        """Add the number of the call and the id of its last request to an error."""
        return self.service.identified(error, self.number, self._outcome)

    def _carry_out(self, command: Command) -> Awaitable[object]:
        """Return the result of a command, to be awaited at once."""
        match command:
            case Acquire():
                return self._acquire(command)
            case Send():
                return self._send(command.attempt)
            case Decode():
                return self.service.decode(self.decode, command.response.body)
            case Describe():
                return self.service.describe(command.response)
            case Pause():
                return self._pause(command)
            case _:
                assert_never(command)

    async def _acquire(self, command: Acquire) -> APITimeoutError | None:
        """Wait until the gate allows an attempt."""
        query, events, self._sent = self.call.query, self._events, False
        if events is not None:
            events.queued()
        try:
            self._permit = await self.service.gate.acquire(
                query.route,
                cost=query.cost,
                priority=self.call.options.priority,
                max_wait=command.max_wait,
                deadline=command.deadline,
                again=command.again,
                member=self.service.member,
                tag=self.call.options.tag,
                limit=self.call.options.max_waiting,
            )
        except APITimeoutError as error:
            return error.with_traceback(None)
        finally:
            if events is not None:
                events.admitted()
        return None

    async def _send(self, attempt: int) -> Exchange:
        """Send the request once, and report its outcome to the gate."""
        service, events, timeout = self.service, self._events, self.call.options.timeout
        clock = asyncio.get_running_loop().time
        self._sent = True
        service.events.waits_until = -inf
        sent = SentAt(clock(), service.member.now(), self.number)
        if events is not None:
            events.sent(attempt)
        outcome: Response | APIConnectionError
        try:
            async with asyncio.timeout_at(sent.at + timeout):
                request = service.request(self.call)
                if service.telemetry is None:
                    outcome = await service.transport.send(request)
                else:
                    outcome = await service.send_observed(request, self.number)
        except APIConnectionError as error:
            outcome = error.with_traceback(None)  # its frames hold the headers of the request
        except TimeoutError:
            outcome = APITimeoutError(f"no whole answer within {timeout:g} s")
        self._outcome = outcome
        exchange = await self._land(sent, outcome)
        self._permit = None
        if events is not None:
            events.received(outcome, exchange.elapsed, service.request_id(outcome))
        return exchange

    async def _land(self, sent: SentAt, outcome: Response | APIConnectionError) -> Exchange:
        """Report the outcome of an attempt to the gate."""
        permit, elapsed = self._permit, asyncio.get_running_loop().time() - sent.at
        assert permit is not None  # noqa: S101 - a flow acquires before it sends
        if isinstance(outcome, APIConnectionError):
            permit.lost()
            return Exchange(sent, outcome, elapsed=elapsed)
        limits = read_limits(outcome.headers, self.service.member.now())
        verdict = permit.answered(outcome.status, limits)
        if not isinstance(verdict, Verdict):
            verdict = await verdict
        return Exchange(sent, outcome, limits, verdict, elapsed)

    async def _pause(self, pause: Pause) -> None:
        if self._events is not None:
            self._events.retry(pause.attempt, pause.seconds, pause.reason)
        await asyncio.sleep(pause.seconds)

    def _abandon(self, permit: AnyPermit) -> None:
        """End the permit of an attempt whose outcome will stay unknown."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # the call was dropped after its loop had closed: no other request waits there
            return
        if self._sent:
            permit.lost()
        else:
            permit.unsent()
