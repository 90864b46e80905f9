"""Sessions in memory: on a simulator, and on a service that answers each request alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from attrs import define, field

from chainapi import Session
from chainapi.errors import APIConnectionError
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response, Transport

__all__ = ["Answering", "cancelled", "reaching", "simulated"]

P = TypeVar("P")


def simulated(simulator: Simulator, **options: Any) -> Session:
    """Return a session that reaches `simulator` in memory; `options` replace its arguments."""
    return Session(**{**simulator.arguments(), **options})


@asynccontextmanager
async def cancelled(
    opened: Callable[[Session], P], read: Callable[[P], Awaitable[Any]], *faults: Fault, **options: Any
) -> AsyncIterator[tuple[Session, P]]:
    """Yield a session, and its stream of 40 rows after `read` was cancelled.

    It had two pages, and waited for the third one.
    """
    simulator = Simulator(rows=40, faults=[Fault(at=3, slow=1_000.0), *faults])
    async with simulated(simulator, timeout=5_000, **options) as session:
        pages = opened(session)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await read(pages)
        yield session, pages


@define
class Answering:
    """Transport that keeps the requests, and answers each after some seconds.

    Attributes:
        fault: raised in place of an answer.
        cancelled: requests that were cancelled before their answer.

    """

    body: bytes = b"{}"
    status: int = 200
    seconds: float = 0.0
    headers: dict[str, str] = field(factory=dict[str, str])
    fault: APIConnectionError | None = None
    requests: list[Request] = field(factory=list[Request])
    cancelled: int = 0

    def content(self, number: int) -> bytes:
        """Return the body of the answer to the request with that number, from 1."""
        return self.body

    async def send(self, request: Request) -> Response:
        """Answer a request after a while."""
        self.requests.append(request)
        number = len(self.requests)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fault is not None:
            raise self.fault
        return Response(self.status, self.headers, self.content(number))

    async def aclose(self) -> None:
        """Close nothing."""


def reaching(transport: Transport, **options: Any) -> Session:
    """Return a session on a transport, with a key and addresses that are not resolved."""
    addresses = {"metrics_base_url": "https://metrics.test", "data_base_url": "https://data.test"}
    return Session(**{**addresses, "api_key": "key-of-the-test", "transport": transport, **options})
