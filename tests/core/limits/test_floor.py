"""Floor of lower priorities: their share of the units while a higher one waits too."""

from __future__ import annotations

from itertools import count
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.core.limits.costs import Costs
from chainapi.core.limits.group import Group
from chainapi.core.limits.lane import Waiter
from chainapi.core.limits.queue import Queue

FLOOR = 0.1  # as docs/rate-limits.md states it
PRICES = {"free": 0.0, "cheap": 1.0, "dear": 5.0, "heavy": 40.0}
RANKS = [-1.0, 0.0, 1.0, 2.0]

arrivals = st.tuples(
    st.just("add"), st.sampled_from([*RANKS, -inf]), st.sampled_from([*PRICES]), st.sampled_from("ab")
)
grants = st.tuples(st.just("grant"))
cancels = st.tuples(st.just("cancel"), st.integers(0, 1_000_000))
returns = st.tuples(st.just("take back"))


def counted(waiter: Waiter) -> float:
    """Return the units of a request; a free one counts as one unit."""
    return PRICES[waiter.route] or 1.0


def new_queue() -> Queue[Waiter]:
    """Return an empty queue with the price of each route."""
    return Queue(Costs(learned=dict(PRICES)))


class Boundary:
    """Units granted to one rank and to all lower ones, while both wait.

    Of every interval in that time the lower ranks get a tenth, and the rank nine, but for one request.
    """

    def __init__(self) -> None:
        self.lower = self.upper = 0.0  # of the balance of both, in the interval
        self.balance = 0.0

    def granted(self, own: float, others: float) -> None:
        """Check a grant of units to the rank, or to lower ones."""
        self.balance += FLOOR * own - (1 - FLOOR) * others
        self.lower, self.upper = min(self.lower, self.balance), max(self.upper, self.balance)
        assert self.upper - self.lower <= max(PRICES.values()) + 1e-6


class Play:
    """Queue in which requests come, leave, give up, and return after a stop."""

    def __init__(self) -> None:
        self.queue, self.numbers = new_queue(), count()
        self.waiting: dict[float, list[Waiter]] = {rank: [] for rank in (-inf, *RANKS)}
        self.boundaries: dict[float, Boundary] = {}
        self.last: Waiter | None = None  # granted

    def watch(self) -> None:
        """Begin an interval where a rank and a lower one wait, and end it where one of them does not."""
        for rank in RANKS:
            below = any(self.waiting[other] for other in RANKS if other > rank)
            if not (self.waiting[rank] and below):
                self.boundaries.pop(rank, None)
            elif rank not in self.boundaries:
                self.boundaries[rank] = Boundary()

    def add(self, waiter: Waiter) -> None:
        """Let a request come."""
        self.queue.add(waiter)
        self.waiting[waiter.rank].append(waiter)

    def leave(self, waiter: Waiter, *, granted: bool) -> None:
        """Let a request leave."""
        self.queue.remove(waiter, granted=granted)
        self.waiting[waiter.rank].remove(waiter)

    def grant(self) -> None:
        """Grant the next turn, and check the shares; something leaves as long as anything waits."""
        first = self.queue.first()
        assert (first is None) is not any(self.waiting.values())
        if first is None:
            return
        assert first.rank == -inf or not self.waiting[-inf]  # retries go first
        for rank, boundary in self.boundaries.items():
            if -inf < rank <= first.rank:
                units = counted(first)
                boundary.granted(units * (rank == first.rank), units * (rank < first.rank))
        self.leave(first, granted=True)
        self.last = first

    def take_back(self) -> None:
        """Return the last granted request to its place; what it changed does not count."""
        if self.last is not None and not self.last.queued:
            self.queue.take_back(self.last)
            self.add(self.last)
            self.boundaries.clear()


