"""Responses made from records of routes and models: seeded, some fields missing."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import attrs

from chainapi import ROUTES, models
from chainapi._api.endpoint import Endpoint
from chainapi._api.parameters import wire_body
from chainapi._tooling.calls import example
from chainapi.models import MetricPoint
from chainapi.models.schema import Kind, Type, fields_of, is_amount, type_of
from chainapi.models.unions import Tag, tags_of, wire_name
from chainapi.simulator.matching import first_segment, match_path
from chainapi.transport import Request

__all__ = [
    "DEEP",
    "LISTS",
    "RECORDS",
    "RETURNED",
    "UNIONS",
    "Maker",
    "body_of",
    "each_kind",
    "path_pattern",
    "request_to",
    "values",
]

DEEP = 100_000  # levels that no Python reads; how deep each of them gets differs
LISTS = [name for name, declared in ROUTES.items() if not declared.single]
RECORDS: dict[str, Any] = {
    name: model
    for name in models.__all__
    if attrs.has(model := getattr(models, name)) and name not in ("Invalid", "Unknown")
}
UNIONS: dict[str, Any] = {name: model for name in models.__all__ if tags_of(model := getattr(models, name))}
# What routes return, by the first of them: records inside of others are in these.
RETURNED: dict[str, Any] = {
    name: model
    for model, name in {declared.rows: name for name, declared in reversed([*ROUTES.items()])}.items()
    if model is not str
}


class Maker:
    """Maker of JSON values by type, equal for equal seeds."""

    def __init__(self, seed: int, *, whole: bool = False, novel: bool = False) -> None:
        self.draw = random.Random(seed)
        self.whole = whole  # whether nothing is missing
        self.novel = novel  # whether fields with known values have unknown ones

    def page(self, declared: Endpoint, rows: int, token: str | None = None) -> dict[str, Any]:
        """Return the body of a page of a route."""
        route = declared.route
        hint = str if route.model is None else route.model
        body: dict[str, Any] = {route.items or "chains": [self.value(hint) for _ in range(rows)]}
        for name, kind in route.extra:
            body[wire_name(name)] = self.value(kind)
        return body if token is None else {**body, "nextPageToken": token}

    def value(self, hint: Any, name: str = "") -> Any:
        """Return a value of a type, for a field of this name."""
        return self.of_type(type_of(hint), name)

    def of_type(self, kind: Type, name: str) -> Any:
        """Return a value of a type of the schema, for a field of this name."""
        if kind.tags:
            return self.of_kind(self.draw.choice(kind.tags))
        if kind.choices:
            return f"novel{self.draw.randrange(10**6)}" if self.novel else self.draw.choice(kind.choices)
        match kind.kind:
            case "record":
                return self.record(kind.hint)
            case "union":
                return self.of_type(self.draw.choice(kind.members), name)
            case "list":
                return [self.of_type(kind.item, name) for _ in range(self.draw.randrange(3))]
            case "mapping":
                return {f"key{number}": self.of_type(kind.item, name) for number in range(2)}
            case scalar:
                return self.scalar(scalar, name)

    def of_kind(self, tag: Tag) -> Any:
        """Return a row of one kind of a union, with its tag."""
        made = self.record(tag.kind, tag.path[0])
        if tag.value is not None:
            made[tag.path[0]] = tag.value
        return made

    def record(self, model: Any, needed: str = "") -> dict[str, Any]:
        """Return an object with the fields of a record, without some of the optional ones."""
        made: dict[str, Any] = {}
        for field in fields_of(model):
            may_miss = field.default is None and field.wire != needed and not self.whole
            if may_miss and self.draw.random() < 0.4:
                if self.draw.random() < 0.5:
                    made[field.wire] = None
                continue
            strict = model is MetricPoint
            made[field.wire] = self.of_type(field.type, "timestamp" if strict else field.name)
        return made

    def scalar(self, kind: Kind, name: str) -> Any:
        """Return a text, a number or a boolean; whole numbers come as texts at times."""
        match kind:
            case "boolean":
                return self.draw.random() < 0.5
            case "integer" if name.endswith("timestamp"):
                return self.draw.randrange(1_600_000_000, 1_800_000_000)
            case "integer":
                most = 10**30 if is_amount(name) else 2**63
                number = self.draw.choice((self.draw.randrange(100), self.draw.randrange(most)))
                return str(number) if number > 2**63 or self.draw.random() < 0.5 else number
            case "float":
                return self.draw.choice((self.draw.random(), self.draw.randrange(1000)))
            case "decimal":
                return f"{self.draw.randrange(10**12)}.{self.draw.randrange(10**18):018}"
            case "any":
                return {"config": {"chainId": self.draw.randrange(10**6)}}
        assert kind == "text", kind
        return f"{name}-{self.draw.randrange(10**9)}"


def each_kind(union: Any, maker: Maker) -> list[tuple[type, Any]]:
    """Return each kind of rows of a union with a row of it, in the order in which kinds are told apart."""
    return [(tag.kind, maker.of_kind(tag)) for tag in tags_of(union)]


# Parameters that a request must have although no document requires each of them.
ONE_OF_SEVERAL = frozenset({"message"})


def values(declared: Endpoint, maker: Maker, *, optional: bool = True) -> dict[str, Any]:
    """Return a value for each parameter of a route, by their names in Python."""
    return {
        parameter.name: example(parameter, lambda: maker.draw.randrange(100))
        for parameter in declared.parameters
        if parameter.required or optional or parameter.name in ONE_OF_SEVERAL
    }


def body_of(declared: Endpoint, given: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a request with the values `given`; empty for a request without one."""
    missing = {one.name: None for one in declared.parameters if not one.required}
    body = wire_body(declared.parameters, missing | given)
    content: dict[str, Any] = json.loads(body or b"{}")
    return content


def request_to(place: str, query: Mapping[str, object], key: str = "simulated-key") -> Request:
    """Return a request to a simulator at a path, which follows the method unless that is GET.

    `query` has the parameters, and those of the body, by their names on the wire.
    """
    method, _, path = place.rpartition(" ")
    match = match_path((first_segment(path.split("/")[1], method or "GET"), *path.split("/")[2:]))
    inside = () if match is None else match.endpoint.record.body
    body = {name: value for name, value in query.items() if name in inside}
    params = urlencode({name: value for name, value in query.items() if name not in inside})
    url = f"https://simulator.invalid{path}{'?' if params else ''}{params}"
    content = json.dumps(body).encode() if method else None
    return Request(method or "GET", url, {"x-data-api-key": key}, content)


def path_pattern(declared: Endpoint) -> re.Pattern[str]:
    """Return the pattern of the paths of a route."""
    return re.compile(re.sub(r"\\{\w+\\}", "[^/:]+", re.escape(declared.route.path)))
