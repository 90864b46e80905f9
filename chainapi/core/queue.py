"""The queue before a gate: ranks, first come first served within each, and the units that wait in it.

What is ahead of a request is known from cumulated sums, never by going through the queue.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from itertools import chain, islice
from math import inf
from typing import Generic, TypeVar

from attrs import define, field

from chainapi.core.costs import Costs

__all__ = ["Queue", "Waiter"]

FLOOR = 8  # of so many grants one at least goes to who waited longest, whatever its rank


class Waiter:
    """A request in the queue; one of a lower `rank` goes first, of equals the one with the lower number."""

    __slots__ = ("entered", "number", "parked", "passed", "prior", "queued", "rank", "route")

    def __init__(self, number: int, rank: float, route: str, prior: float | None) -> None:
        self.number, self.rank, self.route, self.prior = number, rank, route, prior
        self.queued = False
        self.parked = False
        self.passed = 0.0  # units that went before it although they came after it
        self.entered: int | None = None  # how many had entered its lane before it


W = TypeVar("W", bound=Waiter)


def _number(waiter: Waiter) -> int:
    return waiter.number


@define(eq=False, repr=False)
class _Lane(Generic[W]):
    """Waiters of one rank in the order of their numbers; who left is skipped when its turn comes."""

    costs: Costs
    waiters: deque[W] = field(factory=deque[W])
    waiting: int = 0
    entered: int = 0
    left: int = 0
    _kinds: Counter[tuple[str, float | None]] = field(factory=Counter[tuple[str, float | None]])
    _units: float = 0.0
    _priced: object = None

    def first(self) -> W | None:
        """Return the waiter whose turn it is."""
        waiters = self.waiters
        while waiters:
            if waiters[0].queued and not waiters[0].parked:
                return waiters[0]
            waiters.popleft()
        return None

    def add(self, waiter: W) -> None:
        """Put a waiter at its place, which for one that was granted before is in front."""
        waiters = self.waiters
        if not waiters or waiters[-1].number < waiter.number:
            waiters.append(waiter)
        elif waiter.number < waiters[0].number:
            waiters.appendleft(waiter)
        else:
            insort(waiters, waiter, key=_number)
        if waiter.entered is None:
            waiter.entered = self.entered
        self.entered += 1
        self.waiting += 1
        self._count(waiter, 1)

    def remove(self, waiter: W) -> None:
        """Take a waiter out; sweep when those who left outnumber those who wait."""
        self.waiting -= 1
        self.left += 1
        self._count(waiter, -1)
        if self.waiters and self.waiters[0] is waiter:
            self.waiters.popleft()
        elif len(self.waiters) > 2 * self.waiting + 16:
            self.waiters = deque(one for one in self.waiters if one.queued and not one.parked)

    @property
    def units(self) -> float:
        """Return the units that wait, at today's prices."""
        priced = (self.costs.version, self.costs.units)
        if priced != self._priced:
            self._priced = priced
            self._units = sum(self.costs.likely(*kind) * number for kind, number in self._kinds.items())
        return self._units

    def cheapest(self) -> float:
        """Return the least that a waiter costs."""
        return min((self.costs.price(*kind) for kind in self._kinds), default=inf)

    def _count(self, waiter: W, number: int) -> None:
        kind = (waiter.route, waiter.prior)
        self._kinds[kind] += number
        if not self._kinds[kind]:
            del self._kinds[kind]
        if self._priced == (self.costs.version, self.costs.units):
            self._units = self._units + number * self.costs.likely(*kind) if self.waiting else 0.0


