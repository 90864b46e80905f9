"""Forecasts of waiting requests: what leaves before each, and which will leave too late. Pure.

What waits counts for a request of another session or route only as far as it may leave: if its route is open,
and its session has a place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import ceil, floor, inf
from typing import Generic, NamedTuple, TypeVar

from attrs import define, field

from chainapi._limits.queue import SHARE, Flow, Group, Line, Queue, Waiter, number_of
from chainapi.core.limits.quota import Quota

__all__ = ["CLOSE", "Deadlines", "Late"]

GRACE = 1.0  # seconds by which a forecast must exceed the limit of a waiter to fail it early: it may be wrong
CLOSE = 0.05  # seconds: a request waits for a turn as close as this
UNANSWERED = 5.0  # seconds without any response after which the service is assumed to hang
MOVED = 1.0  # seconds by which the opening of a quota moves at least before all waiters are checked again
ROUNDING = 1e-9  # requests

W = TypeVar("W", bound=Waiter)


class Late(NamedTuple, Generic[W]):
    """Request that failed because it would leave too late.

    A new attempt would leave after some `seconds`; None if no request was answered for as long as it waited.
    """

    waiter: W
    seconds: float | None


@define
class _Load:
    """Requests that wait: their units and number."""

    units: float = 0.0
    requests: float = 0.0

    def add(self, units: float, requests: float) -> None:
        """Count more of them."""
        self.units += units
        self.requests += requests

    def part(self, most: float, *, whole: bool = False) -> tuple[float, float]:
        """Return units and number of a part of them, of at most some units.

        With `whole`, it has whole requests of the mean cost.
        """
        if self.units <= most:
            return self.units, self.requests
        share = max(0.0, most) / self.units
        number = self.requests * share
        if whole:
            share *= floor(number + ROUNDING) / number if number else 0.0
        return self.units * share, self.requests * share


class _Kind(NamedTuple):
    """Flow as it counts for others.

    Attributes:
        units: predicted cost of each of its requests.
        shown: known cost of each, which a ceiling takes.
        share: part of the requests that counts for others.
        place: its closed route, else its group: all of it counts for requests of the same one.

    """

    units: float
    shown: float
    share: float
    place: str | Group | None


@define(eq=False, repr=False)
class Deadlines(Generic[W]):
    """Limits to the waits of the requests of a queue, compared with their predicted turns.

    Attributes:
        check_at: when the first `max_wait` may be over.

    """

    queue: Queue[W]
    check_at: float = field(default=inf, init=False)
    _earliest: float = field(default=inf, init=False)  # no request has to leave before
    _next_check: float = field(default=-inf, init=False)  # at the earliest
    _checked: tuple[float, bool] = field(default=(-inf, False), init=False)  # opening, and whether idle
    _refused: bool = field(default=False, init=False)  # whether a refusal came since the last check

    def refused(self) -> None:
        """Record a refusal: it may have closed a route, or moved the opening of the quota."""
        self._refused = True

    def watch(self, waiter: W) -> None:
        """Check a new request when its `max_wait` is over."""
        self.check_at = min(self.check_at, max(waiter.waits_until, self._next_check))
        self._earliest = min(self._earliest, waiter.latest)

    def misses(self, now: float, waiter: W) -> bool:
        """Return whether a new request will surely leave too late."""
        if waiter.latest == inf:
            return False
        return now + _Forecast(self.queue, now).least(waiter) > waiter.latest + CLOSE

    def again(self, now: float, waiter: W) -> float:
        """Return the seconds after which a new attempt would leave at once; it is not in the queue."""
        return _Forecast(self.queue, now).cleared(waiter, joins=True)

    def cleared(self, now: float, waiter: W, *, joins: bool) -> float:
        """Return the seconds after which the requests that wait now have left.

        With `joins`, the request leaves as well, because none may wait. A request without a response holds
        its place in flight for about a round trip.
        """
        quota, group = self.queue.quota, waiter.group
        places = quota.max_in_flight if group is None else min(quota.max_in_flight, group.most)
        trips = ceil((self.queue.waiting + joins) / places) * quota.probes.trip
        probe = None if trips else quota.probes.opens_at(now)  # before the first response
        behind = _Forecast(self.queue, now).cleared(waiter, joins=joins)
        return max(behind, trips, 0.0 if probe is None else probe - now)

    def late(self, now: float) -> list[Late[W]]:
        """Remove the requests that will leave too late, and return them.

        Each new request was checked already, so this is necessary only after a refusal, when the opening of
        the quota moved, when nothing is in flight any more (until then more units may be left than the known
        responses show), and when a `max_wait` is over.
        """
        queue = self.queue
        if not queue.waiting:
            self.check_at = self._earliest = inf
            return []
        idle, (opens, was_idle) = not queue.quota.in_flight, self._checked
        moved = now < queue.wakes_at < inf and (queue.wakes_at >= opens + MOVED or idle > was_idle)
        if not (moved or self._refused or self.check_at <= now):
            return []
        if moved:
            self._checked = queue.wakes_at, idle
        self._refused = False
        forecast = _Forecast(queue, now)
        if self.check_at > now and forecast.horizon <= self._earliest + GRACE:
            return []
        missed, silent = self._sort_out(now, forecast)
        for waiter in (*missed, *silent):
            queue.remove(waiter)
        self._next_check = now + CLOSE  # for all that end in the meantime
        self.check_at = min((_check_at(waiter, now) for waiter in queue.all()), default=inf)
        self._earliest = min((waiter.latest for waiter in queue.all()), default=inf)
        again = {
            kind: self.again(now, waiter) for kind, waiter in {_alike(one): one for one in missed}.items()
        }
        late = [Late(waiter, again[_alike(waiter)]) for waiter in missed]
        return late + [Late(waiter, None) for waiter in silent]

    def _sort_out(self, now: float, forecast: _Forecast[W]) -> tuple[list[W], list[W]]:
        """Return the requests that will leave too late, and those that wait for no quota but an answer."""
        missed, silent, since = list[W](), list[W](), self.queue.unanswered_since
        for waiter, seconds in forecast.of_all():
            due = waiter.waits_until <= now
            if seconds > CLOSE and (due or now + seconds > waiter.latest + GRACE):
                missed.append(waiter)
            elif due and since <= now - max(waiter.ask.max_wait or 0.0, UNANSWERED):
                silent.append(waiter)
        return missed, silent


def _alike(waiter: Waiter) -> tuple[object, ...]:
    """Return what requests have in common that may come again at the same time."""
    return waiter.rank, waiter.process, waiter.group, waiter.ask.route, waiter.ask.cost


def _check_at(waiter: Waiter, now: float) -> float:
    """Return when the `max_wait` of a request has to be checked, or checked again."""
    until = waiter.waits_until
    return now + GRACE if until <= now else max(until, now + CLOSE)


@define(eq=False, repr=False)
class _Forecast(Generic[W]):
    """Forecast of what leaves before requests, at one time."""

    queue: Queue[W]
    now: float
    _quota: Quota = field(init=False)
    _kinds: dict[Flow[W], _Kind] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._quota = self.queue.quota
        self._kinds = {
            flow: self._kind(flow)
            for lines in self.queue.ranks.values()
            for line in lines.values()
            for flow in line.flows.values()
        }

    def _kind(self, flow: Flow[W]) -> _Kind:
        costs, group, route, prior = self._quota.costs, flow.group, flow.route, flow.prior
        units, shown = costs.likely(route, prior), costs.shown(route, prior)
        if self._quota.routes.opens_at(route, self.now) > self.now:
            return _Kind(units, shown, 0.0, route)
        share = 1.0 if group is None else min(1.0, group.free(flow.line.rank) / group.waiting)
        return _Kind(units, shown, share, group)

    # --- one request ------------------------------------------------------------------------

    def least(self, waiter: W) -> float:
        """Return the seconds until a new request leaves at the earliest.

        Without an unconfirmed documented cost: the queue holds the request for that cost all the same.
        """
        own, mine = self._before(waiter, last=False)
        return self._wait(waiter, own, mine, self._loads(), least=True)

    def cleared(self, waiter: W, *, joins: bool) -> float:
        """Return the seconds until all that wait have left, and a request that `joins` them.

        One that pays a ceiling is not among them, so the ceiling is that of one more in any case.
        """
        own, mine = self._before(waiter, last=True)
        units, requests = self._ahead(waiter, own, self._loads(self._place(waiter)), 0.0, last=True)
        cost = self._quota.costs.price(waiter.ask.route, waiter.ask.cost)
        seconds = self._quota.forecast(self.now, units + cost * joins, requests + joins)
        return self._quota.promise(self.now, max(seconds, self._own_limits(waiter, mine)))

    def _place(self, waiter: W) -> str | Group | None:
        route = waiter.ask.route
        return route if self._quota.routes.opens_at(route, self.now) > self.now else waiter.group

    def _before(self, waiter: W, *, last: bool) -> tuple[_Load, _Load]:
        """Return what is before a new request in its line, and in its group if that has a ceiling."""
        own, mine, place = _Load(), _Load(), self._place(waiter)
        for flow, kind in self._kinds.items():
            number, line = len(flow.waiters), flow.line
            if line.rank == waiter.rank and line.process == waiter.process:
                counted = number * (1.0 if kind.place is place or kind.place == place else kind.share)
                own.add(counted * kind.units, counted)
            if flow.group is waiter.group and (last or line.rank == waiter.rank):
                mine.add(number * kind.shown, number)
        return own, mine

    # --- all requests -----------------------------------------------------------------------

    def of_all(self) -> Iterator[tuple[W, float]]:
        """Yield the requests that may leave too late, with the seconds until they leave."""
        loads, horizon = self._loads(), self.horizon - GRACE
        for line in loads:
            own, mine, hidden = _Load(), defaultdict[object, _Load](_Load), defaultdict[object, _Load](_Load)
            waiters = (waiter for flow in line.flows.values() for waiter in flow.waiters.values())
            for waiter in sorted(waiters, key=number_of):
                flow: Flow[W] | None = waiter.flow
                assert flow is not None  # noqa: S101 - it waits in the line
                kind = self._kinds[flow]
                due = waiter.waits_until <= self.now
                if (due or waiter.latest < horizon) and not waiter.over:
                    before = _Load(
                        own.units + hidden[kind.place].units, own.requests + hidden[kind.place].requests
                    )
                    yield waiter, self._wait(waiter, before, mine[flow.group], loads, least=not due)
                own.add(kind.units * kind.share, kind.share)
                hidden[kind.place].add(kind.units * (1.0 - kind.share), 1.0 - kind.share)
                mine[flow.group].add(kind.shown, 1.0)

    @property
    def horizon(self) -> float:
        """Return the time at which all have left, as far as limits decide that."""
        units, requests, closed = 0.0, 0.0, self.now
        paced = defaultdict[Group, _Load](_Load)
        for flow, kind in self._kinds.items():
            number, group = len(flow.waiters), flow.group
            units, requests = units + kind.units * number, requests + number
            closed = max(closed, self._quota.routes.closed_until(flow.route))
            if group is not None and group.ceiling is not None:
                paced[group].add(kind.shown * number, number)
        seconds = self._quota.forecast(self.now, units, requests, least=True)
        ceilings = (
            group.ceiling(load.units, load.requests) for group, load in paced.items() if group.ceiling
        )
        return max(self.now + seconds, closed, *(self.now + one for one in ceilings))

    # --- what is before a request -----------------------------------------------------------

    def _loads(self, place: str | Group | None = None) -> dict[Line[W], _Load]:
        """Return what waits in each line, as far as it counts for a request of a route or group."""
        loads = dict[Line[W], _Load]()
        for flow, kind in self._kinds.items():
            share = 1.0 if place is not None and kind.place == place else kind.share
            number = len(flow.waiters) * share
            loads.setdefault(flow.line, _Load()).add(number * kind.units, number)
        return loads

    def _ahead(
        self, waiter: W, own: _Load, loads: dict[Line[W], _Load], cost: float, *, last: bool = False
    ) -> tuple[float, float]:
        """Return units and number of the requests before one, `own` of which are in its line.

        With `last`, all those that leave before it could come again and find no other of its rank or of a
        better one; it would come without the rank of a retry.
        """
        queue, rank = self.queue, inf if last and waiter.rank == -inf else waiter.rank
        turn = self._start(waiter) + own.units
        own, retries, better, lower = _Load(own.units, own.requests), _Load(), _Load(), _Load()
        for line, load in loads.items():
            if line.rank == waiter.rank and line.process == waiter.process:
                continue
            if line.rank == rank:
                own.add(*_until(line, load, turn, waiter))
            else:
                among = retries if line.rank == -inf else better if line.rank < rank else lower
                among.add(load.units, load.requests)
        if last:
            own.add(better.units, better.requests)
        if rank > -inf and (last or not better.requests):
            own.add(*lower.part((queue.owed + own.units) / (SHARE - 1), whole=not last))
        if not last:
            own.add(*better.part((SHARE - 1) * (own.units + cost) - queue.owed))
        return own.units + retries.units, own.requests + retries.requests

    def _start(self, waiter: W) -> float:
        """Return the start of the process of a request in its rank; see `Line`."""
        lines = self.queue.ranks.get(waiter.rank, {})
        line = lines.get(waiter.process)
        if line is not None and line.heads:
            return line.start
        lowest = min((one.start for one in lines.values() if one.heads), default=0.0)
        return lowest if line is None else max(line.start, lowest)

    def _wait(self, waiter: W, own: _Load, mine: _Load, loads: dict[Line[W], _Load], *, least: bool) -> float:
        """Return the seconds until a request leaves, as far as limits decide that."""
        costs, route, prior = self._quota.costs, waiter.ask.route, waiter.ask.cost
        cost = costs.likely(route, prior) if least else costs.price(route, prior)
        units, requests = self._ahead(waiter, own, loads, cost)
        seconds = self._quota.forecast(self.now, units + cost, requests + 1.0, least=least)
        return max(seconds, self._own_limits(waiter, mine))

    def _own_limits(self, waiter: W, mine: _Load) -> float:
        """Return the seconds until its route and its ceiling let a request leave."""
        group, ask = waiter.group, waiter.ask
        seconds = self._quota.routes.closed_until(ask.route) - self.now
        if group is None or group.ceiling is None or waiter.paid:
            return seconds
        cost = self._quota.costs.shown(ask.route, ask.cost)
        return max(seconds, group.ceiling(mine.units + cost, mine.requests + 1.0))


def _until(line: Line[W], load: _Load, turn: float, waiter: Waiter) -> tuple[float, float]:
    """Return units and number of the requests of a line whose turn is before that of another process.

    With the same start, the lower number goes first. Each request counts with the mean cost.
    """
    if not load.requests or turn < line.start:
        return 0.0, 0.0
    mean = load.units / load.requests or 1.0
    turns = (turn - line.start) / mean
    first = waiter.flow is None or line.heads[0][0] < waiter.number
    before = min(load.requests, floor(turns) + 1.0 if first else ceil(turns))
    return before * mean, before
