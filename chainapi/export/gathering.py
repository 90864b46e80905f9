"""Pages that become a row group of Parquet while an export fetches.

Once there are enough rows for the smallest group, the values of their columns replace the rows, because they
take less memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from attrs import define, evolve, field, frozen

from chainapi.export.part_records import GroupRecord
from chainapi.export.source_records import Batch
from chainapi.tables.values import Values

__all__ = ["GroupEncoder", "GroupSize", "GroupedPages", "PageValues", "packed_batches"]


@frozen
class GroupSize:
    """Amount of pages that becomes a row group.

    Attributes:
        least: rows of the smallest group; fewer are stored as JSON lines.
        full: rows at which a group is written without waiting for more.
        size: bytes of pages at which a group is written without waiting for more.
        seconds: time after which the rows that have arrived are written.

    """

    least: int = 4_096
    full: int = 32_768
    size: int = 64 << 20
    seconds: float = 1.0


class PageValues(NamedTuple):
    """Values of the columns of a page's rows.

    Attributes:
        label: label of the source.
        rows: number of the rows.
        columns: values of each column, as `Codec.values` returns them.

    """

    label: str
    rows: int
    columns: Sequence[Values]


class GroupEncoder(Protocol):
    """Encoder of pages as row groups."""

    @property
    def size(self) -> GroupSize:
        """Amount of pages that becomes a group."""
        ...

    def values(self, rows: Sequence[Any]) -> Sequence[Values] | None:
        """Return the values of rows by columns; None if they have to be JSON lines."""
        ...

    def append(self, path: Path, segment: int, pages: Sequence[PageValues]) -> GroupRecord:
        """Append pages as a row group to the segment with this path and number.

        Raises:
            OSError: the segment cannot be written.

        """
        ...


def packed_batches(encoder: GroupEncoder, batches: Iterable[Batch]) -> list[Batch]:
    """Return batches with the values of their rows, where these have values.

    Others stay as they are.
    """
    group, made = GroupedPages(encoder), list[Batch]()
    for batch in batches:
        values = group.values(batch, batch.rows)
        rows = range(len(batch.rows))
        made.append(batch if values is None else evolve(batch, rows=rows, values=values))
    return made


def _is_whole(batch: Batch) -> bool:
    """Check whether all rows of a page are stored, after those of the pages before."""
    return not (batch.matched is not None or batch.source.place or batch.source.window is not None)


@define(eq=False)
class GroupedPages:
    """Pages of one commit that become a row group.

    Attributes:
        encoder: encoder of the group; None if all pages are to be JSON lines.
        pages: values of each page by its number.

    """

    encoder: GroupEncoder | None
    pages: dict[int, PageValues] = field(factory=dict[int, PageValues], init=False)
    _left_out: set[int] = field(factory=set[int], init=False)

    @classmethod
    def of(cls, encoder: GroupEncoder | None, batches: Sequence[Batch]) -> GroupedPages:
        """Return the empty group of batches, which needs enough rows."""
        if encoder is None or any(batch.values is not None for batch in batches):
            return cls(encoder)
        rows = sum(len(batch.rows) for batch in batches)
        return cls(encoder if rows >= encoder.size.least else None)

    def encode(self, batch: Batch, rows: Sequence[Any]) -> PageValues | tuple[bytes, bytes]:
        """Return the values of a page, or its JSON lines (`Batch.encode`)."""
        values = self.values(batch, rows)
        return batch.encode(rows) if values is None else PageValues(batch.source.label, len(rows), values)

    def values(self, batch: Batch, rows: Sequence[Any]) -> Sequence[Values] | None:
        """Return the values of a page; None if it is to be JSON lines.

        After a page of JSON lines, later pages of its source are JSON lines too: within a commit, the rows of
        a source in the group precede the others.
        """
        if self.encoder is None or batch.values is not None or not rows:
            return batch.values
        number, values = batch.source.number, None
        if number not in self._left_out and _is_whole(batch):
            values = self.encoder.values(rows)
        if values is None:
            self._left_out.add(number)
        return values
