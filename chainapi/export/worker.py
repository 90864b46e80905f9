"""Thread for the blocking work of an export."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

__all__ = ["Worker"]

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """One thread that runs one step after the other.

    Attributes:
        executor: the thread.
        stop: set when a caller is cancelled; long steps end early then.

    """

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1, "chainapi-export")
        self.stop = threading.Event()

    async def run(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step in the thread. A cancelled caller waits until the step has ended."""
        work = asyncio.get_running_loop().run_in_executor(self.executor, partial(step, *args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop.set()
            await asyncio.wait([work])
            work.exception()  # marked as retrieved: the cancellation counts
            raise

    def shutdown(self) -> None:
        """End the thread after its last step."""
        self.executor.shutdown(wait=False)
