"""The simulated services as a pure machine: what is sent, and when, decides every answer.

No clock, no loop, no socket: time is an argument, in seconds on any clock that only moves forward.
Three calls make up one exchange:

1. `World.sent`, when the client lets the request go;
2. `World.answer`, when the services have it;
3. `World.delivered`, when the client has the answer (not called for an answer that never arrives).

A page token stands for the place behind the last row of its page. Rows that are added at the head later move
nothing: who follows the tokens sees the list as it was when the walk began, and who begins again sees the new
rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

import msgspec
from attrs import define, frozen

from chainapi.core.wire import Request, Response
from chainapi.simulator.rows import DAY, Blocks, Chains, Draw, Points, Row, RowSource, Transactions, Utxos
from chainapi.simulator.settings import Broken, Fault, Settings
from chainapi.simulator.stats import Stats, Tally

__all__ = ["Answer", "World"]

Service = Literal["metrics", "data"]

SERVICES: Mapping[str, Service] = {"metrics": "metrics", "data": "data"}
NETWORKS = ("mainnet", "fuji")
PHRASES = {status.value: status.phrase for status in HTTPStatus}
BLOCKCHAINS = ("p-chain", "x-chain", "c-chain")
DEFAULT_PAGE_SIZE = 10
MAX_PAGE_SIZE = 100

# Floats lose a little when seconds are added up: who waits exactly as long as told is not refused for it.
TOLERANCE = 1e-6


@frozen
class Answer:
    """A response, and what becomes of it on its way: None when it arrives whole."""

    response: Response
    broken: Broken | None = None


@frozen
class _Caller:
    """Who asks what: `key` is a valid key or None, and `tallies` are where the request counts."""

    service: Service | None
    path: str
    query: str
    key: str | None
    tallies: tuple[Tally, ...]

    @property
    def quota(self) -> tuple[Service | None, str | None]:
        return self.service, self.key


@define(eq=False)
class _Listing:
    """One list: where its rows come from, and how its pages look.

    `grows` says that rows can be added at the head, `fixed` that the page size is not the caller's choice;
    `fields` gives what a page holds besides the rows, from how many rows were added.
    """

    name: str
    source: RowSource
    page_size: int | None = DEFAULT_PAGE_SIZE
    grows: bool = True
    fixed: bool = False
    fields: Callable[[int], Row] = lambda _: {}
    inserted: int = 0


@frozen
class _Token:
    listing: _Listing
    query: frozenset[tuple[str, str]]
    before: int
    minted: float


@define
class _Window:
    """A fixed window that opens with the first request in it."""

    start: float = -math.inf
    used: int = 0

    def take(self, limit: int, window: float, now: float) -> int | None:
        """Return None and count the request, or the whole seconds until the window ends, rounded up."""
        left = self.start + window - now
        if left <= TOLERANCE:
            self.start, self.used, left = now, 0, window
        if self.used >= limit:
            return math.ceil(left - TOLERANCE)
        self.used += 1
        return None


@define
class _Stop:
    """The time in which nothing may be sent: after a 429 arrived, until its retry-after is over."""

    start: float = math.inf
    end: float = -math.inf

    def holds(self, now: float) -> bool:
        return self.start <= now < self.end - TOLERANCE

    def extend(self, start: float, end: float, now: float) -> None:
        self.start = min(self.start, start) if now < self.end else start
        self.end = max(self.end, end)


class _Refusal(Exception):  # noqa: N818 - an answer like any other here, not an error of the program
    def __init__(self, status: int, *messages: str) -> None:
        self.status = status
        self.messages = messages


class World:
    """Both services. Two worlds with the same settings answer the same requests at the same times alike."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stats = Stats(keys={key: Tally() for key in (settings.api_key, *settings.other_keys)})
        self._listings: dict[tuple[str, ...], _Listing] = {}
        self._tokens: dict[str, _Token] = {}
        self._rows = lru_cache(settings.cached_pages)(_encode)
        self._draw_token = Draw(settings.seed, "token")
        self._windows: dict[object, _Window] = {}
        self._stops: dict[object, _Stop] = {}
        self._begun: float | None = None

    def sent(self, request: Request, now: float) -> None:
        """Note that a request leaves the client: one that leaves during a stop is counted."""
        caller = self._identify(request)
        stop = self._stops.get(caller.quota)
        if stop and stop.holds(now):
            for tally in caller.tallies:
                tally.sent_while_stopped += 1

    def answer(self, request: Request, now: float) -> Answer:
        """Answer a request that arrives now."""
        if self._begun is None:
            self._begun = now
        caller = self._identify(request)
        for tally in caller.tallies:
            tally.requests += 1
        fault = next((f for f in self.settings.faults if f.befalls(self.stats.requests)), None)
        if fault and fault.status is not None:
            response = _scripted(fault, fault.status)
        else:
            response = self._serve(request, caller, now)
        answer = Answer(response, fault.broken if fault else None)
        if answer.broken:
            self.stats.broken += 1
        else:
            for tally in caller.tallies:
                tally.answered[response.status] += 1
        return answer

    def delivered(self, request: Request, response: Response, now: float, grace: float = 0.0) -> None:
        """Note that the client has an answer; what it sends within `grace` seconds counts as sent before."""
        wait = response.headers.get("retry-after", "")
        if response.status == 429 and wait.isdecimal():
            stop = self._stops.setdefault(self._identify(request).quota, _Stop())
            stop.extend(now + grace, now + float(wait), now)

    def insert(self, path: str, count: int) -> None:
        """Add `count` new rows at the head of the list at `path`, such as ``/v1/chains/43114/blocks``.

        Raises ValueError where there is no list that can grow.
        """
        service: Service = "metrics" if path.startswith("/v1/avg_tps/") else "data"
        try:
            listing = self._route(service, path)
        except _Refusal as refusal:
            raise ValueError(f"no list at {path!r}") from refusal
        if isinstance(listing, _Listing) and listing.grows and count >= 0:
            listing.inserted += count
        else:
            raise ValueError(f"cannot insert {count} rows at {path!r}")

    def _identify(self, request: Request) -> _Caller:
        url = urlsplit(request.url)
        name, slash, rest = url.path[1:].partition("/")
        service = SERVICES.get(name)
        path = slash + rest if service else url.path
        key = request.headers.get(self.settings.api_key_header) if service == "data" else None
        tallies: list[Tally] = [self.stats]
        if service:
            tallies.append(self.stats.services[service])
        if key in self.stats.keys:
            tallies.append(self.stats.keys[key])
        else:
            key = None
        return _Caller(service, path, url.query, key, tuple(tallies))

    def _serve(self, request: Request, caller: _Caller, now: float) -> Response:
        if caller.service == "data" and caller.key is None:
            return _refuse(401, "a valid API key is required in the header " + self.settings.api_key_header)
        headers, wait = self._meter(caller, now)
        if wait is not None:
            return _refuse(429, "rate limit exceeded", headers=headers)
        try:
            body = self._find(request, caller, now)
        except _Refusal as refusal:
            return _refuse(refusal.status, *refusal.messages, headers=headers)
        return _respond(200, body, headers)

    def _meter(self, caller: _Caller, now: float) -> tuple[dict[str, str], int | None]:
        """Count the request against its quota: return the headers that say so, and the wait if refused."""
        public = caller.service == "metrics"
        limit = self.settings.metrics_limit if public else self.settings.limit
        window = self.settings.metrics_window if public else self.settings.window
        if limit is None or caller.service is None:
            return {}, None
        meter = self._windows.setdefault(caller.quota, _Window())
        wait = meter.take(limit, window, now)
        if public:
            return {}, wait
        headers = {
            "ratelimit-policy": f"{limit};w={window:.10g}",
            "ratelimit-limit": str(limit),
            "ratelimit-remaining": str(max(limit - meter.used, 0)),
        }
        if wait is not None:
            headers["ratelimit-reset"] = headers["retry-after"] = str(wait)
        return headers, wait

    def _find(self, request: Request, caller: _Caller, now: float) -> Row:
        if request.method != "GET":
            raise _Refusal(405, f"{request.method} is not allowed here")
        if caller.service is None:
            raise _Refusal(404, f"no service at {caller.path}")
        if caller.service == "data" and caller.path in self.settings.forbidden:
            raise _Refusal(403, "the key lacks the privilege for this resource")
        found = self._route(caller.service, caller.path)
        if not isinstance(found, _Listing):
            return found
        return self._page(found, dict(parse_qsl(caller.query, keep_blank_values=True)), now)

    def _route(self, service: Service, path: str) -> _Listing | Row:
        """Return the list at `path`, or the one record there."""
        # Decoded, so that one list is one list however its address is escaped.
        place = (service, *(unquote(segment) for segment in path.split("/")[1:]))
        found = self._listings.get(place) or self._resolve(place)
        if isinstance(found, _Listing):
            self._listings[place] = found
        return found

    def _resolve(self, place: tuple[str, ...]) -> _Listing | Row:
        match place:
            case "metrics", "v1", "avg_tps", chain:
                return self._points(self._chain(chain))
            case "data", "v1", "chains":
                return _Listing("chains", self._chains(), page_size=None, grows=False)
            case "data", "v1", "chains", chain:
                return self._chains().chain(self._chain(chain))
            case "data", "v1", "chains", chain, "blocks":
                return _Listing("blocks", self._blocks(self._chain(chain)))
            case "data", "v1", "chains", chain, "transactions":
                return _Listing("transactions", self._transactions(self._chain(chain)))
            case "data", "v1", "networks", network, "blockchains", blockchain, "utxos":
                return self._utxos(network, blockchain)
            case _:
                raise _Refusal(404, "Cannot GET /" + "/".join(place[1:]))

    def _chain(self, text: str) -> int:
        if not re.fullmatch("[0-9]{1,18}", text):
            raise _Refusal(400, "chainId must be a number string")
        chain = int(text)
        if chain not in self.settings.chains or str(chain) != text:
            raise _Refusal(404, f"chain {text} does not exist")
        return chain

    def _chains(self) -> Chains:
        return Chains(self.settings.chains, Draw(self.settings.seed, "chains"))

    def _blocks(self, chain: int) -> Blocks:
        settings = self.settings
        return Blocks(chain, settings.rows, settings.epoch, Draw(settings.seed, "blocks", chain))

    def _transactions(self, chain: int) -> Transactions:
        draw = Draw(self.settings.seed, "transactions", chain)
        return Transactions(self._blocks(chain), self.settings.rows, draw)

    def _points(self, chain: int) -> _Listing:
        settings = self.settings
        points = Points(settings.points, settings.epoch, Draw(settings.seed, "avg_tps", chain))

        def fields(added: int) -> Row:
            return {"status": 200, "lastRun": settings.epoch + added * DAY}

        return _Listing("results", points, page_size=settings.metrics_page_size, fixed=True, fields=fields)

    def _utxos(self, network: str, blockchain: str) -> _Listing:
        if network not in NETWORKS or blockchain not in BLOCKCHAINS:
            raise _Refusal(404, f"blockchain {blockchain} of network {network} does not exist")
        settings = self.settings
        draw = Draw(settings.seed, "utxos", network, blockchain)
        utxos = Utxos(network, blockchain, settings.rows, settings.epoch, draw)
        about: Row = {"chainInfo": {"chainName": blockchain, "network": network}}
        return _Listing("utxos", utxos, fields=lambda _: about)

    def _page(self, listing: _Listing, parameters: dict[str, str], now: float) -> Row:
        """Return a page of the list, and the token of the next one where there is one."""
        token = parameters.pop("pageToken", None)
        query = frozenset(parameters.items())
        size = listing.source.size
        added = listing.inserted + (self._grown(now) if listing.grows else 0)
        before = size + added if token is None else self._redeem(token, listing, query, now)
        start = max(before - _page_size(listing, parameters), 0)
        rows = msgspec.Raw(self._rows(listing.source, start, before))
        page: Row = {listing.name: rows, **listing.fields(added)}
        if start:
            page["nextPageToken"] = self._mint(_Token(listing, query, start, now))
        return page

    def _grown(self, now: float) -> int:
        if self.settings.grow_every is None or self._begun is None:
            return 0
        return max(int((now - self._begun) / self.settings.grow_every + TOLERANCE), 0)

    def _mint(self, token: _Token) -> str:
        name = str(UUID(bytes=self._draw_token(self.stats.tokens_minted)[:16], version=4))
        self.stats.tokens_minted += 1
        self._tokens[name] = token
        return name

    def _redeem(self, name: str, listing: _Listing, query: frozenset[tuple[str, str]], now: float) -> int:
        """Return the place that the token stands for; it may be redeemed again while it lives."""
        if not _UUID.fullmatch(name):
            raise _Refusal(400, "pageToken must be a UUID")
        token = self._tokens.get(name)
        if token is None or token.listing is not listing or token.query != query:
            raise _Refusal(400, "pageToken does not belong to this request")
        if now - token.minted >= self.settings.token_lifetime - TOLERANCE:
            self.stats.tokens_expired += 1
            raise _Refusal(self.settings.expired_status, "pageToken has expired")
        return token.before


