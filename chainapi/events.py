"""Events of a session, for logs, traces and progress displays.

No event carries the API key, a page token, a header or a body. Times are seconds.
"""

from __future__ import annotations

from attrs import field, frozen

__all__ = [
    "CacheServed",
    "CallBegan",
    "CallEnded",
    "CallEvent",
    "Event",
    "KeyNotUnique",
    "LoopFound",
    "OrderBroken",
    "PageReceived",
    "PlanContradicted",
    "QuotaWaitBegan",
    "QuotaWaitEnded",
    "RequestSent",
    "ResponseReceived",
    "Restarted",
    "RetryScheduled",
    "RowsUncounted",
    "TokenRenewed",
    "WaitBegan",
    "WaitEnded",
]


@frozen
class CallEvent:
    """Base of the events of one call, and of the stream that made the call.

    Attributes:
        service: `metrics` or `data`.
        where: method and path.
        call: number of the call, unique in the process; an error of the call has the same number. None if
            no request was sent: for an answer from a cache, and for a stream that has not made a call.
        tag: name of the spender in `quota.spenders`, of the call or of its session.

    """

    service: str
    where: str
    call: int | None = field(default=None, kw_only=True)
    tag: str = field(default="", kw_only=True)


@frozen
class CallBegan(CallEvent):
    """Event: a call begins.

    `route` is the path with a placeholder for each identifier, and `url` the whole address, with "REDACTED"
    for the page token.
    """

    route: str
    url: str


@frozen
class CallEnded(CallEvent):
    """Event: a call ends `elapsed` seconds after it began, with `attempts` requests.

    `error` is the name of the class of its error; empty after a success, "CancelledError" if the caller was
    cancelled, "GivenUp" if nobody needed a page any more.
    """

    elapsed: float
    attempts: int
    error: str = ""


@frozen
class QuotaWaitBegan(CallEvent):
    """Event: a call waits for its turn to send a request.

    The `reason` is as in `WaitBegan`, or "turn" behind other requests: those that wait longer, or those in
    flight. `seconds` is the predicted length of the wait, None if it is unknown. A wait of less than 10 ms
    has no event.
    """

    reason: str
    seconds: float | None


@frozen
class QuotaWaitEnded(CallEvent):
    """Event: the wait of a call for its turn ends after `seconds`.

    It may end without a turn: the call failed, or its caller was cancelled.
    """

    reason: str
    seconds: float


@frozen
class RequestSent(CallEvent):
    """Event: a request leaves; `attempt` counts from 1 within its call."""

    attempt: int


@frozen
class ResponseReceived(CallEvent):
    """Event: a request ended after `elapsed` seconds.

    It has the `status` of the response; without a response that is None, `fault` has the reason, and `error`
    the name of the class of its error. `request_id` is the id that the service gave the request, if it did.
    """

    status: int | None
    elapsed: float
    size: int = 0
    fault: str = ""
    error: str = ""
    request_id: str | None = None


@frozen
class CacheServed(CallEvent):
    """Event: a cached response answers a call; its request was sent `age` seconds ago.

    The `use` is "answer" of a fresh response, "revalidate" if a request in the background replaces it, "on
    error" if a request failed. It has no number of a call, and is followed by no other event of the call.
    """

    age: float
    use: str


@frozen
class RetryScheduled(CallEvent):
    """Event: a call pauses for `wait` seconds after a fault, and is then sent again."""

    attempt: int
    wait: float
    reason: str


@frozen
class WaitBegan:
    """Event: nothing is sent to a service for `seconds`, a second or more.

    The `reason` is "stop" after a 429, "quota" when the quota is used up, "rate" for your own ceiling.
    """

    service: str
    reason: str
    seconds: float


@frozen
class WaitEnded:
    """Event: requests to a service may leave again after a wait of `seconds`."""

    service: str
    reason: str
    seconds: float


@frozen
class PlanContradicted:
    """Event: responses contradict the session's `plan`, which does not count any more.

    They announce the `limit` in a `window` of seconds, None if unknown. If those are the plan's, they count
    requests and not units. What responses announce and show counts from here on.
    """

    service: str
    plan: str
    limit: float | None
    window: float | None


@frozen
class PageReceived(CallEvent):
    """Event: a stream received a page of `rows` rows.

    It is the `page`-th since the stream began or restarted.
    """

    page: int
    rows: int


@frozen
class Restarted(CallEvent):
    """Event: a stream restarts at the first page, as its page token has died.

    `exact` is False if rows that were yielded before a resume, or as pages, cannot be recognized any more and
    may come again. The event may then report a restart before the resume, which `restarts` includes.
    """

    restarts: int
    reason: str
    exact: bool = True


@frozen
class TokenRenewed(CallEvent):
    """Event: a page token was refused, and fetching the page before gave a new one.

    The stream has received `pages` pages, and continues after them with the new token.
    """

    pages: int


@frozen
class KeyNotUnique(CallEvent):
    """Event: two rows share the key that should identify a row.

    They are on the `page`-th page, or on it and a neighboring page. The stream stops using the key: it drops
    no row for it any more, and counts rows by their content. Rows that were yielded under the key come again
    after a restart.
    """

    page: int


@frozen
class OrderBroken(CallEvent):
    """Event: a row of the `page`-th page breaks the list's descending order.

    The `reason` describes the break. No row is lost by it. From here on each row is counted, which takes
    about 60 bytes a row.
    """

    page: int
    reason: str


@frozen
class RowsUncounted(CallEvent):
    """Event: from the `page`-th page on, rows may come again after a restart.

    The stream keeps the hashes of about a million rows of a list that is in no order; this one has more.
    """

    page: int


@frozen
class LoopFound(CallEvent):
    """Event: a stream ends with PaginationLoopError.

    Its `page`-th page repeats an earlier one.
    """

    page: int


Event = (
    CallBegan
    | CallEnded
    | QuotaWaitBegan
    | QuotaWaitEnded
    | RequestSent
    | ResponseReceived
    | CacheServed
    | RetryScheduled
    | WaitBegan
    | WaitEnded
    | PlanContradicted
    | PageReceived
    | Restarted
    | TokenRenewed
    | KeyNotUnique
    | OrderBroken
    | RowsUncounted
    | LoopFound
)
