"""One call: the attempts at one request, through the gate and the transport, until there is an outcome."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast
from urllib.parse import urljoin, urlsplit

from attrs import define, field, frozen

from chainapi._version import __version__
from chainapi.client.config import ServiceConfig
from chainapi.client.emitter import Listener
from chainapi.client.limiter import Permit
from chainapi.client.share import Share
from chainapi.client.transport import Transport
from chainapi.core.http import Request, Response
from chainapi.core.limits.headers import LimitNews, hold, read_limits
from chainapi.core.limits.scope import Verdict
from chainapi.core.retry import RETRIED_STATUSES, RetryBudget, RetryPolicy, RetryState
from chainapi.core.url import Query
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ChainAPIError,
    DeadlineExceededError,
    DecodeError,
    NotFoundError,
    PageTokenExpiredError,
    PermissionDeniedError,
    RateLimitedError,
    RedirectError,
    ServerError,
)
from chainapi.models.codec import Stepwise
from chainapi.models.error_body import decode_error, excerpt
from chainapi.models.sizes import LARGE

if TYPE_CHECKING:
    from chainapi.core.events import WaitBegan

__all__ = ["Call", "Dispatcher", "GivenUp", "SentAt", "Service", "always"]

R = TypeVar("R")

_HEADERS = {
    "accept": "application/json",
    "content-type": "application/json",
    "user-agent": f"chainapi/{__version__}",
}

_BODILESS = frozenset({204, 205})  # there is nothing to send, and asked again there would be nothing

_STATUS_ERRORS: dict[int, type[APIStatusError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
}


@frozen
class SentAt:
    """When the request that was answered left: on the loop's clock, and in Unix time; both in seconds."""

    at: float
    wall: float


@define(eq=False, repr=False)
class Service:
    """One service as a session reaches it: its endpoint, and the session's share of the gate."""

    endpoint: ServiceConfig
    share: Share
    _wait: WaitBegan | None = field(default=None, init=False)  # told, and not over yet
    _wait_until: float = field(default=0.0, init=False)

    @property
    def name(self) -> str:
        """`metrics` or `data`."""
        return self.endpoint.name

    def request(self, query: Query, page_token: str | None) -> Request:
        """Return the request; the key goes in here and nowhere else."""
        headers = _HEADERS
        if self.endpoint.key is not None and self.endpoint.key_header is not None:
            headers = {**_HEADERS, self.endpoint.key_header: self.endpoint.key.reveal()}
        return Request("GET", query.url(self.endpoint.base_url, page_token), headers)

    def status_error(self, body: bytes) -> tuple[str, tuple[str, ...]]:
        """Read an error body; the key is masked in it."""
        return decode_error(body, self._secret)

    def shown(self, text: str) -> str:
        """Return a text of the service as it may be shown: short, printable, the key masked."""
        return excerpt(text, self._secret)

    def shown_fault(self, fault: DecodeError) -> DecodeError:
        """Return an error with the texts of the service in it as they may be shown."""
        return fault.changed(reason=self.shown(fault.reason), path=self.shown(fault.path))

    def wait_began(self, emit: Listener, reason: str, seconds: float, until: float) -> None:
        """Tell that nothing leaves for `seconds`; a longer wait takes the place of one that runs."""
        if not emit or (self._wait is not None and until < self._wait_until + 1):
            return
        from chainapi.core.events import WaitBegan

        self.wait_ended(emit)
        self._wait, self._wait_until = WaitBegan(self.name, reason, seconds), until
        emit(self._wait)

    def wait_ended(self, emit: Listener) -> None:
        """Tell that the wait is over, if one runs."""
        if self._wait is not None:
            from chainapi.core.events import WaitEnded

            wait, self._wait = self._wait, None
            emit(WaitEnded(wait.service, wait.reason, wait.seconds))

    @property
    def _secret(self) -> str:
        return "" if self.endpoint.key is None else self.endpoint.key.reveal()


class GivenUp(Exception):  # noqa: N818 - asked for, not met
    """A request was not sent: when its turn came nobody wanted the answer any more."""


