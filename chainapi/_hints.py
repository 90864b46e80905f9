"""Errors that say what to write in place of a common mistake.

Type checkers do not see these methods: they report each such use as an error anyway.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

__all__ = ["AsyncContextOnly", "AsyncStreamOnly", "ByService", "to_await"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


class _Unawaited(Coroutine[Any, Any, Any]):
    """Coroutine whose use as a result names the `await` that it lacks."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Do a step, for a task."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Do a step with an error, for a task."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it."""
        self._coroutine.close()

    def _name(self) -> str:
        return getattr(self._coroutine, "__qualname__", "the method")

    def _advice(self) -> str:
        return f"{self._name()}() was not awaited: write `await` before the call, in an `async def`"

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(self._advice())

    if not TYPE_CHECKING:
        __iter__ = __len__ = __getitem__ = _refuse

        def __aiter__(self) -> NoReturn:
            raise TypeError(
                f"{self._name()}() is no stream: write `await` before the call, and no `async for`"
            )

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(self._advice())


def to_await(method: F) -> F:
    """Return a coroutine method whose result says so if `await` is missing."""

    @wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        return _Unawaited(method(*args, **kwargs))

    # Tools still see a coroutine function: mocks, schedulers and web frameworks ask for that.
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(called)
    else:
        called._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
    return cast("F", called)


class AsyncContextOnly:
    """Object that `async with` opens."""

    if not TYPE_CHECKING:

        def __enter__(self) -> None:
            """Refuse `with`."""
            raise TypeError(
                "write `async with` in an `async def`: a session needs an event loop. Without asyncio, write"
                " `with chainapi.connect() as api:`"
            )

        def __exit__(self, *_: object) -> None:
            """Do nothing: `with` was refused."""


class ByService(dict[str, T]):
    """Values by the name of their service."""

    def __missing__(self, name: object) -> NoReturn:
        """Refuse a wrong name."""
        raise KeyError(f"{name!r} is no configured service: the names are {', '.join(map(repr, self))}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"it has no attribute {name!r}: write ['data'] or ['metrics']")


class AsyncStreamOnly:
    """Stream whose rows only asynchronous code reads."""

    if not TYPE_CHECKING:

        def __await__(self) -> None:
            """Refuse `await`."""
            raise TypeError("a stream is no coroutine: write `rows = await stream.collect()`, or `async for`")

        def __iter__(self) -> None:
            """Refuse `for`."""
            raise TypeError("write `async for row in stream.items()`, or `for row in await stream.collect()`")

        def __len__(self) -> None:
            """Refuse `len`."""
            raise TypeError("no service tells the length of a list: write `len(await stream.collect())`")

        def __bool__(self) -> bool:
            """Return True: a stream is not empty before it was read."""
            return True

        def __getitem__(self, place: object) -> None:
            """Refuse an index."""
            raise TypeError("a stream has no index: write `await stream.first()`, or collect its rows first")
