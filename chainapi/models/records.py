"""The base of all records: what it keeps of an answer beyond the fields that the record names."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs
import msgspec

from chainapi.models.plain import PLAIN, read_loosely
from chainapi.models.refusals import REFUSED, refusal
from chainapi.models.unions import wire_name

__all__ = ["NULL", "Record", "keep"]

NULL = msgspec.Raw(b"null")


class Record:
    """A record of a service.

    The JSON of a record is kept where an answer has fields that no record names, until `extra` reads it;
    elsewhere nothing is. It is no field: it is in no comparison, `repr` or `attrs.asdict`.
    """

    __slots__ = ("_extra",)

    _extra: bytes | dict[str, Any]

    @property
    def extra(self) -> Mapping[str, Any]:
        """The fields that the record does not name: their names in the answer, their values as plain JSON.

        Raises:
            DecodeError: one of them is nested too deeply.

        """
        kept: bytes | dict[str, Any] | None = getattr(self, "_extra", None)
        if kept is None:
            return {}
        if isinstance(kept, bytes):
            kept = _unnamed(type(self), kept)
            _keep(self, kept)
        return kept

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.__getstate__(), self.extra)


def _restored(kind: Any, state: Any, extra: Mapping[str, Any]) -> Any:
    record = kind.__new__(kind)
    record.__setstate__(state)
    if extra:
        _keep(record, extra)
    return record


_keep = Record.__dict__["_extra"].__set__  # records are frozen


def keep(value: Any, raw: bytes | msgspec.Raw) -> None:
    """Let a record, and those in it, keep the JSON that they were made of.

    Raises:
        MsgspecError, UnicodeError, RecursionError: it is not the JSON of `value`.

    """
    match value:
        case Record():
            _keep(value, bytes(raw))
            kind: Any = type(value)
            names, look = _records_in(kind)
            if look is not None:
                found = look.decode(raw)
                for name in names:
                    keep(getattr(value, name), getattr(found, name))
        case list():
            for entry, its in zip(value, _LIST.decode(raw), strict=True):
                keep(entry, its)
        case dict():
            for name, its in _OBJECT.decode(raw).items():
                keep(value[name], its)


_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


@cache
def _records_in(kind: Any) -> tuple[tuple[str, ...], msgspec.json.Decoder[Any] | None]:
    """Return the fields of a record that hold records, and what reads their JSON."""
    hints = typing.get_type_hints(kind)
    names = tuple(field.name for field in attrs.fields(kind) if _has_records(hints[field.name]))
    fields = [(name, msgspec.Raw, msgspec.field(name=wire_name(name), default=NULL)) for name in names]
    return names, msgspec.json.Decoder(msgspec.defstruct("Look", fields)) if names else None


def _has_records(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, Record):
        return True
    return any(map(_has_records, typing.get_args(hint)))


@cache
def _names(kind: Any) -> frozenset[str]:
    return frozenset(wire_name(field.name) for field in attrs.fields(kind))


def _unnamed(kind: Any, raw: bytes) -> dict[str, Any]:
    names = _names(kind)
    try:
        return {name: value for name, value in PLAIN.decode(raw).items() if name not in names}
    except REFUSED:
        pass
    try:
        fields = _OBJECT.decode(raw)
    except REFUSED as error:
        raise refusal(error) from None
    return {name: read_loosely(bytes(value)) for name, value in fields.items() if name not in names}
