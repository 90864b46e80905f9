"""Cached responses: their use by age, their keys, and their stored form."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from typing import Protocol

import msgspec
from attrs import frozen

from chainapi.core.private import Private
from chainapi.core.share.names import derived_key

__all__ = ["CachePolicy", "CachedResponse", "ResponseCache", "Use", "cache_key", "significant"]

# Headers that name a request, and do not change its response.
_NAMES = frozenset({"baggage", "traceparent", "tracestate", "user-agent", "x-correlation-id", "x-request-id"})
_VERSION = 1  # of the stored form


class Use(Enum):
    """Use of a cached response, by its age."""

    ANSWER = "answer"  # it answers the call
    REVALIDATE = "revalidate"  # it answers the call, and a request in the background replaces it
    ON_ERROR = "on error"  # it answers the call if a request fails
    NEVER = "never"


@frozen
class CachePolicy:
    """Ages up to which a cached response may be used, in seconds.

    Attributes:
        fresh: up to this age it answers a call.
        stale_while_revalidate: for these seconds more it answers a call while a request replaces it.
        stale_if_error: for these seconds after `fresh` it answers a call whose request fails.

    """

    fresh: float
    stale_while_revalidate: float = 0.0
    stale_if_error: float = 0.0

    @property
    def lifetime(self) -> float:
        """Age in seconds from which on a response is not used any more."""
        return self.fresh + max(self.stale_while_revalidate, self.stale_if_error)

    def use(self, age: float, page_token_lifetime: float) -> Use:
        """Return what a response of an age may be used for.

        A response may have a page token, so one of the age `page_token_lifetime` is never used. A negative
        age is that of a clock that was set back: the true one is unknown.
        """
        if not 0 <= age < page_token_lifetime:
            return Use.NEVER
        if age < self.fresh:
            return Use.ANSWER
        if age < self.fresh + self.stale_while_revalidate:
            return Use.REVALIDATE
        return Use.ON_ERROR if age < self.fresh + self.stale_if_error else Use.NEVER


class CachedResponse(Private, msgspec.Struct, array_like=True, frozen=True):
    """Successful response in the form in which a cache stores it.

    Attributes:
        version: version of this form.
        sent: Unix time in seconds at which its request was sent.
        elapsed: seconds until the response had arrived.
        status: its HTTP status code.
        headers: its headers by lower-case names.
        body: its body.

    """

    version: int
    sent: float
    elapsed: float
    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(
        cls, sent: float, elapsed: float, status: int, headers: Mapping[str, str], body: bytes
    ) -> CachedResponse:
        """Return the response to a request sent at a Unix time, without cookies."""
        kept = {name: value for name, value in headers.items() if name != "set-cookie"}
        return cls(_VERSION, sent, elapsed, status, kept, body)

    @classmethod
    def loads(cls, stored: bytes) -> CachedResponse | None:
        """Return a stored response; None if it has another form."""
        try:
            response = _DECODER.decode(stored)
        except msgspec.MsgspecError:
            return None
        return response if response.version == _VERSION else None

    def dumps(self) -> bytes:
        """Return the bytes to store."""
        return _ENCODER.encode(self)


class ResponseCache(Protocol):
    """Cache as calls use it; see `chainapi.client.cache.Cache`."""

    @property
    def policy(self) -> CachePolicy:
        """Ages up to which a response may be used."""
        ...

    async def read(self, key: str, deadline: float) -> CachedResponse | None:
        """Return a stored response, or None; before the time `deadline` of the loop."""
        ...

    async def write(self, key: str, response: CachedResponse, deadline: float) -> None:
        """Store a response; before the time `deadline` of the loop."""
        ...


_DECODER = msgspec.msgpack.Decoder(CachedResponse)
_ENCODER = msgspec.msgpack.Encoder()


def significant(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the headers on which a response may depend, in the order of their names."""
    return tuple(sorted(pair for pair in headers.items() if pair[0] not in _NAMES))


def cache_key(
    url: str, headers: Mapping[str, str], api_key: str | None, *, raw: bool = False, through: str = ""
) -> str:
    """Return the key of a response in a store: 32 hexadecimal digits.

    It differs for each API key, and reveals neither the key nor the page token in the URL: the API key is
    the key of the digest. A `raw` body, which may be other than JSON, has another key. So has a response that
    came `through` something else than the network.
    """
    parts = (url, significant(headers), *(("raw",) if raw else ()), *((through,) if through else ()))
    identity = msgspec.msgpack.encode(parts)
    return blake2b(identity, key=derived_key(api_key), digest_size=16, person=b"chainapi cache").hexdigest()
