r"""Files of text: JSON lines and CSV, plain or compressed with gzip or Zstandard.

A compressed file may have several members (gzip) or frames (Zstandard), and every reader joins them: so rows
are appended to it as to a plain file.

JSON lines have the label of the source in front. CSV is as in RFC 4180, in UTF-8 with "\n" after each line;
only strings are in quotation marks: an empty string is ``""``, and None is an empty field. Times are ISO 8601
in UTC, and records, lists and other JSON are JSON text.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property, lru_cache
from gzip import GzipFile
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any, Literal, cast

import msgspec
from attrs import frozen
from msgspec import Struct, structs

from chainapi._tables.columns import SOURCE, Column
from chainapi._tables.rows import json_text, reader
from chainapi._tables.types import Kind
from chainapi.core.extras import missing_extra
from chainapi.errors import ExportError

__all__ = ["NESTED", "EncodedRows", "TextFormat", "TextWriter", "damaged_file", "date_of"]

LEVELS = {"gz": 6, "zst": 3}  # the default levels of the programs gzip and zstd
DAY = 86_400  # seconds
NESTED: frozenset[Kind] = frozenset({"json", "struct", "list"})  # JSON text in files that know no records
_EPOCH = date(1970, 1, 1).toordinal()


class EncodedRows(Struct, eq=False):
    """Rows of one page.

    Attributes:
        label: label of their source.
        count: their number.
        lines: the rows as JSON lines, with the label in front; empty if there are `values`.
        values: values of each column (`Codec.values`), for formats that take them; None otherwise.
        lowest: least number among the rows, of the number that orders their list; None if one has none.
        highest: greatest number among them.

    """

    label: str
    count: int
    lines: bytes = b""
    values: Sequence[Sequence[Any]] | None = None
    lowest: int | None = None
    highest: int | None = None

    def each(self) -> Iterator[EncodedRows]:
        """Yield each row of JSON lines alone."""
        for line in self.lines.split(b"\n")[:-1]:
            yield structs.replace(self, count=1, lines=line + b"\n")

    def chosen(self, places: Sequence[int]) -> EncodedRows:
        """Return the rows of JSON lines at some places."""
        lines = self.lines.split(b"\n")
        content = b"".join([lines[place] + b"\n" for place in places])
        return structs.replace(self, count=len(places), lines=content)


@frozen
class TextFormat:
    """Format of a text file.

    Attributes:
        name: such as ``jsonl`` or ``csv.gz``.
        columns: columns of the rows; empty for JSON lines of rows without a model.
        labelled: whether files have the column ``source``; the names of folders have it otherwise.
        escapes: whether an apostrophe stands before texts of CSV that a spreadsheet takes for formulas.

    """

    name: str
    columns: tuple[Column, ...] = ()
    labelled: bool = True
    escapes: bool = False

    packs = False  # a writer takes JSON lines

    @property
    def suffix(self) -> str:
        """Suffix of the names of files."""
        return f".{self.name}"

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

    @cached_property
    def encode(self) -> Callable[[Iterable[EncodedRows]], bytes]:
        """Function that returns rows as they stand in a file, not compressed."""
        if not self._is_csv:
            return self._json_lines
        return _csv_encoder(self.columns, labelled=self.labelled, escapes=self.escapes)

    def packed(self, content: bytes) -> bytes:
        """Return content as a member of a file, compressed if its files are."""
        if not self._packing:
            return content
        made = BytesIO()
        with self.packer(made, "wb") as file:
            file.write(content)
        return made.getvalue()

    def packer(self, raw: IO[bytes], mode: Literal["rb", "wb"]) -> Any:
        """Return a file object that compresses into another one, or decompresses that.

        Equal rows give equal bytes.
        """
        if self._packing == "gz":
            return GzipFile("", mode, LEVELS["gz"], cast("Any", raw), mtime=0)
        if self._packing == "zst":
            parameters = zstandard().CompressionParameter
            options = {parameters.compression_level: LEVELS["zst"], parameters.checksum_flag: 1}
            return zstandard().ZstdFile(raw, mode, options=options if mode == "wb" else None)
        return raw

    # Rows of a file; `named` is its name in errors

    def keys(self, page: EncodedRows) -> list[bytes]:
        """Return for each row what `rows` yields for an equal one."""
        return [self.encode([one]) for one in page.each()]

    def rows(self, path: Path, named: str) -> Iterator[tuple[Mapping[str, Any], bytes]]:
        """Yield the values of each row by column, and what it is compared by.

        Raises:
            ExportError: the file is damaged.

        """
        records = self._records(path, named)
        if not self._is_csv:
            for line in records:
                yield _object(line, named), line
            return
        names = self._columns_in(records, named)
        for record in records:
            cells = _cells(record, named)
            if len(cells) != len(names):
                raise damaged_file(named, "a line has another number of fields than the header")
            if self.escapes:
                cells = [cell and _ESCAPED.sub("", cell) for cell in cells]
            yield dict(zip(names, cells, strict=True)), record

    def kept(self, path: Path, named: str, dropped: Collection[int]) -> Iterator[bytes]:
        """Yield the rows of a file, but for those at some places, as a writer adds them.

        Raises:
            ExportError: the file is damaged.

        """
        records, lacking = self._records(path, named), b""
        if self._is_csv:  # the rows may have gained columns since
            lacking = b"," * (len(self._names) - len(self._columns_in(records, named)))
        for place, record in enumerate(records):
            if place not in dropped:
                yield record[:-1] + lacking + b"\n" if lacking else record

    def _columns_in(self, records: Iterator[bytes], named: str) -> list[str]:
        """Read the header of a file, which may lack the last columns."""
        found = [name or "" for name in _cells(next(records, b""), named)]
        if found != self._names[: len(found)]:
            raise damaged_file(named, "it has other columns")
        return found

    def _records(self, path: Path, named: str) -> Iterator[bytes]:
        """Yield the lines of JSON, or the records of CSV with the header.

        A line of CSV with an odd number of quotation marks continues in the next one.
        """
        errors = (zstandard().ZstdError,) if self._packing == "zst" else (zlib.error,)
        is_csv, record, within = self._is_csv, list[bytes](), 0
        try:
            with path.open("rb") as raw, self.packer(raw, "rb") as lines:
                for line in lines:
                    within ^= is_csv and line.count(b'"') & 1
                    record.append(line)
                    if not within:
                        yield b"".join(record)
                        record.clear()
        except (OSError, EOFError, *errors) as error:
            raise damaged_file(named, str(error) or type(error).__name__) from error
        if record:
            raise damaged_file(named, "its last row has no end")

    def _json_lines(self, pages: Iterable[EncodedRows]) -> bytes:
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
        self._file = form.packer(self._raw, "wb")
        self._file.write(form.header)

    def write(self, pages: Iterable[EncodedRows]) -> None:
        """Write rows after the others."""
        self.add(self._form.encode(pages))

    def add(self, content: bytes) -> None:
        """Write rows of another file after the others."""
        self._file.write(content)

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


# A spreadsheet reads a text that begins with one of these as a formula. A number is no text: -5 stays.
_FORMULA = re.compile(r"(?=[=+@-])")
_ESCAPED = re.compile(r"\A'(?=[=+@-])")


def _csv_encoder(
    columns: Sequence[Column], *, labelled: bool, escapes: bool
) -> Callable[[Iterable[EncodedRows]], bytes]:
    texts = _escaped_texts if escapes else _texts
    writers = [texts if one.kind == "text" else _WRITERS.get(one.kind, _plain) for one in columns]
    read = reader(columns, nested=False)

    def encode(pages: Iterable[EncodedRows]) -> bytes:
        return "".join(chain.from_iterable(map(of_page, pages))).encode()

    def of_page(page: EncodedRows) -> Iterable[str]:
        labels = [repeat(texts([page.label])[0])] if labelled else []
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


def _escaped_texts(values: Sequence[Any]) -> list[str]:
    escaped = [value and ("'" + value if _FORMULA.match(value) else value) for value in values]
    return _texts(escaped)


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
    "time": _times,
    "boolean": _booleans,
    **dict.fromkeys(NESTED, _jsons),
}

# Python's own reader returns the same for an empty text and for None.
_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^,"\n]*))(?:,|\n\Z)')


def _cells(record: bytes, named: str) -> list[str | None]:
    try:
        cells = [cell.groups() for cell in _CELL.finditer(record.decode())]
    except UnicodeDecodeError:
        raise damaged_file(named, "it is not UTF-8") from None
    return [bare or None if quoted is None else quoted.replace('""', '"') for quoted, bare in cells]
