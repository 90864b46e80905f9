"""Run of an export: open the target, fetch, commit, close.

Start reading at `Run.run`. `Fetcher` opens the sources and merges their pages (`stream`: which rows of a page
are new); `Writer` hands them to the thread that commits them (`committer`, `log`).
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from hashlib import blake2b
from typing import Any, ParamSpec, TypeVar

from attrs import define, evolve, field, frozen
from msgspec.structs import replace

from chainapi._background import ahead, finish, in_background
from chainapi._paging.merge import Failure, merge
from chainapi._paging.pages import Pages
from chainapi._tables.codec import Codec
from chainapi._tables.columns import described
from chainapi.errors import (
    AuthenticationError,
    ChainAPIError,
    ConfigurationError,
    DecodeError,
    SessionClosedError,
    TargetInUseError,
)
from chainapi.export.committer import Committer
from chainapi.export.disk import explained
from chainapi.export.given import DigestCounter
from chainapi.export.layout import COLUMNS
from chainapi.export.position import Source, SourcePosition
from chainapi.export.progress import ExportProgress, Stage
from chainapi.export.result import ExportResult
from chainapi.export.sink import Sink
from chainapi.export.spec import (
    Arguments,
    ExportSpec,
    compare_settings,
    free_label,
    incomplete,
)
from chainapi.export.stream import Count, SourceBatch, SourceStream, shows_new_rows
from chainapi.export.target import Target
from chainapi.export.window import number_of_columns

__all__ = ["Run", "Worker"]

P = ParamSpec("P")
T = TypeVar("T")

TRY_AGAIN = 0.5  # seconds between two tries to lock a target
REPORT_EVERY = 0.5  # seconds between two reports while a target is completed
MAX_PENDING = 64  # pages that wait for the thread before the fetching side waits too
WRITE_AT, WRITE_SIZE, WRITE_AFTER = 32, 1 << 20, 0.02  # pages, bytes, seconds: what is written at once
OPENED_AT_ONCE = 16  # sources of a list whose positions are read in one step of the thread
SPLIT_AT_ONCE = 8  # sources whose newest rows are asked for, before their ranges are walked

_NO_SOURCE = "there is nothing to export: over= has no source"
_ADVICE = 'started again with on_invalid="raw", the export keeps such rows apart from the others'


class Worker:
    """One thread that runs one step after the other.

    Args:
        address: path or URL of the target, for errors.

    """

    def __init__(self, address: str) -> None:
        self.executor: ThreadPoolExecutor = ThreadPoolExecutor(1, "chainapi-export")
        self._address = address

    async def run(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step in the thread. A cancelled caller waits until the step has ended.

        Raises:
            ExportError: the operating system refused something.

        """
        step = explained(self._address)(partial(step, *args, **kwargs))
        return await finish(asyncio.get_running_loop().run_in_executor(self.executor, step))


