"""The routes of both services as the catalogue records them: which one a path means, and what it serves.

Nothing of the catalogue is loaded before this module is.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs import evolve, frozen

from chainapi.api.catalogue import ROUTES
from chainapi.api.endpoint import Endpoint
from chainapi.api.parameters import Parameter
from chainapi.models.metrics import MetricPoint
from chainapi.models.unions import tags_of, wire_name
from chainapi.simulator.factories import FIRST_HEIGHT, Made, maker
from chainapi.simulator.lists import (
    DEFAULT_PAGE_SIZE,
    Listing,
    Place,
    Refusal,
    View,
    known_chain,
    whole_number,
)
from chainapi.simulator.names import BLOCKCHAIN_NAMES
from chainapi.simulator.rows import Draw, Row, RowSource
from chainapi.simulator.sources import DAY, Points, Sums

if TYPE_CHECKING:
    from chainapi.simulator.settings import Settings

__all__ = ["Known", "Match", "find", "known", "listed", "paths"]

ROW_SECONDS = 5
# Seconds between two points, by what is asked for as the time interval; a month has 30 days.
INTERVALS = {"hour": 3_600, "day": DAY, "week": 7 * DAY, "month": 30 * DAY}
# Values of a request that say which rows are wanted, not what is in them.
NOT_ECHOED = frozenset({"startTimestamp", "endTimestamp", "blockNumber", "blockTimestamp", "threshold"})
# Fields that repeat a value of another name.
ECHOED_AS = {"currency": "currencyCode", "timeInterval": "aggregateDuration"}
# How large the values of a metric are; None for those that have decimals.
SCALES = {
    **dict.fromkeys(("avgTps", "maxTps"), None),
    **dict.fromkeys(("avgGps", "maxGps", "feesPaid"), 1_000_000),
    **dict.fromkeys(("avgGasPrice", "maxGasPrice"), 25_000_000_000),
    **dict.fromkeys(("gasUsed", "delegatorWeight", "validatorWeight"), 10**11),
}
SCALE = 20_000
# Kinds that a route never answers with, although its model has them.
NOT_MADE = {
    "/v1/teleporter/messages": frozenset({"DeliveredSourceNotIndexedTeleporterMessage"}),
    "/v1/teleporter/addresses/{address}/messages": frozenset({"DeliveredSourceNotIndexedTeleporterMessage"}),
    "/v1/teleporter/messages/{messageId}": frozenset({"DeliveredSourceNotIndexedIcmMessage"}),
}


@frozen
class Match:
    """A route that a path fits.

    Attributes:
        declared: the route.
        place: the service, and the segments of the path.
        path: the values of the path's parameters.

    """

    declared: Endpoint
    place: Place
    path: Mapping[str, str]

    def serve(self, settings: Settings, query: Mapping[str, str]) -> Listing | Row:
        """Return the list, or the single resource.

        Raises:
            Refusal: a value of the request is none that the route takes.

        """
        for parameter in self.declared.parameters:
            if parameter.in_path:
                _check(parameter, self.path[parameter.wire])
        if "chainId" in self.path:
            known_chain(self.path["chainId"], settings.chains)
        if not self.declared.single:
            return self._listing(settings)
        echoes = self._echoes(self._asked(query))
        return evolve(self._made(settings, 1), echoes=echoes).rows(0, 1)[0]

    def _listing(self, settings: Settings) -> Listing:
        route = self.declared.route
        points = route.items == "results"
        size = settings.points if points else settings.rows
        series = route.model is MetricPoint
        source: Points | Made = self._series(settings) if series else self._made(settings, size)

        def view(query: Mapping[str, str]) -> View:
            asked = self._asked(query)
            narrowed = source
            if points:
                narrowed = evolve(narrowed, step=INTERVALS[asked.get("timeInterval", "day")])
            if isinstance(narrowed, Made):
                narrowed = evolve(narrowed, echoes=self._echoes(asked))
            low, high = _span(narrowed, asked)
            return View(narrowed, low, high, asked.get("sortOrder") == "asc")

        def fields(source: RowSource, added: int) -> Row:
            if not isinstance(source, Made):
                return {}
            (newest,) = source.origins(size - 1 + added, size + added)
            names = [(wire_name(name), kind) for name, kind in route.others]
            return {name: maker(kind, name)(newest) for name, kind in names}

        size_of_page = self.declared.page_size
        bounds = None if size_of_page is None else size_of_page.bounds
        default = DEFAULT_PAGE_SIZE if size_of_page else None
        return Listing(
            route.items or "items",
            source,
            page_size=settings.metrics_page_size if self.place[0] == "metrics" else default,
            fixed=size_of_page is None,
            sizes=(1, 1) if bounds is None else (int(bounds.least), int(bounds.most or bounds.least)),
            fields=fields,
            view=view,
        )

    def _series(self, settings: Settings) -> Points:
        metric = self.path["metric"]
        kind = Sums if "umulative" in metric else Points
        draw = Draw(settings.seed, *self.place)
        return kind(settings.points, settings.epoch, draw, DAY, SCALES.get(metric, SCALE))

    def _made(self, settings: Settings, size: int) -> Made:
        route = self.declared.route
        without = NOT_MADE.get(route.path, frozenset())
        make = maker(str, "address") if route.model is None else maker(route.model, without=without)
        draw = Draw(settings.seed, *self.place)
        return Made(make, size, settings.epoch, ROW_SECONDS, draw, settings.chains, self._echoes({}))

    def _echoes(self, asked: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Return what the rows repeat of the request."""
        key = [wire_name(name) for name in self.declared.route.key]
        given = {name: text for name, text in {**asked, **self.path}.items() if name not in NOT_ECHOED}
        if not self.declared.single:
            if "collections" not in self.place:  # the address says whose list it is, not what a row is about
                given.pop("address", None)
            if len(key) == 1:  # the rows differ in it
                given.pop(key[0], None)
        if chain := BLOCKCHAIN_NAMES.get(given.get("blockchainId", "")):
            given["chainName"] = chain
        if block := given.get("blockId"):
            given["blockNumber" if block.isdecimal() else "blockHash"] = block
        return tuple((ECHOED_AS.get(name, name), text) for name, text in sorted(given.items()))

    def _asked(self, query: Mapping[str, str]) -> dict[str, str]:
        """Return what the query says of what the route knows, the size of a page apart."""
        asked: dict[str, str] = {}
        for parameter in self.declared.parameters:
            if parameter.in_path or parameter.wire == "pageSize":
                continue
            if parameter.wire in query:
                asked[parameter.wire] = query[parameter.wire]
                _check(parameter, asked[parameter.wire])
            elif parameter.required:
                raise Refusal(400, f"{parameter.wire} should not be empty")
        return asked


