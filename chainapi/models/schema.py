"""Schema of models: fields of a record and their types, read from annotations.

The annotations of each class are read once. The decoder, the columns of exports, the parameters of routes,
the simulator and the command line read these descriptions; no other module walks annotations. A model is one
of our records, or a class of a user's: an attrs class, a dataclass or a msgspec Struct.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from keyword import iskeyword
from typing import Annotated, Any, Literal, TypeAlias

import attrs
import msgspec
from msgspec import Struct

from chainapi.models.timestamps import OptionalUTCDatetime, UTCDatetime
from chainapi.models.unions import Tag, tags_of, wire_name

__all__ = [
    "AS_TEXT",
    "REFUSED",
    "Field",
    "Float",
    "Int",
    "Kind",
    "Type",
    "fields_of",
    "is_amount",
    "is_record",
    "list_of",
    "row_classes",
    "type_of",
]

Kind: TypeAlias = Literal[
    "any",
    "boolean",
    "integer",
    "float",
    "decimal",
    "text",
    "literal",
    "enum",
    "list",
    "tuple",
    "mapping",
    "record",
    "union",
    "other",
]

_SCALARS: Mapping[Any, Kind] = {
    Any: "any",
    bool: "boolean",
    int: "integer",
    float: "float",
    Decimal: "decimal",
    str: "text",
}
_LISTS = frozenset(
    {list, tuple, set, frozenset, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable}
    | {abc.Set, abc.MutableSet}
)
_UNIONS = (typing.Union, types.UnionType)
_NOTHING = (types.NoneType, msgspec.UnsetType)

# Numbers of records. A decoder that takes a string for a number would also take 1.0 for a whole number, and
# round it if it is large, and "nan" for a float: constraints that no value meets refuse them.
REFUSED: Any = (
    Annotated[float, msgspec.Meta(ge=1e308, le=-1e308)],
    Annotated[str, msgspec.Meta(pattern="(?!)")],
)
if typing.TYPE_CHECKING:
    Int: TypeAlias = int
    Float: TypeAlias = float
else:
    Int = int | REFUSED[0]
    Float = float | REFUSED[1]

# Note of a number that the services send as a string: `Annotated[int, AS_TEXT]`.
AS_TEXT = "sent as a string"
NOT_SHOWN = "not shown"  # note of a field whose value no repr shows
KEPT = "\x7f"  # name, which no service sends, of the fields that a record does not name; it is no field


class Type(Struct, frozen=True):
    """Type of a value: an annotation without None, notes and names of its own.

    Types inside a type are read on access, so that a type may contain itself.

    Attributes:
        hint: the annotation that is left: ``int`` of ``Annotated[int, Meta(ge=0)] | None``.
        kind: ``any``, ``boolean``, ``integer``, ``float``, ``decimal``, ``text``; ``literal``, ``enum``;
            ``list`` (also a set, a sequence, ``tuple[X, ...]``), ``tuple`` with a type for each place,
            ``mapping``; ``record`` (`is_record`); ``union`` of several types; ``other``.
        optional: whether None is a value too.
        notes: the notes of ``Annotated``.
        choices: the listed values of a literal, an enumeration, or a string with a literal among its notes.

    """

    hint: Any
    kind: Kind
    optional: bool = False
    notes: tuple[object, ...] = ()
    choices: tuple[Any, ...] = ()

    def __str__(self) -> str:
        """Return the type in Python's notation, without the listed values of a string."""
        return self._name() + " | None" * self.optional

    @property
    def annotation(self) -> Any:
        """Annotation of the type in Python, without notes."""
        hint = self.hint
        if self.kind == "list":
            hint = types.GenericAlias(self.origin, (self.item.annotation, *[...] * (self.origin is tuple)))
        elif self.kind == "mapping":
            hint = types.GenericAlias(self.origin, (self.key.annotation, self.item.annotation))
        return typing.Optional[hint] if self.optional else hint  # noqa: UP045 - made at run time

    @property
    def origin(self) -> Any:
        """Class of a list, a tuple or a mapping without its arguments."""
        return typing.get_origin(self.hint)

    @property
    def tags(self) -> tuple[Tag, ...]:
        """Tags of one of our unions of records; empty for any other type."""
        return tags_of(self.hint) if self.kind == "union" else ()

    @property
    def as_text(self) -> bool:
        """Return whether the services send the number as a string."""
        return AS_TEXT in self.notes

    @property
    def key(self) -> Type:
        """Type of the keys of a mapping."""
        return type_of(typing.get_args(self.hint)[0])

    @property
    def item(self) -> Type:
        """Type of the entries of a list, or of the values of a mapping."""
        return type_of(typing.get_args(self.hint)[1 if self.kind == "mapping" else 0])

    @property
    def members(self) -> tuple[Type, ...]:
        """Types of a union, without None, or of a tuple; empty for any other type."""
        if self.kind not in ("union", "tuple"):
            return ()
        return tuple(type_of(hint) for hint in typing.get_args(self.hint) if hint is not types.NoneType)

    def parts(self) -> Iterator[Type]:
        """Yield this type and the types in it, but not the types of a record's fields."""
        yield self
        inner = [self.item] if self.kind in ("list", "mapping") else self.members
        for part in inner:
            yield from part.parts()

    def _name(self) -> str:
        match self.kind:
            case "list":
                return f"{self.origin.__name__}[{self.item}]"
            case "mapping":
                return f"{self.origin.__name__}[{self.key}, {self.item}]"
            case "tuple":
                return f"tuple[{', '.join(map(str, self.members))}]"
            case "union":
                return " | ".join(map(str, self.members))
            case "literal":
                return f"Literal[{', '.join(map(repr, self.choices))}]"
            case _:
                return str(self.hint) if self.origin is not None else getattr(self.hint, "__name__", "None")


