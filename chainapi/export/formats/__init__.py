"""File formats: writers and readers of encoded rows.

`Codec` encodes the rows; no model is needed to read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
from attrs import frozen

from chainapi.core.extras import missing_extra
from chainapi.errors import ConfigurationError
from chainapi.tables.columns import SOURCE, Column

__all__ = ["FORMATS", "Format", "Rows", "format_of", "labelled"]

FORMATS = ("jsonl", "csv", "parquet", "sqlite", "duckdb")

_PACKAGES = frozenset({"duckdb", "pyarrow"})  # of the extras, which are named like their formats


@frozen
class Rows:
    """Encoded rows; a call yields the label of the source of each, and the row as `Codec` encoded it.

    Attributes:
        pages: returns the same rows by pages: a label, and JSON lines.

    """

    pages: Callable[[], Iterable[tuple[str, bytes]]]

    def __call__(self) -> Iterator[tuple[str, bytes]]:
        """Yield each row with the label of its source."""
        for label, lines in self.pages():
            for line in lines.split(b"\n")[:-1]:
                yield label, line


def labelled(label: str, lines: bytes) -> bytes:
    """Return JSON lines whose objects begin with the label of their source."""
    head = b'\n{"%b":%b' % (SOURCE.encode(), msgspec.json.encode(label))
    found = (b"\n" + lines[:-1]).replace(b'\n{"', head + b',"').replace(b"\n{}", head + b"}")
    return found[1:] + b"\n"


class Format(Protocol):
    """File format.

    Every file has the column ``source`` and then those of the rows. A column has one type in a file. If a
    value does not fit, the whole column takes a wider type, up to text. Nothing is rounded.
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

    def write(self, path: Path, columns: Sequence[Column], rows: Rows, previous: Path | None = None) -> None:
        """Write a new file, or replace one: the rows of `previous`, then `rows`.

        `previous` is another file of this format and of the same columns. Memory does not grow with the
        number of rows. `rows` is called again if a value needs a wider type. The file is not fsynced;
        after an error, the file at `path` is incomplete.

        Raises:
            ConfigurationError: no columns are known and the format needs them, or `previous` is not a file
                of these columns.
            OSError: the file cannot be written.

        """
        ...

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file in their order.

        With `columns`, values have their kinds: whole numbers, Decimal, aware datetimes (seconds beyond the
        year 9999), records as dicts, lists. Without, they have the types of the file.

        Raises:
            ConfigurationError: the file has another format or other columns.
            OSError: the file cannot be read.

        """
        ...


def format_of(name_or_path: str | Path) -> Format:
    """Return a format by name (``csv``) or by the suffix of a path (``a.csv``).

    Raises:
        ConfigurationError: no format has such a name, or its extra is not installed.

    """
    text = str(name_or_path)
    name = text if text in FORMATS else Path(text).suffix.lower().removeprefix(".")
    if name not in FORMATS:
        raise ConfigurationError(f"unknown file format {text!r}: choose one of {', '.join(FORMATS)}")
    try:
        module = import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise missing_extra(f"{name} files need", package, name) from None
    return cast("Format", module.FORMAT)
