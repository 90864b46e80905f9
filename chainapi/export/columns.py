"""From row models to columns, from rows to JSON, and back to the values of columns.

What the models call a whole number may be an amount, such as a balance in wei, that does not fit into 64 bits.
Which ones may not is told by their names: see `is_amount`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from attrs import frozen

__all__ = ["EXTRA", "SOURCE", "Codec", "Column", "Kind", "columns_of", "is_amount", "unpacker"]

Kind: TypeAlias = Literal[
    "integer", "big", "float", "decimal", "truth", "text", "time", "json", "struct", "list"
]

SOURCE = "source"  # the first column of every file: the label of the series that a row is of
EXTRA = "extra"  # in the rows of a union: what a row of an unknown kind has beyond the known columns


@frozen
class Column:
    """A column: its name and what is in it; None may be in every column.

    - ``integer``: a whole number that usually fits into 64 bits; ``big``: one that often does not
    - ``float``, ``truth``, ``text``; ``decimal``: an exact fraction
    - ``time``: Unix time in whole seconds
    - ``json``: any JSON value
    - ``struct``: a record, its columns are `fields`; ``list``: of what the only one of `fields` says
    """

    name: str
    kind: Kind
    fields: tuple[Column, ...] = ()


def columns_of(model: Any) -> tuple[Column, ...]:
    """Return the columns of the rows of a model.

    A model is an attrs class, a dataclass or a msgspec Struct, or a union of ours, whose kinds share one table.
    `str` stands for rows that are texts: their only column is ``value``. None stands for plain JSON objects,
    of which no columns are known: there are none then.

    Raises:
        ConfigurationError: there are no columns in such a model.

    """
    return Codec(model).columns


class Codec:
    """Makes JSON of rows: an object by the names of the columns, with whole numbers exact and decimals as texts.

    A row of an unknown kind of a union gives its known columns, as far as its values fit into them, and all
    the rest under its own names in the column ``extra``.

    Raises:
        ConfigurationError: there are no columns in such a model.

    """

    columns: tuple[Column, ...]
    encode: Callable[[Any], bytes]
    """Return a row as a JSON object.

    Raises:
        ConfigurationError: a value is not what its column promises.

    """

    def __init__(self, model: Any) -> None:
        raise NotImplementedError
