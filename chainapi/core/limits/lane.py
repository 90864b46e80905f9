"""Lane of a queue: start-time fair queueing of processes, within one rank.

Each process has a flow, first come, first served. The flow with the lowest start is next, and each grant
moves its start by the cost of the request. A flow that begins to wait starts at the lowest start of those
that wait already: a pause earns no credit. While two processes wait, the units granted to them in one lane
differ by at most the highest cost of the one and that of the other. With one process, a lane is a plain
queue.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from math import ceil, floor, inf
from typing import Any, Generic, TypeVar

from attrs import define, field
from msgspec import Struct

from chainapi.core.limits.costs import Costs
from chainapi.core.limits.group import Group
from chainapi.core.limits.line import Line
from chainapi.core.private import Private

__all__ = ["Lane", "Waiter", "number_of"]

RESTING = 8  # flows without a waiter that a lane remembers at least, because their last turn was early


class Waiter(Private, Struct, eq=False):
    """Request in the queue.

    The lower `rank` goes first, then its process's turn, then the lower `number`.

    Attributes:
        queued: whether it is in the queue.
        parked: whether it waits for its route to open.
        inside: whether it is counted in its group.
        flow: its flow; None while it is parked or stepped out.
        start: start of its flow, before its grant moved it.
        passed: units of later waiters that left before it.
        charges: changes of what ranks owe to lower ones, by its grant: balances, rank, and units.
        entered: whether it has a place in its lane, also while it is parked or stepped out.

    """

    number: int
    rank: float
    route: str
    prior: float | None
    group: Group | None = None
    process: str = ""
    queued: bool = False
    parked: bool = False
    inside: bool = False
    flow: _Flow[Any] | None = None
    start: float | None = None
    passed: float = 0.0
    charges: tuple[tuple[dict[float, float], float, float], ...] = ()
    entered: bool = False

    @property
    def by_floor(self) -> bool:
        """Whether it had its turn before waiters of a better rank."""
        return any(units < 0 for _, _, units in self.charges)


W = TypeVar("W", bound=Waiter)


def number_of(waiter: Waiter) -> int:
    """Return the number of a waiter: the order in which waiters came."""
    return waiter.number


@define(eq=False, repr=False)
class _Load:
    """Waiting requests by route and documented cost, and the sum of their units."""

    costs: Costs
    kinds: dict[tuple[str, float | None], int] = field(factory=dict[tuple[str, float | None], int])
    _units: float = 0.0
    _priced: object = None

    def count(self, waiter: Waiter, number: int) -> None:
        """Count a waiter in or out."""
        kind, kinds = (waiter.route, waiter.prior), self.kinds
        if left := kinds.get(kind, 0) + number:
            kinds[kind] = left
        else:
            del kinds[kind]
        if self._priced == (self.costs.version, self.costs.units):
            # Exactly zero without waiters, or rounding errors would accumulate over the years.
            self._units = self._units + number * self.costs.likely(*kind) if kinds else 0.0

    @property
    def units(self) -> float:
        """Return the waiting units, at the current prices."""
        priced = (self.costs.version, self.costs.units)
        if priced != self._priced:
            self._priced = priced
            self._units = sum(self.costs.likely(*kind) * number for kind, number in self.kinds.items())
        return self._units


@define(eq=False, repr=False)
class _Flow(Generic[W]):
    """Waiters of one process in a lane, in the order of their numbers."""

    lane: Lane[W]
    process: str
    load: _Load
    start: float = 0.0  # units: of its next request, on a scale of its lane
    turn: tuple[float, int, str] | None = None  # its place among the flows that wait, if there are several
    waiters: Line[W] = field(factory=Line[W])

    @property
    def waiting(self) -> int:
        """Number of its waiters."""
        return len(self.waiters)

    def first(self) -> W | None:
        """Return the waiter that came first."""
        return self.waiters.first()

    def add(self, waiter: W) -> None:
        """Insert a waiter by its number: one that had a grant before goes in front."""
        self.waiters.add(waiter)
        waiter.flow, waiter.entered = self, True
        self.load.count(waiter, 1)

    def remove(self, waiter: W) -> None:
        """Remove a waiter."""
        self.waiters.remove(waiter)
        waiter.flow = None
        self.load.count(waiter, -1)

    def ahead(self, waiter: Waiter) -> tuple[float, int]:
        """Return units and number of the waiters before a waiter of this process.

        Each waiter counts with the mean cost. All are before a new one.
        """
        waiting = len(self.waiters)
        if not waiter.entered or not waiting:
            return self.load.units, waiting
        before = self.waiters.before(waiter.number)
        return self.load.units * before / waiting, before

    def until(self, turn: float, number: int) -> tuple[float, int]:
        """Return units and number of the waiters whose turn is before another process's.

        With the same start, the lower number goes first. Each waiter counts with the mean cost.
        """
        first = self.first()
        if first is None or turn < self.start:
            return 0.0, 0
        mean = self.load.units / self.waiting or 1.0
        turns = (turn - self.start) / mean
        before = min(self.waiting, floor(turns) + 1 if first.number < number else ceil(turns))
        return before * mean, before


@define(eq=False, repr=False)
class Lane(Generic[W]):
    """Waiters of one rank; their processes take turns."""

    costs: Costs
    rank: float
    waiting: int = 0
    _flows: dict[str, _Flow[W]] = field(factory=dict[str, _Flow[W]])
    _only: _Flow[W] | None = None  # the flow of a lane that has one
    _turns: list[tuple[float, int, str]] = field(factory=list[tuple[float, int, str]])  # of several flows
    _load: _Load = field(init=False)  # of all flows; that of the flow if there is one

    def __attrs_post_init__(self) -> None:
        self._load = _Load(self.costs)

    def first(self) -> W | None:
        """Return the waiter with the next turn."""
        if self._only is not None:
            return self._only.waiters.first()
        return self._flows[self._turns[0][2]].first() if self._turns else None

    def add(self, waiter: W) -> None:
        """Insert a waiter; one that had a grant before returns to its old place."""
        only = self._only
        flow = self._flow_of(waiter.process) if only is None or only.process != waiter.process else only
        if waiter.start is not None:
            flow.start, waiter.start = min(flow.start, waiter.start), None
        elif not flow.waiting and self._turns:
            flow.start = max(flow.start, self._turns[0][0])
        flow.add(waiter)
        self.waiting += 1
        if self._only is None:
            self._load.count(waiter, 1)
            self._place(flow)

    def remove(self, waiter: W, *, granted: bool = False) -> None:
        """Remove a waiter that was `granted` its turn, or gave up."""
        flow: _Flow[W] | None = waiter.flow
        assert flow is not None  # noqa: S101 - the waiter is in this lane
        flow.remove(waiter)
        self.waiting -= 1
        if self._only is not None:
            return
        self._load.count(waiter, -1)
        if granted:
            waiter.start = flow.start
            flow.start += self.costs.price(waiter.route, waiter.prior) or 1.0
        self._place(flow)
        if not self.waiting:
            self._keep([flow])
        elif len(self._turns) == 1 or len(self._flows) > 2 * len(self._turns) + RESTING:
            now = self._turns[0][0]
            self._keep([one for one in self._flows.values() if one.waiting or one.start > now])

    def ahead(
        self, waiter: Waiter, rank: float, *, last: bool = False, aside: float = 0.0
    ) -> tuple[float, float]:
        """Return units and number of the waiters before a waiter, or before a new one.

        With `last`, as if the waiter came again as a new one. `aside` are units of its own process that go
        before it, but stand aside.
        """
        if rank > self.rank or not self.waiting:
            return self._load.units, self.waiting
        if self._only is not None and self._only.process == waiter.process:
            return (self._load.units, self.waiting) if last else self._only.ahead(waiter)
        return self._ahead_of(waiter, aside, last=last)

    def _ahead_of(self, waiter: Waiter, aside: float, *, last: bool) -> tuple[float, float]:
        """Return units and number of the waiters before one of several processes."""
        flow = self._flows.get(waiter.process)
        now = min(one.start for one in self._flows.values() if one.waiting)
        start, units, number = now, 0.0, 0
        if flow is not None:
            start = flow.start if flow.waiting else max(now, flow.start)
            units, number = (flow.load.units, flow.waiting) if last else flow.ahead(waiter)
        turn, place = start + units + aside, waiter.number
        if last or not waiter.entered:
            place = 2**63
        for other in self._flows.values():
            if other is not flow and other.waiting:
                more, others = other.until(turn, place)
                units, number = units + more, number + others
        return units, number

    def behind(self, waiter: W, number: int) -> list[W]:
        """Return waiters among the next `number`, at most `number` - 1.

        `waiter` is left out.
        """
        if self._only is not None:
            return [one for one in islice(self._only.waiters, number) if one is not waiter]
        flows = [self._flows[process] for _, _, process in islice(self._turns, number)]
        share = max(2, number // max(1, len(flows)))
        heads = [one for flow in flows for one in islice(flow.waiters, share)]
        return [one for one in heads if one is not waiter][: number - 1]

    def last_of(self, group: Group, process: str) -> W | None:
        """Return the last waiter of a group, which is of one process.

        Those that have their turn by the floor of their rank are left out.
        """
        flow = self._flows.get(process)
        waiters = () if flow is None else reversed(flow.waiters)
        mine = (one for one in waiters if one.group is group)
        return next((one for one in mine if not one.by_floor), None)

    def has_only(self, waiter: Waiter) -> bool:
        """Return whether each waiter has the cost of this one; it may be of another lane."""
        kinds = self._load.kinds
        return not kinds or (len(kinds) == 1 and (waiter.route, waiter.prior) in kinds)

    def cheapest(self) -> float:
        """Return the lowest cost of a waiter."""
        return min((self.costs.price(*kind) for kind in self._load.kinds), default=inf)

    def all(self) -> list[W]:
        """Return all waiters."""
        return [one for flow in self._flows.values() for one in flow.waiters]

    # --- turns ------------------------------------------------------------------------------

    def _flow_of(self, process: str) -> _Flow[W]:
        """Return the flow of a process; a new one if the process did not wait lately."""
        now = 0.0 if not self._flows else self._turns[0][0] if self._only is None else self._only.start
        if not self.waiting:
            self._flows.clear()
        flow = self._flows.get(process)
        if flow is None:
            flow = self._flows[process] = _Flow(self, process, _Load(self.costs), now)
            if len(self._flows) == 1:
                self._only, self._load = flow, flow.load
            elif self._only is not None:
                self._divide(self._only)
        return flow

    def _divide(self, only: _Flow[W]) -> None:
        """Let flows take turns from now on."""
        self._only, self._load = None, _Load(self.costs, dict(only.load.kinds))
        self._place(only)

    def _place(self, flow: _Flow[W]) -> None:
        """Put a flow in its place among the others; take it out if nobody waits in it."""
        turns, first = self._turns, flow.first()
        turn = None if first is None else (flow.start, first.number, flow.process)
        if turn == flow.turn:
            return
        if flow.turn is not None:
            del turns[bisect_left(turns, flow.turn)]
        if turn is not None:
            insort(turns, turn)
        flow.turn = turn

    def _keep(self, flows: list[_Flow[W]]) -> None:
        """Forget all flows but these."""
        self._flows = {flow.process: flow for flow in flows}
        if len(flows) == 1:
            self._only, self._load = flows[0], flows[0].load
            self._only.turn = None
            self._turns.clear()