def _time() -> float:
    return asyncio.get_running_loop().time()


def always() -> bool:
    """Tell that an answer is wanted whenever it comes."""
    return True


@frozen(eq=False, repr=False)
class Call:
    """What a call asks for; from `not_after` on, a time of the loop, its token is dead and not sent.

    `wanted` is asked before each attempt is sent: whether somebody still waits for the answer. `deadline` is
    how many seconds it may take in all from `began` on; None leaves that to the dispatcher.
    """

    service: Service
    query: Query
    page_token: str | None = None
    not_after: float = inf
    priority: int = 0
    wanted: Callable[[], bool] = always
    deadline: float | None = None
    began: float = field(factory=_time, kw_only=True)


@define(eq=False, repr=False)
class Dispatcher:
    """Sends the requests of a session. `timeout`, `max_wait` and `deadline` are seconds."""

    transport: Transport
    policy: RetryPolicy
    budget: RetryBudget
    timeout: float
    max_wait: float | None
    deadline: float | None
    now: Callable[[], float]
    emit: Listener
    jitter: Callable[[], float] = field(default=random.random)

    def call(self, ask: Call, decode: Callable[[bytes], R]) -> Awaitable[tuple[R, SentAt]]:
        """Send a request until it is answered well or no attempt is left; to be awaited at once.

        Raises:
            APIStatusError, APIConnectionError, DecodeError, QuotaWaitError: how it ended otherwise.
            DeadlineExceededError: an APIConnectionError too; the deadline passed, or is certain to.
            PageTokenExpiredError: the page token died while the request waited for its turn.
            GivenUp: nobody wants the answer any more.

        """
        return _Call(self, ask).run(decode)


_QUEUE, _ATTEMPT, _PAUSE = range(3)  # what the time of a call is spent in


