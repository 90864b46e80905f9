"""List service as nasty as the specification allows.

Smaller than the simulator, and meaner: it inserts, deletes, moves and changes rows while they are read,
forgets tokens, shuts pages, repeats pages and rows, and fails. It also checks its client: a token that has
reached its lifetime, one that it never gave out or that belongs to another query, and too many requests are
each an `AssertionError`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Literal

import msgspec
from attrs import define, evolve, field, frozen

__all__ = ["LIFETIME", "SHUT", "Fault", "Label", "Manners", "Row", "Service"]

LIFETIME = 86_400.0  # seconds
MOST_REQUESTS = 1_500  # of one example; a walk that needs more runs in circles
SHUT = "under maintenance until 17:00"  # the message for a page that is refused with any token

Kind = Literal["points", "plain", "keyed", "ordered", "both", "bykey"]
Tokens = Literal["anchored", "position", "overlap", "scroll"]
Label = tuple[int, int]  # name and version: all that a client can see of a row


@frozen(kw_only=True)
class Manners:
    """Manners of the service as long as an example lasts.

    Attributes:
        kind: what is declared of the list: points with their time as key and as descending number ("points"),
            nothing ("plain"), a key ("keyed"), a descending number ("ordered"), a key and a number ("both"),
            or a descending number that is the key ("bykey").
        until: whether the query has an upper bound of that number.
        names: which rows are equal: none ("own"), neighbors ("pairs", "threes"), rows far apart ("far"), all
            ("one").
        ties: how many names share a number.
        clash: how many names share a key, where the key is not the number.
        order: of the numbers, independent of the declaration.
        tokens: a token stands for the place below a row ("anchored"), for that row itself, which comes again
            ("overlap"), for a number of rows ("position"), or, always the same one, for all that was not
            given yet ("scroll").
        page_size: rows a page; "overlap" needs two.
        latency: seconds from sending to the last byte.
        ending: what stands for the token on the last page.
        late_end: whether a full last page has a token, to an empty page.
        empties: how many empty pages follow each page that has a token.
        nulls: whether an empty list is null.
        cycle: after this number of pages the token is an earlier one, with the number of its page.
        repeat: in place of an end, a fresh token to the last page, or to the first page of all.
        dead_status: the answer to a dead token.
        stillborn: whether no token ever opens a page.
        small: whether the limits of the client are scaled down, so that short lists reach them.

    """

    kind: Kind = "points"
    until: bool = False
    names: Literal["own", "pairs", "threes", "far", "one"] = "own"
    ties: int = 1
    clash: int = 1
    order: Literal["descending", "swapped", "shuffled", "ascending"] = "descending"
    tokens: Tokens = "anchored"
    page_size: int = 3
    latency: float = 0.0
    ending: Literal["absent", "null", "empty"] = "absent"
    late_end: bool = False
    empties: int = 0
    nulls: bool = False
    cycle: tuple[int, int] | None = None
    repeat: Literal["last", "all"] | None = None
    dead_status: int = 400
    stillborn: bool = False
    small: bool = False

    @property
    def ordered(self) -> bool:
        """Return whether a descending number is declared."""
        return self.kind not in ("plain", "keyed")

    @property
    def keyed(self) -> bool:
        """Return whether a key is declared."""
        return self.kind not in ("plain", "ordered")

    @property
    def numbered(self) -> bool:
        """Return whether that key is the number."""
        return self.kind in ("points", "bykey")

    @property
    def shifts(self) -> bool:
        """Return whether a page may repeat rows of the pages before it."""
        return self.tokens in ("position", "overlap")

    @property
    def circles(self) -> bool:
        """Return whether the service serves its pages again."""
        return self.cycle is not None or self.repeat is not None

    def name(self, serial: int) -> int:
        """Return the name of the row that was made as the `serial`-th."""
        match self.names:
            case "own":
                return serial
            case "pairs":
                return (serial + 1) // 2
            case "threes":
                return (serial + 2) // 3
            case "far":
                return serial % 4 + 1
            case "one":
                return 1

    def place(self, serial: int) -> float:
        """Return the sort key of the list, in descending order."""
        match self.order:
            case "descending":
                return serial
            case "swapped":
                return serial ^ 1
            case "shuffled":
                return serial * 7_919 % 10_007
            case "ascending":
                return -serial


@frozen
class Fault:
    """Fault of one request: a status, or a break after the service has done its work."""

    status: int | None = None
    retry_after: float | None = None
    broken: Literal["cut", "garbled", "stall"] | None = None


@frozen
class Token:
    """Record of a token that the service returned."""

    requested: float  # when the request that it answers was sent; times are of the loop
    given: float
    bound: int | None
    place: float  # of a row, or a number of rows
    empties: int
    trail: tuple[str, ...]  # the tokens that led to it, itself included


@frozen
class Row:
    """Row: `serial` and `place` are the service's own, clients see the rest."""

    serial: int
    place: float
    name: int
    number: int
    key: int
    version: int = 0

    @property
    def label(self) -> Label:
        """Return all that distinguishes the row."""
        return self.name, self.version


