"""Fetching stage of an export: open sources, merge streams, commit pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from attrs import define, field

from chainapi.client.merge import Failure, merge
from chainapi.client.pages import Pages
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.errors import ChainAPIError, ConfigurationError, DecodeError, ExportError
from chainapi.export.formats.values import require
from chainapi.export.progress import ExportProgress
from chainapi.export.records import Batch, PageLog, SourceRecord
from chainapi.export.sources import SourceStream
from chainapi.export.spec import Arguments, ExportSpec, compare_settings
from chainapi.export.worker import Worker, settled
from chainapi.export.writer import Writer
from chainapi.tables.columns import Codec, Column

__all__ = ["Fetcher"]

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

    """

    spec: ExportSpec
    journal: PageLog
    worker: Worker
    progress: ExportProgress
    report: Callable[[], None]
    failures: dict[str, ChainAPIError] = field(factory=dict[str, ChainAPIError], init=False)
    _codec: Codec | None = field(default=None, init=False)

    @property
    def columns(self) -> Sequence[Column]:
        """Columns of the rows; empty without a model, and before the first source."""
        return () if self._codec is None else self._codec.columns

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
        self.progress.failed += 1
        self.report()

    def _committed(self, batches: Sequence[Batch], rows: int) -> None:
        invalid = self.journal.invalid - self.progress.invalid
        self.progress.rows += rows - invalid
        self.progress.invalid += invalid
        for batch in batches:
            self.progress.committed(batch.source.label, done=batch.done)
        self.report()

    async def _streams(self) -> AsyncIterator[tuple[str, SourceStream]]:
        """Yield the stream of each source that has something to fetch, with its label."""
        met: set[str] = set()
        async for arguments in self.spec.arguments():
            if arguments.label in met:
                continue
            met.add(arguments.label)
            stream = await self._open(arguments)
            self.progress.met += 1
            if stream is None:
                self.progress.done += 1
                self.progress.skipped += 1
            else:
                yield arguments.label, stream
        if not met:
            raise ConfigurationError("there is nothing to export: over= has no source")

    async def _open(self, arguments: Arguments) -> SourceStream | None:
        """Return the stream of a source; None if there is nothing to fetch."""
        pages = self.spec.open(arguments)
        if self.progress.ask is None:
            self.progress.ask = pages.seconds_left
        if self._codec is None:
            self._codec = await self.worker.run(self._begin, pages)
        query = pages.checkpoint.query
        source = await self.worker.run(self.journal.source, arguments.label, query)
        if source.query != query:
            raise ExportError(
                f"{self.spec.target} has rows of {source.label} from another service: choose another target"
            )
        if source.done and not (pages.walk.ordered and _has_order(source)):
            return None
        if source.checkpoint is not None and not source.done:
            pages = self.spec.open(arguments, resume=Checkpoint.loads(source.checkpoint))
        # Later runs fetch all new rows: a limit would leave a gap above the rows of the target.
        limit = self.spec.limit if source.exported is None else None
        return SourceStream(source, pages, self._codec.encode_lines, limit)

    def _begin(self, pages: Pages[Any]) -> Codec:
        """Return the codec of the rows; store or compare the settings of the export."""
        codec, format_ = Codec(pages.model), self.spec.format
        if format_.needs_columns:
            require(codec.columns, format_.name)
        settings = self.spec.settings(pages, codec.columns)
        if self.journal.has_pages():
            compare_settings(self.spec.target, self.journal.settings(), settings)
        else:  # an export without pages has nothing to protect: its command may have been a mistake
            self.journal.begin(settings)
        return codec


def _has_order(source: SourceRecord) -> bool:
    """Return whether the order of a finished source held: new rows are greater."""
    return source.checkpoint is None or not Checkpoint.loads(source.checkpoint).unordered
