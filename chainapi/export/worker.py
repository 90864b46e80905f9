"""Threads for the blocking work of an export."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

__all__ = ["Stopped", "Worker", "settled"]

P = ParamSpec("P")
T = TypeVar("T")


class Stopped(Exception):  # noqa: N818 - a request of the caller, not an error
    """The caller was cancelled, and the step ended early."""


class Worker:
    """One thread that runs one step after the other.

    Attributes:
        executor: the thread.
        stop: set when a caller is cancelled; long steps end early then.

    """

    def __init__(self, name: str = "chainapi-export") -> None:
        self.executor = ThreadPoolExecutor(1, name)
        self.stop = threading.Event()

    async def run(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step in the thread. A cancelled caller waits until the step has ended."""
        work = asyncio.get_running_loop().run_in_executor(self.executor, partial(step, *args, **kwargs))
        return await settled(work, self.stop.set)

    def shutdown(self) -> None:
        """End the thread; every step has ended, so this does not block."""
        self.executor.shutdown()


async def settled(work: asyncio.Future[T], on_cancel: Callable[[], Any]) -> T:
    """Return the result of work that must not be left behind.

    If the caller is cancelled, `on_cancel` is called; the caller waits for the end of the work, also if it
    is cancelled again meanwhile, and then raises CancelledError.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # marked as retrieved: the cancellation counts
    raise cancelled
