"""CallRunner: carries out the commands of `chainapi.core.call`, for one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar, assert_never, cast

from msgspec import Struct, field

from chainapi._limits.headers import read_limits
from chainapi._limits.queue import Ask
from chainapi._limits.verdict import Verdict
from chainapi.client.emitter import CallEvents
from chainapi.client.service import Service
from chainapi.client.timeouts import Timeout, Timeouts
from chainapi.core.call import (
    Call,
    CallFlow,
    Command,
    Decode,
    Describe,
    Exchange,
    Flow,
    Pause,
    Send,
    SentAt,
)
from chainapi.core.http import Response
from chainapi.core.private import Private
from chainapi.errors import (
    APIConnectionError,
    APITimeoutError,
    AuthenticationError,
    ChainAPIError,
    DecodeError,
    QuotaWaitError,
    SessionClosedError,
)
from chainapi.models.sizes import LARGE

if TYPE_CHECKING:
    from chainapi._limits.gate import AnyPermit

__all__ = ["CallRunner"]

E = TypeVar("E", bound=ChainAPIError)
R = TypeVar("R")

_NUMBERS = count(1)  # of the calls of this process


class CallRunner(Private, Struct, Generic[R], eq=False):
    """Runs one call until it succeeds, fails for good, or is closed.

    Attributes:
        service: the service that is called.
        call: its request.
        decode: decodes the body of a successful response.
        flow: decides about attempts, pauses and the outcome.
        timeouts: the timeouts of the session's calls.
        number: number of the call, unique in the process.

    """

    service: Service
    call: Call
    decode: Callable[[bytes], R]
    flow: CallFlow
    timeouts: Timeouts
    number: int = field(default_factory=_NUMBERS.__next__)
    _timeout: Timeout | None = None  # set when the call begins
    _permit: AnyPermit | None = None  # of the attempt under way
    _sent: bool = False  # whether that attempt has begun
    _outcome: Response | APIConnectionError | None = None  # of the last attempt
    _revoked: AuthenticationError | None = None  # of another call, while this one waited for quota
    _events: CallEvents | None = None  # None where nobody listens

    async def run(self) -> tuple[R, Exchange]:
        """Return the decoded response and the exchange that it belongs to.

        Raises:
            SessionClosedError: the session was closed meanwhile.
            QuotaWaitError: the quota frees up too late.
            DeadlineExceededError: the deadline passed, or will pass before the next attempt.
            OutcomeUnknownError: the server may have carried out a write.
            ChainAPIError, GivenUp: as `CallFlow.run` documents.

        """
        flow, clock = self.flow, self.timeouts.clock
        timeout = self._timeout = self.timeouts.begin(flow.deadline)
        try:
            # Nearly every call succeeds with its first request: it needs no command.
            ask, service = flow.acquire(clock()), self.service
            self._permit = service.gate.acquire_now(ask, service.member)
            if self._permit is None:
                late = await self._acquire(ask)
                if late is not None:
                    raise flow.final(late, clock())
            now = clock()
            flow.send(now)
            exchange = await self._send(1, now)
            if (done := self._decoded(exchange)) is not None:
                return done
            return await self._follow(flow.proceed(exchange, clock()))
        except ChainAPIError as error:
            if isinstance(error, AuthenticationError):
                self.service.key_refused(error)
            if not (self.timeouts.closed and isinstance(error, APIConnectionError)):
                self._identify(error)
                raise
        except asyncio.CancelledError:
            if not timeout.settle():
                raise
        finally:
            timeout.end()
            if self._permit is not None:
                self._abandon(self._permit)
        # Outside of the handler: the cancelled frames hold the headers of the request, the key among them.
        raise self._identify(self._ended(clock()))

    def _ended(self, now: float) -> ChainAPIError:
        """Return the error of a call that this session cancelled."""
        if self.timeouts.closed:
            return self._closed()
        return self.flow.overdue(now) if self._revoked is None else self.flow.final(self._revoked, now)

    def revoke(self, error: AuthenticationError) -> None:
        """End the call, which waits for quota, with the 401 of another one."""
        assert self._timeout is not None  # noqa: S101 - the call has begun
        self._revoked = error
        self._timeout.expire()

    async def _follow(self, flow: Flow[tuple[R, Exchange]]) -> tuple[R, Exchange]:
        """Carry out the commands of the flow; return its result."""
        clock = self.timeouts.clock
        try:
            command = next(flow)
            while True:
                result = await self._carry_out(command)
                command = flow.send((clock(), result))
        except StopIteration as end:
            return cast("tuple[R, Exchange]", end.value)

    def _decoded(self, exchange: Exchange) -> tuple[R, Exchange] | None:
        """Decode the body of a success.

        None for another outcome, and for a body that takes long.
        """
        response = exchange.outcome
        if not isinstance(response, Response) or not self.flow.has_body(response):
            return None
        if len(response.body) > LARGE:
            return None
        try:
            decoded = self.decode(response.body)
        except DecodeError:
            return None  # the flow has it decoded again, and decides what follows
        self.flow.succeeded()
        return decoded, exchange

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

    def _closed(self) -> SessionClosedError:
        return SessionClosedError(f"the session was closed during {self.call.query.where}{self.flow.doubt}")

    def _identify(self, error: E) -> E:
        """Add the number of the call and the id of its last request to an error."""
        return self.service.identified(error, self.number, self._outcome)

    def _carry_out(self, command: Command) -> Awaitable[object]:
        """Return the result of a command, to be awaited at once."""
        match command:
            case Ask():
                return self._acquire(command)
            case Send():
                return self._send(command.attempt, self.timeouts.clock())
            case Decode():
                return self.service.decode(self.decode, command.response.body)
            case Describe():
                return self.service.describe(command.response)
            case Pause():
                return self._pause(command)
            case _:
                assert_never(command)

    async def _acquire(self, ask: Ask) -> APITimeoutError | None:
        """Wait until the gate allows an attempt.

        Raises:
            SessionClosedError: the session was closed meanwhile.

        """
        events, self._sent, service = self._events, False, self.service
        if events is not None:
            events.queued()
        service.waiting.add(self.revoke)
        try:
            self._permit = await service.gate.acquire(ask, service.member)
        except APITimeoutError as error:
            return error.with_traceback(None)
        except QuotaWaitError as error:
            given = self.call.options.max_wait
            if error.max_wait is None or given is None:
                raise
            # The gate knows only what is left of it after waits of earlier attempts.
            raise QuotaWaitError(error.retry_at, retry_after=error.retry_after, max_wait=given) from None
        finally:
            service.waiting.discard(self.revoke)
            if events is not None:
                events.admitted()
        if self.timeouts.closed:  # its turn came before the cancellation of all calls
            raise self._closed()
        return None

    async def _send(self, attempt: int, now: float) -> Exchange:
        """Send the request once, and report its outcome to the gate."""
        service, events, timeout, clock = self.service, self._events, self._timeout, self.timeouts.clock
        assert timeout is not None  # noqa: S101 - the call has begun
        self._sent = True
        service.events.waits_until = -inf
        sent = SentAt(now, service.member.now(), self.number)
        if events is not None:
            events.sent(attempt)
        timeout.set(min(sent.at + self.call.options.timeout, self.flow.deadline))
        outcome: Response | APIConnectionError
        try:
            request = service.request(self.call)
            if service.telemetry is None:
                outcome = await service.transport.send(request)
            else:
                outcome = await service.send_observed(request, self.number)
        except APIConnectionError as error:
            outcome = error.with_traceback(None)  # its frames hold the headers of the request
        except TimeoutError:
            outcome = self._late()
        except asyncio.CancelledError:
            if not self._timed_out():
                raise
            outcome = self._late()
        if timeout.expired_at is not None:  # and the transport has an outcome all the same
            self._timed_out()
        timeout.set(self.flow.deadline)
        exchange = Exchange(sent, outcome, elapsed=clock() - sent.at)
        self._outcome = outcome
        verdict = self._land(exchange)
        # That of a gate of another process comes later.
        exchange.verdict = verdict if isinstance(verdict, Verdict) else await verdict
        self._permit = None
        if events is not None:
            events.received(outcome, exchange.elapsed, service.request_id(outcome))
        return exchange

    def _timed_out(self) -> bool:
        """Return whether the attempt, and not the call, took too long.

        If so, the cancellation that the timer requested is taken back.
        """
        timeout = self._timeout
        if timeout is None or timeout.expired_at is None or self.timeouts.closed:
            return False
        return timeout.expired_at < self.flow.deadline and timeout.settle()

    def _late(self) -> APITimeoutError:
        return APITimeoutError(f"no whole answer within {self.call.options.timeout:g} s")

    def _land(self, exchange: Exchange) -> Verdict | Awaitable[Verdict]:
        """Report the outcome of an attempt to the gate; return its verdict."""
        permit, outcome = self._permit, exchange.outcome
        assert permit is not None  # noqa: S101 - a flow acquires before it sends
        if isinstance(outcome, APIConnectionError):
            permit.lost()
            return exchange.verdict
        exchange.limits = read_limits(outcome.headers, exchange.sent.wall + exchange.elapsed)
        return permit.answered(outcome.status, exchange.limits)

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
