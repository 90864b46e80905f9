"""Converter of cattrs for aliases, foreign types and hooks.

It makes the models that msgspec cannot make.
"""

from __future__ import annotations

import enum
import types
import typing
from collections import abc
from collections.abc import Callable, Container, Mapping, Sequence
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import attrs
import msgspec

from chainapi.core.numbers import is_of, whole_of
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.decode_errors import fault_of_code, to_decode_error
from chainapi.models.exact_json import encode_json
from chainapi.models.native import has_decimals, json_decoder, misread, with_numbers
from chainapi.models.records import Record, with_unnamed
from chainapi.models.schema import fields_of, is_record, list_of, type_of

if TYPE_CHECKING:
    import cattrs

__all__ = ["check_cattrs", "converter", "is_hooked", "structure"]

_own_hooks: set[Any] = set()


@cache
def converter() -> cattrs.Converter:
    """Return the one cattrs converter, for structure hooks of your own.

    Register them before a model is first used. The converter is stricter than the default one: null is not a
    text, a text is not a list, 3.5 is not a whole number, true is not a number.
    """
    import cattrs.gen

    made = cattrs.Converter(structure_fallback_factory=_by_msgspec)
    for primitive, read in _SCALARS.items():
        made.register_structure_hook(primitive, _own(_scalar(primitive, read)))
    made.register_structure_hook(enum.Enum, _own(_member))
    made.register_structure_hook(bytes, _by_msgspec(bytes))

    def from_wire(cls: Any) -> Callable[[Any, Any], Any]:
        attrs.resolve_types(_class_of(cls))
        names: dict[str, Any] = {
            field.name: cattrs.gen.override(rename=field.wire) for field in fields_of(cls)
        }
        make = cattrs.gen.make_dict_structure_fn(cls, made, **names)
        return _own(_checked(dict, _with_extra(make) if issubclass(_class_of(cls), Record) else make))

    under_way = set[Any]()

    def next_hook(kind: Any) -> Callable[[Any, Any], Any]:
        """Return the hook beneath one of ours: that of cattrs, or of a user."""
        under_way.add(kind)
        try:
            return made.get_structure_hook(kind, cache_result=False)
        finally:
            under_way.discard(kind)

    def from_json(kind: Any) -> Callable[[Any, Any], Any]:
        return _own(_checked(_json_type(kind), next_hook(kind)))

    def named(kind: Any) -> Callable[[Any, Any], Any]:
        names, make = typing.get_type_hints(_class_of(kind)), next_hook(kind)
        return _own(_checked(dict, lambda value, _: make(_only(names, value), kind)))

    def nullable(kind: Any) -> Callable[[Any, Any], Any]:
        hook = next_hook(kind)
        if _is_of_cattrs(hook):  # it looks for the hook of the other type when it makes a value
            made.get_structure_hook(_nullable(kind))
        return hook

    def limited(kind: Any) -> Callable[[Any, Any], Any]:
        return _own(_limited(kind, made.get_structure_hook(kind.__origin__)))

    made.register_structure_hook_factory(attrs.has, from_wire)
    made.register_structure_hook_factory(_is_literal, _by_msgspec)
    made.register_structure_hook_factory(
        lambda kind: kind not in under_way and _json_type(kind) is not None, from_json
    )
    made.register_structure_hook_factory(
        lambda kind: kind not in under_way and typing.is_typeddict(_class_of(kind)), named
    )
    made.register_structure_hook_factory(
        lambda kind: kind not in under_way and _nullable(kind) is not None, nullable
    )
    made.register_structure_hook_factory(_has_limits, limited)
    return made


