"""Structs decoded in place of others, whose class their objects then take.

A Struct has one set of names in JSON and one type for each field. Those of the services are not those of a
record or of a table. A Struct derived from another without further fields has the same layout in memory, so
an object of the one becomes an object of the other when its class is assigned. Making a second object takes
five times as long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import msgspec

__all__ = ["in_place", "taking_class"]

_SET_CLASS = vars(object)["__class__"].__set__  # frozen records refuse `setattr`


def in_place(struct: Any, fields: Sequence[tuple[str, Any, Any]], *, strict: bool) -> Any:
    """Derive a Struct with other types and names in JSON for all fields of a Struct.

    Args:
        struct: the Struct.
        fields: name, type and `msgspec.field` of each field.
        strict: refuse fields in JSON that are not named.

    """
    namespace = {name: given for name, _, given in fields}
    namespace["__annotations__"] = {name: kind for name, kind, _ in fields}
    return msgspec.StructMeta.__new__(
        type(struct), struct.__name__, (struct,), namespace, kw_only=True, forbid_unknown_fields=strict
    )


def taking_class(struct: Any) -> Callable[[list[Any]], list[Any]]:
    """Return the function that gives objects the class `struct`, and returns them."""

    def finish(rows: list[Any]) -> list[Any]:
        deque(map(_SET_CLASS, rows, repeat(struct)), maxlen=0)  # a loop in C
        return rows

    return finish
