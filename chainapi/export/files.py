"""Where an export goes, and how a file gets there: whole or not at all, whatever stops the machine.

A file is written under another name, synced, renamed, and its folder synced. Everything here blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Self

from attrs import frozen

from chainapi.errors import ExportError
from chainapi.export.formats import format_of

if TYPE_CHECKING:
    from chainapi.export.formats import Format

__all__ = ["Target", "digest_of", "put_in_place", "sync_folder", "write_aside"]

CHUNK = 1 << 20  # bytes
IN_FOLDERS = "jsonl"  # what a folder gets where no format is named


@frozen
class Target:
    """A file, or a folder that gets a file each run.

    Attributes:
        path: the file or the folder.
        folder: whether it is a folder.
        format: what the files are.

    """

    path: Path
    folder: bool
    format: Format

    @classmethod
    def of(cls, out: str | os.PathLike[str], format_name: str | None) -> Self:
        """Tell a file from a folder: a folder exists, ends with a slash, or has no suffix.

        Raises:
            ConfigurationError: there is no such format, or a package that it needs is missing.

        """
        path = Path(out)
        slash = os.fspath(out).endswith(("/", os.sep))
        folder = path.is_dir() or (not path.is_file() and (slash or not path.suffix))
        return cls(path, folder, format_of(format_name or (IN_FOLDERS if folder else path.name)))

    @property
    def state_path(self) -> Path:
        """Where the export's memory is."""
        return self.path / "_export" if self.folder else self.path.with_name(self.path.name + ".export")

    def part(self, number: int) -> Path:
        """Return the path of the final file of this number, from 1."""
        return self.path / f"part-{number:05}{self.format.suffix}" if self.folder else self.path

    def prepare(self) -> None:
        """Make the folders, and refuse what was not written by an export.

        Raises:
            ExportError: something else is there, or nothing can be written there.

        """
        folder = self.path if self.folder else self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.state_path.exists():
                return
            foreign = any(self.path.iterdir()) if self.folder else self.path.exists()
        except OSError as error:
            raise ExportError(
                f"{folder} cannot be written: {_reason(error)}; choose another target"
            ) from error
        if foreign:
            held = "is not empty" if self.folder else "exists"
            raise ExportError(
                f"{self.path} {held}, and no export wrote it (there is no {self.state_path.name} beside it): "
                "move it away, or choose another target"
            )


def write_aside(path: Path, write: Callable[[Path], None]) -> tuple[Path, int, str]:
    """Let `write` make a file beside `path`, sync it, and return its path, size in bytes and digest.

    Nothing is left of a file that could not be written.

    Raises:
        ExportError: the file cannot be written.

    """
    aside = path.with_name(path.name + ".partial")
    aside.unlink(missing_ok=True)
    try:
        write(aside)
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        return aside, aside.stat().st_size, digest_of(aside)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ExportError(
                f"{path} cannot be written: {_reason(error)}; every row is kept in the state beside it: "
                "make room and start the same export again"
            ) from error
        raise


def put_in_place(aside: Path, path: Path) -> None:
    """Give a file its name, for good.

    Raises:
        ExportError: the file cannot be renamed.

    """
    try:
        aside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {_reason(error)}") from error


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder, where the system can."""
    if os.name == "nt":  # a folder cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest_of(path: Path) -> str:
    """Return 32 hexadecimal digits that tell the file's content from any other."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
