"""Targets of exports: what a path or a URL is, and the sink that writes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from attrs import field, frozen

from chainapi._text import quoted
from chainapi.core.arguments import mapping_of, one_of, whole_number
from chainapi.core.extras import missing_extra
from chainapi.errors import ArgumentError, ConfigurationError, ExportError
from chainapi.export.bucket import Bucket, checked_url, refuse_cut_url
from chainapi.export.disk import Disk, explained
from chainapi.export.folder import Folder
from chainapi.export.log import Log, Storage
from chainapi.export.partition import is_utf_8
from chainapi.export.single import ParquetFile, TextFile
from chainapi.export.sink import Sink
from chainapi.export.text import TextFormat, zstandard
from chainapi.tables.columns import Column

__all__ = ["FORMATS", "Compression", "ParquetOptions", "Target", "form_of", "storage_of", "target_of"]

FORMATS = ("jsonl", "csv", "parquet", "sqlite", "duckdb", "jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst")
DATABASES = ("sqlite", "duckdb")
LARGEST_GROUP = 64 << 20  # rows: Arrow writes no larger group

Compression: TypeAlias = Literal["zstd", "snappy", "gzip", "none"]
_LEVELS = {"zstd": 22, "gzip": 9}  # the greatest level of each compression that has levels


@frozen
class ParquetOptions:
    """Options of Parquet files.

    Attributes:
        compression: ``zstd``, ``snappy``, ``gzip`` or ``none``.
        compression_level: 1 to 22 of zstd, 1 to 9 of gzip; larger is smaller and slower. None for the
            default, 1 of zstd and 9 of gzip.
        row_group_rows: rows of a row group, the last one excepted; None for 100,000, or fewer that take 64
            MiB. Memory holds one group.

    Raises:
        ConfigurationError: an option is invalid.

    """

    compression: Compression = field(default="zstd", kw_only=True)
    compression_level: int | None = field(default=None, kw_only=True)
    row_group_rows: int | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        one_of("compression", self.compression, ("zstd", "snappy", "gzip", "none"))
        if self.compression_level is not None:
            if (most := _LEVELS.get(self.compression)) is None:
                raise ConfigurationError(
                    f"compression_level= does not apply to {self.compression}, which has no levels: leave "
                    "it out"
                )
            whole_number("compression_level", self.compression_level, 1, most)
        if self.row_group_rows is not None:
            whole_number("row_group_rows", self.row_group_rows, 1, LARGEST_GROUP)


@frozen
class Target:
    """Target of an export.

    Attributes:
        path: the file or the folder; None for a URL.
        storage: the folder, of a folder or a URL.
        format: name of its format; None for a folder that does not say so itself.
        log: name of the folder of the log.

    """

    path: Path | None
    storage: Storage | None
    format: str | None
    log: str = "_log"

    @property
    def folder(self) -> bool:
        """Whether it is a folder, which gets parts."""
        return self.storage is not None

    @property
    def address(self) -> Path | str:
        """Path or URL."""
        if self.path is not None:
            return self.path
        assert self.storage is not None  # noqa: S101 - for the type checker
        return self.storage.address()

    def file(self, name: str) -> Path | str:
        """Return the path or the URL of a file by its name."""
        if self.path is None:
            assert self.storage is not None  # noqa: S101 - for the type checker
            return self.storage.address(name)
        return (self.path if self.folder else self.path.parent) / name

    def sink(self, *, compact: bool, seconds: float | None) -> Sink:
        """Return the writer of the target.

        Raises:
            ConfigurationError: a package is missing.

        """
        writer = uuid4().hex[:12]
        if self.storage is not None:
            return Folder(self.storage, writer, compact=compact, seconds=seconds, log=self.log)
        assert self.path is not None  # noqa: S101 - for the type checker
        if self.format == "parquet":
            return ParquetFile(self.path, writer, seconds=seconds)
        if self.format == "sqlite":
            from chainapi.export.database import Sqlite

            return Sqlite(self.path, writer, seconds=seconds)
        if self.format == "duckdb":
            return _module("duckdb").DuckDb(self.path, writer, seconds=seconds)  # type: ignore[no-any-return]
        return TextFile(self.path, writer, seconds=seconds)


def target_of(
    out: str | os.PathLike[str], format_name: str | None, storage_options: Mapping[str, Any] | None = None
) -> Target:
    """Return the target at a path or a URL.

    A folder exists, ends with a slash, or has no suffix; a URL is a folder.

    Raises:
        ConfigurationError: `out` is no path or URL, the format is unknown, or a package is missing.
        ExportError: no file can have this name.

    """
    text, options = _path_of(out), mapping_of("storage_options", storage_options)
    refuse_cut_url(text)
    given = None if format_name is None else _checked_format(format_name)
    if isinstance(out, str) and "://" in text:
        storage = storage_of(text, options)
        if isinstance(storage, Bucket):
            return Target(None, storage, given or _format_in(text.rstrip("/")))
        text = str(storage.root) + ("/" if text.endswith("/") else "")
    elif options:
        raise ConfigurationError(
            "storage_options= apply to a URL such as s3://bucket/folder/: leave them out"
        )
    path = Path(text)
    _refuse_name(text)
    with explained(path):
        folder = path.is_dir() or (not path.is_file() and (text.endswith(("/", os.sep)) or not path.suffix))
    if folder:
        return Target(path, Disk(path), given or _format_in(path.name))
    with explained(path), suppress(FileNotFoundError):
        os.lstat(path.with_name(f".{path.name}.invalid.partial"))  # the longest name of a file beside it
    found = _format_there(path) or given or _format_in(path.name)
    if found is None:
        raise ConfigurationError(
            f"unknown file format {path.name!r}: choose one of {', '.join(FORMATS)}; the name of a folder "
            "ends with a slash"
        )
    return Target(path, None, found)


def storage_of(url: str, options: Mapping[str, Any]) -> Storage:
    """Return the folder at a URL.

    That of ``file://`` is on the disk, and may be a file.

    Raises:
        ConfigurationError: it is the URL of a file, or has credentials, or a package is missing.

    """
    if url.startswith("file://"):
        return Disk(Path(url.removeprefix("file://")))
    bucket = Bucket.of(checked_url(url, [f".{one}" for one in FORMATS]), options)
    _refuse_name(bucket.url)
    return bucket


def form_of(
    name: str, columns: Sequence[Column], encoded: Sequence[Column], options: Any, *, labelled: bool = True
) -> Any:
    """Return a format.

    Args:
        name: its name.
        columns: columns of the files, in their order.
        encoded: the same in the order of `PageRows.values`.
        options: `ParquetOptions`.
        labelled: whether files have the column ``source``.

    Raises:
        ConfigurationError: a package is missing.

    """
    if name in ("parquet", "duckdb"):
        return _module("parquet").ParquetFormat(tuple(columns), tuple(encoded), labelled, options)
    if name.endswith(".zst"):
        zstandard()
    return TextFormat("jsonl" if name == "sqlite" else name, tuple(columns), labelled)


def check_packages(name: str) -> None:
    """Import the packages of a format.

    Raises:
        ConfigurationError: one is missing; the message has its extra.

    """
    if name in ("parquet", "duckdb"):
        _module(name)
    elif name.endswith(".zst"):
        zstandard()


def _module(name: str) -> Any:
    try:
        return import_module(f"chainapi.export.{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("duckdb", "pyarrow"):
            raise
        raise missing_extra(f"{name} files need", package, name) from None


def _checked_format(name: object) -> str:
    if not isinstance(name, str):
        raise ArgumentError(f"format={quoted(name)} must be the name of a format, such as parquet")
    if name not in FORMATS:
        raise ConfigurationError(f"unknown file format {name!r}: choose one of {', '.join(FORMATS)}")
    return name


def _format_in(name: str) -> str | None:
    """Return the name of the format of a file name; None if it says none."""
    first, *suffixes = Path(name).name.lower().split(".")
    for count in (2, 1):
        found = ".".join(suffixes[-count:])
        if found in FORMATS and (first or len(suffixes) > count):
            return found
    return None


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