@define(eq=False)
class Run:
    """One run of an export.

    Attributes:
        spec: specification of the export.
        target: its file or folder.
        sink: writer of the target.
        wait: seconds to wait for the end of another export.
        on_progress: called after pages were written, and at each stage.
        progress: counts what is done.

    """

    spec: ExportSpec
    target: Target
    sink: Sink
    wait: float
    on_progress: Callable[[ExportProgress], None] | None
    progress: ExportProgress = field(init=False)
    _worker: Worker = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._worker = Worker(str(self.target.address))
        clock = asyncio.get_running_loop().time
        self.progress = ExportProgress(self.spec.total, limit=self.spec.limit, clock=clock)

    async def run(self) -> ExportResult:
        """Fetch what the target lacks.

        Raises:
            IncompleteExportError: some sources failed; the others are in the target.
            TargetInUseError: another export writes to the target, or another program has it open.
            ExportError: the target cannot be read or written, or holds another export.
            ChainAPIError: an error that concerns all sources, such as a rejected key.

        """
        try:
            try:
                await self._open()
                return await self._fetch()
            finally:
                await self._worker.run(self.sink.close)
        finally:
            self._worker.executor.shutdown()

    async def _open(self) -> None:
        """Open the target; wait for the end of another export, if the caller wants to."""
        clock = asyncio.get_running_loop().time
        until = clock() + self.wait
        while True:
            try:
                await self._worker.run(self.sink.open)
            except TargetInUseError:
                if clock() >= until:
                    raise
                await asyncio.sleep(min(TRY_AGAIN, until - clock()))
            else:
                return

    async def _fetch(self) -> ExportResult:
        committer = Committer(self.sink)
        layout = self.spec.layout.completed(self.sink.state.settings, self.target.format)
        self.target.check(layout)
        spec = evolve(self.spec, layout=layout)
        await spec.check()
        committer.load()
        fetcher = Fetcher(spec, self.target, committer, self._worker, self.progress, self._report)
        await fetcher.fetch()
        self.progress.step = self.sink.ends_with
        self._report("writing")
        async with in_background(self._report_again()):
            await self._worker.run(self.sink.finish)
        self.progress.step = None
        self._report("done")
        if fetcher.failures:
            raise incomplete(fetcher.failures, self.progress.seen, str(self.target.address))
        return self._result(committer)

    def _result(self, committer: Committer) -> ExportResult:
        progress = self.progress
        names = [name for name in dict.fromkeys(self.sink.added) if self._in_force(name)]
        invalid = [name for name in names if self._is_invalid(name)]
        return ExportResult(
            self.target.address,
            progress.rows,
            progress.seen,
            tuple(self.target.file(name) for name in names if name not in invalid),
            progress.invalid,
            tuple(self.target.file(name) for name in invalid),
            progress.skipped,
            progress.closed,
            progress.removed,
        )

    def _in_force(self, name: str) -> bool:
        files = self.sink.state.files
        return not files or name in files

    def _is_invalid(self, name: str) -> bool:
        found = self.sink.state.files.get(name)
        return found is not None and found.invalid

    async def _report_again(self) -> None:
        """Report the progress of the end of the run until it is cancelled."""
        while True:
            await asyncio.sleep(REPORT_EVERY)
            self._report("writing")

    def _report(self, stage: Stage = "fetching") -> None:
        self.progress.stage = stage
        if self.on_progress is not None:
            self.on_progress(self.progress)


@frozen(eq=False)
class _Opened:
    """Open source: its position, the stream of its whole list, the codec of its rows."""

    source: Source
    arguments: Arguments
    pages: Pages[Any]
    codec: Codec


