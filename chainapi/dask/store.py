"""Objects of a folder on any file system of fsspec, each created whole and once.

`Store.create` is the only write of an export. It is atomic, fails if the name exists, and reads the object
back:

- on a local file system the object is written under another name, synced, and linked to its name, which fails
  if the name exists; then its folder is synced,
- S3, Google Cloud Storage and Azure Blob Storage refuse the second object of a name (``If-None-Match: *``,
  ``ifGenerationMatch=0``; fsspec's ``mode="create"``), and show objects only whole,
- ``memory://`` is one dictionary of this process,
- other file systems of fsspec check whether the name exists and then write: two writers at the same moment
  may both succeed, and a killed one may leave half an object.

Everything here blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EIO, ENOTDIR
from pathlib import Path
from typing import Any, BinaryIO, Self, cast
from uuid import uuid4

from attrs import field, frozen

from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.files import sync_folder

__all__ = ["Store", "absolute"]


def absolute(target: str | os.PathLike[str]) -> str:
    """Return a target as a URL or an absolute path, the same for every process."""
    text = os.fspath(target)
    return text if "://" in text or "::" in text else str(Path(text).absolute())


@frozen(eq=False)
class Store:
    """Folder of an fsspec file system.

    Attributes:
        url: the folder as the user named it.
        files: the file system.
        root: path of the folder in it.

    """

    url: str
    files: Any = field(repr=False)  # its options may have the credentials of the file system
    root: str = field(repr=False)

    @classmethod
    def of(cls, url: str, options: Mapping[str, Any]) -> Self:
        """Open the folder at a URL or a path, with the `options` of its file system.

        Raises:
            ConfigurationError: the file system is unknown, or a package that it needs is missing.

        """
        try:
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]

            files, root = url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(f"{url} cannot be opened by fsspec on this machine: {error}") from None
        return cls(url, files, root.rstrip("/"))

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names in a folder; empty if the folder is missing.

        Raises:
            ExportError: the folder cannot be listed.

        """
        path = self._path(folder)
        with self._explained(path):
            self.files.invalidate_cache()
            try:
                found = self.files.ls(path, detail=False)
            except FileNotFoundError:
                return []
        names = (name.rstrip("/").rpartition("/")[2] for name in found if name.rstrip("/") != path)
        return sorted(name for name in names if not name.endswith(_UNFINISHED))

    def create(self, name: str, content: bytes) -> bool:
        """Create an object with this content; return False if the name exists.

        Raises:
            ExportError: the object cannot be written.

        """
        path = self._path(name)
        with self._explained(path):
            try:
                if self._is_local:
                    _create_file(Path(path), content)
                else:
                    self.files.pipe_file(path, content, mode="create")
                    self._read_back(path, content)
            except FileExistsError:
                return False
            except OSError:
                # A server that speaks S3 may refuse the second object with a code of its own, and an error
                # of the network hides whether the object arrived: callers compare what is there with theirs.
                if self.files.exists(path):
                    return False
                raise
        return True

    def _read_back(self, path: str, content: bytes) -> None:
        """Compare a new object with its content; delete it if it differs."""
        if content and self.files.cat_file(path) != content:
            self.files.rm_file(path)
            raise OSError(EIO, "other bytes came back than were written")

    def replace(self, name: str, content: bytes) -> None:
        """Create an object with this content, or give it this content.

        Raises:
            ExportError: the object cannot be written.

        """
        path = self._path(name)
        with self._explained(path):
            if self._is_local:
                _replace_file(Path(path), content)
            else:
                self.files.pipe_file(path, content)

    def read(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            ExportError: the object is missing or cannot be read.

        """
        path = self._path(name)
        with self._explained(path, "read"):
            return cast("bytes", self.files.cat_file(path))

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """Open an object for reading in pieces.

        Raises:
            ExportError: the object is missing or cannot be read.

        """
        path = self._path(name)
        with self._explained(path, "read"), self.files.open(path, "rb") as file:
            yield file

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects; those that are missing are left out."""
        for name in names:
            path = self._path(name)
            with self._explained(path), suppress(FileNotFoundError):
                self.files.rm_file(path)

    def remove_unfinished(self) -> None:
        """Delete what killed writers left behind in a local folder."""
        if self._is_local:
            for path in Path(self.root).rglob(f".*{_UNFINISHED}"):
                path.unlink(missing_ok=True)

    @property
    def _is_local(self) -> bool:
        from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

        return isinstance(self.files, LocalFileSystem)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @contextmanager
    def _explained(self, path: str, step: str = "written") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise ExportError(
                f"{path} cannot be {step}: {reason}; what the parts in {self.url} have is kept: remove the "
                "cause and start the same export again"
            ) from error


_UNFINISHED = ".unfinished"  # suffix of a local file that is being written


def _create_file(path: Path, content: bytes) -> None:
    """Create a file whole, or raise FileExistsError."""
    unfinished = _written(path, content)
    try:
        if os.name == "nt":
            unfinished.rename(path)  # Windows refuses a name that exists
        else:
            path.hardlink_to(unfinished)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


def _replace_file(path: Path, content: bytes) -> None:
    _written(path, content).replace(path)
    sync_folder(path.parent)


def _written(path: Path, content: bytes) -> Path:
    """Write and sync a file beside `path`, and return its path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # which would mean that the object itself exists
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(path.parent)) from error
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}{_UNFINISHED}")
    with unfinished.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if unfinished.read_bytes() != content:
        unfinished.unlink()
        raise OSError(EIO, "other bytes came back than were written")
    return unfinished
