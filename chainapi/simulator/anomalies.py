"""Anomalies of lists and resources: their settings, and their effects on rows.

The anomalies of a row follow from its number and the seed alone, so that it is the same row on pages of any
size. Only the fields that change from pass to pass, or from answer to answer, follow from a version, too.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache, lru_cache
from random import Random
from typing import Any, Literal, get_args

from attrs import Attribute, define, evolve, field, frozen
from attrs.validators import ge, in_, le

from chainapi.models.schema import Field, fields_of, type_of
from chainapi.simulator.matching import Match, check_route
from chainapi.simulator.rows import Draw, Row, Rows, View

__all__ = ["NO_ANOMALIES", "Anomalies", "Injector", "with_malformed_row"]

Order = Literal["descending", "swapped", "shuffled", "ascending"]
Paging = Literal["cursor", "offset"]
Changing = Literal["never", "pass", "answer"]
_SHARE = [ge(0.0), le(1.0)]

# Rows change places within runs, so that a page of a list of any length needs the order of its own run only.
RUN = 10_000
SWAPPED = 0.25  # the chance that a row changes places with the next one, unless it has done so already

# Fields that a list descends by.
DESCENDING = re.compile(".*[tT]imestamp|.*[hH]eight|.*[bB]lockNumber|createBlockIndex|createdAt|sortKey")
# Fields that change although the row stays the same row.
PRICES = frozenset({"price", "currentPrice", "balanceValue"})
LOGOS = frozenset({"logoUri", "chainLogoUri"})
PERCENTAGES = frozenset({"progress", "uptimePerformance"})
INDEX_STATUSES = ("UNINDEXED", "THROTTLED_TOKEN_URI", "INDEXED")
# Fields that no document names. The first two have more digits than a binary float.
NEW_FIELDS: Mapping[str, object] = {
    "newDecimal": Decimal("0.1234567890123456789"),
    "newLongDecimal": Decimal("12345678901234567890.5"),
    "newNumber": 2**70,
    "newText": "simulated",
    "newList": [1, "two", None],
    "newObject": {"newText": "inside", "newNull": None},
    "newNull": None,
}


def _last_or_count(_: object, attribute: Attribute[Any], value: Any) -> None:
    if value not in (None, "last") and not (isinstance(value, int) and value >= 1):
        raise ValueError(f'{attribute.name} must be "last" or a number of pages, at least 1, not {value!r}')


@frozen(kw_only=True)
class Anomalies:
    """Anomalies of lists, which follow from the seed.

    A share is a number from 0 to 1, of all rows. A pass is a walk over a list from its first page on; the
    first pass over a list is without `moved` and `changing`.

    Attributes:
        route: route of the lists, as a name, a pattern of names such as ``data.evm.*``, or a path in which
            ``{...}`` and ``*`` match any one segment; None for every list.
        ties: number of different rows that share one block number, time or height.
        equal: number of neighboring rows that are the same row, byte for byte.
        replays: number of chains that have a transaction of one hash, in lists over all chains.
        order: of the rows: newest first; with some neighbors swapped; shuffled, in runs of 10,000 rows
            and the ones added later; or oldest first.
        moved: share of rows that stand elsewhere in each pass but the first.
        changing: when prices, logos, index statuses, progress and uptimes change: from pass to pass, or from
            answer to answer. A row without any of these has a number of confirmations that changes.
        malformed: share of rows that cannot be read: a field has the wrong type, is null, or is missing.
        unknown_fields: share of rows with fields that no document names; each page has one, too.
        unknown_values: share of rows in which a field with listed values has another value.
        paging: meaning of a page token: the position after a row, or a count of rows, so that the next page
            repeats rows after the list has grown at its head.
        repeat_pages: pages that are repeated for ever under new tokens: the last one, or the pages up to this
            number.

    """

    route: str | None = field(default=None, validator=check_route)
    ties: int = field(default=1, validator=ge(1))
    equal: int = field(default=1, validator=ge(1))
    replays: int = field(default=1, validator=ge(1))
    order: Order = field(default="descending", validator=in_(get_args(Order)))
    moved: float = field(default=0.0, validator=_SHARE)
    changing: Changing = field(default="never", validator=in_(get_args(Changing)))
    malformed: float = field(default=0.0, validator=_SHARE)
    unknown_fields: float = field(default=0.0, validator=_SHARE)
    unknown_values: float = field(default=0.0, validator=_SHARE)
    paging: Paging = field(default="cursor", validator=in_(get_args(Paging)))
    repeat_pages: int | Literal["last"] | None = field(default=None, validator=_last_or_count)


NO_ANOMALIES = Anomalies()


@define(eq=False)
class Injector:
    """Injects the anomalies of one list, or of one resource.

    Attributes:
        anomalies: the anomalies.
        match: route and path of the list or the resource.
        seed: all random choices follow from it.
        chains: the chain ids that exist.
        passes: number of passes over the list that have begun.
        answers: number of answers that were given.

    """

    anomalies: Anomalies
    match: Match
    seed: int
    chains: tuple[int, ...]
    passes: int = 0
    answers: int = 0
    _draw: Draw = field(init=False)
    _place: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._place = repr((self.seed, self.match.segments))
        self._draw = Draw(self.seed, "anomalies", *self.match.segments)

    def begin(self) -> int:
        """Begin a pass over the list, and return its number."""
        self.passes += 1
        return self.passes - 1

    def next_view(self, view: View, walk: int) -> View:
        """Return a part of the list with the anomalies of a pass and the next answer."""
        self.answers += 1
        return self._view(view, walk, self.answers - 1)

    def latest(self, view: View) -> View:
        """Return a part of the list with the anomalies of the latest pass and answer."""
        return self._view(view, max(self.passes - 1, 0), max(self.answers - 1, 0))

    def _view(self, view: View, walk: int, answer: int) -> View:
        if (anomalies := self.anomalies) is NO_ANOMALIES:
            return view
        span = anomalies.ties * anomalies.equal
        low, high = -(-view.low // span) * span, None if view.high is None else -(-view.high // span) * span
        version, rows = self._version(walk, answer), view.source
        source = AnomalousRows(rows.size, rows, self, walk, version, low, math.inf if high is None else high)
        ascending = view.ascending != (anomalies.order == "ascending")
        return evolve(view, source=source, low=low, high=high, ascending=ascending)

    def resource(self, resource: Row) -> Row:
        """Return a single resource with its anomalies; each answer is a pass of its own."""
        self.answers += 1
        row: Row = self.inject(resource, 0, self._version(self.answers - 1, self.answers - 1))
        return row

    def number(self, position: int, size: int, walk: int, low: int, high: float) -> int:
        """Return the number of the row at a position in a pass.

        The oldest row comes first. The list has `size` rows at the beginning; those that are added later
        stand at the head, newest first. A query selects the rows `low` to `high - 1`.
        """
        order, moved = self.anomalies.order, self.anomalies.moved if walk else 0.0
        if position >= size or (order in ("descending", "ascending") and not moved):
            return position
        first = position - position % RUN
        run = _run(self._place, order, moved, walk if moved else 0, first, min(first + RUN, size), low, high)
        return run[position - max(first, low)]

    def replay(self, row: Any, number: int, source: Rows) -> None:
        """Give a transaction the hash of one on another chain, in a list over all chains."""
        replays, each = min(self.anomalies.replays, len(self.chains)), self.anomalies.equal
        of_one_chain = any(str(chain) in self.match.segments for chain in self.chains)
        if of_one_chain or not isinstance(row, dict) or not {"chainId", "txHash"} <= row.keys():
            return
        first = number - number % (replays * each)
        row["txHash"] = source.row(first)["txHash"]
        row["chainId"] = str(self.chains[number // each % replays])

    def inject(self, row: Any, number: int, version: int | None) -> Any:
        """Return row `number` with its anomalies in a version.

        None means the only version.
        """
        anomalies = self.anomalies
        if version is not None and isinstance(row, dict) and not _change(row, version):
            row["confirmations"] = version
        if random := self._hit("malformed", anomalies.malformed, number):
            row = _malformed(self.match, row, random)
        elif random := self._hit("unknown values", anomalies.unknown_values, number):
            _set_unknown_value(row, random)
        if random := self._hit("unknown fields", anomalies.unknown_fields, number):
            _add_fields(row, random)
        return row

    def _version(self, walk: int, answer: int) -> int | None:
        return {"never": None, "pass": walk, "answer": answer}[self.anomalies.changing]

    def _hit(self, anomaly: str, share: float, number: int) -> Random | None:
        """Return a random generator if an anomaly hits row `number`.

        The choice is independent of other anomalies.
        """
        if not share:
            return None
        random = Random(self._draw(number) + anomaly.encode())  # noqa: S311 - repeatable, not secret
        return random if random.random() < share else None


@frozen
class AnomalousRows(Rows):
    """Rows of a source with anomalies, in one pass and version.

    Their numbers are `low` to `high - 1`.
    """

    size: int
    source: Rows
    injector: Injector
    walk: int
    version: int | None
    low: int
    high: float

    def row(self, number: int) -> Row:
        """Return the row at a position."""
        number = self.injector.number(number, self.size, self.walk, self.low, self.high)
        anomalies = self.injector.anomalies
        number -= number % anomalies.equal
        row = copy.deepcopy(self.source.row(number))
        tied = number - number % (anomalies.equal * anomalies.ties)
        if tied != number:
            _tie(row, self.source.row(tied))
        if anomalies.replays > 1:
            self.injector.replay(row, number, self.source)
        injected: Row = self.injector.inject(row, number, self.version)
        return injected


@lru_cache(maxsize=64)
def _run(
    seed: str, order: str, moved: float, walk: int, first: int, behind: int, low: int, high: float
) -> list[int]:
    """Return the selected rows of `first` to `behind - 1` in the order of a pass."""
    rows = list(range(first, behind))
    random = Random(f"{seed} order {first}")  # noqa: S311 - a simulation is to be repeatable, not secret
    if order == "shuffled":
        random.shuffle(rows)
    elif order == "swapped":
        _swap(rows, random)
    if moved:
        random = Random(f"{seed} moved {first} {walk}")  # noqa: S311
        moving = dict.fromkeys(row for row in rows if random.random() < moved)
        rows = [row for row in rows if row not in moving]
        for row in moving:
            rows.insert(random.randrange(len(rows) + 1), row)
    return [row for row in rows if low <= row < high]


def _swap(rows: list[int], random: Random) -> None:
    index = 0
    while index < len(rows) - 1:
        if random.random() < SWAPPED:
            rows[index], rows[index + 1] = rows[index + 1], rows[index]
            index += 1
        index += 1


# Changes of a row, in place


def _tie(row: Any, other: Any) -> None:
    """Give a row the block number, times and heights of another row."""
    if isinstance(row, dict) and isinstance(other, dict):
        for name in row.keys() & other.keys():
            # Transactions of one block name one block; two blocks of one height are two blocks.
            if DESCENDING.fullmatch(name) or (name == "blockHash" and "txHash" in row):
                row[name] = other[name]
            else:
                _tie(row[name], other[name])


def _fields(value: Any) -> Iterator[tuple[Row, str, Any]]:
    """Yield each field at any depth: the object that has it, its name and its value."""
    if isinstance(value, list):
        for entry in value:
            yield from _fields(entry)
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield value, name, entry
            yield from _fields(entry)


def _change(row: Row, version: int) -> bool:
    """Set the values of a version in fields that change; return whether there are any."""
    found = [(record, name, _changed(name, entry, version)) for record, name, entry in _fields(row)]
    changing = [(record, name, value) for record, name, value in found if value is not None]
    for record, name, value in changing:
        record[name] = value
    return bool(changing)


def _changed(name: str, value: Any, version: int) -> object:
    """Return the value of a field in a version; None for a constant field.

    Version 0 is the first one.
    """
    if name in PERCENTAGES and isinstance(value, int | float):
        return round((value + version) % 100, 2) if version else value
    if name in LOGOS and isinstance(value, str):
        return f"{value}?version={version}" if version else value
    if name == "indexStatus":
        return INDEX_STATUSES[version % len(INDEX_STATUSES)] if version else value
    if name in PRICES and isinstance(value, dict) and "value" in value:
        return {**value, "value": round(float(value["value"]) + version / 100, 2)} if version else value
    return None


def _set_unknown_value(row: Any, random: Random) -> None:
    """Give one field that has listed values a value that is not listed."""
    places: list[tuple[Any, Any]] = []  # an object and a name, or a list and an index
    for record, name, value in _fields(row):
        if name in _listed_fields():
            inner = enumerate(value) if isinstance(value, list) else ()
            places += [(value, index) for index, text in inner if isinstance(text, str)]
            places += [(record, name)] if isinstance(value, str) else []
    if places:
        holder, key = random.choice(places)
        holder[key] = f"UNHEARD_OF_{random.randrange(10)}"


def _add_fields(row: Any, random: Random) -> None:
    """Add a field that no document names to a row, and one to an object in it."""
    if isinstance(row, dict):
        # An object that holds only objects may map names to records, where every name is a known one.
        inner = [value for value in row.values() if isinstance(value, dict) and not _maps(value)]
        for record in (row, *random.sample(inner, min(len(inner), 1))):
            name = random.choice(list(NEW_FIELDS))
            record[name] = copy.deepcopy(NEW_FIELDS[name])


def with_malformed_row(match: Match, answer: Row, items: str | None, random: Random) -> Row:
    """Return a page with one malformed row, or a malformed resource.

    A page without rows stays. `items` is the name of the field with the rows; None for a resource.
    """
    if items is None:
        resource: Row = _malformed(match, answer, random)
        return resource
    rows: Any = answer[items]
    if rows:
        place = random.randrange(len(rows))
        rows[place] = _malformed(match, rows[place], random)
    return answer


def _malformed(match: Match, row: Any, random: Random) -> Any:
    """Return a malformed row: one field has the wrong type, is null, or is missing."""
    fields = _fields_in(row, match.endpoint.route.model)
    if not fields:
        return {}  # instead of a plain value
    required = [field for field in fields if field.required]
    field = random.choice(required or fields)
    how = random.choice(("type", "null", "missing") if required else ("type",))
    if how == "missing":
        del row[field.wire]
    elif how == "null":
        row[field.wire] = None
    else:
        row[field.wire] = 5 if field.type.kind == "text" else ""
    return row


def _fields_in(row: Any, model: Any) -> list[Field]:
    """Return the model's fields that a row has, except for the name of its kind."""
    tag = next((tag for tag in type_of(model).tags if tag.fits(row)), None)
    if tag is None:
        return [field for field in fields_of(model) if field.wire in row]
    return [field for field in fields_of(tag.kind) if field.wire in row and field.wire != tag.path[0]]


@cache
def _listed_fields() -> frozenset[str]:
    """Return the names of fields with listed values, in the models of all routes."""
    from chainapi._api.catalogue import ROUTES

    names: set[str] = set()
    visited: set[Any] = set()
    waiting = [type_of(endpoint.route.model) for endpoint in ROUTES.values()]
    while waiting:
        for part in waiting.pop().parts():
            if part.kind == "record" and part.hint not in visited:
                visited.add(part.hint)
                fields = fields_of(part.hint)
                names |= {one.wire for one in fields if any(inner.choices for inner in one.type.parts())}
                waiting += [one.type for one in fields]
    return frozenset(names)


def _maps(record: Row) -> bool:
    return all(isinstance(value, dict) for value in record.values())
