"""Targets for plans that change, and for limits that no header shows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import inf

from tests.limits import runs
from tests.limits.changing import Changing
from tests.limits.rows import Row, row, spread
from tests.limits.runs import Case, Run
from tests.limits.servers import Bucket, Clocked, Counters, FromFirst, Server, SlidingLog

__all__ = ["PLANS"]

CHANGES = 1000.0  # seconds after which a plan changes: in the middle of a window
ALIKE: tuple[Callable[[float, float], Server], ...] = (FromFirst, Clocked, SlidingLog, Bucket)


def plan_case(kind: Callable[[float, float], Server], before: float, after: float, *, hidden: bool) -> Case:
    """Return a job of half an hour or more, whose limit a minute changes once."""
    requests = int(before * CHANGES / 60.0 + after * 900.0 / 60.0)
    return Case(
        f"{before:g} to {after:g}",
        lambda: Changing(kind(before, 60.0), CHANGES, after / before),
        [1.0] * requests,
        64,
        hidden=hidden,
    )


def used_after(run: Run, limit: float, window: float = 60.0) -> float:
    """Return the seconds from the change to the first window in which nine tenths of its limit pass."""
    passed = sorted(when for when, _ in run.passed)
    for when in passed[bisect_left(passed, CHANGES) :]:
        number = bisect_right(passed, when + window) - bisect_left(passed, when)
        if number >= 0.9 * limit:
            return when - CHANGES
    return inf


def _changes(quick: bool) -> list[Row]:
    """Measure when a plan that grows or shrinks tenfold is used to nine tenths, and its 429s."""
    rows = []
    # An announced plan is seen with the next answer, a minute later at the latest. A hidden one that grew
    # took 121 s before, one that shrank begins with refusals for the rest of a minute.
    for hidden, (before, after), most, refused in (
        (False, (100.0, 1000.0), 62, 2),
        (False, (1000.0, 100.0), 122, 64),
        (True, (100.0, 1000.0), 121, 60),
        (True, (1000.0, 100.0), 242, 100),
    ):
        kinds = ALIKE[:1] if quick else ALIKE
        found = [runs.gate(plan_case(kind, before, after, hidden=hidden), limit=20_000.0) for kind in kinds]
        seconds = max(used_after(run, after) for run in found)
        refusals = max(sum(when >= CHANGES for when, _ in _refused(run)) for run in found)
        what = f"a {'hidden' if hidden else 'shown'} plan {'grows' if after > before else 'shrinks'} tenfold"
        what += ": seconds until 90 % are used, 429s from then on"
        rows.append(row(what, f"<= {most}, <= {refused}", seconds, refusals))
    return rows


def _refused(run: Run) -> list[tuple[float, int]]:
    """Return when requests were sent that did not pass: all but the last of each number."""
    last = {number: when for when, number in run.sent}
    return [(when, number) for when, number in run.sent if when < last[number]]


def _hidden_windows(quick: bool) -> list[Row]:
    """Measure windows of 20 s, which were used to 66 %."""
    good, refusals = [], []
    kinds = (FromFirst, SlidingLog) if quick else (FromFirst, Clocked, SlidingLog)
    for kind, limit, callers in product(kinds, (20.0, 100.0, 400.0), (16, 100)):
        case = Case("20 s", partial(kind, limit, 20.0), [1.0] * int(15 * limit), callers, hidden=True)
        run = runs.gate(case, limit=1e5)
        good.append(run.goodput())
        refusals.append(run.refusals)
    return [
        row("no headers, windows of 20 s: goodput", ">= 90 %", spread(good)),
        row("... 429s a job", "<= 60", max(refusals)),
    ]


def _hidden_limiter(
    name: str, servers: Sequence[tuple[Callable[[], Server], int]], middle: float, least: float
) -> Row:
    """Measure servers without headers that get some requests each."""
    good, refusals = [], []
    for server, requests in servers:
        case = Case(name, server, [1.0] * requests, 100, hidden=True)
        run = runs.gate(case, limit=1e5)
        good.append(run.goodput())
        refusals.append(run.refusals)
    target = f">= {middle:g} / {least:g} %, <= 60"
    return row(f"no headers, {name}: goodput, 429s", target, spread(good), max(refusals))


def _hidden_limiters(quick: bool) -> list[Row]:
    """Measure what HAProxy and nginx do by default; 54 s were needed of 35, and 60 s of 34.

    Even at a steady pace a sliding rate of two counters lets nearly its limit pass. Without a burst the first
    refusals and tries take some of the 34 s.
    """
    phases = (0.0, 3.0) if quick else (0.0, 1.5, 3.0, 4.5, 6.0, 7.5, 9.0)
    haproxy = [(partial(Counters, 100.0, 10.0, phase=phase), 400) for phase in phases]
    rates = (10.0,) if quick else (1.0, 5.0, 10.0, 50.0)
    nginx = [(partial(Bucket, rate, 1.0, size=1.0), int(34 * rate)) for rate in rates]
    return [
        _hidden_limiter("HAProxy's sliding rate of 100 in 10 s", haproxy, 90.0, 85.0),
        _hidden_limiter("nginx without burst", nginx, 85.0, 80.0),
    ]


PLANS: dict[str, Callable[[bool], list[Row]]] = {
    "plans that change": _changes,
    "hidden windows of 20 s": _hidden_windows,
    "hidden limiters of proxies": _hidden_limiters,
}
