"""Flow of one call: its attempts, pauses and outcome, as a generator without I/O.

`CallFlow.run` yields commands. Its shell, `chainapi.client.call`, carries each one out and sends back a pair:
the time of the event loop by then, and the result that the class of the command documents. The flow reads no
clock and never sees the API key; a test drives it with a list of results.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from chainapi._limits.queue import Ask
from chainapi._limits.verdict import Verdict
from chainapi.core.http import Response, is_markup
from chainapi.core.idempotency import Idempotency, may_be_done
from chainapi.core.private import Private
from chainapi.core.retry import RETRIED_STATUSES, RetryBudget, RetryPolicy, RetryState
from chainapi.core.statuses import missing_body, rate_limited, status_error
from chainapi.core.url import Query
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    DeadlineExceededError,
    DecodeError,
    OutcomeUnknownError,
    PageTokenExpiredError,
)

if TYPE_CHECKING:
    from chainapi._limits.headers import RateLimitInfo
    from chainapi._limits.queue import WaitingLimit
    from chainapi.core.cache import ResponseCache

__all__ = [
    "Call",
    "CallFlow",
    "CallOptions",
    "CallSettings",
    "Command",
    "Decode",
    "Describe",
    "Exchange",
    "Flow",
    "GivenUp",
    "Pause",
    "Send",
    "SentAt",
]

T = TypeVar("T")
Failure: TypeAlias = APIStatusError | APIConnectionError | DecodeError


class GivenUp(Exception):  # noqa: N818 - the caller wanted it, so it is no error
    """Result of a request that was not sent, because nobody needed the response.

    Nobody needed it any more when the turn of the request came.
    """


class SentAt(Struct, frozen=True):
    """Time at which an answered request was sent, in seconds.

    It is given on the loop's clock, and in Unix time. `call` is the number of its call.
    """

    at: float
    wall: float
    call: int | None = None


class CallOptions(Private, Struct, frozen=True, eq=False):
    """Options of a call; a view of a session has one set for all of its calls.

    Attributes:
        timeout: seconds for one attempt.
        retry: number of attempts, and the backoff between them.
        max_wait: seconds that the call may wait for quota; None for no limit.
        deadline: seconds that the call may take in all; None for no limit.
        priority: calls with a higher one go first in the queue for quota.
        tag: name of the spender of the quota; None uses that of the session.
        headers: further headers of the request, by lower-case names.
        max_waiting: limit on the calls of the view that wait for quota; None for none.
        coalesce: whether identical requests in flight are one.
        cache: keeps successful responses; identical requests in flight are then one too.

    """

    timeout: float = 30.0
    retry: RetryPolicy = RetryPolicy()
    max_wait: float | None = None
    deadline: float | None = None
    priority: int = 0
    tag: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    max_waiting: WaitingLimit | None = None
    coalesce: bool = False
    cache: ResponseCache | None = None

    @property
    def waits(self) -> tuple[object, ...]:
        """Options that decide how long a call may take, and when its turn comes."""
        return self.timeout, self.retry, self.max_wait, self.deadline, self.priority

    @property
    def shares(self) -> bool:
        """Return whether one response may answer several calls."""
        return self.coalesce or self.cache is not None


class Call(Private, Struct, frozen=True, eq=False):
    """Call: one request, repeated until it succeeds or no attempt is left.

    Attributes:
        query: path and parameters.
        page_token: token of the page to fetch; None for the first page or a single resource.
        not_after: time of the loop from which on the page token is dead and not sent.
        needed: returns whether somebody still waits for the response; checked before each attempt.
        options: waits, retries and headers.
        fresh: whether the response must come from the service, and not from a cache.
        raw: whether the body may be other than JSON.

    """

    query: Query
    page_token: str | None = None
    not_after: float = inf
    needed: Callable[[], bool] | None = None
    options: CallOptions = msgspec.field(default_factory=CallOptions)
    fresh: bool = False
    raw: bool = False


class CallSettings(Struct, eq=False):
    """Retry budget, jitter and longest wait that all calls of a session share.

    `jitter` returns random numbers in [0, 1), which spread the pauses before retries. `max_stop` is the
    seconds after which a request is repeated although a 5xx requests a longer wait.
    """

    budget: RetryBudget
    jitter: Callable[[], float]
    max_stop: float = inf


class Send(Struct):
    """Send the request; `attempt` counts from 1. Result: an `Exchange`."""

    attempt: int


class Decode(Struct):
    """Decode the body of a successful response.

    Result: the decoded value, or a DecodeError.
    """

    response: Response


class Describe(Struct):
    """Describe an error response from its body.

    Result: its error type and messages, the API key masked.
    """

    response: Response


class Pause(Struct):
    """Pause for `seconds` before the next attempt.

    The `reason` is such as ``503``. Result: None.
    """

    seconds: float
    attempt: int
    reason: str


Command: TypeAlias = Ask | Send | Decode | Describe | Pause
Flow: TypeAlias = Generator[Command, tuple[float, Any], T]


class Exchange(Private, Struct, eq=False):
    """Exchange: one request, its outcome, its limits and the gate's verdict.

    The limits are those that the response announced, None without one. `elapsed` is the seconds from sending
    to the outcome, and `age` is the seconds since the request was sent, for a response of a cache.
    """

    sent: SentAt
    outcome: Response | APIConnectionError
    limits: RateLimitInfo | None = None
    verdict: Verdict = Verdict.PASSED
    elapsed: float = 0.0
    age: float = 0.0


_QUEUE, _ATTEMPT, _PAUSE = range(3)  # phases between which the time of a call is divided


class CallFlow:
    """State of one call. `began` and every `now` are times of the loop in seconds.

    Attributes:
        deadline: time of the loop at which the call must end; inf for none.
        last: error of the attempt that failed last; None before the first failure.

    """

    __slots__ = (
        "_allowed",
        "_attempts",
        "_began",
        "_call",
        "_doubtful",
        "_phase",
        "_seconds",
        "_settings",
        "_since",
        "_spent",
        "_state",
        "deadline",
        "last",
    )

    def __init__(self, call: Call, settings: CallSettings, began: float) -> None:
        self._call = call
        self._settings = settings
        self._began = began
        allowed = call.options.deadline
        self._allowed = inf if allowed is None else allowed  # seconds in all
        self.deadline = began + self._allowed
        self.last: Failure | None = None
        self._seconds = [0.0, 0.0, 0.0]  # in each phase
        self._phase, self._since = _QUEUE, began
        self._state = RetryState()
        self._attempts = 0  # requests sent
        self._spent = 0.0  # tokens of the retry budget
        self._doubtful = False  # whether an attempt that failed may have been carried out

    def run(self, now: float) -> Flow[tuple[Any, Exchange]]:
        """Make attempts until one succeeds.

        Returns the decoded body and the exchange of the attempt. The body is None where the route has none,
        and for a repeated DELETE of something that is gone by then.

        Raises:
            APIStatusError, APIConnectionError, DecodeError: the last attempt failed.
            OutcomeUnknownError: the server may have carried out a request that cannot be repeated.
            DeadlineExceededError: the next attempt could begin only after the deadline.
            PageTokenExpiredError: the page token died while the request waited for quota.
            GivenUp: nobody needs the response any more.

        """
        while True:
            now, error = yield self.acquire(now)
            if error is not None:
                raise self.final(error, now)
            now, exchange = yield self.send(now)
            now, result = yield from self._judge(exchange, now)
            if result is not None:
                return result

    def proceed(self, exchange: Exchange, now: float) -> Flow[tuple[Any, Exchange]]:
        """Continue after a first attempt that `send` began.

        No command was yielded for that attempt. Returns and raises the same as `run`.
        """
        now, result = yield from self._judge(exchange, now)
        return (yield from self.run(now)) if result is None else result

    def _judge(self, exchange: Exchange, now: float) -> Flow[tuple[float, tuple[Any, Exchange] | None]]:
        """Return the result of a call, or None after a fault that allows another attempt."""
        response = exchange.outcome
        if isinstance(response, APIConnectionError):
            return (yield from self._retry(response, now)), None
        if self._is_done(response):
            self.succeeded()
            return now, (None, exchange)
        if not 200 <= response.status < 300:
            return (yield from self._failed(response, exchange, now)), None
        if not self.has_body(response):
            return (yield from self._undecoded(missing_body(response), now)), None
        now, decoded = yield Decode(response)
        if isinstance(decoded, DecodeError):
            foreign = decoded.malformed and is_markup(response.body)
            return (yield from self._undecoded(decoded, now, foreign=foreign)), None
        self.succeeded()
        return now, (decoded, exchange)

    def has_body(self, response: Response) -> bool:
        """Return whether a response is a success with a body to decode.

        A web page has one, whatever the route: it is no answer of the service.
        """
        if not 200 <= response.status < 300 or (self._call.query.bodiless and self._is_done(response)):
            return False
        return bool(response.body) and not response.body.isspace()

    def succeeded(self) -> None:
        """Record that the call succeeded."""
        self._settings.budget.succeeded(self._spent)

    @property
    def doubt(self) -> str:
        """Clause about the outcome of a write that ends now; empty if it is known."""
        if self._phase != _ATTEMPT or self._call.query.idempotency is Idempotency.SAFE:
            return ""
        return ": the service may have carried it out"

    def overdue(self, now: float) -> DeadlineExceededError | OutcomeUnknownError:
        """Return the error of a deadline that passed in a queue, an attempt or a pause."""
        in_attempt = self._phase == _ATTEMPT
        late = self.exceeded(now)
        late.__cause__ = self.last
        if not in_attempt or self._call.query.idempotency is not Idempotency.NON_IDEMPOTENT:
            return late
        unknown = self._unknown(f"no answer within deadline={self._allowed:g} s", now)
        unknown.__cause__ = late
        return unknown

    def exceeded(self, now: float, retry_after: float | None = None) -> DeadlineExceededError:
        """Return the error of a deadline that passed, or will pass before the retry.

        The retry waits `retry_after` seconds.
        """
        self._enter(self._phase, now)
        return DeadlineExceededError(
            self._allowed,
            in_queue=self._seconds[_QUEUE],
            in_attempts=self._seconds[_ATTEMPT],
            between_attempts=self._seconds[_PAUSE],
            retry_after=retry_after,
            last="" if self.last is None else str(self.last),
            where=self._call.query.where,
            attempts=self._attempts,
            elapsed=now - self._began,
        )

    def _enter(self, phase: int, now: float) -> None:
        """Book the time until now, and begin a phase."""
        self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def acquire(self, now: float) -> Ask:
        """Begin to wait for quota; waits of earlier attempts count toward `max_wait`.

        The result of the command is None, or the APITimeoutError of a service that answers nobody. A
        QuotaWaitError ends the call.
        """
        if self._phase != _QUEUE:
            self._enter(_QUEUE, now)
        query, options = self._call.query, self._call.options
        left = options.max_wait
        if left is not None:
            left = max(0.0, left - self._seconds[_QUEUE] - (now - self._since))
        again = self._attempts > 0
        return Ask(
            query.route,
            query.cost,
            options.priority,
            options.tag,
            left,
            self.deadline,
            again=again,
            limit=options.max_waiting,
        )

    def send(self, now: float) -> Send:
        """Begin an attempt, unless it is too late or the response is not needed.

        Raises:
            DeadlineExceededError, PageTokenExpiredError, GivenUp: as `run` documents.

        """
        call = self._call
        if now >= self.deadline:  # no timer of the call has fired yet
            raise self.overdue(now)
        self._enter(_ATTEMPT, now)
        if now >= call.not_after:
            raise PageTokenExpiredError("the page token reached its lifetime while its request waited")
        if call.needed is not None and not call.needed():
            raise GivenUp
        self._attempts += 1
        return Send(self._attempts)

    def _is_done(self, response: Response) -> bool:
        """Return whether a response without a body to decode ends the call.

        A DELETE that is repeated after a lost response finds nothing: the attempt before deleted it.
        """
        query = self._call.query
        if response.status == 404:
            return self._doubtful and query.method == "DELETE"
        return 200 <= response.status < 300 and query.bodiless and not is_markup(response.body)

    def _failed(self, response: Response, exchange: Exchange, now: float) -> Flow[float]:
        """Wait for another attempt after an error status, or raise its error."""
        now, (error, messages) = yield Describe(response)
        if response.status == 429:
            self._refused(exchange, error, messages, now)
            return now
        failure = status_error(response.status, error, messages)
        self._doubt(failure, now)
        if response.status not in RETRIED_STATUSES:
            raise self.final(failure, now)
        from chainapi._limits.headers import hold  # imported here: no response is read before

        asked = 0.0 if exchange.limits is None else hold(response.status, exchange.limits)
        asked = min(asked, self._settings.max_stop)
        return (yield from self._retry(failure, now, asked or None))

    def _refused(self, exchange: Exchange, error: str, messages: tuple[str, ...], now: float) -> None:
        """Count a 429, or raise its error.

        There is no pause here: the gate holds the next attempt back.
        """
        options = self._call.options
        limits, verdict, retry = exchange.limits, exchange.verdict, options.retry
        if verdict in (Verdict.QUOTA, Verdict.UNANNOUNCED):
            endless = options.max_wait is None and retry.max_attempts > 1
            again = self._state.refused(retry, patient=endless and verdict is Verdict.UNANNOUNCED)
        else:
            again = self._state.route_refused(retry) and verdict is not Verdict.TOO_EXPENSIVE
        if verdict is Verdict.TOO_EXPENSIVE:
            messages = (*messages, "refused while the whole limit was left: it costs more than the limit")
        retry_after = None if limits is None else limits.retry_after
        if limits is not None and retry_after is None:
            retry_after = limits.reset
        self.last = rate_limited(error, messages, retry_after)
        if not again:
            raise self.final(self.last, now)

    def _undecoded(self, fault: DecodeError, now: float, *, foreign: bool = False) -> Flow[float]:
        """Wait for another attempt after a body that is no JSON, or raise the error.

        A web page is `foreign`: its sender would send it again, and need not be the service.
        """
        query = self._call.query
        if foreign:
            self._doubt(fault, now)
            raise self.final(fault, now)
        if query.idempotency is not Idempotency.SAFE:
            check = f"; session.{query.lookup}() shows its effect" if query.lookup else ""
            fault = fault.changed(advice=f"the service carried the request out: do not repeat it{check}")
            raise self.final(fault, now)
        if not fault.malformed:
            raise self.final(fault, now)
        return (yield from self._retry(fault, now))

    def _retry(self, failure: Failure, now: float, retry_after: float | None = None) -> Flow[float]:
        """Pause before the next attempt, or raise the error if none is left."""
        settings, options = self._settings, self._call.options
        self._doubt(failure, now)
        again = self._state.fault(options.retry)
        if isinstance(failure, APIConnectionError) and not failure.transient:
            again = False
        if retry_after is not None and options.max_wait is not None and retry_after > options.max_wait:
            again = False
        timed_out = isinstance(failure, APITimeoutError)
        tokens = settings.budget.spend(timed_out=timed_out) if again else None
        if tokens is None:
            raise self.final(failure, now)
        self._spent += tokens
        self.last = failure
        seconds = options.retry.backoff(self._state, settings.jitter(), retry_after)
        if now + seconds >= self.deadline:
            raise self.exceeded(now, retry_after=seconds) from failure
        self._enter(_PAUSE, now)
        reason = str(failure.status) if isinstance(failure, APIStatusError) else failure.reason
        now, _ = yield Pause(seconds, self._attempts, reason)
        return now

    def _doubt(self, failure: Failure, now: float) -> None:
        """Note a fault after which the request may have been carried out.

        Raises:
            OutcomeUnknownError: it may, and a second one may do it twice.

        """
        if not may_be_done(failure):
            return
        self._doubtful = True
        if self._call.query.idempotency is Idempotency.NON_IDEMPOTENT:
            final = self.final(failure, now)
            reason = str(failure) if isinstance(final, APIStatusError) else final.reason
            raise self._unknown(reason, now) from final

    def _unknown(self, reason: str, now: float) -> OutcomeUnknownError:
        query = self._call.query
        return OutcomeUnknownError(
            reason,
            where=query.where,
            lookup=query.lookup,
            attempts=self._attempts,
            elapsed=now - self._began,
        )

    def final(self, failure: Failure, now: float) -> Failure:
        """Return an error with the number of attempts and the time that they took."""
        return failure.after(where=self._call.query.where, attempts=self._attempts, elapsed=now - self._began)