@define(eq=False, repr=False)
class Queue(Generic[W]):
    """Who waits for a turn, and who stands aside because its route is closed."""

    costs: Costs
    parked_until: float = inf
    _lanes: dict[float, _Lane[W]] = field(factory=dict[float, _Lane[W]])
    _parked: dict[str, dict[W, None]] = field(factory=dict[str, dict[W, None]])
    _waiting: int = 0
    _favoured: int = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, waiter: W) -> None:
        """Let a waiter enter, or enter again at its old place."""
        lane = self._lanes.get(waiter.rank)
        if lane is None:
            lane = self._lanes[waiter.rank] = _Lane(self.costs)
            self._lanes = dict(sorted(self._lanes.items()))
        waiter.queued = True
        lane.add(waiter)
        self._waiting += 1

    def remove(self, waiter: W, *, granted: bool = False) -> None:
        """Take a waiter out, which was `granted` its turn or gave up."""
        waiter.queued = False
        self._waiting -= 1
        if waiter.parked:
            waiter.parked = False
            self._parked[waiter.route].pop(waiter, None)
            return
        self._lanes[waiter.rank].remove(waiter)
        if granted and len(self._lanes) > 1:
            self._favour(waiter)

    def _favour(self, waiter: W) -> None:
        """Count how many in a row went before others that have waited for longer, at a lower rank."""
        if waiter.rank == -inf:
            return
        lower = any(lane.waiting for rank, lane in self._lanes.items() if rank > waiter.rank)
        self._favoured = self._favoured + 1 if lower else 0

    def first(self) -> W | None:
        """Return whose turn it is."""
        firsts = (lane.first() for lane in self._lanes.values())
        best = next((one for one in firsts if one is not None), None)
        if best is None or best.rank == -inf or self._favoured < FLOOR - 1:
            return best
        return min((one for one in (best, *firsts) if one is not None), key=_number)

    def behind(self, waiter: W, number: int) -> list[W]:
        """Return waiters of the same rank that come after one, some of the next `number`."""
        after = islice(self._lanes[waiter.rank].waiters, 1, number)
        return [one for one in after if one.queued and not one.parked and one is not waiter]

    def ahead(self, waiter: W, *, last: bool = False) -> tuple[float, int]:
        """Return the units and the number of those before a waiter, or before a newcomer of its rank.

        With `last`, the waiter leaves and comes again, as a newcomer whatever rank its retry has now. Who
        gave up behind a waiter is counted as if it had been before it.
        """
        units, number = 0.0, 0
        until = inf if last and waiter.rank == -inf else waiter.rank
        for rank, lane in self._lanes.items():
            if rank > until:
                break
            if rank < waiter.rank or last or waiter.entered is None:
                units, number = units + lane.units, number + lane.waiting
            elif lane.waiting:
                before = min(lane.waiting, max(0, waiter.entered - lane.left))
                units, number = units + lane.units * before / lane.waiting, number + before
        return units, number

    def cheapest(self) -> float:
        """Return the least that a waiter costs, in units."""
        return min((lane.cheapest() for lane in self._lanes.values()), default=inf)

    def all(self) -> list[W]:
        """Return all waiters, those that stand aside as well."""
        waiters = chain.from_iterable(lane.waiters for lane in self._lanes.values())
        return [one for one in waiters if one.queued and not one.parked] + [
            one for parked in self._parked.values() for one in parked
        ]

    # --- closed routes ----------------------------------------------------------------------

    def park(self, waiter: W, until: float) -> None:
        """Let a waiter stand aside until a time; inf leaves that to an answer."""
        self._lanes[waiter.rank].remove(waiter)
        waiter.parked = True
        self._parked.setdefault(waiter.route, {})[waiter] = None
        self.parked_until = min(self.parked_until, until)

    def parked_routes(self) -> list[str]:
        """Return the routes whose waiters stand aside; `unpark` says again until when they do."""
        if self._parked:
            self.parked_until = inf
            self._parked = {route: parked for route, parked in self._parked.items() if parked}
        return list(self._parked)

    def unpark(self, route: str, places: float, until: float) -> None:
        """Put so many of a route's waiters back; the others stand aside until a time."""
        parked = self._parked[route]
        number = len(parked) if places == inf else min(len(parked), int(places))
        for waiter in sorted(islice(parked, number), key=_number, reverse=True):
            del parked[waiter]
            waiter.parked = False
            self._lanes[waiter.rank].add(waiter)
        if parked:
            self.parked_until = min(self.parked_until, until)
