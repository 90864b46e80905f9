"""Unions of records: tags of their kinds, and rows of unknown kinds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen
from msgspec import Struct

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreSchema

__all__ = [
    "RawRow",
    "Tag",
    "Unknown",
    "is_tag",
    "python_name",
    "register_union",
    "tags_of",
    "wire_name",
]


def wire_name(name: str) -> str:
    """Return the name in JSON of a field: `block_number` is `blockNumber`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest) if head else name


def python_name(name: str) -> str:
    """Return the name in Python of a field in JSON: `blockNumber` is `block_number`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])|(?<=[A-Z])([A-Z])(?=[a-z])", r"_\g<0>", name).lower()


@frozen
class RawRow:
    """Row as it was sent. Each field is an attribute too, by its name in Python.

    Attributes:
        raw: the row as a JSON value, usually a dict.

    """

    raw: Any

    def to_dict(self) -> Any:
        """Return the fields by their names in Python; a row that is no object as it is."""
        if not isinstance(self.raw, dict):
            return self.raw
        return {python_name(wire): value for wire, value in self.raw.items()}

    def to_wire(self) -> Any:
        """Return the row as the service sent it."""
        return dict(self.raw) if isinstance(self.raw, dict) else self.raw

    def value_at(self, name: str) -> Any:
        """Return a field by its name, or None; dots in the name lead into objects."""
        value = self.raw
        for part in name.split("."):
            if not isinstance(value, dict):
                return None
            value = value[part] if part in value else value.get(wire_name(part))
        return value

    def __getattr__(self, name: str) -> Any:
        if name != "raw" and not name.startswith("__") and isinstance(self.raw, dict):
            name = name.removesuffix("_")
            if (wire := wire_name(name)) in self.raw:
                return self.raw[wire]
            if name in (named := self.to_dict()):  # its name in JSON is not in camel case
                return named[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")


@frozen
class Unknown(RawRow):
    """Row of a kind that this version has no record for.

    `raw` is the row as a JSON object, and so is `extra`, because no record names its fields. Each field is an
    attribute too, by its name in Python.
    """

    raw: dict[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields of the row, all of them, by their names in JSON."""
        return self.raw

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: object) -> CoreSchema:
        from chainapi.models.pydantic_row import raw_schema

        return raw_schema(cls, cls)


class Tag(Struct, frozen=True, eq=False):
    """Tag of one kind of a union: a field at `path` with this `value`, or any if None."""

    path: tuple[str, ...]
    value: str | None
    kind: type

    def fits(self, row: Any) -> bool:
        """Check whether a row, as a JSON value, is of this kind."""
        for name in self.path:
            if not isinstance(row, dict) or name not in row:
                return False
            row = row[name]
        return row is not None if self.value is None else bool(row == self.value)


_tags: dict[Any, tuple[Tag, ...]] = {}


def register_union(union: Any, kinds: Mapping[str, type]) -> None:
    """Register the tags of a union's kinds, in the order in which they are tried.

    ``"name=value"`` stands for a field with that value, ``"name"`` for a field that is present and not null;
    dots lead into objects.
    """
    tags = []
    for rule, kind in kinds.items():
        path, has_value, value = rule.partition("=")
        tags.append(Tag(tuple(path.split(".")), value if has_value else None, kind))
    _tags[union] = tuple(tags)


def is_tag(kind: type, wire: str) -> bool:
    """Check whether a field, by its name in JSON, names the kind of a record."""
    return any(tag.kind is kind and tag.path == (wire,) for tags in _tags.values() for tag in tags)


def tags_of(union: Any) -> tuple[Tag, ...]:
    """Return the tags of a registered union; empty for anything else."""
    return _tags.get(union, ())
