"""Power cuts: content of a folder if only synced data survives.

`PowerCuts` watches the syncs and renames of this process. Before and after each one it keeps two images. A
kill leaves everything. A power cut leaves each name that its folder was synced with, and the content that its
file was synced with, or nothing where it never was. Of bytes that were appended since, it leaves half, or
all, or as many zeros. The databases of exports are kept as they are: SQLite syncs them itself, outside of
what can be watched.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

__all__ = ["PowerCuts", "Statements"]

DATABASE = "journal"


class PowerCuts:
    """Record of the images of `folder` that a power cut could leave.

    Attributes:
        images: content by name, after power cuts.
        kills: the same after kills.

    """

    def __init__(self, folder: Path) -> None:
        self.images: list[dict[str, bytes]] = []
        self.kills: list[dict[str, bytes]] = []
        self._folder = folder
        self._contents: dict[int, bytes] = {}  # as synced, by the file's number
        self._names: dict[Path, dict[str, int]] = {}  # as synced, by folder
        self._real: dict[str, Any] = {}
        # A thread that syncs a segment, and then names it in the journal, waits for the image of another one.
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        for name in ("fsync", "replace", "rename"):
            self._real[name] = getattr(os, name)
            setattr(os, name, getattr(self, f"_{name}"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def take(self) -> list[dict[str, bytes]]:
        """Return the different images so far, and forget them."""
        taken = [*self.images, *(image for image in self.kills if image not in self.images)]
        self.images, self.kills = [], []
        return taken

    def settle(self) -> None:
        """Take what the folder holds as synced."""
        for path in (self._folder, *self._folder.rglob("*")):
            self._synced(path)

    def restore(self, image: dict[str, bytes], folder: Path) -> None:
        """Create a folder with the files of an image."""
        folder.mkdir()
        for name, content in image.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    def _fsync(self, handle: int) -> None:
        with self._lock:
            self._keep()
            self._real["fsync"](handle)
            path = Path(f"/proc/self/fd/{handle}").readlink()
            if path.is_relative_to(self._folder) and path.is_file():
                self._tear(path)
            self._synced(path)
            self._keep()

    def _synced(self, path: Path) -> None:
        if path.is_dir():
            self._names[path] = {file.name: file.stat().st_ino for file in path.iterdir()}
        elif path.is_relative_to(self._folder):
            self._contents[path.stat().st_ino] = path.read_bytes()

    def _tear(self, path: Path) -> None:
        """Keep the images of a power cut before the sync of bytes that were appended to a file."""
        name, after = str(path.relative_to(self._folder)), path.read_bytes()
        before, surviving = self._contents.get(path.stat().st_ino, b""), dict(self._surviving(self._folder))
        if before and after.startswith(before) and name in surviving:
            added = after[len(before) :]
            for torn in (added[: len(added) // 2], bytes(len(added)), added):
                self.images.append({**surviving, name: before + torn})

    def _replace(self, source: Any, target: Any) -> None:
        with self._lock:
            self._keep()
            self._real["replace"](source, target)
            self._keep()

    _rename = _replace

    def _keep(self) -> None:
        for images, files in (
            (self.images, self._surviving(self._folder)),
            (self.kills, self._all()),
        ):
            image = dict(files)
            if not images or images[-1] != image:
                images.append(image)

    def _all(self) -> Iterator[tuple[str, bytes]]:
        for path in self._folder.rglob("*"):
            if path.is_file():
                yield str(path.relative_to(self._folder)), path.read_bytes()

    def _surviving(self, folder: Path) -> Iterator[tuple[str, bytes]]:
        for name, number in self._names.get(folder, {}).items():
            path = folder / name
            if path.is_dir():
                yield from self._surviving(path)
            elif not name.startswith(DATABASE):
                yield str(path.relative_to(self._folder)), self._contents.get(number, b"")
        for path in folder.glob(f"{DATABASE}*"):
            yield str(path.relative_to(self._folder)), path.read_bytes()


class Statements:
    """Record of the images of `folder` that a kill between two statements of databases could leave.

    It watches the connections of SQLite and DuckDB that this process opens, those of the journal included.

    Attributes:
        images: content by name, before and after each statement.

    """

    def __init__(self, folder: Path) -> None:
        self.images: list[dict[str, bytes]] = []
        self._folder = folder
        self._real: list[tuple[Any, Any]] = []

    def __enter__(self) -> Self:
        modules: tuple[Any, ...] = (sqlite3, duckdb)
        for module in modules:
            self._real.append((module, module.connect))
            module.connect = self._watched(module.connect)
        return self

    def __exit__(self, *_: object) -> None:
        for module, connect in self._real:
            module.connect = connect
        self._keep()

    def _watched(self, connect: Any) -> Any:
        return lambda *arguments, **options: _Watched(connect(*arguments, **options), self._keep)

    def _keep(self) -> None:
        image = {
            str(path.relative_to(self._folder)): path.read_bytes()
            for path in self._folder.rglob("*")
            if path.is_file()
        }
        if image not in self.images:
            self.images.append(image)


class _Watched:
    """Connection that calls `keep` before and after each statement."""

    def __init__(self, connection: Any, keep: Any) -> None:
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
