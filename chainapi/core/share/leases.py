"""Leases: permits granted in advance, for requests of one session and route."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from math import inf

from attrs import define, field

__all__ = ["Leases"]


@define(eq=False, repr=False)
class _Lease:
    """Unused permits, and the time of their last use."""

    numbers: deque[int]
    used: float


@define(eq=False, repr=False)
class Leases:
    """Unused permits of a process, by the kind of request that may use them.

    Args:
        idle: seconds without a use after which a lease goes back.

    """

    idle: float
    _known: dict[Hashable, _Lease] = field(factory=dict[Hashable, _Lease], init=False)

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, kind: Hashable, numbers: Iterable[int], now: float) -> None:
        """Keep permits for requests of a kind."""
        lease = self._known.setdefault(kind, _Lease(deque(), now))
        lease.numbers.extend(numbers)
        lease.used = now

    def take(self, kind: Hashable, now: float) -> int | None:
        """Return a permit for a request of a kind, to use now; None without any."""
        lease = self._known.get(kind)
        if lease is None:
            return None
        number = lease.numbers.popleft()
        lease.used = now
        if not lease.numbers:
            del self._known[kind]
        return number

    def unused(self, now: float = inf) -> tuple[int, ...]:
        """Remove and return the permits that nothing used for `idle` seconds.

        Without a time, all of them.
        """
        kinds = [kind for kind, lease in self._known.items() if now - lease.used >= self.idle]
        return tuple(number for kind in kinds for number in self._known.pop(kind).numbers)
