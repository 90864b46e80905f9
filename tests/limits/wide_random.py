"""Target for random servers, wider: long trips, routes with prices, slow neighbours, plans that change."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import floor

from attrs import evolve, frozen

from tests.limits import runs
from tests.limits.cells import Build, server_kinds
from tests.limits.changing import Changing
from tests.limits.processes import over_processes
from tests.limits.rows import Row, row
from tests.limits.runs import Case
from tests.limits.servers import Bucket, Penal, Server, Stacked
from tests.limits.wild import Errand

__all__ = ["RANDOM", "Loss", "measure_case", "wide_case"]

DAY = 86_400.0
ROUNDING = 1.0  # seconds: headers give whole ones, rounded up
TRIPS = 2.0  # a client that learns loses with the request that it sends alone, at first and after a window


@frozen
class Loss:
    """Figures of one random job; `lost` is in per cent of the budget."""

    seed: int
    lost: float
    refusals: int
    in_stops: int
    hung: bool


def _server(rng: random.Random, limit: float, window: float, burst: float) -> Build:
    kinds = [*server_kinds(limit, window, rng.uniform(0.0, window), burst).values()]
    kinds.insert(5, lambda: Bucket(limit, window, size=burst))
    return rng.choice(kinds)


def _priors(rng: random.Random, costs: Sequence[float]) -> list[float | None]:
    """Return the documented costs of routes: right, missing, or some of them wrong."""
    documented = rng.choices(["right", "missing", "wrong"], [5, 3, 2])[0]
    if documented == "missing":
        return [None] * len(costs)
    if documented == "right":
        return [*costs]
    return [rng.choice([cost, None, 5.0, 10.0 * cost, max(1.0, cost / 10.0)]) for cost in costs]


def _changed(rng: random.Random, case: Case) -> Case:
    """Let the limit change once while the job runs; that of two limits, or of a penalty, stays."""
    server, build = case.server(), case.server
    if rng.random() >= 0.1 or isinstance(server, Stacked | Penal):
        return case
    at = case.start + rng.uniform(0.2, 0.8) * runs.quickest(case).seconds
    factor = rng.choice([0.1, 0.5, 2.0, 10.0])

    def changing() -> Changing:
        server = build()
        assert isinstance(server, Server)
        return Changing(server, at, factor)

    return evolve(case, server=changing)


def wide_case(seed: int) -> Case:
    """Return a job against a server of random kind, size, age, distance and prices."""
    rng = random.Random(seed)
    limit = float(round(10.0 ** rng.uniform(2.3, 4.0)))
    window = rng.choice([60.0, 300.0, 3600.0, DAY])
    burst = max(3.0, limit * rng.uniform(0.005, 0.3))
    server = _server(rng, limit, window, burst)
    # A limit may shrink to a tenth, and no request costs more than that or than a burst.
    prices = [one for one in (1.0, 2.0, 5.0, 10.0, 50.0) if one <= min(limit / 20.0, burst)]
    count = rng.choice([1, 1, 3, 10, 30, 100])
    costs = [rng.choice(prices) for _ in range(count)] if rng.random() < 0.5 else [1.0] * count
    priors = _priors(rng, costs)
    # The job ends in the middle of a window: at its edge one unit more would cost a whole window.
    units = limit * (rng.choice([0, 1, 2]) + rng.uniform(0.2, 0.8))
    requests = max(1, int(min(3000.0, units * count / sum(costs))))
    places = [rng.randrange(count) for _ in range(requests)]
    slow = {rng.randrange(requests): rng.uniform(30.0, 60.0)} if rng.random() < 0.2 else {}
    case = Case(
        f"wide {seed}",
        server,
        [Errand(f"/{place}", costs[place], priors[place]) for place in places],
        rng.choice([1, 4, 16, 64, 256]),
        tail=rng.random() < 0.5,
        seed=seed,
        start=rng.uniform(0.0, 1e6),
        trip=10.0 ** rng.uniform(-1.7, 0.0),
        slow=slow,
        late=rng.random() < 0.2,
    )
    return _changed(rng, case)


def measure_case(seed: int) -> Loss:
    """Run a random job, and compare it with the all-knowing client."""
    case = wide_case(seed)
    known = runs.quickest(case).seconds
    window = case.server().answer(case.start, 1.0).info.policies[0].window or 60.0
    run = runs.gate(case, limit=runs.GIVE_UP * max(known, window))
    windows = 1 + floor(known / window)
    more = run.seconds - known - ROUNDING - TRIPS * (case.trip or 0.0) * windows
    lost = 100.0 * max(0.0, more) / max(known, window)
    return Loss(seed, lost, run.refusals, run.in_stops, run.hung)


def _random(quick: bool) -> list[Row]:
    found = over_processes(measure_case, range(40 if quick else 2000), 1 if quick else 2)
    lost = sorted(one.lost for one in found)
    refusals = sorted(one.refusals for one in found)
    high, most = lost[int(0.99 * len(lost))], refusals[int(0.99 * len(refusals))]
    much = 100.0 * sum(one > 0.5 for one in lost) / len(lost)
    in_stops, hung = sum(one.in_stops for one in found), sum(one.hung for one in found)
    return [
        row(
            f"{len(lost)} random servers, wider: lost budget, p99, and part that loses more than 0.5 %",
            "<= 2 %, <= 1.5 %",
            high,
            much,
        ),
        row("... 429s a job, p99, sent in stops, hangs", "<= 5, 0, 0", most, in_stops, hung),
    ]


RANDOM: dict[str, Callable[[bool], list[Row]]] = {"random servers, wider": _random}
