"""Merge: read many streams side by side, and yield their pages as they arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Coroutine,
    Iterable,
    Mapping,
)
from traceback import clear_frames
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard, TypeVar, overload
from weakref import WeakSet

from attrs import frozen

from chainapi._background import end
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.page import MetricPage, Page
from chainapi._paging.pages import MetricPages, Pages
from chainapi._text import quoted
from chainapi.core.arguments import one_of, whole_number
from chainapi.errors import (
    AuthenticationError,
    ChainAPIError,
    ConfigurationError,
    PagingError,
    SessionClosedError,
)

__all__ = ["Failure", "Stream", "merge"]

K = TypeVar("K")
T = TypeVar("T")
P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


@frozen
class Failure:
    """Outcome of a source that failed.

    Attributes:
        error: the error that ended it.
        checkpoint: position of the source, for ``resume=``: after the last of its pages that was yielded.

    """

    error: ChainAPIError
    checkpoint: Checkpoint


class Stream(Protocol[P_co]):
    """Stream that can be merged: `Pages`, or a stream built on them."""

    @property
    def exhausted(self) -> bool:
        """Return whether the stream was read to its end."""
        ...

    @property
    def checkpoint(self) -> Checkpoint:
        """Position of the stream."""
        ...

    def __aiter__(self) -> AsyncIterator[P_co]: ...

    def __anext__(self) -> Awaitable[P_co]: ...

    async def aclose(self) -> None:
        """End the stream."""
        ...


_STREAM = ("exhausted", "checkpoint", "__aiter__", "__anext__", "aclose")


def _is_stream(given: object) -> TypeGuard[Stream[Any]]:
    # `isinstance` takes as long as opening a stream, if the class is a protocol.
    return all(hasattr(given, name) for name in _STREAM)


_Many: TypeAlias = Iterable[T] | AsyncIterable[T]
_Keyed: TypeAlias = Mapping[K, Stream[P]] | _Many[tuple[K, Stream[P]]]


@overload
def merge(
    streams: _Many[MetricPages[T]],
    *,
    concurrency: int = ...,
    on_error: Literal["raise"] = ...,
    stop: asyncio.Event | None = ...,
) -> AsyncGenerator[tuple[MetricPages[T], MetricPage[T]], None]: ...
@overload
def merge(
    streams: _Many[Pages[T]],
    *,
    concurrency: int = ...,
    on_error: Literal["raise"] = ...,
    stop: asyncio.Event | None = ...,
) -> AsyncGenerator[tuple[Pages[T], Page[T]], None]: ...
@overload
def merge(
    streams: _Keyed[K, P],
    *,
    concurrency: int = ...,
    on_error: Literal["raise"] = ...,
    stop: asyncio.Event | None = ...,
) -> AsyncGenerator[tuple[K, P], None]: ...
@overload
def merge(
    streams: _Many[MetricPages[T]],
    *,
    concurrency: int = ...,
    on_error: Literal["yield"],
    stop: asyncio.Event | None = ...,
) -> AsyncGenerator[tuple[MetricPages[T], MetricPage[T] | Failure], None]: ...
@overload
def merge(
    streams: _Many[Pages[T]],
    *,
    concurrency: int = ...,
    on_error: Literal["yield"],
    stop: asyncio.Event | None = ...,
) -> AsyncGenerator[tuple[Pages[T], Page[T] | Failure], None]: ...
@overload
def merge(
    streams: _Keyed[K, P],
    *,
    concurrency: int = ...,
    on_error: Literal["yield"],
    stop: asyncio.Event | None = ...,
) -> AsyncGenerator[tuple[K, P | Failure], None]: ...
def merge(
    streams: Any,
    *,
    concurrency: int = 32,
    on_error: Literal["raise", "yield"] = "raise",
    stop: asyncio.Event | None = None,
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Read many streams at once; yield ``(source, page)`` as pages arrive.

    The pages of each source are yielded in order. One page is fetched ahead for each open source, and no more
    until that one was taken, however slow the reader is. Sources take turns: no source yields two pages while
    another one waits with a page. The streams that were opened are closed, except those that failed. Wrap the
    generator in ``contextlib.aclosing`` if it may be left early: then nothing outlives the block.

    Args:
        streams: `Pages`, or pairs ``(key, Pages)``, from any iterable or asynchronous iterable, or a mapping
            of keys to `Pages`. The source that is yielded is the key, or without one the `Pages` itself. The
            next stream is taken only when there is room for it; an asynchronous generator is closed at the
            end.
        concurrency: how many sources may be open at once.
        on_error: policy for a source that fails. "yield" yields ``(source, Failure)`` in its turn. "raise"
            reads the others to their ends, then raises all errors as one ExceptionGroup. An error of the
            session (AuthenticationError, ConfigurationError, SessionClosedError), or one of `streams`, ends
            the merge either way: the pages fetched until then are yielded, then it is raised.
        stop: ends the merge gently once it is set: no request is begun any more, those on the wire or waiting
            for quota are cancelled, the pages fetched until then are yielded, and errors so far are raised.

    Raises:
        ConfigurationError: an argument cannot be used; at once.
        ExceptionGroup: sources failed; each error has its `checkpoint`, and a note that names its source.
        ChainAPIError: an error of the session.

    """
    whole_number("concurrency", concurrency)
    one_of("on_error", on_error, ("raise", "yield"))
    if stop is not None and not isinstance(stop, asyncio.Event):
        raise ConfigurationError(f"stop={quoted(stop)} must be an asyncio.Event")
    if isinstance(streams, Pages) or not isinstance(streams, Iterable | AsyncIterable):
        raise ConfigurationError(f"merge() takes many Pages, such as a list of them, not {_kind(streams)}")
    return _Merge(streams, concurrency, on_error == "yield", stop or asyncio.Event()).pages()