@define
class Service:
    """Service of one list, its tokens and its faults.

    Pure: times are arguments, in seconds.
    """

    manners: Manners
    rows: list[Row] = field(factory=list[Row])
    tokens: dict[str, Token] = field(factory=dict[str, Token])
    faults: deque[Fault] = field(factory=deque[Fault])
    pages: dict[int, list[Label]] = field(factory=dict[int, list[Label]])  # the rows of each by its serial
    held: Counter[Label] = field(factory=Counter[Label])  # how many rows ever had this name and version
    named: Counter[int] = field(factory=Counter[int])  # how many rows ever had this name
    keys: dict[int, set[int]] = field(factory=dict[int, set[int]])  # of each name
    shared: Counter[int] = field(factory=Counter[int])  # how many rows ever had this key
    numbers: Counter[int] = field(factory=Counter[int])  # how many rows ever had this number
    late: set[int] = field(factory=set[int])  # serials of rows that came between others
    next_serial: int = 1
    requests: int = 0
    refused: int = 0  # requests with a token that was dead, or to a page that was shut
    shut: tuple[float, int] | None = None  # place and empties of the tokens that are refused
    wall_went_back: bool = False  # the client may take a token of a checkpoint for younger than it is
    changed: bool = False  # rows changed, moved, went, or came between others
    deleted: bool = False
    altered: bool = False  # rows came, went or changed after the first request
    forgot: bool = False  # a token died early, and older ones with it
    forgot_newest: bool = False
    disordered: bool = False  # a number rose, at some time
    scrolled: float | None = None
    oldest: float | None = None  # when the request was sent that brought the first token

    def insert(self, count: int) -> None:
        """Add rows: at the head, or anywhere that their order puts them."""
        manners = self.manners
        for _ in range(count):
            name = manners.name(self.next_serial)
            self._add(manners.place(self.next_serial), name, 1 + name // manners.ties)

    def _add(self, place: float, name: int, number: int, version: int = 0, *, late: bool = False) -> None:
        manners, serial = self.manners, self.next_serial
        self.next_serial += 1
        key = number if manners.numbered else 1 + name // manners.clash
        self.altered |= self.requests > 0
        if late:
            self.late.add(serial)
        self.rows.append(Row(serial, place, name, number, key, version))
        self.rows.sort(key=lambda row: row.place, reverse=True)
        self.held[name, version] += 1
        self.named[name] += 1
        self.keys.setdefault(name, set()).add(key)
        self.shared[key] += 1
        self.numbers[number] += 1
        self.disordered |= any(above.number < below.number for above, below in pairwise(self.rows))

    def copy(self, index: int) -> None:
        """Add a row equal to the one at `index`, counted round, right below it."""
        if self.rows:
            row = self.rows[index % len(self.rows)]
            self._add_below(row, row.name, row.number, row.version)

    def mislay(self, index: int) -> None:
        """Add a row below the row at `index`, with the number of a new one.

        `index` is counted round.
        """
        if self.rows:
            name = self.manners.name(self.next_serial)
            self._add_below(self.rows[index % len(self.rows)], name, 1 + name // self.manners.ties)

    def _add_below(self, row: Row, name: int, number: int, version: int = 0) -> None:
        at = self.rows.index(row)
        below = self.rows[at + 1].place if at + 1 < len(self.rows) else row.place - 1
        self.changed = self.altered = True
        self._add((row.place + below) / 2, name, number, version, late=True)

    def change(self, index: int) -> None:
        """Change the row at `index`, but nothing that identifies it.

        `index` is counted round.
        """
        if not self.rows:
            return
        at = index % len(self.rows)
        row = self.rows[at] = evolve(self.rows[at], version=(self.rows[at].version + 1) % 8)
        self.held[row.label] += 1
        self.changed = self.altered = True

    def move(self, index: int) -> None:
        """Move the row at `index` to the place, and number, of a new one.

        `index` is counted round.
        """
        if not self.rows:
            return
        manners, serial = self.manners, self.next_serial
        row, place = self.rows[index % len(self.rows)], manners.place(serial)
        if manners.tokens == "position" and place < row.place:  # a row that goes would hide another one
            return
        self.rows.remove(row)
        self.changed = self.altered = self.deleted = True
        number = 1 + manners.name(serial) // manners.ties if manners.ordered else row.number
        self._add(place, row.name, number, row.version)

    def delete(self, index: int) -> int | None:
        """Delete the row at `index`, counted round.

        Counted positions would lose others by it.
        """
        if not self.rows or self.manners.tokens == "position":
            return None
        self.changed = self.altered = self.deleted = True
        return self.rows.pop(index % len(self.rows)).serial

    def forget(self, newest: int | None = None) -> None:
        """Let all tokens die early, or some of the newest."""
        names = list(self.tokens)
        self.forgot |= newest != 1 or self.shut is not None
        self.forgot_newest = True
        for name in names if newest is None else names[-newest:]:
            self.tokens[name] = evolve(self.tokens[name], given=-LIFETIME)

    def shut_page(self, name: str | None) -> None:
        """Refuse the page that a token opens, whichever its token; None ends that."""
        token = self.tokens.get(name or "")
        self.shut = None if token is None else (token.place, token.empties)
        self.forgot |= self.forgot_newest  # the page before one that is shut may be requested again

    def sent(self, query: dict[str, str], now: float) -> None:
        """Check a request as it leaves the client."""
        self.requests += 1
        assert self.requests <= MOST_REQUESTS, "the client sends requests without end"
        name = query.get("pageToken")
        if name is None:
            return
        assert name in self.tokens, "a token was sent that was never given out"
        token = self.tokens[name]
        assert token.bound == _bound(query), "a token of another query was sent"
        age = now - token.requested
        assert age < LIFETIME or self.wall_went_back, f"a token was sent that is {age} s old"

    def answer(self, query: dict[str, str], requested: float, now: float) -> tuple[int, bytes]:
        """Return status and body."""
        name = query.get("pageToken")
        token = None if name is None else self.tokens[name]
        if token is not None:
            shut = self.shut == (token.place, token.empties)
            if shut or now - token.given >= LIFETIME or self.manners.stillborn:
                return self._refusal(SHUT if shut else "no such page")
        return 200, msgspec.json.encode(self._page(token, _bound(query), requested, now))

    def _refusal(self, message: str) -> tuple[int, bytes]:
        self.refused += 1
        status = self.manners.dead_status
        return status, msgspec.json.encode({"message": [message], "error": "x", "statusCode": status})

    def _page(
        self, token: Token | None, bound: int | None, requested: float, now: float
    ) -> dict[str, object]:
        manners = self.manners
        rows = [row for row in self.rows if bound is None or row.number <= bound]
        first = 0 if token is None else self._first(rows, token)
        empty = token is not None and token.empties > 0
        page = [] if empty else rows[first : first + manners.page_size]
        serial = self.requests
        self.pages[serial] = [row.label for row in page]
        shown = [self._shown(row) for row in page] or (None if manners.nulls else [])
        field_name = "results" if manners.kind == "points" else "rows"
        body: dict[str, object] = {field_name: shown, "status": 200, "lastRun": serial}
        more = first + len(page) < len(rows) or (
            manners.late_end and len(page) == manners.page_size and not manners.shifts
        )
        if more:
            body["nextPageToken"] = self._next(token, page, bound, first, requested, now)
        elif manners.repeat is not None:
            body["nextPageToken"] = self._repeated(token, bound, requested, now)
        elif manners.ending != "absent":
            body["nextPageToken"] = None if manners.ending == "null" else ""
        return body

    def _first(self, rows: Sequence[Row], token: Token) -> int:
        """Return the index of the first row of a token's page."""
        manners = self.manners
        if manners.tokens == "position":
            return min(int(token.place), len(rows))
        place = token.place if manners.tokens != "scroll" or self.scrolled is None else self.scrolled
        if manners.tokens == "overlap":
            return sum(row.place > place for row in rows)
        return sum(row.place >= place for row in rows)

    def _next(
        self,
        token: Token | None,
        page: list[Row],
        bound: int | None,
        first: int,
        requested: float,
        now: float,
    ) -> str:
        """Return the token to the page after `page`."""
        manners = self.manners
        trail = () if token is None else token.trail
        if manners.cycle is not None and len(trail) == manners.cycle[0]:
            name = trail[manners.cycle[1] % len(trail)]
            self.tokens[name] = evolve(self.tokens[name], requested=requested, given=now)
            return name
        if page:
            place = first + len(page) if manners.tokens == "position" else page[-1].place
            empties = manners.empties
        else:
            assert token is not None
            place, empties = token.place, max(0, token.empties - 1)
        return self._give_out(Token(requested, now, bound, place, empties, trail))

    def _repeated(self, token: Token | None, bound: int | None, requested: float, now: float) -> str:
        """Return, in place of the end, a token to the last page, or to the first one."""
        start = 0 if self.manners.tokens == "position" else inf
        if token is None or self.manners.repeat == "all":
            return self._give_out(Token(requested, now, bound, start, 0, ()))
        return self._give_out(evolve(token, requested=requested, given=now))

    def _give_out(self, token: Token) -> str:
        self.oldest = token.requested if self.oldest is None else self.oldest
        name = "scroll" if self.manners.tokens == "scroll" else f"token-{len(self.tokens)}"
        self.scrolled = token.place
        self.tokens[name] = evolve(token, trail=(*token.trail, name))
        return name

    def _shown(self, row: Row) -> dict[str, object]:
        value = row.name + row.version / 8
        if self.manners.kind == "points":
            return {"timestamp": row.number, "value": value}
        return {"key": f"key {row.key}", "timestamp": row.number, "value": value}


def _bound(query: dict[str, str]) -> int | None:
    return int(query["end"]) if "end" in query else None
