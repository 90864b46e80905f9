"""Calls that share a response: identical requests are one, or a cache answers."""

from __future__ import annotations

import asyncio
import copy
import secrets
import weakref
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from math import inf
from typing import Any, TypeAlias, TypeVar, cast

from attrs import define, field, frozen
from msgspec.structs import replace

from chainapi._http.cache import CachedResponse, cache_key, significant
from chainapi._http.message import Response, SentAt
from chainapi._http.options import Attempt, Call
from chainapi._http.service import Service
from chainapi._http.transport import Transport, leads_to_network
from chainapi.errors import (
    APIConnectionError,
    ChainAPIError,
    DeadlineExceededError,
    DecodeError,
    QueueFullError,
    QuotaWaitError,
    RateLimitedError,
    ServerError,
)
from chainapi.models.codec import checked_json

__all__ = ["ResponseReuse", "name_of"]

R = TypeVar("R")
Late: TypeAlias = DeadlineExceededError | QuotaWaitError
LEAST = 0.01  # seconds: a call with less time left does not repeat a request
# Faults of the service and of its quota: a stale response is better. Other errors are the answer.
_FAULTS = (APIConnectionError, QuotaWaitError, RateLimitedError, ServerError)


_NAMES = dict[int, str]()  # of transports that exist, by their ids


def name_of(transport: Transport) -> str:
    """Return a name of a transport that no other one ever has; "" for the network.

    An object that allows no weak references has another name for each session: its id may belong to
    another object later.
    """
    if leads_to_network(transport):
        return ""
    place = id(transport)
    if place not in _NAMES:
        name = secrets.token_hex(16)
        try:
            weakref.finalize(transport, _NAMES.pop, place, None).atexit = False
        except TypeError:
            return name
        _NAMES[place] = name
    return _NAMES[place]


@frozen(eq=False, repr=False)
class _Request:
    """Request of a call, and what identifies it."""

    service: Service
    call: Call
    began: float
    through: str

    @property
    def identity(self) -> Hashable:
        """Identity of the request: an identical one in flight may take its place."""
        options = self.call.options
        headers = significant(options.headers)
        return self.service.name, self.url, headers, options.identity, self.call.raw

    @property
    def deadline(self) -> float:
        """Time of the loop at which the call must end; inf for none."""
        return self.began + self._allowed

    @property
    def _allowed(self) -> float:
        """Seconds that the call may take in all; inf for no limit."""
        allowed = self.call.options.deadline
        return inf if allowed is None else allowed

    def may_succeed(self, error: Late) -> bool:
        """Return whether the request has more time than an identical one had."""
        now, options = asyncio.get_running_loop().time(), self.call.options
        allowed = inf if options.max_wait is None else options.max_wait - (now - self.began)
        waits = not isinstance(error, DeadlineExceededError)
        left = min(self.deadline - now, allowed if waits else inf)
        return not isinstance(error, QueueFullError) and left > max(error.retry_after or 0.0, LEAST)

    def overdue(self) -> DeadlineExceededError:
        """Return the error of the call at its deadline, before its request has ended."""
        elapsed = asyncio.get_running_loop().time() - self.began
        return DeadlineExceededError(self._allowed, where=self.call.query.where, elapsed=elapsed)

    @property
    def url(self) -> str:
        """URL, with the page token."""
        return self.call.query.url(self.service.endpoint.base_url, self.call.page_token)

    @property
    def key(self) -> str:
        """Key of the response in a store."""
        key = self.service.endpoint.key
        secret = None if key is None else key.reveal()
        headers, raw = self.call.options.headers, self.call.raw
        return cache_key(self.url, headers, secret, raw=raw, through=self.through)


@define(eq=False, repr=False)
class _Shared:
    """Request in flight: its task, its deadline, and the number of its callers."""

    task: asyncio.Task[Attempt]
    deadline: float
    callers: int = 0


