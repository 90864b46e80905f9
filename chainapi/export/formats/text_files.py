"""Text files, plain or compressed with gzip or Zstandard.

Readers join the members of a gzip file, and the frames of a Zstandard file. So rows are appended to a
compressed file as to a plain one, as a member or frame of their own.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import BadGzipFile, GzipFile
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO, ClassVar, Self

from attrs import frozen

from chainapi.core.extras import missing_extra

__all__ = ["PLAIN", "DamagedTextError", "TextFileFormat", "TextFiles"]

LEVELS = {".gz": 6, ".zst": 3}  # the default levels: those of the programs gzip and zstd


class DamagedTextError(Exception):
    """Bytes that cannot be decompressed, or end too early."""


@frozen
class TextFiles:
    """Text files of one compression; the same content is compressed to the same bytes.

    Attributes:
        suffix: suffix of their names, after that of the format; empty for plain files.
        level: level of the compression.

    """

    suffix: str = ""
    level: int = 0

    @classmethod
    def of(cls, suffix: str) -> Self:
        """Return the files with this suffix.

        Raises:
            ConfigurationError: Zstandard is not installed.

        """
        if suffix == ".zst":
            _zstandard()
        return cls(suffix, LEVELS.get(suffix, 0))

    @contextmanager
    def create(self, path: Path) -> Iterator[IO[bytes]]:
        """Open a new file for writing.

        Raises:
            OSError: the file cannot be written.

        """
        with path.open("wb") as raw:
            with self._compressor(raw) as file:
                yield file
            if self.suffix == ".zst" and not raw.tell():
                raw.write(_zstandard().compress(b"", options=self._options()))

    @contextmanager
    def open(self, path: Path) -> Iterator[IO[bytes]]:
        """Open a file for reading.

        Raises:
            DamagedTextError: the file cannot be decompressed; raised where the block reads it.
            OSError: the file cannot be read.

        """
        with path.open("rb") as raw:
            try:
                with self._decompressor(raw) as file:
                    yield file
            except self._errors as error:
                raise DamagedTextError(f"{path}: {error}") from error

    def _compressor(self, raw: BinaryIO) -> Any:
        if self.suffix == ".gz":  # without a name and a time in its header
            return GzipFile("", "wb", self.level, raw, mtime=0)
        if self.suffix == ".zst":
            return _zstandard().ZstdFile(raw, "wb", options=self._options())
        return raw

    def _options(self) -> dict[Any, int]:
        """Return the options of Zstandard."""
        parameters = _zstandard().CompressionParameter
        return {parameters.compression_level: self.level, parameters.checksum_flag: 1}

    def _decompressor(self, raw: BufferedReader) -> Any:
        if self.suffix == ".gz":
            return GzipFile(fileobj=raw)
        return _zstandard().ZstdFile(raw) if self.suffix == ".zst" else raw

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        if self.suffix == ".gz":
            return EOFError, zlib.error, BadGzipFile
        return (EOFError, _zstandard().ZstdError) if self.suffix == ".zst" else ()


PLAIN = TextFiles()


@frozen
class TextFileFormat:
    """Names of a format of text files.

    Attributes:
        base: name of the format without a compression.
        source: whether files have the column ``source``.
        files: opener of the files, plain or compressed.

    """

    base: ClassVar[str]
    source: bool = True
    files: TextFiles = PLAIN

    @property
    def name(self) -> str:
        """Name of the format."""
        return f"{self.base}{self.files.suffix}"

    @property
    def suffix(self) -> str:
        """Suffix of its file names."""
        return f".{self.name}"


def _zstandard() -> Any:
    """Import the module of Python 3.14, or the package with it for earlier ones."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        try:
            from backports import zstd
        except ImportError:
            raise missing_extra(".zst files need", "backports.zstd", "zstd") from None
    return zstd
