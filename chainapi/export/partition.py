"""Hive partitions: rows divided by keys, whose values name folders.

``source=43114/day=2026-11-20/part-00001.parquet``
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, unquote

from attrs import evolve
from msgspec import Struct
from msgspec.structs import astuple

from chainapi._tables.columns import SOURCE, Column, checked_names
from chainapi._tables.rows import reader
from chainapi._tables.types import A_MODEL
from chainapi._text import quoted
from chainapi.errors import ArgumentError, ConfigurationError
from chainapi.export.text import DAY, EncodedRows, date_of

__all__ = [
    "KEYS",
    "NULL",
    "Partitioner",
    "check_label",
    "check_partition",
    "checked_partition",
    "is_utf_8",
    "source_of",
]

KEYS = (SOURCE, "year", "month", "day")
_LENGTHS = {"year": 4, "month": 7, "day": 10}  # of the beginning of a date: 2026, 2026-11, 2026-11-20
NULL = "__HIVE_DEFAULT_PARTITION__"  # what readers take for null
LONGEST_LABEL = 180  # bytes in the name of a folder, which has at most 255


def checked_partition(given: Any) -> tuple[str, ...] | None:
    """Return the argument `partition` of an export, None for no partitions.

    Raises:
        ConfigurationError: it is no list of different keys.

    """
    keys = checked_names("partition", "key", given)
    if wrong := [key for key in keys or () if key not in KEYS]:
        raise ConfigurationError(
            f"partition= has {quoted(wrong[0])}, which is no key: choose from {', '.join(KEYS)}"
        )
    return keys


def check_partition(
    keys: Sequence[str], format_: str, columns: Sequence[Column], all_columns: Sequence[Column]
) -> None:
    """Refuse keys that rows of these columns lack.

    Args:
        keys: the keys.
        format_: name of the format of the files.
        columns: columns of the files.
        all_columns: the same, with the columns that the files leave out.

    Raises:
        ConfigurationError: a key needs the time of a row, and the rows have none; or a column has the name
            of a key; or readers would skip rows.

    """
    named = next((column.name for column in columns if column.name in keys), None)
    if named is not None:
        raise ConfigurationError(
            f"partition= has {named!r}, which is a column of the rows too, and readers would show one of"
            " them: leave it out, or leave the column out with fields="
        )
    if SOURCE in keys and format_.startswith("csv") and len(columns) == 1:
        raise ConfigurationError(
            f"partition= has {SOURCE!r}, which leaves CSV one column, and a row without a value would be an"
            " empty line, which readers skip: leave it out, or choose more fields="
        )
    timed = next((key for key in keys if key != SOURCE), None)
    if timed is not None and not time_columns(columns):
        raise ConfigurationError(
            f"partition= has {timed!r}, which needs the time of each row: {_lacking(columns, all_columns)}"
        )


def _lacking(columns: Sequence[Column], all_columns: Sequence[Column]) -> str:
    """Return why rows have no time."""
    if not all_columns:
        return f"these rows have no columns; name a route, or pass {A_MODEL}"
    left_out = time_columns(all_columns)
    if left_out:
        return f"add {' or '.join(map(_name, left_out))} to fields="
    times = [repr(column.name) for column in columns if column.kind == "time"]
    if times:
        return f"they have {' and '.join(times)}, and none of them is the time of the row; leave the key out"
    return "they have none; leave the key out"


def check_label(keys: Sequence[str], label: str) -> None:
    """Refuse a source whose label no file, or no folder of a partition, can have.

    Raises:
        ConfigurationError: it is not UTF-8, or too long for the name of a folder, or the name that readers
            take for null.

    """
    if not is_utf_8(label):
        raise ArgumentError(
            f"the source {quoted(label)} is not UTF-8, as its label in the files has to be: correct it"
        )
    if SOURCE in keys and label == NULL:
        raise ConfigurationError(
            f"the source {quoted(label)} is what readers of partitions take for null: leave 'source' out of "
            "partition="
        )
    if SOURCE in keys and len(quote(label, safe="")) > LONGEST_LABEL:
        raise ConfigurationError(
            f"the source {quoted(label)} is too long for the name of a folder ({LONGEST_LABEL} bytes): leave"
            " 'source' out of partition="
        )


# Time of a row

_OF_ROWS = ("block_timestamp", "timestamp")  # names of columns with the time of a row, the first one first


def time_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with the time of a row; the first one that a row has counts.

    That is ``block_timestamp``, then ``timestamp``, or the only time of the row by any other name; for rows
    without times of their own, the times of the records in them.
    """
    own = {column.name: column for column in columns if column.kind == "time"}
    named = tuple(own[name] for name in _OF_ROWS if name in own)
    if own:
        return named or (tuple(own.values()) if len(own) == 1 else ())
    return tuple(
        evolve(column, fields=(field,))
        for column in columns
        for name in _OF_ROWS
        for field in column.fields
        if column.kind == "struct" and field.kind == "time" and field.name == name
    )


def _name(column: Column) -> str:
    return repr(column.name)


def _time_reader(columns: Sequence[Column]) -> Callable[[bytes], list[int | None]]:
    """Return a function from JSON lines to the time of each row, in Unix seconds."""
    read = reader(columns, nested=True)

    def times(lines: bytes) -> list[int | None]:
        return [_first_of(row) for row in zip(*read(lines), strict=True)]

    return times


def _first_of(values: Sequence[Any]) -> int | None:
    """Return the first time of a row; records in it have one each."""
    times = (astuple(value)[0] if isinstance(value, Struct) else value for value in values)
    return next((time for time in times if time is not None), None)


class Partitioner:
    """Division of the rows of pages by keys."""

    def __init__(self, keys: Sequence[str], columns: Sequence[Column]) -> None:
        self._keys = keys
        timed = any(key != SOURCE for key in keys)
        self._times = _time_reader(time_columns(columns)) if timed else None

    def divided(self, page: EncodedRows) -> Iterator[tuple[str, EncodedRows]]:
        """Yield the rows of each partition with its folder."""
        if self._times is None:
            yield self._folder(page.label, None), page
            return
        places = defaultdict[int | None, list[int]](list)
        for place, time in enumerate(self._times(page.lines)):
            places[None if time is None else time // DAY].append(place)
        by_folder = defaultdict[str, list[int]](list)
        for day, rows in places.items():
            by_folder[self._folder(page.label, day)] += rows
        for folder, rows in by_folder.items():
            yield folder, page if len(by_folder) == 1 else page.chosen(sorted(rows))

    def _folder(self, label: str, day: int | None) -> str:
        text = None if day is None else date_of(day)
        values = (label if key == SOURCE else text and text[: _LENGTHS[key]] for key in self._keys)
        named = zip(self._keys, values, strict=True)
        return "/".join(f"{key}={quote(value, safe='') if value else NULL}" for key, value in named)


def source_of(folder: str) -> str | None:
    """Return the source of the rows in a folder of partitions.

    None if its name has none.
    """
    values = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
    return unquote(values[SOURCE]) if SOURCE in values else None


def is_utf_8(text: str) -> bool:
    """Check that a string can be UTF-8: that it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
