"""Worlds of the reader: the walk alone, or a whole session on an event loop.

`FlowWorld` runs `Pages` and its walk on a source that reaches the service at once: no event loop, no session,
no gate. `SessionWorld` runs them as users do, with prefetch, cancellation and retries in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from itertools import count
from math import inf
from typing import Any, Literal, NoReturn, Protocol, TypeVar
from urllib.parse import urlencode

from chainapi import ROUTES, Checkpoint, Limit, MetricPoint, Pages, Provider, Session
from chainapi._api.identity import given_by, identity_of
from chainapi._api.routes import Route
from chainapi._http.emitter import Emitter
from chainapi._http.message import SentAt
from chainapi._limits.view import Estimate
from chainapi._paging.pages import MetricPages
from chainapi._paging.walk import Answer, Fetch, Fetched, ListQuery, Walk
from chainapi.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    ChainAPIError,
    DecodeError,
    PageTokenExpiredError,
    RateLimitedError,
    ServerError,
)
from chainapi.events import Event
from chainapi.models.codec import DecodedPage, OnInvalid, PageDecoder
from chainapi.models.error_body import decode_error
from chainapi.testing import VirtualLoop
from chainapi.transport import Request
from tests.paging.service import LIFETIME, Manners, NastyTransport, Service

__all__ = ["FlowWorld", "SessionWorld", "World"]

T = TypeVar("T")
OnExpired = Literal["restart", "raise"]
EPOCH = 1_700_000_000.0  # what the wall clock shows when the loop's shows 0
TIMEOUT = 30.0  # seconds until a request that stalls fails, where there is no session


class World(Protocol):
    """World: time, a service, and streams over it."""

    wall: float

    def time(self) -> float:
        """Return the time of the monotonic clock in seconds."""
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    async def stop(self, reading: Coroutine[Any, Any, None], delay: float, end: str | None) -> None:
        """Run a reader; after `delay` seconds cancel it, or close stream or session.

        `end` names what is closed: "stream" or "session"; None cancels the reader.
        """
        ...

    def open(self, resume: Checkpoint | None, prefetch: int, on_expired: OnExpired) -> Pages[Any]:
        """Return a stream in a new session."""
        ...

    def check_left(self) -> None:
        """Fail where streams or sessions left something behind."""
        ...

    def close(self) -> None:
        """End the world."""
        ...


def route_of(manners: Manners) -> Route:
    """Return the route of a service with these manners."""
    if manners.kind == "points":
        return ROUTES["metrics.avg_tps"].route
    key = ("timestamp" if manners.numbered else "key",) if manners.keyed else ()
    number = "timestamp" if manners.ordered else None
    return Route("/v1/rows", "rows", descending_key=number, until="end" if manners.until else None, key=key)


class Stopped(BaseException):
    """The reader was stopped, as a task is by its cancellation."""


class FlowWorld:
    """World of a walk on a service without an event loop.

    Coroutines never wait, and the clock jumps.
    """

    def __init__(self, service: Service, attempts: int, hear: Callable[[Event], None]) -> None:
        self.wall = EPOCH
        self._now = 0.0
        self._stop_at = inf  # when the reader is cancelled, or its stream closed
        self._closes = False
        self._service = service
        self._attempts = attempts
        self._hear = hear
        self._pages: Pages[Any] | None = None

    def time(self) -> float:
        """Return the time of the clock in seconds."""
        return self._now

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, which waits for nothing, to its end."""
        try:
            work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("the walk waits for something")

    async def sleep(self, seconds: float) -> None:
        """Let time pass, and stop a reader that is due meanwhile.

        The reader is cancelled here, or its stream closed.
        """
        end = self._now + seconds
        if end >= self._stop_at:
            self._now, self._stop_at = max(self._now, self._stop_at), inf
            if not self._closes or self._pages is None:
                raise Stopped
            await self._pages.aclose()
        self._now = end

    async def stall(self) -> NoReturn:
        """Wait until the request fails."""
        await self.sleep(TIMEOUT)
        raise APITimeoutError("no whole answer")

    async def stop(self, reading: Coroutine[Any, Any, None], delay: float, end: str | None) -> None:
        """Run a reader, and after `delay` seconds cancel it, or close its stream."""
        self._stop_at, self._closes = self._now + delay, end is not None
        try:
            await reading
        except Stopped:
            pass
        finally:
            self._stop_at = inf
        if end is not None and self._pages is not None:
            await self._pages.aclose()

    def open(self, resume: Checkpoint | None, prefetch: int, on_expired: OnExpired) -> Pages[Any]:
        """Return a stream over the service; nothing is fetched ahead."""
        route = route_of(self._service.manners)
        start = Checkpoint("query") if resume is None else resume
        source: Any = FlowSource(self, self._service, route, self._attempts, Emitter(self._hear))
        query = ListQuery("metrics", "GET /v1/rows", bounded=route.until is not None)
        identity = identity_of(route, declared=True) if source.model is MetricPoint else None
        walk = Walk(query, given_by(route, start, identity), start, LIFETIME, on_expired)
        self._pages = (MetricPages if source.extra else Pages)(walk, source)
        return self._pages

    def check_left(self) -> None:
        """Do nothing: there is nothing that could be left."""

    def close(self) -> None:
        """Do nothing."""


