"""Servers of all kinds, and the runs of a job against each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import cycle, product

from attrs import field, frozen

from tests.limits import runs
from tests.limits.runs import Case, Run
from tests.limits.servers import (
    Bucket,
    Clocked,
    Counters,
    FromFirst,
    Gcra,
    Penal,
    Server,
    SlidingLog,
    Stacked,
)

__all__ = ["DAY", "KINDS", "LIMIT", "ONE", "WINDOW", "Build", "Cell", "cells", "server_kinds"]

LIMIT, WINDOW = 1000.0, 60.0
DAY = 86400.0
ONE = [1.0] * 3000
QUICK = ((16, True), (4096, False))  # concurrency, and whether some round trips are long: in turn

Build = Callable[[], Server]


def server_kinds(limit: float, window: float, phase: float, burst: float) -> dict[str, Build]:
    """Return servers of each kind, with limits, clocks and bursts as random cases choose them."""
    day = partial(Clocked, 2.2 * limit, 24 * window, phase=phase)
    return {
        "window from the first request": lambda: FromFirst(limit, window),
        "window on the clock": lambda: Clocked(limit, window, phase=phase),
        "sliding log": lambda: SlidingLog(limit, window),
        "sliding counters": lambda: Counters(limit, window, phase=phase),
        "token bucket": lambda: Bucket(limit, window),
        "GCRA, burst of 10": lambda: Gcra(limit, window, size=burst),
        "minute and day": lambda: Stacked(limit, window, first=FromFirst(limit, window), second=day()),
        "penalty": lambda: Penal(limit, window),
    }


KINDS = server_kinds(LIMIT, WINDOW, phase=23.0, burst=10.0)
KINDS["minute and day"] = lambda: Stacked(
    LIMIT, WINDOW, first=FromFirst(LIMIT, WINDOW), second=FromFirst(2500.0, DAY)
)


@frozen
class Cell:
    """One run beside that of the all-knowing client."""

    case: Case
    known: Run
    run: Run = field(repr=False)

    @property
    def goodput(self) -> float:
        """Return the all-knowing client's time as a share of the time taken, in per cent."""
        return 100.0 * self.known.seconds / self.run.seconds


def cells(
    quick: bool,
    kinds: Iterable[str],
    change: Callable[[Case], Case] = lambda case: case,
    *,
    probe: bool = True,
) -> list[Cell]:
    """Run all kinds of servers, concurrencies and round trips; `quick`: one of these."""
    ways = product((1, 16, 256, 4096), (False, True))
    found = []
    for name, (concurrency, tail) in zip(kinds, cycle(QUICK)) if quick else product(kinds, ways):
        case = change(Case(name, KINDS[name], ONE, concurrency, tail=tail))
        known = runs.knowing(case)
        found.append(Cell(case, known, runs.gate(case, probe=probe, limit=runs.GIVE_UP * known.seconds)))
    return found
