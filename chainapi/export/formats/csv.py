r"""CSV by RFC 4180, in UTF-8 and with "\n" after each line.

Only strings are in quotation marks: an empty string is ``""``, and None is an empty field. Times are ISO 8601
in UTC. `Amounts` are digits, a number, or "0x" and 64 hexadecimal digits. Records, lists and other JSON are
JSON text. The file is data and not for a spreadsheet: a string that begins with ``=`` stays
unchanged. It may be compressed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from io import TextIOWrapper
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast
from zlib import crc32

from attrs import frozen

from chainapi.export.files import chunks
from chainapi.export.formats import Dropped, Rows
from chainapi.export.formats.text_files import DamagedTextError, TextFileFormat, TextFiles
from chainapi.export.formats.values import (
    DAMAGED,
    DAY,
    NESTED,
    Tally,
    check_written,
    date_of,
    extended,
    header,
    kept,
    parsed,
    require,
    typed_row,
    unlike,
)
from chainapi.export.worker import until
from chainapi.tables.columns import Column
from chainapi.tables.rows import count_lines, json_text, reader
from chainapi.tables.types import Kind

__all__ = ["FORMAT", "Csv"]


@frozen
class Csv(TextFileFormat):
    """Rows as comma-separated values under a header."""

    base: ClassVar[str] = "csv"
    needs_columns: ClassVar[bool] = True
    keeps_lines: ClassVar[bool] = False

    def write(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path | None = None,
        stop: threading.Event | None = None,
        dropped: Dropped = frozenset(),
    ) -> int:
        """Write a file."""
        require(columns, self.name)
        names = header(columns, source=self.source) if previous is None else self._names(previous)
        ordered = extended(names, columns, source=self.source)
        if ordered is None:
            raise unlike(previous or path, self.name)
        added = len(ordered) + self.source - len(names)
        records = self._all_records(ordered, rows, previous, added, dropped)
        return check_written(path, self._write(path, records), _tally(path, self.files, stop))

    def can_continue(self, path: Path, columns: Sequence[Column]) -> bool:
        """Check whether the header of a file has all columns."""
        names = self._names(path)
        whole = len(names) == len(header(columns, source=self.source))
        return whole and extended(names, columns, source=self.source) is not None

    def write_tail(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path,
        stop: threading.Event | None = None,
    ) -> int:
        """Write records in the columns of a file, without a header."""
        ordered = extended(self._names(previous), columns, source=self.source)
        if ordered is None:
            raise unlike(previous, self.name)
        written = self._write(path, _new_records(ordered, rows, source=self.source))
        return check_written(path, written, _tally(path, self.files, stop, headers=0))

    def read(self, path: Path) -> Generator[dict[str, Any], None, None]:
        """Yield the rows of a file; values are strings."""
        records = map(_cells, self._records(path))
        names = [name or "" for name in next(records, ())]
        for cells in records:
            if len(cells) != len(names):
                raise unlike(path, self.name)
            yield dict(zip(names, cells, strict=True))

    def typed(self, row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return a row that `read` yields, with the kinds of these columns."""
        return typed_row(parsed(row, columns), columns)

    def _write(self, path: Path, records: Iterator[tuple[int, str]]) -> Tally:
        """Write pieces of a file, each given with its number of records."""
        count = checksum = 0
        with self.files.create(path) as file:
            for found, text in records:
                content = text.encode()
                file.write(content)
                count, checksum = count + found, crc32(content, checksum)
        return Tally(count, checksum)

    def _all_records(
        self, columns: Sequence[Column], rows: Rows, previous: Path | None, added: int, dropped: Dropped
    ) -> Iterator[tuple[int, str]]:
        """Yield the number of records and the text of each piece of the file.

        The header is no record.
        """
        yield 0, ",".join(header(columns, source=self.source)) + "\n"
        if previous is not None:
            old = self._records(previous)
            next(old)
            for record in kept(old, dropped):
                yield 1, record[:-1] + "," * added + "\n"
        yield from _new_records(columns, rows, source=self.source)

    def _names(self, path: Path) -> list[str]:
        """Return the names in the header of a file."""
        return [name or "" for name in _cells(next(self._records(path), ""))]

    def _records(self, path: Path) -> Iterator[str]:
        """Yield the text of each record.

        A line with an odd number of quotation marks continues in the next one.
        """
        record: list[str] = []
        within = 0
        try:
            with (
                self.files.open(path) as file,
                TextIOWrapper(cast("BinaryIO", file), encoding="utf-8", newline="\n") as lines,
            ):
                for line in lines:
                    record.append(line)
                    within ^= line.count('"') & 1
                    if not within:
                        yield "".join(record)
                        record.clear()
        except (UnicodeDecodeError, DamagedTextError):
            raise unlike(path, self.name) from None
        if record:
            raise unlike(path, self.name)


# Writing


def _new_records(columns: Sequence[Column], rows: Rows, *, source: bool) -> Iterator[tuple[int, str]]:
    read, writers = reader(columns, nested=False), [_WRITERS.get(column.kind, _plain) for column in columns]
    for label, lines in rows:
        labels = [repeat(_quoted(label))] if source else []
        cells = [write(values) for write, values in zip(writers, read(lines), strict=True)]
        yield count_lines(lines), "".join(map(_record, zip(*labels, *cells, strict=False)))


def _record(cells: Sequence[str]) -> str:
    return ",".join(cells) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _plain(values: Sequence[Any]) -> list[str]:
    return ["" if value is None else str(value) for value in values]


def _texts(values: Sequence[str | None]) -> list[str]:
    return ["" if value is None else f'"{value}"' if '"' not in value else _quoted(value) for value in values]


def _jsons(values: Sequence[Any]) -> list[str]:
    return _texts([*map(json_text, values)])


def _times(values: Sequence[int | None]) -> list[str]:
    return ["" if value is None else _time(value) for value in values]


def _time(seconds: int) -> str:
    day, rest = divmod(seconds, DAY)
    return f"{date_of(day)}T{rest // 3_600:02}:{rest // 60 % 60:02}:{rest % 60:02}Z"


def _booleans(values: Sequence[bool | None]) -> list[str]:
    return ["" if value is None else "true" if value else "false" for value in values]


_WRITERS: Mapping[Kind, Callable[[Sequence[Any]], list[str]]] = {
    "text": _texts,
    "time": _times,
    "boolean": _booleans,
    **dict.fromkeys(NESTED, _jsons),
}


# Reading: Python's own reader returns the same for an empty text and for None.

_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^,"\n]*))(?:,|\n\Z)')


def _cells(record: str) -> list[str | None]:
    return [
        bare or None if quoted is None else quoted.replace('""', '"')
        for quoted, bare in (cell.groups() for cell in _CELL.finditer(record))
    ]


def _tally(path: Path, files: TextFiles, stop: threading.Event | None = None, *, headers: int = 1) -> Tally:
    """Return the number of records below the header: line ends outside of strings."""
    count, checksum, within = -headers, 0, 0
    try:
        with files.open(path) as file:
            for chunk in until(stop, chunks(file)):
                checksum = crc32(chunk, checksum)
                # Two quotation marks with nothing between them neither open nor close a string.
                pieces = chunk.translate(None, _OTHERS).replace(b'""', b"").split(b'"')
                count += sum(piece.count(b"\n") for piece in pieces[within::2])
                within = (within + len(pieces) - 1) % 2
    except DamagedTextError:
        checksum = DAMAGED
    return Tally(count, checksum)


_OTHERS = bytes({*range(256)} - {*b'"\n'})


FORMAT = Csv()
