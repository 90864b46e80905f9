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
from chainapi.models.plain import dict_of, wire_of
from chainapi.models.schema import KEPT, Type, fields_of
from chainapi.models.shown import shown
from chainapi.models.unions import wire_name

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core.core_schema import CoreSchema

__all__ = ["NULL", "Record", "RecordMeta", "unnamed"]

NULL = msgspec.Raw(b"null")


class RecordMeta(msgspec.StructMeta):
    """Type of records, whose fields attrs knows too."""

    @property
    def __attrs_attrs__(self) -> Any:
        """Fields as attrs has them: `attrs.fields`, `asdict` and `evolve` read them here."""
        return _attributes(self)

    @property
    def __signature__(self) -> inspect.Signature:
        """Signature of the constructor, without the fields that a record does not name."""
        parameters = [one for one in super().__signature__.parameters.values() if one.name != "_extra"]
        return inspect.Signature(parameters)


@cache
def _attributes(kind: Any) -> Any:
    """Return the fields of a class of records, as attrs has them."""
    fields = {
        field.name: attrs.field(
            default=field.default, kw_only=True, repr=field.shown, type=field.type.annotation
        )
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

    Fields that it does not name are in `extra`, which is no field for comparisons, `repr` and attrs.
    """

    if TYPE_CHECKING:
        __attrs_attrs__: ClassVar[Any]
        _extra: ClassVar[Any]
    else:
        _extra: dict[str, Any] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name=KEPT)

        def __getattr__(self, name: str) -> NoReturn:
            likely = None if name.startswith("_") else _likely(type(self), name)
            hint = "" if likely is None else f"; did you mean {likely!r}?"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

        def __getitem__(self, name: object) -> NoReturn:
            likely = _likely(type(self), str(name)) or "NAME"
            raise TypeError(f"{type(self).__name__} is no dict: read row.{likely}, or row.to_dict()")

    @property
    def extra(self) -> Mapping[str, Any]:
        """Fields that the record does not name, as JSON values by their names in JSON."""
        return {} if self._extra is msgspec.UNSET else self._extra

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by their names in Python, records inside as dicts.

        The key of `from_` is ``from``. Numbers keep their types, and a missing field is None. `extra` is not
        included.
        """
        return dict_of(self)

    def to_wire(self) -> dict[str, Any]:
        """Return the record as a JSON object of the service, with the fields of `extra`.

        Amounts are strings, missing fields are left out. `chainapi.json` encodes it.
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
        """Yield names and values, as a model of Pydantic does."""
        return ((field.key, getattr(self, field.name)) for field in fields_of(type(self)))


def _likely(kind: Any, name: str) -> str | None:
    """Return the attribute that a name in JSON, or a misspelt one, may mean."""
    names = {field.wire: field.name for field in fields_of(kind)}
    return names.get(name) or closest(name, names.values())


@cache
def _reader(kind: type[Record]) -> Callable[[Any], Any]:
    """Return a reader of the values of all fields."""
    return attrgetter(*(name for name in kind.__struct_fields__ if name != "_extra"))


def _with_extra(record: Any, extra: Mapping[str, Any]) -> Any:
    """Give a new record fields that it does not name."""
    force_setattr(record, "_extra", extra)
    return record


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


def _is_record(kind: Type) -> bool:
    return kind.kind == "record" and issubclass(kind.hint, Record)
