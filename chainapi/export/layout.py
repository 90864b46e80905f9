"""Layout of files: format, columns, types of amounts, partitions, compression.

The caller chooses it. What is left out is as in the target, whose settings have its layout; in a new target
the name decides about the format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, cast, get_args

import msgspec
from attrs import field, frozen
from attrs.converters import optional

from chainapi._tables.codec import Codec
from chainapi._tables.columns import SOURCE, Column, checked_names, columns_of
from chainapi._tables.types import A_MODEL, Amounts, Kind, checked_amounts
from chainapi._text import quoted
from chainapi.core.arguments import one_of, whole_number
from chainapi.core.extras import missing_extra
from chainapi.errors import ArgumentError, ConfigurationError
from chainapi.export.partition import Partitioner, check_partition, checked_partition
from chainapi.export.text import TextFormat, zstandard

__all__ = [
    "COLUMNS",
    "DATABASES",
    "FORMATS",
    "OPTIONS",
    "SETTINGS",
    "Compression",
    "FileFormat",
    "Layout",
    "ParquetOptions",
    "columns_in",
    "format_module",
    "suffix_format",
]

FileFormat: TypeAlias = Literal[
    "jsonl", "csv", "parquet", "sqlite", "duckdb", "jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst"
]
FORMATS: tuple[str, ...] = get_args(FileFormat)
DATABASES = ("sqlite", "duckdb")
FOLDER_FORMAT = "jsonl"  # of files in a folder whose name has no suffix of a format
COLUMNS = "columns"  # the setting with the names and kinds of the columns
OPTIONS = "options"  # the setting with the options of the files, which each run may change
SETTINGS = ("format", "amounts", "fields", "partition", "escape_formulas")  # which a later run may leave out
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
        one_of("compression", self.compression, get_args(Compression))
        if self.compression_level is not None:
            if (most := _LEVELS.get(self.compression)) is None:
                raise ConfigurationError(
                    f"compression_level= does not apply to {self.compression}, which has no levels: leave "
                    "it out"
                )
            whole_number("compression_level", self.compression_level, 1, most)
        if self.row_group_rows is not None:
            whole_number("row_group_rows", self.row_group_rows, 1, LARGEST_GROUP)


def _checked_format(given: object) -> str:
    if not isinstance(given, str):
        raise ArgumentError(f"format={quoted(given)} must be the name of a format, such as parquet")
    if given not in FORMATS:
        raise ConfigurationError(f"format={given!r} is not known: choose one of {', '.join(FORMATS)}")
    return given


def _checked_fields(given: Any) -> tuple[str, ...] | None:
    return checked_names("fields", "column name", given)


def _checked_options(given: object) -> ParquetOptions:
    if not isinstance(given, ParquetOptions):
        raise ArgumentError("parquet= must be ParquetOptions, such as ParquetOptions(compression='snappy')")
    return given


@frozen
class Layout:
    """Layout of the files of an export; None is what the caller has left out.

    Attributes:
        format: name of the format.
        amounts: type of amounts.
        fields: names of the columns in their order, without the first one, the source; None for all.
        partition: keys that divide the rows of a part into files; None for no partitions.
        options: how Parquet files are written.
        escape_formulas: whether CSV has an apostrophe before texts that a spreadsheet takes for formulas.

    Raises:
        ConfigurationError: a value is invalid.

    """

    format: str | None = field(default=None, converter=optional(_checked_format))
    amounts: Amounts | None = field(default=None, converter=optional(checked_amounts))
    fields: tuple[str, ...] | None = field(default=None, converter=_checked_fields)
    partition: tuple[str, ...] | None = field(default=None, converter=checked_partition)
    options: ParquetOptions | None = field(default=None, converter=optional(_checked_options))
    escape_formulas: bool | None = None

    @classmethod
    def stored(cls, settings: Mapping[str, Any]) -> Self:
        """Return the layout of a target; nothing is known of a new one."""
        options = settings.get(OPTIONS)
        named = {name: settings.get(name) for name in SETTINGS}
        return cls(**named, options=ParquetOptions(**options) if options else None)

    def completed(self, settings: Mapping[str, Any], named: str | None) -> Self:
        """Return the layout with what was left out.

        Args:
            settings: settings of the target; empty for a new one.
            named: name of the format that the name of the target has.

        Raises:
            ConfigurationError: the options do not apply to the format.

        """
        known = self.stored(settings)
        name = self.format or known.format or named or FOLDER_FORMAT
        options = self.options or known.options or ParquetOptions()
        if self.options is not None and name != "parquet":
            raise ConfigurationError(
                f"compression and row groups apply to Parquet, and the files are {name}: leave them out, or "
                "choose Parquet"
            )
        is_csv = name.startswith("csv")
        escapes = known.escape_formulas if self.escape_formulas is None else self.escape_formulas
        if self.escape_formulas and not is_csv:
            raise ConfigurationError(
                f"escape_formulas= applies to CSV, and the files are {name}: leave it out, or choose CSV"
            )
        return type(self)(
            name,
            self.amounts or known.amounts or "text",
            self.fields or known.fields,
            self.partition or known.partition,
            options if name == "parquet" else None,
            escapes or None if is_csv else None,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the target, as JSON values, which `stored` reads."""
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, Any])

    def codec(self, model: Any, on_invalid: Literal["raise", "raw"]) -> Codec:
        """Return the encoder of the rows of a model.

        Raises:
            ConfigurationError: the rows lack a column that the layout needs.

        """
        amounts, name = self.amounts or "text", self.format or FOLDER_FORMAT
        codec = Codec(model, amounts, on_invalid, self.fields)
        if not codec.columns and not name.startswith("jsonl"):
            raise ConfigurationError(
                f"{name} files need columns, and the columns of these rows are not known: "
                f"name a route, pass {A_MODEL}, or write JSON lines (jsonl)"
            )
        if self.partition:
            check_partition(self.partition, name, codec.columns, columns_of(model, amounts))
        return codec

    def file_format(self, encoded: Sequence[Column], stored: Mapping[str, Any]) -> Any:
        """Return the reader and writer of files.

        Args:
            encoded: columns of the rows, in the order of `EncodedRows.values`.
            stored: description of the columns of the target, whose order stays; new ones follow.

        Raises:
            ConfigurationError: a package is missing.

        """
        places = {name: place for place, name in enumerate(stored)}
        columns = tuple(sorted(encoded, key=lambda column: places.get(column.name, len(places))))
        name, labelled = self.format or FOLDER_FORMAT, SOURCE not in (self.partition or ())
        if name in ("parquet", "duckdb"):
            parquet = format_module("parquet")
            return parquet.ParquetFormat(columns, tuple(encoded), labelled, self.options)
        if name.endswith(".zst"):
            zstandard()
        return TextFormat(
            "jsonl" if name == "sqlite" else name, columns, labelled, bool(self.escape_formulas)
        )

    def partitioner(self, columns: Sequence[Column]) -> Partitioner | None:
        """Return the division of rows with these columns; None for no partitions."""
        return Partitioner(self.partition, columns) if self.partition else None


def format_module(name: str) -> Any:
    """Import the module of a format that needs a package.

    Raises:
        ConfigurationError: the package is missing; the message has its extra.

    """
    try:
        return import_module(f"chainapi.export.{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("duckdb", "pyarrow"):
            raise
        raise missing_extra(f"{name} files need", package, name) from None


def suffix_format(name: str) -> str | None:
    """Return the format that the suffix of a name says; None if it says none."""
    first, *suffixes = Path(name).name.lower().split(".")
    for count in (2, 1):
        found = ".".join(suffixes[-count:])
        if found in FORMATS and (first or len(suffixes) > count):
            return found
    return None


def columns_in(described: Mapping[str, Any]) -> list[Column]:
    """Return the columns that `chainapi._tables.columns.described` has described."""
    return [_column(name, kind) for name, kind in described.items()]


def _column(name: str, kind: Any) -> Column:
    if isinstance(kind, dict):
        return Column(name, "struct", tuple(columns_in(kind)))
    if isinstance(kind, list):
        return Column(name, "list", (_column("item", kind[0]),))
    return Column(name, cast("Kind", kind))
