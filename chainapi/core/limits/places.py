"""Places in a queue: units and requests that leave before a waiter.

They depend on the shares of all ranks that wait.
"""

from __future__ import annotations

from math import floor, inf
from typing import Any

from attrs import define

from chainapi.core.limits.group import Aside
from chainapi.core.limits.lane import Waiter
from chainapi.core.limits.ranks import SHARE, Ranks

__all__ = ["ahead"]

CLOSE = 1e-9  # requests: rounding errors


@define
class _Load:
    """Waiting requests of a rank: their units and number, and its debt to lower ones."""

    units: float = 0.0
    number: float = 0.0
    owed: float = inf

    def add(self, other: _Load) -> None:
        """Add what others wait for."""
        self.units += other.units
        self.number += other.number

    def part(self, most: float, *, whole: bool = False) -> _Load:
        """Return a part of them of at most some units.

        With `whole`, it has whole requests of the mean cost.
        """
        if self.units <= most:
            return _Load(self.units, self.number)
        share = max(0.0, most) / self.units
        number = self.number * share
        if whole:
            share *= floor(number + CLOSE) / number if number else 0.0
        return _Load(self.units * share, self.number * share)


def ahead(ranks: Ranks[Any], aside: Aside | None, waiter: Waiter, *, last: bool) -> tuple[float, float]:
    """Return units and number of the waiters before a waiter, or before a new one.

    `aside` are those that stand aside in its group. With `last`, all those that leave before it could come
    again and find no other of its rank or of a better one.
    """
    until = inf if last and waiter.rank == -inf else waiter.rank
    lanes = [lane for lane in ranks.lanes.values() if lane.waiting]
    if aside is None and all(lane.rank == waiter.rank for lane in lanes):  # nearly always
        return lanes[0].ahead(waiter, until, last=last) if lanes else (0.0, 0.0)
    return _shared(ranks, _loads(ranks, aside, waiter, until, last=last), waiter, until, last=last)


def _shared(
    ranks: Ranks[Any], loads: dict[float, _Load], waiter: Waiter, until: float, *, last: bool
) -> tuple[float, float]:
    """Return units and number before a waiter, by the shares of the ranks."""
    retries = loads.pop(-inf, _Load())
    own, lower = _sum(loads, until, last=last), _Load()
    for rank, load in loads.items():
        if rank > until:
            lower.add(load)
    if lower.number and until > -inf:
        debts = [load.owed for rank, load in loads.items() if rank == until or (last and rank < until)]
        debt = max(debts, default=ranks.owed(until))
        own.add(lower.part((debt + own.units) / (SHARE - 1), whole=not last))
    if not last:
        cost = ranks.costs.likely(waiter.route, waiter.prior)
        for rank in sorted((rank for rank in loads if rank < until), reverse=True):
            own.add(loads[rank].part((SHARE - 1) * (own.units + cost) - loads[rank].owed))
    return retries.units + own.units, retries.number + own.number


def _loads(
    ranks: Ranks[Any], aside: Aside | None, waiter: Waiter, until: float, *, last: bool
) -> dict[float, _Load]:
    """Return what waits in each rank; in that of the waiter, only what is before it."""
    before = 0.0
    if aside is not None and waiter.rank in aside.lanes:
        before = aside.lanes[waiter.rank].ahead(waiter, waiter.rank, last=last)[0]
    loads = dict[float, _Load]()
    for pool in (ranks,) if aside is None else (ranks, aside):
        for rank, lane in pool.lanes.items():
            if lane.waiting:
                units, number = lane.ahead(waiter, until if rank == until else inf, last=last, aside=before)
                load = loads.setdefault(rank, _Load())
                load.add(_Load(units, number))
                load.owed = min(load.owed, pool.owed(rank))
    return loads


def _sum(loads: dict[float, _Load], until: float, *, last: bool) -> _Load:
    """Return what waits in the rank of a waiter, and with `last` in better ones too."""
    own = _Load()
    for rank, load in loads.items():
        if rank == until or (last and rank < until):
            own.add(load)
    return own
