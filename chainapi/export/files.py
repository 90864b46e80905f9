"""Atomic writes of files, and digests that recognize them again.

A file is written under another name, synced, renamed, and its folder is synced: after a kill or a power cut
the whole file is there, or the old one. The files of a part are synced together. `append` adds rows to a file
in place. Everything here blocks.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from chainapi.errors import ExportError

if TYPE_CHECKING:
    from _typeshed import SupportsRead

__all__ = [
    "SYNC_EVERY",
    "FileState",
    "SyncGroup",
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
    "write_errors_explained",
    "write_partial",
]

HEAD, TAIL = 16 << 10, 64 << 10  # bytes of a file whose digest is kept
CHUNK = 1 << 20  # bytes that are read at a time
SYNC_EVERY = 64 << 20  # bytes: a sync of gigabytes at once could not be stopped
SYNC_AT_ONCE = 128  # files and folders, likewise
SYNC_THREADS = 8


@contextmanager
def os_errors_explained(path: Path, other: str = "target") -> Iterator[None]:
    """Raise errors of the operating system as errors of `path`.

    `other` names what to choose another one of.

    Raises:
        ExportError: the operating system refused a step of the block.

    """
    try:
        yield
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {reason_of(error)}; choose another {other}") from error


@contextmanager
def write_errors_explained(path: Path) -> Iterator[None]:
    """Raise errors of a write as errors of `path`; the journal keeps all rows.

    Raises:
        ExportError: the operating system refused a step of the block.

    """
    try:
        yield
    except OSError as error:
        raise ExportError(
            f"{path} cannot be written: {reason_of(error)}; all rows are kept in the journal: "
            "make room, or remove another cause, and start the same export again"
        ) from error


@define(eq=False)
class SyncGroup:
    """Files and folders that are synced together.

    A file system commits the syncs of several threads at once, a tenth of the time of one after the other.
    """

    _files: dict[Path, Path] = field(factory=dict[Path, Path], init=False)  # with those that errors name
    _size: int = field(default=0, init=False)

    def add(self, path: Path, named: Path, size: int = 0) -> None:
        """Add a folder, or a file of some bytes; many are synced at once.

        An error names the file `named`.

        Raises:
            ExportError: see `sync`.

        """
        self._files[path] = named
        self._size += size
        if len(self._files) >= SYNC_AT_ONCE or self._size >= SYNC_EVERY:
            self.sync()

    def sync(self) -> None:
        """Sync what was added to the disk.

        Raises:
            ExportError: the operating system refused to.

        """
        files, self._files, self._size = self._files, {}, 0
        with ThreadPoolExecutor(SYNC_THREADS, "chainapi-sync") as threads:
            deque(threads.map(_sync, files, files.values()), maxlen=0)


def _sync(path: Path, named: Path) -> None:
    with write_errors_explained(named):
        if path.is_dir():
            sync_folder(path)
        else:
            sync_file(path)


def make_folders(folder: Path, root: Path, syncs: SyncGroup) -> None:
    """Create a folder below `root` with those between them.

    Their names are to be synced.

    Raises:
        ExportError: a folder cannot be created.

    """
    with os_errors_explained(root):
        for inner in [*reversed(folder.relative_to(root).parents), folder.relative_to(root)][1:]:
            (root / inner).mkdir(exist_ok=True)
            syncs.add((root / inner).parent, root / inner)  # also if a killed run has created it


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


def write_partial(
    path: Path, write: Callable[[Path], object], syncs: SyncGroup | None = None
) -> tuple[int, str]:
    """Write a file; return its size in bytes and its digest.

    It has the name `partial_of` until `put_in_place`. `write` gets the path and writes the content. The file
    and its name are synced, or added to `syncs`. On an error the file is deleted.

    Raises:
        ExportError: the file cannot be written.

    """
    partial, group = partial_of(path), SyncGroup() if syncs is None else syncs
    _remove(partial)
    try:
        with write_errors_explained(path):
            write(partial)
            if path.exists():  # a rename would replace its mode as well
                partial.chmod(stat.S_IMODE(path.stat().st_mode))
            size, digest = partial.stat().st_size, digest_of(partial)
        # The journal records the file only once it and its name survive a power cut.
        group.add(partial, path, size)
        group.add(partial.parent, path)
        if syncs is None:
            group.sync()
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return size, digest


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


def put_in_place(path: Path, syncs: SyncGroup | None = None) -> None:
    """Rename a ``.partial`` file, so that the name lasts.

    Its folder is synced, or added to `syncs`.

    Raises:
        ExportError: the file cannot be renamed.

    """
    with write_errors_explained(path):
        partial_of(path).replace(path)
        if syncs is None:
            sync_folder(path.parent)
    if syncs is not None:
        syncs.add(path.parent, path)


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


def reason_of(error: OSError) -> str:
    """Return what the operating system says about an error."""
    return error.strerror or str(error)
