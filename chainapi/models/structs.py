"""Private Structs, derived from attrs classes, into which msgspec decodes.

There are two kinds. A `wire_type` is read strictly, and a whole number may come as a string of digits. A
`quick_type` is read by a lax decoder, which makes whole numbers of strings without looking at each with a
pattern; what it would take for one by mistake (1.0, 1e3) it takes for a float, which the strict second step
refuses. All its other types are those that a lax decoder reads like a strict one, or `Any`, and null is not
among them, because it would find that in texts too.

`strict` Structs of our records refuse fields that the record does not name.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any

import attrs
import msgspec

from chainapi.models.hooks import is_hooked
from chainapi.models.refusals import DIGITS
from chainapi.models.unions import Tag, wire_name

__all__ = ["quick_struct", "quick_type", "wire_type"]

_WHOLE: Any = int | Annotated[str, msgspec.Meta(pattern=DIGITS)]
_UNIONS = (typing.Union, types.UnionType)


def quick_type(hint: Any, *, strict: bool) -> Any:
    """Return the quick type of a field of type `hint`; TypeError where there is none."""
    if hint is int:
        return int | float
    if hint in (bool, float, Any):
        return Any
    if hint in (str, Decimal):  # a lax decoder would take the sign of "-0" away
        return str
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated and arguments[0] is str:
        if any(isinstance(note, msgspec.Meta) for note in arguments[1:]):
            raise TypeError("constraints take the other way")
        return str
    if origin is typing.Literal and all(isinstance(value, str) for value in arguments):
        return str
    if origin is list:
        return types.GenericAlias(list, (quick_type(arguments[0], strict=strict),))
    if origin is dict and arguments[0] is str:
        return types.GenericAlias(dict, (str, quick_type(arguments[1], strict=strict)))
    if origin is None and attrs.has(hint):
        return quick_struct(hint, strict=strict)
    raise TypeError(f"{hint!r} takes the other way")


def quick_struct(model: type, tag: Tag | None = None, *, strict: bool) -> Any:
    """Derive the private Struct of the quick way; msgspec reads the field of a `tag`."""
    hints = typing.get_type_hints(model, include_extras=True)
    fields: list[Any] = []
    constants: dict[str, Any] = {}
    for attribute in attrs.fields(model):
        if tag is not None and wire_name(attribute.name) == tag.path[0]:
            constants[attribute.name] = tag.value
            continue
        hint = hints[attribute.name]
        arguments = set(typing.get_args(hint)) if typing.get_origin(hint) in _UNIONS else {hint}
        given = arguments - {type(None)}
        if len(given) != 1 or (given != arguments and attribute.default is not None):
            raise TypeError(f"{hint!r} takes the other way")
        quick = quick_type(*given, strict=strict)
        # A text stays a text. Elsewhere null is left to the other way, and only a missing field is None.
        wire = str | None if quick is str and given != arguments else quick
        fields.append((attribute.name, wire, _wire_field(attribute, hint)))
    if tag is None:
        return _struct(model, fields, strict)
    return _struct(model, fields, strict, namespace=constants, tag_field=tag.path[0], tag=tag.value)


def _struct(model: type, fields: list[Any], strict: bool, **more: Any) -> Any:
    # What is decoded has no cycles: the garbage collector need not look at it.
    return msgspec.defstruct(
        model.__name__, fields, kw_only=True, gc=False, forbid_unknown_fields=strict, **more
    )


def _struct_of(model: type, within: tuple[type, ...], strict: bool) -> Any:
    """Derive the private Struct of an attrs class; TypeError where cattrs must do it."""
    if model in within or is_hooked(model):
        raise TypeError(f"{model.__name__} needs cattrs")
    hints = typing.get_type_hints(model, include_extras=True)
    fields: list[Any] = []
    for attribute in attrs.fields(model):
        if not attribute.init or attribute.converter is not None or attribute.alias != attribute.name:
            raise TypeError(f"{model.__name__}.{attribute.name} needs cattrs")
        if attribute.name not in hints:
            raise TypeError(f"{model.__name__}.{attribute.name} has no annotation: it needs cattrs")
        hint = hints[attribute.name]
        fields.append(
            (attribute.name, wire_type(hint, (*within, model), strict=strict), _wire_field(attribute, hint))
        )
    return _struct(model, fields, strict)


def _wire_field(attribute: attrs.Attribute[Any], hint: Any) -> Any:
    name = wire_name(attribute.name)
    default: Any = attribute.default
    if default is attrs.NOTHING:
        return msgspec.field(name=name)
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        if default.takes_self:
            raise TypeError(f"the default of {attribute.name} needs cattrs")
        return msgspec.field(name=name, default_factory=default.factory)
    try:
        msgspec.convert(default, hint)
    except msgspec.ValidationError:  # `height: int = None`
        raise TypeError(f"the default of {attribute.name} is not of its type: it needs cattrs") from None
    return msgspec.field(name=name, default=default)


def wire_type(hint: Any, within: tuple[type, ...] = (), *, strict: bool = False) -> Any:
    """Return the type that msgspec decodes for a field; TypeError where cattrs must."""
    origin: Any = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint is int and not is_hooked(int):
        return _WHOLE
    if origin in (typing.Union, types.UnionType):
        return _wire_union(arguments, within, strict)
    if origin is Annotated:
        inner, *notes = arguments
        return hint if inner is int else Annotated[(wire_type(inner, within, strict=strict), *notes)]
    if attrs.has(origin or hint):
        if origin is not None:
            raise TypeError(f"{hint!r} is generic and needs cattrs")
        return _struct_of(hint, within, strict)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        # The keys of an object are texts of which msgspec makes numbers as it is.
        kept = 1 if issubclass(origin, Mapping) else 0
        wires = (
            entry if entry is ... else wire_type(entry, within, strict=strict) for entry in arguments[kept:]
        )
        return types.GenericAlias(origin, (*arguments[:kept], *wires))
    if is_hooked(hint) or _is_foreign(msgspec.inspect.type_info(hint)):
        raise TypeError(f"{hint!r} needs cattrs")
    return hint


def _wire_union(arguments: tuple[Any, ...], within: tuple[type, ...], strict: bool) -> Any:
    """Accept whole numbers of a union as strings, unless it has strings."""
    wires = tuple(
        argument if argument is int else wire_type(argument, within, strict=strict) for argument in arguments
    )
    plain: Any = typing.Union[wires]  # noqa: UP007 - made at run time
    if int not in arguments or str in arguments:  # a text that is no number would be refused
        return plain
    lenient: Any = plain | _WHOLE
    try:
        msgspec.json.Decoder(lenient)
    except TypeError:
        return plain
    return lenient


def _is_foreign(info: object) -> bool:
    """Check whether a type has one in it that msgspec cannot make by itself.

    Those are foreign types, and attrs classes, of which it does not know the names on the wire.
    """
    stack, seen = [info], set[int]()
    while stack:
        entry = stack.pop()
        if isinstance(entry, msgspec.inspect.CustomType):
            return True
        if isinstance(entry, msgspec.inspect.DataclassType) and attrs.has(entry.cls):
            return True
        if isinstance(entry, tuple):
            stack.extend(entry)
        elif isinstance(entry, msgspec.inspect.Type | msgspec.inspect.Field) and id(entry) not in seen:
            seen.add(id(entry))
            if not isinstance(entry, msgspec.inspect.StructType):  # msgspec's own: there is no other way
                stack.extend(getattr(entry, name) for name in entry.__struct_fields__)
    return False
