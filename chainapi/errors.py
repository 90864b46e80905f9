"""Every error that chainapi raises on its own account.

::

    ChainAPIError
    ├── ConfigurationError          also a ValueError: an argument or a variable is missing or wrong
    ├── SessionClosedError          the session was closed before or during the call
    ├── APIStatusError              the service answered with an error (specification, section 7)
    │   ├── BadRequestError         400
    │   ├── AuthenticationError     401
    │   ├── PermissionDeniedError   403
    │   ├── NotFoundError           404
    │   ├── RateLimitedError        429, still refused after the waits
    │   ├── RedirectError           3xx: redirects are not followed
    │   └── ServerError             5xx, after the retries
    ├── APIConnectionError          no whole answer arrived, after the retries
    │   ├── APITimeoutError         not within `timeout` seconds; also a TimeoutError
    │   │   └── DeadlineExceededError  not within the call's `deadline`, waits and retries included
    │   ├── CertificateError        the server's certificate is not trusted; nothing was sent, nor tried again
    │   └── ResponseTooLargeError   the body is larger than `max_body`; not asked for again
    ├── DecodeError                 a successful answer with a body that is not what it should be
    ├── QuotaWaitError              the wait for quota would be longer than `max_wait` or `deadline` allows
    ├── ExportError                 an export cannot read or write its target; what was committed is kept
    │   └── IncompleteExportError   some of its sources failed; the others are in the target
    └── PagingError
        ├── PageTokenExpiredError   the page token died and restarting did not help or was not wanted
        │   └── PageRefusedError    also an APIStatusError: a page is refused whatever its token
        ├── PaginationLoopError     the service hands out the same pages again and again
        └── CheckpointError         a checkpoint that is damaged, too new, or of another query

An error met while paging carries ``checkpoint``: give it to ``resume=`` and no row is lost.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self

from chainapi._text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chainapi.core.paging.checkpoint import Checkpoint

__all__ = [
    "APIConnectionError",
    "APIStatusError",
    "APITimeoutError",
    "AuthenticationError",
    "BadRequestError",
    "CertificateError",
    "ChainAPIError",
    "CheckpointError",
    "ConfigurationError",
    "DeadlineExceededError",
    "DecodeError",
    "ExportError",
    "IncompleteExportError",
    "NotFoundError",
    "PageRefusedError",
    "PageTokenExpiredError",
    "PaginationLoopError",
    "PagingError",
    "PermissionDeniedError",
    "QuotaWaitError",
    "RateLimitedError",
    "RedirectError",
    "ResponseTooLargeError",
    "ServerError",
    "SessionClosedError",
]


class ChainAPIError(Exception):
    """Root of the tree: catching it catches everything that chainapi raises.

    Attributes:
        checkpoint: where the walk stood when the error met it, for ``resume=``; None outside a walk.
        partial: the rows that ``collect()`` had when the error met it; None elsewhere.

    """

    checkpoint: Checkpoint | None = None
    partial: list[Any] | None = None

    def __init__(self, message: str = "") -> None:
        super().__init__(_plain(message))

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses take keyword arguments, which pickle would not hand to __init__.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[ChainAPIError], args: tuple[Any, ...], state: dict[str, Any]) -> ChainAPIError:
    error = cls.__new__(cls, *args)
    error.args = args  # OSError, which a timeout is as well, leaves them to __init__
    error.__dict__.update(state)
    return error


class ConfigurationError(ChainAPIError, ValueError):
    """An argument or an environment variable is missing or cannot be used; nothing was sent."""


class SessionClosedError(ChainAPIError):
    """The session was closed before or during the call."""


class APIStatusError(ChainAPIError):
    """The service answered with an error status (specification, sections 2 and 7).

    Attributes:
        status: the HTTP status code.
        error: the error type that the service names, or the reason phrase of the status.
        messages: what the service says about it; a body that is no error body is kept as an excerpt.
        attempts: how many requests were sent for this call.
        elapsed: seconds from the first of them to this error.

    """

    default_status: ClassVar[int] = 0

    def __init__(
        self,
        status: int | None = None,
        error: str = "",
        messages: tuple[str, ...] = (),
        *,
        where: str = "",
        attempts: int = 1,
        elapsed: float = 0.0,
    ) -> None:
        self.status = self.default_status if status is None else status
        self.error = error
        self.messages = tuple(messages)
        self.where = where
        self.attempts = attempts
        self.elapsed = elapsed
        super().__init__(self._describe())

    def after(self, *, where: str, attempts: int, elapsed: float) -> Self:
        """Return the same error with the place and how often and how long was tried."""
        error = copy.copy(self)
        error.where, error.attempts, error.elapsed = where, attempts, elapsed
        error.args = (_plain(error._describe()),)  # noqa: SLF001 - its own
        return error

    def _describe(self) -> str:
        text = f"{self.status} {self.error}".rstrip()
        if self.where:
            text += f" for {self.where}"
        if self.messages:
            text += ": " + "; ".join(self.messages)
        return text + _tried(self.attempts, self.elapsed)


class BadRequestError(APIStatusError):
    """400: a parameter is invalid or malformed; ``messages`` says which."""

    default_status = 400


class AuthenticationError(APIStatusError):
    """401: the Data API needs a proper API key."""

    default_status = 401


class PermissionDeniedError(APIStatusError):
    """403: the key is valid but lacks the privilege."""

    default_status = 403


class NotFoundError(APIStatusError):
    """404: a mistyped path, or the resource does not exist."""

    default_status = 404


class RateLimitedError(APIStatusError):
    """429, still refused after every wait that the service asked for (specification, section 8).

    Attributes:
        retry_after: seconds the service last asked to wait, or None where it did not say.

    """

    default_status = 429

    def __init__(
        self,
        status: int | None = None,
        error: str = "",
        messages: tuple[str, ...] = (),
        *,
        where: str = "",
        attempts: int = 1,
        elapsed: float = 0.0,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, error, messages, where=where, attempts=attempts, elapsed=elapsed)
        self.retry_after = retry_after


class RedirectError(APIStatusError):
    """3xx: redirects are never followed, because the key is bound to its origin."""


class ServerError(APIStatusError):
    """5xx, still so after the retries."""

    default_status = 500


class APIConnectionError(ChainAPIError):
    """No whole answer arrived: refused, reset, cut short or unreadable, after the retries.

    Attributes:
        attempts: how many requests were sent for this call.
        elapsed: seconds from the first of them to this error.

    """

    transient: ClassVar[bool] = True  # another attempt may succeed

    def __init__(self, reason: str, *, where: str = "", attempts: int = 1, elapsed: float = 0.0) -> None:
        self.reason = _plain(reason)
        self.where = where
        self.attempts = attempts
        self.elapsed = elapsed
        place = f" for {where}" if where else ""
        super().__init__(f"{self.reason}{place}{_tried(attempts, elapsed)}")

    def after(self, *, where: str, attempts: int, elapsed: float) -> Self:
        """Return the same error with how often and how long was tried."""
        return type(self)(self.reason, where=where, attempts=attempts, elapsed=elapsed)


class APITimeoutError(APIConnectionError, TimeoutError):
    """No whole answer within ``timeout`` seconds, at every attempt."""


class DeadlineExceededError(APITimeoutError):
    """The call's ``deadline`` passed, or comes before another attempt can begin.

    `__cause__` is the error of the last attempt that failed by itself; None where none did.

    Attributes:
        deadline: seconds that the call had in all.
        in_queue: seconds before its attempts: for quota, for a place among those in flight, and where it is
            the first of its route, for the records to be loaded.
        in_attempts: seconds from sending to the decoded answer, or to its failure, of all attempts together.
        between_attempts: seconds of waits after failed attempts.
        retry_after: seconds after which the next attempt would have begun; None where one was under way, or
            none had failed.

    """

    def __init__(
        self,
        deadline: float,
        *,
        in_queue: float = 0.0,
        in_attempts: float = 0.0,
        between_attempts: float = 0.0,
        retry_after: float | None = None,
        last: str = "",
        where: str = "",
        attempts: int = 0,
        elapsed: float = 0.0,
    ) -> None:
        super().__init__(f"no answer within deadline={deadline:g} s", where=where, elapsed=elapsed)
        self.attempts = attempts
        self.deadline = deadline
        self.in_queue = in_queue
        self.in_attempts = in_attempts
        self.between_attempts = between_attempts
        self.retry_after = retry_after
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        text = (
            f"{self.args[0]}: {in_queue:.1f} s in the queue, {in_attempts:.1f} s in {tries},"
            f" {between_attempts:.1f} s between attempts"
        )
        if retry_after is not None:
            text += f"; the next would begin in {retry_after:.1f} s"
        self.args = (_plain(f"{text}; the last error: {last}" if last else text),)

    def after(self, *, where: str, attempts: int, elapsed: float) -> Self:
        """Return the error itself: it has the place, and how often and how long was tried."""
        return self


class CertificateError(APIConnectionError):
    """The server's certificate is not trusted: not one byte was sent, and nothing is tried again."""

    transient = False


