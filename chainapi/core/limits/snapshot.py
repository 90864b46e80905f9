"""Snapshot of a quota, for people."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from chainapi.core.duration import DAY, HOUR, MINUTE

__all__ = ["QuotaSnapshot"]

_POLICIES = {1.0: "quota a second", MINUTE: "quota a minute", HOUR: "hourly quota", DAY: "daily quota"}


@frozen
class QuotaSnapshot:
    """Snapshot of a quota at `time`.

    Times are seconds on the event loop's clock, amounts are units.
    """

    time: float
    limit: float | None = None
    remaining: float | None = None
    window: float | None = None
    stopped_until: float | None = None
    reset_at: float | None = None
    costs: Mapping[str, float] = field(factory=dict[str, float])
    waiting: int = 0
    in_flight: int = 0
    unix_time: float | None = None

    @property
    def stopped_for(self) -> float:
        """Seconds until requests may leave again after a refusal; 0 without a stop."""
        return max(0.0, self.stopped_until - self.time) if self.stopped_until is not None else 0.0

    @property
    def reset_in(self) -> float | None:
        """Predicted seconds until quota comes back; None if unknown."""
        return max(0.0, self.reset_at - self.time) if self.reset_at is not None else None

    @property
    def policy(self) -> str:
        """Policy in words, such as "daily quota"; "quota" if its window is unknown."""
        if self.window is None:
            return "quota"
        return _POLICIES.get(self.window, f"quota of {self.window:g} s")

    @property
    def back_at(self) -> float | None:
        """Predicted Unix time when quota is back; None if it, or the time, is unknown."""
        if self.unix_time is None or self.reset_in is None:
            return None
        return self.unix_time + self.reset_in