def _own(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    _own_hooks.add(hook)
    return hook


def is_hooked(kind: Any) -> bool:
    """Check whether a user has registered a hook for a class."""
    if not converter.cache_info().currsize or not isinstance(kind, type):
        return False
    import cattrs

    try:
        hook = converter().get_structure_hook(kind, cache_result=False)
    except (cattrs.StructureHandlerNotFoundError, NameError):  # no hook for it, or a name in it is undefined
        return False
    # Hooks of cattrs itself, such as those for enumerations, make the same values as msgspec.
    return hook not in _own_hooks and (attrs.has(kind) or not _is_of_cattrs(hook))


def _is_of_cattrs(hook: Any) -> bool:
    return (getattr(hook, "__module__", None) or "cattrs").startswith("cattrs")


def _by_msgspec(kind: Any) -> Callable[[Any, Any], Any]:
    """Make types without a hook: dates, decimals, UUIDs, Structs."""
    try:
        foreign = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except (TypeError, NotImplementedError):
        foreign = True
    if foreign:
        raise _no_hook(kind)
    if classes := misread(kind):
        raise _no_hook(kind, f", and msgspec reads {classes[0]!r} by other rules")
    decoder = json_decoder(kind, decimals=has_decimals(kind))
    # JSON again, because msgspec makes no float of a Decimal.
    return _own(lambda value, _: decoder.decode(encode_json(with_numbers(type_of(kind), value))))


def _no_hook(kind: Any, why: str = "") -> Exception:
    import cattrs

    message = f"{kind!r} has no structure hook{why}: register one with chainapi.models.converter()"
    return cattrs.StructureHandlerNotFoundError(message, kind)


def _scalar(primitive: type, read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the hook of a type of JSON, which is that of classes derived from it too."""

    def checked(value: Any, kind: Any) -> Any:
        if issubclass(kind, enum.Enum):
            return _member(value, kind)
        if (made := read(value)) is None:
            raise TypeError(f"Expected `{primitive.__name__}`, got `{type(value).__name__}`")
        return made if kind is primitive else kind(made)

    return checked


def _float(value: Any) -> float | None:
    if not is_of(value, (float, int, Decimal)):
        return None
    try:
        made = float(value)
    except OverflowError as error:  # a fault of the row: other errors are those of the model's code
        raise ValueError(str(error)) from None
    if not isfinite(made):
        raise ValueError("Number out of range")
    return made


_SCALARS: Mapping[type, Callable[[Any], Any]] = {
    int: whole_of,
    float: _float,
    str: lambda value: value if isinstance(value, str) else None,
    bool: lambda value: value if isinstance(value, bool) else None,
}


def _member(value: Any, kind: Any) -> Any:
    """Return the member of an enumeration; true is not 1, and 1.0 is not either."""
    made = kind(value)
    if type(made.value) is not type(value):
        raise TypeError(f"Expected `{type(made.value).__name__}`, got `{type(value).__name__}`")
    return made


def _class_of(kind: Any) -> Any:
    """Return the class of a generic type without its arguments."""
    return typing.get_origin(kind) or kind


def _with_extra(make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a hook of a record, which keeps the fields that it does not name."""
    return lambda value, kind: with_unnamed(make(value, kind), value)


def _json_type(kind: Any) -> type | None:
    """Return the type of the JSON value of a collection, list or dict.

    None for other types.
    """
    origin = _class_of(kind)
    if not isinstance(origin, type) or is_record(origin) or typing.is_typeddict(origin):
        return None
    if issubclass(origin, str | bytes | bytearray) or not issubclass(origin, abc.Iterable):
        return None
    return dict if issubclass(origin, abc.Mapping) else list


def _nullable(kind: Any) -> Any:
    """Return the one type beside None in a union; None for other types."""
    given = [one for one in typing.get_args(kind) if one is not types.NoneType]
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return given[0] if is_union and len(given) == 1 else None


def _checked(wanted: Any, make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a hook that takes values of one type of JSON alone.

    cattrs reads a text as a list.
    """

    def checked(value: Any, kind: Any) -> Any:
        if not isinstance(value, wanted):
            name = "array" if wanted is list else "object"
            raise TypeError(f"Expected `{name}`, got `{type(value).__name__}`")
        return make(value, kind)

    return checked


def _only(names: Container[str], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an object with some names.

    cattrs keeps the others too.
    """
    return {name: field for name, field in value.items() if name in names}


def _is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is Literal


def _has_limits(kind: Any) -> bool:
    """Check for limits that msgspec applies to this type.

    It refuses those of ``int | None``.
    """
    if not any(isinstance(note, msgspec.Meta) for note in getattr(kind, "__metadata__", ())):
        return False
    try:
        msgspec.json.Decoder(kind)
    except TypeError:
        return False
    return True


def _limited(kind: Any, make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a hook that checks the limits of a type after it has made the value."""

    def checked(value: Any, _: Any) -> Any:
        made = make(value, kind.__origin__)
        msgspec.convert(made, kind)
        return made

    return checked


def check_cattrs(model: Any) -> None:
    """Check that cattrs can make rows of a model, before a request is sent.

    Raises:
        ConfigurationError: it cannot.

    """
    import cattrs

    try:
        converter().get_structure_hook(model)
    except (cattrs.StructureHandlerNotFoundError, NameError) as error:
        raise ConfigurationError(f"model={model!r} cannot be made from JSON: {error}") from None


def structure(rows: Sequence[Any], model: Any) -> list[Any]:
    """Make objects of JSON values.

    Raises:
        DecodeError: one of them does not fit the model; its path begins with the number of the row.

    """
    import cattrs

    try:
        made: list[Any] = converter().structure(rows, list_of(model))
    except cattrs.BaseValidationError as error:
        reason, path = _first_fault(error)
        raise DecodeError(reason, path=f"${path}") from None
    return made


def _first_fault(error: Exception) -> tuple[str, str]:
    """Return the first fault that cattrs found, and its JSON path."""
    import cattrs

    path, name = "", ""
    while isinstance(error, cattrs.ClassValidationError | cattrs.IterableValidationError):
        kind = error.cl
        noted, bare = error.group_exceptions()
        if not noted:
            error = bare[0]
            continue
        error, note = noted[0]
        if isinstance(note, cattrs.IterableValidationNote):
            path += f"[{note.index!r}]"
            continue
        wires = {field.name: field.wire for field in fields_of(kind)}
        name = wires.get(note.name, note.name)
        path += f".{name}"
    if isinstance(error, KeyError) and error.args == (name,):
        return "missing", path
    if isinstance(error, msgspec.ValidationError | DecodeError):
        fault = to_decode_error(error)
        return fault.reason, path + fault.path[1:]
    if not isinstance(error, ValueError | TypeError | AttributeError):  # cattrs raises these itself
        return fault_of_code(error), path
    return str(error) or type(error).__name__, path
