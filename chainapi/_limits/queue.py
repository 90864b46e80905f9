"""Queue of a gate: which request leaves next. Pure.

A flow is the waiting requests that are alike: of one rank, process, session with limits of its own, route
and documented cost. It is first come, first served, and all of its requests may leave or none. So the next
request is the first of a flow whose route is open and whose session has a place. The rules:

1. Requests that had an attempt before go first, or a turn that a stop took back. Then the best rank; but of
   `SHARE` units that leave while lower ranks could use them, one goes to the oldest request of these.
2. Within a rank, the processes take turns: that with the fewest units since it began to wait is next. A
   process that begins to wait has as many as the one with the fewest: a pause earns no credit. Within a
   process, the flow whose first request came first is next.
3. A request of a session with a ceiling pays it at its turn, one at a time. Others pass it meanwhile.
4. All others wait behind a request that the quota holds back. Only cheaper ones use units that are too few
   for it, at most its own cost in all.
5. A request that will surely leave too late fails as soon as that is known (`chainapi._limits.deadlines`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, takewhile
from math import ceil, inf
from operator import attrgetter
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen
from msgspec import Struct

from chainapi._limits.quota import Decision, Quota, Reservation
from chainapi.core.private import Private

__all__ = [
    "SHARE",
    "Ask",
    "Flow",
    "ProcessLine",
    "Queue",
    "RequestGroup",
    "Wait",
    "Waiter",
    "WaitingLimit",
    "lowest_start",
]

SHARE = 10  # lower ranks get one of this many units
RESTING = 8  # processes without a waiter that a rank remembers at least, because their last turn was early
WORTH_REPORTING = 1.0  # seconds: no shorter wait is reported

_number_of = attrgetter("number")


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
        tag: name of the spender in the snapshot; None uses the tag of the session.
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


class Waiter(Private, Struct, eq=False):
    """Request in the queue.

    Attributes:
        number: those that came later have higher ones.
        rank: the lower one goes first.
        waits_until: when its `max_wait` is over.
        flow: its flow; None while it pays, and after its turn.
        waits: whether it is in the queue, or pays.
        units: its predicted cost when it came.
        paid: whether it paid the ceiling of its session.
        passed: units of cheaper ones that left before it.
        charge: units by which its turn changed what is owed to lower ranks.
        reservation: set when it leaves.

    """

    number: int
    ask: Ask
    rank: float
    group: RequestGroup | None = None
    process: str = ""
    waits_until: float = inf
    flow: Flow[Any] | None = None
    waits: bool = False
    units: float = 0.0
    paid: bool = False
    passed: float = 0.0
    charge: float = 0.0
    reservation: Reservation | None = None

    @property
    def latest(self) -> float:
        """Latest time of its turn."""
        return min(self.waits_until, self.ask.deadline)

    @property
    def owes(self) -> bool:
        """Whether it has to pay a ceiling before it leaves."""
        return not self.paid and self.group is not None and self.group.ceiling is not None

    @property
    def over(self) -> bool:
        """Whether its caller awaits no turn any more."""
        return False


W = TypeVar("W", bound=Waiter)


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
class RequestGroup:
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
    paying: Waiter | None = None

    def free(self, rank: float) -> float:
        """Return the number of requests of a rank that may leave; none while one pays."""
        most = self.most if self.places is None else min(self.most, self.places(rank))
        free = max(0.0, most - self.in_flight)
        return free if self.ceiling is None else min(free, float(self.paying is None))


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


@define(eq=False, repr=False)
class Flow(Generic[W]):
    """Waiting requests that are alike, in the order of their numbers.

    A request joins at the end and leaves at the front in constant time. Anywhere else, others move up.
    """

    line: ProcessLine[W]
    group: RequestGroup | None
    route: str
    prior: float | None
    waiters: dict[int, W] = field(factory=dict[int, W])
    _numbers: list[int] = field(factory=list[int])
    _start: int = 0  # numbers of those in front, which left

    @property
    def first(self) -> int | None:
        """Number of the first request; None without one."""
        return self._numbers[self._start] if self.waiters else None

    def before(self, number: float) -> int:
        """Return how many came before the one with a number."""
        return bisect_left(self._numbers, number, lo=self._start) - self._start

    def add(self, waiter: W) -> None:
        """Insert a request by its number: one that had its turn before goes in front."""
        insort(self._numbers, waiter.number, lo=self._start)
        self.waiters[waiter.number] = waiter
        waiter.flow = self

    def remove(self, waiter: W) -> None:
        """Remove a request."""
        number = waiter.number
        del self.waiters[number]
        waiter.flow = None
        if self._numbers[self._start] != number:
            del self._numbers[bisect_left(self._numbers, number, lo=self._start)]
        else:
            self._start += 1
            if 2 * self._start >= len(self._numbers):
                del self._numbers[: self._start]
                self._start = 0


@define(eq=False, repr=False)
class ProcessLine(Generic[W]):
    """Flows of one process within a rank.

    Attributes:
        start: units granted to the process, on a scale of its rank.
        heads: the flows by the numbers of their first requests.

    """

    rank: float
    process: str
    start: float = 0.0
    flows: dict[tuple[RequestGroup | None, str, float | None], Flow[W]] = field(factory=dict[Any, "Flow[W]"])
    heads: list[tuple[int, Flow[W]]] = field(factory=list[tuple[int, "Flow[W]"]])

    def turn(self) -> tuple[float, int]:
        """Return its place among the lines of its rank, if it has requests."""
        return self.start, self.heads[0][0]

    def add(self, waiter: W) -> None:
        """Insert a request into its flow."""
        ask = waiter.ask
        key = waiter.group, ask.route, ask.cost
        flow = self.flows.get(key)
        if flow is None:
            flow = self.flows[key] = Flow(self, *key)
        first = flow.first
        flow.add(waiter)
        self._place(flow, first)

    def remove(self, waiter: W) -> None:
        """Remove a request from its flow."""
        flow: Flow[W] | None = waiter.flow
        assert flow is not None  # noqa: S101 - the request is in this line
        first = flow.first
        flow.remove(waiter)
        self._place(flow, first)

    def _place(self, flow: Flow[W], before: int | None) -> None:
        """Order a flow by its first request, which may be another one than before."""
        first = flow.first
        if first == before:
            return
        if before is not None:
            del self.heads[bisect_left(self.heads, (before,))]
        if first is None:
            del self.flows[flow.group, flow.route, flow.prior]
        else:
            insort(self.heads, (first, flow))


def lowest_start(lines: Mapping[str, ProcessLine[W]]) -> float:
    """Return the lowest start of the processes that wait; no other begins below."""
    return min((line.start for line in lines.values() if line.heads), default=0.0)


@define(eq=False, repr=False)
class Queue(Generic[W]):
    """Queue of the requests that wait for one quota.

    Attributes:
        waiting: number of all of them.
        units: sum of their costs, as each was predicted when it came.
        wakes_at: time at which the next one may leave; inf if a response decides.
        wait: the wait of all of them, if its end is known and a second or more away.
        ranks: the lines of each rank that waits by their processes, the best rank first.
        owed: units that lower ranks wait for, times SHARE - 1.
        unanswered_since: when the oldest request was sent since the last response; inf without one.

    """

    quota: Quota
    waiting: int = field(default=0, init=False)
    units: float = field(default=0.0, init=False)
    wakes_at: float = field(default=inf, init=False)
    wait: Wait = field(default=Wait(), init=False)
    ranks: dict[float, dict[str, ProcessLine[W]]] = field(
        factory=dict[float, dict[str, "ProcessLine[W]"]], init=False
    )
    owed: float = field(default=0.0, init=False)
    _charge: float = field(default=0.0, init=False)  # what the turn that was found last changes of it
    _reopens: float = field(default=inf, init=False)  # when the first closed route opens
    unanswered_since: float = field(default=inf, init=False)

    # --- requests that do not wait ----------------------------------------------------------

    def reserve(self, now: float, route: str, prior: float | None) -> Reservation | None:
        """Reserve units for a request that may leave now; return None if it has to wait."""
        quota = self.quota
        cost = quota.costs.price(route, prior)
        decision = quota.decide(now, cost, route, prior)
        if decision.when > now or (
            quota.routes.known and quota.routes.opens_at(route, now, quota.patience) > now
        ):
            quota.wait(decision)
            return None
        self.unanswered_since = min(self.unanswered_since, now)
        return quota.send(decision, now, route, cost, prior)

    def answered(self, now: float) -> None:
        """Record that a response arrived, before its request is not in flight any more."""
        self.unanswered_since = now if self.quota.in_flight > 1 else inf

    # --- requests that wait -----------------------------------------------------------------

    def add(self, waiter: W) -> bool:
        """Add a request; return whether one may leave because of it.

        None may if it waits behind others that are alike.
        """
        waiter.waits = True
        self.waiting += 1
        self._join(waiter)
        return waiter.flow is not None and waiter.flow.first == waiter.number

    def put_back(self, waiter: W) -> None:
        """Return a request that paid to its place; put another one before all."""
        if not waiter.waits:
            waiter.waits, waiter.rank = True, -inf
            self.waiting += 1
        elif waiter.group is not None:
            waiter.group.paying = None
        self._join(waiter)

    def remove(self, waiter: W) -> None:
        """Remove a request that gave up."""
        waiter.waits = False
        self.waiting -= 1
        if waiter.flow is not None:
            self._take(waiter)
        if waiter.group is not None and waiter.group.paying is waiter:
            waiter.group.paying = None

    def take_back(self, waiter: W) -> None:
        """Take back the turn of a request that did not leave."""
        reservation, waiter.reservation = waiter.reservation, None
        assert reservation is not None  # noqa: S101 - it had its turn
        self.owed -= waiter.charge
        if waiter.group is not None:
            waiter.group.in_flight -= 1
        self.quota.unsent(reservation)

    def flows(self) -> Iterator[Flow[W]]:
        """Yield all flows; those that pay are in none."""
        for lines in self.ranks.values():
            for line in lines.values():
                yield from line.flows.values()

    def all(self) -> list[W]:
        """Return all requests but for those that pay."""
        return [waiter for flow in self.flows() for waiter in flow.waiters.values()]

    def _join(self, waiter: W) -> None:
        """Insert a request into the line of its rank and process."""
        lines = self.ranks.get(waiter.rank)
        if lines is None:
            lines = self.ranks[waiter.rank] = {}
            self.ranks = dict(sorted(self.ranks.items()))
        line = lines.get(waiter.process)
        if line is None or not line.heads:
            lowest = lowest_start(lines)
            if line is None:
                if len(lines) >= RESTING:
                    for idle in [one for one in lines.values() if not one.heads and one.start <= lowest]:
                        del lines[idle.process]
                line = lines[waiter.process] = ProcessLine(waiter.rank, waiter.process)
            line.start = max(line.start, lowest)
        line.add(waiter)
        waiter.units = self._price(waiter)
        self.units += waiter.units
        if waiter.group is not None:
            waiter.group.waiting += 1

    def _take(self, waiter: W) -> None:
        """Take a request out of its flow."""
        flow: Flow[W] | None = waiter.flow
        assert flow is not None  # noqa: S101 - it is in one
        line = flow.line
        line.remove(waiter)
        self.units -= waiter.units
        if waiter.group is not None:
            waiter.group.waiting -= 1
        if not line.heads and not any(one.heads for one in self.ranks[line.rank].values()):
            del self.ranks[line.rank]  # and the shares of its processes
        if not self.ranks:
            self.owed = self.units = 0.0

    # --- turns ------------------------------------------------------------------------------

    def next(self, now: float) -> W | None:
        """Return the next request whose turn is now; None sets `wakes_at`.

        It has a reservation, and left the queue. Or it has to pay its ceiling first, and then to be put back.
        """
        self.wait, self._reopens = Wait(), inf
        while (first := None if self.quota.full else self._turn(now)) is not None and first.over:
            self.remove(first)  # cancelled, and its task did not run yet
        if first is None:
            self._hold(now, self._reopens, "stop" if not self.quota.in_flight else "")
            return None
        cost = self._price(first)
        decision = self.quota.decide(now, cost, first.ask.route, first.ask.cost)
        if decision.when <= now:
            return self._leave(now, first, decision, cost)
        self.quota.wait(decision)
        cheaper = None if first.owes else self._cheaper(now, first, cost)
        if cheaper is None:
            stopped = decision.when == self.quota.stopped_until
            probed = self.quota.hedges_at(now) is not None  # a wait for its response is no news
            self._hold(now, decision.when, "" if probed else "stop" if stopped else "quota")
        return cheaper

    def _hold(self, now: float, until: float, reason: str) -> None:
        """Let all requests wait until a time."""
        self.wakes_at = min(until, self._reopens)
        if self.waiting and reason and now + WORTH_REPORTING <= until < inf:
            self.wait = Wait(until, reason)

    def _turn(self, now: float) -> W | None:
        """Return the request that is next, but for the quota."""
        self._charge = 0.0
        first: W | None = None
        lower: W | None = None
        for lines in self.ranks.values():
            heads = self._heads(lines, now)
            if first is None:
                first = next(heads, None)
                if first is not None and (first.rank == -inf or len(self.ranks) == 1):
                    return first
            else:
                lower = min(filter(None, (lower, *heads)), key=_number_of, default=None)
        if first is None or lower is None:
            return first
        due = (SHARE - 1) * self._likely(lower)
        if self.owed >= due:
            self._charge = -due
            return lower
        self._charge = self._likely(first)
        return first

    def _heads(self, lines: dict[str, ProcessLine[W]], now: float, most: float = inf) -> Iterator[W]:
        """Yield the first request of each line of a rank, in turn.

        All may leave but for the quota. With `most`, they cost at most that, and owe nothing.
        """
        waits = (line for line in lines.values() if line.heads)
        in_turn = waits if len(lines) == 1 else sorted(waits, key=ProcessLine.turn)
        return filter(None, (self._first(line, now, most) for line in in_turn))

    def _first(self, line: ProcessLine[W], now: float, most: float) -> W | None:
        for number, flow in line.heads:
            waiter = flow.waiters[number]
            if flow.group is not None and not flow.group.free(line.rank):
                continue
            opens = self.quota.routes.opens_at(flow.route, now, self.quota.patience)
            if opens > now:
                self._reopens = min(self._reopens, opens)
            elif most == inf or not (waiter.owes or self._price(waiter) > most):
                return waiter
        return None

    def _leave(self, now: float, waiter: W, decision: Decision, cost: float) -> W:
        """Let a request leave, or pay before it leaves."""
        flow: Flow[W] | None = waiter.flow
        assert flow is not None  # noqa: S101 - it waits
        self._take(waiter)
        ask, group = waiter.ask, waiter.group
        if group is not None and waiter.owes:
            self.quota.wait(decision)  # until it has paid
            group.paying = waiter
            return waiter
        flow.line.start += cost or 1.0
        waiter.charge, waiter.waits = self._charge, False
        self.owed += self._charge
        self.waiting -= 1
        if group is not None:
            group.in_flight += 1
        self.unanswered_since = min(self.unanswered_since, now)
        waiter.reservation = self.quota.send(decision, now, ask.route, cost, ask.cost)
        return waiter

    def _cheaper(self, now: float, first: W, cost: float) -> W | None:
        """Return a cheaper request of no lower rank, for units too few for the first.

        So no units are lost when a window ends, and an expensive request waits at most twice as long.
        """
        line = None if first.flow is None else first.flow.line
        if line is None or (len(self.ranks) == 1 and len(self.ranks[line.rank]) == len(line.flows) == 1):
            return None  # all others are alike
        room = min(self.quota.room(now, first.ask.route, cost), cost - first.passed)
        better = takewhile(first.rank.__ge__, self.ranks)
        heads = (head for rank in better for head in self._heads(self.ranks[rank], now, room))
        cheaper = next(heads, None) if room > 0 else None
        if cheaper is None or cheaper.over:
            return None
        self._charge = 0.0
        units = self._price(cheaper)
        decision = self.quota.decide(now, units, cheaper.ask.route, cheaper.ask.cost)
        if decision.when > now:
            self.quota.wait(decision)
            return None
        first.passed += units
        return self._leave(now, cheaper, decision, units)

    def _likely(self, waiter: W) -> float:
        """Return the likely price: the margin held for an unknown one is spent by nobody."""
        return self.quota.costs.likely(waiter.ask.route, waiter.ask.cost) or 1.0

    def _price(self, waiter: W) -> float:
        return self.quota.costs.price(waiter.ask.route, waiter.ask.cost)
