"""Sessions in memory: on a simulator, and on a service that answers each request alike."""

from __future__ import annotations

import asyncio
from typing import Any

from attrs import define, field

from chainapi import Session
from chainapi.client.transport import Transport
from chainapi.core.http import Request, Response
from chainapi.errors import APIConnectionError
from chainapi.simulator import Simulator

__all__ = ["Answering", "reaching", "simulated"]


def simulated(simulator: Simulator, **options: Any) -> Session:
    """Return a session that reaches `simulator` in memory; `options` replace its arguments."""
    return Session(**{**simulator.arguments(), **options})


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
