"""Base class of records, which keeps fields that a record does not name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import attrs
import msgspec
from msgspec.structs import force_setattr

from chainapi._text import closest
from chainapi.models.decode_errors import DECODING_ERRORS, to_decode_error
from chainapi.models.exact_json import EXACT, decode_leniently
from chainapi.models.plain import dict_of, wire_of
from chainapi.models.schema import KEPT, Type, fields_of
from chainapi.models.shown import shown
from chainapi.models.unions import wire_name

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core.core_schema import CoreSchema

__all__ = ["NULL", "Record", "RecordMeta", "keep", "unnamed", "with_unnamed"]

NULL = msgspec.Raw(b"null")


class RecordMeta(msgspec.StructMeta):
    """Type of records, whose fields attrs knows too."""

    @property
    def __attrs_attrs__(self) -> Any:
        """Fields as attrs has them: `attrs.fields`, `asdict` and `evolve` read them here."""
        return _attributes(self)

    @property
    def __signature__(self) -> inspect.Signature:
        """Signature of the constructor, without what a record keeps of its JSON."""
        parameters = [one for one in super().__signature__.parameters.values() if one.name != "_extra"]
        return inspect.Signature(parameters)


@cache
def _attributes(kind: Any) -> Any:
    """Return the fields of a class of records, as attrs has them."""
    fields = {
        field.name: attrs.field(default=field.default, kw_only=True, repr=field.shown, type=field.hint)
        for field in fields_of(kind)
    }
    return attrs.fields(attrs.make_class(kind.__name__, fields))


class Record(
    msgspec.Struct,
    metaclass=RecordMeta,
    frozen=True,
    kw_only=True,
    rename=wire_name,
    forbid_unknown_fields=True,
    gc=False,  # rows of JSON have no cycles
):
    """Record of a service.

    If a response has fields that no record names, each record keeps its JSON until `extra` is read. The JSON
    is no field for comparisons, `repr` and attrs.
    """

    if TYPE_CHECKING:
        __attrs_attrs__: ClassVar[Any]
        _extra: ClassVar[Any]
    else:
        _extra: Any = msgspec.field(default=msgspec.UNSET, name=KEPT)

        def __getattr__(self, name: str) -> NoReturn:
            likely = None if name.startswith("_") else _likely(type(self), name)
            hint = "" if likely is None else f"; did you mean {likely!r}?"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

        def __getitem__(self, name: object) -> NoReturn:
            likely = _likely(type(self), str(name)) or "NAME"
            raise TypeError(f"{type(self).__name__} is no dict: read row.{likely}, or row.to_dict()")

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields that the record does not name, as JSON values by their names in JSON.

        Raises:
            DecodeError: one of them is nested too deeply.

        """
        kept = self._extra
        if isinstance(kept, bytes):
            kept = _unnamed(type(self), kept)
            force_setattr(self, "_extra", kept)
        return {} if kept is msgspec.UNSET else kept

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

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        if self._extra is other._extra:  # as a rule there is none, and msgspec compares three times as fast
            return msgspec.Struct.__eq__(self, other)
        read = _reader(type(self))
        return bool(read(self) == read(other))

    def __hash__(self) -> int:
        return hash((type(self), _reader(type(self))(self)))

    def __repr__(self) -> str:
        return shown(self)

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields that `rich` shows: by default it would show secrets too."""
        return [(field.name, getattr(self, field.name)) for field in fields_of(type(self)) if field.shown]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield names in Python and values, as a model of Pydantic does."""
        return ((field.name, getattr(self, field.name)) for field in fields_of(type(self)))


def _likely(kind: Any, name: str) -> str | None:
    """Return the attribute that a name in JSON, or a misspelt one, may mean."""
    names = {field.wire: field.name for field in fields_of(kind)}
    return names.get(name) or closest(name, names.values())


@cache
def _reader(kind: type[Record]) -> Callable[[Any], Any]:
    """Return a reader of the values of all fields."""
    return attrgetter(*(name for name in kind.__struct_fields__ if name != "_extra"))


def with_unnamed(record: Any, sent: Mapping[str, Any]) -> Any:
    """Return a record with the fields of its JSON object that it does not name."""
    extra = _further(type(record), sent)
    return _with_extra(record, extra) if extra else record


def _with_extra(record: Any, extra: bytes | Mapping[str, Any]) -> Any:
    """Give a new record the JSON that it keeps, or fields of it."""
    force_setattr(record, "_extra", extra)
    return record


def keep(value: Any, raw: bytes | msgspec.Raw) -> None:
    """Let the records in a new value keep their original JSON.

    Raises:
        MsgspecError, UnicodeError, RecursionError: the JSON does not fit one of them.

    """
    if isinstance(value, Record):
        _with_extra(value, bytes(raw))
        names, look = _records_in(type(value))
        if look is not None:
            found = look.decode(raw)
            for name in names:
                keep(getattr(value, name), getattr(found, name))
    elif type(value) in (list, tuple):
        for entry, its in zip(value, _LIST.decode(raw), strict=False):
            keep(entry, its)
    elif isinstance(value, dict):
        for name, its in _OBJECT.decode(raw).items():
            keep(value[name], its)


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
    if isinstance(value, Record):
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
    return kind.kind == "record" and issubclass(kind.hint, Record)


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
