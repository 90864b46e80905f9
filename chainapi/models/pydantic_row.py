"""Schemas of rows for Pydantic; no other code loads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreSchema, SerializationInfo

__all__ = ["raw_schema", "row_schema"]


def raw_schema(kind: Any, make: Callable[[dict[str, Any]], Any] | None) -> CoreSchema:
    """Return the schema of rows without a record.

    `make` makes them of JSON objects; None for rows that cannot be made of JSON.
    """
    from pydantic_core import core_schema

    if make is None:
        refuse = core_schema.no_info_plain_validator_function(
            _refuse, json_schema_input_schema=core_schema.any_schema()
        )
        return row_schema(kind, refuse)
    # Without fields of its own, so that in a union a record with fields that match comes first.
    fields = core_schema.typed_dict_schema({}, cls=kind, extra_behavior="allow")
    return row_schema(kind, core_schema.no_info_after_validator_function(make, fields))


def _refuse(value: object) -> None:
    raise ValueError("an invalid row cannot be made of JSON: only a list returns it")


def row_schema(kind: Any, made: CoreSchema) -> CoreSchema:
    """Return the schema of a row that exists already, or that `made` makes of JSON.

    In JSON the row has the forms of the service, in Python it is a dict by the names of Python.
    """
    from pydantic_core import core_schema

    def given(value: Any, make: Callable[[Any], Any]) -> Any:
        return value if isinstance(value, kind) else make(value)

    given.__name__ = kind.__name__  # errors of a union name its kinds by it
    return core_schema.no_info_wrap_validator_function(
        given,
        made,
        serialization=core_schema.plain_serializer_function_ser_schema(_serialize, info_arg=True),
        ref=f"{kind.__module__}.{kind.__qualname__}:{id(kind)}",
    )


def _serialize(row: Any, info: SerializationInfo) -> Any:
    return row.to_wire() if info.mode == "json" else row.to_dict()
