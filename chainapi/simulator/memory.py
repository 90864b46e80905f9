"""Transport to the simulated services without a socket.

It works in any event loop, a virtual one included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chainapi._http.message import Request, Response
from chainapi.errors import APIConnectionError, SessionClosedError
from chainapi.simulator.world import Answer

__all__ = ["MemoryTransport"]


class MemoryTransport:
    """Transport that calls the services; `exchange` returns the answer to a request."""

    def __init__(self, exchange: Callable[[Request], Awaitable[Answer]]) -> None:
        self._exchange = exchange
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Return the response to `request`.

        Raises APIConnectionError when the connection breaks, SessionClosedError after `aclose`.
        """
        if self._closed:
            raise SessionClosedError("the transport is closed")
        answer = await self._exchange(request)
        if answer.broken == "stall_body":
            await asyncio.get_running_loop().create_future()
        if answer.broken == "disconnect":
            raise APIConnectionError("the server closed the connection without an answer")
        if answer.broken == "truncate":
            raise APIConnectionError("the connection was closed in the middle of the body")
        return answer.response

    async def aclose(self) -> None:
        """Close the transport; closing it again does nothing."""
        self._closed = True
