"""Target of an export, and atomic writes of its files.

A file is written under another name, synced, renamed, and its folder is synced: after a kill or a power cut
the whole file is there, or the old one. `append` adds rows to a file in place. Everything here blocks.
"""

from __future__ import annotations

import glob
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from attrs import field, frozen

from chainapi.errors import ExportError
from chainapi.export.formats import format_of
from chainapi.export.settings import JOURNAL, format_name_of, settings_in

if TYPE_CHECKING:
    from _typeshed import SupportsRead

    from chainapi.export.formats import Format

__all__ = [
    "SYNC_EVERY",
    "FileState",
    "Target",
    "chunks",
    "digest_of",
    "has_state",
    "make_folders",
    "os_errors_explained",
    "partial_of",
    "put_in_place",
    "reason_of",
    "refuse_link",
    "state_of",
    "sync_file",
    "sync_folder",
    "write_partial",
]

HEAD, TAIL = 16 << 10, 64 << 10  # bytes of a file whose digest is kept
CHUNK = 1 << 20  # bytes that are read at a time
SYNC_EVERY = 64 << 20  # bytes: a sync of gigabytes at once could not be stopped


@frozen
class Target:
    """Target of an export: a file, or a folder that gets a file for each part.

    Attributes:
        path: the file or the folder.
        folder: whether it is a folder.
        format: format of the files.
        partition: keys that divide the rows of a part into files; empty for one file.
        stored: settings of the export that it holds; empty for a new one.

    """

    appends: ClassVar[bool] = True  # whether a single file may get its new rows after the old ones

    path: Path
    folder: bool
    format: Format
    partition: tuple[str, ...] = ()
    stored: Mapping[str, Any] = field(factory=dict[str, Any], kw_only=True, repr=False)

    @classmethod
    def of(cls, out: str | os.PathLike[str], format_name: str | None) -> Self:
        """Return the target at a path.

        A folder exists, ends with a slash, or has no suffix. The format of an export that is there is the
        default.

        Raises:
            ConfigurationError: the format is unknown, or a package that it needs is missing.
            ExportError: no file can have this name, or the target has files of another format.

        """
        path = Path(out)
        slash = os.fspath(out).endswith(("/", os.sep))
        if (fault := _fault_of_name(os.fspath(out))) is not None:
            raise ExportError(f"{os.fspath(out)!r} cannot be written: {fault}; choose another target")
        with os_errors_explained(path):
            folder = path.is_dir() or (not path.is_file() and (slash or not path.suffix))
            stored = settings_in(journal_of(path, folder=folder))
        name = format_name_of(path, format_name, stored, path.name, folder=folder)
        return cls(path, folder, format_of(name), stored=stored)

    @property
    def address(self) -> Path | str:
        """Path or URL of the file or the folder."""
        return self.path

    @property
    def root(self) -> Path:
        """Folder of the files."""
        return self.path if self.folder else self.path.parent

    @property
    def journal(self) -> Path:
        """Folder of the journal."""
        return journal_of(self.path, folder=self.folder)

    def part(self, number: int, within: str = "") -> Path:
        """Return the path of a file of a part; `number` counts from 1.

        With a partition, `within` is its folder, with slashes.
        """
        return self.path / within / f"part-{number:05}{self.format.suffix}" if self.folder else self.path

    def parts(self, number: int) -> Iterable[Path]:
        """Return the paths of the files of a part that exist, or the path of the only one."""
        path = self.part(number)
        return self.path.rglob(glob.escape(path.name)) if self.partition else [path]

    def corrected(self, number: int, name: str) -> Path:
        """Return the path of a part's copy of an earlier file that loses rows.

        It keeps the number of the part that first had these rows.
        """
        old = self.root / name
        return old.with_name(
            f"part-{number:05}-{old.name.removesuffix(self.format.suffix)[-5:]}{self.format.suffix}"
        )

    def invalid_part(self, number: int) -> Path:
        """Return the path of the JSON lines with the invalid rows of a part.

        No pattern for the parts of a folder matches it, and readers of folders skip the underscore.
        """
        name = f"_invalid-{number:05}.ndjson" if self.folder else f"{self.path.name}.invalid"
        return self.root / name

    def file(self, name: str) -> Path | str:
        """Return the path of a file by its name below the folder."""
        return self.root / name

    def present(self, path: Path) -> Path | None:
        """Return the path of a file if it exists."""
        return path if path.is_file() else None

    def exists(self, name: str) -> bool:
        """Check whether a file is there, by its name below the folder."""
        return (self.root / name).is_file()

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """Yield the path of a local file with the content of a file of the folder."""
        yield self.root / name

    def left_behind(self) -> Iterator[Path]:
        """Yield the ``.partial`` files of a killed run."""
        if self.folder:
            yield from self.path.rglob(".part-*.partial*")
            yield from self.path.glob("._invalid-*.partial")
        else:
            yield from self.root.glob(f"{glob.escape(partial_of(self.path).name)}*")

    def prepare(self) -> None:
        """Create the folders; refuse a file, or a folder with files, that no export wrote.

        Raises:
            ExportError: the target holds other files, or cannot be written.

        """
        with os_errors_explained(self.root):
            refuse_link(self.root, dangling=True)
            _check_is_folder(self.root)
            self.root.mkdir(parents=True, exist_ok=True)
            own = [self.journal, self.journal / JOURNAL, self.journal / f"{JOURNAL}-wal"]
            if not self.folder:
                own += self.path, self.invalid_part(1)
            for path in own:
                refuse_link(path)
            if (self.journal / JOURNAL).exists():
                return
            if self.journal.exists() and (not self.journal.is_dir() or any(self.journal.iterdir())):
                raise ExportError(
                    f"{self.journal} is not a journal that this version of chainapi reads: move it away, or "
                    "choose another target"
                )
            foreign = any(self._others()) if self.folder else self.path.exists()
        if foreign:
            held, place = ("is not empty", "in") if self.folder else ("exists", "beside")
            raise ExportError(
                f"{self.path} {held}, and no export wrote it (no {self.journal.name} is {place} it): "
                "move it away, or choose another target"
            )

    def _others(self) -> Iterator[Path]:
        """Yield what is in the folder beside that of the journal."""
        return (path for path in self.path.iterdir() if path != self.journal)


