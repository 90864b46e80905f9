"""Rows as plain values: by the names of Python, or as the service sends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from chainapi.errors import DecodeError
from chainapi.models.decode_errors import TOO_DEEP
from chainapi.models.exact_json import EXACT, exact_number
from chainapi.models.schema import Type, fields_of, is_record

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["dict_of", "is_pydantic_row", "to_dict", "to_wire", "wire_of"]

Convert: TypeAlias = Callable[[Any], Any]

_PLAIN = frozenset({str, int, float, bool, NoneType, Decimal})
_LISTS = (list, tuple, set, frozenset)


def to_dict(value: Any) -> Any:
    """Return rows as dicts by the names of Python, at any depth.

    Other values stay as they are.

    Raises:
        DecodeError: a value is nested too deeply.

    """
    try:
        return _to_dict(value)
    except RecursionError:
        raise DecodeError(TOO_DEEP) from None


def to_wire(value: Any) -> Any:
    """Return rows in the names and forms of the service, at any depth.

    Other values are returned as JSON values. A number with a fraction is a `Decimal` if a float would lose
    digits.

    Raises:
        DecodeError: a value is nested too deeply.
        TypeError: a value has a type that JSON cannot represent.

    """
    try:
        return _to_wire(value)
    except RecursionError:
        raise DecodeError(TOO_DEEP) from None


def _to_dict(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if (method := getattr(kind, "to_dict", None)) is not None:
        return method(value)
    if isinstance(value, _LISTS):
        return [_to_dict(entry) for entry in value]
    if isinstance(value, Mapping):
        return {name: _to_dict(entry) for name, entry in value.items()}
    if is_pydantic_row(kind):
        return value.model_dump()
    return dict_of(value) if is_record(kind) else value


def dict_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record by their names in Python."""
    kind: Any = type(record)
    return {key: to_dict(getattr(record, name)) for name, key in _keys(kind)}


@lru_cache(maxsize=512)
def _keys(kind: Any) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.key) for field in fields_of(kind))


def _to_wire(value: Any) -> Any:
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if (method := getattr(kind, "to_wire", None)) is not None:
        return method(value)
    if isinstance(value, _LISTS):
        return [_to_wire(entry) for entry in value]
    if isinstance(value, Mapping):
        return {_key(name): _to_wire(entry) for name, entry in value.items()}
    if is_pydantic_row(kind):
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(kind, "__pydantic_validator__"):
        return _pydantic(kind).dump_python(value, mode="json", by_alias=True)
    if kind is msgspec.Raw:
        return EXACT.decode(value)
    return wire_of(value) if is_record(kind) else msgspec.to_builtins(value)


def is_pydantic_row(kind: type) -> bool:
    """Check for a model of Pydantic, which has its own forms.

    A dataclass of Pydantic is a record. The check does not load Pydantic.
    """
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_dump")


@lru_cache(maxsize=512)
def _pydantic(kind: type) -> TypeAdapter[Any]:
    """Return what writes a dataclass of Pydantic, also one derived from it."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _key(name: Any) -> str:
    """Return a key as a string; a member of an enumeration by its value."""
    return name if type(name) is str else str(msgspec.to_builtins(name))


def wire_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record by their names in JSON, without missing ones."""
    kind: Any = type(record)
    made: dict[str, Any] = _tag(kind)
    for name, wire, may_miss, convert in _fields(kind):
        value = getattr(record, name)
        if value is msgspec.UNSET:
            continue
        if value is not None:
            made[wire] = value if convert is None else convert(value)
        elif not may_miss:
            made[wire] = None
    return made


def _tag(kind: Any) -> dict[str, Any]:
    """Return the field of a Struct that names its kind; empty for any other record."""
    config = getattr(kind, "__struct_config__", None)
    return {} if config is None or config.tag is None else {config.tag_field: config.tag}


@lru_cache(maxsize=512)
def _fields(kind: Any) -> tuple[tuple[str, str, bool, Convert | None], ...]:
    """Return of each field: name, JSON name, whether it may be missing, conversion."""
    return tuple(
        (field.name, field.wire, field.default is None, _conversion(field.type)) for field in fields_of(kind)
    )


def _conversion(kind: Type) -> Convert | None:
    """Return the conversion of values to JSON; None if they stay as they are."""
    if kind.kind in ("integer", "decimal") and kind.as_text:
        return str
    if kind.kind in ("boolean", "integer", "float", "text", "any"):
        return None
    if kind.kind == "decimal":
        return _number
    if kind.kind == "list" and (convert := _conversion(kind.item)) is not to_wire:
        return list if convert is None else lambda values: [convert(value) for value in values]
    return to_wire


def _number(value: Decimal) -> float | Decimal:
    return exact_number(str(value))