_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _encode(source: RowSource, start: int, stop: int) -> bytes:
    return msgspec.json.encode(source.rows(start, stop))


def _page_size(listing: _Listing, parameters: Mapping[str, str]) -> int:
    text = parameters.get("pageSize")
    if text is None or listing.fixed:
        return listing.page_size or max(listing.source.size, 1)
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise _Refusal(400, "pageSize must be an integer number")
    if int(text) < 1:
        raise _Refusal(400, "pageSize must not be less than 1")
    if int(text) > MAX_PAGE_SIZE:
        raise _Refusal(400, f"pageSize must not be greater than {MAX_PAGE_SIZE}")
    return int(text)


def _respond(status: int, body: object, headers: Mapping[str, str]) -> Response:
    kind = {"content-type": "application/json; charset=utf-8"}
    return Response(status, {**kind, **headers}, msgspec.json.encode(body))


def _refuse(status: int, *messages: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"message": messages, "error": PHRASES.get(status, "Error"), "statusCode": status}
    return _respond(status, body, headers or {})


def _scripted(fault: Fault, status: int) -> Response:
    headers = {name.lower(): value for name, value in fault.headers.items()}
    if fault.body is None:
        return _refuse(status, "the fault that was asked for", headers=headers)
    return Response(status, {"content-type": "text/html", **headers}, fault.body)
