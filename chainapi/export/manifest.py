"""Manifest of a folder: the list of its parts, as JSON lines.

It is replaced whole once a part is in place, so that a reader never sees half a line. The journal has the
same content: a run writes the manifest again if it is missing or different. One with newer parts than the
journal shows that the journal is an old copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from chainapi._text import quoted
from chainapi.errors import ExportError
from chainapi.export.files import put_in_place, refuse_link, write_partial
from chainapi.export.journal import Journal
from chainapi.export.part_records import BEGUN, Part, PartFile, next_number
from chainapi.export.target import Target

__all__ = [
    "MANIFEST",
    "files_in_place",
    "has_manifest",
    "listed_in",
    "manifest_of",
    "refuse_newer",
    "write_manifest",
]

MANIFEST = "_manifest.ndjson"  # no pattern for the parts matches it, and readers of a folder skip it


def write_manifest(journal: Journal, target: Target) -> None:
    """Write the manifest of all parts that are in place.

    Raises:
        ExportError: it cannot be written, or is a symbolic link.

    """
    path = target.path / MANIFEST
    refuse_link(path)

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            file.writelines(_lines(journal))

    write_partial(path, write)
    put_in_place(path)


def has_manifest(journal: Journal, target: Target, last: Part | None) -> bool:
    """Check whether the manifest has the parts in place, and no others.

    Args:
        journal: journal of the export.
        target: target of the export, a folder.
        last: the newest part in the journal.

    Raises:
        ExportError: it lists newer parts, it cannot be read, or it is a symbolic link.

    """
    path = target.path / MANIFEST
    refuse_link(path)
    if _has_lines(path, _lines(journal)):
        return True
    number = last.number if last is not None and last.state == BEGUN else next_number(last)
    with suppress(FileNotFoundError, IsADirectoryError), path.open("rb") as file:
        refuse_newer(path, file, number, target)
    return False


def refuse_newer(manifest: Path | str, lines: Iterable[bytes], number: int, target: Target) -> None:
    """Refuse a manifest with parts from a number on: the journal is then an old copy.

    Raises:
        ExportError: it lists such a part.

    """
    newer = next((name for name, part in listed_in(lines) if part >= number), None)
    if newer is not None:
        raise ExportError(
            f"{manifest} lists {quoted(newer)}, but {target.journal} has no record of it: is that an old "
            "copy, or without its -wal file? Put the newest copy back, or delete the manifest if it was "
            "changed"
        )


def _has_lines(path: Path, lines: Iterable[bytes]) -> bool:
    """Check whether a file has these lines and no others."""
    try:
        with path.open("rb") as file:
            return all(file.read(len(line)) == line for line in lines) and not file.read(1)
    except (FileNotFoundError, IsADirectoryError):
        return False


def files_in_place(journal: Journal) -> Iterator[tuple[Part, PartFile]]:
    """Yield the files with rows of a folder, each with its part.

    Files that others replaced are left out.
    """
    replaced = journal.replaced_files()
    for part in journal.parts():
        for file in part.content.files:
            if not file.invalid and file.name not in replaced:
                yield part, file


def manifest_of(journal: Journal) -> bytes:
    """Return the content of the manifest: a line for each file that is in place."""
    return b"".join(_lines(journal))


def _lines(journal: Journal) -> Iterator[bytes]:
    """Yield the lines of the manifest; memory holds those of a part."""
    for part, file in files_in_place(journal):
        yield msgspec.json.encode(_entry(part, file)) + b"\n"


def listed_in(lines: Iterable[bytes]) -> Iterator[tuple[str, int]]:
    """Yield the name and the part of each file in the lines of a manifest.

    Damaged lines are left out.
    """
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
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


def _number(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())  # it may have more than 64 bits
