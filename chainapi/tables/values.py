"""Values of columns, packed.

Packed values take less memory than objects. The rows that are decoded next use it again, while the caches of
the processor hold it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, TypeAlias

from attrs import frozen
from msgspec.structs import astuple

from chainapi.tables.types import Kind

__all__ = ["FORMS", "Texts", "Values", "by_column", "packed", "packed_texts"]


@frozen(eq=False)
class Texts:
    """Texts of a column in UTF-8.

    Attributes:
        content: the strings, one after the other.
        sizes: the bytes of each string, as a number of four bytes.

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

    Those of ``digits`` are strings.
    """
    if kind in ("text", "digits"):
        return packed_texts(values)
    try:
        return struct.pack(f"{len(values)}{FORMS[kind]}", *values)
    except (KeyError, struct.error):  # there is None, or a time before 1970 or after 2106
        return values


def packed_texts(values: Sequence[Any]) -> Values:
    """Return strings packed; as they are if there is None."""
    try:
        joined = "".join(values)
    except TypeError:
        return values
    content = joined.encode()
    parts = values if len(content) == len(joined) else [*map(str.encode, values)]
    return Texts(content, struct.pack(f"{len(values)}i", *map(len, parts)))


def by_column(names: Iterable[str], structs: Sequence[Any], *, nulls: bool = False) -> list[Sequence[Any]]:
    """Return the values of Structs by column.

    The fields of Structs have the names of columns in JSON. Structs of several classes may have different
    columns: a value that one lacks is None.

    Raises:
        TypeError: there is None among the Structs, and `nulls` is False.

    """
    kinds: list[Any] = [*map(type, structs)]
    alike = bool(kinds) and kinds.count(kinds[0]) == len(kinds)
    made = _columns(structs) if alike else _scattered(kinds, structs, nulls)
    nothing = [None] * len(structs)
    return [made.get(name, nothing) for name in names]


def _scattered(kinds: Sequence[Any], structs: Sequence[Any], nulls: bool) -> dict[str, Any]:
    """Return the columns of Structs of several classes."""
    made: dict[str, Any] = {}
    for kind in {*kinds} - ({NoneType} if nulls else set()):
        places = [place for place, its in enumerate(kinds) if its is kind]
        for name, values in _columns([structs[place] for place in places]).items():
            column = made.setdefault(name, [None] * len(structs))
            deque(map(column.__setitem__, places, values), maxlen=0)  # a loop in C
    return made


def _columns(structs: Sequence[Any]) -> dict[str, Any]:
    """Return the columns of Structs of one class."""
    columns = zip(*map(astuple, structs), strict=True)
    return dict(zip(structs[0].__struct_encode_fields__, columns, strict=True))
