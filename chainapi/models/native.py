"""Models that msgspec reads by itself: dataclasses, TypedDicts, Structs.

msgspec refuses a whole number that comes as a string of digits, and the services send many. Rows that it
refuses are read a second time: as JSON values, in which each string of a whole number becomes that number.

msgspec reads more strings as a `Decimal` than those of numbers: with underscores, white space, digits of
other scripts. `json_decoder` refuses them, for all models.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

import attrs
import msgspec

from chainapi._text import quoted
from chainapi.core.numbers import DECIMAL, is_decimal, whole_of
from chainapi.errors import DecodeError
from chainapi.models.decode_errors import guarded
from chainapi.models.exact_json import decode_leniently, exact_number
from chainapi.models.schema import Type, fields_of, is_record, list_of, type_of

__all__ = [
    "JSONDecoder",
    "NativeRows",
    "has_decimals",
    "has_native_numbers",
    "is_misread",
    "json_decoder",
    "misread",
    "with_numbers",
]

# Numbers with a point or an exponent keep their digits; the encoder writes them as they are.
_PLAIN: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=msgspec.Raw)
_encode = msgspec.json.Encoder().encode


class NativeRows:
    """Maker of rows of a model that msgspec reads by itself.

    Raises:
        TypeError: msgspec cannot read it.

    """

    def __init__(self, model: Any) -> None:
        several: Any = list_of(model)
        self._kind = type_of(several)
        self._decoder = json_decoder(several, decimals=has_decimals(model))

    def __call__(self, rows: list[Any]) -> list[Any]:
        """Make rows of their JSON, strings of whole numbers as numbers."""
        values = with_numbers(self._kind, _PLAIN.decode(b"[" + b",".join(rows) + b"]"))
        made: list[Any] = self._decoder.decode(_encode(values))
        return made


class JSONDecoder(Protocol):
    """Decoder of JSON to one type."""

    def decode(self, content: bytes | msgspec.Raw, /) -> Any:
        """Decode JSON.

        Raises:
            MsgspecError, UnicodeError, RecursionError, DecodeError: it does not fit the type.

        """


def json_decoder(hint: Any, *, decimals: bool, strict: bool = True) -> JSONDecoder:
    """Return a decoder of JSON to a type, numbers without rounding.

    With `decimals` the type may have them: strings that Python reads as a `Decimal`, although they are no
    decimals, are refused.
    """
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(hint, strict=strict, float_hook=exact_number)
    return _DecimalDecoder(decoder) if decimals else _Decoder(decoder)


class _Decoder:
    """Decoder of a type that may have code: any error of the code is one of the row."""

    def __init__(self, decoder: msgspec.json.Decoder[Any]) -> None:
        self._decoder = decoder

    def decode(self, content: bytes | msgspec.Raw, /) -> Any:
        return guarded(self._decoder.decode, content)


class _DecimalDecoder(_Decoder):
    """Decoder of a type with decimals."""

    def decode(self, content: bytes | msgspec.Raw, /) -> Any:
        made = super().decode(content)
        if _may_be_wrong(bytes(content)):
            # Fields that the type does not name may have strings that no decoder reads.
            _check_decimals(type_of(self._decoder.type), decode_leniently(bytes(content)), "$")
        return made


def _may_be_wrong(content: bytes) -> bool:
    """Check JSON for strings of other characters that Python reads as a `Decimal`.

    Some names and texts look like one. To check all values takes several times as long as to decode them.
    """
    # Any character may be escaped. Without the characters of decimals, a string begins with the others.
    return b"\\" in content or b'"_' in content.translate(_CLASSES, _DELETED)


_DELETED = DECIMAL + b"\n\r\t"  # line ends are outside of strings
_CLASSES = bytes(ord("_") if code == ord(" ") or code > 127 else code for code in range(256))


def _check_decimals(kind: Type, value: Any, path: str) -> None:
    """Check the strings of decimals in a JSON value of a type.

    Raises:
        DecodeError: one of them is no decimal.

    """
    if isinstance(value, str):
        kinds = {member.kind for member in kind.members} if kind.kind == "union" else {kind.kind}
        if "decimal" in kinds and not is_decimal(value):
            raise DecodeError(f"Expected `decimal`, got {quoted(value)}", path=path)
    elif isinstance(value, list):
        for number, (inner, entry) in enumerate(_entries(kind, value)):
            _check_decimals(inner, entry, f"{path}[{number}]")
    elif isinstance(value, dict):
        inner_of = _values(kind, value)
        for name, entry in value.items():
            _check_decimals(inner_of.get(name, _ANY), entry, f"{path}.{name}")


def has_native_numbers(model: Any) -> bool:
    """Check for a whole number in the classes that msgspec reads by itself.

    They are dataclasses, TypedDicts and Structs, at any depth of a model.
    """
    return any(
        _is_native(kind.hint) and any(part.kind == "integer" for part in _parts_of(kind.hint))
        for kind in _all_types(type_of(model))
    )


def has_decimals(model: Any) -> bool:
    """Check for a decimal in a model, at any depth."""
    return any(kind.kind == "decimal" for kind in _all_types(type_of(model)))


def misread(model: Any) -> tuple[Any, ...]:
    """Return the classes in a model, at any depth, that msgspec would read wrongly."""
    return tuple(kind.hint for kind in _all_types(type_of(model)) if is_misread(kind.hint))


def is_misread(hint: Any) -> bool:
    """Check for a class that msgspec would read from other fields of JSON.

    It takes those of an attrs class by their names in Python, and fields that a dataclass computes.
    """
    return attrs.has(hint) or not all(field.direct for field in fields_of(hint))


def with_numbers(kind: Type, value: Any) -> Any:
    """Return a JSON value of a type, with numbers for strings of whole numbers."""
    if isinstance(value, str):
        kinds = {member.kind for member in kind.members} if kind.kind == "union" else {kind.kind}
        may_be_whole = "integer" in kinds and "text" not in kinds and value not in kind.listed
        whole = whole_of(value) if may_be_whole else None
        return value if whole is None else whole
    if isinstance(value, list):
        return [with_numbers(inner, entry) for inner, entry in _entries(kind, value)]
    if not isinstance(value, dict):
        return value
    inner_of = _values(kind, value)
    return {name: with_numbers(inner_of.get(name, _ANY), entry) for name, entry in value.items()}


def _entries(kind: Type, values: list[Any]) -> Iterator[tuple[Type, Any]]:
    """Yield the entries of a list with their types."""
    if kind.kind == "union":
        kind = next((member for member in kind.members if member.kind in ("list", "tuple")), kind)
    if kind.kind == "list":
        yield from ((kind.item, value) for value in values)
        return
    inner = kind.members if kind.kind == "tuple" else tuple(_fields(kind.hint).values())
    for number, value in enumerate(values):
        yield inner[number] if number < len(inner) else _ANY, value


_ANY = type_of(Any)


def _values(kind: Type, value: Mapping[str, Any]) -> Mapping[str, Type]:
    """Return the types of the values of an object by their names, if known."""
    member = _member(kind, value)
    return dict.fromkeys(value, member.item) if member.kind == "mapping" else _fields(member.hint)


def _member(kind: Type, value: Mapping[str, Any]) -> Type:
    """Return the type of an object: in a union, the member that its tag names.

    Without a tag it is the only member that is an object.
    """
    if kind.kind != "union":
        return kind
    objects = [member for member in kind.members if _is_object(member)]
    for member in objects:
        config = getattr(member.hint, "__struct_config__", None)
        if config is not None and config.tag is not None and value.get(config.tag_field) == config.tag:
            return member
    return objects[0] if len(objects) == 1 else _ANY


def _is_object(kind: Type) -> bool:
    return kind.kind == "mapping" or bool(_fields(kind.hint))


def _is_native(hint: Any) -> bool:
    """Check for a class with fields that msgspec reads by itself."""
    kind = typing.get_origin(hint) or hint
    return typing.is_typeddict(kind) or (is_record(kind) and not attrs.has(kind))


def _parts_of(hint: Any) -> Iterator[Type]:
    for kind in _fields(hint).values():
        yield from kind.parts()


@lru_cache(maxsize=256)
def _all_types(kind: Type) -> tuple[Type, ...]:
    """Return a type and all types in it, those of the fields of records included."""
    found: dict[Type, None] = {}
    waiting = [kind]
    while waiting:
        for part in waiting.pop().parts():
            if part not in found:
                found[part] = None
                waiting += _fields(part.hint).values()
    return tuple(found)


def _fields(hint: Any) -> Mapping[str, Type]:
    """Return the types of the fields of a class by their names in JSON.

    Empty for anything else.
    """
    try:
        return _declared(hint)
    except (TypeError, NameError):  # not hashable; a name that is not defined yet
        return {}


@lru_cache(maxsize=512)
def _declared(hint: Any) -> Mapping[str, Type]:
    kind = typing.get_origin(hint) or hint
    arguments = dict(zip(getattr(kind, "__parameters__", ()), typing.get_args(hint), strict=False))
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind)
        return {name: type_of(_with_arguments(one, arguments)) for name, one in hints.items()}
    return {field.wire: type_of(_with_arguments(field.hint, arguments)) for field in fields_of(kind)}


def _with_arguments(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    """Return an annotation of a generic class with the arguments of its parameters."""
    if hint in arguments:
        return arguments[hint]
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(arguments.get(one, one) for one in parameters)] if parameters else hint
