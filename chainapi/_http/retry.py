"""Retry rules: which failed attempts are repeated, and after which pause. Pure."""

from __future__ import annotations

from http import HTTPStatus
from math import inf

from attrs import define, field
from msgspec import Struct

from chainapi._limits.verdict import Verdict
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    DecodeError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    RedirectError,
    ServerError,
)

__all__ = [
    "Failure",
    "RetryBudget",
    "RetryPolicy",
    "Tries",
    "may_be_done",
    "missing_body",
    "pause_after",
    "status_error",
]

Failure = APIStatusError | APIConnectionError | DecodeError

# 429 is retried as well, but the gate waits for it: all requests of the quota wait together.
RETRIED_STATUSES = frozenset({500, 502, 503, 504})
# A 429 weighs less than a fault: it names the time to come back, and the first request in the queue tries on
# behalf of all others. The end of a fault is unknown.
REFUSALS_PER_ATTEMPT = 5
TOKENS, TOKENS_OF_TIMEOUT = 5.0, 10.0  # of the budget, for one retry
_NOT_DONE = frozenset({501, 505})  # the server knows neither the method nor the version
_BODILESS = frozenset({204, 205})  # have no body by definition: another attempt would bring none either
_CLASSES: dict[int, type[APIStatusError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
}


class RetryPolicy(Struct, frozen=True):
    """Number of attempts of one call, and the pauses between them.

    `max_attempts` counts requests, the first included; 1 retries nothing. `base` and `cap` are seconds:
    the n-th pause is drawn from 0 to `min(cap, base * 2 ** n)` ("full jitter").
    """

    max_attempts: int = 5
    base: float = 0.5
    cap: float = 20.0


@define(eq=False, repr=False)
class RetryBudget:
    """Retry budget: tokens that all calls of a session share.

    With it, an outage does not multiply the load. A retry costs 5, after a timeout 10; its success gives that
    back, a first success gives 1. Without tokens a fault is raised at once; the first attempt of a call is
    never held back.
    """

    capacity: float = 500.0
    level: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.level = self.capacity

    def succeeded(self, spent: float) -> None:
        """Give back what a call spent on its retries, or 1 if it spent nothing."""
        self.level = min(self.capacity, self.level + (spent or 1.0))


class Tries(Struct, eq=False):
    """Failed attempts of one call: faults, 429s, and tokens of the budget."""

    faults: int = 0
    refusals: int = 0
    spent: float = 0.0


def pause_after(
    failure: Failure,
    tries: Tries,
    policy: RetryPolicy,
    budget: RetryBudget,
    *,
    jitter: float,
    max_wait: float | None = None,
    asked: float = 0.0,
    verdict: Verdict = Verdict.PASSED,
) -> float | None:
    """Count a failed attempt, and return the seconds to pause before the next one.

    None if no other attempt follows. After a 429 it is 0, because the gate holds the next attempt back.

    Args:
        failure: error of the attempt.
        tries: failed attempts of the call before it.
        policy: number of attempts, and the backoff.
        budget: pays for the attempt.
        jitter: random number in [0, 1).
        max_wait: seconds that the call may wait for quota; None for no limit.
        asked: seconds that the service asked to wait for after a 5xx: the least pause.
        verdict: meaning of a 429 for the quota.

    """
    if isinstance(failure, RateLimitedError):
        tries.refusals += 1
        return 0.0 if tries.refusals <= _most_refusals(policy, verdict, max_wait) else None
    tries.faults += 1
    if not _transient(failure) or tries.faults >= policy.max_attempts:
        return None
    tokens = TOKENS_OF_TIMEOUT if isinstance(failure, APITimeoutError) else TOKENS
    if budget.level < tokens or (max_wait is not None and asked > max_wait):
        return None
    budget.level -= tokens
    tries.spent += tokens
    return max(asked, jitter * min(policy.cap, policy.base * 2.0 ** min(tries.faults, 64)))


def _most_refusals(policy: RetryPolicy, verdict: Verdict, max_wait: float | None) -> float:
    """Return the most 429s after which a call tries again.

    A call without `max_wait` tries as often as a limit that nobody announces refuses it: the gate does so on
    behalf of all calls, ever more slowly.
    """
    retries = policy.max_attempts - 1
    match verdict:
        case Verdict.TOO_EXPENSIVE:
            return 0
        case Verdict.UNANNOUNCED if max_wait is None and retries:
            return inf
        case Verdict.QUOTA | Verdict.UNANNOUNCED:
            return retries * REFUSALS_PER_ATTEMPT
        case _:
            return retries


def _transient(failure: Failure) -> bool:
    """Return whether another attempt could succeed."""
    if isinstance(failure, APIConnectionError):
        return failure.transient
    return failure.malformed if isinstance(failure, DecodeError) else failure.status in RETRIED_STATUSES


def may_be_done(failure: Failure) -> bool:
    """Return whether the server may have carried out a request in spite of the fault."""
    if isinstance(failure, APIConnectionError):
        return failure.sent
    return isinstance(failure, DecodeError) or (failure.status >= 500 and failure.status not in _NOT_DONE)


def status_error(
    status: int, error: str, messages: tuple[str, ...], retry_after: float | None
) -> APIStatusError:
    """Return the error of a status that is not 2xx.

    `error` and `messages` come from the response body; without `error` the reason phrase is used.
    `retry_after` is the wait in seconds that a 429 demands, if any.
    """
    error = error or _reason_phrase(status)
    if status == 429:
        return RateLimitedError(status, error, messages, retry_after=retry_after)
    kind = _CLASSES.get(status)
    if kind is None and 300 <= status < 400:
        kind = RedirectError
    if kind is None:
        kind = ServerError if status >= 500 else APIStatusError
    return kind(status, error, messages)


def missing_body(status: int) -> DecodeError:
    """Return the error of a successful response without a body.

    It is `malformed`, and so the request is sent again, unless the status promises an empty body.
    """
    shown = f"{status} {_reason_phrase(status)}".rstrip()
    return DecodeError(f"an answer without a body: {shown}", malformed=status not in _BODILESS)


def _reason_phrase(status: int) -> str:
    """Return the standard phrase of a status; empty for an unknown status.

    An example is ``Not Found``.
    """
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
