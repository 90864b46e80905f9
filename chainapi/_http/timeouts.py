"""Timeouts of the calls of a session, with one timer of the event loop for all.

Each scope of `asyncio.timeout` sets a timer and cancels it. Nearly every call ends long before its timeout,
so here a call only notes the time, and the timer fires about once in the seconds of a timeout.
"""

from __future__ import annotations

import asyncio
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from chainapi._limits.gate import Timer

__all__ = ["Timeout", "Timeouts"]

FEW = 64  # entries: a smaller heap keeps the entries of ended calls


class Timeout:
    """Timeout of a call; it cancels the task of the call, as `asyncio.timeout` does.

    A cancellation by anybody else always wins: `Task.uncancel` shows whether there is one.

    Attributes:
        when: time of the loop; inf for none, and once it expired.
        expired_at: time for which it expired; None before, and after `settle`.
        entry: number of its entry in the heap; others are out of date.

    """

    __slots__ = ("_cancelling", "_task", "_timeouts", "entry", "expired_at", "when")

    def __init__(self, timeouts: Timeouts, task: asyncio.Task[object], when: float) -> None:
        self._timeouts = timeouts
        self._task: asyncio.Task[object] | None = task
        self._cancelling = task.cancelling()
        self.when = when
        self.expired_at: float | None = None
        self.entry = -1

    @property
    def active(self) -> bool:
        """Whether the call has not ended."""
        return self._task is not None

    def set(self, when: float) -> None:
        """Move the timeout to a time of the loop; inf for none."""
        sooner = when < self.when
        self.when = when
        if sooner:
            self._timeouts.watch(self)

    def expire(self) -> None:
        """Cancel the task, unless that is done and not settled."""
        at, self.when = self.when, inf
        if self._task is not None and self.expired_at is None:
            self.expired_at = at
            self._task.cancel()

    def settle(self) -> bool:
        """Take the cancellation back; return whether nobody else cancelled the task."""
        if self._task is None or self.expired_at is None:
            return False
        self.expired_at = None
        return self._task.uncancel() <= self._cancelling

    def end(self) -> None:
        """Watch the call no longer, which has ended."""
        if self.expired_at is not None:
            self.settle()
        self._task = None
        self._timeouts.forget(self)


class Timeouts:
    """Timeouts of the calls under way, in one event loop.

    Attributes:
        clock: returns the time of the loop in seconds.
        closed: whether the session ended the calls.

    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = loop.time
        self.closed = False
        self._loop = loop
        self._new = dict[Timeout, None]()  # set since the timer fired
        self._endless = dict[Timeout, None]()  # without a time
        self._heap: list[tuple[float, int, Timeout]] = []  # the others, by a time not too late for them
        self._most = FEW  # entries of the heap before those of ended calls are removed
        self._numbers = count()
        self._timer = Timer(self._fire)
        self._due = inf

    def begin(self, when: float) -> Timeout:
        """Return the timeout of a call of the current task.

        Raises:
            RuntimeError: there is no current task.

        """
        task = asyncio.current_task(self._loop)
        if task is None:
            raise RuntimeError("await a call in a task: nothing else can be cancelled")
        timeout = Timeout(self, task, when)
        self._new[timeout] = None
        if when < self._due:
            self.watch(timeout)
        return timeout

    def watch(self, timeout: Timeout) -> None:
        """Watch a timeout that was set to an earlier time."""
        if timeout not in self._new:
            self._endless.pop(timeout, None)
            self._new[timeout] = None
        if timeout.when < self._due and not self.closed:
            self._due = timeout.when
            self._timer.set(timeout.when)

    def forget(self, timeout: Timeout) -> None:
        """Watch a timeout no longer; its entry of the heap stays for a while."""
        if timeout in self._new:
            del self._new[timeout]
        else:
            self._endless.pop(timeout, None)

    def close(self) -> None:
        """Cancel the tasks of all calls under way, soon: one of them may run now."""
        self.closed = True
        self._timer.set(inf)
        if self._new or self._endless or self._heap:
            self._loop.call_soon(self._expire_all)

    def _expire_all(self) -> None:
        for timeout in [*self._new, *self._endless, *(timeout for _, _, timeout in self._heap)]:
            timeout.expire()

    def _fire(self) -> None:
        """Cancel the tasks whose time has come, and set the timer for the next one."""
        now = max(self.clock(), self._due)
        for timeout in self._new:
            self._push(timeout)
        self._new.clear()
        while self._heap and (self._heap[0][0] <= now or not self._heap[0][2].active):
            _, number, timeout = heappop(self._heap)
            if timeout.active and number == timeout.entry:
                if timeout.when <= now:
                    timeout.expire()
                self._push(timeout)  # its time may be later by now
        if len(self._heap) > self._most:
            self._tidy()
        self._due = self._heap[0][0] if self._heap else inf
        self._timer.set(self._due)

    def _push(self, timeout: Timeout) -> None:
        if timeout.when == inf:
            self._endless[timeout] = None
        else:
            timeout.entry = next(self._numbers)
            heappush(self._heap, (timeout.when, timeout.entry, timeout))

    def _tidy(self) -> None:
        """Remove the entries of calls that ended."""
        self._heap = [entry for entry in self._heap if entry[2].active]
        heapify(self._heap)
        self._most = max(FEW, 2 * len(self._heap))
