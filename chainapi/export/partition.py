"""Hive partitions: rows divided by keys, whose values name folders.

``source=43114/day=2026-11-20/part-00001.parquet``
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from attrs import evolve, frozen
from msgspec import Struct
from msgspec.structs import astuple

from chainapi._text import quoted
from chainapi.errors import ArgumentError, ConfigurationError
from chainapi.export.formats import without_source
from chainapi.export.formats.values import DAY, date_of
from chainapi.export.part_records import PageRecord
from chainapi.export.target import Target, is_utf_8
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.rows import reader
from chainapi.tables.types import A_MODEL

__all__ = [
    "KEYS",
    "NULL",
    "PageRows",
    "Partitioner",
    "Values",
    "check_label",
    "check_partition",
    "checked_partition",
    "folder_of",
    "partitioned",
]

FORMATS = ("parquet", "csv", "jsonl", "csv.gz", "csv.zst", "jsonl.gz", "jsonl.zst")
KEYS = (SOURCE, "year", "month", "day")
_LENGTHS = {"year": 4, "month": 7, "day": 10}  # of the beginning of a date: 2026, 2026-11, 2026-11-20
NULL = "__HIVE_DEFAULT_PARTITION__"  # what readers take for null
LONGEST_LABEL = 180  # bytes in the name of a folder, which has at most 255

Values: TypeAlias = tuple[str | None, ...]
"""Values of the keys, in the order of the keys."""


def checked_partition(given: Any) -> tuple[str, ...]:
    """Return the argument `partition` of an export; empty for no partitions.

    Raises:
        ConfigurationError: it is no list of different keys.

    """
    if given is None:
        return ()
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"partition= must be a list of keys, not {quoted(given)}")
    keys = tuple[Any, ...](given)
    if wrong := [key for key in keys if key not in KEYS]:
        raise ConfigurationError(
            f"partition= has {quoted(wrong[0])}, which is no key: choose from {', '.join(KEYS)}"
        )
    if not keys:
        raise ConfigurationError("partition= has no key: leave it out for parts that are not divided")
    if len({*keys}) < len(keys):
        raise ConfigurationError("partition= has a key twice: leave one of them out")
    return keys


def check_partition(
    keys: Sequence[str], format_: str, columns: Sequence[Column], all_columns: Sequence[Column]
) -> None:
    """Refuse keys that rows of these columns lack.

    Args:
        keys: the keys.
        format_: name of the format of the files.
        columns: columns of the files.
        all_columns: the same with those that the files leave out.

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


def partitioned(target: Target, keys: tuple[str, ...]) -> Target:
    """Return a target with these keys.

    Raises:
        ConfigurationError: it is a file, or programs do not read files of its format as one folder.

    """
    if not target.folder:
        raise ConfigurationError(
            f"partition= applies to a folder, and {target.address} is a file: leave it out, or choose a "
            "folder"
        )
    if target.format.name not in FORMATS:
        raise ConfigurationError(
            f"partition= applies to {', '.join(FORMATS)}, which programs read as one folder, and the files"
            f" are {target.format.name}: leave it out, or choose another format"
        )
    # Readers take the value of a key from the name; pyarrow and pandas refuse a column of another type.
    format_ = without_source(target.format) if SOURCE in keys else target.format
    return evolve(target, format=format_, partition=keys)


def check_label(keys: Sequence[str], label: str) -> None:
    """Refuse a source whose label no file, or no folder of a partition, can have.

    Raises:
        ConfigurationError: it is not UTF-8, or too long for the name of a folder, or that of null.

    """
    if not is_utf_8(label):
        raise ArgumentError(
            f"the source {quoted(label)} is not UTF-8, as its label in the files has to be: correct it"
        )
    if SOURCE in keys and label == NULL:
        raise ConfigurationError(
            f"the source {quoted(label)} is what readers of partitions take for null: leave 'source' out of"
            " partition="
        )
    if SOURCE in keys and len(quote(label, safe="")) > LONGEST_LABEL:
        raise ConfigurationError(
            f"the source {quoted(label)} is too long for the name of a folder ({LONGEST_LABEL} bytes): leave"
            " 'source' out of partition="
        )


