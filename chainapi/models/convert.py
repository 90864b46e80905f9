"""Row types of models: by msgspec if it can make the model, else by cattrs.

A model is an attrs class whose fields are named as on the wire or as Python names them (`block_number` is
read from `blockNumber`). msgspec decodes into a private Struct with the names of the wire, derived from the
class once, and makes the objects from it; a whole number may come as a string of digits. Models that msgspec
cannot make (converters, aliases, foreign types, recursion) go through the one cattrs converter. Users add
hooks for their own types to it. Dataclasses, TypedDicts, Structs and Pydantic classes are read by their own
names.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import msgspec

from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.decode_errors import DECODING_ERRORS, guarded, to_decode_error
from chainapi.models.exact_json import exact_number
from chainapi.models.finite import decimal_texts, finite
from chainapi.models.hooks import check_cattrs, structure
from chainapi.models.in_place import in_place, taking_class
from chainapi.models.kinds import KindReader, grouped
from chainapi.models.metrics import MetricPoint
from chainapi.models.native import NativeRows, has_decimals, has_native_numbers, misread
from chainapi.models.pydantic_model import PydanticRows, is_pydantic
from chainapi.models.records import Record, RecordMeta
from chainapi.models.row_type import (
    FastDecoder,
    FastPath,
    Finish,
    Maker,
    RowType,
    decoder_of,
    finish_one,
    joined,
)
from chainapi.models.schema import fields_of, list_of, row_classes
from chainapi.models.structs import direct_type, fast_struct, fast_type, wire_type
from chainapi.models.unions import Tag, Unknown, tags_of, wire_name

__all__ = ["fast_path", "row_type"]

MakerOf: TypeAlias = Callable[[Any], Maker]

# Records with the same names in JSON and in Python, whose numbers never come as strings: msgspec decodes them
# directly.
_AS_ON_THE_WIRE: frozenset[type] = frozenset({MetricPoint})


def row_type(model: Any, *, strict: bool = False) -> RowType:
    """Return the row type of a model; None stands for JSON values.

    With `strict`, rows of our records are refused if they have fields that the records do not name.

    Raises:
        ConfigurationError: the model cannot be made from JSON; the message names what is missing.

    """
    try:
        return _row_type(model, strict and _names_fields(model))
    except TypeError as error:  # not even hashable
        raise ConfigurationError(
            f"model={model!r} is not a class that rows can be decoded into: {error}"
        ) from None


def _names_fields(model: Any) -> bool:
    """Check that all rows of a model are records of this package.

    They keep fields that they do not name.
    """
    classes = row_classes(model)
    return bool(classes) and all(issubclass(kind, Record) for kind in classes)


@lru_cache(maxsize=256)
def _row_type(model: Any, strict: bool) -> RowType:
    if model is None:
        return RowType(Any)
    if model in _AS_ON_THE_WIRE:
        return RowType(model) if strict else RowType(_lenient(model), taking_class(model))
    if tags := tags_of(model):
        return RowType(msgspec.Raw, _Union(tags, strict), _fast_union(tags, strict, _fast_maker))
    if is_pydantic(model):
        return RowType(msgspec.Raw, PydanticRows(model))
    native = has_native_numbers(model)
    try:
        wire = _checked_wire(model, strict, native)
    except (TypeError, NameError, ValueError, NotImplementedError):
        # msgspec cannot take a type, a name, a pair of names, or a number of more than 64 bits in a type.
        check_cattrs(model)
        return RowType(Any, finite(model, lambda rows: structure(rows, model)))
    if native:
        fast = FastPath(model, finite(model, list), lax=False)
        return RowType(msgspec.Raw, finite(model, NativeRows(model)), fast, has_decimals(model))
    if wire is model:
        return RowType(model, finite(model), decimals=has_decimals(model))
    finish = finite(model, partial(_convert, model=model))
    return RowType(wire, finish, _fast_path(model, strict, _fast_maker), has_decimals(model))


def _lenient(model: Any) -> Any:
    """Return a Struct with the fields of another, which accepts further fields."""
    fields = [(field.name, field.hint, msgspec.field(name=field.wire)) for field in fields_of(model)]
    return in_place(model, fields, strict=False)


def _checked_wire(model: Any, strict: bool, native: bool) -> Any:
    """Return the type that msgspec decodes.

    Raises TypeError if only cattrs can make the model.
    """
    if native and misread(model):
        raise TypeError("msgspec alone does not read all classes in the model")
    wire = wire_type(model, strict=strict)
    msgspec.json.Decoder(list_of(wire))
    msgspec.convert([], list_of(model), from_attributes=True)
    return wire


def fast_path(model: Any, maker_of: MakerOf, *, strict: bool = False) -> FastPath | None:
    """Return the fast path of a model with other makers of rows; None without one.

    Args:
        model: the model.
        maker_of: returns the maker of the rows of a class.
        strict: as in `row_type`.

    """
    strict = strict and _names_fields(model)
    if tags := tags_of(model):
        return _fast_union(tags, strict, maker_of) or _fast_groups(tags, strict, maker_of)
    return None if row_type(model, strict=strict).fast is None else _fast_path(model, strict, maker_of)


def _fast_path(model: Any, strict: bool, maker_of: MakerOf) -> FastPath | None:
    """Return the fast path to rows of a class; None if it has none."""
    maker = maker_of(model)
    try:
        return _direct_path(model, strict, maker.struct)
    except TypeError:
        pass
    try:
        wire = fast_type(model, strict=strict)
        msgspec.json.Decoder(list_of(wire), strict=False)
    except TypeError:
        return None
    return FastPath(
        wire, decimal_texts(model, maker.finish), partial(fast_type, model, strict=strict, nulls=True)
    )


def _direct_path(model: Any, strict: bool, struct: Any) -> FastPath:
    """Return the fast path in one step; TypeError if there has to be a second."""
    if struct is None:
        raise TypeError(f"{model!r} is no Struct")
    wire = direct_type(struct, model, strict=strict)
    return FastPath(
        wire, taking_class(struct), partial(direct_type, struct, model, strict=strict, nulls=True)
    )


def _fast_maker(model: Any) -> Maker:
    convert = partial(msgspec.convert, type=list_of(model), from_attributes=True)
    return Maker(partial(guarded, convert), model if isinstance(model, RecordMeta) else None)


def _fast_union(tags: Sequence[Tag], strict: bool, maker_of: MakerOf) -> FastPath | None:
    """Return the fast path to rows of a union if one field names the kind of each row."""
    if len({tag.path for tag in tags}) > 1 or len(tags[0].path) > 1 or None in {tag.value for tag in tags}:
        return None
    if any(row_type(tag.kind, strict=strict).fast is None for tag in tags):
        return None
    makers: dict[Any, Finish] = {}

    def wire(*, nulls: bool) -> Any:
        kinds = {fast_struct(tag.kind, tag, strict=strict, nulls=nulls): tag.kind for tag in tags}
        makers.update({struct: decimal_texts(kind, maker_of(kind).finish) for struct, kind in kinds.items()})
        return typing.Union[tuple(kinds)]  # noqa: UP007 - made at run time

    def finish(rows: list[Any]) -> list[Any]:
        return grouped(rows, map(type, rows), lambda kind, several: makers[kind](several))

    return FastPath(wire(nulls=False), finish, lambda: wire(nulls=True))


def _fast_groups(tags: Sequence[Tag], strict: bool, maker_of: MakerOf) -> FastPath | None:
    """Return the fast path to rows of any union: each kind is decoded by itself."""
    kinds_of = KindReader(tags)
    decoders = dict[type, FastDecoder]()
    for kind in {tag.kind for tag in tags}:
        fast = fast_path(kind, maker_of, strict=strict)
        if fast is None:
            return None
        decoders[kind] = FastDecoder(row_type(kind, strict=strict), fast, list_of)

    def of(kind: type, raws: list[Any]) -> list[Any]:
        if kind not in decoders:
            raise DecodeError("a row of an unknown kind is not on the fast path")
        fast = decoders[kind]
        return fast.finish(fast.decode(joined(raws)))

    return FastPath(msgspec.Raw, lambda raws: grouped(raws, kinds_of(raws), of), lax=False)


def _convert(rows: list[Any], model: Any) -> list[Any]:
    """Make objects from Structs in lax mode.

    A whole number may be a string in the JSON.
    """
    convert = partial(msgspec.convert, type=list_of(model), from_attributes=True, strict=False)
    try:
        made: list[Any] = guarded(convert, rows)
    except msgspec.ValidationError as error:
        fault = to_decode_error(error)
        # The fields of a Struct have the names of Python.
        path = re.sub(r"(?<=\.)\w+", lambda name: wire_name(name[0]), fault.path)
        raise DecodeError(fault.reason, path=path) from None
    return made


class _Union:
    """Maker of the rows of a union.

    It reads the kind of each row, then makes the rows of each kind together.
    """

    def __init__(self, tags: Sequence[Tag], strict: bool) -> None:
        self._kinds = KindReader(tags)
        self._strict = strict

    def __call__(self, rows: list[Any]) -> list[Any]:
        """Make the rows; the path of a fault has the number of its row."""
        try:
            return self._make(rows)
        except DECODING_ERRORS:
            return [finish_one(self._make, row, f"$[{number}]") for number, row in enumerate(rows)]

    def _make(self, rows: list[Any]) -> list[Any]:
        return grouped(rows, self._kinds(rows), self._of)

    def _of(self, kind: type, raws: list[Any]) -> list[Any]:
        if kind is Unknown:
            return [Unknown(_OBJECT.decode(raw)) for raw in raws]
        return decoder_of(row_type(kind, strict=self._strict)).several(raws)


_OBJECT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number)