class FlowSource:
    """Source that reaches the service at once, with attempts but without a gate."""

    prefetch = 0
    on_invalid: OnInvalid = "raise"
    ranges = numbered = None
    address = fingerprint = ""
    cursor = None
    number_names = ()
    quota_wait = 0.0

    def __init__(
        self, world: FlowWorld, service: Service, route: Route, attempts: int, emit: Emitter
    ) -> None:
        self.emit = emit
        self.model = route.model
        self.extra = tuple(name for name, _ in route.extra)
        self._world = world
        self._transport = NastyTransport(service, world.time, world.sleep, world.stall)
        self._attempts = attempts
        self._decode = PageDecoder(route.model, route.items, route.extra)

    def times(self) -> tuple[float, float]:
        """Return the time of the world and Unix time."""
        now = self._world.time()
        return now, self._world.wall + now

    def poll(self, since: int | None) -> NoReturn:
        """Refuse: no list of these worlds is followed."""
        raise AssertionError(since)

    async def fetch(self, fetch: Fetch, needed: Callable[[], bool] | None = None) -> Answer:
        """Return a page, after as many attempts as the reader has patience for."""
        for attempt in count(1):
            sent = SentAt(*self.times())
            if sent.at >= fetch.not_after:
                return PageTokenExpiredError("the page token reached its lifetime between two attempts")
            try:
                return Fetched(await self._attempt(fetch), sent)
            except (RateLimitedError, ServerError, APIConnectionError, DecodeError) as error:
                if attempt == self._attempts:
                    return error
                await self._world.sleep(getattr(error, "retry_after", None) or 1.0)
            except ChainAPIError as error:
                return error
        raise AssertionError

    async def _attempt(self, fetch: Fetch) -> DecodedPage:
        params = {} if fetch.token is None else {"pageToken": fetch.token.value}
        if fetch.bound is not None:
            params["end"] = str(fetch.bound)
        response = await self._transport.send(Request("GET", f"https://list.test/?{urlencode(params)}", {}))
        if response.status == 200:
            return self._decode(response.body)
        error, messages = decode_error(response.body)
        if response.status == 429:
            waited = response.headers.get("retry-after")
            after = None if waited is None else float(waited)
            raise RateLimitedError(429, error, messages, retry_after=after)
        raise (ServerError if response.status >= 500 else APIStatusError)(response.status, error, messages)

    def seconds_left(self, requests: float) -> float:
        """Return 0: there is no quota."""
        return 0.0

    def estimate(self, rows: int, limits: Sequence[Limit] | None, page_size: int | None) -> Estimate:
        """Refuse: no reader needs an estimate."""
        raise NotImplementedError


class SessionWorld:
    """World of sessions on a virtual event loop, as users have them."""

    model: Any = None  # of rows that are no points

    def __init__(self, service: Service, attempts: int, hear: Callable[[Event], None]) -> None:
        self.wall = EPOCH
        self._loop = VirtualLoop()
        self._complaints: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda _, context: self._complaints.append(context))
        self._manners = service.manners
        self._transport = NastyTransport(service, self._loop.time, asyncio.sleep, self._stall)
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

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def _stall(self) -> NoReturn:
        await self._loop.create_future()
        raise AssertionError

    async def stop(self, reading: Coroutine[Any, Any, None], delay: float, end: str | None) -> None:
        """Run a reader as a task; after `delay` seconds cancel or close it.

        Its stream or its session is closed.
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

    def open(self, resume: Checkpoint | None, prefetch: int, on_expired: OnExpired) -> Pages[Any]:
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
        manners, route = self._manners, route_of(self._manners)
        options: dict[str, Any] = {"resume": resume, "prefetch": prefetch}
        if manners.kind == "points":
            self._pages = session.metrics.avg_tps(7, **options)
            return self._pages
        if route.key:
            options["key"] = route.key
        if manners.ordered:
            options["descending_key"] = route.descending_key
        if manners.until:
            options["until"] = route.until
        walk = session.metrics.list if manners.until else session.data.list
        self._pages = walk("/v1/rows", items="rows", model=self.model, **options)
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
