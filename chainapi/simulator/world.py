"""State of the simulated services.

Every answer follows from the requests and their times. The world has no clock, no event loop and no socket:
time is an argument, in seconds on any clock that only moves forward. One exchange is three calls:

1. `World.sent`, when the client sends the request;
2. `World.answer`, when the request arrives at the services;
3. `World.delivered`, when the answer arrives at the client (not called for an answer that never arrives).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from http import HTTPStatus
from random import Random
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from chainapi._http.message import Request, Response
from chainapi.simulator.account import Account
from chainapi.simulator.bodies import checked_body, parameters_of, read_body
from chainapi.simulator.calls import WebhookCall, calls_of
from chainapi.simulator.faults import Broken, Fault, Schedule
from chainapi.simulator.injection import with_malformed_row
from chainapi.simulator.lists import Listing
from chainapi.simulator.log import Exchange
from chainapi.simulator.matching import Segments, first_segment, match_path
from chainapi.simulator.pages import Pages
from chainapi.simulator.quota import TOLERANCE, Quota
from chainapi.simulator.router import Router
from chainapi.simulator.rows import Row, encode
from chainapi.simulator.settings import Settings
from chainapi.simulator.sources import DAY
from chainapi.simulator.stats import Stats, Tally
from chainapi.simulator.validation import HTTPError
from chainapi.simulator.writes import Write, created, write

__all__ = ["Answer", "World"]

Service = Literal["metrics", "data"]

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


class _Caller(Struct, frozen=True):
    """Caller and resource of a request.

    `key` is a valid key or None, `tallies` count the request.
    """

    service: Service | None
    path: str
    segments: Segments
    query: str
    key: str | None
    tallies: tuple[Tally, ...]

    @property
    def quota(self) -> tuple[Service | None, str | None]:
        return self.service, self.key


class World:
    """State of both services.

    Worlds with equal settings give equal answers to equal requests and times.
    """

    def __init__(self, settings: Settings, log: list[Exchange] | None = None) -> None:
        self.settings = settings
        self.log = log
        self.stats = Stats(keys={key: Tally() for key in (settings.api_key, *settings.other_keys)})
        self._now = 0.0
        self._account = Account(settings)
        self._router = Router(settings, self._added, self._account)
        self._pages = Pages(settings, self.stats, self._added)
        self._schedule = Schedule(settings.seed)
        self._quotas: defaultdict[object, Quota] = defaultdict(Quota)
        self._begun: float | None = None
        self._inserted: Counter[Segments] = Counter()

    def sent(self, request: Request, now: float) -> Exchange | None:
        """Count a request that the client sends although it has to wait for a retry-after.

        Returns its entry in the log; None without a log.
        """
        if self.log is None and not self._quotas:
            return None
        caller = self._identify(request)
        stopped = self._quotas[caller.quota].sent(now, self.settings.block)
        for tally in caller.tallies:
            tally.sent_while_stopped += stopped
        if self.log is None:
            return None
        self.log.append(self._exchange(request, caller, now, stopped, len(self.log) + 1))
        return self.log[-1]

    def _exchange(
        self, request: Request, caller: _Caller, now: float, stopped: bool, number: int
    ) -> Exchange:
        """Return the entry of a request in the log."""
        match = None if caller.service is None else match_path(caller.segments)
        parameters = _parameters(request, caller)
        return Exchange(
            number=number,
            method=request.method,
            path=caller.path,
            service=caller.service,
            route=None if match is None else match.name,
            quota=self._quota(caller),
            page=self._pages.number(parameters),
            has_page_token="pageToken" in parameters,
            sent=now,
            segments=caller.segments,
            stopped=stopped,
        )

    def answer(self, request: Request, now: float, exchange: Exchange | None = None) -> Answer:
        """Return the answer to a request that arrives now.

        `exchange` is its entry in the log.
        """
        if self._begun is None:
            self._begun = now
        self._now = now
        self._account.time = self.settings.epoch + int(now - self._begun)
        caller = self._identify(request)
        for tally in caller.tallies:
            tally.requests += 1
        fault = self._fault(request, caller) if self.settings.faults else None
        answer = self._answer(request, caller, now, fault)
        if exchange is not None:
            exchange.answer(None if answer.broken else answer.response, answer.broken)
        if answer.broken:
            self.stats.broken += 1
        else:
            for tally in caller.tallies:
                tally.answered[answer.response.status] += 1
        return answer

    def _answer(self, request: Request, caller: _Caller, now: float, fault: Fault | None) -> Answer:
        """Return the answer to a request that meets a fault, or none."""
        if fault is None:
            return Answer(self._serve(request, caller, now))
        if fault.status is not None:
            return Answer(_scripted(fault, fault.status), slow=fault.slow)
        if fault.expire:
            self._pages.expire(_parameters(request, caller))
        response = self._serve(request, caller, now)
        return Answer(
            self._spoiled(response, caller) if fault.malformed else response, fault.broken, fault.slow
        )

    def _spoiled(self, response: Response, caller: _Caller) -> Response:
        """Return a response with one row that cannot be read."""
        segments = None if caller.service is None else caller.segments
        match = None if segments is None else match_path(segments)
        if match is None or segments is None or response.status >= 300 or not response.body:
            return response
        found = None if match.endpoint.single else self._router.find(segments, {})
        items = found.name if isinstance(found, Listing) else None
        random = Random(f"malformed {self.settings.seed} {self.stats.requests}")  # noqa: S311 - repeatable
        page = json.loads(response.body, parse_float=Decimal)
        return replace(response, body=encode(with_malformed_row(match, page, items, random)))

    def delivered(
        self,
        request: Request,
        response: Response,
        now: float,
        grace: float = 0.0,
        exchange: Exchange | None = None,
    ) -> None:
        """Record that an answer arrived at the client.

        The client has read it `grace` seconds later; `exchange` is its entry in the log.
        """
        if exchange is not None:
            exchange.answered = now
        wait = response.headers.get("retry-after", "")
        if response.status == 429 and wait.isdecimal():
            self._quotas[self._identify(request).quota].stop(now + grace, now + float(wait), now)

    def insert(self, path: str, count: int) -> None:
        """Add `count` new rows at the head of the list at `path`.

        A path is written like ``/v1/chains/43114/blocks``. Raises ValueError for a path without a list that
        can grow.
        """
        listing = self._list_at(path)
        if not listing.grows or count < 0:
            raise ValueError(
                f"cannot insert {count} rows at {path!r}: give a list that grows, 0 rows or more"
            )
        self._inserted[listing.place] += count

    def rows_of(self, path: str, query: Mapping[str, str], now: float | None = None) -> list[Row]:
        """Return all rows that a query selects from the list at `path`, in page order.

        Rows that grow with time are those at `now`, by default the time of the latest request; anomalies are
        as in the latest pass over the list and the latest answer. Raises ValueError for a path without
        a list, and for a query that the route does not take.
        """
        found = self._list_at(path)
        self._now = self._now if now is None else now
        try:
            return self._pages.rows(found, query)
        except HTTPError as error:
            raise ValueError(f"cannot read {path!r}: {'; '.join(error.messages)}") from None

    def webhook_calls(
        self, webhook_id: str, *, events: int, doubled: float, late: float
    ) -> list[WebhookCall]:
        """Return calls of a webhook, others at each request; raise ValueError for one that gets none."""
        webhook = self._read(("data", "v1", "webhooks", webhook_id))
        secret = str(self._read(("data", "v1", "webhooks:getSharedSecret"))["secret"])
        random, time = Random(self._account.draw()), self._account.time or self.settings.epoch  # noqa: S311
        return calls_of(webhook, secret, random, time, events=events, doubled=doubled, late=late)

    def _list_at(self, place: str) -> Listing:
        """Return the list at a path, which follows the method unless that is GET."""
        method, _, path = place.rpartition(" ")
        services: list[Service] = ["data", "metrics"]
        if path.startswith(("/v1/avg_tps/", "/v2/")):
            services.reverse()
        for service in services:
            first = first_segment(service, method or "GET")
            try:
                found = self._router.find(_segments_of(first, path), {})
            except HTTPError:
                continue
            if isinstance(found, Listing):
                return found
            break
        raise ValueError(f"no list at {place!r}")

    def _fault(self, request: Request, caller: _Caller) -> Fault | None:
        """Return the fault that a request meets, None for no fault."""
        segments = None if caller.service is None else caller.segments
        page = self._pages.number(_parameters(request, caller))
        return self._schedule.fault(self.settings.faults, self.stats.requests, segments, page)

    def _quota(self, caller: _Caller) -> str:
        """Return the name of a request's quota, which does not show the key."""
        if caller.service is None:
            return "no service"
        keys = (self.settings.api_key, *self.settings.other_keys)
        if caller.service == "data" and caller.key is None and not self.settings.api_key_required:
            return "data, no key"
        others = caller.key is not None and caller.key != keys[0]
        return f"{caller.service}, key {keys.index(caller.key or '') + 1}" if others else caller.service

    def _identify(self, request: Request) -> _Caller:
        address, _, query = request.url.partition("#")[0].partition("?")
        service, path, segments = _place(request.method, address)
        key = request.headers.get(self.settings.api_key_header) if service == "data" else None
        tallies: list[Tally] = [self.stats]
        if service:
            tallies.append(self.stats.services[service])
        if key in self.stats.keys:
            tallies.append(self.stats.keys[key])
        else:
            key = None
        return _Caller(service, path, segments, query, key, tuple(tallies))

    def _serve(self, request: Request, caller: _Caller, now: float) -> Response:
        if caller.service == "data" and caller.key is None and not self._is_keyless(request):
            return _refuse(401, "a valid API key is required in the header " + self.settings.api_key_header)
        headers, wait = self._meter(caller, now)
        if wait is not None:
            return _refuse(429, "rate limit exceeded", headers=headers)
        try:
            status, body = self._find(request, caller, now)
        except HTTPError as error:
            return _refuse(error.status, *error.messages, headers=headers)
        return _respond(status, body, headers) if body is not None else Response(status, headers)

    def _is_keyless(self, request: Request) -> bool:
        """Return whether a request has no key, and needs none."""
        return not self.settings.api_key_required and self.settings.api_key_header not in request.headers

    def _meter(self, caller: _Caller, now: float) -> tuple[dict[str, str], int | None]:
        """Count a request against its quota; return limit headers and the wait.

        The wait is the seconds until a refused request may be sent again.
        """
        settings = self.settings
        public = caller.service == "metrics"
        pairs = (
            ((settings.metrics_limit, settings.metrics_window), (settings.metrics_day_limit, DAY))
            if public
            else ((settings.limit, settings.window), (settings.day_limit, DAY))
        )
        limits = [(limit, window) for limit, window in pairs if limit is not None]
        if not limits or caller.service is None:
            return {}, None
        cost = self._router.units(caller.segments) if settings.weighted else 1
        headers, wait = self._quotas[caller.quota].take(cost, limits, now)
        return ({} if public else headers), wait

    def _find(self, request: Request, caller: _Caller, now: float) -> tuple[int, Row | None]:
        """Return the status and the body of an answer; None for an answer without a body."""
        match = None if request.method == "GET" or caller.service is None else match_path(caller.segments)
        if request.method != "GET" and match is None:
            raise HTTPError(405, f"{request.method} is not allowed here")
        if caller.service is None:
            raise HTTPError(404, f"no service at {caller.path}")
        if caller.service == "data" and caller.path in self.settings.forbidden:
            raise HTTPError(403, "the key lacks the privilege for this resource")
        parameters = _fields(caller.query)
        status = 200
        if match is not None:
            body = checked_body(match, read_body(request.body))
            status = 201 if created(match.name, request.method) else 200
            if not match.endpoint.reads:
                return status, write(Write(match, body, self._account, self._read))
            parameters |= parameters_of(request.body)
        found = self._router.find(caller.segments, parameters)
        return status, self._pages.page(found, parameters, now) if isinstance(found, Listing) else found

    def _read(self, segments: Segments) -> Row:
        """Return the resource at a path."""
        found = self._router.find(segments, {})
        return {} if isinstance(found, Listing) else found

    def _added(self, segments: Segments) -> int:
        """Return how many rows were added to the list at a path since the beginning."""
        inserted, every = self._inserted[segments], self.settings.grow_every
        if every is None or self._begun is None:
            return inserted
        return inserted + max(int((self._now - self._begun) / every + TOLERANCE), 0)


def _parameters(request: Request, caller: _Caller) -> dict[str, str]:
    """Return the parameters of a request, those in its body included."""
    found = {name: value for name, value in _fields(caller.query).items() if value}
    return found | parameters_of(request.body) if request.body else found


def _fields(query: str) -> dict[str, str]:
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
