"""Records of parts in a journal, and of the pages that wait for one."""

from __future__ import annotations

from typing import Any, Self

import msgspec
from attrs import field, frozen

__all__ = [
    "BEGUN",
    "CLEANED",
    "IN_PLACE",
    "Added",
    "Base",
    "Content",
    "GroupRecord",
    "PageRecord",
    "Part",
    "PartFile",
    "SourceRows",
    "Waiting",
    "next_number",
    "replaced_in",
]

BEGUN, IN_PLACE, CLEANED = range(3)  # states of a part


class PageRecord(msgspec.Struct, frozen=True, gc=False):
    """Page whose rows wait in a segment for a part.

    Attributes:
        number: counts the pages from 1, in the order in which they were committed.
        source: number of its source.
        place: number of its range in the source; 0 for a list that is walked as a whole.
        segment: number of the segment.
        start: offset in the segment in bytes; that of the row group, for rows in one.
        length: bytes of the valid rows as JSON; for rows in a row group, as the service sent them.
        rows: number of valid rows.
        invalid_length: bytes of the invalid rows, which follow.
        invalid: number of invalid rows.
        lowest: least number among the rows, as a string; None for a list without a descending number.
        highest: greatest number among the rows, as a string.
        crc: checksum of the bytes in the segment.
        stored: number of these bytes, if they are compressed; 0 if not.
        first: index of its first row in the row group; None for rows as JSON lines.

    """

    number: int
    source: int
    place: int
    segment: int
    start: int
    length: int
    rows: int
    invalid_length: int
    invalid: int
    lowest: str | None
    highest: str | None
    crc: int
    stored: int = 0
    first: int | None = None

    @property
    def fields(self) -> tuple[Any, ...]:
        """Columns of the record."""
        return msgspec.structs.astuple(self)


class GroupRecord(msgspec.Struct, frozen=True, gc=False):
    """Row group of Parquet with the rows of pages that wait for a part.

    Attributes:
        segment: number of the segment.
        start: offset in the segment in bytes.
        length: number of bytes.
        rows: number of rows.
        crc: checksum of the bytes.
        tally: checksum of the values (`chainapi.export.formats.values.Tally`).
        footer: footer of a file with this group alone.

    """

    segment: int
    start: int
    length: int
    rows: int
    crc: int
    tally: int
    footer: bytes

    @property
    def fields(self) -> tuple[Any, ...]:
        """Columns of the record."""
        return msgspec.structs.astuple(self)


class SourceRows(msgspec.Struct, frozen=True):
    """Rows of one source in a file; the numbers are those of `PageRecord`."""

    source: str
    rows: int
    lowest: str | None = None
    highest: str | None = None

    def reaches(self, start: int) -> bool:
        """Check whether a row may have this number or a greater one."""
        return self.highest is None or int(self.highest) >= start


class Base(msgspec.Struct, frozen=True):
    """File before rows are appended to it: its size in bytes, and its digest."""

    size: int
    digest: str


class Added(msgspec.Struct, frozen=True):
    """Database with the new rows that a transaction adds to another: size, digest."""

    size: int
    digest: str


class PartFile(msgspec.Struct, frozen=True):
    """File of a part.

    Attributes:
        name: path of the file below the folder of the target, with slashes.
        rows: number of its rows.
        size: its size in bytes; 0 until a transaction has added its rows.
        digest: digest of its first and last bytes; empty until then.
        sources: its rows by source.
        invalid: whether it has the invalid rows.
        base: the file before, where the rows of the part are appended to it; None for a file that is
            written whole.
        partition: keys and values of its partition.
        added: the ``.partial`` database whose rows a transaction adds to the file; None for other files.

    """

    name: str
    rows: int
    size: int
    digest: str
    sources: tuple[SourceRows, ...] = ()
    invalid: bool = False
    base: Base | None = None
    partition: tuple[tuple[str, str | None], ...] = ()
    added: Added | None = None


class Content(msgspec.Struct, frozen=True):
    """Files of a part, and their origin.

    Attributes:
        files: the files.
        replaces: names of files of earlier parts that these replace.
        corrects: whether it has the rows that were fetched again.
        run: name of the run that wrote them.
        time: time at which they were written, ISO 8601 in UTC.
        columns: name and kind of each column, ``source`` apart.

    """

    files: tuple[PartFile, ...]
    run: str
    time: str
    columns: tuple[tuple[str, str], ...] = ()
    replaces: tuple[str, ...] = ()
    corrects: bool = False


class _Replaces(msgspec.Struct, frozen=True):
    replaces: tuple[str, ...] = ()


def replaced_in(content: str) -> tuple[str, ...]:
    """Return the names of the files that a part replaces, from its stored content.

    Raises:
        ValueError: it does not have the form that `Part.fields` writes.

    """
    return msgspec.json.decode(content, type=_Replaces).replaces


@frozen
class Part:
    """Part of the rows of an export: one file, or one for each partition.

    Attributes:
        number: counts the parts from 1.
        state: `BEGUN` once the journal has the digests of the files, `IN_PLACE` once they have their names,
            `CLEANED` once their pages are deleted from the journal.
        upto: number of the last page that it has.
        content: its files.
        invalid: digests of its invalid rows, joined; empty once the journal has them.

    """

    number: int
    state: int
    upto: int
    content: Content
    invalid: bytes = field(default=b"", repr=False)

    @classmethod
    def from_fields(cls, number: int, state: int, upto: int, content: str) -> Self:
        """Return the part with these columns.

        Raises:
            ValueError: a column does not have the form that `fields` writes.

        """
        return cls(number, state, upto, msgspec.json.decode(content, type=Content))

    @property
    def fields(self) -> tuple[Any, ...]:
        """Columns of the record."""
        return self.number, self.state, self.upto, msgspec.json.encode(self.content).decode()

    @property
    def rows_file(self) -> PartFile | None:
        """First file with valid rows."""
        return next((file for file in self.content.files if not file.invalid), None)


def next_number(last: Part | None) -> int:
    """Return the number of the part after the last one."""
    return 1 if last is None else last.number + 1


@frozen
class Waiting:
    """Amount of what waits for a part: pages, rows (invalid ones included), bytes."""

    pages: int = 0
    rows: int = 0
    size: int = 0
