"""Cache: successful responses of GET requests, kept for a while in a store."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from chainapi._text import quoted
from chainapi.core.arguments import seconds_of, whole_number
from chainapi.core.cache import CachedResponse, CachePolicy
from chainapi.core.extras import missing_extra
from chainapi.errors import ConfigurationError

if TYPE_CHECKING:
    from cachetools import LRUCache

__all__ = ["Cache", "CacheStore", "MemoryStore"]

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
        self._policy = CachePolicy(
            seconds_of("fresh", fresh, zero=True),
            seconds_of("stale_while_revalidate", stale_while_revalidate, zero=True),
            seconds_of("stale_if_error", stale_if_error, zero=True),
        )
        if store is not None and not (callable(getattr(store, "get", None)) and hasattr(store, "set")):
            raise ConfigurationError(f"store={quoted(store)} must have the methods of a chainapi.CacheStore")
        self.store: CacheStore = MemoryStore() if store is None else store

    def __repr__(self) -> str:
        policy = self.policy
        return (
            f"<Cache: fresh for {policy.fresh:g} s, stale_while_revalidate={policy.stale_while_revalidate:g},"
            f" stale_if_error={policy.stale_if_error:g}, {self.store!r}>"
        )

    @property
    def policy(self) -> CachePolicy:
        """Ages up to which a response may be used."""
        return self._policy

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
                await self.store.set(key, response.dumps(), ttl=self.policy.lifetime)
        except Exception as error:  # noqa: BLE001 - a store of the user may raise anything
            _log.warning("the store of the cache failed to write: %s", type(error).__name__)


def _until(deadline: float) -> asyncio.Timeout:
    """Return the time limit of a store: a second, or until the deadline of the call."""
    return asyncio.timeout_at(min(deadline, asyncio.get_running_loop().time() + PATIENCE))