@settings(max_examples=300)
@given(st.lists(st.one_of(arrivals, arrivals, arrivals, grants, grants, cancels, returns), max_size=200))
def test_lower_ranks_have_a_tenth_of_the_units(steps: list[tuple[object, ...]]) -> None:
    """While a rank and a lower one wait, their shares are 9 to 1, but for one request."""
    play = Play()
    for step in [*steps, *[("grant",)] * len(steps)]:
        match step:
            case ("add", float(rank), str(route), str(process)):
                play.add(Waiter(next(play.numbers), rank, route, None, process=process))
            case ("cancel", int(which)) if waiters := play.queue.all():
                play.leave(waiters[which % len(waiters)], granted=False)
            case ("take back",):
                play.take_back()
            case _:
                play.grant()
        play.watch()
    while play.queue.waiting:
        play.grant()
    assert not any(play.waiting.values())


def flood(queue: Queue[Waiter], ranks: dict[float, str], grants: int) -> dict[float, float]:
    """Return the units granted to each rank while each always has two requests waiting."""
    numbers = count()
    units = dict.fromkeys(ranks, 0.0)
    for rank, route in [*ranks.items()] * 2:
        queue.add(Waiter(next(numbers), rank, route, None))
    for _ in range(grants):
        first = queue.first()
        assert first is not None
        queue.remove(first, granted=True)
        units[first.rank] += PRICES[first.route]
        queue.add(Waiter(next(numbers), first.rank, first.route, None))
    return units


@pytest.mark.parametrize(("high", "low"), [("cheap", "heavy"), ("heavy", "cheap"), ("dear", "dear")])
def test_floor_is_a_share_of_the_units(high: str, low: str) -> None:
    """Lower priorities have a tenth of the units whatever the requests of both cost."""
    units = flood(new_queue(), {-1.0: high, 0.0: low}, 4000)
    assert units[0.0] / sum(units.values()) == pytest.approx(FLOOR, abs=0.01)


def test_each_priority_has_nine_tenths_of_what_those_above_leave() -> None:
    """With three priorities the shares are 90, 9 and 1 per cent."""
    units = flood(new_queue(), {-1.0: "cheap", 0.0: "cheap", 1.0: "cheap"}, 10_000)
    assert list(units.values()) == [9000.0, 900.0, 100.0]


def test_ninth_request_of_a_higher_priority_makes_room_for_one() -> None:
    """Nine requests of the higher priority leave first, then one of the lower, and so on."""
    queue, numbers = new_queue(), count()
    for rank in [0.0] * 4 + [-1.0] * 40:
        queue.add(Waiter(next(numbers), rank, "cheap", None))
    order = list[float]()
    while (first := queue.first()) is not None:
        queue.remove(first, granted=True)
        order.append(first.rank)
    assert order == ([-1.0] * 9 + [0.0]) * 4 + [-1.0] * 4


def test_idle_lower_priority_earns_no_credit() -> None:
    """A burst of a lower priority that comes late waits as one that comes first."""
    queue, numbers = new_queue(), count()
    for _ in range(120):
        queue.add(Waiter(next(numbers), -1.0, "cheap", None))
    for _ in range(100):
        first = queue.first()
        assert first is not None
        queue.remove(first, granted=True)
    for _ in range(3):
        queue.add(Waiter(next(numbers), 0.0, "cheap", None))
    assert [served(queue) for _ in range(10)] == [-1.0] * 9 + [0.0]


def served(queue: Queue[Waiter]) -> float:
    """Grant the next turn, and return its rank."""
    first = queue.first()
    assert first is not None
    queue.remove(first, granted=True)
    return first.rank


@given(
    st.lists(st.tuples(st.sampled_from(RANKS), st.sampled_from([*PRICES])), min_size=1, max_size=30),
    st.integers(1, 30),
    st.booleans(),
)
def test_grants_that_are_taken_back_count_for_none(
    requests: list[tuple[float, str]], grants: int, latest_first: bool
) -> None:
    """A stop takes grants back: then requests leave in the order in which they would have left."""
    queues = new_queue(), new_queue()
    for queue in queues:
        for number, (rank, route) in enumerate(requests):
            queue.add(Waiter(number, rank, route, None))
    stopped = queues[0]
    taken = list[Waiter]()
    while len(taken) < grants and (first := stopped.first()) is not None:
        stopped.remove(first, granted=True)
        taken.append(first)
    for waiter in reversed(taken) if latest_first else taken:
        stopped.take_back(waiter)
        stopped.add(waiter)
    orders = list[list[int]]()
    for queue in queues:
        orders.append([])
        while (first := queue.first()) is not None:
            queue.remove(first, granted=True)
            orders[-1].append(first.number)
    assert orders[0] == orders[1]