def journal_of(path: Path, *, folder: bool) -> Path:
    """Return the folder of the journal of a local file or folder."""
    return path / "_export" if folder else path.with_name(path.name + ".export")


@contextmanager
def os_errors_explained(path: Path) -> Iterator[None]:
    """Raise errors of the operating system as errors of the target `path`.

    Raises:
        ExportError: the operating system refused a step of the block.

    """
    try:
        yield
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {reason_of(error)}; choose another target") from error


def make_folders(folder: Path, root: Path) -> None:
    """Create a folder below `root` with those between them, so that their names last.

    Raises:
        ExportError: a folder cannot be created.

    """
    with os_errors_explained(root):
        for inner in [*reversed(folder.relative_to(root).parents), folder.relative_to(root)][1:]:
            (root / inner).mkdir(exist_ok=True)
            sync_folder((root / inner).parent)  # also if a killed run has created it


def refuse_link(path: Path, *, dangling: bool = False) -> None:
    """Refuse a symbolic link in place of a file; with `dangling` only a broken one.

    A new file gets its name by a rename, which would replace the link and not the file behind it.

    Raises:
        ExportError: `path` is such a link.

    """
    if path.is_symlink() and not (dangling and path.exists()):
        raise ExportError(
            f"{path} is a symbolic link to {path.readlink()}, which an export neither follows nor replaces: "
            "name the file itself, or choose another target"
        )


def partial_of(path: Path) -> Path:
    """Return the path that a file has until it is whole.

    It is in the same folder, so that one sync makes the rename last. Readers of a folder skip the name.
    """
    return path.with_name(f".{path.name}.partial")