class ResponseTooLargeError(APIConnectionError):
    """The decompressed body is larger than the transport's cap (``max_body``); not retried."""

    transient = False


class DecodeError(ChainAPIError):
    """A successful answer whose body is not what the route promises.

    Attributes:
        path: the JSON path of what is wrong, such as ``$.results[3].value``; ``$`` is the body as a whole.
        malformed: True when the body is no JSON at all; such an answer was asked for again before.
        row: number of the row in its page, from 0, that alone is wrong; None where it is not one row.
        advice: how to go on all the same; empty where there is no way.

    """

    def __init__(
        self,
        reason: str,
        *,
        path: str = "$",
        where: str = "",
        malformed: bool = False,
        row: int | None = None,
        advice: str = "",
        attempts: int = 1,
        elapsed: float = 0.0,
    ) -> None:
        self.reason = _plain(reason)
        self.path = _plain(path)
        self.where = where
        self.malformed = malformed
        self.row = row
        self.advice = advice
        self.attempts = attempts
        self.elapsed = elapsed
        place = f" in the answer for {where}" if where else ""
        text = f"{self.path}: {self.reason}{place}{_tried(attempts, elapsed)}"
        super().__init__(f"{text}; {advice}" if advice else text)

    def changed(self, **changes: Any) -> Self:
        """Return the same error with other arguments."""
        names = ("reason", "path", "where", "malformed", "row", "advice", "attempts", "elapsed")
        kept = {name: getattr(self, name) for name in names}
        made = type(self)(**{**kept, **changes})
        if self.checkpoint is not None:
            made.checkpoint = self.checkpoint
        return made

    def after(self, *, where: str, attempts: int, elapsed: float) -> Self:
        """Return the same error with the place and how often and how long was tried."""
        return self.changed(where=where, attempts=attempts, elapsed=elapsed)


