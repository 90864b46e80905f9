"""Unions of records: tags of their kinds, and rows of unknown kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

__all__ = ["Tag", "Unknown", "raw_field", "register_union", "tags_of", "wire_name"]


def wire_name(name: str) -> str:
    """Return the name in JSON of a field: `block_number` is `blockNumber`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest) if head else name


@frozen
class Unknown:
    """Row of a kind that this version has no record for.

    `raw` is the row as a JSON object, and so is `extra`, because no record names its fields. Each field is an
    attribute too, by its name in Python.
    """

    raw: dict[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields of the row, all of them, by their names in JSON."""
        return self.raw

    def __getattr__(self, name: str) -> Any:
        return raw_field(self, name)


def raw_field(row: Any, name: str) -> Any:
    """Return the field of a raw row by the name of its attribute."""
    if name != "raw" and not name.startswith("__") and isinstance(row.raw, dict):
        wire = wire_name(name.removesuffix("_"))
        if wire in row.raw:
            return row.raw[wire]
    raise AttributeError(f"{type(row).__name__!r} has no attribute {name!r}")


@frozen(eq=False, repr=False)
class Tag:
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


def tags_of(union: Any) -> tuple[Tag, ...]:
    """Return the tags of a registered union; empty for anything else."""
    return _tags.get(union, ())
