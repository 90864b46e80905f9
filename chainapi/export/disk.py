"""Files of an export on a local disk.

A file is written under a hidden name and synced (`keep`). It gets its name once a record of the log names it
(`publish`). A record is created whole, and only one writer can create it. After a kill or a power cut a
hidden file with a record is complete, and one without was never part of the export.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from errno import EISDIR, ENAMETOOLONG, ENOTDIR, EROFS
from hashlib import blake2b
from pathlib import Path
from typing import IO
from uuid import uuid4

from attrs import define, field

from chainapi.errors import ExportError, TargetInUseError

__all__ = ["Disk", "Lock", "digest_of", "explained", "hidden", "reason_of", "refused", "sync"]

SYNC_THREADS = 8  # a file system commits the syncs of several threads at once
HEAD, TAIL = 16 << 10, 64 << 10  # bytes of a file whose digest is kept
_OF_NAMES = (ENAMETOOLONG, ENOTDIR, EISDIR, EROFS)  # errors that no second try mends
_ADVICE = "make room, or remove another cause, and start the same export again"


@define(eq=False)
class Disk:
    """Folder on a local disk.

    Attributes:
        root: the folder; names of files are relative to it, with slashes.

    """

    exclusive = True
    root: Path
    _synced: set[Path] = field(factory=set[Path], init=False)  # folders whose names are on the disk

    def address(self, name: str = "") -> str:
        """Return the path of a file, or of the folder."""
        return str(self.root / name)

    def names(self, folder: str = "", *, below: bool = False) -> list[str]:
        """Return the names of the files in a folder, sorted.

        With `below` in the folders in it too.
        """
        path = self.root / folder
        with explained(path, "read"):
            found = path.rglob("*") if below else path.glob("*")
            return sorted(one.relative_to(path).as_posix() for one in found if not one.is_dir())

    def size(self, name: str) -> int | None:
        """Return the bytes of a file; None if there is none."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return (self.root / name).stat().st_size
        return None

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return the bytes of a file, or those between two offsets.

        None if there is no such file.
        """
        with (
            explained(self.root / name, "read"),
            suppress(FileNotFoundError, NotADirectoryError),
            (self.root / name).open("rb") as file,
        ):
            file.seek(start)
            return file.read(-1 if end is None else end - start)
        return None

    def replace(self, name: str, content: bytes) -> None:
        """Write a whole file, in place of one with its name; it survives a power cut."""
        self.staged(name).write_bytes(content)
        self.keep([name])
        self.publish([name])

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """Yield the path of a local file with the content of a file."""
        yield self.root / name

    def create(self, name: str, content: bytes) -> bool:
        """Create a whole file; return False if there is one.

        A link fails if its name exists. Without hard links the lock of the target keeps others away.
        """
        path, written = self.root / name, self.staged(f"{name}.{uuid4().hex[:8]}")  # for two writers at once
        with explained(path):
            try:
                written.write_bytes(content)
                sync(written)
                _link(written, path)
            except FileExistsError:
                return False
            finally:
                written.unlink(missing_ok=True)
            sync(path.parent)
        return True

    def staged(self, name: str) -> Path:
        """Return the path at which a new file is written."""
        path = self.root / name
        with explained(path):
            self._make_folder(path.parent)
            if (staged := hidden(path)).is_symlink():
                staged.unlink()  # else the rows would go to what it names
        return staged

    def keep(self, names: Collection[str]) -> None:
        """Let staged files survive a power cut, under their hidden names."""
        paths = [hidden(self.root / name) for name in names]
        with explained(self.root), ThreadPoolExecutor(SYNC_THREADS, "chainapi-sync") as threads:
            for group in (paths, {path.parent for path in paths}):
                list(threads.map(sync, group))  # list() raises their errors

    def publish(self, names: Collection[str]) -> None:
        """Give kept files their names; those that have them are left out."""
        for name in names:
            path = self.root / name
            with explained(path), suppress(FileNotFoundError):
                hidden(path).replace(path)
        self._sync_folders(names)

    def discard(self, names: Iterable[str]) -> None:
        """Delete staged files."""
        for name in names:
            with suppress(OSError):
                hidden(self.root / name).unlink(missing_ok=True)

    def remove(self, names: Collection[str]) -> None:
        """Delete files; those that are missing are left out."""
        for name in names:
            with explained(self.root / name, "removed"):
                (self.root / name).unlink(missing_ok=True)
        self._sync_folders(names)

    def left_behind(self, folder: str = "") -> list[str]:
        """Return the names of the staged files of a run that was killed."""
        with explained(self.root, "read"):
            found = [path.relative_to(self.root) for path in (self.root / folder).rglob(".*.partial")]
        return [path.with_name(path.name[1:].removesuffix(".partial")).as_posix() for path in found]

    def close(self) -> None:
        """Do nothing: no local copy is left."""

    def _sync_folders(self, names: Iterable[str]) -> None:
        with explained(self.root):
            for folder in {(self.root / name).parent for name in names}:
                if folder.is_dir():
                    sync(folder)

    def _make_folder(self, folder: Path) -> None:
        """Create a folder, and those above it up to the root.

        Their names survive a power cut.
        """
        if folder in self._synced:
            return
        if folder != self.root:
            self._make_folder(folder.parent)
        folder.mkdir(parents=folder == self.root, exist_ok=True)
        sync(folder.parent)
        self._synced.add(folder)


class Lock:
    """Lock of a target on a disk; it ends with its process.

    Args:
        path: file to lock.
        target: the target as errors name it.

    """

    def __init__(self, path: Path, target: str) -> None:
        self._path, self._target = path, target
        self._file: IO[bytes] | None = None
        self._made: Sequence[Path] = ()  # folders of the file that were missing

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            TargetInUseError: another export has it.
            ExportError: the file cannot be opened.

        """
        self._made = [folder for folder in self._path.parents if not folder.exists()]
        while self._file is None:
            with explained(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                file = self._path.open("ab")
            try:
                _lock(file)
            except OSError:
                file.close()
                raise TargetInUseError(
                    f"another export is writing to this target, {self._target}: wait for its end (wait= "
                    "seconds), or choose another target"
                ) from None
            if self._is_there(file):
                self._file = file
            else:  # its last owner has removed it meanwhile
                file.close()

    def _is_there(self, file: IO[bytes]) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self, *, stays: bool = True) -> None:
        """Release the lock.

        Without `stays` delete its file, and empty folders above it that it needed.
        """
        if self._file is None:
            return
        if not stays and os.name != "nt":
            self._path.unlink(missing_ok=True)
        self._file.close()
        self._file = None
        with suppress(OSError):
            for folder in self._made if not stays else ():
                folder.rmdir()