@define(eq=False)
class Fetcher:
    """Fetches what the target lacks.

    Attributes:
        spec: specification of the export.
        target: its file or folder.
        committer: stores the rows.
        worker: thread of the committer.
        progress: counts what is done.
        report: called after each change of `progress`.
        failures: error of each source that failed, by label.

    """

    spec: ExportSpec
    target: Target
    committer: Committer
    worker: Worker
    progress: ExportProgress
    report: Callable[[], None]
    failures: dict[str, ChainAPIError] = field(factory=dict[str, ChainAPIError], init=False)
    _open_sources: dict[str, _Opened] = field(factory=dict[str, _Opened], init=False)
    _labels: set[str] = field(factory=set[str], init=False)  # of all sources that were not refused
    _refused: dict[tuple[object, ...], tuple[str, ConfigurationError]] = field(
        factory=dict[tuple[object, ...], tuple[str, ConfigurationError]], init=False
    )  # labels and errors by the texts of the arguments
    _codec: Codec | None = field(default=None, init=False)

    async def fetch(self) -> None:
        """Fetch all sources; commit each fetched page, also after an error or a cancel."""
        stop = asyncio.Event()
        writer = Writer(self.committer, self.worker, self._written, stop.set)
        # A task of its own: a cancellation must not lose the pages in hand.
        copying = asyncio.create_task(self._copy(writer, stop))
        try:
            await finish(copying, stop.set)
        except asyncio.CancelledError:
            if not copying.cancelled() and (error := copying.exception()) is not None:
                raise error from None
            raise

    async def _copy(self, writer: Writer, stop: asyncio.Event) -> None:
        writing = asyncio.create_task(writer.run())
        merged = merge(self._streams(), concurrency=self.spec.concurrency, on_error="yield", stop=stop)
        try:
            async with aclosing(merged):
                async for label, outcome in merged:
                    if isinstance(outcome, Failure):
                        self._failed(label, outcome.error)
                    else:
                        await writer.put(outcome)
        finally:
            writer.end()
            await finish(writing)

    def _failed(self, label: str, error: ChainAPIError) -> None:
        if isinstance(error, DecodeError) and error.row is not None:
            error = error.changed(advice=_ADVICE)
        if label not in self.failures:  # the other ranges of the source may fail too
            self.failures[label] = error
            self.progress.source_failed(label)
        self._open_sources.pop(label, None)
        self.report()

    def _written(self, batches: Sequence[SourceBatch]) -> None:
        committer, progress = self.committer, self.progress
        counts = committer.added, committer.invalid, committer.removed
        if not batches and counts == (progress.rows, progress.invalid, progress.removed):
            return
        progress.rows, progress.invalid, progress.removed = counts
        last = {batch.source.label: batch for batch in batches}
        for batch in batches:
            source, place, label, ended = batch.source, batch.place, batch.source.label, None
            if place in source.failures:
                self._failed(label, source.failures[place])
                continue
            if batch is last[label] and source.position.done:
                ended = self._open_sources.pop(label, None)
            progress.walked(label, place, 1.0 if batch.position.done else batch.share)
            progress.committed(label, done=ended is not None)
            if ended is not None and not self._shows_new_rows(source, ended.pages):
                progress.closed += 1
        self.report()

    # Sources

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
                    places = [*one.source.ranges] or [0]
                    self.progress.opened(label, len(places))
                    for place in places:
                        yield label, self._stream(one, place)

    async def _openings(self) -> AsyncGenerator[Coroutine[Any, Any, _Opened | None], None]:
        """Yield the opening of each source, each source once."""
        fingerprints: set[str] = set()
        async for group in self._groups():
            found = [*self._new_streams(group, fingerprints)]
            if found:
                codec = await self._begun(found[0][1])
                positions = await self.worker.run(
                    self._positions, [(one.label, query) for one, _, query in found]
                )
                self._labels.update(source.label for source in positions)
                for (arguments, pages, _), source in zip(found, positions, strict=True):
                    yield self._open(arguments, pages, codec, source)
        if not fingerprints:
            raise next((error for _, error in self._refused.values()), ConfigurationError(_NO_SOURCE))
        self._name_refused()

    async def _groups(self) -> AsyncIterator[Sequence[Arguments]]:
        """Yield the arguments of sources: groups of a list, else one by one.

        The sources of an iterator are read when their turn comes.
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

    def _positions(self, sources: Sequence[tuple[str, str]]) -> list[Source]:
        """Return sources by their labels and queries."""
        return [self.committer.source(label, query) for label, query in sources]

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

    def _begin(self, pages: Pages[Any]) -> Codec:
        """Return the codec of the rows.

        Compare the settings of the export with the settings of the target.
        """
        spec, stored = self.spec, self.committer.sink.state.settings
        target, layout, known = str(self.target.address), spec.layout, stored.get(COLUMNS, {})
        settings = spec.settings(pages, known)
        compare_settings(target, stored, settings)  # another route has other columns too, which is no news
        codec = layout.codec(pages.model, spec.query.get("on_invalid", "raise"))
        number = None
        if spec.lookback is not None:  # or it is refused before the first request
            number = number_of_columns(pages.number_names, codec.columns)
        files = layout.file_format(codec.columns, known)
        settings[COLUMNS] = described(files.columns)
        compare_settings(target, stored, settings)
        self.committer.sink.begin(files, settings, layout.partitioner(codec.columns))
        self.committer.begin(codec, number)
        return codec

    async def _open(
        self, arguments: Arguments, pages: Pages[Any], codec: Codec, source: Source
    ) -> _Opened | None:
        """Return a source with its ranges.

        The result is None if there is nothing to fetch, or the source cannot be split.
        """
        at = source.position
        if at.done and not self._shows_new_rows(source, pages):
            self.progress.done += 1
            self.progress.skipped += 1
            self.progress.closed += 1
            return None
        ranges, begun = self.spec.ranges, source.ranges or at.walk is not None
        if at.done and self.spec.lookback is not None:
            start = at.window_start(self.spec.lookback.size, limited=self.spec.limit is not None)
            if start is not None:
                await self.worker.run(self.committer.open_window, source, start)
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

    async def _split(self, source: Source, pages: Pages[Any], ranges: int | str) -> None:
        """Split a source that has not begun; an empty list stays whole."""
        intervals = await self.spec.split(pages, ranges).intervals()
        if len(intervals) > 1:
            starts = [replace(pages.checkpoint, range=one) for one in intervals]
            await self.worker.run(self.committer.split, source, starts)

    def _shows_new_rows(self, source: Source, pages: Pages[Any]) -> bool:
        return shows_new_rows(source.position, pages, limited=self.spec.limit is not None)

    def _stream(self, opened: _Opened, place: int) -> SourceStream:
        """Return the stream of a source, or of one of its ranges."""
        source = opened.source
        at = source.at(place)
        pages = self._reopened(at, opened.arguments, opened.pages)
        # Later runs fetch all new rows: a limit would leave a gap above the rows of the target.
        limit = self.spec.limit if at.exported is None else None

        def read_given(sent: Sequence[SourceBatch], count: Count) -> Future[DigestCounter | None]:
            """Count in the thread of the worker, to which the committer belongs."""
            return self.worker.executor.submit(self.committer.count, (source.label, place), sent, count)

        return SourceStream(source, place, pages, limit, read_given)

    def _reopened(self, at: SourcePosition, arguments: Arguments, pages: Pages[Any]) -> Pages[Any]:
        """Return the stream of what the target lacks of a source, or of a range."""
        open_ = partial(self.spec.open, arguments)
        since = None if pages.cursor is None else pages.cursor.since
        if since is not None and at.exported is not None and at.exported > 0:
            # Rows that share the number may be missing, and not every service includes the bound itself. So
            # for the rows from 0 on there is no bound to send.
            open_ = partial(self.spec.open_since, arguments, since, at.exported - 1)
            pages = open_()
        if at.done or (begun := at.walk) is None:
            return pages
        query = pages.checkpoint.query
        # The page token of another query belongs to another page size.
        return open_(resume=begun if begun.query == query else begun.at_first_page(query))


class Writer:
    """Hands pages to the thread that commits them.

    Pages gather while the thread is busy, or for some milliseconds: a step for each page would cost more than
    the page.

    Args:
        committer: stores them.
        worker: its thread.
        on_write: called with the pages after they were written.
        on_failure: called when a step has failed: no further one is tried.

    """

    def __init__(
        self,
        committer: Committer,
        worker: Worker,
        on_write: Callable[[Sequence[SourceBatch]], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._committer, self._worker = committer, worker
        self._on_write, self._on_failure = on_write, on_failure
        self._pending = list[SourceBatch]()
        self._size = 0
        self._since: float | None = None  # when the first page after the last commit came
        self._ended = self._failed = False
        self._arrived, self._full, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._room.set()

    async def put(self, batch: SourceBatch) -> None:
        """Add a page; wait while too many of them wait for the thread."""
        self._pending.append(batch)
        self._size += batch.size
        self._arrived.set()
        if len(self._pending) >= WRITE_AT or self._size >= WRITE_SIZE:
            self._full.set()
        if len(self._pending) >= MAX_PENDING and not self._failed:
            self._room.clear()
        await self._room.wait()

    def end(self) -> None:
        """Say that no page follows."""
        self._ended = True
        self._arrived.set()
        self._full.set()

    async def run(self) -> None:
        """Write and commit pages until the end.

        Raises:
            ExportError: the target cannot be written.

        """
        try:
            while await self._step():
                pass
        except BaseException:
            self._failed = True
            self._room.set()
            self._on_failure()
            raise

    async def _step(self) -> bool:
        """Write the pages that have gathered, and commit them once that is due.

        Return False after the last.
        """
        due = await self._gathered()
        batches, self._pending, self._size = self._pending, [], 0
        ended = self._ended
        self._full.clear()
        if not ended:
            self._arrived.clear()
        self._room.set()
        committer, size = self._committer, self._committer.sink.size
        if batches:
            if committer.rows == committer.size == 0:
                self._since = asyncio.get_running_loop().time()
            await self._worker.run(committer.write, batches)
            try:
                self._on_write(batches)
            except BaseException:  # of the function that shows the progress
                await self._worker.run(committer.commit, last=True)
                raise
        if ended or due or committer.rows >= size.rows or committer.size >= size.size:
            await self._worker.run(committer.commit, last=ended)
            self._since = None
        if ended:
            self._on_write(())
        return not ended

    async def _gathered(self) -> bool:
        """Wait for pages, or until a commit is due; return whether it is."""
        until = None if self._since is None else self._since + self._committer.sink.size.seconds
        try:
            async with asyncio.timeout_at(until):
                await self._arrived.wait()
                try:
                    async with asyncio.timeout(WRITE_AFTER):
                        await self._full.wait()
                except TimeoutError:
                    pass
        except TimeoutError:
            pass
        return until is not None and asyncio.get_running_loop().time() >= until
