"""State of a partition: the position of each of its sources.

It is text in the footer of a Parquet file.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any
from zlib import compress, crc32, decompress
from zlib import error as ZlibError  # noqa: N812 - its name there is too general

import msgspec

from chainapi.export.source_records import SourceRecord

__all__ = ["FOOTER_KEY", "DamagedStateError", "State"]

FORMAT = 5  # of the state; another number is refused
FOOTER_KEY = b"chainapi"


class DamagedStateError(ValueError):
    """The text is no state that this version of chainapi reads."""


class State(msgspec.Struct):
    """State of a partition after one of its parts.

    Attributes:
        part: number of that part; 0 before the first.
        writer: name of the worker's run that wrote it.
        export: name of the export's run.
        rows: valid rows in all parts.
        invalid: invalid rows of all parts.
        before: `rows` and `invalid` at the start of the export's run.
        settings: settings of the export.
        sources: fields of the sources, in the order of their numbers; their unfinished ranges follow each.
        logs: names of the logs of digests, and the unfinished walks in each: number of the source, and place
            of the range.
        format: version of this record.

    """

    part: int = 0
    writer: str = ""
    export: str = ""
    rows: int = 0
    invalid: int = 0
    before: tuple[int, int] = (0, 0)
    settings: dict[str, Any] = {}
    sources: list[tuple[Any, ...]] = []
    logs: dict[str, list[tuple[int, int]]] = {}
    format: int = FORMAT

    @property
    def records(self) -> dict[str, SourceRecord]:
        """Records of the sources by label; changes of them do not change the state."""
        found = dict[str, SourceRecord]()
        for fields in self.sources:
            record = SourceRecord.from_fields(*fields)
            if record.place:
                found[record.label].add(record)
            else:
                found[record.label] = record
        return found

    def dumps(self) -> bytes:
        """Return the state as text, compressed, with a checksum."""
        content = msgspec.json.encode(self)
        return b64encode(crc32(content).to_bytes(4, "big") + compress(content))

    @classmethod
    def loads(cls, text: bytes) -> State:
        """Read a state back.

        Raises:
            DamagedStateError: the text is damaged, or of another version of chainapi.

        """
        try:
            packed = b64decode(text, validate=True)
            content = decompress(packed[4:])
            if crc32(content).to_bytes(4, "big") != packed[:4]:
                raise DamagedStateError("its checksum differs")
            state = msgspec.json.decode(content, type=cls)
            _ = state.records
        except (ValueError, TypeError, KeyError, ZlibError) as error:
            raise DamagedStateError(str(error)) from error
        if state.format != FORMAT:
            raise DamagedStateError(f"it has format {state.format}, this version reads {FORMAT}")
        return state
