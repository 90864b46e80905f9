"""Errors of chainapi, in one tree.

::

    ChainAPIError
    ├── ConfigurationError          an argument or a variable is missing or wrong; also a ValueError
    │   └── ArgumentError           the value of an argument is wrong
    ├── SessionClosedError          the session was closed before or during the call
    ├── APIStatusError              the service returned an error (specification, section 7)
    │   ├── BadRequestError         400
    │   ├── AuthenticationError     401
    │   ├── PermissionDeniedError   403
    │   ├── NotFoundError           404
    │   ├── RateLimitedError        429, after all waits
    │   ├── RedirectError           3xx; redirects are not followed
    │   └── ServerError             5xx, after the retries
    ├── OutcomeUnknownError         a write without an answer: it may have been carried out
    ├── APIConnectionError          no complete response, after the retries
    │   ├── ConnectError            no connection; nothing was sent
    │   │   └── CertificateError    the server's certificate is not trusted
    │   ├── APITimeoutError         none within `timeout` seconds; also a TimeoutError
    │   │   └── DeadlineExceededError  none within the call's `deadline`, with waits and retries
    │   └── ResponseTooLargeError   the body is larger than `max_body`; not retried
    ├── DecodeError                 the body of a successful response is malformed
    │   └── ColumnValueError        the type of a column cannot hold a value
    ├── WebhookSignatureError       a call of a webhook that the service did not sign
    ├── QuotaWaitError              the wait for quota would exceed `max_wait` or `deadline`
    │   └── QueueFullError          as many calls wait for quota as `max_waiting` allows
    ├── ShareUnavailableError       the processes that share the quota cannot be reached
    ├── RecordingError              a recording has no answer to a request, or cannot be read or written
    ├── ExportError                 an export cannot read or write its target; committed pages stay
    │   ├── IncompleteExportError   some of its sources failed; the target has the others
    │   └── TargetInUseError        another export writes to it, or a program has its database open
    └── PagingError
        ├── PageTokenExpiredError   the page token expired, and a restart failed or was not wanted
        │   └── PageRefusedError    the service refuses a page with any token; also an APIStatusError
        ├── PaginationLoopError     the service repeats the same pages
        └── CheckpointError         the checkpoint is damaged, too new, or of another query

An error of a walk has its ``checkpoint``: pass that to ``resume=``, and no row is lost.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self

from chainapi._text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chainapi._paging.checkpoint import Checkpoint

__all__ = [
    "APIConnectionError",
    "APIStatusError",
    "APITimeoutError",
    "ArgumentError",
    "AuthenticationError",
    "BadRequestError",
    "CertificateError",
    "ChainAPIError",
    "CheckpointError",
    "ColumnValueError",
    "ConfigurationError",
    "ConnectError",
    "DeadlineExceededError",
    "DecodeError",
    "ExportError",
    "IncompleteExportError",
    "NotFoundError",
    "OutcomeUnknownError",
    "PageRefusedError",
    "PageTokenExpiredError",
    "PaginationLoopError",
    "PagingError",
    "PermissionDeniedError",
    "QueueFullError",
    "QuotaWaitError",
    "RateLimitedError",
    "RecordingError",
    "RedirectError",
    "ResponseTooLargeError",
    "ServerError",
    "SessionClosedError",
    "ShareUnavailableError",
    "TargetInUseError",
    "WebhookSignatureError",
]


class ChainAPIError(Exception):
    """Base class of all errors that chainapi raises.

    Attributes:
        checkpoint: position of the walk at the error, for ``resume=``; None outside a walk.
        partial: the rows that ``collect()`` had before the error, or the table that ``to_arrow()`` had; None
            elsewhere.
        call: number of the call, as in its events and logs; None for an error without a call.
        request_id: id that the service gave to the last request of the call, from a header of the response
            such as ``x-request-id``; None without a response, or without such a header.

    """

    checkpoint: Checkpoint | None = None
    partial: Any = None
    call: int | None = None
    request_id: str | None = None

    def __init__(self, message: str = "") -> None:
        super().__init__(_plain(message))

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses take keyword arguments, which pickle would not pass to __init__.
        return _restore, (type(self), self.args, self.__dict__)

    def __copy__(self) -> Self:
        # `copy` prefers a registered reducer. Dask relies on tblib, whose reducer keeps the traceback, and so
        # the frames that hold the stream.
        make, arguments = self.__reduce__()
        made: Self = make(*arguments)
        return made


def _restore(cls: type[ChainAPIError], args: tuple[Any, ...], state: dict[str, Any]) -> ChainAPIError:
    error = cls.__new__(cls, *args)
    error.args = args  # an OSError, such as a TimeoutError, sets them in __init__
    error.__dict__.update(state)
    return error


class ConfigurationError(ChainAPIError, ValueError):
    """An argument or an environment variable is missing or invalid; nothing was sent."""


class ArgumentError(ConfigurationError):
    """The value of an argument is wrong; nothing was sent.

    In a web handler the value may be the client's: such an error is a 422, another ConfigurationError a 500.
    """


class SessionClosedError(ChainAPIError):
    """The session was closed before or during the call."""


class APIStatusError(ChainAPIError):
    """The service returned an error status (specification, sections 2 and 7).

    Attributes:
        status: the HTTP status code.
        error: the error type in the body, or the reason phrase of the status.
        messages: the messages in the body; an excerpt of a body that has another form.
        where: method and path of the request.
        attempts: requests sent for this call.
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
        self.status: int = self.default_status if status is None else status
        self.error = error
        self.messages: tuple[str, ...] = tuple(messages)
        self.where = where
        self.attempts = attempts
        self.elapsed = elapsed
        super().__init__(self._describe())

    def after(self, *, where: str, attempts: int, elapsed: float) -> Self:
        """Return a copy with the request, the number of attempts and their seconds."""
        error = copy.copy(self)
        error.where, error.attempts, error.elapsed = where, attempts, elapsed
        error.args = (_plain(error._describe()),)  # noqa: SLF001 - of its own class
        return error

    def _describe(self) -> str:
        text = f"{self.status} {self.error}".rstrip()
        if self.where:
            text += f" for {self.where}"
        if self.messages:
            text += ": " + "; ".join(self.messages)
        return text + _tried(self.attempts, self.elapsed)


