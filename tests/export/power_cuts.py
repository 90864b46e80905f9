"""Power cuts: content of a folder if only synced data survives.

`PowerCuts` watches the syncs and renames of this process. Before and after each one it keeps an image: each
name that its folder was synced with, and the content that its file was synced with, or nothing where it never
was. The databases of exports are kept as they are: SQLite syncs them itself, outside of what can be watched.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["PowerCuts"]

DATABASES = (".export", ".export-wal", "_export", "_export-wal")


class PowerCuts:
    """Record of the images of `folder` that a power cut could leave."""

    def __init__(self, folder: Path) -> None:
        self.images: list[dict[str, bytes]] = []
        self._folder = folder
        self._contents: dict[int, bytes] = {}  # as synced, by the file's number
        self._names: dict[str, int] = {}  # as synced
        self._real: dict[str, Any] = {}

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

    def restore(self, image: dict[str, bytes], folder: Path) -> None:
        """Create a folder with the files of an image."""
        folder.mkdir()
        for name, content in image.items():
            (folder / name).write_bytes(content)

    def _fsync(self, handle: int) -> None:
        self._keep()
        self._real["fsync"](handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path == self._folder:
            self._names = {file.name: file.stat().st_ino for file in self._folder.iterdir()}
        elif path.parent == self._folder:
            self._contents[path.stat().st_ino] = path.read_bytes()
        self._keep()

    def _replace(self, source: Any, target: Any) -> None:
        self._keep()
        self._real["replace"](source, target)
        self._keep()

    _rename = _replace

    def _keep(self) -> None:
        image = {name: self._contents.get(number, b"") for name, number in self._names.items()}
        for file in self._folder.iterdir():
            if file.name.endswith(DATABASES):
                image[file.name] = file.read_bytes()
        self.images.append(image)
