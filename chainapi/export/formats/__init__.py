"""The formats of files: each writes rows and reads them, and all know the same few things of a column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from chainapi.export.columns import Column

__all__ = ["Format", "Rows", "format_of"]

Rows: TypeAlias = Callable[[], Iterable[tuple[str, bytes]]]
"""Gives the rows anew at each call: the label of each one's source, and the row as `Codec` encodes it."""


class Format(Protocol):
    """A format of files."""

    name: str
    suffix: str

    def write(self, path: Path, columns: Sequence[Column], rows: Rows, previous: Path | None = None) -> None:
        """Write a new file: the rows of `previous`, a file of the same columns, and then `rows`.

        Memory does not grow with the number of rows. `rows` is called again where a value turns up that needs
        a wider type than its column has: the file is begun anew then.

        Raises:
            ConfigurationError: the extra of the format is not installed, the format needs columns where there
                are none, or `previous` has other columns.

        """
        ...

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file, ``source`` first.

        With `columns`, values are what these say: whole numbers, Decimal, aware datetimes (seconds where no
        calendar has them), dicts and lists. Without, they are what the file tells of itself.

        Raises:
            ConfigurationError: the extra of the format is not installed.

        """
        ...


def format_of(name_or_path: str | Path) -> Format:
    """Return a format by its name, or by the suffix of a file.

    Raises:
        ConfigurationError: no format has such a name or suffix.

    """
    raise NotImplementedError
