"""Quota of one service and key: its windows, stops after a 429, and blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import define, field

__all__ = ["TOLERANCE", "Quota"]

# Seconds that sums of floats may lose: a client that waits exactly retry-after seconds is not refused.
TOLERANCE = 1e-6

STRIKES = 3  # requests during stops after which a client is blocked


@define
class _Window:
    """Fixed window, which begins with the first request in it."""

    start: float = -math.inf
    used: int = 0


@define(eq=False)
class Quota:
    """Quota of one service and key; times and lengths are in seconds.

    A stop lasts from the arrival of a 429 until its retry-after has passed.
    """

    _windows: dict[float, _Window] = field(factory=dict[float, _Window], init=False)  # by length
    _stop_start: float = field(default=math.inf, init=False)
    _stop_end: float = field(default=-math.inf, init=False)
    _strikes: int = field(default=0, init=False)
    _block_end: float = field(default=-math.inf, init=False)

    def take(
        self, cost: int, limits: Sequence[tuple[int, float]], now: float
    ) -> tuple[dict[str, str], int | None]:
        """Count the cost of a request; return limit headers and the wait.

        `limits` are pairs of a limit and the length of its window. The headers describe the window with the
        fewest units left. The wait is None, or the seconds until a refused request may be sent again,
        rounded up.
        """
        windows = [self._window(length, now) for _, length in limits]
        pairs = [*zip(windows, limits, strict=True)]
        ends = [window.start + length for window, (limit, length) in pairs if window.used + cost > limit]
        if now < self._block_end - TOLERANCE:
            ends.append(self._block_end)
        for window in windows:
            window.used += 0 if ends else cost
        left, shown = min((max(limit - window.used, 0), limit) for window, (limit, _) in pairs)
        headers = {
            "ratelimit-policy": ", ".join(f"{limit};w={length:.10g}" for limit, length in limits),
            "ratelimit-limit": str(shown),
            "ratelimit-remaining": str(left),
        }
        if not ends:
            return headers, None
        wait = math.ceil(max(ends) - now - TOLERANCE)
        return {**headers, "ratelimit-reset": str(wait), "retry-after": str(wait)}, wait

    def _window(self, length: float, now: float) -> _Window:
        """Return the window of a length that is open now."""
        window = self._windows.get(length)
        if window is None or window.start + length - now <= TOLERANCE:
            window = self._windows[length] = _Window(now)
        return window

    def stop(self, start: float, end: float, now: float) -> None:
        """Begin a stop at `start`, or prolong the one that lasts."""
        self._stop_start = min(self._stop_start, start) if now < self._stop_end else start
        self._stop_end = max(self._stop_end, end)

    def sent(self, now: float, block: float | None) -> bool:
        """Return whether a request is sent during a stop.

        After three such requests the client is blocked for `block` seconds; None for never.
        """
        stopped = self._stop_start <= now < self._stop_end - TOLERANCE
        self._strikes += stopped
        if block is not None and self._strikes >= STRIKES:
            self._strikes, self._block_end = 0, now + block
        return stopped
