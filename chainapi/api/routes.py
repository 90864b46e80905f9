"""A route as data: what a session needs to know to walk a list of a service, or to ask for one resource."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from attrs import evolve, frozen

__all__ = ["UNITS", "Route", "Weight", "route_name"]

Weight: TypeAlias = Literal["none", "free", "small", "medium", "large", "xl", "xxl"]

Conditional: TypeAlias = Literal["key", "descending_key"]

# What a request of each weight costs, in compute units.
UNITS: Mapping[Weight, int] = MappingProxyType(
    {"none": 0, "free": 1, "small": 10, "medium": 20, "large": 50, "xl": 100, "xxl": 200}
)

# What takes an attribute out of a record: without an order there is nothing that `until` could bound.
_WITHOUT: Mapping[Conditional, dict[str, Any]] = {
    "key": {"key": ()},
    "descending_key": {"descending_key": None, "until": None},
}


@frozen
class Route:
    """One route.

    Names of row attributes may be paths with dots, such as ``native_transaction.tx_hash``.

    Attributes:
        path: below the base address, with its parameters in braces, named as on the wire.
        items: name of the list field; None where the first page decides, and for a single resource.
        model: class of the rows, or of the resource; None for plain JSON values.
        descending_key: name of the row attribute that is a whole number and does not rise from row to row;
            several rows may share it.
        others: further fields of the envelope, by their Python names, each with its type or the name of it.
        until: name of the query parameter that bounds the `descending_key` number from above.
        key: names of the row attributes that identify a row: by the service's definition no two rows of the
            whole list share all of them, and they do not change from answer to answer. A row where one of
            them is None or missing has no key. Empty where rows have none: equal rows are several rows then.
        kind_keys: the keys of some kinds of rows, by the names of their classes, where the kinds of one list
            have different keys; rows of the other kinds have no key. A list has this or `key`.
        immutable: names of the attributes that do not change from answer to answer, of rows without a key.
            Several rows may share all of them: they count rows, and do not identify one.
        holds_if: what holds for some calls only: name of an attribute of this record, name of a parameter of
            the method, and the value that the caller has to give for it; None for any value.
        weight: how dear a request is said to be; None where the service does not say.
        deprecated: whether the service wants to take it away.

    """

    path: str
    items: str | None = None
    model: Any = None
    descending_key: str | None = None
    others: tuple[tuple[str, Any], ...] = ()
    until: str | None = None
    key: tuple[str, ...] = ()
    weight: Weight | None = None
    deprecated: bool = False
    kind_keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    immutable: tuple[str, ...] = ()
    holds_if: tuple[tuple[Conditional, str, str | None], ...] = ()

    @property
    def units(self) -> int | None:
        """What a request is said to cost, in compute units."""
        return None if self.weight is None else UNITS[self.weight]

    def deprecation(self, name: str) -> str:
        """Return the warning for a caller of the route, by the name that the caller uses."""
        return f"{name} is deprecated: the service will remove {self.path}"

    def for_call(self, given: Mapping[str, Any]) -> Route:
        """Return the record as it holds for a call, with the values `given` for the parameters of the method.

        A condition of `holds_if` that is not met takes the order or the key out.
        """
        undone: dict[str, Any] = {}
        for field, name, wanted in self.holds_if:
            if not _meets(given[name], wanted):
                undone |= _WITHOUT[field]
        return evolve(self, **undone) if undone else self

    def key_reader(self) -> Callable[[Any], Any] | None:
        """Return a function from a row to its key, which is None for a row without one; None for no keys."""
        if self.key:
            return _reader(operator.attrgetter(*self.key))
        if not self.kind_keys:
            return None
        readers = {kind: _reader(operator.attrgetter(*names)) for kind, names in self.kind_keys}
        return lambda row: readers[name](row) if (name := type(row).__name__) in readers else None

    def immutable_reader(self) -> Callable[[Any], Any] | None:
        """Return a function from a row to what never changes of it; None where all of it counts."""
        return _reader(operator.attrgetter(*self.immutable)) if self.immutable else None


def _meets(value: Any, wanted: str | None) -> bool:
    return value is not None if wanted is None else getattr(value, "value", value) == wanted


def _reader(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader of keys; None where an attribute is None or missing."""

    def key(row: Any) -> Any:
        try:
            found = read(row)
            hash(found)
        except (AttributeError, TypeError):
            return None
        return None if found is None or (isinstance(found, tuple) and None in found) else found

    return key


def route_name(service: str, path: str) -> str:
    """Name the requests that are taken to cost alike: those whose paths differ in identifiers only."""
    shape = re.sub(r"(?<=/)(?!v\d+(?:/|$))[^/:]*\d[^/:]*", "*", path)
    return f"{service}:{shape}"
