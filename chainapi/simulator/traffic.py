"""Requests and answers: their counts, and the entry of each in the log."""

from __future__ import annotations

from collections import Counter

from attrs import define, field

from chainapi._http.message import Response
from chainapi.simulator.faults import Broken
from chainapi.simulator.matching import Segments

__all__ = ["Exchange", "Stats"]


@define(eq=False)
class Stats:
    """Counts of requests and answers.

    Attributes:
        requests: requests that arrived.
        answered: answers by status, without those that broke off.
        sent_while_stopped: requests sent after a 429 had been delivered and before its retry-after was over.
        tokens_minted: page tokens that were issued.
        tokens_expired: requests with an expired token.
        broken: answers that broke off or were never sent.

    """

    requests: int = 0
    answered: Counter[int] = field(factory=Counter[int])
    sent_while_stopped: int = 0
    tokens_minted: int = 0
    tokens_expired: int = 0
    broken: int = 0

    @property
    def refused(self) -> int:
        """Number of answers with status 429."""
        return self.answered[429]


@define(eq=False)
class Exchange:
    """Request to the simulated services, and its answer as far as it has arrived.

    Times are simulated seconds. Neither the API key nor a page token is in it.

    Attributes:
        number: number of the request, from 1, in the order of sending.
        method: HTTP method.
        path: path at the service, without its query.
        service: "metrics" or "data"; None for an address of neither.
        route: name of the route, such as ``data.evm.blocks``; None for a path of no route.
        quota: quota that the request counts against: the service, and the number of the key unless it is the
            first one.
        page: number of the page, from 1; 0 for an unknown page token.
        has_page_token: whether the request has a page token.
        sent: time of sending.
        segments: service and decoded segments of the path.
        stopped: whether it was sent after a 429 had arrived and before its retry-after was over.
        status: status of the answer; None before the answer, and for a broken connection.
        broken: break of the connection, as the fault names it; None for no break.
        answered: time at which the answer arrived; None for one that never arrived.
        retry_after: seconds of the answer's retry-after; None without one.

    """

    number: int
    method: str
    path: str
    service: str | None
    route: str | None
    quota: str
    page: int
    has_page_token: bool
    sent: float
    segments: Segments = field(repr=False)
    stopped: bool
    status: int | None = None
    broken: Broken | None = None
    answered: float | None = None
    retry_after: float | None = None

    def answer(self, response: Response | None, broken: Broken | None) -> None:
        """Enter the response of the services, or the break of the connection."""
        self.broken = broken
        if response is not None:
            self.status = response.status
            wait = response.headers.get("retry-after", "")
            self.retry_after = float(wait) if wait.isdecimal() else None

    def __str__(self) -> str:
        page = f" page {self.page or '?'}" if self.has_page_token else ""
        wait = f", retry-after {self.retry_after:g} s" if self.retry_after is not None else ""
        outcome = self.broken or self.status or "no answer yet"
        late = " (inside a stop)" if self.stopped else ""
        return f"{self.sent:10.3f} s  {self.method} {self.path}{page} -> {outcome}{wait}{late}"
