"""Records of a journal: sources, the pages that add to them, and final files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

from attrs import define, frozen

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.export.integrity import row_checksum

__all__ = ["BEGUN", "CLEANED", "IN_PLACE", "Batch", "PageLog", "Part", "SourceRecord"]

BEGUN, IN_PLACE, CLEANED = range(3)  # states of a final file


@define
class SourceRecord:
    """Position of a source: its walk, and the newest row that the target has.

    Attributes:
        number: counts the sources from 1, in the order in which the export met them.
        label: name of the source, such as ``43114``.
        query: fingerprint of its query.
        checkpoint: position of its walk, as text; None before the first page.
        taken: rows of this walk that count towards its limit.
        newest: greatest number among its rows, where the route has a descending number.
        exported: greatest number among the rows that earlier walks brought into the target.
        exported_ties: marks of the target's rows that have the number `exported`; None where no two rows
            share a number.
        done: whether its walk has ended.

    """

    number: int
    label: str
    query: str
    checkpoint: str | None = None
    taken: int = 0
    newest: int | None = None
    exported: int | None = None
    exported_ties: tuple[str, ...] | None = None
    done: bool = False

    @classmethod
    def from_fields(
        cls,
        number: int,
        label: str,
        query: str,
        checkpoint: str | None,
        taken: int,
        newest: str | None,
        exported: str | None,
        ties: str,
        done: int,
    ) -> Self:
        """Return the record with these columns.

        Raises:
            ValueError, TypeError: a column does not have the form that `fields` writes.

        """
        if checkpoint is not None:
            Checkpoint.loads(checkpoint)
        numbers, marks = (_number(newest), _number(exported)), json.loads(ties)
        known = None if marks is None else tuple(marks)
        return cls(number, label, query, checkpoint, taken, *numbers, known, bool(done))

    @property
    def fields(self) -> tuple[Any, ...]:
        """Columns of the record; large numbers are texts, as SQLite has 64 bits."""
        numbers = _text(self.newest), _text(self.exported)
        ties, done = json.dumps(self.exported_ties), int(self.done)
        return (self.number, self.label, self.query, self.checkpoint, self.taken, *numbers, ties, done)

    def advance(self, batch: Batch) -> None:
        """Move the position behind a page of this source."""
        checkpoint = batch.checkpoint
        numbers = [number for number in (self.newest, batch.newest) if number is not None]
        self.newest = None if checkpoint.unordered else max(numbers, default=None)
        self.checkpoint, self.taken, self.done = checkpoint.dumps(), batch.taken, batch.done
        if batch.done:
            self.exported = self.newest
            self.exported_ties = self._ties(checkpoint)

    def _ties(self, checkpoint: Checkpoint) -> tuple[str, ...] | None:
        """Return the marks of the newest rows; the old ones if the list has no such rows."""
        if checkpoint.watermark is None:
            return self.exported_ties
        if not checkpoint.watermark.ties:
            return None
        ties = checkpoint.watermark.ties
        return next((marks for number, marks in ties if number == self.exported), self.exported_ties)


@frozen
class Batch:
    """Rows that one page adds to a source, and the position behind them.

    Attributes:
        source: the source; a commit moves its position.
        rows: rows of the page that the target may lack.
        digests: digest of each row.
        encode: returns the bytes that the journal keeps of a row.
        checkpoint: position of the walk behind the page.
        taken: rows of the walk that count towards its limit.
        done: whether the walk has ended.
        repeats: digests of rows that the stream recognised as rows of an earlier pass.
        newest: greatest number among the rows; None for a list without a descending number.
        matched: whether the journal matches rows of a later pass with the rows that it has.

    """

    source: SourceRecord
    rows: Sequence[Any]
    digests: Sequence[bytes]
    encode: Callable[[Any], bytes]
    checkpoint: Checkpoint
    taken: int
    done: bool
    repeats: Sequence[bytes] = ()
    newest: int | None = None
    matched: bool = False

    def records(self, last: int, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, ...]]:
        """Yield the columns of encoded rows.

        Args:
            last: position of the last row that the journal has.
            rows: digest and encoded row of each new row.

        """
        number, walk_pass = self.source.number, self.checkpoint.restarts
        for position, (digest, row) in enumerate(rows, last + 1):
            stored = row_checksum(number, position, digest, row) + walk_pass
            yield number, position, digest, walk_pass, stored, row


class PageLog(Protocol):
    """Log of the pages of an export.

    Every method blocks, and all calls come from one thread.

    Attributes:
        invalid: number of invalid rows committed since the log was opened.

    """

    invalid: int

    def settings(self) -> dict[str, Any]:
        """Return the settings of the export; an empty dict for a new one."""
        ...

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Store the settings of an export without pages, in place of those stored before."""
        ...

    def has_pages(self) -> bool:
        """Return whether a page was ever committed."""
        ...

    def source(self, label: str, query: str) -> SourceRecord:
        """Return the source with this label; create it if it is missing."""
        ...

    def commit(self, batches: Sequence[Batch]) -> int:
        """Take the rows of pages and the positions behind; count and return new rows."""
        ...


@frozen
class Part:
    """Final file of an export.

    Attributes:
        number: counts the final files from 1.
        name: name of the file.
        rows: number of its rows.
        size: its size in bytes.
        digest: digest of its content.
        invalid: size in bytes of the file with invalid rows, up to and with the rows of this part.
        state: `BEGUN` once the journal has its digest, `IN_PLACE` once it has its name, `CLEANED` once the
            journal has deleted its rows.

    """

    number: int
    name: str
    rows: int
    size: int
    digest: str
    invalid: int
    state: int

    @property
    def fields(self) -> tuple[Any, ...]:
        """Columns of the record."""
        return self.number, self.name, self.rows, self.size, self.digest, self.invalid, self.state


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
