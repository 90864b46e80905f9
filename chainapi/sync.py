"""Sessions without asyncio, for scripts, Flask and Django: `connect`.

A thread runs an ordinary `Session` on an event loop, and the classes below pass calls on to it, under its
names: a coroutine is awaited, and a stream becomes an iterable. To type checkers, all of that is `Any`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, wait
from functools import update_wrapper
from inspect import signature
from threading import Lock, Thread
from typing import Any, NoReturn, Self, TypeVar, cast

from chainapi._api.binding import Group
from chainapi._api.service import ServiceAPI
from chainapi._api.view import SessionView
from chainapi._background import end
from chainapi._paging.pages import Pages
from chainapi.errors import ConfigurationError, SessionClosedError
from chainapi.script import check_main, refuse_running_loop
from chainapi.session import Session

__all__ = ["SyncSession", "SyncStream", "connect"]

T = TypeVar("T")
_END = object()


def connect(
    *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None, **arguments: Any
) -> SyncSession:
    """Return a session whose methods need no `await`, for any number of threads.

    The end of its ``with`` block closes it, and so does the end of the program.

    Args:
        loop_factory: makes the event loop, such as ``uvloop.new_event_loop``; None for asyncio's.
        arguments: arguments of `Session`.

    Raises:
        ConfigurationError: an argument is invalid, or an event loop runs in this thread.

    """
    refuse_running_loop("connect() would block it")
    session = Session(**arguments)
    return SyncSession(_Thread(session, (loop_factory or asyncio.new_event_loop)()), session)


class _Thread:
    """Thread with the event loop of a session."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._loop = loop
        self._process = os.getpid()
        self._lock = Lock()
        self._closed = False
        self._thread = Thread(target=self._run, name="chainapi", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def call(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function on the loop, and return its result, awaited if need be."""
        refuse_running_loop("this call would block it")
        if os.getpid() != self._process:
            raise ConfigurationError("this session was made before a fork: call connect() in each worker")

        async def done() -> Any:
            result = work(*args, **kwargs)
            if isinstance(result, AsyncIterable) and not isinstance(result, Coroutine):
                return result  # also a Split, which can be awaited
            return await result if isinstance(result, Awaitable) else result

        with self._lock:  # nothing is submitted after the stop of the loop
            if self._closed:
                raise SessionClosedError("the session is closed: call connect() again")
            future = asyncio.run_coroutine_threadsafe(done(), self._loop)
        try:
            while not future.done():
                wait([future], 0.5)  # seconds; Windows reports Ctrl-C only between two waits
            return future.result()
        except CancelledError:
            if not self._closed:
                raise
            raise SessionClosedError("the session was closed during the call") from None
        finally:
            future.cancel()

    def close(self) -> None:
        """Close the session, and end the thread; closing it again does nothing."""
        if os.getpid() != self._process:  # the sockets of the loop are the parent's too
            return
        atexit.unregister(self.close)
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            with self._lock:
                self._closed = True
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _end(self) -> None:
        await self._session.aclose()
        await end(*asyncio.all_tasks() - {asyncio.current_task()})  # each answers its caller
        await self._loop.shutdown_asyncgens()


class _Part:
    """Part of a session, such as `api.data.evm`, with methods without `await`."""

    def __init__(self, thread: _Thread, target: Any, limit: int | None = None) -> None:
        self._thread = thread
        self._target = target
        self._limit = limit

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._target!r}>"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *dir(self._target)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python asks for such names by itself
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        found = self._thread.call(getattr, self._target, name)
        if not callable(found) or isinstance(found, type):
            return self._wrapped(found)

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._called(found, args, kwargs)

        return update_wrapper(method, found, updated=())

    def _called(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        single = getattr(getattr(method, "endpoint", None), "single", method.__name__ != "list")
        limit = None if single else kwargs.pop("limit", None)  # `get` sends it as a query parameter
        return self._wrapped(self._thread.call(method, *args, **kwargs), limit)

    def _wrapped(self, found: Any, limit: int | None = None) -> Any:
        if isinstance(found, AsyncIterable):
            return SyncStream(self._thread, found, limit)
        return _Part(self._thread, found) if isinstance(found, SessionView | ServiceAPI | Group) else found


class SyncSession(_Part):
    """Session without `await`; `connect` makes it.

    `data`, `metrics`, `quota` and `with_options` are as in `Session`. Each method that returns a list takes
    ``limit=`` too: the most rows that one reading of the list gives.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the session; calls under way in other threads raise SessionClosedError."""
        self._thread.close()

    def run(self, main: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Run an async function, such as an export, with the session."""
        check_main(main)
        return cast("T", self._thread.call(main, self._target))


class SyncStream(_Part):
    """Stream without `async for`.

    A loop over a list gets its rows. Methods and properties are as in `Pages`.
    """

    def __iter__(self) -> Iterator[Any]:
        lists = isinstance(self._target, Pages)
        return self._read(self._target.items, self._limit) if lists else self.pages()

    def __getitem__(self, place: object) -> NoReturn:
        raise TypeError("a stream has no index: write `stream.first()`, or collect its rows first")

    def pages(self) -> Iterator[Any]:
        """Return an iterator of the pages of a list."""
        return self._read(self._target.__aiter__)

    def _called(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._limit is not None and "limit" in (takes := signature(method)).parameters:
            args, kwargs = (), {"limit": self._limit, **takes.bind(*args, **kwargs).arguments}
        return super()._called(method, args, kwargs)

    def _read(self, begin: Callable[..., AsyncIterator[Any]], *args: Any) -> Iterator[Any]:
        reader = self._thread.call(begin, *args)  # asyncio closes one that is dropped
        while (row := self._thread.call(anext, reader, _END)) is not _END:
            yield self._wrapped(row)
