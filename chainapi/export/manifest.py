"""Manifest of a folder: the list of its parts, as JSON lines.

It is replaced whole once a part is in place, so that a reader never sees half a line. The journal has the
same content: a run writes the manifest again if it is missing or different.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from chainapi.export.files import put_in_place, refuse_link, write_partial
from chainapi.export.journal import Journal
from chainapi.export.part_records import Part, PartFile
from chainapi.export.target import Target

__all__ = ["MANIFEST", "check_manifest", "files_in_place", "listed_in", "manifest_of", "write_manifest"]

MANIFEST = "_manifest.ndjson"  # no pattern for the parts matches it, and readers of a folder skip it


def write_manifest(journal: Journal, target: Target) -> None:
    """Write the manifest of all parts that are in place.

    Raises:
        ExportError: it cannot be written, or is a symbolic link.

    """
    path, content = target.path / MANIFEST, manifest_of(journal)
    refuse_link(path)
    write_partial(path, lambda partial: partial.write_bytes(content))
    put_in_place(path)


def check_manifest(journal: Journal, target: Target) -> None:
    """Write the manifest again if it is missing or has other parts.

    Raises:
        ExportError: it cannot be written, or is a symbolic link.

    """
    path, found = target.path / MANIFEST, None
    refuse_link(path)
    with suppress(FileNotFoundError, IsADirectoryError):
        found = path.read_bytes()
    if found != manifest_of(journal):
        write_manifest(journal, target)


def files_in_place(journal: Journal) -> Iterator[tuple[Part, PartFile]]:
    """Yield the files with rows of a folder, each with its part.

    Files that others replaced are left out.
    """
    replaced = {name for part in journal.parts() for name in part.content.replaces}
    for part in journal.parts():
        for file in part.content.files:
            if not file.invalid and file.name not in replaced:
                yield part, file


def manifest_of(journal: Journal) -> bytes:
    """Return the content of the manifest: a line for each file that is in place."""
    entries = (_entry(part, file) for part, file in files_in_place(journal))
    lines = (json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
    return b"".join(line.encode() + b"\n" for line in lines)


def listed_in(content: bytes) -> Iterator[tuple[str, int]]:
    """Yield the name and the part of each file in a manifest.

    Damaged lines are left out.
    """
    for line in content.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            yield str(entry["name"]), int(entry["part"])


def _entry(part: Part, file: PartFile) -> dict[str, Any]:
    """Return the entry of a file."""
    content = part.content
    return {
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
        "replaces": [*content.replaces],
        "run": content.run,
        "time": content.time,
    }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
