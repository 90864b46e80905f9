"""Rows with anomalies: what a service with faults of its own shows at a place.

A row is altered by its number and the seed alone, so that it is the same row on pages of any size; only what
changes from pass to pass, or from answer to answer, follows from the version that is asked for.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from random import Random
from typing import Any, TypeAlias

from attrs import define, field, frozen

from chainapi.simulator.anomalies import Anomalies
from chainapi.simulator.lists import Place, View
from chainapi.simulator.order import arranged
from chainapi.simulator.rows import Draw, Row, RowSource

__all__ = ["Alterations", "Altered"]

Slot: TypeAlias = tuple[Any, Any]  # an object and a name, or a list and an index

# Fields that a list descends by.
DESCENDING = re.compile(".*[tT]imestamp|.*[hH]eight|.*[bB]lockNumber|createBlockIndex|createdAt|sortKey")
# Fields that change although the row stays the same row.
PRICES = frozenset({"price", "currentPrice", "balanceValue"})
LOGOS = frozenset({"logoUri", "chainLogoUri"})
PERCENTAGES = frozenset({"progress", "uptimePerformance"})
INDEX_STATUSES = ("UNINDEXED", "THROTTLED_TOKEN_URI", "INDEXED")
CHANGING = PRICES | LOGOS | PERCENTAGES | {"indexStatus"}
# Fields that no document names. Binary floats do not hold the first two.
NEW_FIELDS: Mapping[str, object] = {
    "newDecimal": Decimal("0.1234567890123456789"),
    "newLongDecimal": Decimal("12345678901234567890.5"),
    "newNumber": 2**70,
    "newText": "simulated",
    "newList": [1, "two", None],
    "newObject": {"newText": "inside", "newNull": None},
    "newNull": None,
}


@define(eq=False)
class Alterations:
    """The anomalies at one place, and what they depend on.

    Attributes:
        anomalies: what they are.
        place: where the list or the resource is.
        seed: all that is drawn follows from it.
        chains: the chain ids that exist.
        passes: how many passes over the list have begun.
        answers: how many answers were given.

    """

    anomalies: Anomalies
    place: Place
    seed: int
    chains: tuple[int, ...]
    passes: int = 0
    answers: int = 0
    _draw: Draw = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._draw = Draw(self.seed, "anomalies", *self.place)

    @property
    def replays(self) -> int:
        """How many chains have each transaction of the list; 1 in the list of one chain."""
        alone = any(str(chain) in self.place for chain in self.chains)
        return 1 if alone else min(self.anomalies.replays, len(self.chains))

    def begin(self) -> int:
        """Begin a pass over the list, and return its number."""
        self.passes += 1
        return self.passes - 1

    def view(self, view: View, walk: int, answer: int) -> View:
        """Return a part of the list as pass number `walk` sees it in answer number `answer`."""
        anomalies = self.anomalies
        span = anomalies.ties * anomalies.equal
        low, high = -(-view.low // span) * span, None if view.high is None else -(-view.high // span) * span
        version = self._version(walk, answer)
        source = Altered(view.source, self, walk, version, low, high)
        return View(source, low, high, view.ascending != (anomalies.order == "ascending"))

    def latest(self, view: View) -> View:
        """Return a part of the list as the latest pass sees it, and the latest answer."""
        return self.view(view, max(self.passes - 1, 0), max(self.answers - 1, 0))

    def resource(self, resource: Row) -> Row:
        """Return a single resource with its anomalies; each answer is a pass of its own."""
        self.answers += 1
        altered: Row = self.altered(resource, 0, self._version(self.answers - 1, self.answers - 1))
        return altered

    def numbers(self, size: int, walk: int, span: tuple[int, int], within: tuple[int, float]) -> list[int]:
        """Return the numbers of the rows at the positions of `span`, the oldest first."""
        return arranged(self.anomalies, repr((self.seed, self.place)), size, walk, span, within)

    def altered(self, row: Any, number: int, version: int | None) -> Any:
        """Return row `number` with its anomalies, in a version, or in the only one where that is None."""
        anomalies = self.anomalies
        if version is not None and isinstance(row, dict) and not _change(row, version):
            row["confirmations"] = version
        if random := self._hit("malformed", anomalies.malformed, number):
            row = _malformed(self.place, row, random)
        elif random := self._hit("unknown values", anomalies.unknown_values, number):
            _set_unknown_value(row, random)
        if random := self._hit("unknown fields", anomalies.unknown_fields, number):
            _add_fields(row, random)
        return row

    def _version(self, walk: int, answer: int) -> int | None:
        return {"never": None, "pass": walk, "answer": answer}[self.anomalies.changing]

    def _hit(self, anomaly: str, share: float, number: int) -> Random | None:
        """Return what to draw from where an anomaly meets row `number`; no anomaly moves another one."""
        if not share:
            return None
        random = Random(self._draw(number) + anomaly.encode())  # noqa: S311 - repeatable, not secret
        return random if random.random() < share else None


@frozen
class Altered:
    """The rows of a source with anomalies, in one pass and version, from `low` to `high - 1`."""

    source: RowSource
    alterations: Alterations
    walk: int
    version: int | None
    low: int
    high: int | None

    @property
    def size(self) -> int:
        """How many rows the list had at the beginning."""
        return self.source.size

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the rows at the positions `stop - 1` down to `start`."""
        within = self.low, math.inf if self.high is None else self.high
        numbers = self.alterations.numbers(self.size, self.walk, (start, stop), within)
        return [self._row(number) for number in reversed(numbers)]

    def _row(self, number: int) -> Row:
        anomalies = self.alterations.anomalies
        number -= number % anomalies.equal
        (row,) = self.source.rows(number, number + 1)
        tied = number - number % (anomalies.equal * anomalies.ties)
        if tied != number:
            _tie(row, *self.source.rows(tied, tied + 1))
        self._replay(row, number)
        altered: Row = self.alterations.altered(row, number, self.version)
        return altered

    def _replay(self, row: Any, number: int) -> None:
        """Let a transaction have the hash of one on another chain."""
        replays, each = self.alterations.replays, self.alterations.anomalies.equal
        if replays == 1 or not isinstance(row, dict) or not {"chainId", "txHash"} <= row.keys():
            return
        first = number - number % (replays * each)
        (replayed,) = self.source.rows(first, first + 1)
        row["txHash"] = replayed["txHash"]
        row["chainId"] = str(self.alterations.chains[number // each % replays])


# What is done to a row, which is changed in place


def _tie(row: Any, other: Any) -> None:
    """Give a row the numbers that its list descends by of another row."""
    if isinstance(row, dict) and isinstance(other, dict):
        for name in row.keys() & other.keys():
            # Transactions of one block name one block; two blocks of one height are two blocks.
            if DESCENDING.fullmatch(name) or (name == "blockHash" and "txHash" in row):
                row[name] = other[name]
            else:
                _tie(row[name], other[name])


def _change(value: Any, version: int) -> bool:
    """Give all fields that change their values of a version; tell whether there are any."""
    if isinstance(value, list):
        return True in [_change(entry, version) for entry in value]
    if not isinstance(value, dict):
        return False
    record: Row = value
    found = False
    for name, entry in record.items():
        if (changed := _changed(name, entry, version)) is not None:
            record[name] = changed
        found |= changed is not None or _change(entry, version)
    return found


def _changed(name: str, value: Any, version: int) -> object:
    """Return the value of a field in a version, 0 being the first; None for one that does not change."""
    if name not in CHANGING:
        return None
    if version == 0:
        return value
    if name in LOGOS:
        return f"{value}?version={version}"
    if name in PERCENTAGES:
        return round((value + version) % 100, 2)
    if name == "indexStatus":
        return INDEX_STATUSES[version % len(INDEX_STATUSES)]
    return {**value, "value": round(float(value["value"]) + version / 100, 2)}


def _slots(value: Any, names: Collection[str]) -> Iterator[Slot]:
    """Yield where the texts are that fields of these names hold, at any depth, in lists too."""
    if isinstance(value, list):
        for entry in value:
            yield from _slots(entry, names)
        return
    if not isinstance(value, dict):
        return
    for name, entry in value.items():
        if name in names and isinstance(entry, str):
            yield value, name
        elif name in names and isinstance(entry, list):
            yield from ((entry, index) for index, text in enumerate(entry) if isinstance(text, str))
        yield from _slots(entry, names)


def _set_unknown_value(row: Any, random: Random) -> None:
    """Give one field that has listed values another one."""
    from chainapi.simulator import handlers

    slots = list(_slots(row, handlers.listed()))
    if slots:
        holder, key = random.choice(slots)
        holder[key] = f"UNHEARD_OF_{random.randrange(10)}"


def _add_fields(row: Any, random: Random) -> None:
    """Add a field that no document names to a row, and one to an object inside of it."""
    if isinstance(row, dict):
        # Objects that hold objects only may map names to records: any name is a known one there.
        inner = [value for value in row.values() if isinstance(value, dict) and not _maps(value)]
        for record in (row, *random.sample(inner, min(len(inner), 1))):
            name = random.choice(list(NEW_FIELDS))
            record[name] = copy.deepcopy(NEW_FIELDS[name])


def _malformed(place: Place, row: Any, random: Random) -> Any:
    """Return a row that cannot be read: one field has the wrong type, is null, or is missing."""
    from chainapi.simulator import handlers

    known = handlers.known(place, row)
    if not known:
        return {}  # instead of a plain value
    required = [field for field in known if field.required]
    field = random.choice(required or known)
    how = random.choice(("type", "null", "missing") if required else ("type",))
    if how == "missing":
        del row[field.name]
    elif how == "null":
        row[field.name] = None
    else:
        row[field.name] = 5 if field.text else ""
    return row


def _maps(record: Row) -> bool:
    return all(isinstance(value, dict) for value in record.values())