def _lock(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def hidden(path: Path) -> Path:
    """Return the name that a file has until a record names it.

    Readers of folders skip it.
    """
    return path.with_name(f".{path.name}.partial")


def _link(written: Path, path: Path) -> None:
    """Give a file its name, unless that exists."""
    try:
        path.hardlink_to(written)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(str(path)) from None
        written.replace(path)


def sync(path: Path) -> None:
    """Sync the content of a file, or the names in a folder, to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows syncs no folder
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest_of(path: Path, size: int) -> str:
    """Return a digest of the ends of the first `size` bytes of a file.

    It is as fast for gigabytes as for a small file.
    """
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        for start, end in ((0, min(HEAD, size)), (max(0, size - TAIL), size)):
            file.seek(start)
            digest.update(file.read(end - start))
    return digest.hexdigest()


@contextmanager
def explained(path: Path | str, step: str = "written") -> Iterator[None]:
    """Raise errors of the operating system as errors of `path`.

    Raises:
        ExportError: the operating system refused a step of the block.

    """
    try:
        yield
    except OSError as error:
        advice = "choose another target" if error.errno in _OF_NAMES else _ADVICE
        raise refused(path, reason_of(error), step, advice) from error


def refused(path: Path | str, reason: str, step: str = "written", advice: str = _ADVICE) -> ExportError:
    """Return the error for a file that a step cannot be done with."""
    return ExportError(f"{path} cannot be {step}: {reason}; {advice}")


def reason_of(error: OSError) -> str:
    """Return what the operating system says about an error."""
    return error.strerror or str(error)
