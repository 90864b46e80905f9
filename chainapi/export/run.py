"""One export, from its first source to its final file."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from attrs import define, field, frozen

from chainapi.client.merge import Failure, merge
from chainapi.client.pages import Pages
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.errors import (
    ChainAPIError,
    ConfigurationError,
    DecodeError,
    ExportError,
    IncompleteExportError,
)
from chainapi.export.columns import Codec, Column
from chainapi.export.files import Target
from chainapi.export.finalize import recover, seal
from chainapi.export.formats.values import require
from chainapi.export.journal import State
from chainapi.export.progress import ExportProgress, Stage
from chainapi.export.records import Batch, Part, SourceState
from chainapi.export.sources import Arguments, Walk
from chainapi.export.writer import Commits

__all__ = ["ExportResult", "Exporter"]

P = ParamSpec("P")
T = TypeVar("T")

_ADVICE = 'started again with on_invalid="raw", the export puts such rows into a file of their own'

Sources = Iterable[Any] | AsyncIterable[Any]


@frozen
class ExportResult:
    """What an export did.

    Attributes:
        path: the file that has the rows, or the folder of such files.
        rows: how many rows were fetched that the target did not have.
        sources: how many sources were asked for.
        written: the file that was written; None where there was nothing new.
        invalid: how many rows were fetched besides that could not be made (``on_invalid="raw"``); they are
            in the file `written_invalid`.
        written_invalid: JSON lines with the rows that could not be made; None where there was none.

    """

    path: Path
    rows: int
    sources: int
    written: Path | None
    invalid: int = 0
    written_invalid: Path | None = None


@define(eq=False)
class Exporter:
    """One run of an export.

    Attributes:
        walk: returns the stream of a source.
        over: the sources.
        target: where the rows go.
        query: keyword arguments of `walk`.
        limit: rows of each source; None for all.
        concurrency: how many sources are open at once.
        on_progress: called when there is progress.

    """

    walk: Callable[..., Pages[Any]]
    over: Sources
    target: Target
    query: Mapping[str, Any]
    limit: int | None
    concurrency: int
    on_progress: Callable[[ExportProgress], None] | None
    progress: ExportProgress = field(init=False)
    _state: State = field(init=False)
    _failures: dict[str, ChainAPIError] = field(factory=dict[str, ChainAPIError], init=False)
    _thread: ThreadPoolExecutor = field(init=False)
    _stop: threading.Event = field(factory=threading.Event, init=False)
    _codec: Codec | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        total = len(self.over) if isinstance(self.over, Sized) else None
        self.progress = ExportProgress(total, clock=asyncio.get_running_loop().time)
        self._thread = ThreadPoolExecutor(1, "chainapi-export")

    async def run(self) -> ExportResult:
        """Fetch what is missing, then write the final file.

        Raises:
            IncompleteExportError: some sources failed; the others are in the target.
            ExportError: the target cannot be read or written, or holds another export.
            ChainAPIError: what concerns all sources, such as a key that is refused.

        """
        try:
            await self._in_thread(self._open)
            return await self._run(self._state)
        finally:
            await self._in_thread(self._close)
            self._thread.shutdown(wait=False)

    async def _run(self, state: State) -> ExportResult:
        await self._in_thread(recover, state, self.target)
        await self._fetch(state)
        self._tell("writing")
        part = await self._seal(state)
        self._tell("done")
        if self._failures:
            raise self._incomplete()
        written = None if part is None else self.target.part(part.number)
        invalid = None if part is None or not self.progress.invalid else self.target.invalid_part(part.number)
        progress = self.progress
        return ExportResult(self.target.path, progress.rows, progress.met, written, progress.invalid, invalid)

    def _open(self) -> None:
        self.target.prepare()
        self._state = State.open(self.target.state_path)

    def _close(self) -> None:
        if hasattr(self, "_state"):
            self._state.close()

    def _begin(self, state: State, pages: Pages[Any]) -> Codec:
        """Return what encodes the rows; refuse a target that holds an export of something else."""
        codec = Codec(pages.model)
        if self.target.format.needs_columns:
            require(codec.columns, self.target.format.name)
        self._check_begun(state, self._about(pages, codec.columns))
        return codec

    def _check_begun(self, state: State, about: Mapping[str, Any]) -> None:
        begun = state.about()
        if state.untouched():  # of another command, which was wrong, nothing is left to protect
            state.begin(about)
            return
        other = [
            f"{name} was {begun.get(name)}, is {about.get(name)}"
            for name in sorted(begun.keys() | about.keys())
            if begun.get(name) != about.get(name)
        ]
        if other:
            raise ExportError(
                f"{self.target.path} holds another export: {'; '.join(other)}. Choose another target"
            )

    def _about(self, pages: Pages[Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Say what the export is of, for whoever starts it again."""
        declared = getattr(self.walk, "endpoint", None)
        route = declared.route.path if declared is not None else getattr(self.walk, "__qualname__", "")
        # A row that stopped an export is why it is started again with another value.
        query = {name: ascii(value) for name, value in self.query.items() if name != "on_invalid"}
        about = {
            "route": route,
            "format": self.target.format.name,
            "columns": ", ".join(column.name for column in columns),
            "ordered": pages.ordered,
            "limit": self.limit,
        }
        return {**about, **query}

    async def _fetch(self, state: State) -> None:
        """Fetch what is missing and keep it; what was fetched is kept however this ends."""
        stop = asyncio.Event()
        commits = Commits(state, self._thread, self._committed, stop.set)
        # A task of its own, so that nobody's cancelling loses the pages in hand.
        keeping = asyncio.create_task(self._keep(state, commits, stop))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([keeping])
            if not keeping.cancelled() and (error := keeping.exception()) is not None:
                raise error from None
            raise

    async def _keep(self, state: State, commits: Commits, stop: asyncio.Event) -> None:
        merged = merge(self._walks(state), concurrency=self.concurrency, on_error="yield", stop=stop)
        try:
            async with aclosing(merged):
                async for source, got in merged:
                    if isinstance(got, Failure):
                        self._failed(source.label, got.error)
                    else:
                        commits.put(got)
                        await commits.room()
        finally:
            await commits.flush()

    def _failed(self, label: str, error: ChainAPIError) -> None:
        if isinstance(error, DecodeError) and error.row is not None:
            error = error.changed(advice=_ADVICE)
        self._failures[label] = error
        self.progress.failed += 1
        self._tell()

    def _committed(self, batches: Sequence[Batch], rows: int) -> None:
        invalid = self._state.invalid - self.progress.invalid
        self.progress.rows += rows - invalid
        self.progress.invalid += invalid
        for batch in batches:
            self.progress.committed(batch.source.label, done=batch.done)
        self._tell()

    async def _walks(self, state: State) -> AsyncIterator[tuple[SourceState, Walk]]:
        """Open the sources one after the other, each where it stood."""
        met: set[str] = set()
        async for arguments in self._arguments():
            label = arguments.label
            if label in met:
                continue
            met.add(label)
            pages = self._pages(arguments)
            if self._codec is None:
                self._codec = await self._in_thread(self._begin, state, pages)
            codec = self._codec
            source = await self._in_thread(state.source, label, pages.checkpoint.query)
            self.progress.met += 1
            if source.query != pages.checkpoint.query:
                raise ExportError(f"{self.target.path} has {label} of other services: choose another target")
            if source.done and not (pages.ordered and _is_incremental(source)):
                self.progress.done += 1
                self.progress.skipped += 1
                continue
            if source.checkpoint is not None and not source.done:
                pages = self._pages(arguments, resume=Checkpoint.loads(source.checkpoint))
            # What is new is fetched whole: a limit would leave a gap above what is known.
            limit = self.limit if source.floor is None else None
            yield source, Walk(source, pages, codec.encode, limit)
        if not met:
            raise ConfigurationError("there is nothing to export: over= has no source")

    async def _arguments(self) -> AsyncIterator[Arguments]:
        if isinstance(self.over, AsyncIterable):
            async for source in self.over:
                yield Arguments.of(source)
        else:
            for source in self.over:
                yield Arguments.of(source)

    def _pages(self, arguments: Arguments, **resume: Checkpoint) -> Pages[Any]:
        pages = self.walk(*arguments.positional, **self.query, **arguments.named, **resume)
        if not isinstance(pages, Pages):
            raise ConfigurationError("only lists can be exported: walk= must return Pages")
        return pages

    async def _seal(self, state: State) -> Part | None:
        columns = () if self._codec is None else self._codec.columns
        return await self._in_thread(seal, state, self.target, columns, self._stop)

    async def _in_thread(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step in the thread of the state; when this is cancelled, once the step has ended."""
        work = asyncio.get_running_loop().run_in_executor(self._thread, partial(step, *args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait([work])
            work.exception()
            raise

    def _tell(self, stage: Stage = "fetching") -> None:
        self.progress.stage = stage
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _incomplete(self) -> IncompleteExportError:
        label, error = next(iter(self._failures.items()))
        more = f", and {len(self._failures) - 1} more" if len(self._failures) > 1 else ""
        return IncompleteExportError(
            f"{len(self._failures)} of {self.progress.met} sources failed: {label} ({error}){more}; the "
            f"others are in {self.target.path}. Start the same export again to go on with those",
            self._failures,
        )


def _is_incremental(source: SourceState) -> bool:
    """Check whether new rows of a source that is done can be told by their numbers: its order held."""
    return source.checkpoint is None or not Checkpoint.loads(source.checkpoint).unordered
