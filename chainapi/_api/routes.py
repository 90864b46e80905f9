"""Route as data: path, list field, keys and cost of a list or a resource."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chainapi._paging.ranges import Ranged
from chainapi.core.idempotency import Idempotency

__all__ = ["UNITS", "Conditional", "Route", "Weight", "route_name", "units_of"]

Weight: TypeAlias = Literal["none", "free", "small", "medium", "large", "xl", "xxl"]

Conditional: TypeAlias = Literal["key", "descending_key", "since"]

# Cost of a request of each weight, in compute units, by service: each has a scale of its own.
UNITS: Mapping[str, Mapping[Weight, int]] = MappingProxyType(
    {
        "data": {"none": 0, "free": 1, "small": 10, "medium": 20, "large": 50, "xl": 100, "xxl": 200},
        "metrics": {"none": 0, "free": 1, "small": 20, "medium": 100, "large": 500, "xl": 1000, "xxl": 3000},
    }
)

# Changes that remove an attribute of a record: without an order `until` has nothing to bound.
_WITHOUT: Mapping[Conditional, dict[str, Any]] = {
    "key": {"key": ()},
    "descending_key": {"descending_key": None, "until": None},
    "since": {"since": False},
}


class Route(Struct, frozen=True):
    """Record of one route.

    Names of row attributes may be paths with dots, such as ``native_transaction.tx_hash``.

    Attributes:
        path: path below the base address, with parameters in braces, by their names on the wire.
        items: name of the list field; None for a single resource, and if the first page decides.
        model: class of the rows, or of the resource; None for plain JSON values.
        descending_key: name of the row attribute with a whole number that does not increase from row to row;
            several rows may share it.
        extra: further fields of the envelope, by their Python names, each with its type or the type's name.
        until: name of the query parameter that bounds the `descending_key` number from above.
        key: names of the row attributes that identify a row: by the service's definition no two rows of the
            list share all of them, and they do not change between responses. A row in which one of them is
            None or missing has no key. Empty if rows have no key: then equal rows are several rows.
        kind_keys: keys by the names of row classes, if the kinds of rows in one list have different keys;
            rows of the other kinds have no key. A list has this or `key`.
        immutable: names of the attributes that do not change between responses, for rows without a key.
            Several rows may share all of them: they serve to count rows, not to identify one.
        cursor: names of row attributes with a number that grows with each new row; the first one that a row
            has counts. Empty if rows have no such number, or `ranged` has it.
        since: whether the start of `ranged` may be sent.
        holds_if: conditions of `key`, `descending_key` and `since`: name of the attribute, name of a
            parameter of the method, and the value that the caller has to give for it; None for any value.
        weight: documented weight of a request; None without documentation.
        deprecated: whether the service will remove the route.
        method: HTTP method.
        body: names on the wire of the parameters that are fields of the body; ``pageToken`` among them where
            the walk sends its token there.
        idempotency: effect of sending a request twice.
        lookup: name of the route that shows whether a write was carried out; empty without one.
        ranged: the parameters with the start and the end of a list, and the number of a row that they bound;
            None for a list that cannot be walked in ranges.

    """

    path: str
    items: str | None = None
    model: Any = None
    key: tuple[str, ...] = ()
    kind_keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    immutable: tuple[str, ...] = ()
    weight: Weight | None = None
    descending_key: str | None = None
    until: str | None = None
    cursor: tuple[str, ...] = ()
    since: bool = True
    holds_if: tuple[tuple[Conditional, str, str | None], ...] = ()
    ranged: Ranged | None = None
    extra: tuple[tuple[str, Any], ...] = ()
    deprecated: bool = False
    method: str = "GET"
    body: tuple[str, ...] = ()
    idempotency: Idempotency = Idempotency.SAFE
    lookup: str = ""

    @property
    def place(self) -> str:
        """Path, with the method before it unless that is GET."""
        return self.path if self.method == "GET" else f"{self.method} {self.path}"

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of row attributes with a number that grows with each new row.

        The first one that a row has counts.
        """
        return self.ranged.number if self.ranged is not None else self.cursor

    @property
    def shows_new_rows(self) -> bool:
        """Whether the numbers of the rows show a later walk which of them are new."""
        return self.descending_key is not None or bool(self.numbers)

    def deprecation(self, name: str) -> str:
        """Return the warning for a caller of the route, by the name that the caller uses."""
        return f"{name} is deprecated: the service will remove {self.path}"

    def for_call(self, given: Mapping[str, Any]) -> Route:
        """Return the record for a call with the values `given` for its parameters.

        It has no order, no key or no lower bound if the condition in `holds_if` is not met.
        """
        undone: dict[str, Any] = {}
        for field, name, wanted in self.holds_if:
            if not _meets(given[name], wanted):
                undone |= _WITHOUT[field]
        return replace(self, **undone) if undone else self


def _meets(value: Any, wanted: str | None) -> bool:
    return value is not None if wanted is None else getattr(value, "value", value) == wanted


_IDENTIFIER = re.compile(r"(?<=/)(?!v\d+(?:/|$))[^/:]*\d[^/:]*")  # segment with a digit, but no version


def units_of(name: str, route: Route) -> int | None:
    """Return the published cost of a request, by the name of its service or route."""
    return None if route.weight is None else UNITS[name.partition(".")[0]][route.weight]


def route_name(service: str, path: str, method: str = "GET") -> str:
    """Return the name that requests of one cost share.

    They have the same method, and their paths differ only in identifiers.
    """
    shape = _IDENTIFIER.sub("*", path)
    return f"{service}:{shape}" if method == "GET" else f"{service}:{method} {shape}"
