"""Problem details (RFC 9457) of chainapi's errors, for any web framework.

The client of a web application did not choose the services behind it. So it sees its own mistakes, waits that
are true, and otherwise only that an upstream service failed; the log has the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any, ClassVar

from attrs import frozen

from chainapi._api.view import SessionView
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    ArgumentError,
    AuthenticationError,
    BadRequestError,
    ChainAPIError,
    CheckpointError,
    ConfigurationError,
    DeadlineExceededError,
    DecodeError,
    ExportError,
    NotFoundError,
    OutcomeUnknownError,
    PagingError,
    PermissionDeniedError,
    QueueFullError,
    QuotaWaitError,
    RateLimitedError,
    SessionClosedError,
    ShareUnavailableError,
    WebhookSignatureError,
)
from chainapi.models.exact_json import encode_json

__all__ = ["Problem", "problem_of", "upstream_error"]

LOGGER = logging.getLogger("chainapi")

_NO_STORE = {"cache-control": "no-store"}


@frozen
class Problem:
    """Problem details of an error: what the client of a web application may see of it.

    Attributes:
        status: status code of the response.
        kind: name of the kind of problem; ``type`` in JSON is ``urn:chainapi:`` and the name.
        detail: sentence about this occurrence.
        retry_after: seconds after which another request can succeed; None if nobody knows.
        checkpoint: position of a stream that broke, as text; None outside a stream.

    """

    MEDIA_TYPE: ClassVar[str] = "application/problem+json"

    status: int
    kind: str
    detail: str
    retry_after: float | None = None
    checkpoint: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the members of the JSON object."""
        members = {
            "type": f"urn:chainapi:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "retry_after": self.retry_after,
            "checkpoint": self.checkpoint,
        }
        return {name: value for name, value in members.items() if value is not None}

    @property
    def body(self) -> bytes:
        """JSON object, of the media type ``application/problem+json``."""
        return encode_json(self.to_dict())

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the response, besides its media type."""
        if self.retry_after is None:
            return _NO_STORE
        # A script of another origin reads Retry-After only if the header is exposed.
        waits = {"retry-after": str(ceil(self.retry_after)), "access-control-expose-headers": "retry-after"}
        return {**_NO_STORE, **waits}


_UPSTREAM = "an upstream service failed"
_FULL = "too many requests wait for quota: those are expected to have left in {error.retry_after:.1f} s"
_UNKNOWN = "it is unknown whether an upstream service made the change"
_KINDS: Mapping[type[ChainAPIError], tuple[int, str, str]] = {  # status, kind, detail; "": of the service
    ArgumentError: (422, "invalid-argument", "{error}"),
    CheckpointError: (422, "invalid-checkpoint", "{error}"),
    BadRequestError: (422, "refused-argument", ""),
    NotFoundError: (404, "not-found", ""),
    WebhookSignatureError: (401, "unsigned", "the signature of the webhook is missing or wrong"),
    QueueFullError: (503, "quota", _FULL),
    QuotaWaitError: (503, "quota", "quota is available again in {error.retry_after:.1f} s"),
    RateLimitedError: (503, "quota", "the quota of an upstream service is used up"),
    SessionClosedError: (503, "unavailable", "the server is shutting down"),
    ShareUnavailableError: (503, "unavailable", "the shared quota cannot be reached"),
    DeadlineExceededError: (504, "deadline", "no answer within {error.deadline:g} s"),
    APITimeoutError: (504, "upstream-timeout", "an upstream service did not answer in time"),
    OutcomeUnknownError: (502, "outcome-unknown", _UNKNOWN),
    APIConnectionError: (502, "upstream", _UPSTREAM),
    APIStatusError: (502, "upstream", _UPSTREAM),
    DecodeError: (502, "upstream", "an upstream service sent an answer that cannot be read"),
    PagingError: (502, "paging", "the list of an upstream service cannot be read on"),
    ConfigurationError: (500, "configuration", "the server is not configured for this request"),
    ExportError: (500, "export", "the server cannot write its file"),
    ChainAPIError: (500, "internal", "the server failed"),
}
_OURS = (AuthenticationError, PermissionDeniedError)  # faults of the server's own configuration, though a 502


def problem_of(error: ChainAPIError, session: SessionView | None = None, place: str = "") -> Problem:
    """Return the problem details of an error, and log the error.

    Args:
        error: the error.
        session: the session, whose quota has the wait after a 429 that named none.
        place: the request of the client, for the log, such as ``GET /tps/43114``.

    """
    status, kind, detail = _kind(error)
    wait = _wait(error, session)
    LOGGER.log(_level(error, status), "%s answered %d: %s: %s", place, status, type(error).__name__, error)
    if isinstance(error, APIStatusError) and not detail:
        return Problem(status, kind, "; ".join(error.messages) or error.error, wait)
    return Problem(status, kind, detail.format(error=error), wait)


def upstream_error(error: BaseException) -> ChainAPIError | None:
    """Return the error of chainapi in an exception; None if it is another error.

    Tasks of a group raise their errors as an ExceptionGroup, and so does `chainapi.merge`. The error with the
    highest status stands for a group, among equals the one with the longest wait. None if any other error is
    in the group.
    """
    if isinstance(error, ChainAPIError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found = [upstream_error(one) for one in error.exceptions]
    errors = [one for one in found if one is not None]
    return max(errors, key=_severity) if len(errors) == len(found) else None


def _severity(error: ChainAPIError) -> tuple[int, float]:
    return _kind(error)[0], _wait(error) or 0.0


def _kind(error: ChainAPIError) -> tuple[int, str, str]:
    return next(_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS)


def _wait(error: ChainAPIError, session: SessionView | None = None) -> float | None:
    """Return the seconds after which a request can succeed, or None."""
    wait: float | None = getattr(error, "retry_after", None)
    if wait is None and isinstance(error, RateLimitedError) and session is not None:
        wait = max((quota.stopped_for for quota in session.quota.values()), default=0.0) or None
    return wait


def _level(error: ChainAPIError, status: int) -> int:
    if status == HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, _OURS):
        return logging.ERROR
    if status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT):
        return logging.WARNING
    return logging.INFO
