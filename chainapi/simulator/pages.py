"""Pages of lists, and their tokens.

A page token counts the rows before its page, from the newest row at the start of the walk. Rows that are
added at the head later shift no page: a walk along the tokens gets the list as it was, and a new one the new
rows. In a list with anomalies tokens may count from the newest row of now, and repeat pages. The name of
a token tells its number and its page: an expired token is forgotten, and still refused as expired.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from attrs import define, evolve, frozen

from chainapi.simulator.anomalies import Injector
from chainapi.simulator.matching import Match, Segments
from chainapi.simulator.quota import TOLERANCE
from chainapi.simulator.rows import Row, Rows, View, encode
from chainapi.simulator.settings import Settings
from chainapi.simulator.traffic import Stats
from chainapi.simulator.validation import HTTPError, whole_number

if TYPE_CHECKING:
    from chainapi._api.endpoint import Endpoint

__all__ = ["Listing", "Pages"]

DEFAULT_PAGE_SIZE = 10

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@frozen
class Listing:
    """Part of a list that a request names.

    Attributes:
        match: route and path.
        view: the part that the query selects.
        added: number of rows that were added to the list.
        injector: anomalies of the list.

    """

    match: Match
    view: View
    added: int
    injector: Injector

    def rows(self) -> list[Row]:
        """Return all rows, in the page order of the latest pass."""
        view = self.injector.latest(self.view)
        rows = view.source.rows(view.low, max(view.end(self.added), view.low))
        return rows[::-1] if view.ascending else rows

    def page_size(self, settings: Settings, query: Mapping[str, str]) -> int:
        """Return the rows of a full page; raise HTTPError for a size out of bounds."""
        bounds = _page_sizes(self.match.name, self.match.endpoint)
        if bounds is not None and (text := query.get("pageSize")) is not None:
            size = whole_number("pageSize", text, *bounds)
            if size:
                return size
        if self.match.name.startswith("metrics.") and self.match.name != "metrics.chains.list":
            return settings.metrics_page_size
        whole = bounds is None or self.match.name == "data.chains"
        return max(self.view.source.size, 1) if whole else DEFAULT_PAGE_SIZE


@cache
def _page_sizes(name: str, endpoint: Endpoint) -> tuple[float, float | None] | None:
    """Return the bounds of the page size of a route; None if a query has no choice."""
    parameter = endpoint.page_size
    if parameter is None:
        return (1, 100) if name == "data.chains" else None
    return (1, None) if parameter.bounds is None else (parameter.bounds.least, parameter.bounds.most)


@define(eq=False)
class _Token:
    """Page that a token opens.

    Attributes:
        place: path of the list.
        query: parameters of the request, without the token.
        minted: time in seconds at which the token was issued.
        given: number of rows before the page.
        end: number after the newest row when the walk began.
        page: number of the page, from 1.
        walk: number of the pass over the list, from 0.

    """

    place: Segments
    query: frozenset[tuple[str, str]]
    minted: float
    given: int = 0
    end: int = 0
    page: int = 1
    walk: int = 0


def _name(seed: int, number: int, page: int) -> str:
    """Return the name of token `number`, which opens page `page`.

    It is a UUID whose first nine bytes are a seal, as far as its version leaves them.
    """
    content = (number % 2**32 << 24 | page % 2**24).to_bytes(7)
    seal = blake2b(content, key=f"{seed} token".encode()[:64], digest_size=9).digest()
    return str(UUID(bytes=seal + content, version=4))


def _read(seed: int, name: str) -> tuple[int, int] | None:
    """Return the number and the page of a token, None for any other name."""
    if not _UUID.fullmatch(name):
        return None
    number, page = divmod(int.from_bytes(UUID(name).bytes[9:]), 2**24)
    return (number, page) if _name(seed, number, page) == name else None


# Equal sources have equal rows, so that the tests of a suite, each with a simulator of its own, share them.
@lru_cache(512)
def _encoded(source: Rows, start: int, stop: int, ascending: bool) -> msgspec.Raw:
    """Return the rows of a page as JSON."""
    rows = source.rows(start, stop)
    return msgspec.Raw(encode(rows[::-1] if ascending else rows))


class Pages:
    """Pages of all lists.

    Tokens are kept in the order of their age, and forgotten when they expire.
    """

    def __init__(self, settings: Settings, stats: Stats) -> None:
        self._settings = settings
        self._stats = stats
        self._tokens: dict[str, _Token] = {}

    def number(self, name: str) -> int:
        """Return the number of the page that a token opens, even a forgotten one.

        It is 1 without a token, and 0 for an unknown one.
        """
        if not name:
            return 1
        if (token := self._tokens.get(name)) is not None:
            return token.page
        number, page = _read(self._settings.seed, name) or (math.inf, 0)
        return page if number < self._stats.tokens_minted else 0

    def expire(self, name: str) -> None:
        """Let a token expire, if it is known."""
        self._tokens.pop(name, None)

    def page(self, listing: Listing, parameters: Mapping[str, str], now: float) -> Row:
        """Return a page of a list, with the token of the next page.

        Raises:
            HTTPError: the token is not valid, or the page size is out of bounds.

        """
        query = {name: value for name, value in parameters.items() if name != "pageToken"}
        size = listing.page_size(self._settings, query)
        requested = self._requested(listing, query, parameters.get("pageToken"), now)
        view, anomalies = listing.injector.next_view(listing.view, requested.walk), listing.injector.anomalies
        end = view.end(listing.added)
        if requested.given and anomalies.paging == "cursor" and not view.ascending:
            end = requested.end
        length = max(end - view.low, 0)
        first = min(requested.given, length)
        last = min(first + size, length)
        start, stop = (view.low + first, view.low + last) if view.ascending else (end - last, end - first)
        rows = _encoded(view.source, start, stop, view.ascending)
        page = {listing.match.items: rows, **view.page_fields(listing.added)}
        if anomalies.unknown_fields:
            page["newField"] = "simulated"
        following = evolve(requested, given=last, end=end, page=requested.page + 1) if last < length else None
        token = _next(requested, following, anomalies.repeat_pages)
        if token is not None:
            page["nextPageToken"] = self._mint(evolve(token, minted=now))
        return page

    def _requested(self, listing: Listing, query: Mapping[str, str], name: str | None, now: float) -> _Token:
        """Return the page of a token, which may be used again, or the first page."""
        place, parameters = listing.match.segments, frozenset(query.items())
        if name is None:
            return _Token(place, parameters, now, walk=listing.injector.begin())
        token = self._tokens.get(name)
        if self._is_dead(token, now) if token is not None else self.number(name):
            self._stats.tokens_expired += 1
            raise HTTPError(self._settings.expired_status, "pageToken has expired")
        if token is None and not _UUID.fullmatch(name):
            raise HTTPError(400, "pageToken must be a UUID")
        if token is None or token.place != place or token.query != parameters:
            raise HTTPError(400, "pageToken does not belong to this request")
        return token

    def _mint(self, token: _Token) -> str:
        name = _name(self._settings.seed, self._stats.tokens_minted, token.page)
        self._stats.tokens_minted += 1
        while self._tokens and self._is_dead(self._tokens[oldest := next(iter(self._tokens))], token.minted):
            del self._tokens[oldest]
        self._tokens[name] = token
        return name

    def _is_dead(self, token: _Token, now: float) -> bool:
        return now - token.minted >= self._settings.token_lifetime - TOLERANCE


def _next(requested: _Token, following: _Token | None, repeated: int | str | None) -> _Token | None:
    """Return the next page, or None; `repeated` is the setting `repeat_pages`."""
    if repeated is None or (following is not None and requested.page != repeated):
        return following
    return requested if repeated == "last" else evolve(requested, given=0, page=1)
