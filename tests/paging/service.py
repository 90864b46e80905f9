"""A list service as nasty as the specification allows, and the transport that reaches it.

Smaller than the simulator, and meaner: it inserts and deletes rows while it is read, forgets tokens, moves
pages, repeats rows, and fails. It also judges its client: a token that has reached its lifetime, one that it
never gave out or that belongs to another query, and too many requests are each an `AssertionError`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec
from attrs import define, evolve, field, frozen

from chainapi.core.wire import Request, Response
from chainapi.errors import APIConnectionError

__all__ = ["LIFETIME", "Fault", "Manners", "NastyTransport", "Service", "rank"]

LIFETIME = 86_400.0  # seconds
MOST_REQUESTS = 600  # of one example; a walk that needs more runs in circles

Kind = Literal["points", "ranged", "rows"]
Tokens = Literal["anchored", "position", "overlap", "scroll"]


@frozen(kw_only=True)
class Manners:
    """How the service behaves as long as an example lasts.

    Attributes:
        kind: points newest first, the same with an upper bound in the query, or rows without key or order.
        tokens: a token stands for the place below a row ("anchored"), for that row itself, which comes again
            ("overlap"), for a number of rows ("position"), or, always the same one, for all that was not
            given yet ("scroll").
        page_size: rows a page; "overlap" needs two.
        latency: seconds from sending to the last byte.
        ending: what stands for the token on the last page.
        late_end: whether a full last page has a token, to an empty page.
        empties: how many empty pages follow each page that has a token.
        nulls: whether an empty list is null.
        cycle: after so many pages the token is one that was given out before, with the number of its page.
        dead_status: the answer to a dead token.
        stillborn: whether no token ever opens a page.

    """

    kind: Kind = "points"
    tokens: Tokens = "anchored"
    page_size: int = 3
    latency: float = 0.0
    ending: Literal["absent", "null", "empty"] = "absent"
    late_end: bool = False
    empties: int = 0
    nulls: bool = False
    cycle: tuple[int, int] | None = None
    dead_status: int = 400
    stillborn: bool = False

    @property
    def ordered(self) -> bool:
        """Whether the order of the rows is one that the client may rely on."""
        return self.kind != "rows"

    @property
    def shifts(self) -> bool:
        """Whether a page may repeat rows of the page before it."""
        return self.tokens in ("position", "overlap")


@frozen
class Fault:
    """What befalls one request: a status, or a break after the service has done its work."""

    status: int | None = None
    retry_after: float | None = None
    broken: Literal["cut", "garbled", "stall"] | None = None


@frozen
class Token:
    """What the service knows of a token that it gave out."""

    asked: float  # when the request that it answers was sent; times are of the loop
    given: float
    bound: int | None
    place: int  # a rank, or a number of rows
    empties: int
    trail: tuple[str, ...]  # the tokens that led to it, itself included


def rank(kind: Kind, row: int) -> int:
    """Return what the list is sorted by, in descending order: rows without order come anywhere."""
    return row if kind != "rows" else row * 7_919 % 10_007


@define
class Service:
    """One list, its tokens, and what goes wrong. Pure: times are arguments, in seconds."""

    manners: Manners
    rows: list[int] = field(factory=list[int])
    tokens: dict[str, Token] = field(factory=dict[str, Token])
    faults: deque[Fault] = field(factory=deque[Fault])
    bodies: dict[int, list[int]] = field(factory=dict[int, list[int]])  # the rows of each page by its serial
    next_row: int = 1
    requests: int = 0
    refused: int = 0  # requests with a dead token
    wall_went_back: bool = False  # the client may take a token of a checkpoint for younger than it is
    scrolled: int | None = None
    oldest: float | None = None  # when the request was sent that brought the first token

    def insert(self, count: int) -> None:
        """Add rows: at the head, or anywhere where there is no order."""
        self.rows += range(self.next_row, self.next_row + count)
        self.next_row += count
        self.rows.sort(key=lambda row: rank(self.manners.kind, row), reverse=True)

    def delete(self, index: int) -> int | None:
        """Delete the row at `index`, counted round; return it. Counted positions would lose others by it."""
        if not self.rows or self.manners.tokens == "position":
            return None
        return self.rows.pop(index % len(self.rows))

    def forget(self) -> None:
        """Let all tokens die early."""
        self.tokens = {name: evolve(token, given=-LIFETIME) for name, token in self.tokens.items()}

    def sent(self, query: dict[str, str], now: float) -> None:
        """Judge a request as it leaves the client."""
        self.requests += 1
        assert self.requests <= MOST_REQUESTS, "the client asks without end"
        name = query.get("pageToken")
        if name is None:
            return
        assert name in self.tokens, "a token was sent that was never given out"
        token = self.tokens[name]
        assert token.bound == _bound(query), "a token of another query was sent"
        age = now - token.asked
        assert age < LIFETIME or self.wall_went_back, f"a token was sent that is {age} s old"

    def answer(self, query: dict[str, str], asked: float, now: float) -> tuple[int, bytes]:
        """Return status and body."""
        name = query.get("pageToken")
        token = None if name is None else self.tokens[name]
        if token is not None and (now - token.given >= LIFETIME or self.manners.stillborn):
            self.refused += 1
            body = {"message": ["no such page"], "error": "x", "statusCode": self.manners.dead_status}
            return self.manners.dead_status, msgspec.json.encode(body)
        return 200, msgspec.json.encode(self._page(token, _bound(query), asked, now))

    def _page(self, token: Token | None, bound: int | None, asked: float, now: float) -> dict[str, object]:
        manners = self.manners
        rows = [row for row in self.rows if bound is None or row <= bound]
        first = 0 if token is None else self._first(rows, token)
        empty = token is not None and token.empties > 0
        page = [] if empty else rows[first : first + manners.page_size]
        serial = self.requests
        self.bodies[serial] = page
        body: dict[str, object] = {
            "rows": [self._row(row) for row in page] or (None if manners.nulls else [])
        }
        if manners.kind == "points":
            body = {"results": body.pop("rows"), "status": 200, "lastRun": serial}
        more = first + len(page) < len(rows) or (
            manners.late_end and len(page) == manners.page_size and not manners.shifts
        )
        if more:
            body["nextPageToken"] = self._next(token, page, bound, first, asked, now)
        elif manners.ending != "absent":
            body["nextPageToken"] = None if manners.ending == "null" else ""
        return body

    def _first(self, rows: list[int], token: Token) -> int:
        """Return the index of the first row of a token's page."""
        manners = self.manners
        if manners.tokens == "position":
            return min(token.place, len(rows))
        place = token.place if manners.tokens != "scroll" or self.scrolled is None else self.scrolled
        given = place + 1 if manners.tokens == "overlap" else place
        return sum(rank(manners.kind, row) >= given for row in rows)

    def _next(
        self, token: Token | None, page: list[int], bound: int | None, first: int, asked: float, now: float
    ) -> str:
        """Give out the token to the page after `page`."""
        manners = self.manners
        self.oldest = asked if self.oldest is None else self.oldest
        trail = () if token is None else token.trail
        if manners.cycle is not None and len(trail) == manners.cycle[0]:
            name = trail[manners.cycle[1] % len(trail)]
            self.tokens[name] = evolve(self.tokens[name], asked=asked, given=now)
            return name
        if page:
            place = first + len(page) if manners.tokens == "position" else rank(manners.kind, page[-1])
            empties = manners.empties
        else:
            assert token is not None
            place, empties = token.place, max(0, token.empties - 1)
        name = "scroll" if manners.tokens == "scroll" else f"token-{len(self.tokens)}"
        self.scrolled = place
        self.tokens[name] = Token(asked, now, bound, place, empties, (*trail, name))
        return name

    def _row(self, row: int) -> dict[str, object]:
        if self.manners.kind == "rows":
            return {"name": f"row {row}", "even": row % 2 == 0}
        return {"timestamp": row, "value": row / 2}


