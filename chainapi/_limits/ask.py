"""Demands at a gate, and limits and waits of those who share it. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import count
from math import ceil, inf

from attrs import define, field, frozen
from msgspec import Struct

from chainapi.core.private import Private

__all__ = ["WORTH_REPORTING", "Ask", "Group", "Wait", "WaitingLimit", "share"]

WORTH_REPORTING = 1.0  # seconds: no shorter wait is reported


@frozen(eq=False)
class WaitingLimit:
    """Limit on the calls that wait for a quota at once.

    Attributes:
        most: calls that may wait.
        number: the calls with the same number are counted together; by default it is unique in the process.

    """

    most: float
    number: int = field(factory=count().__next__)


class Ask(Private, Struct, frozen=True):
    """Demand of a request at a gate.

    Attributes:
        route: requests of one route cost the same.
        cost: the documented cost in units. It counts only if the service is known to count units, and until
            responses show the real cost.
        priority: a higher one goes first.
        tag: name of the spender in the snapshot; None uses that of the session.
        max_wait: seconds after which its turn would be too late; None for no limit.
        deadline: time of the loop after which its turn would be too late. The caller enforces it.
        again: whether it was refused or lost before: then it goes before all others.
        limit: counts the requests of a session that wait, and refuses those beyond; never with `again`.

    """

    route: str = ""
    cost: float | None = None
    priority: int = 0
    tag: str | None = None
    max_wait: float | None = None
    deadline: float = inf
    again: bool = False
    limit: WaitingLimit | None = None


def share(places: float, ranks: Sequence[float], rank: float) -> float:
    """Return the places in flight of one of several processes for a rank.

    The processes that have requests of the rank or of a better one divide the places. So a process whose
    requests are all of a lower rank takes no place from one with a better rank. Retries count as requests of
    the best rank. `ranks` has the best rank of each busy process, sorted.
    """
    if len(ranks) < 2:
        return inf
    processes = bisect_right(ranks, max(rank, ranks[0]))
    return inf if processes < 2 else ceil(places / processes)


@define(eq=False, repr=False)
class Group:
    """Requests with limits of their own: of a session, or of a process.

    Those without a place hold up nobody else, and count in no forecast of others.

    Args:
        most: most requests in flight at once.
        ceiling: returns the seconds until the ceiling has the tokens of units and requests; None without one.
        places: returns its share of places that groups divide, for requests of a rank; None without one.

    """

    most: float = inf
    ceiling: Callable[[float, float], float] | None = None
    places: Callable[[float], float] | None = None
    in_flight: int = 0
    waiting: int = 0  # but for the one that pays
    paying: bool = False

    def free(self, rank: float) -> float:
        """Return the number of requests of a rank that may leave; none while one pays."""
        most = self.most if self.places is None else min(self.most, self.places(rank))
        free = max(0.0, most - self.in_flight)
        return free if self.ceiling is None else min(free, float(not self.paying))


class Wait(Struct, frozen=True):
    """Wait of requests until a known time.

    The reason is a ``"stop"``, the ``"quota"`` or the ``"rate"``.
    """

    until: float = -inf
    reason: str = ""

    def is_news(self, reported: Wait, now: float) -> bool:
        """Return whether it is long, and not the wait that was reported last.

        Its end is a second or more away from the end of that one, or later for another reason: each response
        may move the end of a wait a little.
        """
        if self.until < now + WORTH_REPORTING:
            return False
        later = self.until > reported.until and self.reason != reported.reason
        return later or abs(self.until - reported.until) >= WORTH_REPORTING
