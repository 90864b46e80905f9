"""Timer of an event loop that is set again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from attrs import define, field

__all__ = ["Timer"]


@define(eq=False, repr=False)
class Timer:
    """Timer that calls `callback` once, at the time that was set last.

    Attributes:
        running: whether a time is set.

    """

    callback: Callable[[], None]
    running: bool = field(default=False, init=False)
    _when: float = field(default=inf, init=False)
    _handle: asyncio.TimerHandle | None = field(default=None, init=False)

    def set(self, when: float) -> None:
        """Set a time on the loop's clock; inf stops the timer."""
        if self._handle is not None:
            if self._when == when:
                return
            self._handle.cancel()
            self._handle = None
        self._when, self.running = when, when < inf
        if self.running:
            self._handle = asyncio.get_running_loop().call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle, self.running = None, False
        self.callback()
