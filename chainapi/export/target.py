"""Targets of exports: what a path or a URL is, its sink, and its files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import frozen

from chainapi._text import quoted
from chainapi.core.arguments import mapping_of
from chainapi.errors import ArgumentError, ConfigurationError, ExportError
from chainapi.export.bucket import Bucket, checked_url, refuse_cut_url
from chainapi.export.disk import Disk, explained
from chainapi.export.folder import Folder
from chainapi.export.layout import (
    COLUMNS,
    DATABASES,
    FORMATS,
    Layout,
    columns_in,
    format_module,
    suffix_format,
)
from chainapi.export.log import DataFile, Log, Storage, TargetState
from chainapi.export.partition import is_utf_8
from chainapi.export.result import TargetFile
from chainapi.export.single import ParquetFile, TextFile
from chainapi.export.sink import Sink

__all__ = ["Target", "target_of"]

_RECORD = re.compile(r"(.*/|)\d{8,}\.json", re.ASCII)


@frozen
class Target:
    """Target of an export: a folder, or a file in one.

    Attributes:
        storage: the folder.
        name: name of the file; empty for the folder.
        format: name of its format; None for a folder whose name has none.
        log: name of the folder of the log in a folder, or of one partition of a cluster.

    """

    storage: Storage
    name: str = ""
    format: str | None = None
    log: str = "_log"

    @property
    def address(self) -> Path | str:
        """Path or URL."""
        return self.file(self.name)

    def file(self, name: str) -> Path | str:
        """Return the path or the URL of a file by its name."""
        address = self.storage.address(name)
        return Path(address) if isinstance(self.storage, Disk) else address

    def check(self, layout: Layout) -> None:
        """Refuse a layout that the target cannot have.

        Raises:
            ConfigurationError: it is for files, and the target is a folder, or for folders.

        """
        if self.name and layout.partition:
            raise ConfigurationError(
                f"partition= applies to a folder, and {self.address} is a file: leave it out, or choose a "
                "folder"
            )
        if not self.name and layout.format in DATABASES:
            raise ConfigurationError(
                f"format={layout.format!r} is a format of one file, and {self.address} is a folder: name a "
                f"file, such as {str(self.address).rstrip('/')}.{layout.format}"
            )

    def sink(self, *, compact: bool = False, seconds: float | None = None) -> Sink:
        """Return the writer of the target.

        Raises:
            ConfigurationError: a package is missing.

        """
        if not self.name:
            return _folder(self.storage, self.log, compact=compact, seconds=seconds)
        writer, path = uuid4().hex[:12], Path(self.address)
        if self.format == "parquet":
            return ParquetFile(path, writer, seconds=seconds)
        if self.format == "sqlite":
            from chainapi.export.database import Sqlite

            return Sqlite(path, seconds=seconds)
        if self.format == "duckdb":
            return format_module("duckdb").DuckDb(path, seconds=seconds)  # type: ignore[no-any-return]
        return TextFile(path, writer, seconds=seconds)

    # What is there

    def files(self) -> list[TargetFile]:
        """Return the files in force with valid rows.

        Raises:
            ExportError: no export wrote it, or its log is damaged.

        """
        if self.format in DATABASES:
            return [self._database()]
        states = [log.read() for log in self._logs()]
        if not any(state.number for state in states):
            raise self._no_export()
        return [
            # The record of one file has no numbers of each source: it would grow with the sources.
            TargetFile(self.file(one.name), one.rows, one.size, _newest(state if self.name else one))
            for state in states
            for one in state.files.values()
            if not one.invalid
        ]

    def compact(self) -> int:
        """Merge the small parts of a folder; return their number.

        Raises:
            ExportError: no export wrote it, or it cannot be written.

        """
        merged, logs = 0, self._logs()
        if not logs:
            raise self._no_export()
        for log in logs:
            sink = _folder(self.storage, log.folder)
            try:
                with explained(str(self.address)):
                    if settings := sink.open().settings:  # a partition may have begun without a row
                        columns = columns_in(settings[COLUMNS])
                        sink.begin(Layout.stored(settings).file_format(columns, {}), settings, None)
                        merged += sink.compact(2)
            finally:
                sink.close()
        return merged

    def _logs(self) -> list[Log]:
        """Return the logs with a record: one, or one for each partition of a cluster."""
        top = f"{self.name}.log" if self.name else self.log
        names = self.storage.names(top, below=True)
        folders = sorted({found[1] for name in names if (found := _RECORD.fullmatch(name))})
        return [Log(self.storage, f"{top}/{folder}".rstrip("/")) for folder in folders]

    def _database(self) -> TargetFile:
        sink: Any = self.sink()
        path = Path(self.address)
        try:
            size = path.stat().st_size if path.exists() else 0
            if not size or not sink.read().number:  # a connection to an empty file would remove it
                raise self._no_export()
            return TargetFile(path, sink.rows, size, _newest(sink.state))
        finally:
            sink.disconnect()

    def _no_export(self) -> ExportError:
        return ExportError(f"{self.address} has no export: name the file or the folder of one")


def _folder(storage: Storage, log: str, **options: Any) -> Folder:
    """Return the writer of a folder, or of one partition of a cluster."""
    alone = log == "_log"
    stem = "part" if alone else log.rpartition("/")[2]
    return Folder(storage, uuid4().hex[:12], log=log, stem=stem, alone=alone, **options)


def _newest(found: TargetState | DataFile) -> dict[str, int | None]:
    """Return the newest number of each source of an export, or of one of its files."""
    if isinstance(found, DataFile):
        return {label: newest for label, (_, _, newest) in found.sources.items()}
    newest = {label: one.get("newest") for label, one in found.positions.items()}
    return {label: None if one is None else int(one) for label, one in newest.items()}


def target_of(
    out: str | os.PathLike[str], format_name: str | None, storage_options: Mapping[str, Any] | None = None
) -> Target:
    """Return the target at a path or a URL.

    A folder exists, ends with a slash, or has no suffix; a URL is a folder, unless it begins with file://.

    Raises:
        ConfigurationError: `out` is no path or URL, or the format is unknown, or a package is missing.
        ExportError: no file can have this name.

    """
    text, options = _path_of(out), mapping_of("storage_options", storage_options)
    refuse_cut_url(text)
    if isinstance(out, str) and text.startswith("file://"):
        text = text.removeprefix("file://")
    elif isinstance(out, str) and "://" in text:
        bucket = Bucket.of(checked_url(text, [f".{one}" for one in FORMATS]), options)
        _refuse_name(bucket.url)
        return Target(bucket, "", format_name or suffix_format(text.rstrip("/")))
    elif options:
        raise ConfigurationError(
            "storage_options= apply to a URL such as s3://bucket/folder/: leave them out"
        )
    _refuse_name(text)
    path = Path(text)
    with explained(path):
        folder = path.is_dir() or (not path.is_file() and (text.endswith(("/", os.sep)) or not path.suffix))
    if folder:
        return Target(Disk(path), "", format_name or suffix_format(path.name))
    with explained(path), suppress(FileNotFoundError):
        os.lstat(path.with_name(f".{path.name}.invalid.partial"))  # the longest name of a file beside it
    found = _format_there(path) or format_name or suffix_format(path.name)
    if found is None:
        raise ConfigurationError(
            f"unknown file format {path.name!r}: choose one of {', '.join(FORMATS)}; the name of a folder "
            "ends with a slash"
        )
    return Target(Disk(path.parent), path.name, found)


def _format_there(path: Path) -> str | None:
    """Return the format of the export that a file has; None without one."""
    if path.with_name(f"{path.name}.log").is_dir():
        return Log(Disk(path.parent), f"{path.name}.log").read().settings.get("format")
    with explained(path, "read"):
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(16)
    if head.startswith(b"SQLite format 3\0"):
        return "sqlite"
    return "duckdb" if head[8:12] == b"DUCK" else None


def _path_of(value: object) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ArgumentError(f"out={quoted(value)} must be a path: a string, or a Path")
    return text


def _refuse_name(name: str) -> None:
    """Refuse a name that no file can have."""
    if not name:
        fault = "the name is empty"
    elif "\0" in name:
        fault = "a file name cannot contain NUL"
    elif (encoding := sys.getfilesystemencoding()) != "utf-8" and not name.isascii():
        fault = f"Python encodes file names as {encoding} here, and libraries as UTF-8: set PYTHONUTF8=1"
    elif not is_utf_8(name):
        fault = "its name is not UTF-8, as the libraries of most formats need it"
    else:
        return
    raise ExportError(f"{name!r} cannot be written: {fault}; choose another target")
