"""Lanes of the queue: processes take turns, and forecasts count the turns before a waiter."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations, count
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.core.limits.costs import Costs
from chainapi.core.limits.group import Group
from chainapi.core.limits.lane import Waiter
from chainapi.core.limits.queue import Queue

PRICES = {"cheap": 1.0, "dear": 5.0, "heavy": 12.0}

processes = st.sampled_from("abcd")
arrivals = st.tuples(st.just("add"), processes, st.sampled_from([*PRICES]), st.sampled_from([-inf, 0.0, 1.0]))
grants = st.tuples(st.just("grant"))
cancels = st.tuples(st.just("cancel"), st.integers(0, 1_000_000))


def new_queue() -> Queue[Waiter]:
    """Return an empty queue with the price of each route."""
    return Queue(Costs(learned=dict(PRICES)))


class Shares:
    """Units granted to each process while others wait too, in one rank."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Waiter]] = {}
        self.spreads: dict[tuple[str, str], tuple[float, float, float]] = {}

    def changed(self) -> None:
        """End the measurement of a pair when one of the two waits no more."""
        self.spreads = {
            pair: spread for pair, spread in self.spreads.items() if all(map(self.waiting.get, pair))
        }

    def granted(self, waiter: Waiter) -> None:
        """Check a grant: no difference of two waiting processes exceeds two of the highest costs."""
        busy = sorted(process for process, waiting in self.waiting.items() if waiting)
        for pair in combinations(busy, 2):
            now, least, most = self.spreads.get(pair, (0.0, 0.0, 0.0))
            now += PRICES[waiter.route] * ((waiter.process == pair[0]) - (waiter.process == pair[1]))
            self.spreads[pair] = now, min(least, now), max(most, now)
            assert self.spreads[pair][2] - self.spreads[pair][1] <= 2 * max(PRICES.values())


@settings(max_examples=150)
@given(st.lists(st.one_of(arrivals, arrivals, grants, cancels), max_size=150))
def test_waiting_processes_have_equal_shares(steps: list[tuple[object, ...]]) -> None:
    """Over any interval in which two processes wait, their units differ by two costs at most."""
    queue, numbers = new_queue(), count()
    shares: dict[float, Shares] = {rank: Shares() for rank in (-inf, 0.0, 1.0)}

    def leave(waiter: Waiter, *, granted: bool) -> None:
        share = shares[waiter.rank]
        if granted:
            assert share.waiting[waiter.process][0] is waiter  # first come, first served
            share.granted(waiter)
        queue.remove(waiter, granted=granted)
        share.waiting[waiter.process].remove(waiter)
        share.changed()

    for step in [*steps, *[("grant",)] * len(steps)]:
        first = queue.first()
        match step:
            case ("add", str(process), str(route), float(rank)):
                waiter = Waiter(next(numbers), rank, route, None, process=process)
                queue.add(waiter)
                shares[rank].waiting.setdefault(process, []).append(waiter)
            case ("cancel", int(which)) if waiters := queue.all():
                leave(waiters[which % len(waiters)], granted=False)
            case ("grant",) if first is not None:
                leave(first, granted=True)
            case _:
                assert first is None
                assert not queue.all()
    assert queue.waiting == 0
    assert all(len(lane._flows) == 1 for lane in queue.ranks.lanes.values())


def test_one_process_is_served_first_come_first_served() -> None:
    """Requests of one process keep their order, whatever they cost."""
    queue = new_queue()
    for number, route in enumerate(["heavy", "cheap", "dear", "cheap"]):
        queue.add(Waiter(number, 0.0, route, None))
    assert served(queue) == [0, 1, 2, 3]


@given(st.lists(st.sampled_from(["add", "grant", "take back", "cancel"]), max_size=60), st.randoms())
def test_forecast_does_not_count_those_who_left(steps: list[str], rng: random.Random) -> None:
    """Each waiter has exactly those before it that still wait, whoever gave up before or behind it."""
    queue, numbers = new_queue(), count()
    waiting, granted = list[Waiter](), list[Waiter]()
    for step in [*["add"] * 20, *steps]:
        if step == "add":
            waiting.append(Waiter(next(numbers), 0.0, "dear", None))
            queue.add(waiting[-1])
        elif step == "take back" and granted:
            waiting.insert(0, granted.pop())
            queue.add(waiting[0])
        elif step != "take back" and waiting:
            leaving = waiting.pop(0 if step == "grant" else rng.randrange(len(waiting)))
            queue.remove(leaving, granted=step == "grant")
            granted += [leaving] if step == "grant" else []
        assert [queue.ahead(one) for one in waiting] == [(5.0 * n, n) for n in range(len(waiting))]
        assert queue.all() == waiting


