"""Service of the judge: every answer is a function of the seed, the URL and how often that URL came.

So requests of concurrent streams may come in any order. A list grows when its first page is requested again,
and with the depth of a page, which is in the token. Only the age of a token is a matter of time, of hours.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chainapi.errors import APIConnectionError, ConnectError
from chainapi.transport import Request, Response
from tests.judge.bodies import CHOICES, RECORDS, ROUTES, UNIONS, Maker, route_at

__all__ = ["LIFETIME", "TooManyRequestsError", "World"]

LIFETIME = 86_400.0  # seconds that a token opens a page
MOST_REQUESTS = 150  # of one program
BASE = 1_699_920_000  # number of the oldest row: 0:00 UTC of a day
TEMPLATES = 12  # rows of a kind that are made; others are copies under another name
LAST_VERSION = 40

Faults = Mapping[str, int]  # how often each comes, of 100 requests
CALM: Faults = {}
SMALL: Faults = {"500": 3, "503": 2, "429": 3, "429 bare": 2, "cut": 2, "reset": 3, "refused": 2}
LARGE: Faults = {**SMALL, "502": 4, "504": 4, "429 limit": 4, "html": 4, "stall": 2, "late 503": 4, "500": 8}
FAULTS = (CALM, CALM, SMALL, SMALL, LARGE)


class TooManyRequestsError(BaseException):
    """The program sends requests without end."""


class Manners:
    """Manners of one list, or of one resource.

    The kind is that of a world: "calm" without a fault; "timed" without a limit; "merged" without an error that
    ends all streams of a merge wherever they are; "grows" with new rows at each version; "" with all of them.
    """

    def __init__(self, seed: str, kind: str = "") -> None:
        draw = random.Random(seed)
        some = draw.choice
        self.rows = some((0, 1, 3, 5, 6, 8, 8, 10, 12, 18))
        self.page = some((1, 2, 2, 3, 3, 4, 4, 5, 7, 30))
        self.odd_pages = some((0, 0, 1))  # rows more on each second page
        self.growth = some((1, 2, 4)) if kind == "grows" else some((0, 0, 1, 2, 5))  # rows with each version
        self.drift = some((0, 0, 0, 1))  # versions with each page
        self.ties = some((1, 1, 1, 2, 3, 40))
        self.same = some((None, None, None, None, 2, "far"))  # which rows are equal
        self.order = some(("falling",) * 5 + ("swapped", "shuffled"))
        self.tokens = some(("anchored",) * 4 + ("position", "overlap"))
        self.ending = some(({}, {}, {"nextPageToken": None}, {"nextPageToken": ""}))
        self.late_end = some((False, False, True))
        self.empties = some((0,) * 6 + (1, 2))
        self.nulls = some((False, True))
        self.unknown = some((False, False, True))
        self.invalid = some((0,) * 8 + (1,))
        self.withdrawn = some((0, 0, 0, 1))
        self.changed = some((0, 0, 1))
        self.inserted = some((0, 0, 0, 0, 1))
        self.dead_status = some((400, 404, 410, 422))
        self.early = some((1, 1, 1, 0.5))  # share of the lifetime after which tokens die
        dies = ("none",) * 24 + ("all", "all", "one", "one", "shut", "born")
        self.dies = (
            some(dies),
            some((1, 1, 2, 3)),
            some((1, 1, 1, 2)),
        )  # which, at which depth, in how many passes
        self.loops = some((0,) * 38 + (1, 3))  # depth at which a token returns itself
        self.inclusive = some((True, False))  # whether the bounds of a range count as in it
        self.latency = some((0.1, 0.3))
        self.missing = some((0,) * 120 + (400, 403, 404, 501, 401)[: 4 if kind == "merged" else 5])
        self.faults = some(FAULTS)
        if kind == "calm":
            self.missing, self.faults = 0, CALM
        if kind == "timed":
            self.faults = {name: share for name, share in self.faults.items() if "429" not in name}


class World:
    """Transport to the service, with a record of what was sent."""

    def __init__(self, seed: str, kind: str = "") -> None:
        self.seed, self.kind = seed, kind
        self.sent: list[tuple[float, str]] = []
        self.counts: Counter[str] = Counter()
        self.minted: dict[str, float] = {}
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
        found = self._list(request.method, parts.path.removeprefix("/base"))
        draw = random.Random(f"{self.seed} {place} {self.counts[place]}")
        await asyncio.sleep(found.manners.latency * (1 + draw.randrange(3)))
        if fault := self._fault(found.manners.faults, draw, self.counts[place]):
            return await self._faulty(fault, draw, lambda: self._answer(found, query, place))
        return self._answer(found, query, place)

    async def aclose(self) -> None:
        """Close nothing."""

    def _list(self, method: str, path: str) -> _List:
        place = f"{method} {path}"
        if place not in self.lists:
            manners = Manners(f"{self.seed} {path}", self.kind)
            self.lists[place] = _List(route_at(method, path), f"{self.seed} {path}", manners)
        return self.lists[place]

    def _fault(self, faults: Faults, draw: random.Random, count: int) -> str:
        """Return the fault of an answer; a URL that came four times has none any more."""
        at = draw.randrange(100)
        for name, share in faults.items():
            at -= share
            if at < 0:
                return name if count < 4 else ""
        return ""

    async def _faulty(self, fault: str, draw: random.Random, answer: Any) -> Response:
        status, _, how = fault.partition(" ")
        wait = str(draw.choice((1, 2, 7, 30)))
        match status:
            case "reset":
                answer()
                raise APIConnectionError("connection reset")
            case "refused":
                raise ConnectError("connection refused")
            case "stall":
                await asyncio.sleep(1e6)
            case "html":
                return Response(200, {"content-type": "text/html"}, b"<html>sign in</html>")
            case "cut":
                whole: Response = answer()
                return Response(
                    whole.status,
                    whole.headers,
                    whole.body[: len(whole.body) // 2] if whole.status == 200 else b"",
                )
            case "late":
                return self._error(503, {"retry-after": wait})
            case "429" if how == "limit":
                return self._error(
                    429, {"ratelimit-limit": "9", "ratelimit-remaining": "0", "ratelimit-reset": wait}
                )
            case "429" if not how:
                return self._error(429, {"retry-after": wait})
        return self._error(int(status), {})

    def _error(self, status: int, headers: Mapping[str, str]) -> Response:
        texts = (["first", "second"], "only one", [], None)[status % 4]
        body = {"message": texts, "error": f"Error {status}", "statusCode": status}
        return Response(status, {**headers, "x-request-id": f"id-{status}"}, json.dumps(body).encode())

    def _answer(self, found: _List, query: Mapping[str, str], place: str) -> Response:
        """Return the answer to a request of a list, a resource or a write."""
        manners, route = found.manners, ROUTES.get(found.name, {})
        if manners.missing or not route:
            return self._error(manners.missing or 404, {})
        if "list" not in route:
            kind = route["one"]
            if kind is None:
                return Response(204)
            made = Maker(f"{found.seed} {self.counts[place]}").value(kind)
            return Response(200, {"x-request-id": "id-200"}, json.dumps(made).encode())
        token, now = query.get("pageToken"), asyncio.get_running_loop().time()
        base = json.dumps([found.seed, {**query, "pageToken": None}], sort_keys=True)
        if token is not None and self._dead(manners, token, base, now):
            return self._error(manners.dead_status, {})
        body, minted = found.page(token, query, self.counts[place])
        if minted is not None:
            self.minted[f"{base} {minted}"] = now
        return Response(200, {"x-request-id": "id-200"}, json.dumps(body).encode())

    def _dead(self, manners: Manners, token: str, base: str, now: float) -> bool:
        """Check whether a token opens no page, and note one that has just died."""
        walk, depth, *_, again = map(int, token.split("-"))
        if now - self.minted.get(f"{base} {token}", -1e9) >= manners.early * LIFETIME:
            return True
        kind, at, passes = manners.dies
        match kind:
            case "shut":
                return depth == at
            case "born":
                return True
            case "one":
                return depth == at and walk <= passes and again == 1
            case "all" if walk <= passes:
                died = f"died {base} {walk}"
                self.counts[died] |= depth == at
                return depth <= at and bool(self.counts[died])
        return False


class _Row:
    """Row of a list: from which version on it is there, how long, and where."""

    def __init__(self, serial: int, place: float, born: int) -> None:
        self.serial, self.place, self.born = serial, place, born
        self.died = LAST_VERSION + 1
        self.changed = LAST_VERSION + 1


class _List:
    """Rows of one list at each version, and its pages."""

    def __init__(self, name: str, seed: str, manners: Manners) -> None:
        self.name, self.seed, self.manners = name, seed, manners
        self.step = 1 if name and ROUTES[name].get("range", [""])[0] == "Block" else 86_400
        self._rows: list[_Row] | None = None

    def number(self, serial: int) -> int:
        """Return the number of a row, which several rows may share."""
        return BASE + serial // self.manners.ties * self.step

    def rows(self, version: int) -> list[_Row]:
        """Return the rows at a version, the newest first."""
        if self._rows is None:
            self._rows = self._made()
        found = [row for row in self._rows if row.born <= version < row.died]
        found.sort(key=lambda row: row.place, reverse=True)
        return found

    def _made(self) -> list[_Row]:
        manners, draw = self.manners, random.Random(f"{self.seed} rows")
        place = {"falling": lambda n: n, "swapped": lambda n: n ^ 1, "shuffled": lambda n: n * 7_919 % 101}
        rows = [_Row(serial, place[manners.order](serial), 0) for serial in range(manners.rows)]
        for version in range(2, LAST_VERSION if manners.growth else 0):
            for _ in range(1 + draw.randrange(manners.growth)):
                rows.append(_Row(len(rows), place[manners.order](len(rows)), version))
        for row in rows:
            if manners.withdrawn and draw.random() < 0.15:
                row.died = max(row.born + 1, draw.randrange(2, 6))
            if manners.changed and draw.random() < 0.3:
                row.changed = max(row.born + 1, draw.randrange(2, 6))
        if manners.inserted and rows:
            rows += [_Row(len(rows), draw.randrange(manners.rows + 1) - 0.5, draw.randrange(2, 5))]
        return rows

    def page(
        self, token: str | None, query: Mapping[str, str], count: int
    ) -> tuple[dict[str, Any], str | None]:
        """Return the body of a page, and the token in it."""
        manners = self.manners
        walk, depth, place, empties, _ = (count, 0, -1, 0, 0) if token is None else map(int, token.split("-"))
        version = min(self._first_version(query) + walk + depth * manners.drift, LAST_VERSION)
        rows = self._chosen(version, query)
        size = min(manners.page + manners.odd_pages * (depth % 2), int(query.get("pageSize", 10)))
        first = 0 if token is None else self._first(rows, place, query, size)
        shown = [] if empties else rows[first : first + size]
        more = first + len(shown) < len(rows) or bool(manners.late_end and len(shown) == size)
        following: str | None = None
        if manners.loops and token is not None and depth == manners.loops:
            following = token
        elif more:
            if shown:
                at = first + len(shown) if manners.tokens == "position" else shown[-1].serial
                empties = manners.empties
            else:
                at, empties = place, max(0, empties - 1)
            following = f"{walk}-{depth + 1}-{at}-{empties}-{count if token else 1}"
        return self._body(shown, version, following), following

    def _first_version(self, query: Mapping[str, str]) -> int:
        """Return the versions before the one that a query from a start on begins with.

        Who polls from the newest row on has seen the list at its version.
        """
        start = next((int(query[name]) for name in ("startBlock", "startTimestamp") if name in query), None)
        if start is None or not self.manners.growth:
            return 0
        self.rows(0)
        newer = [row.born for row in self._rows or () if self.number(row.serial) >= start]
        return max(0, min(newer, default=0) - 1)

    def _chosen(self, version: int, query: Mapping[str, str]) -> list[_Row]:
        """Return the rows of a query in its order."""
        rows, edge = self.rows(version), 0 if self.manners.inclusive else 1
        for name in ("Block", "Timestamp"):
            if (start := query.get(f"start{name}")) is not None:
                rows = [row for row in rows if self.number(row.serial) >= int(start) + edge]
            if (end := query.get(f"end{name}")) is not None:
                rows = [row for row in rows if self.number(row.serial) <= int(end) - edge]
        return rows[::-1] if query.get("sortOrder") == "asc" else rows

    def _first(self, rows: list[_Row], place: int, query: Mapping[str, str], size: int) -> int:
        """Return the index of the first row of the page that a token opens."""
        if self.manners.tokens == "position":
            return min(place, len(rows))
        at = next(row.place for row in self._rows or () if row.serial == place)
        sign = -1 if query.get("sortOrder") == "asc" else 1
        before = sum(sign * row.place >= sign * at for row in rows)
        return max(0, before - 1) if self.manners.tokens == "overlap" and size > 1 else before

    def _body(self, rows: list[_Row], version: int, token: str | None) -> dict[str, Any]:
        route, manners = ROUTES[self.name], self.manners
        body: dict[str, Any] = {route.get("items", "chains"): [self._shown(row, version) for row in rows]}
        if not rows and manners.nulls:
            body[route.get("items", "chains")] = None
        for name, kind in route.get("extra", {}).items():
            body[name] = json.loads(_template(kind, version % TEMPLATES))
        return {**body, **(manners.ending if token is None else {"nextPageToken": token})}

    def _shown(self, row: _Row, version: int) -> Any:
        """Return a row as a JSON value."""
        manners, route = self.manners, ROUTES[self.name]
        identity = row.serial
        if manners.same:
            identity = row.serial % 4 if manners.same == "far" else row.serial // 2
        shown = json.loads(_template(route["list"], identity % TEMPLATES))
        later = version >= row.changed
        if not isinstance(shown, dict):
            return f"row {identity}"
        for path in (
            *route.get("key", ()),
            *route.get("range", ("",))[1:],
            *route.get("descends", "").split(),
        ):
            _mark(shown, path, identity, self.number(row.serial))
        _mark(shown, _marked(route["list"], identity % TEMPLATES), f"{identity}.{int(later)}", None)
        if "value" in shown and "timestamp" in shown:
            shown["value"] = identity + later / 8
        if manners.unknown:
            shown["judged"] = {"row": identity, "later": later}
        if manners.invalid and row.serial % 6 == 3:
            shown[_first_required(route["list"], shown)] = [None]
        return shown


def _mark(shown: dict[str, Any], path: str, identity: object, number: int | None) -> None:
    """Write into a field of a row what distinguishes the row, or its number."""
    *names, last = path.split(".")
    inside: Any = shown
    for name in names:
        inside = inside.get(name)
        if not isinstance(inside, dict):
            return
    if last not in inside:
        return
    if number is not None and ("imestamp" in last or last == "blockNumber"):
        inside[last] = number
    elif str(inside[last]).isdecimal():
        inside[last] = type(inside[last])(identity)  # a number, perhaps as a text
    elif isinstance(inside[last], str):
        known = next((values for values in CHOICES.values() if inside[last] in values), None)
        inside[last] = known[int(identity) % len(known)] if known else f"{last}-{identity}"  # type: ignore[call-overload]


@lru_cache(maxsize=2_048)
def _template(kind: str, number: int) -> str:
    """Return a row of a kind as JSON."""
    return json.dumps(Maker(f"{kind} {number}", missing=0.7).value(kind))


@cache
def _marked(kind: str, number: int) -> str:
    """Return the last text field of the rows made from a template, which no key has."""
    row = json.loads(_template(kind, number))
    names = [name for name, value in row.items() if isinstance(value, str) and value.startswith(f"{name}-")]
    return names[-1] if names else ""


def _first_required(kind: str, row: Mapping[str, Any]) -> str:
    """Return a field of a row that may not be a list."""
    kinds = [of for _, _, of in UNIONS[kind]] if kind in UNIONS else [kind]
    names = [
        name for of in kinds for name, one in RECORDS[of].items() if one in ("int", "text", "time", "float")
    ]
    return next((name for name in names if name in row), "judged")
