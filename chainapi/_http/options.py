"""Options of calls; a call and its attempt as values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct, field

from chainapi._http.message import Response, SentAt
from chainapi._http.query import Query
from chainapi._http.retry import RetryPolicy
from chainapi._limits.verdict import Verdict
from chainapi.core.private import Private
from chainapi.errors import APIConnectionError

if TYPE_CHECKING:
    from chainapi._http.cache import Cache
    from chainapi._limits.headers import RateLimitInfo
    from chainapi._limits.queue import WaitingLimit

__all__ = ["Attempt", "Call", "CallOptions"]


class CallOptions(Private, Struct, frozen=True, eq=False):
    """Options of a call; a view of a session has one set for all of its calls.

    Attributes:
        timeout: seconds for one attempt.
        retry: number of attempts, and the backoff between them.
        max_wait: seconds that the call may wait for quota; None for no limit.
        deadline: seconds that the call may take in all; None for no limit.
        priority: calls with a higher one go first in the queue for quota.
        tag: name of the spender of the quota; None uses the session's.
        headers: further headers of the request, by lower-case names.
        waiting_limit: limit on the calls of the view that wait for quota; None for none.
        coalesce: whether identical requests in flight are one.
        cache: keeps successful responses; identical requests in flight are then one too.

    """

    timeout: float = 30.0
    retry: RetryPolicy = RetryPolicy()
    max_wait: float | None = None
    deadline: float | None = None
    priority: int = 0
    tag: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    waiting_limit: WaitingLimit | None = None
    coalesce: bool = False
    cache: Cache | None = None

    @property
    def waits(self) -> tuple[object, ...]:
        """Options that decide how long a call may take, and when its turn comes."""
        return self.timeout, self.retry, self.max_wait, self.deadline, self.priority

    @property
    def identity(self) -> tuple[object, ...]:
        """Options that calls have in common if one response may answer them."""
        return self.waits, self.waiting_limit, self.cache

    @property
    def shares(self) -> bool:
        """Whether one response may answer several calls."""
        return self.coalesce or self.cache is not None


class Call(Private, Struct, frozen=True, eq=False):
    """Call: one request, repeated until it succeeds or no attempt is left.

    Attributes:
        query: path and parameters.
        page_token: token of the page to fetch; None for the first page or a single resource.
        not_after: time of the loop from which on the page token is dead and not sent.
        needed: returns whether somebody still waits for the response; checked before each attempt.
        options: waits, retries and headers.
        fresh: whether the response must come from the service, and not from a cache.
        raw: whether the body may be other than JSON.

    """

    query: Query
    page_token: str | None = None
    not_after: float = inf
    needed: Callable[[], bool] | None = None
    options: CallOptions = field(default_factory=CallOptions)
    fresh: bool = False
    raw: bool = False


class Attempt(Private, Struct, eq=False):
    """Attempt: one request, its outcome, its limits and the gate's verdict.

    The limits are those that the response announced, None without one. `elapsed` is the seconds from sending
    to the outcome, and `age` is the seconds since the request was sent, for a response of a cache.
    """

    sent: SentAt
    outcome: Response | APIConnectionError
    limits: RateLimitInfo | None = None
    verdict: Verdict = Verdict.PASSED
    elapsed: float = 0.0
    age: float = 0.0