class _Call:
    """The state of one call."""

    def __init__(self, dispatcher: Dispatcher, ask: Call) -> None:
        self._to = dispatcher
        self._ask = ask
        self._service = ask.service
        self._query = ask.query
        self._clock = asyncio.get_running_loop().time
        self._began = ask.began
        deadline = dispatcher.deadline if ask.deadline is None else ask.deadline
        self._deadline = inf if deadline is None else deadline
        self._spent = [0.0, 0.0, 0.0]  # seconds in each phase
        self._phase, self._since = _QUEUE, self._began
        self._tries = RetryState()
        self._attempts = 0  # requests sent
        self._tokens = 0.0  # of the retry budget
        self._last: APIStatusError | APIConnectionError | DecodeError | None = None

    async def run(self, decode: Callable[[bytes], R]) -> tuple[R, SentAt]:
        """Make attempts until one succeeds, or the deadline passes."""
        if self._deadline == inf:
            return await self._run(decode)
        try:
            async with asyncio.timeout_at(self._began + self._deadline):
                return await self._run(decode)
        except TimeoutError as error:
            if isinstance(error, ChainAPIError):
                raise
        # Outside of the handler: the cancelled frames hold the headers of the request.
        raise self._exceeded() from self._last

    async def _run(self, decode: Callable[[bytes], R]) -> tuple[R, SentAt]:
        """Make attempts until one succeeds."""
        while True:
            sent, outcome, news, verdict = await self._attempt()
            if isinstance(outcome, APIConnectionError):
                await self._after_fault(outcome, timed_out=isinstance(outcome, APITimeoutError))
                continue
            if outcome.status == 429:
                self._after_refusal(outcome, news, verdict)
                continue
            if outcome.status in RETRIED_STATUSES:
                await self._after_fault(self._error(outcome), asked=hold(outcome.status, news) or None)
                continue
            if not 200 <= outcome.status < 300:
                self._give_up(self._error(outcome))
            try:
                decoded = await _decoded(decode, outcome)
            except DecodeError as error:
                fault = self._undecoded(error, outcome.body)
            else:
                self._to.budget.succeeded(self._tokens)
                return decoded, sent
            if not fault.malformed or _is_html(outcome.body):
                self._give_up(fault)
            await self._after_fault(fault)

    def _turn(self, phase: int) -> None:
        """Book the time until now, and begin another phase."""
        now = self._clock()
        self._spent[self._phase] += now - self._since
        self._phase, self._since = phase, now

    async def _permit(self) -> Permit:
        """Wait for the turn."""
        self._turn(_QUEUE)
        max_wait = self._to.max_wait
        try:
            permit = await self._service.share.acquire(
                self._query.route,
                cost=self._query.cost,
                priority=self._ask.priority,
                max_wait=None if max_wait is None else max(0.0, max_wait - self._spent[_QUEUE]),
                deadline=self._began + self._deadline,
                again=self._tries.attempts > 0,
            )
        except APITimeoutError as error:
            self._give_up(error)
        self._turn(_ATTEMPT)
        return permit

    async def _attempt(self) -> tuple[SentAt, Response | APIConnectionError, LimitNews, Verdict]:
        """Wait for the turn, send once, and tell the gate what came of it."""
        to = self._to
        permit = await self._permit()
        try:
            sent = SentAt(self._clock(), to.now())
            if sent.at >= self._ask.not_after:
                permit.unsent()
                raise PageTokenExpiredError("the page token reached its lifetime while its request waited")
            if not self._ask.wanted():
                permit.unsent()
                raise GivenUp
            self._attempts += 1
            heard = bool(to.emit)
            if heard:
                self._tell_sent()
            outcome = await self._exchange()
            if isinstance(outcome, APIConnectionError):
                if heard:
                    self._tell_received(sent, None, fault=outcome.reason)
                return sent, outcome, _NO_NEWS, Verdict.PASSED
            news = read_limits(outcome.headers, to.now())
            verdict = permit.answered(outcome.status, news)
        finally:
            _settle(permit)
        if heard:
            self._tell_received(sent, outcome)
        return sent, outcome, news, verdict

    async def _exchange(self) -> Response | APIConnectionError:
        request = self._service.request(self._query, self._ask.page_token)
        try:
            async with asyncio.timeout(self._to.timeout):
                return await self._to.transport.send(request)
        except APIConnectionError as error:
            return error
        except TimeoutError:
            return APITimeoutError(f"no whole answer within {self._to.timeout:g} s")

    def _after_refusal(self, response: Response, news: LimitNews, verdict: Verdict) -> None:
        """Go round again after a 429: the gate has taken note and holds others back."""
        policy = self._to.policy
        asked = news.reset if news.retry_after is None else news.retry_after
        if verdict in (Verdict.QUOTA, Verdict.HIDDEN):
            patient = verdict is Verdict.HIDDEN and self._to.max_wait is None and policy.max_attempts > 1
            again = self._tries.refused(policy, patient=patient)
        else:
            again = self._tries.turned_back(policy) and verdict is not Verdict.TOO_DEAR
        error, messages = self._service.status_error(response.body)
        if verdict is Verdict.TOO_DEAR:
            messages = (*messages, "refused while the whole limit was left: it costs more than the limit")
        self._last = RateLimitedError(429, error or "Too Many Requests", messages, retry_after=asked)
        if not again:
            self._give_up(self._last)

    async def _after_fault(
        self,
        error: APIStatusError | APIConnectionError | DecodeError,
        *,
        asked: float | None = None,
        timed_out: bool = False,
    ) -> None:
        """Wait before the next attempt, or give up."""
        lasting = isinstance(error, APIConnectionError) and not error.transient
        again = self._tries.fault(self._to.policy) and not lasting
        too_long = asked is not None and self._to.max_wait is not None and asked > self._to.max_wait
        tokens = self._to.budget.spend(timed_out=timed_out) if again and not too_long else None
        if tokens is None:
            self._give_up(error)
        self._tokens += tokens
        self._last = error
        wait = self._to.policy.backoff(self._tries, self._to.jitter(), asked)
        if self._clock() + wait >= self._began + self._deadline:
            raise self._exceeded(retry_after=wait) from error
        if self._to.emit:
            from chainapi.core.events import RetryScheduled

            reason = error.reason if not isinstance(error, APIStatusError) else str(error.status)
            self._to.emit(RetryScheduled(self._service.name, self._query.where, self._attempts, wait, reason))
        self._turn(_PAUSE)
        await asyncio.sleep(wait)

    def _exceeded(self, retry_after: float | None = None) -> DeadlineExceededError:
        """Make the error of a deadline that passed, or would before the next attempt."""
        self._turn(self._phase)
        return DeadlineExceededError(
            self._deadline,
            in_queue=self._spent[_QUEUE],
            in_attempts=self._spent[_ATTEMPT],
            between_attempts=self._spent[_PAUSE],
            retry_after=retry_after,
            last="" if self._last is None else str(self._last),
            where=self._query.where,
            attempts=self._attempts,
            elapsed=self._since - self._began,
        )

    def _give_up(self, error: APIStatusError | APIConnectionError | DecodeError) -> NoReturn:
        """Raise the error with how often and how long was tried."""
        elapsed = self._clock() - self._began
        raise error.after(where=self._query.where, attempts=self._attempts, elapsed=elapsed)

    def _error(self, response: Response) -> APIStatusError:
        """Make the error of an error status."""
        status = response.status
        if 300 <= status < 400:
            place = _target(self._service.endpoint.base_url, response.headers.get("location", ""))
            note = f"redirects are not followed; this one leads {self._service.shown(place)}"
            return RedirectError(status, "Redirect", (note,))
        error, messages = self._service.status_error(response.body)
        kind = _STATUS_ERRORS.get(status, ServerError if status >= 500 else APIStatusError)
        return kind(status, error or _reason_phrase(status), messages)

    def _undecoded(self, error: DecodeError, body: bytes) -> DecodeError:
        """Make the error of a body that could not be decoded, with the key masked."""
        service = self._service
        fault = service.shown_fault(error)
        if error.malformed and _is_html(body):
            origin = service.endpoint.origin
            reason = (
                "the answer is a web page (HTML), no JSON: is the base address right, or does the network"
                f" want a sign-in first? Open {origin} in a browser"
            )
            return fault.changed(reason=reason)
        return fault

    def _tell_sent(self) -> None:
        from chainapi.core.events import RequestSent

        emit, service = self._to.emit, self._service
        service.wait_ended(emit)
        emit(RequestSent(service.name, self._query.where, self._attempts))

    def _tell_received(self, sent: SentAt, response: Response | None, fault: str = "") -> None:
        from chainapi.core.events import ResponseReceived

        emit, service = self._to.emit, self._service
        status, size = (None, 0) if response is None else (response.status, len(response.body))
        elapsed = self._clock() - sent.at
        emit(ResponseReceived(service.name, self._query.where, status, elapsed, size, fault))