class BadRequestError(APIStatusError):
    """400: a parameter is invalid or malformed; ``messages`` has the reason."""

    default_status = 400


class AuthenticationError(APIStatusError):
    """401: the Data API rejected the API key."""

    default_status = 401


class PermissionDeniedError(APIStatusError):
    """403: the key is valid but lacks the privilege."""

    default_status = 403


class NotFoundError(APIStatusError):
    """404: the path or the resource does not exist."""

    default_status = 404


class RateLimitedError(APIStatusError):
    """429: the quota is used up, also after the waits (specification, section 8).

    Attributes:
        retry_after: seconds of the last Retry-After or RateLimit field; None without one.

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
    """3xx: redirects are not followed, because the API key is bound to its origin."""


class ServerError(APIStatusError):
    """5xx, after the retries."""

    default_status = 500


class APIConnectionError(ChainAPIError):
    """No complete response, also after the retries.

    The connection was refused or reset, or the response was truncated or unreadable.

    Attributes:
        reason: text of the fault.
        where: method and path of the request.
        transient: whether another attempt could succeed.
        sent: whether the request may have reached the server.
        attempts: requests sent for this call.
        elapsed: seconds from the first of them to this error.

    """

    transient: ClassVar[bool] = True
    sent: ClassVar[bool] = True

    def __init__(self, reason: str, *, where: str = "", attempts: int = 1, elapsed: float = 0.0) -> None:
        self.reason: str = _plain(reason)
        self.where = where
        self.attempts = attempts
        self.elapsed = elapsed
        place = f" for {where}" if where else ""
        super().__init__(f"{self.reason}{place}{_tried(attempts, elapsed)}")

    def after(self, *, where: str, attempts: int, elapsed: float) -> Self:
        """Return a copy with the request, the number of attempts and their seconds."""
        return type(self)(self.reason, where=where, attempts=attempts, elapsed=elapsed)


class ConnectError(APIConnectionError):
    """No connection, so nothing was sent.

    The address was not found, or the server refused or did not complete the connection.

    The session sent nothing, so it repeats writes as well.
    """

    sent = False


class OutcomeUnknownError(ChainAPIError):
    """A write got no answer that says whether the service carried it out.

    The response was lost, came too late, or was a 5xx or a web page. The session does not send such a request
    again, because that may do everything twice. `__cause__` is the fault.

    Attributes:
        where: method and path of the request.
        reason: text of the fault.
        lookup: method of a session that shows whether the write was carried out, such as
            ``data.webhooks.list``; empty without one.
        attempts: requests sent for this call; the last of them is the one without an answer.
        elapsed: seconds from the first of them to this error.

    """

    def __init__(
        self, reason: str, *, where: str = "", lookup: str = "", attempts: int = 1, elapsed: float = 0.0
    ) -> None:
        self.reason: str = _plain(reason)
        self.where = where
        self.lookup = lookup
        self.attempts = attempts
        self.elapsed = elapsed
        check = f"look it up with session.{lookup}()" if lookup else "look up its effect"
        super().__init__(
            f"the outcome of {where} is unknown: {self.reason}. The service may have carried it out, so it"
            f" was not sent again: {check} before you repeat the call"
        )


class APITimeoutError(APIConnectionError, TimeoutError):
    """No complete response within ``timeout`` seconds, in every attempt."""


class DeadlineExceededError(APITimeoutError):
    """The call's ``deadline`` passed, or will pass before another attempt can begin.

    `__cause__` is the error of the last attempt that failed before the deadline, if one did. The seconds
    below are not known, and 0, of a coalesced call that ends before its request, and of a block of calls, for
    which `chainapi.contrib.deadlines.within` raises it.

    Attributes:
        deadline: seconds that the call had in total.
        in_queue: seconds of waits for quota and for a place among the requests in flight; the first call of
            a route also loads its models in them.
        in_attempts: seconds of all attempts, each from sending to the decoded response or to its failure.
        between_attempts: seconds of waits after failed attempts.
        retry_after: seconds after which the next attempt would have begun; None during an attempt, and before
            the first one failed.

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
        text = str(self.args[0])
        if in_queue or in_attempts or between_attempts:
            text += (
                f": {in_queue:.1f} s in the queue, {in_attempts:.1f} s in {tries},"
                f" {between_attempts:.1f} s between attempts"
            )
        if retry_after is not None:
            text += f"; the next would begin in {retry_after:.1f} s"
        self.args: tuple[Any, ...] = (_plain(f"{text}; the last error: {last}" if last else text),)

    def after(self, *, where: str, attempts: int, elapsed: float) -> Self:
        """Return the error itself: it has these already."""
        return self


