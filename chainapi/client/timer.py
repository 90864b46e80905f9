"""Timer of an event loop that is set again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from attrs import define

__all__ = ["Timer"]


@define(eq=False, repr=False)
class Timer:
    """Timer that calls `rings` once, at the time that was set last."""

    rings: Callable[[], None]
    _when: float = inf
    _handle: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether a time is set."""
        return self._handle is not None

    def set(self, when: float) -> None:
        """Set a time on the loop's clock; inf stops the timer."""
        if self._handle is not None:
            if self._when == when:
                return
            self._handle.cancel()
            self._handle = None
        self._when = when
        if when < inf:
            self._handle = asyncio.get_running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._handle = None
        self.rings()
