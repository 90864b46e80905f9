"""Classes of a user's, of each kind, with the same fields."""

from __future__ import annotations

import copy
from dataclasses import field, make_dataclass
from functools import partial
from typing import Any, NotRequired, TypedDict

import attrs
import msgspec
from pydantic import ConfigDict, create_model
from pydantic.alias_generators import to_camel

__all__ = ["ALL_KINDS", "KINDS", "class_of", "read"]

KINDS = ("attrs class", "attrs class with a converter", "dataclass", "TypedDict", "Struct")
ALL_KINDS = (*KINDS, "Pydantic class")  # which Pydantic itself reads, by rules of its own


def class_of(kind: str, /, *, camel: bool = True, **fields: Any) -> Any:
    """Return a class with these fields, whose names in JSON are in camel case.

    A field is a type, or a pair of type and default.
    Dataclasses and TypedDicts have the names of JSON; without `camel` all but attrs classes read snake case.
    """
    pairs = {name: one if isinstance(one, tuple) else (one, ...) for name, one in fields.items()}
    named = {to_camel(name) if camel else name: pair for name, pair in pairs.items()}
    match kind:
        case "dataclass":
            return make_dataclass("Row", [(name, *_default(*pair)) for name, pair in named.items()])
        case "TypedDict":
            hints = {
                name: hint if default is ... else NotRequired[hint] for name, (hint, default) in named.items()
            }
            return _typed_dict("Row", hints)
        case "Struct":
            several = [
                (name, hint, *(() if default is ... else (default,)))
                for name, (hint, default) in pairs.items()
            ]
            return msgspec.defstruct("Row", several, rename="camel" if camel else None)
        case "Pydantic class":
            config = ConfigDict(alias_generator=to_camel if camel else None)
            return _create_model("Row", __config__=config, **pairs)
    made = {
        name: attrs.field(type=hint, default=_attrs_default(default))
        for name, (hint, default) in pairs.items()
    }
    if kind == "attrs class with a converter":
        made["beside"] = attrs.field(type=int, default=0, converter=int)
    return attrs.make_class("Row", made, frozen=True)


_typed_dict: Any = TypedDict  # type checkers want a literal mapping
_create_model: Any = create_model


def _attrs_default(default: Any) -> Any:
    if isinstance(default, list | dict):
        return attrs.Factory(partial(copy.copy, default))
    return attrs.NOTHING if default is ... else default


def _default(hint: Any, default: Any) -> tuple[Any, ...]:
    return (hint,) if default is ... else (hint, field(default_factory=partial(copy.copy, default)))


def read(row: Any, name: str) -> Any:
    """Return a field of a row of any class, by its name in snake case."""
    for one in (name, to_camel(name)):
        if isinstance(row, dict) and one in row:
            return row[one]
        if hasattr(row, one):
            return getattr(row, one)
    raise AttributeError(name)
