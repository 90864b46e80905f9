"""Coroutines in the background: of a block, several in order, or to their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

__all__ = ["ahead", "end", "ended", "finish", "in_background"]

T = TypeVar("T")


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine while the block runs; cancel it at the end, and wait for it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end(task)
        if not task.cancelled():
            task.result()


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
        await end(beginning, *begun)


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and futures, and wait for their ends; drop their errors.

    It waits to the end also while the waiting itself is cancelled. Then it raises that cancellation, not one
    of a task: anyio knows its own cancellations by their message.
    """
    for task in tasks:
        task.cancel()
    cancelled = await ended(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # marked as retrieved
    if cancelled is not None:
        raise cancelled


async def finish(work: Awaitable[T], on_cancel: Callable[[], Any] | None = None) -> T:
    """Await something to its end, also while the caller is cancelled.

    It calls `on_cancel` at each cancellation, raises the last one at the end (see `end`), and drops an error
    of the work then.
    """
    task = asyncio.ensure_future(work)
    cancelled = await ended([task], on_cancel)
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # marked as retrieved
    raise cancelled


async def ended(
    tasks: Sequence[asyncio.Future[Any]], on_cancel: Callable[[], Any] | None = None
) -> asyncio.CancelledError | None:
    """Wait for the ends of tasks and futures, also while the caller is cancelled.

    It calls `on_cancel` at each cancellation, and returns the last one, which the caller has to raise; None
    without one.
    """
    cancelled = None
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                on_cancel()
    return cancelled
