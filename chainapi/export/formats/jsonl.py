"""JSON lines: one encoded row in each line.

Times are whole seconds, decimals are texts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from chainapi.export.formats import Rows, labelled
from chainapi.export.formats.values import loads, unlike, value_of
from chainapi.tables.columns import SOURCE, Column

__all__ = ["FORMAT", "JsonLines"]


class JsonLines:
    """Rows as JSON lines."""

    name: Final = "jsonl"
    suffix: Final = ".jsonl"
    needs_columns: Final = False

    def write(self, path: Path, columns: Sequence[Column], rows: Rows, previous: Path | None = None) -> None:
        """Write a file; nothing of a row is decoded."""
        with path.open("wb") as file:
            if previous is not None:
                with previous.open("rb") as old:
                    shutil.copyfileobj(old, file, 1 << 20)
            for label, lines in rows.pages():
                file.write(labelled(label, lines))

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file."""
        with path.open("rb") as file:
            for line in file:
                try:
                    row = loads(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    row = None
                if not isinstance(row, dict) or (columns and SOURCE not in row):
                    raise unlike(path, self.name)
                yield _typed(row, columns) if columns else row


def _typed(row: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    values = {column.name: value_of(column, row.get(column.name)) for column in columns}
    return {SOURCE: row[SOURCE], **values}


FORMAT = JsonLines()
