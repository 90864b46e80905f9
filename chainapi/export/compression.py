"""Compression of the pages in segments, by pyarrow (extra `parquet`).

Exports to Parquet compress them: their rows as JSON take many times the room of the file.
"""

from __future__ import annotations

from threading import local

import pyarrow as pa

__all__ = ["compressed", "decompressed"]

LEVEL = 1  # of Zstandard: higher ones save a few percent


class _Codecs(local):
    """Codec of each thread: none may be used by two at a time."""

    def __init__(self) -> None:
        self.zstd = pa.Codec("zstd", LEVEL)


_CODECS = _Codecs()


def compressed(content: bytes) -> bytes:
    """Return compressed bytes."""
    made: bytes = _CODECS.zstd.compress(content, asbytes=True)
    return made


def decompressed(content: bytes, size: int) -> bytes:
    """Return the `size` bytes that were compressed.

    Raises:
        OSError: they were not compressed here, or are damaged.

    """
    try:
        made: bytes = _CODECS.zstd.decompress(content, size, asbytes=True)
    except pa.ArrowException as error:
        raise OSError(str(error)) from None
    return made