@given(st.lists(st.sampled_from(["cheap", "dear"]), min_size=1, max_size=30), st.integers(1, 9))
def test_load_follows_every_estimate_of_a_price(routes: list[str], left: int) -> None:
    """Units before a request have its current price, whatever changed it; nothing is left at the end."""
    costs = Costs()
    queue = Queue[Waiter](costs)
    waiters = [Waiter(number, 0.0, route, None) for number, route in enumerate(routes)]
    for waiter in waiters:
        queue.add(waiter)
    changes: list[Callable[[], None]] = [
        lambda: costs.refused("cheap", left),
        lambda: costs.tried("dear"),
        lambda: costs.tried("dear"),
        lambda: costs.sample(costs, "other", 1000.0, 0.0, 1.0, fresh=True),
    ]
    new = Waiter(1000, 0.0, "cheap", None)
    for change in changes:
        change()
        assert queue.ahead(new)[0] == pytest.approx(sum(costs.likely(route, None) for route in routes))
    for waiter in waiters:
        queue.remove(waiter)
    assert queue.ahead(new) == (0.0, 0)


def served(queue: Queue[Waiter]) -> list[int]:
    """Return the numbers of the waiters in the order of their grants."""
    numbers = list[int]()
    while (first := queue.first()) is not None:
        numbers.append(first.number)
        queue.remove(first, granted=True)
    return numbers


def crowd(sizes: list[int], before: int) -> Queue[Waiter]:
    """Return a queue after some grants, in which processes wait with these numbers of requests."""
    queue, numbers = new_queue(), count()
    for place, size in enumerate(sizes):
        for _ in range(size + before):
            queue.add(Waiter(next(numbers), 0.0, "dear", None, process=str(place)))
    for _ in range(before * len(sizes)):
        first = queue.first()
        assert first is not None
        queue.remove(first, granted=True)
    return queue


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 5))
def test_forecast_of_a_new_waiter_counts_the_turns_before_it(
    sizes: list[int], before: int, process: int
) -> None:
    """A new request of a quiet process has few requests before it, one of a busy process many."""
    queue = crowd(sizes, before)
    waiter = Waiter(10_000, 0.0, "dear", None, process=str(process))
    units, number = queue.ahead(waiter)
    assert queue.ahead(waiter, last=True) == (units, number)
    queue.add(waiter)
    actual = served(queue).index(10_000)
    assert (units, number) == (5.0 * actual, actual)


@given(
    st.lists(st.tuples(processes, st.booleans()), min_size=1, max_size=40),
    st.sampled_from([0.0, 1.0]),
)
def test_forecasts_of_waiters_are_not_optimistic(steps: list[tuple[str, bool]], rank: float) -> None:
    """At least as many requests count before a waiter as leave before it, and few more."""
    queue = new_queue()
    waiters = list[Waiter]()
    for number, (process, grant) in enumerate(steps):
        waiters.append(Waiter(number, rank, "dear", None, process=process))
        queue.add(waiters[-1])
        if grant:
            first = queue.first()
            assert first is not None
            queue.remove(first, granted=True)
            waiters.remove(first)
    expected = {waiter.number: queue.ahead(waiter)[1] for waiter in waiters}
    for place, number in enumerate(served(queue)):
        assert place <= expected[number] <= place + 3  # one more for each other process


@given(
    st.lists(st.tuples(processes, st.sampled_from([*PRICES])), min_size=1, max_size=30),
    st.integers(1, 30),
    st.booleans(),
)
def test_waiters_that_had_a_grant_return_to_their_places(
    requests: list[tuple[str, str]], grants: int, latest_first: bool
) -> None:
    """A stop takes grants back: then requests leave in the order in which they would have left."""
    queues = new_queue(), new_queue()
    for queue in queues:
        for number, (process, route) in enumerate(requests):
            queue.add(Waiter(number, 0.0, route, None, process=process))
    stopped, other = queues
    taken = list[Waiter]()
    while len(taken) < grants and (first := stopped.first()) is not None:
        stopped.remove(first, granted=True)
        taken.append(first)
    for waiter in reversed(taken) if latest_first else taken:
        stopped.add(waiter)
    assert served(stopped) == served(other)


