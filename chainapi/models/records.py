"""Base class of records, which keeps fields that a record does not name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from chainapi.models.decode_errors import DECODING_ERRORS, to_decode_error
from chainapi.models.exact_json import EXACT, decode_leniently
from chainapi.models.plain import dict_of, wire_of
from chainapi.models.schema import Type, fields_of
from chainapi.models.shown import shown

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core.core_schema import CoreSchema

__all__ = ["NULL", "SET_EXTRA", "AnyRecord", "Record", "keep", "unnamed", "with_unnamed"]

NULL = msgspec.Raw(b"null")


class AnyRecord:
    """Record of a service, however its fields are stored.

    If a response has fields that no record names, each record keeps its JSON until `extra` is read. The JSON
    is not a field: comparisons, `repr` and `attrs.asdict` leave it out.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _extra: bytes | dict[str, Any]

        def _with_extra(self, extra: bytes | dict[str, Any]) -> AnyRecord:
            """Return the record with its JSON or further fields; maybe another object."""
            raise NotImplementedError

    @classmethod
    def _all_with_extra(cls, records: Sequence[Any], extras: Iterable[bytes]) -> list[Any]:
        """Return records of this class with their JSON; maybe other objects."""
        return [*map(cls._with_extra, records, extras)]

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields that the record does not name, as JSON values by their names in JSON.

        Raises:
            DecodeError: one of them is nested too deeply.

        """
        kept: bytes | dict[str, Any] | None = getattr(self, "_extra", None)
        if kept is None:
            return {}
        if isinstance(kept, bytes):
            kept = _unnamed(type(self), kept)
            SET_EXTRA(self, kept)
        return kept

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by their names in Python, records inside as dicts.

        Numbers keep their types, and a missing field is None. `extra` is not included.
        """
        return dict_of(self)

    def to_wire(self) -> dict[str, Any]:
        """Return the record as a JSON object of the service, with the fields of `extra`.

        Amounts are strings, missing fields are left out. `chainapi.json` encodes it.

        Raises:
            DecodeError: a field of `extra` is nested too deeply.

        """
        made = wire_of(self)
        return {**made, **extra} if (extra := self.extra) else made

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from chainapi.models.pydantic_record import record_schema

        return record_schema(cls, handler, _with_extra)

    def __repr__(self) -> str:
        return shown(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.__getstate__(), self.extra)


class Record(AnyRecord):
    """Record of a service in slots."""

    __slots__ = ("_extra",)

    def _with_extra(self, extra: bytes | dict[str, Any]) -> AnyRecord:
        SET_EXTRA(self, extra)
        return self


SET_EXTRA = Record.__dict__["_extra"].__set__  # records are frozen


def _restored(kind: Any, state: Any, extra: Mapping[str, Any]) -> Any:
    record = kind.__new__(kind)
    record.__setstate__(state)
    return _with_extra(record, extra) if extra else record


def with_unnamed(record: Any, sent: Mapping[str, Any]) -> Any:
    """Return a record with the fields of its JSON object that it does not name."""
    extra = _further(type(record), sent)
    return _with_extra(record, extra) if extra else record


def _with_extra(record: AnyRecord, extra: Any) -> AnyRecord:
    return record._with_extra(extra)  # noqa: SLF001 - of this module


def keep(rows: Sequence[Any], raws: Sequence[bytes | msgspec.Raw]) -> list[Any]:
    """Return records that keep their original JSON, and so do the records inside them.

    Raises:
        MsgspecError, UnicodeError, RecursionError: the JSON does not fit one of them.

    """
    kinds = {type(row) for row in rows}
    kind: Any = kinds.pop() if len(kinds) == 1 else object
    if issubclass(kind, AnyRecord) and _records_in(kind)[1] is None:
        records: list[Any] = kind._all_with_extra(rows, map(bytes, raws))  # noqa: SLF001 - of this module
        return records
    return [*map(_kept, rows, raws)]


def _kept(value: Any, raw: bytes | msgspec.Raw) -> Any:
    """Return a value whose records keep their JSON."""
    if isinstance(value, AnyRecord):
        kind: Any = type(value)
        record = _with_extra(value, bytes(raw))
        names, look = _records_in(kind)
        if look is not None:
            found = look.decode(raw)
            for name in names:
                object.__setattr__(record, name, _kept(getattr(value, name), getattr(found, name)))
        return record
    if type(value) in (list, tuple):
        return type(value)(map(_kept, value, _LIST.decode(raw)))
    if isinstance(value, dict):
        return {name: _kept(value[name], its) for name, its in _OBJECT.decode(raw).items()}
    return value


def unnamed(record: Any) -> dict[str, Any]:
    """Return the fields that a record and the records in it do not name.

    They are JSON values by their names in JSON. A record inside is an object with such fields alone; a list
    has an empty object for each record without any. The result is empty if there is no such field.
    """
    found = dict(record.extra)
    for field in fields_of(type(record)):
        if any(map(_is_record, field.type.parts())):
            within = _unnamed_within(getattr(record, field.name))
            if within:
                found[field.wire] = within
    return found


def _unnamed_within(value: Any) -> Any:
    """Return the unnamed fields in a value; None, or something empty, without any."""
    if isinstance(value, AnyRecord):
        return unnamed(value)
    if isinstance(value, list | tuple):
        entries = [_unnamed_within(entry) or {} for entry in value]
        return entries if any(entries) else None
    if isinstance(value, Mapping):
        return {name: within for name, entry in value.items() if (within := _unnamed_within(entry))}
    return None


_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


@cache
def _records_in(kind: Any) -> tuple[tuple[str, ...], msgspec.json.Decoder[Any] | None]:
    """Return the fields of a record that hold records, and a decoder of their JSON."""
    found = [field for field in fields_of(kind) if any(map(_is_record, field.type.parts()))]
    fields = [(field.name, msgspec.Raw, msgspec.field(name=field.wire, default=NULL)) for field in found]
    look = msgspec.json.Decoder(msgspec.defstruct("Look", fields)) if fields else None
    return tuple(field.name for field in found), look


def _is_record(kind: Type) -> bool:
    return kind.kind == "record" and issubclass(kind.hint, AnyRecord)


def _unnamed(kind: Any, raw: bytes) -> dict[str, Any]:
    try:
        return _further(kind, EXACT.decode(raw))
    except DECODING_ERRORS:
        pass
    try:
        fields = _OBJECT.decode(raw)
    except DECODING_ERRORS as error:
        raise to_decode_error(error) from None
    return {name: decode_leniently(bytes(value)) for name, value in _further(kind, fields).items()}


def _further(kind: Any, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON object that a record does not name."""
    names = _names(kind)
    return {} if sent.keys() <= names else {name: sent[name] for name in sent if name not in names}


@cache
def _names(kind: Any) -> frozenset[str]:
    """Return the names of the fields of a record in JSON."""
    return frozenset([field.wire for field in fields_of(kind)])
