"""Queue of a gate: ranks with a floor, processes in turn, waiting units.

Within a rank, the requests of each process are served first come, first served. Running totals give the
units and requests ahead of a request, without a walk through the queue.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import Generic, TypeVar

from attrs import define, field

from chainapi.core.limits import places
from chainapi.core.limits.costs import Costs
from chainapi.core.limits.group import Group
from chainapi.core.limits.lane import Waiter, number_of
from chainapi.core.limits.ranks import Ranks, take_back

__all__ = ["Queue"]

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
    ranks: Ranks[W] = field(init=False)
    _aside: dict[Group, None] = field(factory=dict[Group, None])
    _freed: dict[Group, None] = field(factory=dict[Group, None])
    _parked: dict[str, dict[W, None]] = field(factory=dict[str, dict[W, None]])

    def __attrs_post_init__(self) -> None:
        self.ranks = Ranks(self.costs)

    def add(self, waiter: W, *, returns: bool = False) -> bool:
        """Add a waiter, or add one that `returns` at its old place.

        Waiters that stand aside take free places first, but not the place of one that returns. The result
        is whether a request may leave because of it: not if the same one is first as before, and all have
        one cost, and no route is closed.
        """
        first = None if self._freed or self._parked else self.first()
        if not returns:
            self.fill()
        waiter.queued = True
        self.waiting += 1
        self._place(waiter, returns=returns)
        if first is None or self.first() is not first:
            return True
        return not all(lane.has_only(waiter) for lane in self.ranks.lanes.values())

    def remove(self, waiter: W, *, granted: bool = False) -> None:
        """Remove a waiter that was `granted` its turn or gave up."""
        waiter.queued = False
        self.waiting -= 1
        if waiter.parked:
            waiter.parked = False
            self._parked[waiter.route].pop(waiter, None)
        self._take_out(waiter, granted=granted)
        if not granted:
            take_back(waiter)
        elif len(self.ranks.lanes) > 1:
            self.ranks.charge(waiter)

    def take_back(self, waiter: W) -> None:
        """Take back a grant whose request did not leave: it counts for no rank."""
        take_back(waiter)

    def _place(self, waiter: W, *, returns: bool = False) -> None:
        """Put a waiter in its lane, or aside if its group has no room.

        It may take the place of a waiter of its group with a worse rank. One that `returns` had room.
        """
        group = waiter.group
        if group is not None:
            if not returns and not group.room(waiter.rank) and not self._displace_for(waiter, group):
                self._put_aside(waiter, group)
                return
            group.enter(waiter)
        self.ranks.add(waiter)

    def _put_aside(self, waiter: W, group: Group) -> None:
        waiter.entered = False
        self._aside[group] = None
        if group.aside is None:
            group.aside = Ranks(self.costs)
        group.aside.add(waiter)

    def _displace_for(self, waiter: W, group: Group) -> bool:
        """Put the last waiter of a group's worst rank aside for a better one.

        Return False if there is no such waiter: none has a worse rank, or it pays, or the floor of its rank
        gave it its turn.
        """
        worst = group.displaceable(waiter)
        last = None if worst is None else self.ranks.lanes[worst].last_of(group, waiter.process)
        if last is None:
            return False
        self._take_out(last)
        take_back(last)
        self._put_aside(last, group)
        return True

    def _take_out(self, waiter: W, *, granted: bool = False) -> None:
        if waiter.flow is not None:
            waiter.flow.lane.remove(waiter, granted=granted)
        if waiter.inside and waiter.group is not None:
            waiter.group.leave(waiter)
            self._freed[waiter.group] = None

    def step_out(self, waiter: W) -> None:
        """Let others pass a paying waiter; it keeps its place in its group."""
        if waiter.flow is not None:
            waiter.flow.lane.remove(waiter)

    def step_in(self, waiter: W) -> None:
        """Return a waiter that paid to its old place."""
        self.ranks.add(waiter)

    def freed(self, group: Group) -> None:
        """Record that a request of a group ended."""
        self._freed[group] = None

    def fill(self) -> None:
        """Move waiters that stand aside to the free places of their groups."""
        while self._freed:
            group, _ = self._freed.popitem()
            while (first := group.first()) is not None:
                first.flow.lane.remove(first)
                first.entered = False
                self._place(first)
            if group.aside is not None and group.aside.best() is None:
                del self._aside[group]
                group.aside = None

    def first(self) -> W | None:
        """Return the waiter with the next turn."""
        return self.ranks.first()

    def behind(self, waiter: W, number: int) -> list[W]:
        """Return waiters of the best rank among the next `number`.

        `waiter`, the one with the next turn, is left out.
        """
        lanes = self.ranks.lanes.values()
        return next((lane.behind(waiter, number) for lane in lanes if lane.waiting), [])

    def ahead(self, waiter: W, *, last: bool = False) -> tuple[float, float]:
        """Return units and number of the waiters before a waiter, or before a new one.

        With `last`, for a waiter that left: as if it came again as a new one when nobody is before it,
        without the rank of a retry. The counts include waiters that stand aside only for others of their
        group.
        """
        aside = None if waiter.group is None else waiter.group.aside
        return places.ahead(self.ranks, aside, waiter, last=last)

    def cheapest(self) -> float:
        """Return the lowest cost of a waiter, in units."""
        return min((lane.cheapest() for lane in self.ranks.lanes.values()), default=inf)

    def all(self) -> list[W]:
        """Return all waiters, including those that stand aside."""
        pools = [self.ranks, *(group.aside for group in self._aside if group.aside is not None)]
        waiters = [one for pool in pools for lane in pool.lanes.values() for one in lane.all()]
        return waiters + [one for parked in self._parked.values() for one in parked]

    # --- closed routes ----------------------------------------------------------------------

    def park(self, waiter: W, until: float) -> None:
        """Park a waiter until a time; inf if a response decides."""
        self._take_out(waiter)
        take_back(waiter)
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
