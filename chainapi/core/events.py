"""Events of a session, for logs, traces and progress displays.

No event carries the API key, a header or a body. Times are seconds; `where` is a method and a path.
"""

from __future__ import annotations

from attrs import frozen

__all__ = [
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
    """A request leaves; `attempt` counts from 1 within its call."""

    service: str
    where: str
    attempt: int


@frozen
class ResponseReceived:
    """A request came back after `elapsed` seconds: with `status`, or with None and a `fault`."""

    service: str
    where: str
    status: int | None
    elapsed: float
    size: int = 0
    fault: str = ""


@frozen
class RetryScheduled:
    """A call pauses for `wait` seconds after a fault, and is then sent again."""

    service: str
    where: str
    attempt: int
    wait: float
    reason: str


@frozen
class WaitBegan:
    """Nothing is sent to a service for `seconds`, a second or more.

    The `reason` is "stop" after a 429, "quota" when the quota is used up, "rate" for your own ceiling.
    """

    service: str
    reason: str
    seconds: float


@frozen
class WaitEnded:
    """Requests to a service may leave again after a wait of `seconds`."""

    service: str
    reason: str
    seconds: float


@frozen
class PageReceived:
    """A walk received a page of `rows` rows, its `page`-th since it began or restarted."""

    service: str
    where: str
    page: int
    rows: int


@frozen
class Restarted:
    """A walk begins again at the first page, because its page token is no longer valid.

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
    """The service refused a page token; the page before it was fetched again and had a new one.

    The walk has received `pages` pages, and continues after them with the new token.
    """

    service: str
    where: str
    pages: int


@frozen
class KeyNotUnique:
    """Two rows of the `page`-th page, or of it and its neighbours, share the key that should identify a row.

    The walk stops using the key: it drops no row for it any more, and counts rows by their content. Rows that
    were yielded under the key come again after a restart.
    """

    service: str
    where: str
    page: int


@frozen
class OrderBroken:
    """A row of the `page`-th page breaks the descending order of this list, for the `reason` given.

    No row is lost by it. From here on each row is counted, which takes about 28 bytes a row.
    """

    service: str
    where: str
    page: int
    reason: str


@frozen
class LoopFound:
    """A walk ends with PaginationLoopError, because its `page`-th page repeats an earlier one."""

    service: str
    where: str
    page: int


Event = (
    RequestSent
    | ResponseReceived
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