def _check(parameter: Parameter, text: str) -> None:
    values = text.split(",") if parameter.many else [text]
    if parameter.choices and not set(values) <= set(parameter.choices):
        raise Refusal(
            400, f"{parameter.wire} must be one of the following values: {', '.join(parameter.choices)}"
        )
    # What may be a text or a decimal as well is not looked at.
    if int in parameter.kinds and not {str, float} & set(parameter.kinds):
        least, most = -math.inf, None
        if parameter.bounds is not None:
            least, most = parameter.bounds.least, parameter.bounds.most
        whole_number(parameter.wire, text, least, most)


def _span(source: Points | Made, asked: Mapping[str, str]) -> tuple[int, int | None]:
    """Return the numbers of the first row that the bounds take in, and of the one behind the last."""
    low, high = 0, math.inf
    if text := asked.get("startTimestamp"):
        low = max(low, source.first_at(int(text)))
    if text := asked.get("endTimestamp"):
        high = min(high, source.first_at(int(text) + 1))
    if text := asked.get("startBlock"):
        low = max(low, int(text) - FIRST_HEIGHT)
    if text := asked.get("endBlock"):
        high = min(high, int(text) + 1 - FIRST_HEIGHT)
    return low, None if high == math.inf else int(high)


@cache
def _routes() -> Mapping[tuple[str, int], list[tuple[Place, Endpoint]]]:
    """Return the routes by service and number of segments; of two that fit, the plainer one comes first."""
    found: dict[tuple[str, int], list[tuple[Place, Endpoint]]] = {}
    for name, declared in sorted(ROUTES.items(), key=lambda entry: entry[1].route.path.count("{")):
        place = (name.partition(".")[0], *declared.route.path.split("/")[1:])
        found.setdefault((place[0], len(place)), []).append((place, declared))
    return found


def find(place: Place) -> Match | None:
    """Return the route that the segments of a path fit; None where there is none."""
    for wanted, declared in _routes().get((place[0], len(place)), ()):
        pairs = list(zip(wanted, place, strict=True))
        if all(name == given or (name[:1] == "{" and given) for name, given in pairs):
            return Match(declared, place, {name[1:-1]: given for name, given in pairs if name[:1] == "{"})
    return None


def paths() -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each route."""
    for name, declared in ROUTES.items():
        yield name, declared.route.path


# What the models say of a row


@frozen
class Known:
    """A field of a row as its model has it: whether it must be there, and whether it is a text."""

    name: str
    required: bool
    text: bool


def known(place: Place, row: Any) -> list[Known]:
    """Return the fields that the model of a row has, but for the one that names its kind."""
    match = find(place)
    model: Any = None if match is None else match.declared.route.model
    tag = next((tag for tag in tags_of(model) if tag.fits(row)), None)
    model = model if tag is None else tag.kind
    if not attrs.has(model):
        return []
    left_out = tag.path[0] if tag else ""
    return [field for field in _fields(model) if field.name in row and field.name != left_out]


@cache
def _fields(model: Any) -> tuple[Known, ...]:
    hints = typing.get_type_hints(model)
    return tuple(
        Known(wire_name(one.name), one.default is attrs.NOTHING, hints[one.name] in (str, str | None))
        for one in attrs.fields(model)
    )


@cache
def listed() -> frozenset[str]:
    """Return the names of all fields that have listed values."""
    names: set[str] = set()
    seen: set[Any] = set()

    def look(hint: Any, name: str) -> None:
        if typing.get_origin(hint) is Literal:
            names.add(name)
        elif attrs.has(hint) and hint not in seen:
            seen.add(hint)
            for field, inner in typing.get_type_hints(hint, include_extras=True).items():
                look(inner, wire_name(field))
        for inner in (*(tag.kind for tag in tags_of(hint)), *typing.get_args(hint)):
            look(inner, name)

    for declared in ROUTES.values():
        look(declared.route.model, "")
    return frozenset(names)
