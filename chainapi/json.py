"""JSON of rows: hooks for `json`, orjson and web frameworks.

::

    json.dumps(rows, default=chainapi.json.default)
    orjson.dumps(rows, default=chainapi.json.default)
    chainapi.json.dumps(rows)

Rows have the names and forms of the service, so amounts are strings and exact at any length.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from chainapi.models.exact_json import encode_json
from chainapi.models.plain import is_pydantic_row, to_wire
from chainapi.models.schema import is_record

__all__ = ["default", "dumps"]


def default(value: Any) -> Any:
    """Return the JSON value of a row: ``default=`` of json.dumps and orjson.dumps.

    A `Decimal` becomes a string, because neither of them writes its digits as a number.

    Raises:
        TypeError: the value is no row.

    """
    if isinstance(value, Decimal):
        return str(value)
    kind = type(value)
    if hasattr(kind, "to_wire") or is_record(kind) or is_pydantic_row(kind):
        return to_wire(value)
    raise TypeError(f"a {type(value).__name__} is no row, and JSON cannot represent it")


def dumps(value: Any) -> bytes:
    """Return JSON of rows, lists of rows, or JSON values with rows in them.

    Every number keeps its digits, a `Decimal` too.

    Raises:
        DecodeError: a value is nested too deeply.
        TypeError: a value has a type that JSON cannot represent.

    """
    return encode_json(to_wire(value))
