"""Service of the judge: every answer is a function of the seed, the URL and how often that URL came.

So requests of concurrent streams may come in any order. A list grows when its first page is requested again,
and with the depth of a page, which is in the token. Only the age of a token is a matter of time, of hours.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chainapi.errors import APIConnectionError, ConnectError
from chainapi.transport import Request, Response
from tests.judge.bodies import CHOICES, RECORDS, ROUTES, UNIONS, Maker, route_at

__all__ = ["BASE", "LIFETIME", "TooManyRequestsError", "World"]

LIFETIME = 86_400.0  # seconds that a token opens a page
MOST_REQUESTS = 300  # of one program
BASE = 1_699_920_000  # number of the oldest row: 0:00 UTC of a day
TEMPLATES = 12  # rows of a kind that are made; the others are copies under other names
VERSIONS = 40  # of a list

Faults = Mapping[str, int]  # how many of 100 requests meet each
SMALL: Faults = {"500": 3, "503": 2, "429": 3, "429 bare": 2, "cut": 2, "reset": 3, "refused": 2, "stall": 2}
LARGE: Faults = {**SMALL, "502": 4, "504": 4, "429 limit": 4, "html": 4, "late": 4, "500": 8}


class TooManyRequestsError(BaseException):
    """The program sends requests without end."""


class Manners:
    """Manners of one list, or of one resource.

    The kind is that of a world: "calm" has no fault, "timed" no limit, "merged" no error that ends all
    streams of a merge wherever they stand; in one that "grows" each version has new rows.
    """

    def __init__(self, seed: str, kind: str) -> None:
        draw = random.Random(seed)
        some, grows = draw.choice, kind == "grows"
        self.rows = some((0, 1, 3, 5, 6, 8, 8, 10, 12, 18))
        self.page = some((3, 4, 5, 7, 30) if grows else (1, 2, 2, 3, 3, 4, 4, 5, 7, 30))
        self.odd_pages = some((0, 0, 1))  # rows more on each second page
        self.growth = some((1, 2, 4) if grows else (0, 0, 1, 2, 5))  # rows with each version
        self.drift = some((0, 0, 0, 1))  # versions with each page
        self.ties = some((1, 1, 1, 2, 3, 40))  # rows that share a number
        self.names = some((1,) * 4 + (2, 4))  # of how many rows two are equal: neighbors, or far apart
        self.order = some(("falling",) * 5 + ("swapped", "shuffled"))
        self.tokens = some(("anchored",) * 4 + ("position", "overlap"))
        self.ending = some(({}, {}, {"nextPageToken": None}, {"nextPageToken": ""}))
        self.late_end = some((False, False, True))  # whether a full last page has a token, to an empty one
        self.empties = some((0,) * 6 + (1, 2))  # empty pages after each page
        self.nulls = some((False, True))  # whether an empty list is null
        self.unknown = some((False, False, True))  # whether rows have a field that no record names
        self.invalid = some((False,) * 8 + (True,))
        self.withdrawn = some((0.0, 0.0, 0.0, 0.15))  # share of the rows that go
        self.changed = some((0.0, 0.0, 0.3))  # share of the rows that change
        self.inserted = some((False,) * 4 + (True,))  # whether a row comes between others
        self.dead_status = some((400, 404, 410, 422))
        self.early = some((1, 1, 1, 0.5))  # share of the lifetime after which tokens die
        # Which tokens die before, at which depth, and in how many passes.
        self.dying = some(("",) * 24 + ("all", "all", "one", "one", "shut", "born"))
        self.dying_at, self.passes = some((1, 1, 2, 3)), some((1, 1, 1, 2))
        self.loops = some((0,) * 38 + (1, 3))  # depth at which a token brings itself
        self.edge = some((0, 1))  # whether the bounds of a range are outside of it
        self.latency = some((0.1, 0.3))
        self.missing = some((0,) * 120 + (400, 403, 404, 501, 403 if kind == "merged" else 401))
        self.faults = some(({}, {}, SMALL, SMALL, LARGE))
        if kind == "calm":
            self.missing, self.faults = 0, {}
        if kind == "timed":
            self.faults = {name: share for name, share in self.faults.items() if "429" not in name}


def _place(order: str, serial: int) -> int:
    return {"falling": serial, "swapped": serial ^ 1, "shuffled": serial * 7_919 % 101}[order]


class World:
    """Transport to the service, with a record of what was sent."""

    def __init__(self, seed: str, kind: str = "") -> None:
        self.seed, self.kind = seed, kind
        self.sent: list[tuple[float, str]] = []  # times, and requests with the names of their secret headers
        self.counts: Counter[str] = Counter()
        self.minted: dict[str, float] = {}  # when each token was given last
        self.lists: dict[str, _List] = {}

    async def send(self, request: Request) -> Response:
        """Answer a request after a while."""
        loop = asyncio.get_running_loop()
        body = json.loads(request.body) if request.body else None
        key = [name for name in request.headers if name.endswith("api-key")]
        parts = urlsplit(request.url)
        url = parts._replace(query="&".join(sorted(parts.query.split("&")))).geturl()
        place = " ".join([request.method, url, *([json.dumps(body, sort_keys=True)] if body else [])])
        self.sent.append((loop.time(), " ".join([place, *key])))
        self.counts[place] += 1
        if len(self.sent) > MOST_REQUESTS:
            raise TooManyRequestsError
        query = {**(body if isinstance(body, dict) else {}), **dict(parse_qsl(parts.query))}
        found, count = self._list(request.method, parts.path.removeprefix("/base")), self.counts[place]
        draw = random.Random(f"{self.seed} {place} {count}")
        await asyncio.sleep(found.manners.latency * (1 + draw.randrange(3)))
        fault = _fault(found.manners.faults, draw.randrange(100)) if count < 4 else ""
        wait = str(draw.choice((1, 2, 7, 30)))
        return await self._faulty(fault, wait, lambda: self._answer(found, query, place))

    async def aclose(self) -> None:
        """Close nothing."""

    def _list(self, method: str, path: str) -> _List:
        place = f"{method} {path}"
        if place not in self.lists:
            seed = f"{self.seed} {path}"
            self.lists[place] = _List(route_at(method, path), seed, Manners(seed, self.kind))
        return self.lists[place]

    async def _faulty(self, fault: str, wait: str, answer: Callable[[], Response]) -> Response:
        """Return the answer, or what comes in its place."""
        limit = {"ratelimit-limit": "9", "ratelimit-remaining": "0", "ratelimit-reset": wait}
        match fault:
            case "refused":
                raise ConnectError("connection refused")
            case "reset":
                answer()
                raise APIConnectionError("connection reset")
            case "stall":
                await asyncio.sleep(1e6)
            case "html":
                return Response(200, {"content-type": "text/html"}, b"<html>sign in</html>")
            case "cut":
                whole = answer()
                left = len(whole.body) // 3 if whole.status == 200 else 0
                return Response(whole.status, whole.headers, whole.body[:left])
            case "429":
                return _error(429, {"retry-after": wait})
            case "429 limit":
                return _error(429, limit)
            case "429 bare":
                return _error(429)
            case "late":
                return _error(503, {"retry-after": wait})
        return _error(int(fault)) if fault.isdecimal() else answer()

    def _answer(self, found: _List, query: Mapping[str, str], place: str) -> Response:
        """Return the answer to a request of a list, a resource or a write."""
        manners, route, count = found.manners, ROUTES.get(found.name, {}), self.counts[place]
        gone = place.startswith("DELETE") and count > 1
        if manners.missing or gone or not route:
            return _error(manners.missing or 404)
        if "list" not in route:
            return (
                _response(Maker(f"{found.seed} {count}").value(route["one"]))
                if route["one"]
                else Response(204)
            )
        token, now = query.get("pageToken"), asyncio.get_running_loop().time()
        base = json.dumps([found.seed, {**query, "pageToken": None}], sort_keys=True)
        if token is not None and self._is_dead(manners, token, base, now):
            return _error(manners.dead_status)
        body = found.page(token, query, count)
        self.minted[f"{base} {body.get('nextPageToken')}"] = now
        return _response(body)

    def _is_dead(self, manners: Manners, token: str, base: str, now: float) -> bool:
        """Check whether a token opens no page, and note one that has just died."""
        walk, depth, *_, again = map(int, token.split("-"))
        if now - self.minted.get(f"{base} {token}", -1e9) >= manners.early * LIFETIME:
            return True
        at, early = manners.dying_at, walk <= manners.passes
        match manners.dying:
            case "all" if early:  # with it the ones before it
                self.counts[f"died {base} {walk}"] |= depth == at
                return depth <= at and bool(self.counts[f"died {base} {walk}"])
            case "one":  # the next token of that page lives
                return depth == at and early and again == 1
            case "shut":  # the page, whatever its token
                return depth == at
        return manners.dying == "born"


def _fault(faults: Faults, number: int) -> str:
    """Return the fault that a number below 100 stands for."""
    for name, share in faults.items():
        number -= share
        if number < 0:
            return name
    return ""


def _response(body: object) -> Response:
    return Response(200, {"x-request-id": "id-200"}, json.dumps(body).encode())


def _error(status: int, headers: Mapping[str, str] | None = None) -> Response:
    message = (["first", "second"], "only one", [], None)[status % 4]
    body = {"message": message, "error": f"Error {status}", "statusCode": status}
    return Response(status, {**(headers or {}), "x-request-id": f"id-{status}"}, json.dumps(body).encode())


class _Row:
    """Row of a list: its place, and the versions from which on it is there, has changed, and is gone."""

    def __init__(self, serial: int, place: float, born: int, manners: Manners, draw: random.Random) -> None:
        self.serial, self.place, self.born = serial, place, born
        self.number = serial // manners.ties
        self.changed = self._later(manners.changed, draw)
        self.died = self._later(manners.withdrawn, draw)

    def _later(self, share: float, draw: random.Random) -> int:
        return max(self.born + 1, draw.randrange(2, 6)) if draw.random() < share else VERSIONS + 1


class _List:
    """Rows of one list at each version, and its pages."""

    def __init__(self, name: str, seed: str, manners: Manners) -> None:
        self.name, self.route, self.seed, self.manners = name, ROUTES.get(name, {}), seed, manners
        self.step = 1 if self.route.get("range", [""])[0] == "Block" else 86_400
        self.all_rows = list(self._made()) if "list" in self.route else []

    def _made(self) -> Iterator[_Row]:
        manners, draw, serial = self.manners, random.Random(f"{self.seed} rows"), 0
        for version in range(1, VERSIONS if manners.growth else 2):
            for _ in range(manners.rows if version == 1 else 1 + draw.randrange(manners.growth)):
                yield _Row(serial, _place(manners.order, serial), version, manners, draw)
                serial += 1
        if manners.inserted:
            yield _Row(serial, draw.randrange(manners.rows + 1) - 0.5, draw.randrange(2, 5), manners, draw)

    def page(self, token: str | None, query: Mapping[str, str], count: int) -> dict[str, Any]:
        """Return the body of a page."""
        manners = self.manners
        walk, depth, place, empties, _ = map(int, token.split("-")) if token else (count, 0, -1, 0, 0)
        version = min(self._versions_before(query) + walk + depth * manners.drift, VERSIONS)
        rows = self._chosen(version, query)
        size = min(manners.page + manners.odd_pages * (depth % 2), int(query.get("pageSize", 10)))
        first = self._first(rows, place, query, size) if token else 0
        shown = [] if empties else rows[first : first + size]
        following = manners.ending
        if token and depth == manners.loops:
            following = {"nextPageToken": token}
        elif first + len(shown) < len(rows) or (manners.late_end and len(shown) == size):
            if shown:
                place = first + len(shown) if manners.tokens == "position" else shown[-1].serial
            empties = manners.empties if shown else max(0, empties - 1)
            following = {"nextPageToken": f"{walk}-{depth + 1}-{place}-{empties}-{count if token else 1}"}
        items = [self._shown(row, version) for row in shown]
        further = self.route.get("extra", {}).items()
        extra = {name: json.loads(_template(kind, version % TEMPLATES)) for name, kind in further}
        return {
            self.route.get("items", "chains"): items or (None if manners.nulls else []),
            **extra,
            **following,
        }

    def _versions_before(self, query: Mapping[str, str]) -> int:
        """Return the versions before the one that a query from a start on begins with.

        Who polls from the newest row on has seen the list at its version.
        """
        start = next((int(query[name]) for name in ("startBlock", "startTimestamp") if name in query), 0)
        newer = [row.born for row in self.all_rows if BASE + row.number * self.step >= start]
        return max(0, min(newer, default=0) - 1)

    def _chosen(self, version: int, query: Mapping[str, str]) -> list[_Row]:
        """Return the rows of a query in its order."""
        edge, least, most = self.manners.edge, 0, 2**63
        for name in ("Block", "Timestamp"):
            least = int(query.get(f"start{name}", least))
            most = int(query.get(f"end{name}", most))
        numbers = range(least + edge, most + 1 - edge)
        rows = [row for row in self.all_rows if row.born <= version < row.died]
        rows = [row for row in rows if BASE + row.number * self.step in numbers]
        return sorted(rows, key=lambda row: row.place, reverse=query.get("sortOrder") != "asc")

    def _first(self, rows: list[_Row], place: int, query: Mapping[str, str], size: int) -> int:
        """Return the index of the first row of the page that a token opens."""
        if self.manners.tokens == "position":
            return min(place, len(rows))
        at = next((row.place for row in self.all_rows if row.serial == place), 0)
        sign = -1 if query.get("sortOrder") == "asc" else 1
        before = sum(sign * row.place >= sign * at for row in rows)
        return max(0, before - 1) if self.manners.tokens == "overlap" and size > 1 else before

    def _shown(self, row: _Row, version: int) -> Any:
        """Return a row as a JSON value."""
        manners, route, kind = self.manners, self.route, self.route["list"]
        identity = {1: row.serial, 2: row.serial // 2, 4: row.serial % 4}[manners.names]
        later = version >= row.changed
        shown = json.loads(_template(kind, identity % TEMPLATES))
        if not isinstance(shown, dict):
            return f"row {identity}"
        numbers = [*route.get("range", ())[1:], *route.get("descends", "").split()]
        for path in (*route.get("key", ()), *numbers):
            _mark(shown, path, identity, BASE + row.number * self.step)
        texts = [name for name, value in shown.items() if str(value).startswith(f"{name}-")]
        if texts and texts[-1] not in route.get("key", ()):
            shown[texts[-1]] = f"{identity}.{later:d}"
        if "value" in shown and "timestamp" in shown:
            shown["value"] = identity + later / 8
        if manners.unknown:
            shown["judged"] = {"row": identity, "later": later}
        if manners.invalid and row.serial % 6 == 3:
            shown[_first_scalar(kind, shown)] = [None]
        return shown


def _mark(shown: dict[str, Any], path: str, identity: int, number: int) -> None:
    """Write into a field of a row what distinguishes the row, or its number."""
    *names, last = path.split(".")
    inside: Any = shown
    for name in names:
        inside = inside.get(name) or {}
    value = inside.get(last)
    if value is None:
        return
    if "imestamp" in last or last == "blockNumber":
        inside[last] = number
    elif str(value).isdecimal():
        inside[last] = type(value)(identity)  # a number, perhaps as a text
    elif isinstance(value, str):
        known = next((values for values in CHOICES.values() if value in values), None)
        inside[last] = known[identity % len(known)] if known else f"{last}-{identity}"


@lru_cache(maxsize=2_048)
def _template(kind: str, number: int) -> str:
    """Return a row of a kind as JSON."""
    return json.dumps(Maker(f"{kind} {number}", missing=0.7).value(kind))


def _first_scalar(kind: str, row: Mapping[str, Any]) -> str:
    """Return a field of a row that may not be a list."""
    kinds = [of for _, _, of in UNIONS[kind]] if kind in UNIONS else [kind]
    scalars = ("int", "text", "time", "float")
    names = [name for of in kinds for name, one in RECORDS[of].items() if one in scalars]
    return next((name for name in names if name in row), "judged")
