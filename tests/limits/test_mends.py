"""What could hang a user or get him banned: stray refusals, long trips, hung requests, weights.

Each test sends a session's requests to a service that counts, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import define, field

from chainapi.transport import Request, Response
from tests.limits.servers import Bucket, Server
from tests.sessions import reaching


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


@define
class Service:
    """Transport to a service that counts; `server` is None for one without a limit.

    Attributes:
        trip: seconds of a round trip.
        headers: whether answers have the fields of the limit.
        odd: returns the status and headers, or the seconds until the answer, of a request that is
            unlike the others; None for all others. It has the number of the request, from 1.
        sent: when the requests were sent.
        refused: when they were refused.

    """

    server: Server | None = None
    trip: float = 0.05
    headers: bool = True
    odd: Callable[[int], tuple[int, dict[str, str]] | float | None] = lambda _: None
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
        return Response(status, headers, b"{}")

    def _answer(self, odd: tuple[int, dict[str, str]] | float | None) -> tuple[int, dict[str, str]]:
        if isinstance(odd, tuple):
            return odd
        if self.server is None:
            return 200, {}
        answer = self.server.answer(time(), 1.0)
        info = answer.info
        fields = {
            "ratelimit-policy": f"{info.limit:g};w={self.server.window:g}",
            "ratelimit-limit": f"{info.limit:g}",
            "ratelimit-remaining": f"{info.remaining:g}",
        }
        if info.retry_after is not None:
            fields["retry-after"] = f"{info.retry_after:g}"
        return answer.status, fields if self.headers else {}

    async def aclose(self) -> None:
        """Close nothing."""


@asynccontextmanager
async def opened(service: Service, **options: Any) -> AsyncIterator[Callable[[], Any]]:
    """Yield a function that calls a route of the service and returns the seconds that it took."""
    async with reaching(service, **options) as session:

        async def call() -> float:
            began = time()
            await session.data.get("/v1/a")
            return time() - began

        yield call


# --- prices that units dripping in hide ---------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "trip", "most"),
    [
        (lambda: Bucket(3000.0, 60.0, size=50.0), 0.5, 14.0),
        (lambda: Bucket(200.0, 1.0, size=100.0), 1.0, 18.0),
    ],
    ids=["50 a second", "200 a second"],
)
async def test_bucket_that_refills_within_a_round_trip_is_used(
    server: Callable[[], Server], trip: float, most: float
) -> None:
    """A bucket whose units return within a round trip gets many requests at once, not one after the other."""
    service = Service(server(), trip=trip)
    async with opened(service) as call:
        await asyncio.gather(*(call() for _ in range(500)))
        assert time() < most
    assert not service.refused
