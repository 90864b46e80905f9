"""Work in a thread, for what would hold the event loop up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

__all__ = ["in_thread"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def in_thread(work: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
    """Start a piece of work in a thread of its own, which ends with it.

    Whoever is cancelled while waiting ends no thread: shield the future where the work must not be lost.
    """
    from concurrent.futures import ThreadPoolExecutor

    thread = ThreadPoolExecutor(1, "chainapi")
    future = asyncio.get_running_loop().run_in_executor(thread, work, *args)
    thread.shutdown(wait=False)
    return future
