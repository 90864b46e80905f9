"""A route as data: what a session needs to know to walk a list of a service, or to ask for one resource."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from attrs import frozen

__all__ = ["UNITS", "Route", "Weight", "route_name"]

Weight: TypeAlias = Literal["none", "free", "small", "medium", "large", "xl", "xxl"]

# What a request of each weight costs, in compute units.
UNITS: Mapping[Weight, int] = MappingProxyType(
    {"none": 0, "free": 1, "small": 10, "medium": 20, "large": 50, "xl": 100, "xxl": 200}
)


@frozen
class Route:
    """One route.

    Attributes:
        path: below the base address, with its parameters in braces, named as on the wire.
        items: name of the list field; None where the first page decides, and for a single resource.
        model: class of the rows, or of the resource; None for plain JSON values.
        newest_first: name of the row attribute that is a whole number and falls strictly from row to row.
        others: further fields of the envelope, by their Python names, each with its type or the name of it.
        until: name of the query parameter that bounds the `newest_first` number from above.
        key: names of the row attributes that tell a row from all others; none where only all of them do.
        weight: how dear a request is said to be; None where the service does not say.
        deprecated: whether the service wants to take it away.

    """

    path: str
    items: str | None = None
    model: Any = None
    newest_first: str | None = None
    others: tuple[tuple[str, Any], ...] = ()
    until: str | None = None
    key: tuple[str, ...] = ()
    weight: Weight | None = None
    deprecated: bool = False

    @property
    def units(self) -> int | None:
        """What a request is said to cost, in compute units."""
        return None if self.weight is None else UNITS[self.weight]


def route_name(service: str, path: str) -> str:
    """Name the requests that are taken to cost alike: those whose paths differ in identifiers only."""
    shape = re.sub(r"(?<=/)(?!v\d+(?:/|$))[^/:]*\d[^/:]*", "*", path)
    return f"{service}:{shape}"
