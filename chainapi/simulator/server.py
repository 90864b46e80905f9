"""Server of the simulated services on a port of the loopback interface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from aiohttp import web

from chainapi._http.message import Request
from chainapi.simulator.world import Answer

__all__ = ["HOST", "Server"]

HOST = "127.0.0.1"

# Seconds between the writing of a 429 and its reading by the client, which the server cannot see: a request
# that arrives in this time may have been under way already.
GRACE = 0.1

# Seconds that requests under way may take when the server closes.
SHUTDOWN = 0.1


class Server:
    """Listening server; after `start`, `port` is the port that it listens on."""

    def __init__(self, exchange: Callable[[Request, float], Awaitable[Answer]]) -> None:
        self._exchange = exchange
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN)
        self.port: int = 0

    async def start(self, port: int) -> Self:
        """Listen on a port, 0 for any free one. Raises OSError if the port is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """Close the port and every connection."""
        await self._runner.cleanup()

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in incoming.headers.items()}
        url = f"http://{HOST}:{self.port}{incoming.raw_path}"
        request = Request(incoming.method, url, headers, await incoming.read() or None)
        answer = await self._exchange(request, GRACE)
        if answer.broken:
            return await _break(incoming, answer)
        response = answer.response
        return web.Response(status=response.status, headers=response.headers, body=response.body)


async def _break(incoming: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    """Break an answer: close its connection, or keep it open without the rest.

    It closes the connection at once or after half of the body, or leaves it open after half of the body.
    """
    body = answer.response.body
    outgoing = web.StreamResponse(status=answer.response.status, headers=answer.response.headers)
    outgoing.content_length = len(body)
    if answer.broken in ("truncate", "stall_body"):
        await outgoing.prepare(incoming)
        await outgoing.write(body[: len(body) // 2])
    if answer.broken == "stall_body":
        await asyncio.get_running_loop().create_future()
    incoming.protocol.force_close()
    return outgoing