def test_quiet_process_passes_a_thousand_waiters() -> None:
    """A process that had nothing to send has every second turn beside a crowd."""
    queue, numbers = new_queue(), count()
    for _ in range(1000):
        queue.add(Waiter(next(numbers), 0.0, "cheap", None, process="busy"))
    for _ in range(8):
        queue.add(Waiter(next(numbers), 0.0, "cheap", None, process="quiet"))
    order = served(queue)
    assert [order.index(1000 + place) for place in range(8)] == [1, 3, 5, 7, 9, 11, 13, 15]


def test_pause_earns_no_credit() -> None:
    """A process that paused has its share from then on, and no more."""
    queue, numbers = new_queue(), count()
    for _ in range(100):
        queue.add(Waiter(next(numbers), 0.0, "cheap", None, process="busy"))
    queue.add(Waiter(100, 0.0, "cheap", None, process="quiet"))
    for _ in range(50):
        first = queue.first()
        assert first is not None
        queue.remove(first, granted=True)
    for number in range(101, 111):
        queue.add(Waiter(number, 0.0, "cheap", None, process="quiet"))
    assert sum(number > 100 for number in served(queue)[:10]) == 5


def test_priorities_hold_across_processes() -> None:
    """A higher priority goes first, whichever process sends it."""
    queue = new_queue()
    for number, (process, rank) in enumerate([("a", 0.0), ("b", -1.0), ("a", -1.0), ("b", -inf), ("a", 0.0)]):
        queue.add(Waiter(number, rank, "cheap", None, process=process))
    assert served(queue) == [3, 1, 2, 0, 4]


def test_cheaper_requests_of_all_processes_may_pass() -> None:
    """The waiters after an expensive request are those of its own process and of the others."""
    queue = new_queue()
    for number in range(6):
        queue.add(Waiter(number, 0.0, "heavy", None, process="ab"[number % 2]))
    first = queue.first()
    assert first is not None
    assert [one.number for one in queue.behind(first, 16)] == [2, 4, 1, 3, 5]
    assert [one.number for one in queue.behind(first, 4)] == [2, 1, 3]


@settings(max_examples=150)
@given(st.lists(st.one_of(arrivals, arrivals, grants), max_size=60))
def test_waiter_that_changes_no_turn_is_known(steps: list[tuple[Any, ...]]) -> None:
    """If `add` returns False, the next turn stays the same, and no other waiter is cheaper."""
    queue, numbers = new_queue(), count()
    for kind, *values in steps:
        before = queue.first()
        if kind == "add":
            process, route, rank = values
            changed = queue.add(Waiter(next(numbers), rank, route, None, process=process))
            if not changed:
                assert before is not None
                assert queue.first() is before
                assert queue.cheapest() == PRICES[before.route]
        elif before is not None:
            queue.remove(before, granted=True)


def test_only_a_waiter_behind_others_of_one_cost_changes_no_turn() -> None:
    """The first waiter, one of a better rank, and one of another cost each change a turn."""
    queue, numbers = new_queue(), count()

    def add(route: str, rank: float = 0.0, group: Group | None = None) -> bool:
        return queue.add(Waiter(next(numbers), rank, route, None, group))

    assert add("dear")
    assert not add("dear")
    assert add("dear", -1.0)
    assert add("cheap")
    assert add("dear")
    while (first := queue.first()) is not None:
        queue.remove(first, granted=True)
    assert add("dear")
    queue.park(Waiter(next(numbers), 0.0, "heavy", None), inf)
    assert add("dear")
    queue, narrow = new_queue(), Group(most=1)
    assert add("dear", group=narrow)
    assert not add("dear", group=narrow)
    queue.freed(narrow)
    assert add("dear", group=narrow)


def test_lanes_forget_processes_that_went() -> None:
    """A lane keeps no more processes than wait, and a few of those that left."""
    queue, numbers = new_queue(), count()
    for _ in range(200):
        queue.add(Waiter(next(numbers), 0.0, "cheap", None, process="stays"))
    for number in range(300):
        queue.add(Waiter(next(numbers), 0.0, "heavy", None, process=str(number)))
        if number % 2:
            queue.remove(queue.all()[-1])
        first = queue.first()
        assert first is not None
        queue.remove(first, granted=True)
        assert len(queue.ranks.lanes[0.0]._flows) <= 30
