"""Table of targets, each with its measured figure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import ceil
from statistics import median

from attrs import evolve

from chainapi import Limit
from tests.limits import runs
from tests.limits.cells import DAY, KINDS, LIMIT, ONE, WINDOW, Build, Cell, cells, server_kinds
from tests.limits.changing import Crowded
from tests.limits.outside import OUTSIDE
from tests.limits.rows import Row, row, spread
from tests.limits.runs import Case, Run
from tests.limits.servers import Gcra, Server
from tests.limits.wide import WIDE, loss, stopped

__all__ = ["TARGETS", "Row", "measure", "strategies", "table"]

BY_CLOCK = "sliding counters"
# The documented costs of such a service.
DOCUMENTED: dict[str, tuple[Limit, ...]] = {
    "GCRA, burst of 10": (Limit(10, 0.6),),
    "minute and day": (Limit(LIMIT, WINDOW), Limit(2500, DAY)),
}


def crowded(case: Case) -> Case:
    """Let others use a fifth of the limit; a whole number of windows would need luck."""
    server = case.server

    def build() -> Crowded:
        inner = server()
        assert isinstance(inner, Server)
        return Crowded(inner, 0.2, random.Random(5))

    return evolve(case, server=build, errands=ONE[:2900])


def mixed(case: Case) -> Case:
    """Let the requests cost 1, 10 or 100 units."""
    rng = random.Random(4)
    build: Build = KINDS[case.name]
    if case.name.startswith("GCRA"):
        # A request that is more expensive than the burst would never pass.
        build = lambda: Gcra(LIMIT, WINDOW, size=300.0)  # noqa: E731
    return evolve(case, server=build, errands=[rng.choice([1.0, 10.0, 100.0]) for _ in range(120)])


def random_case(seed: int) -> Case:
    """Return a job against a server of random kind, size and age."""
    rng = random.Random(seed)
    limit = float(round(10.0 ** rng.uniform(2.3, 4.0)))
    window = rng.choice([60.0, 300.0, 3600.0, DAY])
    phase, burst = rng.uniform(0.0, window), max(3.0, limit * rng.uniform(0.02, 0.3))
    return Case(
        f"random {seed}",
        rng.choice([*server_kinds(limit, window, phase, burst).values()]),
        [1.0] * int(min(3000.0, 3.0 * limit) * rng.uniform(0.8, 1.2)),
        rng.choice([1, 4, 16, 64, 256]),
        tail=rng.random() < 0.5,
        seed=seed,
        start=rng.uniform(0.0, 1e6),
    )


def crowd(seed: int, waiters: int = 10_000) -> Run:
    """Let many wait and a third of them be cancelled at any time."""
    rng = random.Random(seed)
    leaves = {number: rng.uniform(0.0, 500.0) for number in rng.sample(range(waiters), waiters // 3)}
    case = Case("", KINDS["window from the first request"], ONE[:1] * waiters, waiters, in_flight=64)
    return runs.gate(evolve(case, leaves=leaves, seed=seed), limit=1e5)


def _with_headers(quick: bool) -> list[Row]:
    named = cells(quick, KINDS)
    shy = cells(quick, [name for name in KINDS if name != "GCRA, burst of 10"], probe=False)
    in_stops = sum(cell.run.in_stops for cell in named + shy)
    good = [cell.goodput for cell in named]
    return [
        row("goodput with headers, median / worst", ">= 99.5 / 98.5 %", spread(good)),
        row("429s a job and policy, with headers", "<= 1", _by_policy(named)),
        row("429s a job with `probe=False`", "0", max(cell.run.refusals for cell in shy)),
        row("sent between a 429 and the end of its wait", "0", in_stops),
        row("blocks by a penalty server", "0", sum(cell.run.blocks for cell in named + shy)),
    ]


def _by_policy(found: Sequence[Cell]) -> int:
    """Return the most 429s of a job for each policy of its server."""
    return max(ceil(one.run.refusals / (2 if one.case.name == "minute and day" else 1)) for one in found)


def _others(quick: bool) -> list[Row]:
    found = cells(quick, KINDS, crowded)
    good, refusals = spread([cell.goodput for cell in found]), max(cell.run.refusals for cell in found)
    return [row("others taking 20 % of the key: goodput, 429s", ">= 99 / 98 %, <= 5", good, refusals)]


def _hidden(quick: bool) -> list[Row]:
    # No client can satisfy a server that blocks without announcing a wait.
    kinds = [name for name in KINDS if name != "penalty"]
    hidden = cells(quick, kinds, lambda case: evolve(case, hidden=True))
    good = spread([cell.goodput for cell in hidden])

    def documented(case: Case) -> Case:
        limits = DOCUMENTED.get(case.name, (Limit(LIMIT, WINDOW),))
        return evolve(case, hidden=True, limits=limits)

    documented_cells = cells(quick, [name for name in KINDS if name != BY_CLOCK], documented)
    worst = max(cell.run.refusals for cell in documented_cells)
    what = "no headers, seven kinds of servers: goodput, 429s a policy"
    return [
        row(what, ">= 97.9 / 93 %, <= 60", good, _by_policy(hidden)),
        row("hidden, but given in `limits=`: 429s", "0", worst),
    ]


def _random(quick: bool) -> list[Row]:
    cases = map(random_case, range(75, 90) if quick else range(2000))  # 85 tests a drip against a log
    found = [loss(case, runs.knowing(case).seconds) for case in cases]
    high = sorted(one.lost for one in found)[int(0.99 * len(found))]
    most = max(one.refusals for one in found)
    return [
        row(f"{len(found)} random servers: lost budget, p99", "<= 0.5 %", high),
        stopped("... 429s a job, sent in stops, hangs", "<= 5, 0, 0", found, most),
    ]


def _small(quick: bool) -> list[Row]:
    extra = []
    for name, build in KINDS.items():
        if name.startswith("GCRA"):
            continue
        for concurrency in (16, 4096) if quick else (1, 16, 256, 4096):
            case = Case(name, build, ONE[:200], concurrency)
            extra.append((runs.gate(case).seconds - runs.knowing(case).seconds) / 0.05)
    return [row("a job that fits: round trips more than the all-knowing", "<= 2", max(extra))]


def _weighted(quick: bool) -> list[Row]:
    mix = cells(quick, [name for name in KINDS if name != "minute and day"], mixed)
    good = [cell.goodput for cell in mix]
    late = []
    for cell in mix:
        due = cell.known.finished
        late.append(max(when - due[number] for when, number in cell.run.passed) / WINDOW)
    return [
        # A request of a tenth of the limit that leaves just after the turn of a sliding counter, not just
        # before, is missing from that window, and from each later one.
        row("costs of 1, 10 and 100: goodput, median / worst", ">= 99 / 96 %", spread(good)),
        row("... windows later than its place in the queue", "<= 2", max(late)),
    ]


def _waiters(_quick: bool) -> list[Row]:
    run = crowd(1)
    stuck = len(run.begun.keys() - run.finished.keys() - run.case.leaves.keys())
    overtook = sum(one > two for (_, one), (_, two) in pairwise(run.sent))
    what = "10,000 waiters, random cancellations: lost or stuck, out of order"
    return [row(what, "0, 0", stuck + run.rest, overtook)]


TARGETS: dict[str, Callable[[bool], list[Row]]] = {
    "with headers": _with_headers,
    "others on the key": _others,
    "hidden limits": _hidden,
    "random servers": _random,
    "small jobs": _small,
    "weighted requests": _weighted,
    "many waiters": _waiters,
    **OUTSIDE,
    **WIDE,
}


def measure(quick: bool, names: Iterable[str] = tuple(TARGETS)) -> list[Row]:
    """Measure parts of the table; `quick` takes the small sample that the tests run."""
    return [row for name in names for row in TARGETS[name](quick)]


def strategies(quick: bool) -> str:
    """Return a table of the plain strategies and the gate, for servers with headers."""
    lines = [
        "| strategy | goodput, median / worst | 429s, median / worst | sent in stops | blocked or gave up |",
        "|---|---|---|---|---|",
    ]
    names = {
        "blind": "exponential retry of each request",
        "honest": "retry of each, honoring `retry-after`",
        "bucket": "`AsyncLimiter(limit, window)` and that retry",
        "gate": "**the gate**",
    }
    for strategy, name in names.items():
        found = []
        for kind, build in list(KINDS.items())[: 3 if quick else None]:
            for concurrency in (64,) if quick else (1, 16, 256, 4096):
                case = Case(kind, build, ONE, concurrency)
                known = runs.knowing(case)
                limit = 10.0 * known.seconds
                run = (
                    runs.gate(case, limit=limit) if strategy == "gate" else runs.plain(case, strategy, limit)
                )
                found.append(Cell(case, known, run))
        refusals = [cell.run.refusals for cell in found]
        middle, least = spread([cell.goodput for cell in found])
        lines.append(
            f"| {name} | {middle:.2f} / {least:.2f} % "
            f"| {median(refusals):,.0f} / {max(refusals):,} "
            f"| {sum(cell.run.in_stops for cell in found):,} "
            f"| {sum(cell.run.hung or cell.run.blocks > 0 for cell in found)} |"
        )
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """Return the targets as a Markdown table."""
    lines = ["| what | target | measured | met |", "|---|---|---|---|"]
    lines += [
        f"| {one.what} | {one.target} | {one.figure} | {'yes' if one.met else '**no**'} |" for one in rows
    ]
    return "\n".join(lines)
