"""Event loop in virtual time."""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple, Unpack

__all__ = ["VirtualLoop", "real_time", "run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A busy iteration takes a little time, as on a real machine: code that waits out the rounding error
# of a float (aiolimiter does) would otherwise spin for ever.
TICK = 1e-9
GRACE = 1.0  # real seconds in which a thread that the loop does not know may wake it
SHOWN = 5  # tasks that the error of a deadlock names


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type,unused-ignore]
    """Selector that advances the clock instead of waiting."""

    real = False  # whether time passes as on the machine, for all virtual loops of the process
    now = 0.0
    threads = 0  # that work for the loop: while one does, the loop is not idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, or let `timeout` seconds pass at once."""
        if _Selector.real:
            began = time.monotonic()
            ready = super().select(timeout)
            self.now += time.monotonic() - began
            return ready
        ready = super().select(None if self.threads and timeout != 0 else 0)
        if not ready and timeout is None and threading.active_count() > 1:
            in_main = threading.current_thread() is threading.main_thread()
            ready = super().select(GRACE if in_main else None)
        if ready:
            return ready
        if timeout is None:
            raise _Idle
        # At a huge uptime a tick is less than the clock can tell apart.
        self.now = max(self.now + max(timeout, TICK), math.nextafter(self.now, math.inf))
        return []


class _Idle(Exception):  # noqa: N818 - never leaves this module
    """Nothing is ready, and no timer is set."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time, which begins at `start` seconds.

    While every task waits, the clock jumps to the next timer, so no wait takes real time. While a function
    runs in a thread of `run_in_executor` or `asyncio.to_thread`, no virtual time passes. The loop does not
    know other threads, and it does not wait for sockets: a timer that is set is always sooner. Outside of the
    main thread, a loop without a timer waits for other threads.

    Raises RuntimeError from `run_until_complete` if every task waits and no timer is set.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._virtual = _Selector()
        self._virtual.now = start
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual.now

    def run_forever(self) -> None:
        """Run until the loop is stopped; RuntimeError for a deadlock."""
        try:
            super().run_forever()
        except _Idle:
            raise RuntimeError(
                f"deadlock: every task waits, and no timer is set: {self._waiting()}"
            ) from None

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread, while no time passes."""
        future = super().run_in_executor(executor, func, *args)
        self._virtual.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait until the threads have ended; no virtual time passes."""
        self._virtual.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._virtual.threads -= 1

    def _thread_ended(self, _: object) -> None:
        self._virtual.threads -= 1

    def _waiting(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        places = [f"{task.get_name()} at {_place(task)}" for task in tasks[:SHOWN]]
        return "; ".join([*places, *(["..."] if len(tasks) > SHOWN else [])]) or "there are no tasks"

    def jump(self, seconds: float) -> None:
        """Let `seconds` pass without running anything, as a suspended machine does."""
        self._virtual.now += seconds


@contextmanager
def real_time() -> Iterator[None]:
    """Let time pass as on the machine in every virtual loop.

    Timers would overtake the sockets of other machines otherwise.
    """
    before, _Selector.real = _Selector.real, True
    try:
        yield
    finally:
        _Selector.real = before


def _place(task: asyncio.Task[Any]) -> str:
    """Return the line at which a task waits."""
    frames = task.get_stack(limit=1)
    return f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else repr(task.get_coro())


def run(main: Coroutine[Any, Any, T], *, start: float = 0.0, debug: bool | None = None) -> T:
    """Run a coroutine in virtual time, and return its result.

    `asyncio.run` does so in real time. `start` is the time of the loop in seconds at which it begins.

    Raises RuntimeError if every task waits and no timer is set.
    """
    with asyncio.Runner(debug=debug, loop_factory=lambda: VirtualLoop(start)) as runner:
        return runner.run(main)
