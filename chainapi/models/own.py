"""Classes of users as models: attrs classes, dataclasses, TypedDicts and Structs.

cattrs makes them of JSON values, and so it does with everything in them: hooks of users apply at any depth.
"""

from __future__ import annotations

import enum
import types
import typing
from collections import abc
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

import attrs
import msgspec

from chainapi.core.numbers import is_decimal, is_of, whole_of
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.decode_errors import fault_of_code, finish_one, missing_field, to_decode_error
from chainapi.models.direct import DirectDecoder, is_direct
from chainapi.models.exact_json import encode_json
from chainapi.models.schema import fields_of, is_record, list_of
from chainapi.models.unions import Unknown, tags_of

if TYPE_CHECKING:
    import cattrs

__all__ = ["check_model", "converter", "structure"]

_Hook: TypeAlias = Callable[[Any, Any], Any]


@cache
def converter() -> cattrs.Converter:
    """Return the one cattrs converter, for structure hooks of your own.

    Register them before a model is first used. The converter is stricter than the default one: null is not a
    text, a text is not a list, 3.5 is not a whole number, true is not a number.
    """
    import cattrs
    from cattrs.gen import make_mapping_structure_fn

    made = cattrs.Converter(structure_fallback_factory=_by_msgspec)
    for primitive, read in _SCALARS.items():
        made.register_structure_hook(primitive, _scalar(primitive, read))
    made.register_structure_hook(enum.Enum, _member)
    made.register_structure_hook(bytes, _by_msgspec(bytes))
    made.register_structure_hook(msgspec.Raw, lambda value, _: msgspec.Raw(encode_json(value)))
    under_way = set[Any]()

    def next_hook(kind: Any) -> _Hook:
        """Return the hook beneath one of ours: cattrs's, or a user's."""
        under_way.add(kind)
        try:
            return made.get_structure_hook(kind, cache_result=False)
        finally:
            under_way.discard(kind)

    def from_json(kind: Any) -> _Hook:
        if _class_of(kind) not in _DICTS:
            return _checked(_json_type(kind), next_hook(kind))
        # The hook that the converter finds would take the place of this one from the next class on.
        return _checked(dict, make_mapping_structure_fn(kind, made, dict))

    def named(kind: Any) -> _Hook:
        names, make = typing.get_type_hints(_class_of(kind)), next_hook(kind)
        return _checked(dict, lambda value, _: make(_only(names, value), kind))

    def union(kind: Any) -> _Hook:
        with suppress(cattrs.StructureHandlerNotFoundError):
            if not _is_of_ours(hook := next_hook(kind)):
                return hook
        return _of_union(made, kind)

    def limited(kind: Any) -> _Hook:
        return _limited(kind, made.get_structure_hook(kind.__origin__))

    factories: Sequence[tuple[Callable[[Any], bool], Callable[[Any], _Hook]]] = (
        (_is_class, lambda kind: _of_class(made, kind)),
        (lambda kind: typing.get_origin(kind) is Literal, _by_msgspec),
        (lambda kind: kind not in under_way and _json_type(kind) is not None, from_json),
        (lambda kind: kind not in under_way and typing.is_typeddict(_class_of(kind)), named),
        (lambda kind: kind not in under_way and _is_union(kind), union),
        (_has_limits, limited),
    )
    for fits, factory in factories:
        made.register_structure_hook_factory(fits, factory)
    return made


_DICTS = (dict, abc.Mapping, abc.MutableMapping)


def _is_class(kind: Any) -> bool:
    return is_record(_class_of(kind))


def _of_class(made: cattrs.Converter, kind: Any) -> _Hook:
    """Return the hook of a class with fields, by their names in JSON."""
    from cattrs.gen import make_dict_structure_fn, override

    cls = _class_of(kind)
    if is_direct(cls):
        return _checked(dict, _of_record(cls))
    if issubclass(cls, msgspec.Struct):
        return _of_struct(made, kind)
    if attrs.has(cls):
        attrs.resolve_types(cls)
    options: dict[str, Any] = {field.name: override(rename=field.wire) for field in fields_of(cls)}
    return _checked(dict, make_dict_structure_fn(kind, made, **options))


def _of_record(record: Any) -> _Hook:
    decoder = DirectDecoder(record, list_of)
    return lambda value, _: finish_one(lambda values: decoder.several(encode_json(values)), value)


def _of_struct(made: cattrs.Converter, kind: Any) -> _Hook:
    """Return the hook of a Struct: cattrs reads the fields, msgspec checks them."""
    from cattrs.gen import make_dict_structure_fn

    struct = _class_of(kind)
    config, parameters = struct.__struct_config__, getattr(struct, "__parameters__", ())
    fields = {
        field.name: attrs.field(
            default=field.default, kw_only=True, type=field.type.annotation, alias=field.wire
        )
        for field in fields_of(struct)
    }
    msgspec.json.Decoder(kind)  # raises an error for types that msgspec cannot check
    generic: Any = Generic
    alike: Any = attrs.make_class(struct.__name__, fields, bases=(generic[parameters],) if parameters else ())
    alike.__struct__ = struct
    alike = alike[typing.get_args(kind)] if parameters and struct is not kind else alike
    read = make_dict_structure_fn(
        alike, made, _cattrs_use_alias=True, _cattrs_forbid_extra_keys=config.forbid_unknown_fields
    )

    listed = [one.name for one in fields_of(struct) if any(part.kind == "enum" for part in one.type.parts())]

    def make(value: Any, _: Any) -> Any:
        if config.tag is not None and value.get(config.tag_field, config.tag) != config.tag:
            raise ValueError(f"Invalid value {value[config.tag_field]!r}")
        found = read(value, alike)
        for name in listed:  # msgspec takes the values of members, and not all members
            setattr(found, name, msgspec.to_builtins(getattr(found, name)))
        return msgspec.convert(found, kind, from_attributes=True)

    return _checked(dict, make)


