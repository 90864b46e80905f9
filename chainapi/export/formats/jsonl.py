"""JSON lines: one encoded row in each line, with its source in front.

Times are whole seconds; amounts and decimals are strings, other numbers numbers. The file may be compressed.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import msgspec
from attrs import frozen

from chainapi.export.files import chunks
from chainapi.export.formats import Dropped, Rows
from chainapi.export.formats.text_files import DamagedTextError, TextFileFormat, TextFiles
from chainapi.export.formats.values import DAMAGED, Tally, check_written, kept, loads, typed_row, unlike
from chainapi.export.worker import until
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.rows import count_lines

__all__ = ["FORMAT", "JsonLines"]


@frozen
class JsonLines(TextFileFormat):
    """Rows as JSON lines."""

    base: ClassVar[str] = "jsonl"
    needs_columns: ClassVar[bool] = False

    @property
    def keeps_lines(self) -> bool:
        """Check whether a new file has the JSON lines of its rows, byte by byte."""
        return self.source and not self.files.suffix

    def write(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path | None = None,
        stop: threading.Event | None = None,
        dropped: Dropped = frozenset(),
    ) -> int:
        """Write a file; nothing of a row is decoded."""
        count = checksum = 0
        with self.files.create(path) as file:
            for lines in self._all_lines(rows, previous, dropped):
                file.write(lines)
                count, checksum = count + count_lines(lines), crc32(lines, checksum)
        return check_written(path, Tally(count, checksum), _tally(path, self.files, stop))

    def can_continue(self, path: Path, columns: Sequence[Column]) -> bool:
        """Return True: lines of any columns may follow."""
        return True

    def write_tail(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path,
        stop: threading.Event | None = None,
    ) -> int:
        """Write lines that follow those of a file."""
        return self.write(path, columns, rows, stop=stop)

    def read(self, path: Path) -> Generator[dict[str, Any], None, None]:
        """Yield the rows of a file."""
        try:
            with self.files.open(path) as file:
                for line in file:
                    row = _row(line)
                    if row is None:
                        raise unlike(path, self.name)
                    yield row
        except DamagedTextError:
            raise unlike(path, self.name) from None

    def typed(self, row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return a row that `read` yields, with the kinds of these columns."""
        return typed_row(row, columns)

    def _all_lines(self, rows: Rows, previous: Path | None, dropped: Dropped) -> Iterator[bytes]:
        if previous is not None:
            try:
                with self.files.open(previous) as old:
                    yield from kept(old, dropped) if dropped else chunks(old)
            except DamagedTextError:
                raise unlike(previous, self.name) from None
        for label, lines in rows:
            if self.source:
                yield lines
                continue
            head = len(b'{"%b":%b' % (SOURCE.encode(), msgspec.json.encode(label)))
            # A string has no line end.
            rest = [line[head:].removeprefix(b",") for line in lines.split(b"\n")[:-1]]
            yield b"".join([b"{" + line + b"\n" for line in rest])


def _row(line: bytes) -> dict[str, Any] | None:
    """Return the row of a line; None if it is no JSON object."""
    try:
        row = loads(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return row if isinstance(row, dict) else None


def _tally(path: Path, files: TextFiles, stop: threading.Event | None = None) -> Tally:
    count = checksum = 0
    try:
        with files.open(path) as file:
            for chunk in until(stop, chunks(file)):
                count, checksum = count + count_lines(chunk), crc32(chunk, checksum)
    except DamagedTextError:
        checksum = DAMAGED
    return Tally(count, checksum)


FORMAT = JsonLines()
