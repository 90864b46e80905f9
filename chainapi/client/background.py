"""Coroutines in the background: of a block, or several at once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, TypeVar

__all__ = ["ahead", "in_background"]

T = TypeVar("T")


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine while the block runs; cancel it at the end, and wait for it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def ahead(work: AsyncGenerator[Coroutine[Any, Any, T], None], count: int) -> AsyncGenerator[T, None]:
    """Run `count` coroutines at once, and yield their results in order.

    The next coroutine is taken only when there is room for it.

    Raises:
        Exception: the error of a coroutine, or of `work`; the others are cancelled.

    """
    tasks, room = asyncio.Queue[asyncio.Task[T] | None](), asyncio.Semaphore(count)
    begun: list[asyncio.Task[Any]] = []

    async def begin() -> None:
        try:
            async with aclosing(work):
                await room.acquire()
                async for one in work:
                    task = asyncio.create_task(one)
                    begun.append(task)
                    tasks.put_nowait(task)
                    await room.acquire()
        finally:
            tasks.put_nowait(None)

    beginning = asyncio.create_task(begin())
    try:
        while (task := await tasks.get()) is not None:
            result = await task
            begun.remove(task)
            yield result
            room.release()
        await beginning
    finally:
        left = [beginning, *begun]
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)
