"""Event loops with clocks that jump: a virtual one, and one for sockets.

The virtual loop waits for nothing; the loop for sockets jumps on command.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A busy iteration takes a little time, as on a real machine: code that waits out the rounding error
# of a float (aiolimiter does) would otherwise spin for ever.
TICK = 1e-9


class VirtualClock(selectors.DefaultSelector):  # type: ignore[misc,valid-type,unused-ignore]
    """Selector that advances the clock instead of waiting."""

    now = 0.0
    threads = 0  # that work for the loop: while one does, the loop is not idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, or let `timeout` seconds pass at once."""
        ready = super().select(None if self.threads and timeout != 0 else 0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("deadlock: every task waits, and no timer is set")
        # At a huge uptime a tick is less than the clock can tell apart.
        self.now = max(self.now + max(timeout, TICK), math.nextafter(self.now, math.inf))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Loop in virtual time, which begins at `start` seconds."""

    def __init__(self, start: float = 0.0) -> None:
        self._virtual = VirtualClock()
        self._virtual.now = start
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread, while no time passes."""
        future = super().run_in_executor(executor, func, *args)
        self._virtual.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._virtual.threads -= 1

    def jump(self, seconds: float) -> None:
        """Let `seconds` pass without running anything, as a suspended machine does."""
        self._virtual.now += seconds


class RealLoop(asyncio.SelectorEventLoop):
    """Loop for sockets on the machine's clock, plus the time it was set to skip."""

    def __init__(self) -> None:
        self._skipped = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the time in seconds."""
        return super().time() + self._skipped

    def jump(self, seconds: float) -> None:
        """Let `seconds` pass at once: what was due meanwhile is due now."""
        self._skipped += seconds
