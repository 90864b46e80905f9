r"""CSV by RFC 4180, in UTF-8 and with "\n" after each line.

Only texts are in quotation marks: an empty text is ``""``, None is nothing between two commas. Times are ISO
8601 in UTC, or seconds beyond the year 9999; records, lists and other JSON are JSON texts. The file is data
and not for a spreadsheet: a text that begins with ``=`` stays unchanged.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from chainapi.export.formats import Rows
from chainapi.export.formats.values import NESTED, header, loads, require, unlike, value_of
from chainapi.models.timestamps import utc_datetime
from chainapi.tables.columns import SOURCE, Column, json_text, unpacker

__all__ = ["FORMAT", "Csv"]


class Csv:
    """Rows as comma-separated values under a header."""

    name: Final = "csv"
    suffix: Final = ".csv"
    needs_columns: Final = True

    def write(self, path: Path, columns: Sequence[Column], rows: Rows, previous: Path | None = None) -> None:
        """Write a file."""
        require(columns, self.name)
        head = (",".join(header(columns)) + "\n").encode()
        unpack, writers = unpacker(columns, nested=False), [_writer(column) for column in columns]
        with path.open("wb") as file:
            if previous is None:
                file.write(head)
            else:
                _copy(previous, file, head)
            for source, row in rows():
                cells = [
                    "" if value is None else write(value)
                    for write, value in zip(writers, unpack(row), strict=True)
                ]
                file.write((",".join((_quoted(source), *cells)) + "\n").encode())

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file; without columns values are texts."""
        records = _records(path)
        names = [name or "" for name in next(records, ())]
        if columns and names != header(columns):
            raise unlike(path, self.name)
        for cells in records:
            if len(cells) != len(names):
                raise unlike(path, self.name)
            row = dict(zip(names, cells, strict=True))
            yield _typed(row, columns) if columns else row


# Writing


def _quoted(text: str) -> str:
    return f'"{text.replace(chr(34), chr(34) * 2)}"'


def _writer(column: Column) -> Callable[[Any], str]:
    if column.kind in NESTED:
        return _json
    kinds: dict[str, Callable[[Any], str]] = {"text": _quoted, "time": _time, "boolean": _boolean}
    return kinds.get(column.kind, str)


def _json(raw: Any) -> str:
    text = json_text(raw)
    return "" if text is None else _quoted(text)


def _time(seconds: int) -> str:
    try:
        return utc_datetime(seconds).isoformat()[:19] + "Z"
    except ValueError:
        return str(seconds)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _copy(previous: Path, file: BinaryIO, head: bytes) -> None:
    with previous.open("rb") as old:
        if old.readline() != head:
            raise unlike(previous, "csv")
        file.write(head)
        shutil.copyfileobj(old, file, 1 << 20)


# Reading: Python's own reader returns the same for an empty text and for None.

_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^,"\n]*))(?:,|\n\Z)')


def _records(path: Path) -> Iterator[list[str | None]]:
    """Yield the cells of each record.

    A line with an odd number of quotation marks continues in the next one.
    """
    record: list[str] = []
    within = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            for line in lines:
                record.append(line)
                within ^= line.count('"') & 1
                if not within:
                    yield [
                        bare or None if quoted is None else quoted.replace('""', '"')
                        for quoted, bare in (cell.groups() for cell in _CELL.finditer("".join(record)))
                    ]
                    record.clear()
    except UnicodeDecodeError:
        raise unlike(path, "csv") from None
    if record:
        raise unlike(path, "csv")


def _typed(row: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    made = {SOURCE: row[SOURCE]}
    for column in columns:
        cell = row[column.name]
        made[column.name] = value_of(column, loads(cell) if cell and column.kind in NESTED else cell)
    return made


FORMAT = Csv()
