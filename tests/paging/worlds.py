"""World of a reader: a service behind a transport, and sessions on an event loop in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from chainapi import Checkpoint, Pages, Provider, Session
from chainapi.errors import APIConnectionError
from chainapi.events import Event
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response
from tests.paging.service import LIFETIME, Fault, Service

__all__ = ["EPOCH", "World"]

T = TypeVar("T")
EPOCH = 1_700_000_000.0  # what the wall clock shows when the loop's shows 0


class NastyTransport:
    """Transport to a `Service`, which answers half way through its latency."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.flying = 0

    async def send(self, request: Request) -> Response:
        """Send a request."""
        self.flying += 1
        try:
            return await self._exchange(dict(parse_qsl(urlsplit(request.url).query)))
        finally:
            self.flying -= 1

    async def _exchange(self, query: dict[str, str]) -> Response:
        service, half = self._service, self._service.manners.latency / 2
        loop = asyncio.get_running_loop()
        requested = loop.time()
        service.sent(query, requested)
        fault = service.faults.popleft() if service.faults else Fault()
        if half:
            await asyncio.sleep(half)
        if fault.status is not None:
            headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
            return Response(fault.status, headers, b'{"message": "later", "nextPageToken": "wrong"}')
        status, body = service.answer(query, requested, loop.time())
        if fault.broken == "stall":
            await loop.create_future()
        if half:
            await asyncio.sleep(half)
        if fault.broken == "cut":
            raise APIConnectionError("the connection was closed in the middle of the body")
        return Response(status, {}, body[: len(body) // 2] if fault.broken == "garbled" else body)

    async def aclose(self) -> None:
        """Do nothing."""


class World:
    """World of sessions on a virtual event loop, as users have them."""

    def __init__(self, service: Service, attempts: int, hear: Callable[[Event], None], model: Any) -> None:
        self.wall = EPOCH
        self._loop = VirtualLoop()
        self._complaints: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda _, context: self._complaints.append(context))
        self._manners, self._model = service.manners, model
        self._transport = NastyTransport(service)
        self._attempts = attempts
        self._hear = hear
        self._sessions: list[Session] = []
        self._pages: Pages[Any] | None = None

    def time(self) -> float:
        """Return the time of the loop in seconds."""
        return self._loop.time()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; fail at any warning meanwhile."""
        result = self._loop.run_until_complete(work)
        assert not self._complaints, self._complaints
        return result

    async def stop(self, reading: Coroutine[Any, Any, None], delay: float, end: str | None) -> None:
        """Run a reader as a task; after `delay` seconds cancel it, or close its stream or its session.

        `end` names what is closed: "stream" or "session"; None cancels the reader.
        """
        task = asyncio.ensure_future(reading)
        await asyncio.sleep(delay)
        if end is None:
            task.cancel()
        elif end == "session":
            await self._sessions[-1].aclose()
        elif self._pages is not None:
            await self._pages.aclose()
        try:
            await task
        except asyncio.CancelledError:
            assert end is None, "cancelled by nobody"

    def open(
        self, resume: Checkpoint | None, prefetch: int, on_expired: Literal["restart", "raise"]
    ) -> Pages[Any]:
        """Return a stream in a new session."""
        session = Session(
            metrics_base_url="https://metrics.test",
            data_base_url="https://data.test",
            api_key="k",
            transport=self._transport,
            max_attempts=self._attempts,
            on_expired=on_expired,
            provider=Provider(page_token_lifetime=timedelta(seconds=LIFETIME)),
            now=lambda: self.wall + self._loop.time(),
            on_event=self._hear,
        )
        self._sessions.append(session)
        manners = self._manners
        options: dict[str, Any] = {"resume": resume, "prefetch": prefetch}
        if manners.kind == "points":
            self._pages = session.metrics.avg_tps(7, **options)
            return self._pages
        if manners.keyed:
            options["key"] = ("timestamp",) if manners.numbered else ("key",)
        if manners.ordered:
            options["descending_key"] = "timestamp"
        if manners.until:
            options["until"] = "end"
        walk = session.metrics.list if manners.until else session.data.list
        self._pages = walk("/v1/rows", items="rows", model=self._model, **options)
        return self._pages

    def check_left(self) -> None:
        """Fail where a task, a timer, a request or a permit is left."""
        self._loop.run_until_complete(self._leave())
        assert not asyncio.all_tasks(self._loop), "a task is left"
        timers = [timer for timer in self._loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        assert not timers, f"a timer is left: {timers}"
        assert not self._transport.flying, "a request is left"
        assert not self._complaints, self._complaints

    async def _leave(self) -> None:
        self._pages = None
        for _ in range(4):
            await asyncio.sleep(0)
        for session in self._sessions:
            assert all(quota.in_flight == 0 for quota in session.quota.values()), "a permit is left"
            await session.aclose()
        await asyncio.sleep(0)

    def close(self) -> None:
        """Close the loop."""
        self._loop.close()