# --- forecasts ----------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from(RANKS[:3]), st.booleans()), min_size=1, max_size=60),
    st.sampled_from(RANKS),
)
def test_forecast_counts_the_shares_of_all_ranks(steps: list[tuple[float, bool]], rank: float) -> None:
    """A forecast with equal costs is the real place in the queue, or one request better for each rank."""
    queue = new_queue()
    for number, (other, grant) in enumerate(steps):
        queue.add(Waiter(number, other, "dear", None))
        if grant:
            served(queue)
    waiter = Waiter(10_000, rank, "dear", None)
    new = queue.ahead(waiter)
    queue.add(waiter)
    assert queue.ahead(waiter) == new
    expected = {one.number: queue.ahead(one) for one in queue.all()}
    order = list[int]()
    while (first := queue.first()) is not None:
        queue.remove(first, granted=True)
        order.append(first.number)
    for place, number in enumerate(order):
        units, before = expected[number]
        assert place - len(RANKS) < before <= place + 1e-6
        assert units == pytest.approx(5.0 * before)


@given(
    st.lists(st.tuples(st.sampled_from(RANKS), st.sampled_from([*PRICES])), max_size=60),
    st.sampled_from(RANKS),
)
def test_request_that_comes_again_when_promised_finds_nobody_before_it(
    requests: list[tuple[float, str]], rank: float
) -> None:
    """After the units counted with `last` have left, no request of its rank or a better one waits."""
    queue = new_queue()
    for number, (other, route) in enumerate(requests):
        queue.add(Waiter(number, other, route, None))
    waiter = Waiter(10_000, rank, "cheap", None)
    promised, spent = queue.ahead(waiter, last=True)[0], 0.0
    while (first := queue.first()) is not None and spent + PRICES[first.route] <= promised + 1e-6:
        spent += PRICES[first.route]
        queue.remove(first, granted=True)
    assert queue.ahead(waiter, last=True)[0] <= max(PRICES.values())
    assert all(one.rank > rank for one in queue.all()) or queue.ahead(waiter)[1] == 0


# --- lanes --------------------------------------------------------------------------------------


def test_ranks_without_waiters_are_forgotten() -> None:
    """Priorities that no request has any more cost no memory, however many there were."""
    queue = new_queue()
    for number in range(1000):
        queue.add(Waiter(number, float(-number), "cheap", None))
        queue.add(Waiter(number + 1000, 0.5, "cheap", None))
        served(queue)
        served(queue)
    assert len(queue.ranks.lanes) <= 33
    assert len(queue.ranks._owed) <= 33
    assert not queue.waiting


def test_requests_of_a_better_rank_pass_an_expensive_one_that_the_floor_puts_first() -> None:
    """Behind the first request, those of the best rank may use units too few for it, and no others."""
    queue = new_queue()
    low = [Waiter(number, 0.0, route, None) for number, route in enumerate(["heavy", "cheap"])]
    high = [Waiter(number, -1.0, "cheap", None) for number in range(2, 400)]
    for waiter in (*low, *high):
        queue.add(waiter)
    for _ in range(360):
        assert served(queue) == -1.0
    assert queue.first() is low[0]
    assert queue.behind(low[0], 4) == high[360:364]


# --- groups -------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [Group(most=1), Group(paced=True), Group(most=3)])
def test_floor_holds_within_a_group(group: Group) -> None:
    """Lower priorities keep their share among the requests of a session that stand aside."""
    queue, numbers = new_queue(), count()
    for rank in [0.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0]:
        queue.add(Waiter(next(numbers), rank, "cheap", None, group))
    order = list[float]()
    for _ in range(200):
        order.append(served(queue))
        queue.add(Waiter(next(numbers), order[-1], "cheap", None, group))
    assert order[20:].count(0.0) == pytest.approx(18, abs=2)
