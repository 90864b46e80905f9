"""Corrections: differences of rows fetched again from those of the target.

The window of a source is the rows from a number on. The list is right about them: of the target's rows in the
window those stay that the list has too, with the same values in all columns; the others are dropped, and the
list's further rows are added. Rows are compared by digests, and equal rows are counted. The comparison reads
the target, so it may be repeated after a kill: the target then has what an earlier run has changed.

Memory holds a digest of each row of the windows. Everything here blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from types import NoneType
from typing import Any, Self, TypeAlias

from attrs import define, field, frozen

from chainapi.export.formats.values import loads, typed_row
from chainapi.export.lookback import number_of_columns
from chainapi.export.part_records import PartFile, SourceRows
from chainapi.export.partition import PageRows
from chainapi.export.source_records import SourceRecord
from chainapi.tables.columns import SOURCE, Column

__all__ = ["Corrections", "Range", "Windows"]

Row: TypeAlias = Mapping[str, Any]
Typed: TypeAlias = Callable[[Row, Sequence[Column]], Row]


@frozen
class Windows:
    """Windows of sources.

    Attributes:
        starts: least number of each window, by the label of the source.
        numbers: readers of the number of a row of a file, by the label of its source.
        columns: columns of the files; empty for rows without a model.

    """

    starts: Mapping[str, int]
    numbers: Mapping[str, Callable[[Row], int | None]]
    columns: Sequence[Column]

    @classmethod
    def of(cls, sources: Iterable[SourceRecord], columns: Sequence[Column]) -> Self:
        """Return the open windows of sources.

        Raises:
            ConfigurationError: the columns lack the number of one.

        """
        opened = {one.label: one for one in sources if one.window is not None}
        return cls(
            {label: one.window for label, one in opened.items() if one.window is not None},
            {label: number_of_columns(one.numbered, columns) for label, one in opened.items()},
            columns,
        )

    def number(self, row: Row) -> int | None:
        """Return the number of a row of a file.

        None is returned for a row of another source, or without a number.
        """
        read = self.numbers.get(row[SOURCE])
        return None if read is None else read(row)

    def may_be_in(self, file: PartFile) -> bool:
        """Check whether a file may have rows of a window."""
        return any(
            rows.source in self.starts and rows.reaches(self.starts[rows.source]) for rows in file.sources
        )

    def parsed(self, label: str, line: bytes) -> Row:
        """Return a row of the journal as a row of a file."""
        row = {SOURCE: label, **loads(line)}
        return typed_row(row, self.columns) if self.columns else row


@define
class Range:
    """Number of rows, and the range of their numbers, where all of them have one."""

    rows: int = 0
    numbers: tuple[int, int] | None = None
    _whole: bool = True

    def add(self, number: int | None) -> None:
        """Add a row."""
        self.rows += 1
        self._whole = self._whole and number is not None
        if number is not None:
            lowest, highest = self.numbers or (number, number)
            self.numbers = min(lowest, number), max(highest, number)

    @property
    def bounds(self) -> tuple[str | None, str | None]:
        """Least and greatest number as strings; None if a row has none."""
        if self.numbers is None or not self._whole:
            return None, None
        return str(self.numbers[0]), str(self.numbers[1])

    def of_source(self, label: str) -> SourceRows:
        """Return the rows as those of a source in a file."""
        return SourceRows(label, self.rows, *self.bounds)


@define(eq=False)
class Corrections:
    """Differences between the rows of windows in the list and in the target.

    Attributes:
        windows: the windows.
        dropped: indices of the rows that each file of the target loses, by the name of the file.
        kept: rows that stay in each of these files, of the sources with a window.
        added: number of rows that the target lacks and that were found.
        compared: whether all files were compared.

    """

    windows: Windows
    dropped: dict[str, set[int]] = field(factory=dict[str, set[int]], init=False)
    kept: dict[str, dict[str, Range]] = field(factory=dict[str, dict[str, Range]], init=False)
    added: int = field(default=0, init=False)
    compared: bool = field(default=False, init=False)
    _lacking: Counter[bytes] = field(factory=Counter[bytes], init=False)  # digests of the list's rows
    _left: int = field(default=0, init=False)  # their number

    @property
    def removed(self) -> int:
        """Number of rows that leave the target."""
        return sum(map(len, self.dropped.values()))

    @property
    def lacking(self) -> int:
        """Number of rows that the target lacks, the added ones included."""
        return self._left + self.added

    def expect(self, label: str, lines: bytes) -> None:
        """Take rows of a source that were fetched again, as JSON lines.

        All of them come before `compare`.
        """
        digests = [digest for digest, _ in self._rows_in(label, lines)]
        self._lacking.update(digests)
        self._left += len(digests)

    def compare(self, name: str, rows: Iterable[Row], typed: Typed) -> None:
        """Compare the rows of a file of the target, in their order.

        Args:
            name: name of the file.
            rows: its rows, with the types of its format.
            typed: returns such a row with the kinds of columns.

        """
        dropped, kept = set[int](), dict[str, Range]()
        for place, row in enumerate(rows):
            label, number = row[SOURCE], self.windows.number(row)
            if number is not None and number >= self.windows.starts[label] and not self._meet(row, typed):
                dropped.add(place)
            elif label in self.windows.starts:
                kept.setdefault(label, Range()).add(number)
        if dropped:
            self.dropped[name], self.kept[name] = dropped, kept

    def find_new(self, rows: PageRows, lines: bytes) -> PageRows:
        """Return those of some rows that the target lacks, and count them as added.

        Args:
            rows: the rows.
            lines: their JSON lines.

        """
        places, found = list[int](), Range()
        wanted = self._rows_in(rows.label, lines) if self._left else ()  # most windows have not changed
        for place, (digest, row) in enumerate(wanted):
            if self._take(digest):
                places.append(place if rows.places is None else rows.places[place])
                found.add(self.windows.number(row))
        self.added += found.rows
        return PageRows(rows.label, rows.page, places, *found.bounds)

    def sources_of(self, file: PartFile) -> tuple[SourceRows, ...]:
        """Return the rows that stay in a file that loses some, by source."""
        kept = {label: rows.of_source(label) for label, rows in self.kept[file.name].items()}
        found = (kept.get(one.source, one) for one in file.sources)
        return tuple(one for one in found if one.source not in self.windows.starts or one.source in kept)

    def _meet(self, row: Row, typed: Typed) -> bool:
        """Return whether the list has a row; count it as one that the target has."""
        columns = self.windows.columns
        return self._take(_digest(typed(row, columns) if columns else row))

    def _take(self, digest: bytes) -> bool:
        """Return whether the target lacks a row with a digest; from then on it does not."""
        if not self._lacking[digest]:
            return False
        self._lacking[digest] -= 1
        self._left -= 1
        return True

    def _rows_in(self, label: str, lines: bytes) -> Iterator[tuple[bytes, Row]]:
        for line in lines.split(b"\n")[:-1]:
            row = self.windows.parsed(label, line)
            yield _digest(row), row


def _digest(row: Row) -> bytes:
    """Return a digest of the values of a row; equal values in other forms have one."""
    return blake2b(repr(_plain(row)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _plain(value: Any) -> Any:
    if type(value) in _AS_IS:  # nearly all are, and `isinstance` of a mapping takes longer
        return value
    if isinstance(value, Mapping):
        return [(name, _plain(value[name])) for name in sorted(value)]
    if isinstance(value, list):
        return [*map(_plain, value)]
    if isinstance(value, Decimal):  # a file may add zeros after the point
        return value.as_integer_ratio()
    return value


_AS_IS = frozenset({str, int, float, bool, NoneType, datetime})
