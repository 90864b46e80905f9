"""What each rule of the rate limiter saves: the rows that get worse when it is switched off.

A rule is one function or one constant, and `RULES` has what replaces it. A constant is replaced in the module
that reads it; one that another module imports by its name stays as it is there.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from itertools import product
from math import inf, isclose
from operator import attrgetter
from typing import Any

from attrs import frozen

from tests.limits.processes import over_processes
from tests.limits.report import TARGETS
from tests.limits.rows import Row, numbers

__all__ = ["RULES", "lines_of", "rules_table", "switched_off", "worse"]

# Name, place, and what replaces it.
RULES: tuple[tuple[str, str, Any], ...] = (
    ("others follow a late probe", "quota:SOONEST_HEDGE", inf),
    ("first requests of a route alone", "costs:Costs.known", lambda self, route: True),
    ("a share held for a hidden price", "costs:SHARE", 0.0),
    ("guesses begin slowly", "quota:Quota.wait", lambda self, decision: None),
    ("the lowest of overlapping reports", "policy:Policy._lowest", lambda self, *args: args[2]),
    ("reports correct the level of a bucket", "bucket:TokenBucket.report", lambda self, *args: None),
    ("units back one by one", "policy:Policy._notice", lambda self, *args: None),
    ("a probe of used-up units", "policy:Policy.probes_at", lambda self, opens: inf),
    ("tests of a hidden limit", "hidden:Hidden._test", lambda self, *args: None),
    ("the last units stay unused after a refusal", "policy:LARGEST_RESERVE", 0.0),
    ("hidden windows have usual lengths", "hidden:Hidden._usual", lambda self, low, high: high),
    ("few requests close to a hidden limit", "hidden:Hidden._is_near", lambda self, one: False),
    ("a refused price is a bound", "costs:Costs.refused", lambda self, *args: None),
    ("cheaper requests pass", "queue:Queue._cheaper", lambda self, *args: None),
    ("an inner limiter counts all routes", "quota:Quota._is_shared", lambda self, *args: False),
    ("another route sends the probe", "routes:Routes.step_back", lambda self, *args: None),
    ("a refusal of one route", "routes:Routes.concerns_only", lambda self, *args: False),
)
TOO_LONG = 600  # real seconds for one part of the table: without a rule, a job may never end
SMALL = 0.1, 0.003  # changes of a figure that do not count: absolute, and as a part of it


@frozen
class Found:
    """Rows of one part of the table; without rows, `failed` has the reason."""

    rows: Sequence[Row] = ()
    failed: str = ""


def _owner(place: str) -> tuple[Any, str]:
    """Return the module or class that has a rule, and the rule's name there."""
    module, path = place.split(":")
    parents, _, name = path.rpartition(".")
    found = import_module(f"chainapi._limits.{module}")
    return (attrgetter(parents)(found) if parents else found), name


@contextmanager
def switched_off(place: str, replacement: object) -> Iterator[None]:
    """Replace a rule while this is entered."""
    owner, name = _owner(place)
    before = inspect.getattr_static(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, before)


def lines_of(place: str) -> int:
    """Return the number of lines of a rule: of its function, or one for a constant."""
    owner, name = _owner(place)
    rule = inspect.getattr_static(owner, name)
    rule = getattr(rule, "fget", None) or getattr(rule, "__func__", rule)
    return len(inspect.getsourcelines(rule)[0]) if inspect.isroutine(rule) else 1


def worse(before: Row, after: Row) -> bool:
    """Return whether a row misses its target for the first time, or one of its numbers got worse.

    The target of each part says which direction is worse; ``>=`` that less is.
    """
    if before.met and not after.met:
        return True
    targets = before.target.split(", ")
    for place, (old, new) in enumerate(zip(numbers(before.figure), numbers(after.figure), strict=False)):
        more = not targets[min(place, len(targets) - 1)].startswith(">=")
        for one, other in zip(old, new, strict=False):
            rises = other > one if more else other < one
            if rises and not isclose(one, other, abs_tol=SMALL[0], rel_tol=SMALL[1]):
                return True
    return False


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt  # the only error that leaves an event loop at once


def _measure(quick: bool, job: tuple[int | None, str]) -> Found:
    """Measure one part of the table without the rule of a number, or with all of them."""
    number, name = job
    signal.signal(signal.SIGALRM, _interrupt)
    signal.alarm(TOO_LONG)
    try:
        with nullcontext() if number is None else switched_off(*RULES[number][1:]):
            return Found(TARGETS[name](quick))
    except KeyboardInterrupt:
        return Found(failed=f"takes more than {TOO_LONG} s")
    except Exception as error:  # noqa: BLE001 - without the rule anything may happen
        return Found(failed=repr(error))
    finally:
        signal.alarm(0)


def _changes(name: str, before: Found, after: Found) -> Iterator[str]:
    """Yield what one part of the table loses without a rule."""
    if after.failed:
        yield f"{name}: {after.failed}"
        return
    for one, other in zip(before.rows, after.rows, strict=True):
        if worse(one, other):
            what = f"{name} {one.what}" if one.what.startswith("...") else one.what
            yield f"{what}: {one.figure} -> {other.figure}"


def rules_table(names: Sequence[str], quick: bool) -> str:
    """Return a table of the rules: their lines, and what gets worse without them in some parts."""
    jobs = [*product([None, *range(len(RULES))], names)]
    results = dict(zip(jobs, over_processes(partial(_measure, quick), jobs), strict=True))
    lines = ["| rule | lines | what it saves |", "|---|---|---|"]
    for number, (rule, place, _) in enumerate(RULES):
        saved = [
            change for name in names for change in _changes(name, results[None, name], results[number, name])
        ]
        if len(saved) > 1:
            saved[1:] = [f"{len(saved) - 1} more"]
        lines.append(f"| {rule} | {lines_of(place)} | {'; '.join(saved) or '**nothing**'} |")
    return "\n".join(lines)