def _is_of_ours(hook: Any) -> bool:
    """Check for a hook of cattrs or of this package, and of no user."""
    return (getattr(hook, "__module__", None) or "cattrs").startswith(("cattrs", "chainapi"))


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _of_union(made: cattrs.Converter, kind: Any) -> _Hook:
    """Return the hook of a union: the first of its types that takes a value reads it."""
    members = [one for one in typing.get_args(kind) if one not in (types.NoneType, msgspec.UnsetType)]
    nullable, tags = types.NoneType in typing.get_args(kind), tags_of(kind)
    hooks = [(one, made.get_structure_hook(one)) for one in members if one is not Unknown]

    def chosen(value: Any) -> Sequence[tuple[Any, _Hook]]:
        if tags:
            found = next((tag.kind for tag in tags if tag.fits(value)), None)
            return [(one, hook) for one, hook in hooks if one is found]
        # A string is a number only if no other type takes it.
        return sorted(hooks, key=lambda hook: (hook[0] is not type(value), hook[0] in _NUMBERS))

    unknown = _checked(dict, lambda value, _: Unknown(value))

    def read(value: Any, _: Any) -> Any:
        if value is None and nullable:
            return None
        faults = list[Exception]()
        for one, hook in chosen(value):
            try:
                return hook(value, one)
            except Exception as fault:  # noqa: BLE001 - code of users
                faults.append(fault)
        if not faults:  # of an unknown kind
            return unknown(value, Unknown)
        raise next((one for one in faults if isinstance(one, ExceptionGroup)), faults[0])

    return read


def _by_msgspec(kind: Any) -> _Hook:
    """Make types without a hook: literals, dates, UUIDs."""
    import cattrs

    try:
        foreign = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    except (TypeError, NotImplementedError):
        foreign = True
    if foreign:
        message = f"{kind!r} has no structure hook: register one with chainapi.models.converter()"
        raise cattrs.StructureHandlerNotFoundError(message, kind)
    return lambda value, _: msgspec.convert(value, kind)


def _scalar(primitive: type, read: Callable[[Any], Any]) -> _Hook:
    """Return the hook of a type of JSON, which derived classes have too."""

    def checked(value: Any, kind: Any) -> Any:
        if issubclass(kind, enum.Enum):
            return _member(value, kind)
        if (made := read(value)) is None:
            raise TypeError(f"Expected `{primitive.__name__.lower()}`, got `{type(value).__name__}`")
        return made if kind is primitive else kind(made)

    return checked


_NUMBERS = (int, float, Decimal)


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, str) and not is_decimal(value):
        return None
    try:
        return Decimal(str(value)) if is_of(value, (str, int, float, Decimal)) else None
    except InvalidOperation:
        return None


def _float(value: Any) -> float | None:
    if not is_of(value, (float, int, Decimal)):
        return None
    try:
        made = float(value)
    except OverflowError as error:  # a fault of the row: the model's code raised any other error
        raise ValueError(str(error)) from None
    if not isfinite(made):
        raise ValueError("Number out of range")
    return made


_SCALARS: Mapping[type, Callable[[Any], Any]] = {
    int: whole_of,
    float: _float,
    str: lambda value: value if isinstance(value, str) else None,
    bool: lambda value: value if isinstance(value, bool) else None,
    Decimal: _decimal,
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


def _has_limits(kind: Any) -> bool:
    """Check for limits that msgspec applies to this type.

    It refuses the values of ``int | None``.
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


def check_model(model: Any) -> None:
    """Check that rows of a model can be made, before a request is sent.

    Raises:
        ConfigurationError: it cannot.

    """
    import cattrs

    try:
        converter().get_structure_hook(model)
    except (cattrs.StructureHandlerNotFoundError, NameError, TypeError, NotImplementedError) as error:
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
        kind = getattr(error.cl, "__struct__", error.cl)
        noted, bare = error.group_exceptions()
        if not noted:
            error = bare[0]
            continue
        error, note = noted[0]
        if isinstance(note, cattrs.IterableValidationNote):
            path += f"[{note.index}]" if isinstance(note.index, int) else f".{note.index}"
            continue
        wires = {field.name: field.wire for field in fields_of(kind)}
        name = wires.get(note.name, note.name)
        path += f".{name}"
    if isinstance(error, KeyError) and error.args == (name,):
        return missing_field(name), path
    if isinstance(error, MemoryError):
        raise error
    if isinstance(error, msgspec.ValidationError | DecodeError):
        fault = to_decode_error(error)
        return fault.reason, path + fault.path[1:]
    if not isinstance(
        error, ValueError | TypeError | AttributeError | cattrs.ForbiddenExtraKeysError
    ):  # cattrs raises these itself
        return fault_of_code(error), path
    return str(error) or type(error).__name__, path
