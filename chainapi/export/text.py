r"""Files of text: JSON lines and CSV, plain or compressed with gzip or Zstandard.

A compressed file may have several members (gzip) or frames (Zstandard), and every reader joins them: so rows
are appended to it as to a plain file.

JSON lines have the label of the source in front. CSV is that of RFC 4180, in UTF-8 with "\n" after each line;
only strings are in quotation marks: an empty string is ``""``, and None is an empty field. Times are ISO 8601
in UTC, and records, lists and other JSON are JSON text.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import lru_cache
from gzip import BadGzipFile, GzipFile
from io import BytesIO, TextIOWrapper
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import msgspec
from attrs import field, frozen

from chainapi.core.extras import missing_extra
from chainapi.errors import ExportError
from chainapi.export.batch import PageRows
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.rows import json_text, reader
from chainapi.tables.types import Kind

__all__ = ["NESTED", "TextFormat", "TextWriter", "damaged_file", "date_of"]

LEVELS = {"gz": 6, "zst": 3}  # the default levels of the programs gzip and zstd
DAY = 86_400  # seconds
NESTED: frozenset[Kind] = frozenset({"json", "struct", "list"})  # JSON text in files that know no records
_EPOCH = date(1970, 1, 1).toordinal()


@frozen
class TextFormat:
    """Format of a text file.

    Attributes:
        name: such as ``jsonl`` or ``csv.gz``.
        columns: columns of the rows; empty for JSON lines of rows without a model.
        labelled: whether files have the column ``source``; the names of folders have it otherwise.

    """

    name: str
    columns: tuple[Column, ...] = ()
    labelled: bool = True
    _encode: Callable[[Iterable[PageRows]], bytes] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        encode = _csv_encoder(self.columns, labelled=self.labelled) if self._is_csv else self._json_lines
        object.__setattr__(self, "_encode", encode)

    @property
    def suffix(self) -> str:
        """Suffix of the names of files."""
        return f".{self.name}"

    @property
    def packs(self) -> bool:
        """Whether a writer takes the values of rows; text is made of their JSON lines."""
        return False

    @property
    def _is_csv(self) -> bool:
        return self.name.startswith("csv")

    @property
    def _packing(self) -> str:
        return self.name.partition(".")[2]

    @property
    def header(self) -> bytes:
        """Header before the rows of a file."""
        return (",".join(self._names) + "\n").encode() if self._is_csv else b""

    @property
    def _names(self) -> list[str]:
        return [SOURCE, *(one.name for one in self.columns)][not self.labelled :]

    def writer(self, path: Path) -> TextWriter:
        """Return a writer of a new file."""
        return TextWriter(self, path)

    def encode(self, pages: Iterable[PageRows]) -> bytes:
        """Return rows as they stand in a file, not compressed."""
        return self._encode(pages)

    def packed(self, content: bytes) -> bytes:
        """Return content as a member of a file, compressed if its files are."""
        if not self._packing:
            return content
        made = BytesIO()
        with self.packer(made) as file:
            file.write(content)
        return made.getvalue()

    def packer(self, raw: IO[bytes]) -> Any:
        """Return a file object that compresses into another one.

        Equal rows give equal bytes.
        """
        if self._packing == "gz":
            return GzipFile("", "wb", LEVELS["gz"], cast("Any", raw), mtime=0)
        if self._packing == "zst":
            parameters = zstandard().CompressionParameter
            options = {parameters.compression_level: LEVELS["zst"], parameters.checksum_flag: 1}
            return zstandard().ZstdFile(raw, "wb", options=options)
        return raw

    @contextmanager
    def opened(self, path: Path, named: str) -> Iterator[IO[bytes]]:
        """Open a file for reading; `named` is its name in errors.

        Raises:
            ExportError: it cannot be read or decompressed.

        """
        try:
            with path.open("rb") as raw:
                if self._packing == "gz":
                    yield cast("IO[bytes]", GzipFile(fileobj=raw))
                elif self._packing == "zst":
                    yield zstandard().ZstdFile(raw)
                else:
                    yield raw
        except (OSError, EOFError, zlib.error, BadGzipFile) as error:
            raise damaged_file(named, str(error) or type(error).__name__) from error
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            raise damaged_file(named, str(error)) from error

    # Rows of a file

    def keys(self, page: PageRows) -> list[Any]:
        """Return for each row what `rows` yields for an equal one."""
        if self._is_csv:
            return [self.encode([one]).decode() for one in page.each()]
        return self.encode([page]).splitlines(keepends=True)

    def rows(self, path: Path, named: str) -> Iterator[tuple[Mapping[str, Any], Any]]:
        """Yield the values of each row by column, and what it is compared by.

        Raises:
            ExportError: the file is damaged.

        """
        records = self._records(path, named)
        if not self._is_csv:
            for line in records:
                yield _object(line, named), line
            return
        names = [name or "" for name in _cells(next(records, ""))]
        for record in records:
            cells = _cells(record)
            if len(cells) != len(names):
                raise damaged_file(named, "a line has another number of fields than the header")
            yield dict(zip(names, cells, strict=True)), record

    def rewrite(self, path: Path, files: Iterable[tuple[Path, str, Collection[int]]]) -> int:
        """Write a file with the rows of others, each without those at some indices.

        Files of the export may lack columns that the rows gained later. Return the number of rows.

        Args:
            path: the new file.
            files: path of each other one, its name in errors, and the indices.

        """
        count = 0
        with path.open("wb") as raw, self.packer(raw) as new:
            new.write(self.header)
            for old, named, dropped in files:
                records = self._records(old, named)
                lacking = 0
                if self._is_csv:
                    lacking = self._lacking(_cells(next(records, "")), named)
                for place, record in enumerate(records):
                    if place not in dropped:
                        count += 1
                        text = record[:-1] + "," * lacking + "\n" if lacking else record
                        new.write(text.encode() if self._is_csv else text)
        return count

    def header_of(self, path: Path, named: str) -> bytes:
        """Return what precedes the rows of a file."""
        return next(self._records(path, named), "").encode() if self._is_csv else b""

    def _lacking(self, found: Sequence[str | None], named: str) -> int:
        """Return the number of last columns that a file lacks."""
        if [*found] != self._names[: len(found)]:
            raise damaged_file(named, "it has other columns")
        return len(self._names) - len(found)

    def _records(self, path: Path, named: str) -> Iterator[Any]:
        """Yield lines of JSON as bytes, or records of CSV as text, with the header.

        A line of CSV with an odd number of quotation marks continues in the next one.
        """
        with self.opened(path, named) as file:
            if not self._is_csv:
                yield from file
                return
            record, within = list[str](), 0
            try:
                with TextIOWrapper(cast("BinaryIO", file), encoding="utf-8", newline="\n") as lines:
                    for line in lines:
                        record.append(line)
                        within ^= line.count('"') & 1
                        if not within:
                            yield "".join(record)
                            record.clear()
            except UnicodeDecodeError:
                raise damaged_file(named, "it is not UTF-8") from None
            if record:
                raise damaged_file(named, "its last row has no end")

    def _json_lines(self, pages: Iterable[PageRows]) -> bytes:
        if self.labelled:
            return b"".join([page.lines for page in pages])
        made = list[bytes]()
        for page in pages:
            head = len(b'{"%b":%b' % (SOURCE.encode(), msgspec.json.encode(page.label)))
            rest = (line[head:].removeprefix(b",") for line in page.lines.split(b"\n")[:-1])
            made += [b"{" + line + b"\n" for line in rest]
        return b"".join(made)


class TextWriter:
    """Writer of one new file."""

    def __init__(self, form: TextFormat, path: Path) -> None:
        self._form = form
        self._raw = path.open("wb")
        self._file = form.packer(self._raw)
        self._file.write(form.header)

    def write(self, pages: Iterable[PageRows]) -> None:
        """Write rows after the others."""
        self._file.write(self._form.encode(pages))

    def close(self) -> None:
        """Write what is buffered, and close the file."""
        try:
            self._file.close()
        finally:
            self._raw.close()


def damaged_file(named: str, fault: str) -> ExportError:
    """Return the error for a file with rows that cannot be read."""
    return ExportError(
        f"{named} is damaged, or was changed since it was written: {fault}. Put a copy back and start the "
        "same export again, or start over with another target"
    )


def zstandard() -> Any:
    """Import the module of Python 3.14, or the package with it for earlier ones.

    Raises:
        ConfigurationError: the package is not installed.

    """
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        try:
            from backports import zstd
        except ImportError:
            raise missing_extra(".zst files need", "backports.zstd", "zstd") from None
    return zstd


def _object(line: bytes, named: str) -> Mapping[str, Any]:
    try:
        row = _JSON.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        row = None
    if not isinstance(row, dict):
        raise damaged_file(named, "a line is no JSON object")
    return row


_JSON = msgspec.json.Decoder()

# CSV


def _csv_encoder(columns: Sequence[Column], *, labelled: bool) -> Callable[[Iterable[PageRows]], bytes]:
    read, writers = reader(columns, nested=False), [_WRITERS.get(column.kind, _plain) for column in columns]

    def encode(pages: Iterable[PageRows]) -> bytes:
        return "".join(chain.from_iterable(map(of_page, pages))).encode()

    def of_page(page: PageRows) -> Iterable[str]:
        labels = [repeat(_quoted(page.label))] if labelled else []
        cells = [write(values) for write, values in zip(writers, read(page.lines), strict=True)]
        return map(_record, zip(*labels, *cells, strict=False))

    return encode


def _record(cells: Sequence[str]) -> str:
    return ",".join(cells) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _plain(values: Sequence[Any]) -> list[str]:
    return ["" if value is None else str(value) for value in values]


def _texts(values: Sequence[Any]) -> list[str]:
    try:
        plain = '"' not in "".join(values)
    except TypeError:  # there is None
        plain = False
    if plain:
        return [f'"{value}"' for value in values]
    return ["" if value is None else f'"{value}"' if '"' not in value else _quoted(value) for value in values]


def _jsons(values: Sequence[Any]) -> list[str]:
    return _texts([*map(json_text, values)])


def _times(values: Sequence[int | None]) -> list[str]:
    return ["" if value is None else _time(value) for value in values]


def _time(seconds: int) -> str:
    day, rest = divmod(seconds, DAY)
    minute, second = divmod(rest, 60)
    return date_of(day) + _MINUTES[minute] + _SECONDS[second]


_MINUTES = [f"T{minute // 60:02}:{minute % 60:02}:" for minute in range(DAY // 60)]
_SECONDS = [f"{second:02}Z" for second in range(60)]


@lru_cache(maxsize=4_096)
def date_of(day: int) -> str:
    """Return the date of a day, counted from 1970, in ISO 8601."""
    return date.fromordinal(_EPOCH + day).isoformat()


def _booleans(values: Sequence[bool | None]) -> list[str]:
    return ["" if value is None else "true" if value else "false" for value in values]


_WRITERS: Mapping[Kind, Callable[[Sequence[Any]], list[str]]] = {
    "text": _texts,
    "time": _times,
    "boolean": _booleans,
    **dict.fromkeys(NESTED, _jsons),
}

# Python's own reader returns the same for an empty text and for None.
_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^,"\n]*))(?:,|\n\Z)')


def _cells(record: str) -> list[str | None]:
    return [
        bare or None if quoted is None else quoted.replace('""', '"')
        for quoted, bare in (cell.groups() for cell in _CELL.finditer(record))
    ]
