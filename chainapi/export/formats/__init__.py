"""File formats: writers and readers of encoded rows.

`Codec` encodes the rows; no model is needed to write or read them.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from attrs import evolve

from chainapi.core.arguments import one_of, whole_number
from chainapi.core.extras import missing_extra
from chainapi.errors import ConfigurationError
from chainapi.export.formats.markers import Marker
from chainapi.tables.columns import Column

if TYPE_CHECKING:  # most users of formats, such as charts, encode nothing
    from chainapi.export.gathering import GroupEncoder
    from chainapi.export.part_records import GroupRecord
    from chainapi.tables.codec import Codec

__all__ = [
    "FORMATS",
    "Compression",
    "DatabaseFormat",
    "Dropped",
    "Format",
    "GroupFormat",
    "Rows",
    "TextFormat",
    "format_of",
    "log_beside",
    "name_of",
    "options_of",
    "with_options",
    "without_source",
]

FORMATS = (
    "jsonl",
    "csv",
    "parquet",
    "sqlite",
    "duckdb",
    "jsonl.gz",
    "jsonl.zst",
    "csv.gz",
    "csv.zst",
)

Compression: TypeAlias = Literal["zstd", "snappy", "gzip", "none"]
LEVELS = {"zstd": 22, "zst": 22, "gzip": 9, "gz": 9}  # the greatest level of each that has levels
LARGEST_GROUP = 64 << 20  # rows: Arrow writes no larger group

Rows: TypeAlias = Iterable[tuple[str, bytes | Any]]
"""Labels of sources, each with some of its rows.

They are JSON lines with the label in front (`Codec.encode_page`). Rows that the journal has in row groups are
a table of Arrow, which a `GroupFormat` alone gets.
"""

Dropped: TypeAlias = AbstractSet[int]
"""Indices of rows of a file, from 0, that another file does not get."""

_PACKAGES = frozenset({"duckdb", "pyarrow"})  # of the extras, which are named like their formats


class Format(Protocol):
    """File format.

    Every file has the column ``source`` and then those of the rows. A column has the type of its kind in
    every file; no value changes it, and nothing is rounded.
    """

    @property
    def name(self) -> str:
        """Name of the format."""
        ...

    @property
    def suffix(self) -> str:
        """Suffix of its file names, such as ``.csv``."""
        ...

    @property
    def needs_columns(self) -> bool:
        """Check whether the format accepts only rows whose columns are known."""
        ...

    def write(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path | None = None,
        stop: threading.Event | None = None,
        dropped: Dropped = frozenset(),
    ) -> int:
        """Write or replace a file, and read it back; return the number of its rows.

        The file has the rows of `previous` without the `dropped` ones, then `rows`. `previous` is another
        file of this format, which may lack columns: its rows have None there, and the columns that it lacks
        follow those that it has. Memory does not grow with the number of rows. What is read back is compared
        by the number of the rows and a checksum of their values. The file is not fsynced; after an error, the
        file at `path` is incomplete.

        Raises:
            ConfigurationError: no columns are known and the format needs them, or `previous` is not a file
                of these columns.
            ExportError: the file does not have the rows that were written.
            OSError: the file cannot be written.
            Stopped: `stop` was set while the file was read back.

        """
        ...

    def read(self, path: Path) -> Generator[dict[str, Any], None, None]:
        """Yield the rows of a file in their order; values have the types of the file.

        Raises:
            ConfigurationError: the file is damaged, or has another format.
            OSError: the file cannot be read.
            TargetInUseError: another program has locked the database.

        """
        ...

    def typed(self, row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return a row that `read` yields, with the kinds of these columns.

        Values are whole numbers, Decimal, aware datetimes, records as dicts, lists; a column that the row
        lacks holds None.
        """
        ...


@runtime_checkable
class TextFormat(Format, Protocol):
    """File format whose rows may be appended as bytes."""

    @property
    def keeps_lines(self) -> bool:
        """Check whether a new file has the JSON lines of its rows, byte by byte."""
        ...

    def can_continue(self, path: Path, columns: Sequence[Column]) -> bool:
        """Check whether rows of these columns can follow the bytes of a file."""
        ...

    def write_tail(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path,
        stop: threading.Event | None = None,
    ) -> int:
        """Write what follows the bytes of a file, `previous`, and read it back.

        Return the number of rows.

        Raises:
            ExportError: the file does not have the rows that were written.
            OSError: the file cannot be written.
            Stopped: `stop` was set while the file was read back.

        """
        ...


@runtime_checkable
class DatabaseFormat(Format, Protocol):
    """File format of databases, which add rows in a transaction.

    The methods raise `TargetInUseError` if another program has locked the database, OSError if it cannot be
    written, ConfigurationError if it is no database of an export, and `Stopped` once `stop` is set.
    """

    @property
    def logs(self) -> tuple[str, ...]:
        """Suffixes of the files in which the database keeps changes.

        They stay there until they are in its own file.
        """
        ...

    def mark(self, path: Path, marker: Marker) -> None:
        """Add a marker to a new database."""
        ...

    def newest(self, path: Path, stop: threading.Event | None = None) -> tuple[Marker | None, int]:
        """Return the newest marker and the number of rows.

        A transaction that a stopped program left is rolled back, or completed if it was committed. No log is
        left behind.
        """
        ...

    def merge(
        self, path: Path, added: Path, part: int, run: str, stop: threading.Event | None = None
    ) -> None:
        """Add the rows of another database in one transaction, and read them back.

        Columns that the database lacks are added to it; earlier rows have NULL there. The transaction also
        adds the marker of the part. It survives a power cut. Indexes, tables and views of others stay.

        If `added` has a table ``removed``, the rows at the places in it are deleted first.

        Raises:
            ExportError: the database does not have the rows that were added.

        """
        ...

    def remove(self, added: Path, dropped: Dropped) -> None:
        """Write the indices of rows that leave a database to another, for `merge`.

        Its table ``removed`` gets them; they count the rows as `read` yields them. The ids of rows might
        change until then: VACUUM of SQLite, and a checkpoint of DuckDB, may number rows again, and keep their
        order.
        """
        ...

    def compare(self, path: Path, added: Path, stop: threading.Event | None = None) -> None:
        """Compare the newest rows of a database with those that `merge` has added.

        Raises:
            ExportError: they differ.

        """
        ...