# Errors of the session: each source would fail with the same.
_SESSION_ERRORS = (AuthenticationError, ConfigurationError, SessionClosedError)
_END = object()


class _Merge:
    """Tasks of a merge: one that takes streams, and one for each open source.

    They live in the task group of a task of their own, the runner: a group around the `yield` would cancel
    the reader's task, which belongs to the reader.
    """

    _runner: asyncio.Task[None]

    def __init__(
        self, streams: Iterable[Any] | AsyncIterable[Any], concurrency: int, yields: bool, stop: asyncio.Event
    ) -> None:
        self._streams = streams.items() if isinstance(streams, Mapping) else streams
        self._concurrency = concurrency
        self._yields = yields  # failures, in place of raising them
        self._stop = stop
        self._ready: deque[tuple[Any, Page[Any] | Failure, asyncio.Future[None]]] = deque()
        self._changed = asyncio.Event()
        self._failures: list[ChainAPIError] = []
        self._error: BaseException | None = None  # what ended the merge
        self._over = False  # an error ends the merge, or the reader has left
        self._met: WeakSet[Stream[Any]] = WeakSet()
        self._open: set[Stream[Any]] = set()

    async def pages(self) -> AsyncGenerator[tuple[Any, Any], None]:
        """Yield the pages and failures of the sources."""
        loop, ready, changed = asyncio.get_running_loop(), self._ready, self._changed
        runner = self._runner = loop.create_task(self._run())
        runner.add_done_callback(lambda _: changed.set())
        watch = loop.create_task(self._stop.wait())
        watch.add_done_callback(lambda _: runner.cancel())
        try:
            while ready or not runner.done():
                if ready:
                    key, outcome, taken = ready.popleft()
                    if not taken.done():  # or the source was cancelled meanwhile
                        taken.set_result(None)
                    yield key, outcome
                else:
                    changed.clear()
                    await changed.wait()
        finally:
            self._over = True
            await end(runner, watch)
        try:
            if self._failures:
                raise ExceptionGroup("sources of a merge failed", self._failures)
        finally:  # an error that ends the merge has these as its context
            stopped = not watch.cancelled() and watch.result()
            if self._error is not None:
                raise self._error
            if runner.cancelled() and not stopped:
                raise asyncio.CancelledError("a source was cancelled by somebody else")

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._spawn(group, self._take(group))
        except BaseExceptionGroup as group:
            self._error = group.exceptions[0]  # which ended the others
        finally:
            for pages in self._open:
                await pages.aclose()

    def _spawn(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = group.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._over |= task.exception() is not None
        elif not self._ending():  # a task group ignores this, and pages would be missing
            self._runner.cancel()

    def _ending(self) -> bool:
        return self._over or self._stop.is_set() or self._runner.cancelling() > 0

    async def _take(self, group: asyncio.TaskGroup) -> None:
        """Take streams from the iterable, the next one when there is room for it."""
        streams, slots = self._streams, asyncio.Semaphore(self._concurrency)
        source: Any = iter(streams) if isinstance(streams, Iterable) else aiter(streams)
        try:
            while True:
                await slots.acquire()
                if self._ending():
                    return
                entry = next(source, _END) if isinstance(streams, Iterable) else await anext(source, _END)
                if entry is _END or self._ending():  # the iterable may have swallowed its cancellation
                    return
                self._spawn(group, self._begin(entry)).add_done_callback(lambda _: slots.release())
        finally:
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    def _begin(self, entry: object) -> Coroutine[Any, Any, None]:
        key, pages = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, entry)
        if not _is_stream(pages):
            given = _kind(pages) if pages is entry else f"a key and {_kind(pages)}"
            hint = ": call it" if callable(pages) else ""
            if isinstance(pages, AsyncGenerator):
                hint = ": pass the stream, without .items() or .batches()"
            raise ConfigurationError(f"merge() takes Pages, or pairs of a key and Pages, not {given}{hint}")
        if pages in self._met:
            return self._failed(key, pages, PagingError("this stream was passed twice: it can be read once"))
        self._met.add(pages)
        self._open.add(pages)
        return self._walk(key, pages)

    async def _walk(self, key: Any, pages: Stream[Any]) -> None:
        """Walk a source to its end, or to its error."""
        try:
            await self._walk_pages(key, pages)
        except ChainAPIError as error:
            self._open.discard(pages)  # not closed: it can be read again, or another reader has it
            await self._failed(key, pages, error)
        finally:
            # From Python 3.12 on the frames of an error refer to this one, which would keep the last page.
            del self, key, pages

    async def _walk_pages(self, key: Any, pages: Stream[Any]) -> None:
        """Fetch the pages of a source, each after the reader took the one before it."""
        if self._ending() or pages.exhausted:  # since the source was taken, or read by somebody else
            return
        async for page in pages:
            await self._hand_over(key, page)
            if self._ending():
                return
        if not pages.exhausted:
            raise PagingError("the stream was closed before its end")
        self._open.discard(pages)
        await pages.aclose()

    async def _failed(self, key: Any, pages: Stream[Any], error: ChainAPIError) -> None:
        error.checkpoint = pages.checkpoint
        error.add_note(f"source: {key!r:.200}")
        if isinstance(error, _SESSION_ERRORS):
            raise error
        _forget_pages(error)
        if self._yields:
            await self._hand_over(key, Failure(error, error.checkpoint))
        else:
            self._failures.append(error)

    async def _hand_over(self, key: Any, outcome: Page[Any] | Failure) -> None:
        """Wait until the reader has taken a page or a failure."""
        taken = asyncio.get_running_loop().create_future()
        self._ready.append((key, outcome, taken))
        self._changed.set()
        if not self._ending():  # after a swallowed cancellation the reader may never come
            await taken


def _forget_pages(error: BaseException) -> None:
    """Clear the frames of an error, its causes and contexts: they hold pages."""
    chained, seen = [error], set[int]()
    while chained:
        one = chained.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        clear_frames(one.__traceback__)
        chained += [other for other in (one.__cause__, one.__context__) if other is not None]


def _kind(value: object) -> str:
    return type(value).__name__
