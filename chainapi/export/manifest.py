"""Manifest of a folder: the list of its parts, as JSON lines.

It is replaced whole once a part is in place, so that a reader never sees half a line. The journal has the
same content: a run writes the manifest again if it is missing or different.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from chainapi.export.files import Target, put_in_place, write_partial
from chainapi.export.journal import Journal
from chainapi.export.records import Part

__all__ = ["MANIFEST", "check_manifest", "manifest_lines", "write_manifest"]

MANIFEST = "_manifest.ndjson"  # no pattern for the parts matches it, and readers of a folder skip it


def write_manifest(journal: Journal, target: Target) -> None:
    """Write the manifest of all parts that are in place.

    Raises:
        ExportError: it cannot be written.

    """
    path = target.path / MANIFEST

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            file.writelines(manifest_lines(journal))

    write_partial(path, write)
    put_in_place(path)


def check_manifest(journal: Journal, target: Target) -> None:
    """Write the manifest again if it is missing or has other parts.

    Raises:
        ExportError: it cannot be written.

    """
    found = b""
    with suppress(FileNotFoundError):
        found = (target.path / MANIFEST).read_bytes()
    if found != b"".join(manifest_lines(journal)):
        write_manifest(journal, target)


def manifest_lines(journal: Journal) -> Iterator[bytes]:
    """Yield the lines of the manifest: the parts that are in place."""
    for part in journal.parts():
        for entry in _entries(part):
            yield json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _entries(part: Part) -> Iterator[dict[str, Any]]:
    """Yield the entry of each file of a part."""
    content = part.content
    for file in content.files:
        if file.invalid:
            continue
        yield {
            "name": file.name,
            "part": part.number,
            **({"partition": dict(file.partition)} if file.partition else {}),
            "rows": file.rows,
            "bytes": file.size,
            "sources": [
                {
                    "source": rows.source,
                    "rows": rows.rows,
                    "lowest": _number(rows.lowest),
                    "highest": _number(rows.highest),
                }
                for rows in file.sources
            ],
            "columns": [{"name": name, "type": kind} for name, kind in content.columns],
            "run": content.run,
            "time": content.time,
        }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
