"""Values of columns, packed.

Packed values take less memory than objects. The rows that are decoded next use it again, while the caches of
the processor hold it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from chainapi.tables.types import Kind

__all__ = ["FORMS", "Texts", "Values", "packed", "packed_numbers", "packed_texts"]


@frozen(eq=False)
class Texts:
    """Texts of a column in UTF-8.

    Attributes:
        content: the texts, one after the other.
        sizes: the bytes of each text, as a number of four bytes.

    """

    content: bytes
    sizes: bytes


# Values of a column: packed, or the objects that `chainapi.tables.rows.reader` returns. Bytes are in the
# order of the machine. Whole numbers have eight bytes each, those of ``digits`` too, floats eight, times
# (Unix seconds) four.
Values: TypeAlias = bytes | Texts | Sequence[Any]

FORMS: Mapping[Kind, str] = {"integer": "q", "digits": "q", "time": "I", "float": "d"}  # for `struct`


def packed(kind: Kind, values: Sequence[Any]) -> Values:
    """Return the values of a column packed if that is possible.

    Those of ``digits`` are texts.
    """
    if kind in ("text", "digits"):
        return packed_texts(values)
    try:
        return struct.pack(f"{len(values)}{FORMS[kind]}", *values)
    except (KeyError, struct.error):  # there is None, or a time before 1970 or behind 2106
        return values


def packed_numbers(values: Sequence[Any]) -> bytes | None:
    """Return whole numbers packed; None if there is None, or one beyond 64 bits."""
    try:
        return struct.pack(f"{len(values)}q", *values)
    except struct.error:
        return None


def packed_texts(values: Sequence[Any]) -> Values:
    """Return texts packed; as they are if there is None."""
    try:
        joined = "".join(values)
    except TypeError:
        return values
    content = joined.encode()
    parts = values if len(content) == len(joined) else [*map(str.encode, values)]
    return Texts(content, struct.pack(f"{len(values)}i", *map(len, parts)))