def folder_of(keys: Sequence[str], values: Values) -> str:
    """Return the folder of a partition: a path below that of the target."""
    named = zip(keys, values, strict=True)
    return "/".join(f"{key}={quote(value, safe='') if value else NULL}" for key, value in named)


# Time of a row

_OF_ROWS = ("block_timestamp", "timestamp")  # names of columns with the time of a row, the first one first


def time_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns with the time of a row; the first one that a row has counts.

    That is ``block_timestamp``, then ``timestamp``, or the only time of the row by any other name; for rows
    without times of their own, those of the records in them.
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


# Rows of a partition


@frozen
class PageRows:
    """Rows of one page that one file has.

    Attributes:
        label: label of the source.
        page: the page.
        places: their indices among the valid rows of the page; None for all of them.
        lowest: least number among them, as a string; that of the page if they are a part of it and the
            number is no time; None for a list without an order.
        highest: greatest number among them, alike.

    """

    label: str
    page: PageRecord
    places: Sequence[int] | None = None
    lowest: str | None = None
    highest: str | None = None

    @classmethod
    def whole(cls, label: str, page: PageRecord) -> PageRows:
        """Return all rows of a page."""
        return cls(label, page, None, page.lowest, page.highest)

    @property
    def rows(self) -> int:
        """Number of the rows."""
        return self.page.rows if self.places is None else len(self.places)

    def of(self, lines: bytes) -> bytes:
        """Return these rows of the JSON lines of the page."""
        if self.places is None:
            return lines
        rows = lines.split(b"\n")
        return b"".join(rows[place] + b"\n" for place in self.places)


class Partitioner:
    """Division of pages by keys."""

    def __init__(self, keys: Sequence[str], columns: Sequence[Column]) -> None:
        self._keys = keys
        timed = any(key != SOURCE for key in keys)
        self._times = _time_reader(time_columns(columns)) if timed else None

    def divide(
        self, pages: Iterable[tuple[str, PageRecord]], read: Callable[[PageRecord], bytes]
    ) -> list[tuple[Values, list[PageRows]]]:
        """Return the rows of each partition, in the order of the pages.

        Args:
            pages: pages with the labels of their sources.
            read: returns the JSON lines of a page.

        """
        found: defaultdict[Values, list[PageRows]] = defaultdict(list)
        for label, page in pages:
            if page.rows:
                for values, rows in self._of_page(label, page, read):
                    found[values].append(rows)
        return sorted(found.items(), key=lambda one: folder_of(self._keys, one[0]))

    def _of_page(
        self, label: str, page: PageRecord, read: Callable[[PageRecord], bytes]
    ) -> Iterator[tuple[Values, PageRows]]:
        if self._times is None:
            yield self._values(label, None), PageRows.whole(label, page)
            return
        times = self._times(read(page))
        places: defaultdict[int | None, list[int]] = defaultdict(list)
        for place, time in enumerate(times):
            places[None if time is None else time // DAY].append(place)
        by_values: defaultdict[Values, list[int]] = defaultdict(list)
        for day, rows in places.items():
            by_values[self._values(label, day)] += rows
        if len(by_values) == 1:
            yield next(iter(by_values)), PageRows.whole(label, page)
            return
        bounds = _bounds_of(page, times)
        for values, rows in by_values.items():
            yield values, PageRows(label, page, sorted(rows), *bounds(rows))

    def _values(self, label: str, day: int | None) -> Values:
        text = None if day is None else date_of(day)
        return tuple(label if key == SOURCE else text and text[: _LENGTHS[key]] for key in self._keys)


def _bounds_of(
    page: PageRecord, times: Sequence[int | None]
) -> Callable[[Sequence[int]], tuple[str | None, str | None]]:
    """Return a function from indices to the least and greatest number of the rows."""
    known = [time for time in times if time is not None]
    if len(known) < len(times) or (page.lowest, page.highest) != (str(min(known)), str(max(known))):
        return lambda _: (page.lowest, page.highest)  # the numbers of the list are no times

    def bounds(places: Sequence[int]) -> tuple[str, str]:
        found = [known[place] for place in places]
        return str(min(found)), str(max(found))

    return bounds