class CertificateError(ConnectError):
    """The session does not trust the certificate of the server.

    It sent nothing, and does not retry the request.
    """

    transient = False


class ResponseTooLargeError(APIConnectionError):
    """The response body is larger than the cap of the transport (``max_body``).

    The size counts after decompression. The session does not retry the request.
    """

    transient = False


class DecodeError(ChainAPIError):
    """The body of a successful response does not match the route.

    Attributes:
        reason: text of the fault.
        path: the JSON path of the fault, such as ``$.results[3].value``; ``$`` is the whole body.
        where: method and path of the request; empty without one.
        malformed: True when the body is not JSON; such a request is retried first.
        row: index in its page, from 0, of the only wrong row; None if the fault is not in one row.
        advice: the way to continue in spite of it; empty without one.
        attempts: requests sent for this call.
        elapsed: seconds from the first of them to this error.

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
        self.reason: str = _plain(reason)
        self.path: str = _plain(path)
        self.where = where
        self.malformed = malformed
        self.row = row
        self.advice = advice
        self.attempts = attempts
        self.elapsed = elapsed
        place = f" in the response to {where}" if where else ""
        text = f"{self.path}: {self.reason}{place}{_tried(attempts, elapsed)}"
        super().__init__(f"{text}; {advice}" if advice else text)

    def changed(self, **changes: Any) -> Self:
        """Return the same error with other arguments."""
        names = ("reason", "path", "where", "malformed", "row", "advice", "attempts", "elapsed")
        kept = {name: getattr(self, name) for name in names}
        made = type(self)(**{**kept, **changes})
        made.__dict__ |= {name: value for name, value in vars(self).items() if name in _CIRCUMSTANCES}
        return made

    def after(self, *, where: str, attempts: int, elapsed: float) -> Self:
        """Return a copy with the request, the number of attempts and their seconds."""
        return self.changed(where=where, attempts=attempts, elapsed=elapsed)


class ColumnValueError(DecodeError):
    """A value of a row does not fit the type of its column in a table or a file.

    The `path` leads from the row to the value, by the names of columns.
    """


class WebhookSignatureError(ChainAPIError):
    """The signature of a webhook's call is missing or wrong.

    Answer with 401, and ignore the body.
    """


class QuotaWaitError(ChainAPIError):
    """The wait for quota would exceed ``max_wait`` or ``deadline``; raised at once.

    Attributes:
        retry_at: Unix time in seconds at which quota is available again.
        retry_after: seconds from the error to that time.
        max_wait: seconds that the call may wait in all; None if its deadline came first.
        deadline: seconds until its deadline; None if `max_wait` came first.

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
        super().__init__(f"quota is available again in {retry_after:.1f} s, {late}")