class QuotaWaitError(ChainAPIError):
    """The quota frees up later than ``max_wait`` or the call's ``deadline`` allows; raised at once.

    Attributes:
        retry_at: Unix time in seconds from which a try can succeed.
        retry_after: the same, in seconds from when the error was raised.
        max_wait: seconds that the call might still wait; None where its deadline is what came first.
        deadline: seconds that were left until its deadline; None where `max_wait` is what came first.

    """

    def __init__(
        self,
        retry_at: float,
        *,
        retry_after: float,
        max_wait: float | None = None,
        deadline: float | None = None,
    ) -> None:
        self.retry_at = retry_at
        self.retry_after = retry_after
        self.max_wait = max_wait
        self.deadline = deadline
        late = (
            f"later than max_wait={max_wait:g} s allows"
            if deadline is None
            else f"later than the call's deadline, {deadline:.1f} s from now"
        )
        super().__init__(f"quota is free again in {retry_after:.1f} s, {late}")


class PagingError(ChainAPIError):
    """A walk over pages cannot go on."""


class PageTokenExpiredError(PagingError):
    """The page token is no longer valid, and a restart was not wanted or did not get further.

    Where the service refused the token, `__cause__` is the error with its status and messages.
    """


class PageRefusedError(PageTokenExpiredError, APIStatusError):
    """The service refuses a page with a new token as well: the token is not the reason.

    `messages` are the service's own, `__cause__` is the plain error of the status. Iterating again, or
    resuming from `checkpoint`, asks for the page again.
    """


class PaginationLoopError(PagingError):
    """The service repeats itself: a page token with the same rows again, or pages without new rows."""


class CheckpointError(PagingError, ValueError):
    """A checkpoint that is damaged, written by a newer version, or taken from another query."""


class ExportError(ChainAPIError):
    """An export cannot read or write its target; what was committed is kept, and started again it goes on."""


class IncompleteExportError(ExportError):
    """Some sources of an export failed; the others are in the target. Started again it goes on with those.

    Attributes:
        failures: the error of each source that failed, by its label.

    """

    def __init__(self, message: str = "", failures: Mapping[str, ChainAPIError] | None = None) -> None:
        super().__init__(message)
        self.failures = dict(failures or {})


def _tried(attempts: int, elapsed: float) -> str:
    return "" if attempts <= 1 else f" (tried {attempts} times in {elapsed:.1f} s)"


_LONGEST = 2_000  # characters


def _plain(text: str) -> str:
    """Cut a text that may hold what a service sent, and show what a terminal would act on as escapes."""
    return printable(text, _LONGEST)
