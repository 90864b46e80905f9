"""Commits of an export: fetched pages as rows and positions after them.

Everything here blocks, and runs in one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import msgspec

from chainapi._paging.checkpoint import Checkpoint
from chainapi._tables.codec import Codec
from chainapi._tables.columns import SOURCE
from chainapi.errors import ColumnValueError, ExportError
from chainapi.export.given import DigestCounter, PageDigests, WalkId
from chainapi.export.position import Source
from chainapi.export.sink import Moves, Sink
from chainapi.export.spec import free_label
from chainapi.export.stream import Count, SourceBatch
from chainapi.export.text import EncodedRows
from chainapi.export.window import Window

__all__ = ["Committer"]

WINDOWS_SIZE = 64 << 20  # bytes of windows that wait for the end of the run
_INT64 = range(-(1 << 63), 1 << 63)
_ROW = b',"row":'  # in a text of a record its quotation marks are escaped


class Committer:
    """Commits of one run.

    Attributes:
        sink: the target.
        rows: valid rows since the last commit.
        size: bytes of pages since the last commit.
        added: valid rows of this run that the target lacked.
        removed: rows of this run that left the target.
        invalid: invalid rows of this run.

    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.rows: int = 0
        self.size: int = 0
        self.added: int = 0
        self.removed: int = 0
        self.invalid: int = 0
        self._named = dict[str, Source]()  # by label, what this run has asked for
        self._labels = dict[str, str]()  # by query, all
        self._codec: Codec | None = None
        self._number: Callable[[Mapping[str, Any]], int | None] | None = None
        self._moved = dict[str, Source]()
        self._moves = Moves()
        self._windows = dict[str, Window]()  # of finished walks

    def begin(self, codec: Codec, number: Callable[[Mapping[str, Any]], int | None] | None) -> None:
        """Take the codec of the rows, and the reader of the number of a stored row."""
        self._codec, self._number = codec, number

    # Positions

    def load(self) -> None:
        """Index the positions of the target."""
        self._labels = {one["query"]: label for label, one in self.sink.state.positions.items()}

    def source(self, label: str, query: str) -> Source:
        """Return the source with this query.

        It gets another label if that is taken.

        Raises:
            ExportError: the position cannot be read.

        """
        label = self._labels.get(query) or free_label(label, query, self._is_taken)
        if label not in self._named:
            known = label in self.sink.state.positions
            self._named[label] = self._loaded(label) if known else Source(label, query)
            self._labels[query] = label
        return self._named[label]

    def _is_taken(self, label: str) -> bool:
        return label in self.sink.state.positions or label in self._named

    def _loaded(self, label: str) -> Source:
        try:
            return Source.load(label, self.sink.state.positions[label])
        except (ValueError, TypeError, LookupError) as error:
            raise ExportError(
                f"the position of {label} is damaged: put a copy of the log back, or choose another target"
            ) from error

    def split(self, source: Source, starts: Sequence[Checkpoint]) -> None:
        """Let a source be fetched in ranges, which begin at these checkpoints."""
        source.split(starts)
        self._moved[source.label] = source

    def open_window(self, source: Source, start: int) -> None:
        """Let the rows of a finished source from a number on be fetched again.

        Raises:
            ExportError: a part with such rows is missing.

        """
        if (missing := self.sink.missing(source.label, start)) is not None:
            raise ExportError(
                f"{missing} is missing, and has rows of {source.label} that lookback= fetches again: put it "
                "back, or leave lookback= out until its rows are older than that"
            )
        self._begin_window(source, start)

    def _begin_window(self, source: Source, start: int) -> None:
        """Begin the window of a source, or begin it again."""
        source.invalid = tuple(self.sink.state.positions[source.label].get("invalid", ()))
        source.open_window(Window(start, Counter(source.invalid)))

    def count(self, walk: WalkId, sent: Sequence[SourceBatch], count: Count) -> DigestCounter | None:
        """Count digests of the rows of a walk.

        They are stored, written, or of batches that wait for this thread.
        """

        def given() -> Iterator[PageDigests]:
            yield from self.sink.given(walk)
            yield from self._moves.given.get(walk, ())
            yield from (batch.given for batch in sent if not batch.written)

        return count(given)

    # Rows

    def write(self, batches: Sequence[SourceBatch]) -> None:
        """Write the rows of pages, and move the positions."""
        pages = list[EncodedRows]()
        for batch in batches:
            source = batch.source
            if batch.place in source.failures:  # the page was under way
                continue
            try:
                page, invalid = self._encode(batch)
            except ColumnValueError as error:
                source.failures[batch.place] = batch.in_page(error)
                continue
            batch.written = True
            if source.window is not None:
                self._take_window(batch, source.window, page)
            elif page.count:
                pages.append(page)
                self.rows += page.count
                self.added += page.count
            self.size += batch.size
            self._take_invalid(source, invalid)
            source.move(batch.place, batch.position)
            self._note(batch)
        self.sink.write(pages)

    def commit(self, *, last: bool = False) -> None:
        """Store what was written; the windows too at the end, or if they are large.

        Raises:
            ExportError: the target cannot be written.

        """
        self._moves.positions = {label: one.dump() for label, one in self._moved.items()}
        moves, self._moves, self._moved, self.rows, self.size = self._moves, Moves(), {}, 0, 0
        if self._windows and (last or sum(one.size for one in self._windows.values()) > WINDOWS_SIZE):
            self._replace(moves)
        elif moves.positions or moves.invalid:
            self.sink.commit(moves)

    def _replace(self, moves: Moves) -> None:
        assert self._number is not None  # noqa: S101 - for the type checker
        windows, self._windows = self._windows, {}
        for label in windows:
            source = self._named[label]
            source.window = None
            moves.invalid += windows[label].invalid
            moves.positions[label] = source.dump()
        added, removed = self.sink.replace(windows, self._number, moves)
        self.added += added
        self.removed += removed

    def _note(self, batch: SourceBatch) -> None:
        """Note a position that moved.

        One with a window counts when that has replaced the rows.
        """
        source, walk = batch.source, (batch.source.label, batch.place)
        if source.window is None:
            if self._is_news(source):
                self._moved[source.label] = source
        elif source.position.done:
            self._windows[source.label] = source.window
        if batch.position.done:
            self._moves.given.pop(walk, None)
        elif batch.given:
            self._moves.given.setdefault(walk, []).append(batch.given)

    def _is_news(self, source: Source) -> bool:
        """Check whether a position is news: not if an update found no new row."""
        stored = self.sink.state.positions.get(source.label)
        if stored is None or not (source.position.done and stored.get("done")):
            return True
        return {**source.dump(), "checkpoint": None} != {**stored, "checkpoint": None}

    def _take_window(self, batch: SourceBatch, window: Window, page: EncodedRows) -> None:
        if batch.begins:
            self._begin_window(batch.source, window.start)
        if page.count and batch.source.window is not None:
            batch.source.window.add(page)

    def _take_invalid(self, source: Source, records: bytes) -> None:
        """Add the records of invalid rows that were not written before."""
        window = source.window
        known = Counter[str]() if window is None else window.known
        lines = self._moves.invalid if window is None else window.invalid
        head = b'{"%b":%b,' % (SOURCE.encode(), msgspec.json.encode(source.label))
        for record in records.split(b"\n")[:-1]:
            row = record.partition(_ROW)[2]
            digest = blake2b(head + row, digest_size=8).hexdigest()
            if known[digest]:
                known[digest] -= 1
            else:
                source.invalid += (digest,)
                lines.append(head + record[1:] + b"\n")
                self.invalid += 1

    def _encode(self, batch: SourceBatch) -> tuple[EncodedRows, bytes]:
        """Return the valid rows of a page, and the records of invalid ones.

        Raises:
            ColumnValueError: a value does not fit its column.

        """
        assert self._codec is not None  # noqa: S101 - for the type checker
        lowest, highest = (
            one if one is not None and one in _INT64 else None for one in (batch.oldest, batch.newest)
        )
        rows, label = batch.rows, batch.source.label
        page = EncodedRows(label, len(rows), lowest=lowest, highest=highest)
        if rows and self.sink.packs and batch.source.window is None:
            with suppress(ColumnValueError):
                page.values = self._codec.values(rows)
            if page.values is not None:
                return page, b""
        page.lines, invalid = self._codec.encode_page(rows, label=label)
        page.count -= invalid.count(b"\n") if invalid else 0
        return page, invalid