def type_of(hint: Any) -> Type:
    """Return the type that a resolved annotation stands for."""
    optional, notes = False, list[object]()
    while True:
        arguments = typing.get_args(hint)
        if hasattr(hint, "__supertype__"):  # NewType
            hint = hint.__supertype__
        elif hasattr(hint, "__value__"):  # type X = ...
            hint = hint.__value__
        elif typing.get_origin(hint) is Annotated:
            hint, *more = arguments
            notes += more
        elif typing.get_origin(hint) in _UNIONS and (given := _given(arguments)) != arguments:
            optional = optional or not {*_NOTHING}.isdisjoint(arguments)
            hint = typing.Union[given]  # noqa: UP007 - made at run time
        else:
            break
    kind = _kind(hint)
    return Type(hint, kind, optional, tuple(notes), _choices(hint, kind, notes))


def _given(members: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types of a union without None, and without refused values."""
    return tuple(one for one in members if one not in (*_NOTHING, *REFUSED))


def list_of(item: Any) -> Any:
    """Return the type of a list."""
    return types.GenericAlias(list, (item,))


def _kind(hint: Any) -> Kind:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "literal"
    if origin in _UNIONS:
        return "union"
    if origin is not None:
        return _container(origin, arguments)
    if is_record(hint):
        return "record"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "enum"
    return _SCALARS.get(hint, "other") if isinstance(hint, type) or hint is Any else "other"


def _container(origin: Any, arguments: tuple[Any, ...]) -> Kind:
    if not arguments:  # `typing.List`, like `list`
        return "other"
    if origin is tuple and arguments[1:] != (...,):
        return "tuple"
    if origin in _LISTS:
        return "list"
    if isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2:
        return "mapping"
    return "other"


def _choices(hint: Any, kind: Kind, notes: Iterable[object]) -> tuple[Any, ...]:
    if kind == "literal":
        return typing.get_args(hint)
    if kind == "enum":
        return tuple(member.value for member in hint)
    listed = [note for note in notes if typing.get_origin(note) is Literal]
    return typing.get_args(listed[0]) if kind == "text" and listed else ()


class Field(Struct, frozen=True):
    """Field of a record.

    Attributes:
        name: its name in Python.
        wire: its name in JSON.
        type: its type; of the kind ``other`` without an annotation that can be resolved.
        default: its value where JSON lacks it, an `attrs.Factory` of it, or `attrs.NOTHING`.
        timestamp: whether it is Unix time in seconds, with a property beside it that is the datetime.
        shown: whether the repr of a record shows its value as it is.

    """

    name: str
    wire: str
    type: Type
    default: Any
    timestamp: bool
    shown: bool

    @property
    def key(self) -> str:
        """Key of the field in a dict: ``from`` of the attribute ``from_``."""
        return self.name[:-1] if iskeyword(self.name[:-1]) else self.name

    @property
    def required(self) -> bool:
        """Check whether the field is required in a row."""
        return self.default is attrs.NOTHING

    @property
    def amount(self) -> bool:
        """Check by the name whether the whole number often does not fit into 64 bits."""
        return self.type.kind == "integer" and not self.timestamp and is_amount(self.name)


def is_record(model: Any) -> bool:
    """Check whether a model is an attrs class, a dataclass or a msgspec Struct."""
    return isinstance(model, type) and (
        issubclass(model, msgspec.Struct) or attrs.has(model) or dataclasses.is_dataclass(model)
    )


def row_classes(model: Any) -> tuple[type, ...]:
    """Return the record classes that rows of a model can have.

    A union has several. A generic class with its arguments counts as that class. The result is empty for rows
    that are not records, such as strings and JSON values.
    """
    if tags := tags_of(model):
        return tuple(dict.fromkeys(tag.kind for tag in tags))
    kind = typing.get_origin(model) or model
    return (kind,) if is_record(kind) else ()


def fields_of(model: Any) -> tuple[Field, ...]:
    """Return the fields of a record in their order; empty for anything else.

    They are cached by class, unless an annotation cannot be resolved yet.
    """
    kind = typing.get_origin(model) or model
    if not is_record(kind):
        return ()
    try:
        return _resolved(kind)
    except NameError:
        return tuple(_declared(kind, {}))


@lru_cache(maxsize=512)
def _resolved(model: Any) -> tuple[Field, ...]:
    return tuple(_declared(model, typing.get_type_hints(model, include_extras=True)))


def _declared(model: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    unknown = Type(None, "other")
    timestamps = {
        value.field
        for kind in model.__mro__
        for value in vars(kind).values()
        if isinstance(value, UTCDatetime | OptionalUTCDatetime)
    }
    for name, wire, default, shown in _attributes(model):
        hint = hints.get(name)
        kind = unknown if hint is None else type_of(hint)
        shown = shown and NOT_SHOWN not in kind.notes
        yield Field(name, wire, kind, default, name in timestamps, shown)


def _attributes(model: Any) -> Iterator[tuple[str, str, Any, bool]]:
    """Yield each field's name, JSON name, default, and whether it is shown."""
    if issubclass(model, msgspec.Struct):  # attrs reads the fields of our records from here
        for entry in msgspec.structs.fields(model):
            if entry.encode_name != KEPT:
                default = _default(entry.default, entry.default_factory, msgspec.NODEFAULT)
                yield entry.name, entry.encode_name, default, True
    elif attrs.has(model):
        for attribute in attrs.fields(model):
            yield attribute.name, _wire(attribute), attribute.default, attribute.repr is True
    else:
        for field in dataclasses.fields(model):
            default = _default(field.default, field.default_factory, dataclasses.MISSING)
            yield field.name, field.name, default, field.repr


def _wire(attribute: attrs.Attribute[Any]) -> str:
    """Return the JSON name of an attrs field.

    An alias stays as it is; other names follow from the name in Python.
    """
    public = attribute.name.lstrip("_")
    return wire_name(public) if attribute.alias in (public, attribute.name) else str(attribute.alias)


def _default(value: Any, factory: Any, missing: object) -> Any:
    if value is not missing:
        return value
    return attrs.NOTHING if factory is missing else attrs.Factory(factory)


# Words of names. Token identifiers have 256 bits; other identifiers, counts, heights and gas fit into 64.
AMOUNTS = frozenset(
    {"amount", "balance", "burned", "capacity", "cost", "delegated", "fee", "fees", "price", "reward"}
    | {"rewards", "spent", "stake", "staked", "supply", "value", "volume", "wei", "weight"}
)
COUNTERS = frozenset({"bytes", "count", "decimals", "height", "id", "index", "nonce", "number", "timestamp"})


def is_amount(name: str) -> bool:
    """Check by the name of a whole number whether it often does not fit into 64 bits.

    So it is if one of the words of its name is an amount (`AMOUNTS`), unless the last word is a counter or
    an identifier (`COUNTERS`): `base_fee_per_gas` and `total_amount_staked` are amounts, `fee_count` is not.
    Identifiers of tokens (`token_id`) count as amounts: they have 256 bits.
    """
    words = name.strip("_").lower().split("_")
    if words[-2:] == ["token", "id"]:
        return True
    return words[-1] not in COUNTERS and not AMOUNTS.isdisjoint(words)
