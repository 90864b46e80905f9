"""Events of a session, for logs, traces and progress displays.

No event carries the API key, a header or a body. Times are seconds; `where` is a method and a path.
"""

from __future__ import annotations

from attrs import frozen

__all__ = [
    "CacheServed",
    "Event",
    "KeyNotUnique",
    "LoopFound",
    "OrderBroken",
    "PageReceived",
    "RequestSent",
    "ResponseReceived",
    "Restarted",
    "RetryScheduled",
    "TokenRenewed",
    "WaitBegan",
    "WaitEnded",
]


@frozen
class RequestSent:
    """Event: a request leaves; `attempt` counts from 1 within its call."""

    service: str
    where: str
    attempt: int


@frozen
class ResponseReceived:
    """Event: a request ended after `elapsed` seconds.

    It has the `status` of the response; without a response that is None, and `fault` has the reason.
    """

    service: str
    where: str
    status: int | None
    elapsed: float
    size: int = 0
    fault: str = ""


@frozen
class CacheServed:
    """Event: a cached response answers a call; its request was sent `age` seconds ago.

    The `use` is "answer" of a fresh response, "revalidate" if a request in the background replaces it, "on
    error" if a request failed.
    """

    service: str
    where: str
    age: float
    use: str


@frozen
class RetryScheduled:
    """Event: a call pauses for `wait` seconds after a fault, and is then sent again."""

    service: str
    where: str
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
class PageReceived:
    """Event: a walk received a page of `rows` rows.

    It is the `page`-th since the walk began or restarted.
    """

    service: str
    where: str
    page: int
    rows: int


@frozen
class Restarted:
    """Event: a walk restarts at the first page, as its page token has died.

    `exact` is False if rows that were yielded before a resume, or as pages, cannot be recognised any more and
    may come again. The event may then report a restart before the resume, which `restarts` includes.
    """

    service: str
    where: str
    restarts: int
    reason: str
    exact: bool = True


@frozen
class TokenRenewed:
    """Event: a page token was refused, and fetching the page before gave a new one.

    The walk has received `pages` pages, and continues after them with the new token.
    """

    service: str
    where: str
    pages: int


@frozen
class KeyNotUnique:
    """Event: two rows share the key that should identify a row.

    They are on the `page`-th page, or on it and a neighbouring page. The walk stops using the key: it drops
    no row for it any more, and counts rows by their content. Rows that were yielded under the key come again
    after a restart.
    """

    service: str
    where: str
    page: int


@frozen
class OrderBroken:
    """Event: a row of the `page`-th page breaks the list's descending order.

    The `reason` describes the break. No row is lost by it. From here on each row is counted, which takes
    about 28 bytes a row.
    """

    service: str
    where: str
    page: int
    reason: str


@frozen
class LoopFound:
    """Event: a walk ends with PaginationLoopError.

    Its `page`-th page repeats an earlier one.
    """

    service: str
    where: str
    page: int


Event = (
    RequestSent
    | ResponseReceived
    | CacheServed
    | RetryScheduled
    | WaitBegan
    | WaitEnded
    | PageReceived
    | Restarted
    | TokenRenewed
    | KeyNotUnique
    | OrderBroken
    | LoopFound
)
