"""Run of a call: attempts until one succeeds, or none is left.

An attempt takes a permit of the gate, sends the request, and reports the outcome to the gate. Then the body
is decoded, or `chainapi._http.retry` says how long to pause before the next attempt, or the error is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct, field

from chainapi._http.emitter import CallEvents
from chainapi._http.message import Response, SentAt, is_markup
from chainapi._http.options import Attempt, Call
from chainapi._http.retry import (
    Failure,
    RetryBudget,
    Tries,
    may_be_done,
    missing_body,
    pause_after,
    status_error,
)
from chainapi._http.timeouts import Timeout, Timeouts
from chainapi._limits.headers import RateLimitInfo, hold, read_limits
from chainapi._limits.queue import Ask
from chainapi._limits.verdict import Verdict
from chainapi.core.idempotency import Idempotency
from chainapi.core.private import Private
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ChainAPIError,
    DeadlineExceededError,
    DecodeError,
    OutcomeUnknownError,
    PageTokenExpiredError,
    QuotaWaitError,
    RateLimitedError,
    SessionClosedError,
)

if TYPE_CHECKING:
    from chainapi._http.service import Service
    from chainapi._limits.gate import AnyPermit

__all__ = ["CallRunner", "GivenUp", "Retries"]

E = TypeVar("E", bound=ChainAPIError)
R = TypeVar("R")

_QUEUE, _ATTEMPT, _PAUSE = range(3)  # phases between which the time of a call is divided
_NUMBERS = count(1)  # of the calls of this process


class GivenUp(Exception):  # noqa: N818 - the caller wanted it, so it is no error
    """Nobody needed the response any more when the turn of the request came."""


class Retries(Struct, eq=False):
    """Budget and jitter of the retries of all calls of a session.

    Attributes:
        jitter: returns random numbers in [0, 1), which spread the pauses before retries.
        max_stop: seconds after which a request is repeated although a 5xx requests a longer wait.
        budget: pays for the retries.

    """

    jitter: Callable[[], float]
    max_stop: float = inf
    budget: RetryBudget = field(default_factory=RetryBudget)


class CallRunner(Private, Struct, Generic[R], eq=False):
    """Runs one call until it succeeds, fails for good, or is ended.

    Attributes:
        service: the service that is called.
        call: its request.
        decode: decodes the body of a successful response.
        retries: what the calls of the session share.
        timeouts: the timeouts of the calls of the session.
        began: when the call began; `deadline` is when it must end, inf for none.
        number: number of the call, unique in the process.

    """

    service: Service
    call: Call
    decode: Callable[[bytes], R]
    retries: Retries
    timeouts: Timeouts
    began: float
    deadline: float = inf
    number: int = field(default_factory=_NUMBERS.__next__)
    _timeout: Timeout | None = None  # set when the call begins
    _permit: AnyPermit | None = None  # of the attempt under way
    _attempts: int = 0  # requests sent
    _tries: Tries = field(default_factory=Tries)
    _doubtful: bool = False  # whether an attempt that failed may have been carried out
    _outcome: Response | APIConnectionError | None = None  # of the last attempt
    _last: Failure | None = None  # error of the attempt that failed last
    _revoked: AuthenticationError | None = None  # of another call, while this one waited for quota
    _events: CallEvents | None = None  # None if nobody listens
    _seconds: list[float] = field(default_factory=list[float])  # in each phase
    _phase: int = _QUEUE
    _since: float = 0.0

    def __post_init__(self) -> None:
        self._since, self._seconds = self.began, [0.0, 0.0, 0.0]
        if (allowed := self.call.options.deadline) is not None:
            self.deadline = self.began + allowed

    async def run_observed(self) -> tuple[R, Attempt]:
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

    async def run(self) -> tuple[R, Attempt]:
        """Return the decoded response and the attempt that it belongs to.

        The response is None if the route has none, and for a repeated DELETE of something that is gone.

        Raises:
            APIStatusError, APIConnectionError, DecodeError: the last attempt failed.
            OutcomeUnknownError: the server may have carried out a request that cannot be repeated.
            QuotaWaitError: the quota frees up too late.
            DeadlineExceededError: the deadline passed, or will pass before the next attempt.
            PageTokenExpiredError: the page token died while the request waited for quota.
            SessionClosedError: the session was closed meanwhile.
            GivenUp: nobody needs the response any more.

        """
        service, timeout = self.service, self.timeouts.begin(self.deadline)
        self._timeout = timeout
        try:
            while True:
                ask = self._ask()
                permit = service.gate.acquire_now(ask, service.member)
                self._permit = await self._turn(ask) if permit is None else permit
                attempt = await self._send()
                if (result := await self._result(attempt)) is not None:
                    return result
        except ChainAPIError as error:
            if isinstance(error, AuthenticationError):
                service.key_refused(error)
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
        raise self._identify(self._ended(self.timeouts.clock()))

    def revoke(self, error: AuthenticationError) -> None:
        """End the call, which waits for quota, with the 401 of another one."""
        assert self._timeout is not None  # noqa: S101 - the call has begun
        self._revoked = error
        self._timeout.expire()

    # --- one attempt ------------------------------------------------------------------------

    def _ask(self) -> Ask:
        """Begin to wait for quota; waits of earlier attempts count toward `max_wait`."""
        query, options = self.call.query, self.call.options
        self._enter(_QUEUE, self.timeouts.clock())
        left = options.max_wait
        return Ask(
            query.route,
            query.cost,
            options.priority,
            options.tag,
            None if left is None else max(0.0, left - self._seconds[_QUEUE]),
            self.deadline,
            again=self._attempts > 0,
            limit=options.waiting_limit,
        )

    async def _turn(self, ask: Ask) -> AnyPermit:
        """Wait in the queue of the gate for the permit to send."""
        events, service, max_wait = self._events, self.service, self.call.options.max_wait
        if events is not None:
            events.queued()
        service.waiting.add(self.revoke)
        service.warm()
        try:
            return await service.gate.acquire(ask, service.member)
        except APITimeoutError as error:
            silent = error.with_traceback(None)
        except QuotaWaitError as error:
            if error.max_wait is None or max_wait is None:
                raise
            # The gate knows only what is left of it after waits of earlier attempts.
            raise QuotaWaitError(error.retry_at, retry_after=error.retry_after, max_wait=max_wait) from None
        finally:
            service.waiting.discard(self.revoke)
            if events is not None:
                events.admitted()
        raise self._final(silent, self.timeouts.clock())

    def _begin(self, now: float) -> SentAt:
        """Begin an attempt, unless it is too late or nobody needs the response."""
        call, service = self.call, self.service
        if self.timeouts.closed:  # its turn came before the cancellation of all calls
            raise self._closed()
        if now >= self.deadline:  # no timer of the call has fired yet
            raise self._overdue(now)
        if now >= call.not_after:
            raise PageTokenExpiredError("the page token reached its lifetime while its request waited")
        if call.needed is not None and not call.needed():
            raise GivenUp
        self._enter(_ATTEMPT, now)
        self._attempts += 1
        service.events.waits_until = -inf
        return SentAt(now, service.member.now(), self.number)

    async def _send(self) -> Attempt:
        """Send the request once, and report its outcome to the gate."""
        service, events, timeout, clock = self.service, self._events, self._timeout, self.timeouts.clock
        assert timeout is not None  # noqa: S101 - the call has begun
        sent = self._begin(clock())
        if events is not None:
            events.sent(self._attempts)
        timeout.set(min(sent.at + self.call.options.timeout, self.deadline))
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
        timeout.set(self.deadline)
        attempt, permit = Attempt(sent, outcome, elapsed=clock() - sent.at), self._permit
        self._outcome = outcome
        assert permit is not None  # noqa: S101 - of this attempt
        if isinstance(outcome, APIConnectionError):
            permit.lost()
        else:
            service.unopened = 0
            attempt.limits = read_limits(outcome.headers, sent.wall + attempt.elapsed)
            verdict = permit.answered(outcome.status, attempt.limits)
            # The gate of another process returns it later.
            attempt.verdict = verdict if isinstance(verdict, Verdict) else await verdict
        self._permit = None
        if events is not None:
            events.received(outcome, attempt.elapsed, service.request_id(outcome))
        return attempt

    def _timed_out(self) -> bool:
        """Return whether the attempt, and not the call, took too long.

        If so, the cancellation that the timer requested is taken back.
        """
        timeout = self._timeout
        if timeout is None or timeout.expired_at is None or self.timeouts.closed:
            return False
        return timeout.expired_at < self.deadline and timeout.settle()

    def _late(self) -> APITimeoutError:
        return APITimeoutError(f"no whole answer within {self.call.options.timeout:g} s")

    # --- its outcome ------------------------------------------------------------------------

    async def _result(self, attempt: Attempt) -> tuple[Any, Attempt] | None:
        """Return the result of a successful attempt.

        None after a failed one, and the pause before the next one.
        """
        response = attempt.outcome
        failure: Failure
        if isinstance(response, APIConnectionError):
            failure = response
        elif self._is_done(response):
            self.retries.budget.succeeded(self._tries.spent)
            return None, attempt
        elif not 200 <= response.status < 300:
            failure = self._status_error(response, attempt)
        elif not response.body or response.body.isspace():
            failure = missing_body(response.status)
        else:
            try:
                decoded = await self.service.decode(self.decode, response.body)
            except DecodeError as error:
                failure = self.service.undecoded(error, response.body)
            else:
                self.retries.budget.succeeded(self._tries.spent)
                return decoded, attempt
        if seconds := self._pause(failure, attempt):
            await asyncio.sleep(seconds)
        return None

    def _is_done(self, response: Response) -> bool:
        """Return whether a response without a body to decode ends the call.

        A DELETE that is repeated after a lost response finds nothing: the attempt before deleted it.
        """
        query = self.call.query
        if response.status == 404:
            return self._doubtful and query.method == "DELETE"
        return 200 <= response.status < 300 and query.bodiless and not is_markup(response.body)

    def _status_error(self, response: Response, attempt: Attempt) -> APIStatusError:
        """Return the error of a response that is no success."""
        error, messages = self.service.describe(response)
        if attempt.verdict is Verdict.TOO_EXPENSIVE:
            messages = (*messages, "refused while the whole limit was left: it costs more than the limit")
        limits = attempt.limits or RateLimitInfo()
        retry_after = limits.reset if limits.retry_after is None else limits.retry_after
        return status_error(response.status, error, messages, retry_after)

    def _pause(self, failure: Failure, attempt: Attempt) -> float:
        """Begin the pause before the next attempt, or raise the error if none follows."""
        now, retries, options = self.timeouts.clock(), self.retries, self.call.options
        repeats, asked = self._repeats(failure, now), 0.0
        if isinstance(failure, APIStatusError) and attempt.limits is not None:
            asked = min(hold(failure.status, attempt.limits), retries.max_stop)
        seconds = None
        if repeats:
            seconds = pause_after(
                failure,
                self._tries,
                options.retry,
                retries.budget,
                jitter=retries.jitter(),
                max_wait=options.max_wait,
                asked=asked,
                verdict=attempt.verdict,
            )
        if seconds is None:
            raise self._final(failure, now)
        self._last = failure
        if isinstance(failure, RateLimitedError):
            return 0.0
        if now + seconds >= self.deadline:
            raise self._exceeded(now, retry_after=seconds) from failure
        self._enter(_PAUSE, now)
        if self._events is not None:
            reason = str(failure.status) if isinstance(failure, APIStatusError) else failure.reason
            self._events.retry(self._attempts, seconds, reason)
        return seconds

    def _repeats(self, failure: Failure, now: float) -> bool:
        """Return whether the request may be sent again.

        Twice must have the effect of once.

        Raises:
            DecodeError: the service carried out a write, and its answer cannot be read.
            OutcomeUnknownError: it may have carried out a write.

        """
        query, web_page = self.call.query, False
        if isinstance(failure, DecodeError):
            outcome = self._outcome
            web_page = failure.malformed and isinstance(outcome, Response) and is_markup(outcome.body)
            if not web_page and query.idempotency is not Idempotency.SAFE:
                check = f"; session.{query.lookup}() shows its effect" if query.lookup else ""
                advice = f"the service carried the request out: do not repeat it{check}"
                raise self._final(failure.changed(advice=advice), now)
        if may_be_done(failure):
            self._doubtful = True
            if query.idempotency is Idempotency.NON_IDEMPOTENT:
                final = self._final(failure, now)
                reason = str(failure) if isinstance(final, APIStatusError) else final.reason
                raise self._unknown(reason, now) from final
        return not web_page  # its sender would send it again, and need not be the service

    # --- errors -----------------------------------------------------------------------------

    def _enter(self, phase: int, now: float) -> None:
        """Book the time until now, and begin a phase."""
        self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def _ended(self, now: float) -> ChainAPIError:
        """Return the error of a call that was ended, or whose deadline passed."""
        if self.timeouts.closed:
            return self._closed()
        return self._overdue(now) if self._revoked is None else self._final(self._revoked, now)

    def _closed(self) -> SessionClosedError:
        query = self.call.query
        known = self._phase != _ATTEMPT or query.idempotency is Idempotency.SAFE
        doubt = "" if known else ": the service may have carried it out"
        return SessionClosedError(f"the session was closed during {query.where}{doubt}")

    def _overdue(self, now: float) -> DeadlineExceededError | OutcomeUnknownError:
        """Return the error of a deadline that passed in a queue, an attempt or a pause."""
        in_attempt, idempotency = self._phase == _ATTEMPT, self.call.query.idempotency
        late = self._exceeded(now)
        late.__cause__ = self._last
        if not in_attempt or idempotency is not Idempotency.NON_IDEMPOTENT:
            return late
        unknown = self._unknown(f"no answer within deadline={self.call.options.deadline:g} s", now)
        unknown.__cause__ = late
        return unknown

    def _exceeded(self, now: float, retry_after: float | None = None) -> DeadlineExceededError:
        """Return the error of a deadline that passed, or will pass before the retry.

        The retry waits `retry_after` seconds.
        """
        self._enter(self._phase, now)
        return DeadlineExceededError(
            self.call.options.deadline or inf,
            in_queue=self._seconds[_QUEUE],
            in_attempts=self._seconds[_ATTEMPT],
            between_attempts=self._seconds[_PAUSE],
            retry_after=retry_after,
            last="" if self._last is None else str(self._last),
            where=self.call.query.where,
            attempts=self._attempts,
            elapsed=now - self.began,
        )

    def _unknown(self, reason: str, now: float) -> OutcomeUnknownError:
        query, elapsed = self.call.query, now - self.began
        return OutcomeUnknownError(
            reason, where=query.where, lookup=query.lookup, attempts=self._attempts, elapsed=elapsed
        )

    def _final(self, failure: Failure, now: float) -> Failure:
        """Return an error with the number of attempts and the time that they took."""
        return failure.after(where=self.call.query.where, attempts=self._attempts, elapsed=now - self.began)

    def _identify(self, error: E) -> E:
        """Add the number of the call and the id of its last request to an error."""
        return self.service.identified(error, self.number, self._outcome)

    def _abandon(self, permit: AnyPermit) -> None:
        """End the permit of an attempt whose outcome will stay unknown."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # the call was dropped after its loop had closed: no other request waits there
            return
        if self._phase == _ATTEMPT:
            permit.lost()
        else:
            permit.unsent()
