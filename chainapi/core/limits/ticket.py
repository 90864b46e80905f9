"""Ticket: a request that waits for its turn, and how long it may wait."""

from __future__ import annotations

from math import inf
from typing import Protocol

from chainapi.core.limits.lane import Waiter

__all__ = ["Ceiling", "Ticket"]


class Ceiling(Protocol):
    """Ceiling of a session: a token bucket that each request pays before it leaves.

    Other parts of the program may share it, so it has a clock of its own.
    """

    def toll(self, units: float, requests: float = 1.0) -> float:
        """Return the tokens that requests with `units` units of the quota cost."""
        ...

    def ready(self, toll: float) -> bool:
        """Return whether it has the tokens now, or as many as it can have."""
        ...

    def wait(self, toll: float) -> float:
        """Return the seconds until it has the tokens; 0 if it has them now."""
        ...


class Ticket(Waiter):
    """Request in the queue, with the times until which it may wait.

    Attributes:
        ceiling: what it pays before it leaves, at its turn; None for most.
        paid: whether it did.
        max_wait: most seconds that it waits.
        waits_until: when these are over.
        deadline: end of the whole call.

    """

    ceiling: Ceiling | None = None
    paid: bool = False
    max_wait: float = inf
    waits_until: float = inf
    deadline: float = inf

    @property
    def latest(self) -> float:
        """Latest time of its turn."""
        return min(self.waits_until, self.deadline)

    @property
    def owes(self) -> Ceiling | None:
        """The ceiling that it has to pay before its grant; None if it has none, or paid."""
        return None if self.paid else self.ceiling

    @property
    def over(self) -> bool:
        """Whether its caller awaits no turn: it was woken, or gave up."""
        return False
