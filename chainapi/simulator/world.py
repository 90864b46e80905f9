"""State of the simulated services.

Every answer follows from the requests and their times. The world has no clock, no event loop and no socket:
time is an argument, in seconds on any clock that only moves forward. One exchange is three calls:

1. `World.sent`, when the client sends the request;
2. `World.answer`, when the request arrives at the services;
3. `World.delivered`, when the answer arrives at the client (not called for an answer that never arrives).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from http import HTTPStatus
from random import Random
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from attrs import define
from msgspec import Struct
from msgspec.structs import replace

from chainapi._api.routes import units_of
from chainapi._http.message import Request, Response
from chainapi.simulator.anomalies import NO_ANOMALIES, Injector, with_malformed_row
from chainapi.simulator.faults import Broken, Fault, Schedule
from chainapi.simulator.handlers import serve
from chainapi.simulator.matching import Match, Segments, first_segment, match_path, route_has
from chainapi.simulator.pages import Listing, Pages
from chainapi.simulator.quota import Quota
from chainapi.simulator.rows import DAY, Row, View, encode
from chainapi.simulator.settings import Settings
from chainapi.simulator.state import Lookup, State, matched
from chainapi.simulator.traffic import Exchange, Stats
from chainapi.simulator.validation import (
    HTTPError,
    check_path,
    checked_body,
    checked_query,
    parameters_of,
    read_body,
)
from chainapi.simulator.writes import WRITES

__all__ = ["Answer", "Call", "World"]

KEPT = 1_000  # lists that are kept, the ones used last
PAGING = ("pageSize", "pageToken")  # parameters that choose a page, not rows

Service: TypeAlias = Literal["metrics", "data"]

SERVICES: Mapping[str, Service] = {"metrics": "metrics", "data": "data"}
# Phrases in error bodies of the services; Python 3.13 changed some of its own.
PHRASES = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Payload Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Entity",
}


class Answer(Struct, frozen=True):
    """Response with its delay in seconds, and its break of the connection or None."""

    response: Response
    broken: Broken | None = None
    slow: float = 0.0


@define(eq=False, repr=False)
class Call:
    """Request on its way.

    Attributes:
        request: the request.
        match: route of its path; None for no route.
        parameters: parameters of the query and of the body, empty ones included.
        key: its key, if that is valid.
        exchange: its entry in the log.

    """

    request: Request
    match: Match | None
    parameters: dict[str, str]
    key: str | None
    exchange: Exchange


class World:
    """State of both services.

    Worlds with equal settings give equal answers to equal requests and times.
    """

    def __init__(self, settings: Settings, log: list[Exchange] | None = None) -> None:
        self.settings = settings
        self.log = log
        self.stats: Stats = Stats()
        self.state: State = State(settings)
        self._kept_view = lru_cache(KEPT)(self._view)
        self._injector = lru_cache(KEPT)(self._make_injector)
        self._pages = Pages(settings, self.stats)
        self._schedule = Schedule(settings.seed)
        self._quotas: defaultdict[object, Quota] = defaultdict(Quota)

    def sent(self, request: Request, now: float) -> Call:
        """Return the call of a request; count one that is sent during a stop."""
        settings = self.settings
        address, _, query = request.url.partition("#")[0].partition("?")
        service, path, segments = _place(request.method, address)
        key = request.headers.get(settings.api_key_header) if service == "data" else None
        valid = key if key in (settings.api_key, *settings.other_keys) else None
        stopped = self._quotas[service, valid].sent(now, settings.block)
        self.stats.sent_while_stopped += stopped
        parameters = _parameters(query)
        if request.method != "GET":
            parameters |= parameters_of(request.body)
        match, token = match_path(segments) if service else None, parameters.get("pageToken", "")
        exchange = Exchange(
            number=len(self.log or ()) + 1,
            method=request.method,
            path=path,
            service=service,
            route=None if match is None else match.name,
            quota=self._quota_name(service, valid),
            page=self._pages.number(token),
            has_page_token=bool(token),
            sent=now,
            segments=segments,
            stopped=stopped,
        )
        if self.log is not None:
            self.log.append(exchange)
        return Call(request, match, parameters, valid, exchange)

    def answer(self, call: Call, now: float) -> Answer:
        """Return the answer to a request that arrives now."""
        self.state.begin(now)
        self.stats.requests += 1
        exchange = call.exchange
        segments = exchange.segments if exchange.service else None
        fault = self._schedule.fault(self.settings.faults, segments, exchange.page)
        answer = self._answer(call, now, fault)
        call.exchange.answer(None if answer.broken else answer.response, answer.broken)
        if answer.broken:
            self.stats.broken += 1
        else:
            self.stats.answered[answer.response.status] += 1
        return answer

    def delivered(self, call: Call, response: Response, now: float, grace: float = 0.0) -> None:
        """Record that an answer arrived; the client has read it `grace` seconds later."""
        call.exchange.answered = now
        wait = response.headers.get("retry-after", "")
        if response.status == 429 and wait.isdecimal():
            self._quotas[call.exchange.service, call.key].stop(now + grace, now + float(wait), now)

    def insert(self, path: str, count: int) -> None:
        """Add rows at the head of a list, see `Simulator.insert`."""
        self.state.insert(self._list_at(path), count)

    def rows_of(self, path: str, query: Mapping[str, str], now: float | None = None) -> list[Row]:
        """Return all rows of a list, see `Simulator.rows_of`.

        Lists that grow with time are as they are at `now`, by default the time of the latest request.
        """
        match = self._list_at(path)
        if now is not None:
            self.state.begin(now)
        try:
            return self._listing(match, query).rows()
        except HTTPError as error:
            raise ValueError(f"cannot read {path!r}: {'; '.join(error.messages)}") from None

    def _list_at(self, place: str) -> Match:
        """Return the route of a list at a path, with its method unless that is GET."""
        method, _, path = place.rpartition(" ")
        firsts = (first_segment(service, method or "GET") for service in SERVICES)
        found = filter(None, (match_path(_segments_of(first, path)) for first in firsts))
        try:
            match = next(match for match in found if not match.endpoint.single)
            check_path(match, self.settings.chains)
        except (HTTPError, StopIteration):
            raise ValueError(f"no list at {place!r}") from None
        return match

    # What becomes of a request

    def _answer(self, call: Call, now: float, fault: Fault | None) -> Answer:
        """Return the answer to a request that meets a fault, or none."""
        if fault is None:
            return Answer(self._serve(call, now))
        if fault.status is not None:
            return Answer(_scripted(fault, fault.status), slow=fault.slow)
        if fault.expire:
            self._pages.expire(call.parameters.get("pageToken", ""))
        response = self._serve(call, now)
        if fault.malformed and call.match is not None and response.status < 300 and response.body:
            response = self._spoiled(response, call.match)
        return Answer(response, fault.broken, fault.slow)

    def _spoiled(self, response: Response, match: Match) -> Response:
        """Return a response with one row that cannot be read."""
        items = None if match.endpoint.single else match.items
        random = Random(f"malformed {self.settings.seed} {self.stats.requests}")  # noqa: S311 - repeatable
        page = json.loads(response.body, parse_float=Decimal)
        return replace(response, body=encode(with_malformed_row(match, page, items, random)))

    def _serve(self, call: Call, now: float) -> Response:
        header = self.settings.api_key_header
        is_keyless = not self.settings.api_key_required and header not in call.request.headers
        if call.exchange.service == "data" and call.key is None and not is_keyless:
            return _refuse(401, f"a valid API key is required in the header {header}")
        headers, wait = self._meter(call, now)
        if wait is not None:
            return _refuse(429, "rate limit exceeded", headers=headers)
        try:
            status, body = self._find(call, now)
        except HTTPError as error:
            return _refuse(error.status, *error.messages, headers=headers)
        return _respond(status, body, headers) if body is not None else Response(status, headers)

    def _meter(self, call: Call, now: float) -> tuple[dict[str, str], int | None]:
        """Count a request against its quota; return limit headers and the wait.

        The wait is the seconds until a refused request may be sent again.
        """
        settings, public = self.settings, call.exchange.service == "metrics"
        minute, day = (settings.metrics_limit, settings.metrics_window), settings.metrics_day_limit
        if not public:
            minute, day = (settings.limit, settings.window), settings.day_limit
        limits = [(limit, window) for limit, window in (minute, (day, DAY)) if limit is not None]
        if not limits or call.exchange.service is None:
            return {}, None
        cost = _units(call.match) if settings.weighted else 1
        headers, wait = self._quotas[call.exchange.service, call.key].take(cost, limits, now)
        return ({} if public else headers), wait

    def _find(self, call: Call, now: float) -> tuple[int, Row | None]:
        """Return the status and the body of an answer; None for an answer without a body."""
        method, match = call.request.method, call.match
        if method != "GET" and match is None:
            raise HTTPError(405, f"{method} is not allowed here")
        if call.exchange.service is None:
            raise HTTPError(404, f"no service at {call.exchange.path}")
        if call.exchange.service == "data" and call.exchange.path in self.settings.forbidden:
            raise HTTPError(403, "the key lacks the privilege for this resource")
        if match is None:
            raise HTTPError(404, f"Cannot GET {'/'.join(['', *call.exchange.segments[1:]])}")
        if method == "GET":
            return 200, self._read(match, call.parameters, now)
        body = checked_body(match, read_body(call.request.body))
        if not match.endpoint.reads:
            check_path(match, self.settings.chains)
            return (201 if method == "POST" else 200), WRITES[match.name](Lookup(match, body, self.state))
        status = 201 if match.name == "data.aggregate_signatures" else 200  # as if it created something
        return status, self._read(match, call.parameters, now)

    def _read(self, match: Match, query: Mapping[str, str], now: float) -> Row:
        """Return the page of a list, or the resource; raise HTTPError."""
        if not match.endpoint.single:
            return self._pages.page(self._listing(match, query), query, now)
        row: Row = serve(Lookup(match, checked_query(match, query), self.state))
        return self._injector(match.segments).resource(row)

    def _listing(self, match: Match, query: Mapping[str, str]) -> Listing:
        # All pages of a list share a view, except for webhooks: writes change their lists.
        make = self._view if match.name.startswith("data.webhooks.") else self._kept_view
        chosen = frozenset((name, text) for name, text in query.items() if name not in PAGING)
        view = make(match.segments, chosen)
        return Listing(match, view, self.state.added(match), self._injector(match.segments))

    def _view(self, segments: Segments, query: frozenset[tuple[str, str]]) -> View:
        match = matched(*segments)
        view: View = serve(Lookup(match, checked_query(match, dict(query)), self.state))
        return view

    def _make_injector(self, segments: Segments) -> Injector:
        """Return the injector of the first anomalies whose route has the path."""
        settings = self.settings
        fitting = (one for one in settings.anomalies if one.route is None or route_has(one.route, segments))
        anomalies = next(fitting, NO_ANOMALIES)
        return Injector(anomalies, matched(*segments), settings.seed, settings.chains)

    def _quota_name(self, service: Service | None, key: str | None) -> str:
        """Return the name of a request's quota, which does not show the key."""
        if service is None:
            return "no service"
        if service == "data" and key is None and not self.settings.api_key_required:
            return "data, no key"
        others = self.settings.other_keys
        return f"{service}, key {others.index(key) + 2}" if key in others else service


