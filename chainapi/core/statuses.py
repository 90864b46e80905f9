"""Errors of HTTP statuses: class and text of the error for a response."""

from __future__ import annotations

from chainapi.core.http import Response, reason_phrase
from chainapi.errors import (
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    DecodeError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    RedirectError,
    ServerError,
)

__all__ = ["missing_body", "rate_limited", "status_error"]

_CLASSES: dict[int, type[APIStatusError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
}

_BODILESS = frozenset({204, 205})  # have no body by definition: another attempt would bring none either


def status_error(status: int, error: str, messages: tuple[str, ...]) -> APIStatusError:
    """Return the error of a status that is neither 2xx nor 429.

    `error` and `messages` are those of the response body; without `error` the reason phrase is used.
    """
    kind = _CLASSES.get(status)
    if kind is None and 300 <= status < 400:
        kind = RedirectError
    if kind is None:
        kind = ServerError if status >= 500 else APIStatusError
    return kind(status, error or reason_phrase(status), messages)


def rate_limited(error: str, messages: tuple[str, ...], retry_after: float | None) -> RateLimitedError:
    """Return the error of a 429.

    `retry_after` is the wait in seconds that the service demanded, if any.
    """
    return RateLimitedError(429, error or reason_phrase(429), messages, retry_after=retry_after)


def missing_body(response: Response) -> DecodeError:
    """Return the error of a successful response without a body.

    It is `malformed`, and so the request is sent again, unless the status promises an empty body.
    """
    status = f"{response.status} {reason_phrase(response.status)}".rstrip()
    return DecodeError(f"an answer without a body: {status}", malformed=response.status not in _BODILESS)
