"""Where an export goes, and how a file gets there: whole or not at all, whatever stops the machine.

A file is written under another name, synced, renamed, and its folder synced. Everything here blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Self

from attrs import frozen

from chainapi.errors import ExportError
from chainapi.export.formats import format_of

if TYPE_CHECKING:
    from chainapi.export.formats import Format

__all__ = ["Target", "digest_of", "put_in_place", "refuse_link", "sync_folder", "told", "write_aside"]

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
            ExportError: no file can have such a name.

        """
        path = Path(out)
        slash = os.fspath(out).endswith(("/", os.sep))
        if "\0" in str(path):
            raise ExportError(f"{path} cannot be written: no name has a NUL in it; choose another target")
        with told(path):
            folder = path.is_dir() or (not path.is_file() and (slash or not path.suffix))
        return cls(path, folder, format_of(format_name or (IN_FOLDERS if folder else path.name)))

    @property
    def state_path(self) -> Path:
        """Where the export's memory is."""
        return self.path / "_export" if self.folder else self.path.with_name(self.path.name + ".export")

    def part(self, number: int) -> Path:
        """Return the path of the final file of this number, from 1."""
        return self.path / f"part-{number:05}{self.format.suffix}" if self.folder else self.path

    def invalid_part(self, number: int) -> Path:
        """Return the path of the JSON lines with the invalid rows of a final file."""
        name = f"part-{number:05}" if self.folder else self.path.name
        return self.part(number).with_name(f"{name}.invalid")

    def prepare(self) -> None:
        """Make the folders, and refuse what was not written by an export.

        Raises:
            ExportError: something else is there, or nothing can be written there.

        """
        folder = self.path if self.folder else self.path.parent
        with told(folder):
            refuse_link(folder, dangling=True)
            folder.mkdir(parents=True, exist_ok=True)
            refuse_link(self.state_path)
            if not self.folder:
                refuse_link(self.path)
            if self.state_path.exists():
                return
            foreign = any(self.path.iterdir()) if self.folder else self.path.exists()
        if foreign:
            held = "is not empty" if self.folder else "exists"
            raise ExportError(
                f"{self.path} {held}, and no export wrote it (there is no {self.state_path.name} beside it): "
                "move it away, or choose another target"
            )


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Say of what the operating system refuses that it concerns a target.

    Raises:
        ExportError: it refused something.

    """
    try:
        yield
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {_reason(error)}; choose another target") from error


def refuse_link(path: Path, *, dangling: bool = False) -> None:
    """Refuse a symbolic link where a file of an export is to be; with `dangling` one that leads nowhere.

    What is written gets its name by being renamed: it would take the place of the link, not of the file that
    the link names.

    Raises:
        ExportError: it is one.

    """
    if path.is_symlink() and not (dangling and path.exists()):
        raise ExportError(
            f"{path} is a symbolic link to {path.readlink()}, which an export neither follows nor replaces: "
            "name the file itself, or choose another target"
        )


def write_aside(path: Path, write: Callable[[Path], None]) -> tuple[Path, int, str]:
    """Let `write` make a file beside `path`, sync it, and return its path, size in bytes and digest.

    Nothing is left of a file that could not be written.

    Raises:
        ExportError: the file cannot be written.

    """
    aside = path.with_name(path.name + ".partial")
    _remove(aside)
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


def _remove(aside: Path) -> None:
    """Remove what a run before left, or somebody else."""
    try:
        aside.unlink(missing_ok=True)
    except OSError as error:
        raise ExportError(
            f"{aside} is in the way and cannot be removed ({_reason(error)}): move it away and start the "
            "same export again; every row is kept in the state beside it"
        ) from error


def put_in_place(aside: Path, path: Path) -> None:
    """Give a file its name, for good.

    Raises:
        ExportError: the file cannot be renamed.

    """
    try:
        aside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise ExportError(
            f"{path} cannot be written: {_reason(error)}; every row is kept in the state beside it: mend "
            "that and start the same export again"
        ) from error


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