@define(eq=False, repr=False)
class ResponseReuse:
    """Responses of one session that answer several calls.

    Attributes:
        run: sends a request, as `Connection.call` does, and decodes its response.
        through: name of the transport, see `name_of`.

    """

    run: Callable[..., Coroutine[Any, Any, tuple[Any, Attempt]]]
    through: str
    _shared: dict[Hashable, _Shared] = field(factory=dict[Hashable, _Shared], init=False)  # by identity
    _tasks: set[asyncio.Task[Attempt]] = field(factory=set["asyncio.Task[Attempt]"], init=False)

    async def call(
        self, service: Service, call: Call, decode: Callable[[bytes], R], began: float
    ) -> tuple[R, Attempt]:
        """Return a decoded response, and the attempt that it belongs to.

        Raises:
            ChainAPIError: the error of the request, or of the decoding.

        """
        request = _Request(service, call, began, self.through)
        attempt = await self._stored(request)
        return await _decoded(request, decode, attempt or await self._send(request))

    async def aclose(self) -> None:
        """Wait until the requests have ended; the connection ended them."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stored(self, request: _Request) -> Attempt | None:
        """Return the attempt of a cached response; None to send the request.

        Raises:
            ChainAPIError: the error of the request, if the cached response cannot take its place.

        """
        service, call, cache = request.service, request.call, request.call.options.cache
        stored = None if cache is None or call.fresh else await cache.read(request.key, request.deadline)
        if cache is None or stored is None:
            return None
        now, age = asyncio.get_running_loop().time(), service.member.now() - stored.sent
        use = cache.use(age, service.endpoint.page_token_lifetime)
        if use == "never":
            return None
        if use == "on error":
            with suppress(*_FAULTS):  # the request reported its fault
                return await self._send(request)
        elif use == "revalidate":
            self._join(request.identity, request)
        if service.events.emit:
            service.events.cached(call.query.where, service.tag(call.options), age, use)
        response = Response(stored.status, stored.headers, stored.body)
        return Attempt(SentAt(now - age, stored.sent), response, elapsed=stored.elapsed, age=age)

    # --- requests in flight -----------------------------------------------------------------

    async def _send(self, request: _Request) -> Attempt:
        """Return the attempt of the identical request in flight; send it if needed.

        A caller that joined later has more time than the first one: if the request ends with the deadline or
        the `max_wait` of its first caller, the others send it again, those that may succeed. One that began
        earlier, and read a store meanwhile, ends at its own deadline. A cancelled caller leaves the request
        to the others; the last one cancels it.

        Raises:
            ChainAPIError: the error of the request; each caller has its own copy.

        """
        identity, lost = request.identity, False
        while True:
            joined = identity in self._shared
            shared = self._join(identity, request)
            left = request.deadline - asyncio.get_running_loop().time()
            try:
                ends = request.deadline < shared.deadline  # before the request that it joined
                await asyncio.wait([shared.task], timeout=max(0.0, left) if ends else None)
            finally:
                self._leave(identity, shared)
            if not shared.task.done():
                raise request.overdue()
            if shared.task.cancelled() and not lost:
                lost = True  # by somebody else, such as the end of the session: once more, and not for ever
                continue
            error = shared.task.exception()
            if error is None:
                return shared.task.result()
            if not (joined and isinstance(error, Late) and request.may_succeed(error)):
                # A copy: a walk adds its position to its own error.
                raise (copy.copy(error) if isinstance(error, ChainAPIError) else error) from error.__cause__

    def _join(self, identity: Hashable, request: _Request) -> _Shared:
        """Return the identical request in flight, or send a new one."""
        shared = self._shared.get(identity)
        if shared is None:
            task = asyncio.get_running_loop().create_task(self._fetch(request))
            shared = self._shared[identity] = _Shared(task, request.deadline)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._end(identity, shared))
            task.add_done_callback(_retrieve)
        shared.callers += 1
        return shared

    def _leave(self, identity: Hashable, shared: _Shared) -> None:
        shared.callers -= 1
        if not shared.callers and not shared.task.done():
            self._end(identity, shared)
            shared.task.cancel()

    def _end(self, identity: Hashable, shared: _Shared) -> None:
        """Let later callers send a new request."""
        if self._shared.get(identity) is shared:
            del self._shared[identity]

    async def _fetch(self, request: _Request) -> Attempt:
        """Send a request, and store its response."""
        # A caller that no longer needs the response leaves; another one may still need it.
        call = replace(request.call, needed=None)
        check = bytes if call.raw else checked_json
        body, attempt = await self.run(request.service, call, check, request.began)
        if (cache := call.options.cache) is not None:
            raw = request.service.received(attempt)  # without the key, if the service echoed it
            stored = CachedResponse.of(attempt.sent.wall, raw.elapsed, raw.status, raw.headers, body)
            await cache.write(request.key, stored, request.deadline)
        return attempt


async def _decoded(request: _Request, decode: Callable[[bytes], R], attempt: Attempt) -> tuple[R, Attempt]:
    """Decode a response for one of its callers: rows of a user's class may change."""
    service, number, body = request.service, attempt.sent.call, cast("Response", attempt.outcome).body
    try:
        return await service.decode(decode, body), attempt
    except DecodeError as error:
        fault = service.undecoded(error, body)
    elapsed = asyncio.get_running_loop().time() - request.began
    attempts = 0 if number is None else 1
    fault = fault.after(where=request.call.query.where, attempts=attempts, elapsed=elapsed)
    raise service.identified(fault, number, attempt.outcome)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a request for which no caller waits any more."""
    if not task.cancelled():
        task.exception()
