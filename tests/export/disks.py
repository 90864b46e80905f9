"""Disks of tests: what a kill or a power cut at any step leaves of a folder, and disks that are full.

A step syncs, names, removes or cuts a file, makes a folder, runs a statement of a database, or writes an
object of a bucket.
"""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from tests.export.buckets import Bucket

__all__ = ["FullDisk", "Images", "State", "files_of_at_most", "restored"]

State = Mapping[str, bytes]  # content of each file by its path, and of each object by its URL

OBJECT = "bucket:/"
NAMED = ("replace", "rename", "link", "unlink", "remove", "rmdir", "mkdir", "truncate", "ftruncate")


@contextmanager
def replaced(names: tuple[str, ...], step: Callable[..., Any]) -> Iterator[None]:
    """Replace functions of `os` by calls of `step` with the function and its arguments."""
    real = {name: getattr(os, name) for name in names}
    try:
        for name, function in real.items():
            setattr(os, name, partial(step, function))
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


class Steps:
    """Steps on a disk and in a bucket, for a subclass to watch or to refuse."""

    def __init__(self, objects: type[Bucket] | None = None) -> None:
        self._objects, self._stack = objects, ExitStack()

    def __enter__(self) -> Self:
        if self._objects is not None:
            self._objects.on_step = self._object
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        if self._objects is not None:
            self._objects.on_step = None

    def _object(self, path: str, when: str, content: bytes) -> None:
        """Meet a step that writes or removes an object."""


class Images(Steps):
    """Record of what a stop before or after each step would leave of a folder, and of a bucket.

    A kill leaves everything. A power cut leaves each name that its folder was synced with, and the content
    that its file was synced with, or nothing if it never was. Of bytes that were appended since, it leaves
    half, or all, or as many zeros. A kill during the upload of an object may leave half of it.
    """

    def __init__(self, folder: Path, objects: type[Bucket] | None = None) -> None:
        super().__init__(objects)
        self.kills = list[State]()
        self.cuts = list[State]()
        self._folder = folder
        self._contents: dict[int, bytes] = {}  # as synced, by the number of the file
        self._names: dict[Path, dict[str, int]] = {}  # as synced, by folder
        self._lock = threading.RLock()  # steps of several threads
        for path in (folder, *folder.rglob("*")):
            self._synced(path)

    def __enter__(self) -> Self:
        super().__enter__()
        self._stack.enter_context(replaced(("fsync",), self._sync))
        self._stack.enter_context(replaced(NAMED, self._step))
        modules: tuple[Any, ...] = (sqlite3, duckdb)
        for module in modules:
            self._stack.callback(setattr, module, "connect", module.connect)
            module.connect = partial(self._connect, module.connect)
        return self

    def take(self) -> list[State]:
        """Return the different states so far, in their order, and forget them."""
        taken, seen = list[State](), set[int]()
        for state in (*self.kills, *self.cuts):
            if (found := hash(frozenset(state.items()))) not in seen:
                seen.add(found)
                taken.append(state)
        self.kills, self.cuts = [], []
        return taken

    def keep(self) -> None:
        """Note what a stop would leave now."""
        with self._lock:
            beside = self._beside()
            for states, files in ((self.kills, self._all()), (self.cuts, self._surviving(self._folder))):
                state = {**dict(files), **beside}
                if not states or states[-1] != state:
                    states.append(state)

    def _step(self, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        with self._lock:
            self.keep()
            try:
                return real(*arguments, **options)
            finally:
                self.keep()

    def _sync(self, real: Callable[[int], None], handle: int) -> None:
        with self._lock:
            self.keep()
            real(handle)
            path = Path(f"/proc/self/fd/{handle}").readlink()
            if path.is_relative_to(self._folder) and path.is_file():
                self._tear(path)
            self._synced(path)
            self.keep()

    def _synced(self, path: Path) -> None:
        if path.is_dir():
            self._names[path] = {file.name: file.stat().st_ino for file in path.iterdir()}
        elif path.is_relative_to(self._folder):
            self._contents[path.stat().st_ino] = path.read_bytes()

    def _tear(self, path: Path) -> None:
        """Keep the states of a power cut before the sync of bytes that were appended to a file."""
        name, after = str(path.relative_to(self._folder)), path.read_bytes()
        before, surviving = self._contents.get(path.stat().st_ino, b""), dict(self._surviving(self._folder))
        if before and after.startswith(before) and name in surviving:
            added = after[len(before) :]
            for torn in (added[: len(added) // 2], bytes(len(added)), added):
                self.cuts.append({**surviving, name: before + torn, **self._beside()})

    def _connect(self, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        connection = real(*arguments, **options)
        return Watched(connection, self.keep)

    def _object(self, path: str, when: str, content: bytes) -> None:
        self.keep()
        if when == "before" and content:
            self.kills.append({**self.kills[-1], f"{OBJECT}{path}": content[: len(content) // 2]})

    def _beside(self) -> State:
        """Return the objects, which no power cut of this machine changes."""
        objects = {} if self._objects is None else self._objects.objects()
        return {f"{OBJECT}{name}": content for name, content in objects.items()}

    def _all(self) -> Iterator[tuple[str, bytes]]:
        for path in self._folder.rglob("*"):
            if path.is_file():
                yield str(path.relative_to(self._folder)), path.read_bytes()

    def _surviving(self, folder: Path) -> Iterator[tuple[str, bytes]]:
        for name, number in self._names.get(folder, {}).items():
            path = folder / name
            if path.is_dir():
                yield from self._surviving(path)
            else:
                yield str(path.relative_to(self._folder)), self._contents.get(number, b"")


class Watched:
    """Connection that calls `keep` before and after each statement."""

    def __init__(self, connection: Any, keep: Callable[[], None]) -> None:
        self._connection, self._keep = connection, keep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, *arguments: Any) -> Any:
        """Run a statement."""
        self._keep()
        try:
            return self._connection.execute(*arguments)
        finally:
            self._keep()


def restored(state: State, folder: Path, objects: type[Bucket] | None = None) -> Path:
    """Create a folder with the files of a state, and give the bucket its objects."""
    folder.mkdir(parents=True)
    if objects is not None:
        objects.store.clear()
    for name, content in state.items():
        if name.startswith(OBJECT):
            assert objects is not None
            objects.store_object(name.removeprefix(OBJECT), content)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


class FullDisk(Steps):
    """Disk, and bucket, without room from a step on.

    Attributes:
        steps: number of steps so far.

    """

    STEPS = ("fsync", "replace", "mkdir", "link")

    def __init__(self, at: int = sys.maxsize, objects: type[Bucket] | None = None) -> None:
        super().__init__(objects)
        self.steps, self._at = 0, at

    def __enter__(self) -> Self:
        self._stack.enter_context(replaced(self.STEPS, self._limited))
        return super().__enter__()

    def _limited(self, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._count()
        return real(*arguments, **options)

    def _object(self, path: str, when: str, content: bytes) -> None:
        if when == "before":
            self._count()

    def _count(self) -> None:
        self.steps += 1
        if self.steps >= self._at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Refuse to let any file of this process grow beyond a size in bytes, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
