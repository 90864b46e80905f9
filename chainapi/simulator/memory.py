"""Transport to the simulated services without a socket.

It works in any event loop, a virtual one included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chainapi._http.message import Request, Response
from chainapi.errors import APIConnectionError, SessionClosedError
from chainapi.simulator.world import Answer, World

__all__ = ["Line", "MemoryTransport"]


class Line:
    """Line to the services, on which requests and answers take their time.

    `clock` returns the simulated time and `latency` the round trip of the next request, both in seconds; half
    of the round trip passes before the services answer, half after it.
    """

    def __init__(self, world: World, clock: Callable[[], float], latency: Callable[[], float]) -> None:
        self._world = world
        self._clock = clock
        self._latency = latency

    async def exchange(self, request: Request, grace: float = 0.0) -> Answer:
        """Return the answer to a request, when it has arrived or the connection breaks.

        The client reads the answer `grace` seconds after it arrives. A stalled request never returns.
        """
        one_way = self._latency() / 2
        call = self._world.sent(request, self._clock())
        await asyncio.sleep(one_way)
        answer = self._world.answer(call, self._clock())
        if answer.broken == "stall":
            await asyncio.get_running_loop().create_future()
        if one_way or answer.slow:
            await asyncio.sleep(one_way + answer.slow)
        if not answer.broken:
            self._world.delivered(call, answer.response, self._clock(), grace)
        return answer


class MemoryTransport:
    """Transport that calls the services."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Return the response to `request`.

        Raises APIConnectionError when the connection breaks, SessionClosedError after `aclose`.
        """
        if self._closed:
            raise SessionClosedError("the transport is closed")
        answer = await self._line.exchange(request)
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
