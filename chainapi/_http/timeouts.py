"""Timeouts of a session's calls, with one timer for nearly all.

Each scope of `asyncio.timeout` sets a timer and cancels it. Nearly every call ends long before its timeout,
so here a call only notes the time. When the first one is due, each call that is still under way gets a timer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf

from chainapi._limits.gate import Timer

__all__ = ["Timeout", "Timeouts"]


class Timeout:
    """Timeout of a call; it cancels the task of the call, as `asyncio.timeout` does.

    A cancellation by anybody else always wins: `Task.uncancel` shows whether there is one.

    Attributes:
        when: time of the loop; inf for none, and once it expired.
        expired_at: time for which it expired; None before, and after `settle`.
        timer: its own timer; None while the common one is enough.

    """

    __slots__ = ("_cancelling", "_task", "_timeouts", "expired_at", "timer", "when")

    def __init__(self, timeouts: Timeouts, task: asyncio.Task[object], when: float) -> None:
        self._timeouts = timeouts
        self._task: asyncio.Task[object] | None = task
        self._cancelling = task.cancelling()
        self.when = when
        self.expired_at: float | None = None
        self.timer: Timer | None = None

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
        self._timeouts.forget(self)
        self._task = self.timer = None


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
        self._active = dict[Timeout, None]()
        self._timer = Timer(self._fire)  # for all without one
        self._due = inf  # when it fires

    def begin(self, when: float) -> Timeout:
        """Return the timeout of a call of the current task.

        Raises:
            RuntimeError: there is no current task.

        """
        task = asyncio.current_task(self._loop)
        if task is None:
            raise RuntimeError("await a call in a task: nothing else can be cancelled")
        timeout = Timeout(self, task, when)
        self._active[timeout] = None
        if when < self._due:
            self.watch(timeout)
        return timeout

    def watch(self, timeout: Timeout) -> None:
        """Watch a timeout that was set to an earlier time."""
        if timeout.timer is not None:
            timeout.timer.set(timeout.when)
        elif timeout.when < self._due and not self.closed:
            self._due = timeout.when
            self._timer.set(timeout.when)

    def forget(self, timeout: Timeout) -> None:
        """Watch a timeout no longer."""
        del self._active[timeout]
        if timeout.timer is not None:
            timeout.timer.set(inf)

    def close(self) -> None:
        """Cancel the tasks of all calls under way, soon: one of them may run now."""
        self.closed = True
        self._timer.set(inf)
        if self._active:
            self._loop.call_soon(self._expire_all)

    def _expire_all(self) -> None:
        for timeout in self._active:
            timeout.expire()

    def _fire(self) -> None:
        """Give each call that has none a timer of its own."""
        due, self._due = self._due, inf
        for timeout in self._active:
            if timeout.timer is None and timeout.when < inf:
                timeout.timer = Timer(partial(self._ring, timeout))
                self._ring(timeout, due)

    def _ring(self, timeout: Timeout, due: float = -inf) -> None:
        """Cancel the task of a call whose time has come; it may be later by now."""
        if timeout.when <= max(due, self.clock()):
            timeout.expire()
        elif timeout.timer is not None:
            timeout.timer.set(timeout.when)
