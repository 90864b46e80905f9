"""Fetching stage of an export: open sources, merge streams, commit pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from hashlib import blake2b
from typing import Any

from attrs import define, evolve, field, frozen

from chainapi.client.background import ahead, finish
from chainapi.client.merge import Failure, merge
from chainapi.client.pages import Pages
from chainapi.core.paging.digests import DigestCounter
from chainapi.errors import (
    AuthenticationError,
    ChainAPIError,
    ConfigurationError,
    DecodeError,
    SessionClosedError,
)
from chainapi.export.formats.values import require
from chainapi.export.lookback import number_of_columns
from chainapi.export.matching import Walk
from chainapi.export.page_log import PageLog
from chainapi.export.partition import check_partition
from chainapi.export.progress import ExportProgress
from chainapi.export.ranges import RangesOfSources
from chainapi.export.settings import COLUMNS, compare_settings
from chainapi.export.source_records import Batch, SourceRecord
from chainapi.export.sources import SourceStream, shows_new_rows
from chainapi.export.spec import Arguments, ExportSpec, free_label
from chainapi.export.worker import Worker
from chainapi.export.writer import Writer
from chainapi.tables.codec import Codec
from chainapi.tables.columns import Column, columns_of

__all__ = ["Fetcher"]

OPENED_AT_ONCE = 16  # sources of a list whose records are read in one step of the thread
SPLIT_AT_ONCE = 8  # sources whose newest rows are asked for, before their ranges are walked

_NO_SOURCE = "there is nothing to export: over= has no source"
_ADVICE = 'started again with on_invalid="raw", the export puts such rows into a file of their own'


@frozen(eq=False)
class _Opened:
    """Open source: its record, the stream of its whole list, the codec of its rows."""

    source: SourceRecord
    arguments: Arguments
    pages: Pages[Any]
    codec: Codec


@define(eq=False)
class Fetcher:
    """Fetches what the journal lacks.

    Attributes:
        spec: specification of the export.
        journal: journal of the export.
        worker: thread that the journal belongs to.
        progress: counts what is done.
        report: called after each change of `progress`.
        open_window: moves the position of a finished source back, if rows are fetched again.
        begin_groups: called with the codec of the rows, before the first page.
        failures: error of each source that failed, by label.

    """

    spec: ExportSpec
    journal: PageLog
    worker: Worker
    progress: ExportProgress
    report: Callable[[], None]
    open_window: Callable[[SourceRecord, tuple[str, ...]], None] | None = field(default=None, kw_only=True)
    begin_groups: Callable[[Codec], None] | None = field(default=None, kw_only=True)
    failures: dict[str, ChainAPIError] = field(factory=dict[str, ChainAPIError], init=False)
    _open_sources: dict[str, _Opened] = field(factory=dict[str, _Opened], init=False)
    _labels: set[str] = field(factory=set[str], init=False)  # of all sources that were not refused
    _refused: dict[tuple[object, ...], tuple[str, ConfigurationError]] = field(
        factory=dict[tuple[object, ...], tuple[str, ConfigurationError]], init=False
    )  # labels and errors by the texts of the arguments
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
            await finish(copying, stop.set)
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
        if label not in self.failures:  # the other ranges of the source may fail too
            self.failures[label] = error
            self.progress.source_failed(label)
        self._open_sources.pop(label, None)
        self.report()

    def _committed(self, batches: Sequence[Batch], rows: int) -> None:
        invalid = self.journal.invalid - self.progress.invalid
        self.progress.rows += rows - invalid
        self.progress.invalid += invalid
        last = {batch.source.label: batch for batch in batches}
        for batch in batches:
            label, ended = batch.source.label, None
            if batch.source.failure is not None:
                self._failed(label, batch.source.failure)
                continue
            if batch is last[label] and batch.source.whole.done:
                ended = self._open_sources.pop(label, None)
            self.progress.walked(label, batch.source.place, 1.0 if batch.source.done else batch.share)
            self.progress.committed(label, done=ended is not None)
            if ended is not None and not self._shows_new_rows(ended.source, ended.pages):
                self.progress.closed += 1
        self.report()

    async def _streams(self) -> AsyncIterator[tuple[str, SourceStream]]:
        """Yield the streams of each source that has something to fetch, with its label.

        A source has one stream, or one for each of its ranges.
        """
        opened = ahead(self._openings(), 1 if self.spec.ranges is None else SPLIT_AT_ONCE)
        async with aclosing(opened):
            async for one in opened:
                if one is not None:
                    label = one.source.label
                    self._open_sources[label] = one
                    records = [*one.source.ranges.values()] or [one.source]
                    self.progress.opened(label, len(records))
                    for record in records:
                        yield label, self._stream(one, record)

    async def _openings(self) -> AsyncGenerator[Coroutine[Any, Any, _Opened | None], None]:
        """Yield the opening of each source, each source once."""
        fingerprints: set[str] = set()
        async for group in self._groups():
            found = [*self._new_streams(group, fingerprints)]
            if found:
                codec = await self._begun(found[0][1])
                records = await self.worker.run(
                    self._records, [(one.label, query) for one, _, query in found]
                )
                self._labels.update(source.label for source in records)
                for (arguments, pages, _), source in zip(found, records, strict=True):
                    yield self._open(arguments, pages, codec, source)
        if not fingerprints:
            raise next((error for _, error in self._refused.values()), ConfigurationError(_NO_SOURCE))
        self._name_refused()

    async def _groups(self) -> AsyncIterator[Sequence[Arguments]]:
        """Yield the arguments of sources: groups of a list, else one by one.

        Those of an iterator are read when their turn comes.
        """
        size, group = OPENED_AT_ONCE if isinstance(self.spec.over, Collection) else 1, list[Arguments]()
        async for arguments in self.spec.arguments():
            group.append(arguments)
            if len(group) == size:
                yield group
                group = []
        if group:
            yield group

    def _new_streams(
        self, group: Sequence[Arguments], fingerprints: set[str]
    ) -> Iterator[tuple[Arguments, Pages[Any], str]]:
        """Yield the stream of each source that is not known yet, and its fingerprint."""
        for arguments in group:
            try:
                pages = self.spec.open_first(arguments)
            except ConfigurationError as error:
                self._refuse(arguments, error)
                continue
            query = pages.fingerprint
            if query not in fingerprints:
                fingerprints.add(query)
                self.progress.seen += 1
                yield arguments, pages, query

    def _records(self, sources: Sequence[tuple[str, str]]) -> list[SourceRecord]:
        """Return the records of sources by their labels and queries."""
        return [self.journal.source(label, query) for label, query in sources]

    def _refuse(self, arguments: Arguments, error: ConfigurationError) -> None:
        """Let a source fail whose arguments the method refuses."""
        if arguments.texts not in self._refused:
            self._refused[arguments.texts] = arguments.label, error
            self.progress.seen += 1
            self.progress.failed += 1
            self.report()

    def _name_refused(self) -> None:
        """Add the refused sources to the failures, by labels that no other source has.

        The labels of the others have to be known: they are in the rows, and stay.
        """
        for texts, (label, error) in self._refused.items():
            fingerprint = blake2b(ascii(texts).encode(), digest_size=16).hexdigest()
            label = free_label(label, fingerprint, lambda one: one in self._labels or one in self.failures)
            self.failures[label] = error

    async def _begun(self, pages: Pages[Any]) -> Codec:
        """Return the codec of the rows; the first source begins the export."""
        if self._codec is None:
            self.progress.ask, self.progress.incremental = pages.seconds_left, bool(pages.number_names)
            self._codec = await self.worker.run(self._begin, pages)
        return self._codec

    async def _open(
        self, arguments: Arguments, pages: Pages[Any], codec: Codec, source: SourceRecord
    ) -> _Opened | None:
        """Return a source with its ranges.

        None is returned if there is nothing to fetch, or the source cannot be split.
        """
        if source.done and not self._shows_new_rows(source, pages):
            self.progress.done += 1
            self.progress.skipped += 1
            self.progress.closed += 1
            return None
        if source.done and self.open_window is not None:
            number_of_columns(pages.number_names, codec.columns)
            await self.worker.run(self.open_window, source, pages.number_names)
        ranges, begun = self.spec.ranges, source.ranges or source.checkpoint is not None
        if ranges is None or begun:  # a source that has begun continues as it did
            return _Opened(source, arguments, pages, codec)
        try:
            await self._split(source, pages, ranges)
        except (AuthenticationError, SessionClosedError):
            raise
        except ChainAPIError as error:
            self._failed(source.label, error)
            return None
        return _Opened(source, arguments, pages, codec)

    async def _split(self, source: SourceRecord, pages: Pages[Any], ranges: RangesOfSources) -> None:
        """Split a source that has not begun; an empty list stays whole."""
        intervals = await ranges.of(pages).intervals()
        if len(intervals) > 1:
            starts = [evolve(pages.checkpoint, range=one) for one in intervals]
            await self.worker.run(self.journal.split, source, starts)

    def _shows_new_rows(self, source: SourceRecord, pages: Pages[Any]) -> bool:
        return shows_new_rows(source, pages, limited=self.spec.limit is not None)

    def _stream(self, opened: _Opened, source: SourceRecord) -> SourceStream:
        """Return the stream of a source, or of one of its ranges."""
        pages = self._reopened(source, opened.arguments, opened.pages)
        # Later runs fetch all new rows: a limit would leave a gap above the rows of the target.
        limit = self.spec.limit if source.exported is None else None
        pages.use_structs(opened.codec.structs)
        encode = partial(opened.codec.encode_page, label=source.label)
        stream = SourceStream(source, pages, encode, limit)
        if pages.checkpoint.token is not None:
            walk, restarts = (source.number, source.place), pages.checkpoint.restarts
            stream.continue_after(partial(self._given_since, walk, restarts))
        return stream

    def _given_since(
        self, walk: Walk, restarts: int, digests: Collection[bytes], whole: bool
    ) -> DigestCounter | None:
        """See `PageLog.given_since`.

        The journal belongs to the thread of the worker; the caller is in another one.
        """
        return self.worker.executor.submit(self.journal.given_since, walk, restarts, digests, whole).result()

    def _reopened(self, source: SourceRecord, arguments: Arguments, pages: Pages[Any]) -> Pages[Any]:
        """Return the stream of what the target lacks of a source, or of a range."""
        open_ = partial(self.spec.open, arguments)
        since = None if pages.cursor is None else pages.cursor.since
        if since is not None and source.exported is not None and source.exported > 0:
            # Rows that share the number may be missing, and not every service includes the bound itself. So
            # for the rows from 0 on there is no bound to send.
            open_ = partial(self.spec.open_since, arguments, since, source.exported - 1)
            pages = open_()
        if source.checkpoint is None or source.done:
            return pages
        begun, query = source.checkpoint, pages.checkpoint.query
        # The page token of another query belongs to another page size.
        return open_(resume=begun if begun.query == query else begun.at_first_page(query))

    def _begin(self, pages: Pages[Any]) -> Codec:
        """Return the codec of the rows; store or compare the settings of the export."""
        spec, format_ = self.spec, self.spec.format
        stored = self.journal.settings() if self.journal.has_pages() else None
        if stored is not None:  # another route has other columns, which is not what is wrong
            compare_settings(spec.target, stored, {**spec.settings(pages, ()), COLUMNS: stored[COLUMNS]})
        raw = spec.query.get("on_invalid") == "raw"
        codec = Codec(pages.model, spec.amounts, "raw" if raw else "raise", spec.fields)
        _ = codec.structs  # making classes would block the event loop
        if format_.needs_columns:
            require(codec.columns, format_.name)
        if spec.lookback is not None:
            number_of_columns(pages.number_names, codec.columns)  # or it is refused before the first request
        if spec.partition:
            all_columns = columns_of(pages.model, spec.amounts)
            check_partition(spec.partition, format_.name, codec.columns, all_columns)
        settings = spec.settings(pages, codec.columns)
        if stored is not None:
            compare_settings(spec.target, stored, settings)
            if stored != settings:
                self.journal.extend(settings)
        else:  # an export without pages has nothing to protect: its command may have been a mistake
            self.journal.begin(settings)
        if self.begin_groups is not None:
            self.begin_groups(codec)
        return codec
