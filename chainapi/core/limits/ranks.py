"""Waiters by rank: the best rank first, with a floor for the lower ones.

While a rank and lower ones wait, the lower ones together get one of `SHARE` units, and the rank gets the
others. Among the lower ones the same rule holds again. So each rank owes the lower ones units for those that
it was granted, and the next lower waiter leaves first as soon as the debt covers its cost: a rank never gets
less than its share, and the lower ones get theirs, minus one request at most. Retries are a rank before all
others; they owe nothing. Ranks that do not wait earn nothing.
"""

from __future__ import annotations

from math import inf
from typing import Generic, TypeVar

from attrs import define, field

from chainapi.core.limits.costs import Costs
from chainapi.core.limits.lane import Lane, Waiter

__all__ = ["SHARE", "Ranks", "take_back"]

SHARE = 10  # lower ranks get one of this many units
MOST_IDLE = 32  # ranks remembered although none of their waiters is left

W = TypeVar("W", bound=Waiter)


@define(eq=False, repr=False)
class Ranks(Generic[W]):
    """Lanes of waiters by rank, and what each rank owes to those below.

    Attributes:
        costs: costs of their requests.
        lanes: the waiters of each rank, the best rank first.

    """

    costs: Costs
    lanes: dict[float, Lane[W]] = field(factory=dict[float, Lane[W]], init=False)
    _owed: dict[float, float] = field(factory=dict[float, float], init=False)  # units, times SHARE - 1

    def add(self, waiter: W) -> None:
        """Insert a waiter into the lane of its rank."""
        lane = self.lanes.get(waiter.rank)
        if lane is None:
            lane = self._new_lane(waiter.rank)
        lane.add(waiter)

    def _new_lane(self, rank: float) -> Lane[W]:
        lanes = [*self.lanes.values(), Lane[W](self.costs, rank)]
        if len(lanes) > MOST_IDLE:
            lanes = [lane for lane in lanes if lane.waiting or lane.rank == rank]
            for idle in self._owed.keys() - {lane.rank for lane in lanes}:
                del self._owed[idle]
        self.lanes = {lane.rank: lane for lane in sorted(lanes, key=_rank_of)}
        return self.lanes[rank]

    def first(self) -> W | None:
        """Return the waiter with the next turn."""
        if len(self.lanes) == 1:
            return self.best()
        turn: W | None = None
        for rank, lane in reversed(self.lanes.items()):
            one = lane.first()
            if one is not None and (turn is None or not self._owes(rank, turn)):
                turn = one
        return turn

    def _owes(self, rank: float, lower: W) -> bool:
        """Return whether a rank owes a lower waiter its turn."""
        return rank > -inf and self.owed(rank) >= (SHARE - 1) * self._cost(lower)

    def owed(self, rank: float) -> float:
        """Return the units for which a rank owes lower ones one of `SHARE` - 1."""
        return self._owed.get(rank, 0.0)

    def best(self) -> W | None:
        """Return the first waiter of the best rank."""
        for lane in self.lanes.values():
            if (one := lane.first()) is not None:
                return one
        return None

    def charge(self, waiter: W) -> None:
        """Record the grant of a waiter.

        Its rank owes lower ones for it, and better ranks that wait paid a part of their debts.
        """
        if waiter.rank == -inf:
            return
        cost, lower = self._cost(waiter), False
        for rank, lane in self.lanes.items():
            if lane.waiting and -inf < rank < waiter.rank:
                self._charge(waiter, rank, (1 - SHARE) * cost)
            lower = lower or (rank > waiter.rank and lane.waiting > 0)
        if lower:
            self._charge(waiter, waiter.rank, cost)

    def _charge(self, waiter: W, rank: float, units: float) -> None:
        self._owed[rank] = self.owed(rank) + units
        waiter.charges = (*waiter.charges, (self._owed, rank, units))

    def _cost(self, waiter: W) -> float:
        """Return the units of a request; a free one counts as one."""
        return self.costs.price(waiter.route, waiter.prior) or 1.0


def take_back(waiter: Waiter) -> None:
    """Take back the grants of a waiter: they count for no rank."""
    for owed, rank, units in waiter.charges:
        owed[rank] = owed.get(rank, 0.0) - units
    waiter.charges = ()


def _rank_of(lane: Lane[W]) -> float:
    return lane.rank
