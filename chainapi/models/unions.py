"""Rows of several kinds: what tells them apart, and what becomes of a kind that nobody knows yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

__all__ = ["Tag", "Unknown", "raw_field", "register_union", "tags_of", "wire_name"]


def wire_name(name: str) -> str:
    """Return the name on the wire of a field: `block_number` is `blockNumber`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest) if head else name


@frozen
class Unknown:
    """A row of a kind that this version does not know.

    `raw` has its fields as they came, and `extra` the same: none of them is named. Each can also be read as
    an attribute, named as Python names it.
    """

    raw: dict[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        """All fields, by their names in the answer."""
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
    """What a row of one kind has: a field at `path`, and the `value` of it unless that is None."""

    path: tuple[str, ...]
    value: str | None
    kind: type

    def fits(self, row: Any) -> bool:
        """Tell whether a row, as plain JSON, is of this kind."""
        for name in self.path:
            if not isinstance(row, dict) or name not in row:
                return False
            row = row[name]
        return row is not None if self.value is None else bool(row == self.value)


_tags: dict[Any, tuple[Tag, ...]] = {}


def register_union(union: Any, kinds: Mapping[str, type]) -> None:
    """Say how the kinds of a union are told apart, in the order in which they are looked for.

    ``"name=value"`` stands for a field of that value, ``"name"`` for a field that is there and not null; dots
    lead into objects.
    """
    tags = []
    for rule, kind in kinds.items():
        path, has_value, value = rule.partition("=")
        tags.append(Tag(tuple(path.split(".")), value if has_value else None, kind))
    _tags[union] = tuple(tags)


def tags_of(union: Any) -> tuple[Tag, ...]:
    """Return the tags of a union; none for what is no union of ours."""
    return _tags.get(union, ())
