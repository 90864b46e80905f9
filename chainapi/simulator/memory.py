"""Transport to the simulated services without a socket.

It works in any event loop, a virtual one included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chainapi._http.message import Request, Response
from chainapi.errors import APIConnectionError, SessionClosedError
from chainapi.simulator.world import World

__all__ = ["MemoryTransport"]


class MemoryTransport:
    """Transport that calls the world.

    `clock` returns the simulated time and `latency` the round trip of the next request, both in seconds; half
    of the round trip passes before the call, half after it.
    """

    def __init__(self, world: World, clock: Callable[[], float], latency: Callable[[], float]) -> None:
        self._world = world
        self._clock = clock
        self._latency = latency
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Return the response to `request`.

        Raises APIConnectionError when the connection breaks, SessionClosedError after `aclose`.
        """
        if self._closed:
            raise SessionClosedError("the transport is closed")
        one_way = self._latency() / 2
        exchange = self._world.sent(request, self._clock())
        await asyncio.sleep(one_way)
        answer = self._world.answer(request, self._clock(), exchange)
        if answer.broken in ("stall", "stall_body"):
            await asyncio.get_running_loop().create_future()
        if one_way or answer.slow:
            await asyncio.sleep(one_way + answer.slow)
        if answer.broken == "disconnect":
            raise APIConnectionError("the server closed the connection without an answer")
        if answer.broken == "truncate":
            raise APIConnectionError("the connection was closed in the middle of the body")
        self._world.delivered(request, answer.response, self._clock(), exchange=exchange)
        return answer.response

    async def aclose(self) -> None:
        """Close the transport; closing it again does nothing."""
        self._closed = True
