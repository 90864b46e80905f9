"""Pages of lists, and their tokens.

A page token stands for the place behind the last row of its page. Rows that are added at the head later move
nothing: a walk that follows the tokens sees the list as it was when it began, and one that begins again sees
the new rows. Lists with anomalies may count rows instead, and give their pages again and again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from uuid import UUID

import msgspec
from attrs import define, evolve

from chainapi.simulator.injection import Injector
from chainapi.simulator.lists import Listing, page_size
from chainapi.simulator.rows import Draw, Row, RowSource, View
from chainapi.simulator.settings import Settings
from chainapi.simulator.stats import Stats
from chainapi.simulator.validation import HTTPError

__all__ = ["TOLERANCE", "Pages", "encode"]

KEPT_BYTES = 16 * 2**20  # at most, of all encoded pages that are kept

# Floats lose a little when seconds are added up: who waits exactly as long as told is not refused for it.
TOLERANCE = 1e-6

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

encode = msgspec.json.Encoder(decimal_format="number").encode


@define(eq=False)
class _Token:
    """A page that can be asked for.

    Attributes:
        listing: the list.
        query: the query that goes with it.
        place: the position behind the rows before, or how many these are; None at the head of the list.
        minted: when its token was given out, in seconds.
        page: its number, from 1.
        walk: number of the pass over the list that it belongs to, from 0.

    """

    listing: Listing
    query: frozenset[tuple[str, str]]
    place: int | None
    minted: float
    page: int = 1
    walk: int = 0


class _Encoded:
    """Encodes rows, and keeps the last pages for whoever asks for the same ones again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[tuple[RowSource, int, int, bool], bytes] = {}
        self._size = 0

    def __call__(self, source: RowSource, start: int, stop: int, ascending: bool) -> bytes:
        key = source, start, stop, ascending
        page = self._kept.pop(key, None)
        if page is None:
            rows = source.rows(start, stop)
            page = encode(rows[::-1] if ascending else rows)
            self._size += len(page)
        self._kept[key] = page  # the one used last is the last one
        while len(self._kept) > self._most or self._size > KEPT_BYTES:
            self._size -= len(self._kept.pop(next(iter(self._kept))))
        return page


class Pages:
    """The pages of all lists; `added` says how many rows a list has more than it began with."""

    def __init__(self, settings: Settings, stats: Stats, added: Callable[[Listing], int]) -> None:
        self._settings = settings
        self._stats = stats
        self._added = added
        self._tokens: dict[str, _Token] = {}
        self._rows = _Encoded(settings.cached_pages)
        self._draw_token = Draw(settings.seed, "token")

    def number(self, parameters: Mapping[str, str]) -> int:
        """Return the number of the page that a query asks for, from 1; 0 where its token is unknown."""
        name = parameters.get("pageToken")
        if name is None:
            return 1
        token = self._tokens.get(name)
        return 0 if token is None else token.page

    def page(self, listing: Listing, parameters: dict[str, str], now: float) -> Row:
        """Return a page of the list, and the token of the next one where there is one.

        Raises:
            HTTPError: the query asks for what there is not.

        """
        name = parameters.pop("pageToken", None)
        query = frozenset(parameters.items())
        view = listing.view(parameters)
        asked = _Token(listing, query, None, now) if name is None else self._redeem(name, listing, query, now)
        count = page_size(listing, parameters)
        if listing.injector is not None:
            if name is None:
                asked.walk = listing.injector.begin()
            return self._anomalous(listing.injector, view, asked, count, now)
        start, stop, following = _stretch(view, asked.place, count, self._size(listing, view))
        page = self._body(listing, view, start, stop)
        if following is not None:
            page["nextPageToken"] = self._mint(_Token(listing, query, following, now, asked.page + 1))
        return page

    def rows(self, listing: Listing, parameters: Mapping[str, str]) -> list[Row]:
        """Return all rows that a query asks for, in the order of the pages, as the latest pass sees them."""
        view = listing.view(parameters)
        if listing.injector is not None:
            view = listing.injector.latest(view)
        rows = view.source.rows(view.low, max(self._size(listing, view), view.low))
        return rows[::-1] if view.ascending else rows

    def _anomalous(self, injector: Injector, view: View, asked: _Token, count: int, now: float) -> Row:
        """Return a page of a list with anomalies, and the token of the page that comes next there."""
        anomalies, listing = injector.anomalies, asked.listing
        shown = injector.view(view, asked.walk, injector.answers)
        injector.answers += 1
        size = self._size(listing, shown)
        counted = anomalies.paging == "offset"
        place = _behind(shown, asked.place, size) if counted else asked.place
        start, stop, following = _stretch(shown, place, count, size)
        if counted and following is not None:
            following = (asked.place or 0) + stop - start
        page = self._body(listing, shown, start, stop)
        if anomalies.unknown_fields:
            page["newField"] = "simulated"
        token = _next(asked, following, anomalies.repeat_pages, now)
        if token is not None:
            page["nextPageToken"] = self._mint(token)
        return page

    def _size(self, listing: Listing, view: View) -> int:
        """Return the position behind the newest row of a part of a list."""
        size = view.source.size + self._added(listing)
        return size if view.high is None else min(size, view.high)

    def _body(self, listing: Listing, view: View, start: int, stop: int) -> Row:
        """Return a page: its rows, encoded, and its other fields."""
        rows = msgspec.Raw(self._rows(view.source, start, stop, view.ascending))
        return {listing.name: rows, **view.page_fields(self._added(listing))}

    def _mint(self, token: _Token) -> str:
        name = str(UUID(bytes=self._draw_token(self._stats.tokens_minted)[:16], version=4))
        self._stats.tokens_minted += 1
        self._tokens[name] = token
        return name

    def _redeem(self, name: str, listing: Listing, query: frozenset[tuple[str, str]], now: float) -> _Token:
        """Return the page that a token opens; it may be redeemed again while it lives."""
        if not _UUID.fullmatch(name):
            raise HTTPError(400, "pageToken must be a UUID")
        token = self._tokens.get(name)
        if token is None or token.listing is not listing or token.query != query:
            raise HTTPError(400, "pageToken does not belong to this request")
        if now - token.minted >= self._settings.token_lifetime - TOLERANCE:
            self._stats.tokens_expired += 1
            raise HTTPError(self._settings.expired_status, "pageToken has expired")
        return token


def _stretch(view: View, place: int | None, count: int, size: int) -> tuple[int, int, int | None]:
    """Return the first position of a page, the one behind its last, and the place of the next page."""
    if view.ascending:
        start = view.low if place is None else place
        stop = min(start + count, size)
        return start, stop, stop if stop < size else None
    stop = size if place is None else place
    start = max(stop - count, view.low)
    return start, stop, start if start > view.low else None


def _behind(view: View, given: int | None, size: int) -> int | None:
    """Return the position behind as many rows as were given, counted from the head of the list."""
    if given is None:
        return None
    return min(view.low + given, size) if view.ascending else max(size - given, view.low)


def _next(asked: _Token, following: int | None, repeated: int | str | None, now: float) -> _Token | None:
    """Return the page that comes next, None where there is none; `repeated` says which pages come again."""
    if following is not None and asked.page != repeated:
        return evolve(asked, place=following, minted=now, page=asked.page + 1)
    if repeated is None:
        return None
    if repeated == "last":
        return evolve(asked, minted=now)
    return evolve(asked, place=None, minted=now, page=1)
