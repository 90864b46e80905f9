"""Types of columns: one for each kind, the same in every row, part, file and run.

The kind of a column follows from its model, and the kind of an amount from the choice of `Amounts`. A value
that its type cannot hold is refused, and never changes the type of a column. Arrow, DuckDB and SQLite take
their types from `SCALARS`; JSON lines and CSV have the values of encoded rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from attrs import frozen

from chainapi._text import quoted
from chainapi.errors import ArgumentError

__all__ = [
    "AMOUNTS",
    "AMOUNT_KINDS",
    "A_MODEL",
    "INT64",
    "PRECISION",
    "SCALARS",
    "SCALE",
    "YEARS",
    "Amounts",
    "Kind",
    "Scalar",
    "checked_amounts",
    "double_of",
    "fraction_text",
    "whole_text",
]

# What messages advise for rows without columns: rows of a TypedDict or a Pydantic class have none either.
A_MODEL = "model= with an attrs class, a dataclass or a Struct"

Amounts: TypeAlias = Literal["text", "decimal", "float"]
AMOUNTS: tuple[Amounts, ...] = get_args(Amounts)

Kind: TypeAlias = Literal[
    "integer",
    "digits",
    "whole",
    "float",
    "decimal",
    "boolean",
    "text",
    "time",
    "json",
    "struct",
    "list",
]

AMOUNT_KINDS: Mapping[Amounts, Kind] = {
    "text": "digits",
    "decimal": "whole",
    "float": "float",
}

INT64 = -(2**63), 2**63 - 1
YEARS = -62_135_596_800, 253_402_300_799  # Unix seconds of the years 1 to 9999
PRECISION, SCALE = 38, 18  # digits of a decimal, and those after its point


@frozen
class Scalar:
    """Type of the values of one kind.

    Attributes:
        arrow: type in Arrow, and so in Parquet and DuckDB, in the notation of pyarrow.
        sqlite: type in SQLite.
        json: type of the value in encoded rows, for msgspec.

    """

    arrow: str
    sqlite: str
    json: Any


SCALARS: Mapping[Kind, Scalar] = {
    "integer": Scalar("int64", "INTEGER", int),
    "digits": Scalar("string", "TEXT", str),
    "whole": Scalar(f"decimal128({PRECISION}, 0)", "TEXT", str),
    "float": Scalar("double", "REAL", float),
    "decimal": Scalar(f"decimal128({PRECISION}, {SCALE})", "TEXT", str),
    "boolean": Scalar("bool", "INTEGER", bool),
    "text": Scalar("string", "TEXT", str),
    "time": Scalar("timestamp[ms, tz=UTC]", "INTEGER", int),  # Parquet has no seconds
    "json": Scalar("string", "TEXT", msgspec.Raw),
}


def checked_amounts(given: str) -> Amounts:
    """Return the choice of amounts.

    Raises:
        ArgumentError: there is no such choice.

    """
    for amounts in AMOUNTS:
        if amounts == given:
            return amounts
    raise ArgumentError(f"amounts= must be one of {', '.join(AMOUNTS)}, not {quoted(given)}")


def double_of(value: int) -> float:
    """Return a whole number as the nearest double.

    Raises:
        ValueError: it is larger than every double.

    """
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value} is larger than every double") from None


def whole_text(value: int) -> str:
    """Return a whole number as the text of a decimal(38, 0).

    Raises:
        ValueError: it has more digits.

    """
    if abs(value) >= 10**PRECISION:
        raise ValueError(f"{value} has more than {PRECISION} digits")
    return str(value)


def fraction_text(value: Decimal) -> str:
    """Return a number as the text of a decimal(38, 18), without an exponent.

    Raises:
        ValueError: it has more digits before or after the point.

    """
    if not value.is_finite():
        raise ValueError(f"{value} is not a number")
    if value.adjusted() >= PRECISION - SCALE:
        raise ValueError(f"{value} has more than {PRECISION - SCALE} digits before the point")
    if int(value.as_tuple().exponent) < -SCALE:
        raise ValueError(f"{value} has more than {SCALE} digits after the point")
    return f"{value:f}"