_NO_NEWS = LimitNews()


def _settle(permit: Permit) -> None:
    """End a permit of which nothing is known; where it was ended before, this does nothing."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # the call was dropped after its loop, in which nobody waits any more
        return
    permit.lost()


async def _decoded(decode: Callable[[bytes], R], response: Response) -> R:
    """Decode a body; a large one step by step, so that other tasks go on meanwhile."""
    body = response.body
    if not body or body.isspace():
        status = f"{response.status} {_reason_phrase(response.status)}".rstrip()
        raise DecodeError(f"an answer without a body: {status}", malformed=response.status not in _BODILESS)
    if len(body) <= LARGE or not isinstance(decode, Stepwise):
        return decode(body)
    steps: Generator[None, None, R] = decode.steps(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("R", end.value)
        await asyncio.sleep(0)


def _is_html(body: bytes) -> bool:
    """Tell whether a body is HTML or XML: asked again, whoever sent it would send it again."""
    return body[:1_024].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<")


def _target(base_url: str, location: str) -> str:
    """Say where a redirect leads: to an origin, without its path, query and user."""
    if not location:
        return "nowhere"
    try:
        here, there = urlsplit(base_url), urlsplit(urljoin(base_url, location))
    except ValueError:
        return "to no valid address"
    if (here.scheme, here.netloc) == (there.scheme, there.netloc):
        return "to the same origin"
    return f"to {there.scheme}://{there.netloc.rpartition('@')[2]}"


def _reason_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
