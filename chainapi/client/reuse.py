"""ResponseReuse: calls that share a response, coalesced or from a cache."""

from __future__ import annotations

import asyncio
import secrets
import weakref
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar, assert_never, cast

from attrs import define, field, frozen
from msgspec.structs import replace

from chainapi._http.message import Response, SentAt
from chainapi._http.options import Call, Exchange
from chainapi.client.coalesce import Coalescer
from chainapi.client.service import Service
from chainapi.client.transport import AiohttpTransport, Transport
from chainapi.core.cache import CachedResponse, Use, cache_key, significant
from chainapi.errors import (
    APIConnectionError,
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
LEAST = 0.01  # seconds: a call with less time left does not repeat a request
# Faults of the service and of its quota: a stale response is better. Other errors are the answer.
_FAULTS = (APIConnectionError, QuotaWaitError, RateLimitedError, ServerError)


_NAMES = dict[int, str]()  # of transports that exist, by their ids


def name_of(transport: Transport) -> str:
    """Return a name of a transport that no other one ever has; "" for the network.

    An object that allows no weak references has another name for each session: its id may belong to
    another object later.
    """
    if type(transport) is AiohttpTransport:
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


class Run(Protocol):
    """Sending of one request, with all its retries."""

    def __call__(
        self, service: Service, call: Call, decode: Callable[[bytes], R], began: float
    ) -> Coroutine[Any, Any, tuple[R, Exchange]]:
        """Return the decoded response, and the exchange that it belongs to."""
        ...


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

    def may_succeed(self, error: QuotaWaitError | DeadlineExceededError) -> bool:
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
class ResponseReuse:
    """Responses of one session that answer several calls.

    Attributes:
        run: sends a request.
        through: name of the transport, see `name_of`.

    """

    run: Run
    through: str
    _coalescer: Coalescer[Exchange] = field(factory=Coalescer[Exchange], init=False)

    async def call(
        self, service: Service, call: Call, decode: Callable[[bytes], R], began: float
    ) -> tuple[R, Exchange]:
        """Return a decoded response, and the exchange that it belongs to.

        Raises:
            ChainAPIError: the error of the request, or of the decoding.

        """
        request, cache = _Request(service, call, began, self.through), call.options.cache
        if cache is None or call.fresh:
            return await self._decoded(request, decode, await self._send(request))
        stored = await cache.read(request.key, request.deadline)
        if stored is None:
            return await self._decoded(request, decode, await self._send(request))
        now, age = asyncio.get_running_loop().time(), service.member.now() - stored.sent
        use = cache.policy.use(age, service.endpoint.page_token_lifetime)
        if (exchange := await self._renewed(use, request)) is not None:
            return await self._decoded(request, decode, exchange)
        if service.events.emit:
            service.events.cached(call.query.where, service.tag(call.options), age, use.value)
        return await self._decoded(request, decode, _exchange(stored, SentAt(now - age, stored.sent), age))

    async def _renewed(self, use: Use, request: _Request) -> Exchange | None:
        """Return a new exchange in place of a cached response; None to use the response.

        Raises:
            ChainAPIError: the error of the request, if the cached response cannot take its place.

        """
        match use:
            case Use.NEVER:
                return await self._send(request)
            case Use.ON_ERROR:
                with suppress(*_FAULTS):  # the request reported its fault
                    return await self._send(request)
            case Use.REVALIDATE:
                self._coalescer.start(request, partial(self._fetch, request))
            case Use.ANSWER:
                pass
            case _:
                assert_never(use)
        return None

    async def aclose(self) -> None:
        """Wait until the requests have ended; the connection ended them."""
        await self._coalescer.aclose()

    async def _send(self, request: _Request) -> Exchange:
        """Return the response to a request, or to an identical one in flight."""
        return await self._coalescer.run(request, partial(self._fetch, request))

    async def _fetch(self, request: _Request) -> Exchange:
        """Send a request, and store its response."""
        # A caller that no longer needs the response leaves; another one may still need it.
        call = replace(request.call, needed=None)
        check = bytes if call.raw else checked_json
        body, exchange = await self.run(request.service, call, check, request.began)
        if (cache := call.options.cache) is not None:
            raw = request.service.received(exchange)  # without the key, if the service echoed it
            stored = CachedResponse.of(exchange.sent.wall, raw.elapsed, raw.status, raw.headers, body)
            await cache.write(request.key, stored, request.deadline)
        return exchange

    @staticmethod
    async def _decoded(
        request: _Request, decode: Callable[[bytes], R], exchange: Exchange
    ) -> tuple[R, Exchange]:
        """Decode a response for one of its callers: rows of a user's class may change."""
        service, number, body = request.service, exchange.sent.call, cast("Response", exchange.outcome).body
        try:
            return await service.decode(decode, body), exchange
        except DecodeError as error:
            fault = service.undecoded(error, body)
        elapsed = asyncio.get_running_loop().time() - request.began
        attempts = 0 if number is None else 1
        fault = fault.after(where=request.call.query.where, attempts=attempts, elapsed=elapsed)
        raise service.identified(fault, number, exchange.outcome)


def _exchange(stored: CachedResponse, sent: SentAt, age: float) -> Exchange:
    """Return the exchange of a cached response."""
    response = Response(stored.status, stored.headers, stored.body)
    return Exchange(sent, response, elapsed=stored.elapsed, age=age)
