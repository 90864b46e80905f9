"""Lock of a host: how long it may serve by its own clock."""

from __future__ import annotations

__all__ = ["HostLock"]

DRIFT = 0.1  # part of a lock that clocks may run apart while it lasts


class HostLock:
    """Right to be the host, for `ttl` seconds from each time it is granted.

    The broker counts from when it grants the lock, the host from when it sent the request, which is
    earlier. So the host stops first, unless its clock is slower than the broker's by more than `DRIFT`.
    """

    __slots__ = ("_ttl", "_until")

    def __init__(self, ttl: float, sent: float) -> None:
        self._ttl = ttl * (1 - DRIFT)
        self._until = sent + self._ttl

    def renewed(self, sent: float) -> None:
        """Note that the broker granted the lock again, to a request sent at `sent`."""
        self._until = max(self._until, sent + self._ttl)

    def holds(self, now: float) -> bool:
        """Return whether the host may serve at `now`."""
        return now < self._until
