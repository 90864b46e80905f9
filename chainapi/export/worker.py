"""Threads for the blocking work of an export."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from chainapi.client.background import finish

__all__ = ["Stopped", "Worker", "interrupting", "look", "until"]

LOOK_EVERY = 0.1  # seconds between two looks at `stop` while a database runs a statement

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
        return await finish(work, self.stop.set)

    def shutdown(self) -> None:
        """End the thread; every step has ended, so this does not block."""
        self.executor.shutdown()


def look(stop: threading.Event | None) -> None:
    """Look at `stop`.

    Raises:
        Stopped: it is set.

    """
    if stop is not None and stop.is_set():
        raise Stopped


def until(stop: threading.Event | None, items: Iterable[T]) -> Iterator[T]:
    """Yield items until `stop` is set.

    Raises:
        Stopped: `stop` was set.

    """
    for item in items:
        look(stop)
        yield item


@contextmanager
def interrupting(
    stop: threading.Event | None, interrupt: Callable[[], Any], error: type[Exception]
) -> Iterator[None]:
    """Interrupt the statements of a database in the block once `stop` is set.

    A thread looks at `stop` and calls `interrupt` again and again: between two statements a call has no
    effect.

    Raises:
        Stopped: `stop` is set, or the block raised `error` after it was.

    """
    if stop is None:
        yield
        return
    look(stop)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(LOOK_EVERY):
            if stop.is_set():
                interrupt()

    watcher = threading.Thread(target=watch, name="chainapi-export-interrupt", daemon=True)
    watcher.start()
    try:
        yield
    except error:
        if stop.is_set():
            raise Stopped from None
        raise
    finally:
        done.set()
        watcher.join()
