"""A client of an ASGI application in memory: it sees each piece as it is sent, and can leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Self

from starlette.types import ASGIApp, Message


class Visit:
    """One GET request to an application, whose response is read piece by piece.

    Attributes:
        status: status code; None before the response began.
        headers: headers of the response.

    """

    def __init__(self, app: ASGIApp, path: str, headers: Mapping[str, str] | None = None) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self._left = asyncio.Event()
        self._pieces = asyncio.Queue[bytes | None]()
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), text.encode()) for name, text in (headers or {}).items()],
            "server": ("app.invalid", 80),
            "client": ("client.invalid", 1),
            "state": {},
        }
        self.task = asyncio.ensure_future(self._run(app, scope))

    async def piece(self) -> bytes | None:
        """Return the next piece of the body; None at its end.

        Raises what the application raises.
        """
        getting = asyncio.ensure_future(self._pieces.get())
        await asyncio.wait((getting, self.task), return_when="FIRST_COMPLETED")
        if getting.done():
            return getting.result()
        getting.cancel()
        self.task.result()
        return None

    async def body(self) -> bytes:
        """Return the rest of the body."""
        pieces = b""
        while (piece := await self.piece()) is not None:
            pieces += piece
        return pieces

    async def leave(self) -> None:
        """Disconnect, and wait until the application has noticed."""
        self._left.set()
        await self.task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def _run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        requests = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if requests:
                return requests.pop()
            await self._left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if self._left.is_set():
                return
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): text.decode() for name, text in message["headers"]}
                return
            if message.get("body"):
                self._pieces.put_nowait(message["body"])
            if not message.get("more_body"):
                self._pieces.put_nowait(None)

        await app(scope, receive, send)


def lines(body: bytes) -> list[Any]:
    """Return the values of an NDJSON body."""
    return [json.loads(line) for line in body.splitlines()]


def events(body: bytes) -> list[tuple[str, Any, str | None]]:
    """Return name, data and id of each server-sent event, read as a browser does; comments are left out."""
    found: list[tuple[str, Any, str | None]] = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append((fields["event"], json.loads(fields["data"]), fields.get("id")))
    return found