class QueueFullError(QuotaWaitError):
    """As many calls wait for quota as ``max_waiting`` allows; raised at once.

    A call that can leave at once never raises it.

    Attributes:
        retry_at: Unix time in seconds at which the calls that wait now are expected to have left.
        retry_after: seconds from the error to that time.
        max_waiting: calls that may wait.

    """

    def __init__(self, retry_at: float, *, retry_after: float, max_waiting: int) -> None:
        ChainAPIError.__init__(
            self,
            f"the call would have to wait for quota, and max_waiting={max_waiting} calls may do so at once:"
            f" call again in {retry_after:.1f} s, when those are expected to have left, or allow more",
        )
        self.retry_at = retry_at
        self.retry_after = retry_after
        self.max_wait: float | None = None
        self.deadline: float | None = None
        self.max_waiting = max_waiting


class ShareUnavailableError(ChainAPIError):
    """The processes that share the quota cannot be reached, so no request was sent."""


class RecordingError(ChainAPIError):
    """A recording has no answer to a request, or its file cannot be read or written.

    The message names the request and the file. `chainapi.testing` raises it; an error of the file system is
    its ``__cause__``.
    """


class PagingError(ChainAPIError):
    """The rest of a list cannot be read."""


class PageTokenExpiredError(PagingError):
    """The page token expired, and a restart was not wanted or made no progress.

    If the service refused the token, `__cause__` is the error with its status and messages.
    """


class PageRefusedError(PageTokenExpiredError, APIStatusError):
    """The service refuses a page with a new token too: the token is not the reason.

    `__cause__` is the error of the status. Iterate again, or resume from `checkpoint`, to request the page
    again.
    """


class PaginationLoopError(PagingError):
    """The service repeats a page token with the same rows, or pages without new rows."""


class CheckpointError(PagingError, ValueError):
    """The checkpoint is damaged, of a newer version, or of another query."""


class ExportError(ChainAPIError):
    """The export cannot read or write its target.

    Committed rows stay there; the next run fetches the others.
    """


class IncompleteExportError(ExportError):
    """Some sources of an export failed; the target has the rows that were fetched.

    The next run continues with the failed ones.

    Attributes:
        failures: the error of each source that failed, by its label.

    """

    def __init__(self, message: str = "", failures: Mapping[str, ChainAPIError] | None = None) -> None:
        super().__init__(message)
        self.failures: dict[str, ChainAPIError] = dict(failures or {})


class TargetInUseError(ExportError):
    """Another export writes to the target, or another program has its database open.

    Rows since the last commit are fetched again by the next run.
    """


def _tried(attempts: int, elapsed: float) -> str:
    return "" if attempts <= 1 else f" (tried {attempts} times in {elapsed:.1f} s)"


_LONGEST = 2_000  # characters
_CIRCUMSTANCES = frozenset({"checkpoint", "partial", "call", "request_id"})  # set after an error was made


def _plain(text: str) -> str:
    """Return a message that may have text of a service in it, cut and printable."""
    return printable(text, _LONGEST)
