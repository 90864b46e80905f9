"""Real-world services: forms of headers, missing fields, faults, refused routes.

A `Front` stands before a server of `tests.limits.servers`. It writes real header fields, which the client
reads with its own reader; nothing of the client's arithmetic is shared.
"""

from __future__ import annotations

from math import ceil
from random import Random

from attrs import define, frozen

from tests.limits.changing import Service
from tests.limits.servers import EPSILON, Response, Server, Stacked

__all__ = ["BEGAN", "Errand", "Front", "Fronted"]

BEGAN = 1_700_000_000.0  # Unix time at time 0 of the loop


@frozen
class Errand:
    """Request of a job: its route, its real cost, its documented cost, and its priority."""

    route: str = "/a"
    cost: float = 1.0
    prior: float | None = None
    priority: int = 0


@frozen
class Front:
    """Front of the counting server.

    Attributes:
        form: of the fields: d6 (separate, the reset only on a refusal), d7 (combined, with a reset on every
            answer), d8 (named policies), x (X- fields, the reset as Unix time), none.
        faults: share of the requests that are answered with 503; a counted one has met the limiter.
        counted: whether a request that fails was counted.
        retry_after: whether a 503 has a retry-after of one second.
        torn: share of the responses with a missing field, or a limit of 0.
        silent: share of the requests that get a 404 without fields, and are not counted.
        closed: routes that are always refused, with the quota that is left.
        closed_for: seconds of the retry-after of such a refusal.
        waitless: whether refusals have no wait.
        inner: fields of a refusal by the second of two limiters in turn: its "own", those of the "outer" one,
            or "none"; a retry-after is beside them.

    """

    form: str = "d6"
    faults: float = 0.0
    counted: bool = True
    retry_after: bool = False
    torn: float = 0.0
    silent: float = 0.0
    closed: frozenset[str] = frozenset()
    closed_for: float = 20.0
    waitless: bool = False
    inner: str = "own"


@define
class Fronted:
    """Service with a front; without one its answers have no fields, but their content."""

    server: Service
    front: Front | None
    rng: Random

    def answer(self, now: float, errand: Errand) -> Response:
        """Answer one request."""
        front, rng, server = self.front, self.rng, self.server
        if front is None:
            return server.answer(now, errand.cost)
        assert isinstance(server, Server)
        if errand.route in front.closed:
            return Response(429, fields=self.fields(now, None if front.waitless else front.closed_for))
        if rng.random() < front.silent:
            return Response(404, fields={})
        if rng.random() < front.faults:
            if front.counted and server.earliest(now, errand.cost) <= now + EPSILON:
                server.take(now, errand.cost)
            return Response(503, fields={"retry-after": "1"} if front.retry_after else {})
        at = server.earliest(now, errand.cost)
        if at > now + EPSILON:
            return Response(429, fields=self.refusal(now, None if front.waitless else at - now, errand.cost))
        server.take(now, errand.cost)
        fields = self.fields(now, None)
        if rng.random() < front.torn:
            self.tear(fields)
        return Response(200, fields=fields)

    def tear(self, fields: dict[str, str]) -> None:
        """Remove a field, or replace its value by nonsense."""
        names = sorted(fields)
        if not names:
            return
        name = self.rng.choice(names)
        if name.endswith("-limit") and self.rng.random() < 0.5:
            fields[name] = "0"
        elif self.rng.random() < 0.3:
            fields.clear()
        else:
            del fields[name]

    def refusal(self, now: float, wait: float | None, cost: float) -> dict[str, str]:
        """Return the fields of a refusal; an unannounced second limiter has none."""
        inner = self.front.inner if self.front else "own"
        if inner == "own" or self.second(now, cost) is None:
            return self.fields(now, wait)
        found = self.fields(now, None) if inner == "outer" else {}
        return found if wait is None else found | {"retry-after": str(max(1, ceil(wait - EPSILON)))}

    def second(self, now: float, cost: float) -> Server | None:
        """Return the second of two limiters in turn, if it refuses a request."""
        server = self.server
        if isinstance(server, Stacked) and server.in_turn:
            return server.second if server.second.earliest(now, cost) > now + EPSILON else None
        return None

    def fields(self, now: float, wait: float | None) -> dict[str, str]:
        """Return the fields of an answer in the form of this service, of the limiter that refused."""
        server = (
            self.server.first if isinstance(self.server, Stacked) and self.server.in_turn else self.server
        )
        if wait is not None:
            server = self.second(now, 1.0) or server
        assert isinstance(server, Server)
        form = self.front.form if self.front else "none"
        limit, left, window = f"{server.limit:.0f}", f"{server.remaining(now):.0f}", f"{server.window:g}"
        whole = server.earliest(now, min(server.limit, getattr(server, "size", server.limit)))
        exact = max(0.5, wait if wait is not None else whole - now)
        reset = ceil(exact - EPSILON)
        seconds = {} if wait is None else {"retry-after": str(max(1, ceil(wait - EPSILON)))}
        if form == "d6":
            found = {
                "ratelimit-policy": f"{limit};w={window}",
                "ratelimit-limit": limit,
                "ratelimit-remaining": left,
            } | ({"ratelimit-reset": seconds["retry-after"]} if seconds else {})
        elif form == "d7":
            found = {
                "ratelimit-policy": f"{limit};w={window}",
                "ratelimit": f"limit={limit}, remaining={left}, reset={reset}",
            }
        elif form == "d8":
            found = {
                "ratelimit-policy": f'"default";q={limit};w={window}',
                "ratelimit": f'"default";r={left};t={reset}',
            }
        elif form == "x":
            found = {
                "x-ratelimit-limit": limit,
                "x-ratelimit-remaining": left,
                "x-ratelimit-reset": str(ceil(BEGAN + now + exact - EPSILON)),
            }
        else:
            found = {}
        return found if form == "none" else found | seconds
