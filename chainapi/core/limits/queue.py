"""Queue of a gate: ranks, processes in turn within each, waiting units.

Within a rank, the requests of each process are served first come, first served. Running totals give the
units and requests ahead of a request, without a walk through the queue.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import Generic, TypeVar

from attrs import define, field

from chainapi.core.limits.costs import Costs
from chainapi.core.limits.lane import Group, Lane, Waiter, number_of

__all__ = ["Queue"]

FLOOR = 8  # at least one of this many grants goes to the longest waiter, at any rank


W = TypeVar("W", bound=Waiter)


@define(eq=False, repr=False)
class Queue(Generic[W]):
    """Queue of waiters for a turn, and of those parked because their route is closed.

    Attributes:
        waiting: number of all waiters.
        parked_until: when the first of the parked ones may return; inf if a response decides.

    """

    costs: Costs
    waiting: int = field(default=0, init=False)
    parked_until: float = inf
    _lanes: dict[float, Lane[W]] = field(factory=dict[float, Lane[W]])
    _aside: dict[Group, None] = field(factory=dict[Group, None])
    _freed: dict[Group, None] = field(factory=dict[Group, None])
    _parked: dict[str, dict[W, None]] = field(factory=dict[str, dict[W, None]])
    _favoured: int = 0

    def add(self, waiter: W) -> None:
        """Add a waiter, or add it again at its old place.

        Waiters that stand aside take free places first.
        """
        self.fill()
        waiter.queued = True
        self.waiting += 1
        self._place(waiter)

    def remove(self, waiter: W, *, granted: bool = False) -> None:
        """Remove a waiter that was `granted` its turn or gave up."""
        waiter.queued = False
        self.waiting -= 1
        if waiter.parked:
            waiter.parked = False
            self._parked[waiter.route].pop(waiter, None)
        self._take_out(waiter, granted=granted)
        if granted and len(self._lanes) > 1:
            self._favour(waiter)

    def _place(self, waiter: W) -> None:
        """Put a waiter in its lane, or aside if its group has no room.

        It may take the place of a waiter of its group with a worse rank.
        """
        group = waiter.group
        if group is not None:
            if not group.room and not self._displace_for(waiter, group):
                self._put_aside(waiter, group)
                return
            group.count(waiter, 1)
        lane = self._lanes.get(waiter.rank)
        if lane is None:
            lane = self._lanes[waiter.rank] = Lane(self.costs, waiter.rank)
            self._lanes = dict(sorted(self._lanes.items()))
        lane.add(waiter)

    def _put_aside(self, waiter: W, group: Group) -> None:
        waiter.entered = None
        self._aside[group] = None
        lane = group.lanes.get(waiter.rank)
        if lane is None:
            lane = group.lanes[waiter.rank] = Lane(self.costs, waiter.rank)
        lane.add(waiter)

    def _displace_for(self, waiter: W, group: Group) -> bool:
        """Put the last waiter of a group's worst rank aside for a better one.

        Return False if there is no such waiter.
        """
        worst, best = max(group.ranks, default=waiter.rank), group.best()
        if worst <= waiter.rank:
            return False
        if best is not None and (best.rank, best.number) < (waiter.rank, waiter.number):
            return False  # it came when no waiter could make room, and keeps its turn
        last = self._lanes[worst].last_of(group, waiter.process)
        if last is None:  # that waiter pays
            return False
        self._take_out(last)
        self._put_aside(last, group)
        return True

    def _take_out(self, waiter: W, *, granted: bool = False) -> None:
        if waiter.flow is not None:
            waiter.flow.lane.remove(waiter, granted=granted)
        if waiter.inside and waiter.group is not None:
            waiter.group.count(waiter, -1)
            self._freed[waiter.group] = None

    def step_out(self, waiter: W) -> None:
        """Let others pass a paying waiter; it keeps its place in its group."""
        if waiter.flow is not None:
            waiter.flow.lane.remove(waiter)

    def step_in(self, waiter: W) -> None:
        """Return a waiter that paid to its old place."""
        self._lanes[waiter.rank].add(waiter)

    def freed(self, group: Group) -> None:
        """Record that a request of a group ended."""
        self._freed[group] = None

    def fill(self) -> None:
        """Move waiters that stand aside to the free places of their groups."""
        while self._freed:
            group, _ = self._freed.popitem()
            while group.room and (best := group.best()) is not None:
                best.flow.lane.remove(best)
                best.entered = None
                self._place(best)
            if group in self._aside and group.best() is None:
                del self._aside[group]

    def _favour(self, waiter: W) -> None:
        """Count grants in a row while a waiter of a worse rank waits."""
        if waiter.rank == -inf:
            return
        lower = any(lane.waiting for rank, lane in self._lanes.items() if rank > waiter.rank)
        self._favoured = self._favoured + 1 if lower else 0

    def first(self) -> W | None:
        """Return the waiter with the next turn."""
        firsts = (lane.first() for lane in self._lanes.values())
        best = next((one for one in firsts if one is not None), None)
        if best is None or best.rank == -inf or self._favoured < FLOOR - 1:
            return best
        return min((one for one in (best, *firsts) if one is not None), key=number_of)

    def behind(self, waiter: W, number: int) -> list[W]:
        """Return waiters of the rank of `waiter`, the first one, among the next `number`.

        `waiter` itself is left out.
        """
        return self._lanes[waiter.rank].behind(waiter, number)

    def ahead(self, waiter: W, *, last: bool = False) -> tuple[float, float]:
        """Return units and number of the waiters before a waiter, or before a new one.

        With `last`, as if the waiter left and came again as a new one, without the rank of a retry. The
        counts treat a waiter that gave up behind this one as if it had been before it; they include waiters
        that stand aside only for others of their group.
        """
        units, number = 0.0, 0.0
        until = inf if last and waiter.rank == -inf else waiter.rank
        aside = {} if waiter.group is None else waiter.group.lanes
        own = aside[waiter.rank].ahead(waiter, waiter.rank, last=last)[0] if waiter.rank in aside else 0.0
        for lane in (*self._lanes.values(), *aside.values()):
            if lane.rank <= until:
                more, others = lane.ahead(waiter, until, last=last, aside=own)
                units, number = units + more, number + others
        return units, number

    def cheapest(self) -> float:
        """Return the lowest cost of a waiter, in units."""
        return min((lane.cheapest() for lane in self._lanes.values()), default=inf)

    def all(self) -> list[W]:
        """Return all waiters, including those that stand aside."""
        lanes = [*self._lanes.values(), *(lane for group in self._aside for lane in group.lanes.values())]
        waiters = [one for lane in lanes for one in lane.all()]
        return waiters + [one for parked in self._parked.values() for one in parked]

    # --- closed routes ----------------------------------------------------------------------

    def park(self, waiter: W, until: float) -> None:
        """Park a waiter until a time; inf if a response decides."""
        self._take_out(waiter)
        waiter.parked = True
        self._parked.setdefault(waiter.route, {})[waiter] = None
        self.parked_until = min(self.parked_until, until)

    def parked_routes(self) -> list[str]:
        """Return the routes of parked waiters; `unpark` then sets `parked_until` again."""
        if self._parked:
            self.parked_until = inf
            self._parked = {route: parked for route, parked in self._parked.items() if parked}
        return list(self._parked)

    def unpark(self, route: str, places: float, until: float) -> None:
        """Put some of a route's waiters back; the others stay parked until a time."""
        parked = self._parked[route]
        number = len(parked) if places == inf else min(len(parked), int(places))
        for waiter in sorted(islice(parked, number), key=number_of, reverse=True):
            del parked[waiter]
            waiter.parked = False
            self._place(waiter)
        if parked:
            self.parked_until = min(self.parked_until, until)
