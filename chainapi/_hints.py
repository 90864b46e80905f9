"""Errors that say what to write in place of a common mistake.

Type checkers do not see these methods: they report each such use as an error anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["AsyncContextOnly", "AsyncStreamOnly"]


class AsyncContextOnly:
    """Object that `async with` opens."""

    if not TYPE_CHECKING:

        def __enter__(self) -> None:
            """Refuse `with`."""
            raise TypeError("write `async with`, inside of an `async def`: a session needs an event loop")

        def __exit__(self, *_: object) -> None:
            """Do nothing: `with` was refused."""


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
