"""Entries of routes and records: what no OpenAPI document says.

They are in `routes.toml` and `records.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from chainapi._api.routes import Weight
from chainapi._tooling.files import COMMAND, ROOT, GeneratorError

__all__ = ["RECORDS", "ROUTES", "Entries", "Entry", "Group", "Key", "Names", "Number"]

ROUTES = "chainapi/_tooling/routes.toml"
RECORDS = "chainapi/_tooling/records.toml"

_T = TypeVar("_T")


class Key(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Identity of the rows of a list.

    Names of attributes may be paths with dots, such as ``native_transaction.tx_hash``.

    Attributes:
        by: attributes that no two rows of the whole list share.
        why: the evidence in the document, or the reason for no key: "no key: ...".
        kinds: keys by class of row, for unions whose classes have different keys; other classes have no key.
        immutable: attributes that never change, by which rows without a key are counted.
        needs: name of a query parameter; the key holds only in walks with that parameter.

    """

    why: str
    by: tuple[str, ...] = ()
    kinds: dict[str, tuple[str, ...]] = {}
    immutable: tuple[str, ...] = ()
    needs: str | None = None

    def of(self, kind: str) -> tuple[str, ...]:
        """Return the key of a class of rows."""
        return self.kinds.get(kind, self.by)


class Number(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whole number of the rows of a list.

    Attributes:
        by: attributes with the number, the first that a row has counts.
        why: the evidence, or the reason for no ranges: "no ranges: ...".
        needs: a query parameter, "name" or "name=value", without which the number does not hold.
        until: of an order, name of the query parameter that bounds the number from above.
        days: of a range, whether a border has to be at 0:00 UTC.

    """

    why: str
    by: tuple[str, ...] = ()
    needs: str | None = None
    until: str | None = None
    days: bool = False


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entry of a route.

    Attributes:
        path: its path in the document, after the method unless that is GET.
        doc: docstring of its method.
        items: list field, if it is not the document's; empty if the first page decides.
        weight: class of its price, if it is not the document's.
        writes: whether it changes something in the service; GET only reads.
        lookup: name of the route that shows whether a write was carried out; empty without one.
        body: name of the parameter for a body that is one of several records.
        key: what identifies a row; each list has one.
        order: the number by which the list descends.
        cursor: the number that shows a later export which rows are new; without `by` it is the range's.
        range: the number that start and end of the list bound; each list with a start has one.

    """

    path: str
    doc: str
    items: str | None = None
    weight: Weight | None = None
    writes: bool | None = None
    lookup: str = ""
    body: str = ""
    key: Key | None = None
    order: Number | None = None
    cursor: Number | None = None
    range: Number | None = None

    def __post_init__(self) -> None:
        if " " in self.path and self.writes is None:
            raise ValueError("whether the route changes something is not decided: `writes` is true or false")


class Group(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Group of routes, such as ``data.evm``, or a service.

    Attributes:
        name: its class.
        doc: docstring of the class.
        base: base class; by default the base of groups.
        module: module of the class; an entry names it without its package, by default like the group.
        records: module of its records in `chainapi.models`, by default of the same name.

    """

    name: str = field(name="class")
    doc: str
    module: str
    records: str
    base: str = "Group"


class Names(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names and types of records; comments in `records.toml` describe them."""

    whole: frozenset[str]
    exact: frozenset[str]
    fractional: frozenset[str]
    modules: dict[str, str]
    types: dict[str, str]
    optional: dict[str, str]
    parameters: dict[str, str]
    renamed: dict[str, str]
    merged: dict[str, tuple[str, ...]]
    enums: dict[str, tuple[str, ...]]
    unions: dict[str, dict[str, str]]
    docs: dict[str, str]
    classes: dict[str, str]


class Entries(Struct, frozen=True):
    """Entries of all routes and groups, by their dotted names, and names of records."""

    routes: dict[str, Entry]
    groups: dict[str, Group]
    names: Names

    @classmethod
    def read(cls, routes: str | None = None) -> Entries:
        """Read both files, or other entries of routes.

        Raises:
            GeneratorError: an entry has an unknown key, lacks one, or has a value of a wrong type.

        """
        names = _converted(RECORDS, "", _parsed(RECORDS), Names)
        found = cls({}, {}, names)
        for service, table in _parsed(ROUTES, routes).items():
            found._add(service, table)
        return found

    def _add(self, dotted: str, table: dict[str, Any]) -> None:
        """Add a route, or a group and its routes."""
        if "path" in table:
            self.routes[dotted] = _converted(ROUTES, dotted, table, Entry)
            return
        inner = {name: one for name, one in table.items() if isinstance(one, dict)}
        own = {name: value for name, value in table.items() if name not in inner}
        module = own.get("module", dotted.rpartition(".")[2])
        place = f"chainapi._api.groups.{module}" if "." in dotted else f"chainapi._api.{module}"
        own = {"records": module, **own, "module": place}
        group = self.groups[dotted] = _converted(ROUTES, dotted, own, Group)
        if group.records not in self.names.modules:
            raise GeneratorError(
                f"{ROUTES}: records of {dotted} have no module: add it to [modules] in {RECORDS}, or name an"
                " existing one with `records`"
            )
        for name, one in inner.items():
            self._add(f"{dotted}.{name}", one)


def _parsed(file: str, text: str | None = None) -> dict[str, Any]:
    try:
        return tomllib.loads((ROOT / file).read_text("utf-8") if text is None else text)
    except tomllib.TOMLDecodeError as error:
        raise GeneratorError(f"{file}: {error}") from error


def _converted(file: str, dotted: str, table: Mapping[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise GeneratorError(f"{file}: {dotted or 'tables'}: {error}; then run {COMMAND}") from error
