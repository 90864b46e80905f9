"""Transport to a service that counts requests in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from attrs import define, field

from chainapi.transport import Request, Response
from tests.client.services import time
from tests.limits.changing import Changing
from tests.limits.servers import Server
from tests.sessions import reaching

__all__ = ["PATH", "Service", "opened", "time"]

PATH = "/v1/a"


@define
class Service:
    """Transport to a service that counts; `server` is None for one without a limit.

    Attributes:
        trip: seconds of a round trip.
        headers: whether answers have the fields of the limit, or the fields that they have.
        cost: units that each request costs.
        odd: returns the status and headers, or the seconds until the answer, of a request that is
            unlike the others; None for all others. It has the number of the request, from 1.
        sent: when the requests were sent.
        refused: when they were refused.

    """

    server: Server | Changing | None = None
    trip: float = 0.05
    headers: bool | Mapping[str, str] = True
    cost: float = 1.0
    odd: Callable[[int], tuple[int, Mapping[str, str]] | float | None] = lambda _: None
    sent: list[float] = field(factory=list[float])
    refused: list[float] = field(factory=list[float])

    async def send(self, request: Request) -> Response:
        """Count a request when it arrives, and answer it."""
        self.sent.append(time())
        odd = self.odd(len(self.sent))
        if isinstance(odd, float):
            await asyncio.sleep(odd)
        await asyncio.sleep(self.trip / 2)
        status, headers = self._answer(odd)
        await asyncio.sleep(self.trip / 2)
        if status == 429:
            self.refused.append(time())
        return Response(status, headers, b'{"blocks": []}')

    def _answer(self, odd: tuple[int, Mapping[str, str]] | float | None) -> tuple[int, Mapping[str, str]]:
        if isinstance(odd, tuple):
            return odd
        if self.server is None:
            return 200, {}
        answer = self.server.answer(time(), self.cost)
        info = answer.info
        fields = {
            "ratelimit-policy": f"{info.limit:g};w={info.policies[0].window:g}",
            "ratelimit-limit": f"{info.limit:g}",
            "ratelimit-remaining": f"{info.remaining:g}",
        }
        if info.retry_after is not None:
            fields["retry-after"] = f"{info.retry_after:g}"
        if isinstance(self.headers, Mapping):
            return answer.status, self.headers
        return answer.status, fields if self.headers else {}

    async def aclose(self) -> None:
        """Close nothing."""


@asynccontextmanager
async def opened(service: Service, **options: Any) -> AsyncIterator[Callable[[], Any]]:
    """Yield a function that calls a route of the service and returns the seconds that it took."""
    async with reaching(service, **options) as session:

        async def call() -> float:
            began = time()
            await session.data.get(PATH)
            return time() - began

        yield call
