"""Records of the journal of an export: sources, the pages that add to them, final files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import define, frozen

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.export.integrity import row_checksum

__all__ = ["Batch", "Part", "SourceState", "bring_up_to_date", "fields", "records", "source_of"]


@define
class SourceState:
    """What is known of a source.

    Attributes:
        number: counts the sources from 1, in the order in which they were met.
        label: names it, such as ``43114``.
        query: fingerprint of its query.
        checkpoint: where its walk stands, as text; None before the first page.
        taken: how many rows of this walk count towards its limit.
        newest: the greatest number among its rows, where the route has a descending number.
        floor: the same at the end of the walk before this one: its rows are in the target already.
        edge: marks of the rows in the target that have the number `floor`; None where numbers are unique.
        done: whether its walk came to its end.

    """

    number: int
    label: str
    query: str
    checkpoint: str | None = None
    taken: int = 0
    newest: int | None = None
    floor: int | None = None
    edge: tuple[str, ...] | None = None
    done: bool = False


@frozen
class Batch:
    """What one page adds to a source.

    Attributes:
        source: the source; committing the batch brings it up to date.
        rows: the rows that are wanted.
        digests: the digest of each.
        known: the digests of rows that the stream knows to be kept already.
        newest: the greatest number among the rows; None for a list without a descending number.
        counted: whether the state is to find out which rows of a later pass it has.
        encode: returns the bytes that are kept of a row.
        checkpoint: where the walk stands behind them.
        taken: how many rows of the walk count towards its limit.
        done: whether no more are wanted.

    """

    source: SourceState
    rows: Sequence[Any]
    digests: Sequence[bytes]
    encode: Callable[[Any], bytes]
    checkpoint: Checkpoint
    taken: int
    done: bool
    known: Sequence[bytes] = ()
    newest: int | None = None
    counted: bool = False


@frozen
class Part:
    """A final file: its number from 1, its name, and its state when last written.

    `invalid` is how many bytes the file of the rows that could not be made has of it and of those before it.
    """

    number: int
    name: str
    rows: int
    size: int
    digest: str
    invalid: int
    whole: bool

    @property
    def fields(self) -> tuple[Any, ...]:
        """Its record."""
        return self.number, self.name, self.rows, self.size, self.digest, self.invalid, int(self.whole)


def bring_up_to_date(source: SourceState, batch: Batch) -> None:
    """Update a source with the page that was committed."""
    checkpoint = batch.checkpoint
    numbers = [number for number in (source.newest, batch.newest) if number is not None]
    source.newest = None if checkpoint.unordered else max(numbers, default=None)
    source.checkpoint, source.taken, source.done = checkpoint.dumps(), batch.taken, batch.done
    if batch.done:
        source.floor = source.newest
        source.edge = _edge(source, checkpoint)


def _edge(source: SourceState, checkpoint: Checkpoint) -> tuple[str, ...] | None:
    """Return the marks of the rows at the floor; those known before, where the list has none of them now."""
    if checkpoint.watermark is None:
        return source.edge
    if not checkpoint.watermark.ties:
        return None
    return next((marks for number, marks in checkpoint.watermark.ties if number == source.floor), source.edge)


def records(batch: Batch, place: int, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows, each with its digest, as the table has them: behind those up to `place`."""
    number, walk_pass = batch.source.number, batch.checkpoint.restarts
    for at, (digest, row) in enumerate(rows, place + 1):
        yield number, at, digest, walk_pass, row_checksum(number, at, digest, row) + walk_pass, row


def fields(source: SourceState) -> tuple[Any, ...]:
    """Return a source as its table has it."""
    numbers = _text(source.newest), _text(source.floor)
    edge, done = json.dumps(source.edge), int(source.done)
    named = source.number, source.label, source.query, source.checkpoint
    return (*named, source.taken, *numbers, edge, done)


def source_of(
    number: int,
    label: str,
    query: str,
    checkpoint: str | None,
    taken: int,
    newest: str | None,
    floor: str | None,
    edge: str,
    done: int,
) -> SourceState:
    """Return a source from its record.

    Raises:
        ValueError, TypeError: it is none.

    """
    if checkpoint is not None:
        Checkpoint.loads(checkpoint)
    numbers, marks = (_number(newest), _number(floor)), json.loads(edge)
    known = None if marks is None else tuple(marks)
    return SourceState(number, label, query, checkpoint, taken, *numbers, known, bool(done))


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
