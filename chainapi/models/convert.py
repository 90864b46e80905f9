"""From JSON values to the classes of a user: fast through msgspec where it can, else through cattrs.

A model is an attrs class whose fields are named as on the wire or as Python names them (`block_number` is
read from `blockNumber`). msgspec decodes into a private Struct with the names of the wire, derived from the
class once, and makes the objects from it; a whole number may come as a string. What msgspec cannot do
(converters, aliases, foreign types) goes through the one cattrs converter, where users register hooks for
their own types.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
from attrs import frozen

from chainapi.errors import DecodeError
from chainapi.models.metrics import MetricPoint

if TYPE_CHECKING:
    import cattrs

__all__ = ["RowType", "converter", "row_type", "wire_name"]

# Models of ours whose fields are on the wire as they are here: decoded without a detour.
_AS_ON_THE_WIRE: frozenset[type] = frozenset({MetricPoint})


@frozen
class RowType:
    """How rows are made: msgspec decodes each to `wire`, `finish` makes the objects of a list of them."""

    wire: Any
    finish: Callable[[list[Any]], list[Any]] | None = None


def wire_name(name: str) -> str:
    """Return the name on the wire of a field: `block_number` is `blockNumber`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest) if head else name


@lru_cache(maxsize=256)
def row_type(model: Any) -> RowType:
    """Return how to make rows of `model`; None stands for plain JSON values."""
    if model is None:
        return RowType(Any)
    if model in _AS_ON_THE_WIRE:
        return RowType(model)
    try:
        wire = _wire_type(model)
        msgspec.json.Decoder(list[wire])  # type: ignore[valid-type]
    except (TypeError, NameError):  # a type that msgspec cannot take, or an annotation it cannot resolve
        return RowType(Any, lambda rows: _structure(rows, model))
    if wire is model:
        return RowType(model)
    return RowType(wire, lambda rows: _convert(rows, model))


def _convert(rows: list[Any], model: Any) -> list[Any]:
    """Make the objects from private Structs; lax, because a whole number may have come as a string."""
    made: list[Any] = msgspec.convert(rows, list[model], from_attributes=True, strict=False)
    return made


@cache
def _struct_of(model: type) -> Any:
    """Derive the private Struct of an attrs class; TypeError where cattrs has to do it."""
    hints = typing.get_type_hints(model, include_extras=True)
    fields: list[Any] = []
    for attribute in attrs.fields(model):
        if not attribute.init or attribute.converter is not None or attribute.alias != attribute.name:
            raise TypeError(f"{model.__name__}.{attribute.name} needs cattrs")
        fields.append((attribute.name, _wire_type(hints[attribute.name]), _wire_field(attribute)))
    return msgspec.defstruct(model.__name__, fields, kw_only=True)


def _wire_field(attribute: attrs.Attribute[Any]) -> Any:
    name = wire_name(attribute.name)
    default: Any = attribute.default
    if default is attrs.NOTHING:
        return msgspec.field(name=name)
    if not isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return msgspec.field(name=name, default=default)
    if default.takes_self:
        raise TypeError(f"the default of {attribute.name} needs cattrs")
    return msgspec.field(name=name, default_factory=default.factory)


def _wire_type(hint: Any) -> Any:
    """Return the type that msgspec decodes for a field of type `hint`."""
    if hint is int:
        return int | str
    if isinstance(hint, type) and attrs.has(hint) and not typing.get_origin(hint):
        return _struct_of(hint)
    arguments = typing.get_args(hint)
    origin: Any = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(_wire_type(argument) for argument in arguments)]  # noqa: UP007
    if origin in (list, tuple, dict, set, frozenset) and arguments:
        return origin[tuple(argument if argument is ... else _wire_type(argument) for argument in arguments)]
    if isinstance(msgspec.inspect.type_info(hint), msgspec.inspect.CustomType):
        raise TypeError(f"{hint!r} needs cattrs")
    return hint


@cache
def converter() -> cattrs.Converter:
    """Return the one cattrs converter: register structure hooks on it for types of your own.

    It is stricter than a plain one: null is no text, 3.5 is no whole number, true is no number.
    """
    import cattrs.gen

    made = cattrs.Converter()
    for primitive, accepted in ((int, (int, str)), (float, (float, int)), (str, (str,)), (bool, (bool,))):
        made.register_structure_hook(primitive, _strict(primitive, accepted))

    def from_wire(cls: type) -> Callable[[Any, Any], Any]:
        names: dict[str, Any] = {
            a.name: cattrs.gen.override(rename=a.alias if a.alias != a.name else wire_name(a.name))
            for a in attrs.fields(cls)
        }
        return cattrs.gen.make_dict_structure_fn(cls, made, **names)

    made.register_structure_hook_factory(attrs.has, from_wire)
    return made


def _strict(primitive: type, accepted: tuple[type, ...]) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if type(value) not in accepted:
            raise TypeError(f"expected {primitive.__name__}, got {type(value).__name__}")
        return primitive(value)

    return structure


def _structure(rows: Sequence[Any], model: Any) -> list[Any]:
    import cattrs

    made: list[Any] = []
    for index, row in enumerate(rows):
        try:
            made.append(converter().structure(row, model))
        except cattrs.BaseValidationError as error:
            reason, _, path = cattrs.transform_error(error, path="$")[0].rpartition(" @ ")
            raise DecodeError(reason, path=f"$[{index}]{path.removeprefix('$')}") from None
        except (TypeError, ValueError, LookupError) as error:
            raise DecodeError(str(error) or type(error).__name__, path=f"$[{index}]") from None
    return made