def write_partial(path: Path, write: Callable[[Path], object]) -> tuple[int, str]:
    """Write and sync a file; return its size in bytes and its digest.

    It has the name `partial_of` until `put_in_place`. `write` gets the path and writes the content. On an
    error the file is deleted.

    Raises:
        ExportError: the file cannot be written.

    """
    partial = partial_of(path)
    _remove(partial)
    try:
        write(partial)
        sync_file(partial)
        if path.exists():  # a rename would replace its mode as well
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
        sync_folder(partial.parent)  # the journal records the file only once its name survives a power cut
        return partial.stat().st_size, digest_of(partial)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ExportError(
                f"{path} cannot be written: {reason_of(error)}; all rows are kept in the journal: "
                "make room and start the same export again"
            ) from error
        raise


def _remove(partial: Path) -> None:
    """Delete a ``.partial`` file that an earlier run left behind."""
    refuse_link(partial)
    try:
        partial.unlink(missing_ok=True)
    except OSError as error:
        raise ExportError(
            f"{partial} is in the way and cannot be removed ({reason_of(error)}): move it away and start the "
            "same export again; all rows are kept in the journal"
        ) from error


def put_in_place(path: Path) -> None:
    """Rename a ``.partial`` file; sync its folder, so that the name lasts.

    Raises:
        ExportError: the file cannot be renamed.

    """
    try:
        partial_of(path).replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise ExportError(
            f"{path} cannot be written: {reason_of(error)}; all rows are kept in the journal: remove "
            "the cause and start the same export again"
        ) from error


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk; Windows offers no way to do so."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Sync the content of a file to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@frozen
class FileState:
    """Size of a file in bytes, and its digest."""

    size: int
    digest: str


def chunks(file: SupportsRead[bytes], left: int = sys.maxsize) -> Iterator[bytes]:
    """Yield the next bytes of a file, up to `left` of them."""
    while left > 0 and (chunk := file.read(min(CHUNK, left))):
        left -= len(chunk)
        yield chunk


def digest_of(path: Path, size: int | None = None, tail: Path | None = None) -> str:
    """Return a digest of the ends of a file: 32 hexadecimal digits.

    It is as fast for a file of gigabytes as for a small one. Databases count their changes in the first
    bytes; other formats only change at the end.

    Args:
        path: the file.
        size: number of its first bytes that count; None for all.
        tail: file whose bytes count as if they followed.

    """
    pieces = [(path, path.stat().st_size if size is None else size)]
    if tail is not None:
        pieces.append((tail, tail.stat().st_size))
    whole = sum(length for _, length in pieces)
    return state_of(whole, lambda start, end: b"".join(_between(pieces, start, end))).digest


def has_state(path: Path, size: int, digest: str) -> bool:
    """Check whether there is a file with this size and digest."""
    return path.is_file() and path.stat().st_size == size and digest_of(path) == digest


def state_of(size: int, read: Callable[[int, int], bytes]) -> FileState:
    """Return the state of a file with a size.

    `read` returns its bytes between two offsets.
    """
    digest = blake2b(digest_size=16)
    for start, end in ((0, min(HEAD, size)), (max(0, size - TAIL), size)):
        if start < end:
            digest.update(read(start, end))
    return FileState(size, digest.hexdigest())


def _between(pieces: Iterable[tuple[Path, int]], start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end` of joined files with these lengths."""
    for path, length in pieces:
        if start < min(end, length):
            with path.open("rb") as file:
                file.seek(start)
                yield file.read(min(end, length) - start)
        start, end = max(0, start - length), end - length


def _check_is_folder(path: Path) -> None:
    """Refuse a path with a file where a folder must be; the path need not exist.

    Raises:
        ExportError: there is such a file.

    """
    nearest = next((one for one in (path, *path.parents) if one.exists()), path)
    if nearest.exists() and not nearest.is_dir():
        raise ExportError(f"{path} cannot be written: {nearest} is no folder; choose another target")


def _fault_of_name(name: str) -> str | None:
    """Return why no file of an export can have this name, or None."""
    if not name:
        return "the name is empty"
    if "\0" in name:
        return "a file name cannot contain NUL"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8, as the libraries of most formats need it"
    return None


def reason_of(error: OSError) -> str:
    """Return what the operating system says about an error."""
    return error.strerror or str(error)