@runtime_checkable
class GroupFormat(Format, Protocol):
    """File format whose row groups may be written while an export fetches."""

    def groups_of(self, codec: Codec) -> GroupEncoder | None:
        """Return the encoder of pages as row groups; None if files have other groups."""
        ...

    def can_end(self, columns: Sequence[Column], groups: Sequence[GroupRecord]) -> bool:
        """Check whether a segment with these row groups may become a file."""
        ...

    def end(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        groups: Sequence[GroupRecord],
        stop: threading.Event | None = None,
    ) -> int:
        """Make a file of a segment: write rows after its groups, and the footer.

        Then the file is read back.

        Return the number of all rows. Bytes after the groups are overwritten.

        Raises:
            ExportError: the file does not have the rows that were written.
            OSError: the file cannot be written.
            Stopped: `stop` was set while the file was read back.

        """
        ...


def name_of(path: str | Path) -> str | None:
    """Return the name of the format that the suffix of a path stands for, or None."""
    first, *suffixes = Path(path).name.lower().split(".")
    for count in (2, 1):
        name = ".".join(suffixes[-count:])
        if name in FORMATS and (first or len(suffixes) > count):
            return name
    return None


def log_beside(path: Path, format_: Format) -> Path | None:
    """Return the path of a log beside a database, or None.

    Programs take it for the log of this file.
    """
    suffixes = format_.logs if isinstance(format_, DatabaseFormat) else ()
    logs = (path.with_name(path.name + suffix) for suffix in suffixes)
    return next((log for log in logs if log.exists()), None)


def format_of(name_or_path: str | Path) -> Format:
    """Return a format by name (``csv``) or by the suffix of a path (``a.csv``).

    Raises:
        ConfigurationError: no format has such a name, or its extra is not installed.

    """
    text = str(name_or_path)
    name = text if text in FORMATS else name_of(text)
    if name is None:
        folder = "; the name of a folder ends with a slash" if "." in text else ""
        raise ConfigurationError(f"unknown file format {text!r}: choose one of {', '.join(FORMATS)}{folder}")
    base, _, packed = name.partition(".")
    try:
        module = import_module(f"{__name__}.{base}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise missing_extra(f"{name} files need", package, name) from None
    if not packed:
        return cast("Format", module.FORMAT)
    from chainapi.export.formats.text_files import TextFiles

    return cast("Format", evolve(module.FORMAT, files=TextFiles.of(f".{packed}")))


def with_options(
    form: Format,
    compression: Compression | None = None,
    compression_level: int | None = None,
    row_group_rows: int | None = None,
) -> Format:
    """Return the format with these options; None is the default.

    Raises:
        ConfigurationError: an option is invalid, or does not apply to the format.

    """
    packed: Any = form
    if form.name == "parquet":
        given = "zstd" if compression is None else compression
        chosen = one_of("compression", given, ("zstd", "snappy", "gzip", "none"))
        _check_level(compression_level, chosen)
        if row_group_rows is not None:
            whole_number("row_group_rows", row_group_rows, 1, LARGEST_GROUP)
        options = {"compression": chosen, "level": compression_level, "group_rows": row_group_rows}
        return cast("Format", evolve(packed, **options))
    for name, value in (("compression", compression), ("row_group_rows", row_group_rows)):
        if value is not None:
            raise ConfigurationError(
                f"{name}= applies to Parquet, and the files are {form.name}: leave it out, or choose Parquet"
            )
    if compression_level is None:
        return form
    _check_level(compression_level, form.name)
    return cast("Format", evolve(packed, files=evolve(packed.files, level=compression_level)))


def options_of(form: Format) -> dict[str, Any]:
    """Return the compression and the level of a format, as `with_options` takes them.

    None is the default.
    """
    packed: Any = form
    if form.name == "parquet":
        return {"compression": packed.compression, "compression_level": packed.level}
    level = packed.files.level if "." in form.name else None
    return {"compression": None, "compression_level": level}


def _check_level(level: int | None, compression: str) -> None:
    """Check the level of a compression of Parquet, or of a compressed format."""
    if level is None:
        return
    most = LEVELS.get(compression.rpartition(".")[2])
    if most is None:
        raise ConfigurationError(
            f"compression_level= does not apply to {compression}, which has no levels: leave it out"
        )
    whole_number("compression_level", level, 1, most)


def without_source(form: Format) -> Format:
    """Return the format whose files lack the column ``source``.

    The names of their folders have it.
    """
    file_format: Any = form
    return cast("Format", evolve(file_format, source=False))
