"""Schemas of records for Pydantic, with the names and forms of the service."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from chainapi.models.pydantic_row import row_schema
from chainapi.models.schema import Field, Type, fields_of, list_of
from chainapi.models.unions import is_tag

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core.core_schema import CoreSchema

__all__ = ["record_schema"]

_WHOLE: Mapping[str, Any] = {"type": "string", "pattern": "^-?[0-9]+$"}


def record_schema(
    kind: Any, handler: GetCoreSchemaHandler, with_extra: Callable[[Any, Mapping[str, Any]], Any]
) -> CoreSchema:
    """Return the schema of a record: a row, or its fields by name.

    It has the names in JSON or in Python.

    Args:
        kind: class of the record.
        handler: returns the schemas of the fields.
        with_extra: returns a record with the fields that it does not name.

    """
    from pydantic_core import core_schema

    fields: dict[str, core_schema.TypedDictField] = {
        field.name: core_schema.typed_dict_field(
            handler.generate_schema(_tag(field) if is_tag(kind, field.wire) else _hint(field.type)),
            required=field.required,
            validation_alias=_names(field),
            serialization_alias=field.wire,
        )
        for field in fields_of(kind)
    }

    def make(values: dict[str, Any]) -> Any:
        record = kind(**{name: values.pop(name) for name in fields if name in values})
        return with_extra(record, values) if values else record

    given = core_schema.typed_dict_schema(fields, cls=kind, extra_behavior="allow")
    return row_schema(kind, core_schema.no_info_after_validator_function(make, given))


def _names(field: Field) -> list[list[str | int]]:
    return [[field.wire], [field.name]]


def _tag(field: Field) -> Any:
    """Return the annotation of a field that names the kind of its record."""
    return Literal[field.type.choices[0]] if len(field.type.choices) == 1 else _hint(field.type)


def _hint(kind: Type) -> Any:
    """Return the annotation that Pydantic has to read for a type."""
    hint = _given(kind)
    return typing.Optional[hint] if kind.optional else hint  # noqa: UP045 - made at run time


def _given(kind: Type) -> Any:
    """Return the annotation of a value that is not None."""
    from pydantic import WithJsonSchema

    match kind.kind:
        case "integer" if kind.as_text:
            return Annotated[int, WithJsonSchema({**_WHOLE})]
        case "decimal" if kind.as_text:
            return Annotated[Decimal, WithJsonSchema({"type": "string"})]
        case "decimal":
            return Annotated[Decimal, WithJsonSchema({"type": ["number", "string"]})]
        case "text" if kind.choices:  # the service may add values
            return Annotated[str, WithJsonSchema({"type": "string", "examples": [*kind.choices]})]
        case "list":
            return list_of(_hint(kind.item))
        case "mapping":
            return types.GenericAlias(dict, (str, _hint(kind.item)))
        case "union":
            return typing.Union[tuple(map(_hint, kind.members))]  # noqa: UP007 - made at run time
    return kind.hint
