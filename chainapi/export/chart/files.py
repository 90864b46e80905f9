"""Rows of an exported file, or of all files in a folder, local or at a URL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import ENOENT
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from attrs import evolve, frozen

from chainapi.errors import ConfigurationError
from chainapi.export.formats import FORMATS, format_of, name_of
from chainapi.export.partition import NULL
from chainapi.export.store import Store, divided_url
from chainapi.tables.columns import SOURCE

__all__ = ["LABELS", "Files"]

LABELS = (SOURCE, "chain")  # columns that name a series: of exports, of the output of `chainapi tps`


@frozen
class Files:
    """Files of one export.

    Attributes:
        path: path or URL of the file or folder that the user named.
        folder: folder of the files.
        names: their names below it, with slashes, in order.
        store: the folder, if it is at a URL.

    """

    path: str
    folder: Path
    names: Sequence[str]
    store: Store | None = None

    @classmethod
    def of(cls, given: Path | str) -> Files:
        """Find the file, or all files of rows in a folder and the folders in it.

        A URL is a folder if it ends with a slash, or with no suffix of a format. Files and folders whose
        names begin with "_" or "." are left out, as other tools do.

        Raises:
            ConfigurationError: the folder has no files of rows, or files of several formats; the URL is
                invalid, or a package that it needs is missing.
            ExportError: the folder at a URL cannot be listed.
            FileNotFoundError: the folder is missing.

        """
        if isinstance(given, str) and "://" in given:
            return cls._behind(given)
        path = Path(given)
        if not path.is_dir():
            if not path.exists() and (name_of(path.name) is not None or not path.suffix):
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path))
            return cls(str(path), path.parent, [path.name])
        found = (file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
        return cls(str(path), path, _rows_in(str(path), found))

    @classmethod
    def _behind(cls, url: str) -> Files:
        folder, name = divided_url(url, name_of)
        store = Store.of(folder, {})
        if store.is_local:
            return cls.of(Path(store.root) / name)
        store = evolve(store, advice="remove the cause, and draw the chart again")
        if name:
            return cls(store.address(name), Path(), [name], store)
        return cls(store.url, Path(), _rows_in(store.url, store.files_below()), store)

    @property
    def name(self) -> str:
        """Name of the file or folder."""
        return self.path.rpartition("/")[2] if self.store is not None else Path(self.path).resolve().name

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of all files.

        The name of a folder, such as ``source=43114``, may have the label that the rows lack. A file at a URL
        is downloaded, and deleted once its rows are read.

        Raises:
            ConfigurationError: a file is damaged or has another format.
            ExportError: a file at a URL cannot be read.
            OSError: a file cannot be read.

        """
        for name in self.names:
            named = _label(name.split("/")[:-1])
            with self._fetched(name) as file:
                for row in format_of(file).read(file):
                    yield {**named, **row} if named else row

    @contextmanager
    def _fetched(self, name: str) -> Iterator[Path]:
        """Yield the path of a local file with the content of a file."""
        if self.store is None:
            yield self.folder / name
            return
        if self.store.state(name) is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), self.store.address(name))
        with TemporaryDirectory(prefix="chainapi-") as place:
            path = Path(place) / name.rpartition("/")[2]
            self.store.download(name, path)
            try:
                yield path
            except ConfigurationError as error:  # the reader knows no more than the local copy
                raise ConfigurationError(str(error).replace(str(path), self.store.address(name))) from None


def _rows_in(folder: str, names: Iterable[str]) -> list[str]:
    """Return the names of the files of rows in a folder."""
    found = sorted(name for name in names if _has_rows(name))
    formats = sorted({f".{name_of(name)}" for name in found})
    if not formats:
        raise ConfigurationError(f"{folder} has no files of rows ({', '.join(FORMATS)}) to plot")
    if len(formats) > 1:
        raise ConfigurationError(
            f"{folder} has files of several formats ({', '.join(formats)}): name one file"
        )
    return found


def _has_rows(name: str) -> bool:
    return name_of(name) is not None and not any(part.startswith(("_", ".")) for part in name.split("/"))


def _label(folders: Sequence[str]) -> dict[str, str | None]:
    """Return the label of a series in the names of folders, as Hive writes them.

    Other values in such names are no axis.
    """
    pairs = (folder.partition("=") for folder in folders)
    return {name: None if value == NULL else unquote(value) for name, _, value in pairs if name in LABELS}
