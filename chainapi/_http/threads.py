"""Work in a thread of its own, for work that would block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

from chainapi._background import ended

__all__ = ["finish_in_thread", "in_thread"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def in_thread(work: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
    """Start work in a thread that ends with it.

    Cancelling the future does not stop the thread: shield the future if the result must not be lost.
    """
    from concurrent.futures import ThreadPoolExecutor

    thread = ThreadPoolExecutor(1, "chainapi")
    future = asyncio.get_running_loop().run_in_executor(thread, work, *args)
    thread.shutdown(wait=False)
    return future


async def finish_in_thread(work: Callable[[], None]) -> asyncio.CancelledError | None:
    """Run a piece of work in a thread to its end, also while the caller is cancelled.

    Returns the cancellation, which the caller has to raise; None without one.
    """
    future = in_thread(work)
    cancelled = await ended([future])
    if cancelled is not None and future.exception() is not None:
        raise cancelled
    future.result()
    return cancelled
