"""Pages of lists, and their tokens.

A page token opens the position after the last row of its page. Rows that are added at the head later shift no
page: a walk along the tokens gets the list as it was at the start of the walk, and a new walk gets the new
rows. The tokens of a list with anomalies may count rows instead, and repeat pages. The name of a token tells
its number and its page: an expired token is forgotten, and still refused as expired.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from threading import Lock
from uuid import UUID

import msgspec
from attrs import define, evolve

from chainapi.simulator.injection import Injector
from chainapi.simulator.lists import Listing, page_size
from chainapi.simulator.matching import Segments
from chainapi.simulator.quota import TOLERANCE
from chainapi.simulator.rows import Row, RowSource, View
from chainapi.simulator.settings import Settings
from chainapi.simulator.stats import Stats
from chainapi.simulator.validation import HTTPError

__all__ = ["Pages"]

CACHED_BYTES = 16 * 2**20  # of the encoded pages of all simulators of a process
ENTRY_BYTES = 2_000  # of memory that a cached page takes besides its content

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Names:
    """Names of page tokens: UUIDs that only this simulator can read.

    The first nine bytes are a seal, as far as the version of the UUID leaves them. The others are the number
    of the token and that of its page, made unreadable.
    """

    def __init__(self, seed: int) -> None:
        self._key = f"{seed} token".encode()

    def of(self, number: int, page: int) -> str:
        """Return the name of token `number`, which opens page `page`."""
        content = (number % 2**32 << 24 | page % 2**24).to_bytes(7)
        seal = blake2b(content, key=self._key, digest_size=9).digest()
        return str(UUID(bytes=seal + self._masked(seal, content), version=4))

    def read(self, name: str) -> tuple[int, int] | None:
        """Return the number and the page of a token, None for a name that `of` did not return."""
        if not _UUID.fullmatch(name):
            return None
        raw = UUID(name).bytes
        content = int.from_bytes(self._masked(raw, raw[9:]))
        number, page = divmod(content, 2**24)
        return (number, page) if self.of(number, page) == name else None

    def _masked(self, seal: bytes, content: bytes) -> bytes:
        mask = blake2b(seal[:6], key=self._key, digest_size=7).digest()
        return bytes(a ^ b for a, b in zip(content, mask, strict=True))


@define(eq=False)
class _Token:
    """Page that a token stands for.

    Attributes:
        place: path of the list.
        query: parameters of the request, without the token.
        position: position after the rows before the page, or their count; None at the head of the list.
        minted: time in seconds at which the token was issued.
        page: number of the page, from 1.
        walk: number of the pass over the list, from 0.

    """

    place: Segments
    query: frozenset[tuple[str, str]]
    position: int | None
    minted: float
    page: int = 1
    walk: int = 0


class _Encoded:
    """Least-recently-used cache of encoded pages, for all simulators of a process.

    Equal sources have equal rows, so that the tests of a suite, each with a simulator of its own, share them.
    """

    def __init__(self, most: int = CACHED_BYTES) -> None:
        self._most = most
        self._kept: dict[tuple[RowSource, int, int, bool], bytes] = {}
        self._size = 0
        self._lock = Lock()  # each thread may have a simulator

    def __call__(self, source: RowSource, start: int, stop: int, ascending: bool) -> bytes:
        key = source, start, stop, ascending
        with self._lock:
            page = self._kept.pop(key, None)
            if page is not None:
                self._kept[key] = page  # the most recently used page is the last one
                return page
        page = source.encoded(start, stop, ascending=ascending)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = page
                self._size += len(page) + ENTRY_BYTES
            while self._size > self._most:
                self._size -= len(self._kept.pop(next(iter(self._kept)))) + ENTRY_BYTES
        return page


_encoded = _Encoded()


class Pages:
    """Pages of all lists; `added` returns the number of rows added to the list at a path.

    Tokens are kept in the order of their age, and forgotten when they expire.
    """

    def __init__(self, settings: Settings, stats: Stats, added: Callable[[Segments], int]) -> None:
        self._settings = settings
        self._stats = stats
        self._added_at = added
        self._tokens: dict[str, _Token] = {}
        self._names = _Names(settings.seed)

    def number(self, parameters: Mapping[str, str]) -> int:
        """Return the page number of a query, from 1; 0 for an unknown token."""
        name = parameters.get("pageToken")
        return 1 if name is None else self._page_of(name)

    def _page_of(self, name: str) -> int:
        """Return the page of a token, a forgotten one included; 0 for one that was never given out."""
        number, page = self._names.read(name) or (math.inf, 0)
        return page if number < self._stats.tokens_minted else 0

    def expire(self, parameters: Mapping[str, str]) -> None:
        """Let the token of a query expire, if it is known."""
        token = self._tokens.get(parameters.get("pageToken", ""))
        if token is not None:
            token.minted = -math.inf

    def page(self, listing: Listing, parameters: dict[str, str], now: float) -> Row:
        """Return a page of a list, with the token of the next page.

        Raises:
            HTTPError: the token is not valid, or a value of the query is not one that the route takes.

        """
        name = parameters.pop("pageToken", None)
        query = frozenset(parameters.items())
        view = listing.view(parameters)
        requested = (
            _Token(listing.place, query, None, now)
            if name is None
            else self._redeem(name, listing, query, now)
        )
        count = page_size(listing, parameters)
        if listing.injector is not None:
            if name is None:
                requested.walk = listing.injector.begin()
            return self._anomalous(listing, listing.injector, view, requested, count, now)
        start, stop, following = _stretch(view, requested.position, count, self._size(listing, view))
        page = self._body(listing, view, start, stop)
        if following is not None:
            token = _Token(listing.place, query, following, now, requested.page + 1)
            page["nextPageToken"] = self._mint(token)
        return page

    def rows(self, listing: Listing, parameters: Mapping[str, str]) -> list[Row]:
        """Return all rows that a query selects, in the page order of the latest pass."""
        view = listing.view(parameters)
        if listing.injector is not None:
            view = listing.injector.latest(view)
        rows = view.source.rows(view.low, max(self._size(listing, view), view.low))
        return rows[::-1] if view.ascending else rows

    def _anomalous(
        self, listing: Listing, injector: Injector, view: View, requested: _Token, count: int, now: float
    ) -> Row:
        """Return a page of a list with anomalies, with the token of the next page."""
        anomalies = injector.anomalies
        shown = injector.view(view, requested.walk, injector.answers)
        injector.answers += 1
        size = self._size(listing, shown)
        is_count = anomalies.paging == "offset"
        position = _behind(shown, requested.position, size) if is_count else requested.position
        start, stop, following = _stretch(shown, position, count, size)
        if is_count and following is not None:
            following = (requested.position or 0) + stop - start
        page = self._body(listing, shown, start, stop)
        if anomalies.unknown_fields:
            page["newField"] = "simulated"
        token = _next(requested, following, anomalies.repeat_pages, now)
        if token is not None:
            page["nextPageToken"] = self._mint(token)
        return page

    def _size(self, listing: Listing, view: View) -> int:
        """Return the position after the newest row of a part of a list."""
        size = view.source.size + self._added(listing)
        return size if view.high is None else min(size, view.high)

    def _added(self, listing: Listing) -> int:
        return self._added_at(listing.place) if listing.grows else 0

    def _body(self, listing: Listing, view: View, start: int, stop: int) -> Row:
        """Return a page: its rows, encoded, and its other fields."""
        rows = msgspec.Raw(_encoded(view.source, start, stop, view.ascending))
        return {listing.name: rows, **view.page_fields(self._added(listing))}

    def _mint(self, token: _Token) -> str:
        name = self._names.of(self._stats.tokens_minted, token.page)
        self._stats.tokens_minted += 1
        self._forget(token.minted)
        self._tokens[name] = token
        return name

    def _forget(self, now: float) -> None:
        """Forget the expired tokens at the head."""
        while self._tokens and self._is_dead(self._tokens[oldest := next(iter(self._tokens))], now):
            del self._tokens[oldest]

    def _is_dead(self, token: _Token, now: float) -> bool:
        return now - token.minted >= self._settings.token_lifetime - TOLERANCE

    def _redeem(self, name: str, listing: Listing, query: frozenset[tuple[str, str]], now: float) -> _Token:
        """Return the page of a token, which may be used again until it expires."""
        token = self._tokens.get(name)
        if self._is_dead(token, now) if token is not None else self._page_of(name):
            self._stats.tokens_expired += 1
            raise HTTPError(self._settings.expired_status, "pageToken has expired")
        if token is None and not _UUID.fullmatch(name):
            raise HTTPError(400, "pageToken must be a UUID")
        if token is None or token.place != listing.place or token.query != query:
            raise HTTPError(400, "pageToken does not belong to this request")
        return token


def _stretch(view: View, position: int | None, count: int, size: int) -> tuple[int, int, int | None]:
    """Return the first and end position of a page, and of the next page.

    The end is the position after the last row. A part that ends below its first row has an empty page.
    """
    if view.ascending:
        start = view.low if position is None else position
        stop = max(min(start + count, size), start)
        return start, stop, stop if stop < size else None
    stop = size if position is None else position
    start = min(max(stop - count, view.low), stop)
    return start, stop, start if start > view.low else None


def _behind(view: View, count: int | None, size: int) -> int | None:
    """Return the position after a number of rows, counted from the head of the list."""
    if count is None:
        return None
    return min(view.low + count, size) if view.ascending else max(size - count, view.low)


def _next(requested: _Token, following: int | None, repeated: int | str | None, now: float) -> _Token | None:
    """Return the next page, or None; `repeated` is the setting `repeat_pages`."""
    if following is not None and requested.page != repeated:
        return evolve(requested, position=following, minted=now, page=requested.page + 1)
    if repeated is None:
        return None
    if repeated == "last":
        return evolve(requested, minted=now)
    return evolve(requested, position=None, minted=now, page=1)
