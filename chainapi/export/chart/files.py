"""Rows of an exported file, or of all files in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from attrs import frozen

from chainapi.errors import ConfigurationError
from chainapi.export.formats import FORMATS, format_of
from chainapi.export.partition import NULL

__all__ = ["Files"]


@frozen
class Files:
    """Files of one export.

    Attributes:
        path: the file or folder that the user named.
        files: its files, in the order of their names.

    """

    path: Path
    files: Sequence[Path]

    @classmethod
    def of(cls, path: Path) -> Files:
        """Find the file, or all files of rows in a folder and the folders in it.

        Files and folders whose names begin with "_" or "." are left out, as other tools do.

        Raises:
            ConfigurationError: the folder has no files of rows, or files of several formats.

        """
        if not path.is_dir():
            return cls(path, [path])
        found = [file for file in sorted(path.rglob("*")) if file.is_file() and _has_rows(file, path)]
        formats = sorted({file.suffix.lower() for file in found})
        if not formats:
            raise ConfigurationError(f"{path} has no files of rows ({', '.join(FORMATS)}) to plot")
        if len(formats) > 1:
            raise ConfigurationError(
                f"{path} has files of several formats ({', '.join(formats)}): name one file"
            )
        return cls(path, found)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of all files.

        Values in the names of folders, such as ``source=43114``, are columns that the rows may lack.

        Raises:
            ConfigurationError: a file is damaged or has another format.
            OSError: a file cannot be read.

        """
        for file in self.files:
            named = _named(file.relative_to(self.path).parts[:-1]) if file != self.path else {}
            for row in format_of(file).read(file):
                yield {**named, **row} if named else row


def _has_rows(file: Path, folder: Path) -> bool:
    parts = file.relative_to(folder).parts
    return file.suffix.lower().removeprefix(".") in FORMATS and not any(
        part.startswith(("_", ".")) for part in parts
    )


def _named(folders: Sequence[str]) -> dict[str, str | None]:
    """Return the values of columns in the names of folders, as Hive writes them."""
    pairs = (folder.partition("=") for folder in folders)
    return {
        unquote(name): None if value == NULL else unquote(value) for name, equals, value in pairs if equals
    }
