"""Fetching stage of an export: open sources, merge streams, commit pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from attrs import define, field

from chainapi.client.merge import Failure, merge
from chainapi.client.pages import Pages
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.errors import ChainAPIError, ConfigurationError, DecodeError
from chainapi.export.corrections import Windows
from chainapi.export.formats.values import require
from chainapi.export.lookback import number_of_columns
from chainapi.export.progress import ExportProgress
from chainapi.export.records import Batch, PageLog, SourceRecord
from chainapi.export.sources import SourceStream, shows_new_rows
from chainapi.export.spec import COLUMNS, Arguments, ExportSpec, compare_settings
from chainapi.export.worker import Worker, settled
from chainapi.export.writer import Writer
from chainapi.tables.codec import Codec
from chainapi.tables.columns import Column

__all__ = ["Fetcher"]

_NO_SOURCE = "there is nothing to export: over= has no source"
_ADVICE = 'started again with on_invalid="raw", the export puts such rows into a file of their own'


@define(eq=False)
class Fetcher:
    """Fetches what the journal lacks.

    Attributes:
        spec: specification of the export.
        journal: journal of the export.
        worker: thread that the journal belongs to.
        progress: counts what is done.
        report: called after each change of `progress`.
        failures: error of each source that failed, by label.
        open_window: moves the position of a finished source back, if rows are fetched again.

    """

    spec: ExportSpec
    journal: PageLog
    worker: Worker
    progress: ExportProgress
    report: Callable[[], None]
    failures: dict[str, ChainAPIError] = field(factory=dict[str, ChainAPIError], init=False)
    open_window: Callable[[SourceRecord], None] | None = field(default=None, init=False)
    _open_streams: dict[str, SourceStream] = field(factory=dict[str, SourceStream], init=False)
    _codec: Codec | None = field(default=None, init=False)
    _number_names: tuple[str, ...] = field(default=(), init=False)

    @property
    def columns(self) -> Sequence[Column]:
        """Columns of the rows; empty without a model, and before the first source."""
        return () if self._codec is None else self._codec.columns

    def windows(self, starts: Mapping[str, int]) -> Windows:
        """Return the windows of sources with these least numbers, by label."""
        return Windows(starts, number_of_columns(self._number_names, self.columns), self.columns)

    async def fetch(self) -> None:
        """Fetch all sources; commit each fetched page, also after an error or a cancel."""
        stop = asyncio.Event()
        writer = Writer(self.journal, self.worker.executor, self._committed, stop.set)
        # A task of its own: a cancellation must not lose the pages in hand.
        copying = asyncio.create_task(self._copy(writer, stop))
        try:
            await settled(copying, stop.set)
        except asyncio.CancelledError:
            if not copying.cancelled() and (error := copying.exception()) is not None:
                raise error from None
            raise

    async def _copy(self, writer: Writer, stop: asyncio.Event) -> None:
        merged = merge(self._streams(), concurrency=self.spec.concurrency, on_error="yield", stop=stop)
        try:
            async with aclosing(merged):
                async for label, outcome in merged:
                    if isinstance(outcome, Failure):
                        self._failed(label, outcome.error)
                    else:
                        writer.put(outcome)
                        await writer.wait_for_room()
        finally:
            await writer.flush()

    def _failed(self, label: str, error: ChainAPIError) -> None:
        if isinstance(error, DecodeError) and error.row is not None:
            error = error.changed(advice=_ADVICE)
        self.failures[label] = error
        self._open_streams.pop(label, None)
        self.progress.failed += 1
        self.report()

    def _committed(self, batches: Sequence[Batch], rows: int) -> None:
        invalid = self.journal.invalid - self.progress.invalid
        self.progress.rows += rows - invalid
        self.progress.invalid += invalid
        last = {batch.source.label: batch for batch in batches}
        for batch in batches:
            label, ended = batch.source.label, None
            if batch is last[label] and batch.source.done:
                ended = self._open_streams.pop(label, None)
            self.progress.committed(label, done=ended is not None)
            if ended is not None and not ended.shows_new_rows(limited=self.spec.limit is not None):
                self.progress.closed += 1
        self.report()

    async def _streams(self) -> AsyncIterator[tuple[str, SourceStream]]:
        """Yield the stream of each source that has something to fetch, with its label."""
        fingerprints: set[str] = set()
        async for arguments in self.spec.arguments():
            try:
                pages = self.spec.open(arguments)
            except ConfigurationError as error:
                self._refused(arguments, error)
                continue
            if pages.fingerprint in fingerprints:
                continue
            fingerprints.add(pages.fingerprint)
            self.progress.seen += 1
            source, stream = await self._open(arguments, pages)
            if stream is None:
                self.progress.done += 1
                self.progress.skipped += 1
                self.progress.closed += 1
            else:
                self._open_streams[source.label] = stream
                yield source.label, stream
        if not fingerprints:
            raise next(iter(self.failures.values()), ConfigurationError(_NO_SOURCE))

    def _refused(self, arguments: Arguments, error: ConfigurationError) -> None:
        """Let a source fail whose arguments the method refuses."""
        if arguments.label not in self.failures:
            self.progress.seen += 1
            self._failed(arguments.label, error)

    async def _open(
        self, arguments: Arguments, pages: Pages[Any]
    ) -> tuple[SourceRecord, SourceStream | None]:
        """Return a source with its stream, or with None if there is nothing to fetch."""
        if self.progress.ask is None:
            self.progress.ask = pages.seconds_left
        if self._codec is None:
            self._codec = await self.worker.run(self._begin, pages)
        source = await self.worker.run(self.journal.source, arguments.label, pages.fingerprint)
        if source.done and not shows_new_rows(source, pages, limited=self.spec.limit is not None):
            return source, None
        if source.done and self.open_window is not None:
            await self.worker.run(self.open_window, source)
        pages = self._reopened(source, arguments, pages)
        # Later runs fetch all new rows: a limit would leave a gap above the rows of the target.
        limit = self.spec.limit if source.exported is None else None
        return source, SourceStream(source, pages, self._codec.encode_lines, limit)

    def _reopened(self, source: SourceRecord, arguments: Arguments, pages: Pages[Any]) -> Pages[Any]:
        """Return the stream of what the target lacks of a source."""
        open_ = partial(self.spec.open, arguments)
        since = None if pages.cursor is None else pages.cursor.since
        if since is not None and source.exported is not None:
            # Rows that share the number may be missing, and not every service includes the bound itself.
            least = max(0, source.exported - 1)
            open_ = partial(self.spec.open_since, arguments, since, least)
            pages = open_()
        if source.checkpoint is None or source.done:
            return pages
        begun, query = Checkpoint.loads(source.checkpoint), pages.checkpoint.query
        # The page token of another query belongs to another page size.
        return open_(resume=begun if begun.query == query else begun.at_first_page(query))

    def _begin(self, pages: Pages[Any]) -> Codec:
        """Return the codec of the rows; store or compare the settings of the export."""
        spec, format_ = self.spec, self.spec.format
        raw = spec.query.get("on_invalid") == "raw"
        codec = Codec(pages.model, spec.amounts, "raw" if raw else "raise", spec.fields)
        if format_.needs_columns:
            require(codec.columns, format_.name)
        self._number_names = pages.number_names
        if spec.lookback is not None:
            number_of_columns(pages.number_names, codec.columns)  # or it is refused before the first request
        settings = spec.settings(pages, codec.columns)
        if self.journal.has_pages():
            stored = self.journal.settings()
            compare_settings(spec.target, stored, settings)
            if stored[COLUMNS] != settings[COLUMNS]:
                self.journal.extend(settings)
        else:  # an export without pages has nothing to protect: its command may have been a mistake
            self.journal.begin(settings)
        return codec