def _parameters(query: str) -> dict[str, str]:
    """Return the parameters of a query, empty ones included."""
    if "%" in query or "+" in query:
        return dict(parse_qsl(query, keep_blank_values=True))
    return {name: value for name, _, value in (pair.partition("=") for pair in query.split("&") if pair)}


@lru_cache(maxsize=1_024)
def _place(method: str, address: str) -> tuple[Service | None, str, Segments]:
    """Return the service of an address, the path there and the segments of the path."""
    whole = urlsplit(address).path
    name, slash, rest = whole[1:].partition("/")
    service = SERVICES.get(name)
    path = slash + rest if service else whole
    return service, path, _segments_of(first_segment(service or "", method), path)


def _segments_of(first: str, path: str) -> Segments:
    segments = path.split("/")[1:]
    if "%" in path:  # one list has one key, however its path is escaped
        segments = [unquote(segment) for segment in segments]
    return (first, *segments)


def _units(match: Match | None) -> int:
    """Return the cost of a request in compute units, 1 for one without a known cost."""
    units = None if match is None else units_of(match.name, match.endpoint.record)
    return 1 if units is None else units


def _respond(status: int, body: object, headers: Mapping[str, str]) -> Response:
    kind = {"content-type": "application/json; charset=utf-8"}
    return Response(status, {**kind, **headers}, encode(body))


def _refuse(status: int, *messages: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"message": messages, "error": PHRASES.get(status, "Error"), "statusCode": status}
    return _respond(status, body, headers or {})


def _scripted(fault: Fault, status: int) -> Response:
    headers = {name.lower(): value for name, value in fault.headers.items()}
    if fault.body is None:
        return _refuse(status, *(fault.messages or ["the fault of the request"]), headers=headers)
    return Response(status, {"content-type": "text/html", **headers}, fault.body)
