"""Services with one list, for tests of its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from attrs import Factory, define

from chainapi.transport import Request, Response
from tests.sessions import Answering

__all__ = ["Bodies", "ListService"]


@define
class ListService:
    """Service with one list, whose tokens die and whose rows change on command.

    Attributes:
        rows: current rows of the list: JSON values, or bytes as they are sent.
        size: rows per page at most.
        items: name of the list field.
        by: meaning of a token: the row before its page, or a position.
        expect: callback before each request, with the number of earlier requests.

    """

    rows: list[Any]
    size: int = 10
    items: str = "rows"
    by: Literal["row", "position"] = "row"
    expect: Callable[[int], None] = lambda _: None
    requests: int = 0
    tokens: dict[str, int] = Factory(dict[str, int])

    def forget(self) -> None:
        """Let all tokens die."""
        self.tokens.clear()

    def grow(self, rows: Sequence[Any]) -> None:
        """Put rows at the head."""
        self.rows[:0] = rows
        if self.by == "row":
            for token in self.tokens:
                self.tokens[token] += len(rows)

    async def send(self, request: Request) -> Response:
        """Answer a request."""
        self.expect(self.requests)
        self.requests += 1
        query = {name: given for name, (given,) in parse_qs(urlsplit(request.url).query).items()}
        token = query.get("pageToken", "")
        if token and token not in self.tokens:
            return Response(400, {}, b'{"message": "the page token has expired", "statusCode": 400}')
        begin = self.tokens.get(token, 0)
        behind = begin + min(self.size, int(query.get("pageSize", self.size)))
        rows = [
            row if isinstance(row, bytes) else json.dumps(row).encode() for row in self.rows[begin:behind]
        ]
        more = b""
        if behind < len(self.rows):
            self.tokens[f"{self.requests}-{behind}"] = behind
            more = b',"nextPageToken":"%d-%d"' % (self.requests, behind)
        return Response(200, {}, b'{"%b":[%b]%b}' % (self.items.encode(), b",".join(rows), more))

    async def aclose(self) -> None:
        """Do nothing."""


@define
class Bodies(Answering):
    """Service that answers each request with the next one of its bodies."""

    bodies: tuple[Any, ...] = ()

    def content(self, number: int) -> bytes:
        """Return a page, with a token unless it is the last one."""
        token = {} if number == len(self.bodies) else {"nextPageToken": str(number)}
        return json.dumps({**self.bodies[number - 1], **token}).encode()
