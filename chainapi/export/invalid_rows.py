"""Invalid rows of an export: their JSON lines, and digests that recognize them.

A record is ``{"path":...,"error":...,"row":...}``; in a file the source is in front. A lookback fetches rows
again: of these an export writes the ones alone whose source and row it has not written yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
from attrs import define, field

from chainapi.tables.columns import SOURCE

__all__ = ["INVALID_DIGEST", "InvalidRows"]

INVALID_DIGEST = 16  # bytes
_ROW = b',"row":'  # in a text of a record its quotation marks are escaped


@define(eq=False)
class InvalidRows:
    """Invalid rows of a part that no earlier part has.

    Attributes:
        known: number of rows of earlier parts by their digests, which may come again.
        digests: digests of the rows so far.

    """

    known: Counter[bytes] = field(factory=Counter[bytes])
    digests: list[bytes] = field(factory=list[bytes], init=False)

    def lines(self, label: str, records: bytes) -> Iterator[bytes]:
        """Yield the lines of those records that are new, and keep their digests.

        Args:
            label: label of the source.
            records: JSON lines of the records.

        """
        head = b'{"%b":%b,' % (SOURCE.encode(), msgspec.json.encode(label))
        for record in records.split(b"\n")[:-1]:
            row = record.partition(_ROW)[2]
            digest = blake2b(head + row, digest_size=INVALID_DIGEST).digest()
            if self.known[digest]:
                self.known[digest] -= 1
            else:
                self.digests.append(digest)
                yield head + record[1:] + b"\n"
