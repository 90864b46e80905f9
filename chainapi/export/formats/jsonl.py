"""JSON lines: one encoded row in each line, with its source in front.

Times are whole seconds; amounts and decimals are texts, other numbers numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar
from zlib import crc32

import msgspec
from attrs import frozen

from chainapi.export.formats import Dropped, Rows
from chainapi.export.formats.values import Tally, check_written, kept, loads, typed_row, unlike
from chainapi.export.worker import until
from chainapi.tables.columns import SOURCE, Column

__all__ = ["FORMAT", "JsonLines"]

CHUNK = 1 << 20  # bytes


@frozen
class JsonLines:
    """Rows as JSON lines.

    Attributes:
        source: whether rows have the column ``source``.

    """

    name: ClassVar[str] = "jsonl"
    suffix: ClassVar[str] = ".jsonl"
    needs_columns: ClassVar[bool] = False
    source: bool = True

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
        with path.open("wb") as file:
            for lines in _all_lines(rows, previous, dropped, source=self.source):
                file.write(lines)
                count, checksum = count + lines.count(b"\n"), crc32(lines, checksum)
        return check_written(path, Tally(count, checksum), _tally(path, stop))

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

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file."""
        with path.open("rb") as file:
            for line in file:
                try:
                    row = loads(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    row = None
                if not isinstance(row, dict) or (columns and self.source and SOURCE not in row):
                    raise unlike(path, self.name)
                yield self.typed(row, columns) if columns else row

    def typed(self, row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return a row, as `read` yields it without columns, with the kinds of these."""
        return typed_row(row, columns)


def _all_lines(rows: Rows, previous: Path | None, dropped: Dropped, *, source: bool) -> Iterator[bytes]:
    if previous is not None:
        with previous.open("rb") as old:
            yield from kept(old, dropped) if dropped else _chunks(old)
    for label, lines in rows:
        if source:
            yield lines
            continue
        head = len(b'{"%b":%b' % (SOURCE.encode(), msgspec.json.encode(label)))
        rest = [line[head:].removeprefix(b",") for line in lines.split(b"\n")[:-1]]  # a text has no line end
        yield b"".join([b"{" + line + b"\n" for line in rest])


def _tally(path: Path, stop: threading.Event | None = None) -> Tally:
    count = checksum = 0
    with path.open("rb") as file:
        for chunk in until(stop, _chunks(file)):
            count, checksum = count + chunk.count(b"\n"), crc32(chunk, checksum)
    return Tally(count, checksum)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


FORMAT = JsonLines()