def _bound(query: dict[str, str]) -> int | None:
    return int(query["end"]) if "end" in query else None


@define(eq=False)
class NastyTransport:
    """The way to a `Service` on any loop."""

    service: Service
    flying: int = 0

    async def send(self, request: Request) -> Response:
        """Send a request: the service answers half way through its latency."""
        self.flying += 1
        try:
            return await self._exchange(dict(parse_qsl(urlsplit(request.url).query)))
        finally:
            self.flying -= 1

    async def _exchange(self, query: dict[str, str]) -> Response:
        service, loop = self.service, asyncio.get_running_loop()
        asked = loop.time()
        service.sent(query, asked)
        fault = service.faults.popleft() if service.faults else Fault()
        if service.manners.latency:
            await asyncio.sleep(service.manners.latency / 2)
        if fault.status is not None:
            headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
            return Response(fault.status, headers, b'{"message": "later", "nextPageToken": "wrong"}')
        status, body = service.answer(query, asked, loop.time())
        if fault.broken == "stall":
            await loop.create_future()
        if service.manners.latency:
            await asyncio.sleep(service.manners.latency / 2)
        if fault.broken == "cut":
            raise APIConnectionError("the connection was closed in the middle of the body")
        return Response(status, {}, body[: len(body) // 2] if fault.broken == "garbled" else body)

    async def aclose(self) -> None:
        """Do nothing."""
