"""Cache: successful responses of GET requests, kept for a while in a store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from chainapi._text import quoted
from chainapi.core.arguments import seconds_of, whole_number
from chainapi.core.extras import missing_extra
from chainapi.core.private import Private
from chainapi.core.share.names import derived_key
from chainapi.errors import ConfigurationError

if TYPE_CHECKING:
    from cachetools import LRUCache

__all__ = ["Cache", "CacheStore", "CachedResponse", "MemoryStore", "cache_key", "significant"]

# By the age of a response: it answers a call; it does, and a request in the background replaces it; it does
# if a request fails; it does not.
Use: TypeAlias = Literal["answer", "revalidate", "on error", "never"]

# Headers that name a request, and do not change its response.
_NAMES = frozenset({"baggage", "traceparent", "tracestate", "user-agent", "x-correlation-id", "x-request-id"})
_VERSION = 1  # of the stored form
MAX_BYTES = 64 * 2**20
PATIENCE = 1.0  # seconds for a store: a request would take about as long
_log = logging.getLogger("chainapi")


class CacheStore(Protocol):
    """Store of a `Cache`: a mapping of strings to bytes, which may evict entries.

    It may evict an entry at any time, and should evict it after `ttl` seconds. `aiocache` caches are such
    stores. A store that raises, evicts, or needs more than a second costs a request and loses no row.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the bytes of a key; None without an entry."""
        ...

    async def set(self, key: str, value: bytes, ttl: float) -> object:
        """Store bytes for `ttl` seconds."""
        ...


class MemoryStore:
    """Store in the memory of this process, bounded by bytes.

    It keeps the entries used last, up to `max_bytes` in all.

    Raises:
        ConfigurationError: `max_bytes` is not a whole number above 0, or the extra ``cache`` is missing.

    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        whole_number("max_bytes", max_bytes)
        try:
            from cachetools import LRUCache
        except ImportError:
            raise missing_extra(
                "a Cache in memory needs", "cachetools", "cache", ", or pass store="
            ) from None
        self._entries: LRUCache[str, bytes] = LRUCache(max_bytes, getsizeof=_size)

    def __repr__(self) -> str:
        entries = self._entries
        return f"<MemoryStore: {len(entries)} entries, {entries.currsize:g} of {entries.maxsize:g} bytes>"

    async def get(self, key: str) -> bytes | None:
        """Return the bytes of a key; None without an entry."""
        return self._entries.get(key)

    async def set(self, key: str, value: bytes, ttl: float) -> None:
        """Store bytes, unless they are more than `max_bytes`.

        Entries that were used longest ago make room.
        """
        if _size(value) <= self._entries.maxsize:
            self._entries[key] = value


def _size(value: bytes) -> int:
    return len(value) + 256  # with the key and the entry, roughly


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


_DECODER = msgspec.msgpack.Decoder(CachedResponse)
_ENCODER = msgspec.msgpack.Encoder()


class Cache:
    """Cache of responses, for ``Session.with_options(cache=)``.

    A cached response answers a call without a request, so it costs no quota. Identical requests in flight are
    one. One cache can serve several sessions. Responses for one API key never answer calls with another, and
    responses through a transport of the user, such as a simulator's, never answer calls through another.

    Args:
        fresh: seconds for which a response answers calls.
        stale_while_revalidate: seconds after `fresh` in which it still does, while one request in the
            background replaces it.
        stale_if_error: seconds after `fresh` in which it answers a call whose request fails: with a
            connection error, 429, 5xx, QuotaWaitError or DeadlineExceededError.
        store: keeps the responses; by default a `MemoryStore` of 64 MiB (extra ``cache``).

    Raises:
        ConfigurationError: an argument is invalid, or the extra ``cache`` is missing.

    """

    def __init__(
        self,
        fresh: float,
        *,
        stale_while_revalidate: float = 0.0,
        stale_if_error: float = 0.0,
        store: CacheStore | None = None,
    ) -> None:
        self._fresh = seconds_of("fresh", fresh, zero=True)
        self._revalidate = seconds_of("stale_while_revalidate", stale_while_revalidate, zero=True)
        self._on_error = seconds_of("stale_if_error", stale_if_error, zero=True)
        if store is not None and not (callable(getattr(store, "get", None)) and hasattr(store, "set")):
            raise ConfigurationError(f"store={quoted(store)} must have the methods of a chainapi.CacheStore")
        self.store: CacheStore = MemoryStore() if store is None else store

    def __repr__(self) -> str:
        return (
            f"<Cache: fresh for {self._fresh:g} s, stale_while_revalidate={self._revalidate:g},"
            f" stale_if_error={self._on_error:g}, {self.store!r}>"
        )

    @property
    def lifetime(self) -> float:
        """Age in seconds from which on a response is not used any more."""
        return self._fresh + max(self._revalidate, self._on_error)

    def use(self, age: float, page_token_lifetime: float) -> Use:
        """Return the use of a response of an age.

        It may have a page token, so one of the age `page_token_lifetime` is never used. If the age
        is negative, somebody set a clock back: the true age is unknown.
        """
        if not 0 <= age < page_token_lifetime:
            return "never"
        if age < self._fresh:
            return "answer"
        if age < self._fresh + self._revalidate:
            return "revalidate"
        return "on error" if age < self._fresh + self._on_error else "never"

    async def read(self, key: str, deadline: float) -> CachedResponse | None:
        """Return a stored response; None without one, and if the store fails or is late."""
        try:
            async with _until(deadline):
                stored = await self.store.get(key)
            return None if stored is None else CachedResponse.loads(stored)
        except Exception as error:  # noqa: BLE001 - a store of the user may raise or return anything
            _log.warning("the store of the cache failed to read: %s", type(error).__name__)
            return None

    async def write(self, key: str, response: CachedResponse, deadline: float) -> None:
        """Store a response; a store that fails or is late loses it."""
        try:
            async with _until(deadline):
                await self.store.set(key, response.dumps(), ttl=self.lifetime)
        except Exception as error:  # noqa: BLE001 - a store of the user may raise anything
            _log.warning("the store of the cache failed to write: %s", type(error).__name__)


def _until(deadline: float) -> asyncio.Timeout:
    """Return the time limit of a store: a second, or until the deadline of the call."""
    return asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + PATIENCE))


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
