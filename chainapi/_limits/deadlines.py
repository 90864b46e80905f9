"""Forecasts of waiting requests: what leaves before each, and which are late.

Pure. What waits counts for a request of another session or route only as far as it may leave: if its route
is open, and its session has a place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf
from typing import Generic, NamedTuple, TypeVar

from attrs import define, field

from chainapi._limits.queue import SHARE, Flow, ProcessLine, Queue, RequestGroup, Waiter, lowest_start
from chainapi._limits.quota import Quota

__all__ = ["CLOSE", "Deadlines"]

GRACE = 1.0  # seconds by which a forecast must exceed the limit of a waiter to fail it early: it may be wrong
CLOSE = 0.05  # seconds: a request waits for a turn as close as this
UNANSWERED = 5.0  # seconds without any response after which the service is assumed to hang
MOVED = 1.0  # seconds by which the opening of a quota moves at least before all waiters are checked again
ROUNDING = 1e-9  # requests

W = TypeVar("W", bound=Waiter)


@define(eq=False, repr=False)
class Deadlines(Generic[W]):
    """Limits to the waits of requests, compared with their predicted turns.

    Attributes:
        check_at: when the first `max_wait` may be over.

    """

    queue: Queue[W]
    check_at: float = field(default=inf, init=False)
    _next_check: float = field(default=-inf, init=False)  # at the earliest
    _earliest: float = field(default=inf, init=False)  # no request has to leave before
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
        """Return whether a request that just joined will surely leave too late."""
        latest = waiter.latest + CLOSE
        quota_alone = not waiter.owes and self.queue.quota.routes.closed_until(waiter.ask.route) <= now
        if latest == inf or (quota_alone and self._horizon(now) <= latest):
            return False
        return now + _Forecast(self.queue, now).wait(waiter, least=True) > latest

    def _horizon(self, now: float) -> float:
        """Return the time at which all that wait have left, as far as the quota decides."""
        queue = self.queue
        return now + queue.quota.forecast(now, queue.units, queue.waiting, least=True)

    def again(self, now: float, waiter: W) -> float:
        """Return the seconds after which a new attempt would leave at once.

        The request is not in the queue.
        """
        return _Forecast(self.queue, now).cleared(waiter, joins=True)

    def cleared(self, now: float, waiter: W, *, joins: bool) -> float:
        """Return the seconds after which the requests that wait now have left.

        With `joins`, the request leaves as well, because none may wait. A request without a response holds
        its place in flight for about a round trip.
        """
        quota, group = self.queue.quota, waiter.group
        places = quota.max_in_flight if group is None else min(quota.max_in_flight, group.most)
        trips = ceil((self.queue.waiting + joins) / places) * quota.trip
        probe = None if trips else quota.hedges_at(now)  # before the first response
        behind = _Forecast(self.queue, now).cleared(waiter, joins=joins)
        return max(behind, trips, 0.0 if probe is None else probe - now)

    # --- requests that are late -------------------------------------------------------------

    def late(self, now: float) -> Sequence[tuple[W, float | None]]:
        """Remove the requests that will leave too late, and return them.

        Each has the seconds after which a new attempt would leave; None if no request was answered for as
        long as it may wait.
        """
        if not self._may_be_late(now):
            return []
        missed, silent = self._sort_out(now)
        for waiter in (*missed, *silent):
            self.queue.remove(waiter)
        self._next_check = now + CLOSE  # for all that end in the meantime
        waiters = self.queue.all()
        self.check_at = min((_check_at(waiter, now) for waiter in waiters), default=inf)
        self._earliest = min((waiter.latest for waiter in waiters), default=inf)
        again = {kind: self.again(now, one) for kind, one in {_alike(one): one for one in missed}.items()}
        return [(one, again[_alike(one)]) for one in missed] + [(one, None) for one in silent]

    def _may_be_late(self, now: float) -> bool:
        """Return whether a request may be late by what happened since the last check.

        Each new request was checked already. So this may be only after a refusal, when the opening of the
        quota moved, when nothing is in flight any more (until then more units may be left than the known
        responses show), and when a `max_wait` is over.
        """
        opens, idle = self.queue.wakes_at, not self.queue.quota.in_flight
        if not self.queue.waiting:
            self.check_at = self._earliest = inf
            return False
        refused, self._refused = self._refused, False
        if refused or self.check_at <= now:
            return True
        if not now < opens < inf or (opens < self._checked[0] + MOVED and self._checked[1] >= idle):
            return False
        self._checked = opens, idle
        return self._horizon(now) > self._earliest + GRACE

    def _sort_out(self, now: float) -> tuple[list[W], list[W]]:
        """Return the requests that will leave too late, and the unanswered ones."""
        missed, silent, since = list[W](), list[W](), self.queue.unanswered_since
        forecast, horizon = _Forecast(self.queue, now), self._horizon(now) - GRACE
        for waiter in self.queue.all():
            due = waiter.waits_until <= now
            closed = forecast.routes.closed_until(waiter.ask.route) > now
            if waiter.over or not (due or closed or waiter.owes or waiter.latest < horizon):
                continue  # as nearly all: they need no forecast
            seconds = forecast.wait(waiter, least=not due)
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
        if self.units <= max(0.0, most):
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
    place: str | RequestGroup | None


class _Forecast(Generic[W]):
    """Forecast of what leaves before a request, at one time."""

    def __init__(self, queue: Queue[W], now: float) -> None:
        self.now = now
        self.quota: Quota = queue.quota
        self.routes = queue.quota.routes
        self.queue = queue
        self.kinds = {flow: self._kind(flow) for flow in queue.flows()}

    def _kind(self, flow: Flow[W]) -> _Kind:
        costs, group, route, prior = self.quota.costs, flow.group, flow.route, flow.prior
        units, shown = costs.least(route, prior), costs.shown(route, prior)
        if self.routes.opens_at(route, self.now, self.quota.patience) > self.now:
            return _Kind(units, shown, 0.0, route)
        share = 1.0 if group is None else min(1.0, group.free(flow.line.rank) / group.waiting)
        return _Kind(units, shown, share, group)

    def wait(self, waiter: W, *, least: bool) -> float:
        """Return the seconds until a request leaves, as far as limits decide that.

        With `least`, the earliest possible time, without an unconfirmed documented cost; else the queue holds
        the request for that cost.
        """
        costs, route, prior = self.quota.costs, waiter.ask.route, waiter.ask.cost
        cost = costs.least(route, prior) if least else costs.price(route, prior)
        own, group, lines = self._before(waiter)
        units, requests = self._ahead(waiter, own, lines, cost)
        seconds = self.quota.forecast(self.now, units + cost, requests + 1.0, least=least)
        return max(seconds, self._own_limits(waiter, group))

    def cleared(self, waiter: W, *, joins: bool) -> float:
        """Return the seconds until all that wait have left, and one that `joins`.

        All of them could come again and find no other of its rank or of a better one. It would come without
        the rank of a retry. One that pays a ceiling is not among them: the ceiling counts one more.
        """
        own, group, lines = self._before(waiter, last=True)
        units, requests = self._ahead(waiter, own, lines, inf)
        cost = self.quota.costs.price(waiter.ask.route, waiter.ask.cost)
        seconds = self.quota.forecast(self.now, units + cost * joins, requests + joins)
        return self.quota.promise(self.now, max(seconds, self._own_limits(waiter, group)))

    def _own_limits(self, waiter: W, before: _Load) -> float:
        """Return the seconds until its route and its ceiling let a request leave."""
        group, ask = waiter.group, waiter.ask
        seconds = self.routes.closed_until(ask.route) - self.now
        if group is None or group.ceiling is None or waiter.paid:
            return seconds
        cost = self.quota.costs.shown(ask.route, ask.cost)
        return max(seconds, group.ceiling(before.units + cost, before.requests + 1.0))

    def _before(self, waiter: W, *, last: bool = False) -> tuple[_Load, _Load, dict[ProcessLine[W], _Load]]:
        """Return what is before a request in its line and in its group, and other lines.

        With `last`, all in its line is before it, and all ranks of its group count.
        """
        own, group, lines = _Load(), _Load(), dict[ProcessLine[W], _Load]()
        closed = self.routes.opens_at(waiter.ask.route, self.now, self.quota.patience) > self.now
        place = waiter.ask.route if closed else waiter.group
        for flow, kind in self.kinds.items():
            line, requests = flow.line, float(len(flow.waiters))
            mine = line.rank == waiter.rank and line.process == waiter.process
            if mine:
                requests = float(flow.before(inf if last else waiter.number))
            if flow.group is waiter.group and (last or line.rank == waiter.rank):
                group.add(requests * kind.shown, requests)
            counted = requests if kind.place == place else requests * kind.share
            load = own if mine else lines.setdefault(line, _Load())
            load.add(counted * kind.units, counted)
        return own, group, lines

    def _ahead(
        self, waiter: W, own: _Load, lines: dict[ProcessLine[W], _Load], cost: float
    ) -> tuple[float, float]:
        """Return units and number of the requests before one that costs `cost`.

        `own` of them are in its line. With infinite costs, all of a better rank are before it.
        """
        last = cost == inf
        rank = inf if last and waiter.rank == -inf else waiter.rank
        turn = self._start(waiter) + own.units
        retries, better, lower = _Load(), _Load(), _Load()
        for line, load in lines.items():
            if line.rank == rank:
                own.add(*_until(line, load, turn, waiter))
            else:
                among = retries if line.rank == -inf else better if line.rank < rank else lower
                among.add(load.units, load.requests)
        if last:
            own.add(better.units, better.requests)
        if rank > -inf and (last or not better.requests):
            own.add(*lower.part((self.queue.owed + own.units) / (SHARE - 1), whole=not last))
        if not last:
            own.add(*better.part((SHARE - 1) * (own.units + cost) - self.queue.owed))
        return own.units + retries.units, own.requests + retries.requests

    def _start(self, waiter: W) -> float:
        """Return the start of the process of a request in its rank; see `ProcessLine`."""
        lines = self.queue.ranks.get(waiter.rank, {})
        line = lines.get(waiter.process)
        if line is not None and line.heads:
            return line.start
        lowest = lowest_start(lines)
        return lowest if line is None else max(line.start, lowest)


def _until(line: ProcessLine[W], load: _Load, turn: float, waiter: Waiter) -> tuple[float, float]:
    """Return units and number of the requests of another process before one.

    The process of that one has its `turn` at some units. With the same start, the lower number goes first.
    Each request counts with the mean cost.
    """
    if not load.requests or turn < line.start:
        return 0.0, 0.0
    mean = load.units / load.requests or 1.0
    turns = (turn - line.start) / mean
    first = waiter.flow is None or line.heads[0][0] < waiter.number
    before = min(load.requests, floor(turns) + 1.0 if first else ceil(turns))
    return before * mean, before
