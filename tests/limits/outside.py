"""Targets for real-world services: faults, missing fields, prices, closed routes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

from attrs import evolve

from chainapi import Limit
from tests.limits.replays import CheckedForecasts, check_forecasts
from tests.limits.rows import Row, row, spread
from tests.limits.runs import Case, Run, gate, quickest
from tests.limits.servers import Bucket, Clocked, Counters, FromFirst, Gcra, Server, SlidingLog, Stacked
from tests.limits.wild import Errand, Front

__all__ = ["FORMS", "OUTSIDE", "inner_scene", "many", "promised_scene", "random_scene", "scene"]

KINDS: tuple[Callable[[float, float], Server], ...] = (FromFirst, Clocked, SlidingLog, Bucket)
FORMS = ("d6", "d7", "d8", "x")


def scene(
    server: Callable[[], Server],
    errands: Sequence[Errand],
    front: Front = Front(),  # noqa: B008 - is frozen
    callers: int = 100,
    *,
    seed: int = 0,
    **others: Any,
) -> Case:
    """Return a job against a service that writes header fields; its faults come from the seed."""
    others = {"in_flight": 100, **others}
    return Case("", server, errands, callers, front=front, seed=seed + 1, **others)


def many(count: int, cost: float = 1.0, prior: float | None = None) -> list[Errand]:
    """Return `count` errands alike."""
    return [Errand("/a", cost, prior)] * count


def _stopped(outcomes: Sequence[Run]) -> Row:
    """Return the row of the requests sent in stops, and of hangs."""
    in_stops, hangs = sum(one.in_stops for one in outcomes), sum(one.hung for one in outcomes)
    return row("... sent in stops, hangs", "0, 0", in_stops, hangs)


def _unless_bad(found: Row, outcomes: Sequence[Run]) -> Row:
    """Return a row that is not met if a request was sent in a stop, or a job hung."""
    return evolve(found, met=found.met and _stopped(outcomes).met)


def _partial(quick: bool) -> list[Row]:
    """Measure responses without fields or with a part of them, and server faults."""
    fronts = [
        Front(form=form, **kind)  # type: ignore[arg-type]
        for form in (FORMS[:2] if quick else FORMS)
        for kind in (
            {"silent": 0.05},
            {"silent": 0.5},
            {"faults": 0.2},
            {"faults": 0.2, "retry_after": True},
            {"faults": 0.5, "counted": False},
            {"torn": 0.15},
            {"torn": 0.5},
        )
    ]
    found = [
        gate(scene(partial(kind, 100.0, 60.0), many(300 if quick else 600), front, seed=seed), limit=20_000.0)
        for kind in KINDS
        for front in fronts
        for seed in range(1 if quick else 5)
    ]
    what = "fields missing or partial, 5xx among them: most 429s at an instant"
    return [row(what, "<= 3", max(one.storm for one in found)), _stopped(found)]


def _used(quick: bool) -> list[Row]:
    """Measure windows that others used before the session, from the third window on."""
    good, found = [], []
    for kind in KINDS:
        for share in (0.0, 0.5, 1.0) if quick else (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0):
            for form in ("d6", "d7"):
                case = scene(partial(kind, 100.0, 60.0), many(700), Front(form=form), used=100.0 * share)
                outcome, known = gate(case), quickest(case).seconds
                found.append(outcome)
                late = sum(when >= 120.0 for when in outcome.finished.values())
                due = 700 - 100.0 * (3 - share)
                good.append(100.0 * min(1.0, max(known - 120.0, 1.0) / max(outcome.seconds - 120.0, 1.0)))
                assert late >= due - 300
    what = "0 to 100 % used before: goodput from the third window on"
    return [_unless_bad(row(what, ">= 97 %", spread(good)), found)]


def _short(quick: bool) -> list[Row]:
    """Measure discovery of windows of seconds, small limits, and windows used before."""
    good, used = [], []
    for window in (1.0, 2.0, 5.0):
        for limit in (20.0, 100.0):
            for kind in (FromFirst, SlidingLog):
                errands = many(int(limit * (12 if quick else 24)))
                case = scene(partial(kind, limit, window), errands, Front("none"), callers=16)
                good.append(gate(case).goodput())
    for share in (0.5, 0.9, 1.0):
        case = scene(
            partial(FromFirst, 100.0, 10.0), many(900), Front("none"), callers=16, used=100.0 * share
        )
        used.append(gate(case).goodput())
    return [
        row("hidden windows of 1 to 5 s: goodput", ">= 80 %", spread(good)),
        row("hidden, 50 to 100 % used before: goodput", ">= 80 %", spread(used)),
    ]


def _tiny(quick: bool) -> list[Row]:
    """Measure limits of 1 to 20 in windows of 1 to 10 s, with headers."""
    found, over = [], []
    for limit in (1.0, 3.0, 20.0) if quick else (1.0, 2.0, 3.0, 5.0, 10.0, 20.0):
        for window in (1.0, 2.0, 5.0, 10.0):
            for kind in KINDS:
                case = scene(partial(kind, limit, window), many(int(6 * limit)))
                outcome = gate(case)
                found.append(outcome)
                over.append((outcome.seconds - quickest(case).seconds) / window)
    return [
        row("limits of 1 to 20 in 1 to 10 s: 429s a job", "<= 3", max(one.refusals for one in found)),
        row("... windows longer than the all-knowing", "<= 1", max(over)),
    ]


def _prices(quick: bool) -> list[Row]:
    """Measure undocumented and wrongly documented prices."""
    found, good = [], []
    for seed in range(6 if quick else 40):
        rng = random.Random(seed)
        routes = {f"/{name}": rng.choice([1.0, 5.0, 20.0, 50.0]) for name in range(rng.choice([1, 3, 8]))}
        prior = rng.choice([None, 1.0, 10.0])
        errands = [Errand(route, routes[route], prior) for route in rng.choices(list(routes), k=500)]
        kind = rng.choice([FromFirst, SlidingLog, Bucket])
        case = scene(partial(kind, 1000.0, 60.0), errands, callers=256, in_flight=256, seed=seed)
        outcome = gate(case)
        found.append(outcome)
        if quickest(case).seconds >= 60.0:
            good.append(outcome.goodput())
    refusals, storm = max(one.refusals for one in found), max(one.storm for one in found)
    what = "unknown and wrong weights: 429s a job, most at an instant"
    return [
        _unless_bad(row(what, "<= 5, <= 3", refusals, storm), found),
        row("... goodput, median / worst", ">= 97 / 90 %", spread(good)),
    ]


def _closed(_quick: bool) -> list[Row]:
    """Measure a route that is always refused, for seconds or an hour, among others."""
    errands = [Errand("/bad" if number % 10 == 0 else "/good") for number in range(300)]
    found, waits = [], []
    for form in ("d6", "d7", "none"):
        for seconds in (20.0, 3600.0):
            front = Front(form, closed=frozenset(["/bad"]), closed_for=seconds)
            outcome = gate(scene(partial(FromFirst, 1000.0, 60.0), errands, front), limit=1e6)
            found.append(outcome)
            waits.append(outcome.seconds)
    what = "a route that is always refused: others lost, seconds for them"
    return [_unless_bad(row(what, "0, <= 10", 270 - min(one.done for one in found), max(waits)), found)]


def _series(quick: bool) -> list[Row]:
    """Measure two limiters in series, the inner one named only in its refusals."""
    found = []
    for inner in (Limit(10, 1.0), Limit(50, 5.0)):
        for concurrency in (4, 100) if quick else (1, 4, 16, 100):

            def build(inner: Limit = inner) -> Server:
                return Stacked(
                    500.0,
                    60.0,
                    first=FromFirst(500.0, 60.0),
                    second=FromFirst(inner.amount, inner.per),
                    in_turn=True,
                )

            found.append(gate(scene(build, many(554), callers=concurrency), limit=20_000.0))
    # No response shows an inner limit until it refuses the requests in flight at that time.
    worst = max(one.refusals - one.first_burst for one in found)
    what = "two limiters in series: 429s a job after the first refused burst"
    return [_unless_bad(row(what, "<= 3", worst), found)]


def inner_scene(
    rate: float, burst: float, callers: int, *, fields: str = "none", waitless: bool = False, routes: int = 1
) -> Case:
    """Return a job of a minute, or 600 requests, with an unannounced inner bucket."""
    count = int(max(600.0, 60.0 * rate))
    outer = 20.0 * count

    def build() -> Server:
        inner = Bucket(rate, 1.0, size=burst)
        return Stacked(outer, 60.0, first=FromFirst(outer, 60.0), second=inner, in_turn=True)

    errands = [Errand(f"/{number % routes}") for number in range(count)]
    return scene(build, errands, Front(inner=fields, waitless=waitless), callers=callers)


def _unnamed(quick: bool) -> list[Row]:
    """Measure an unannounced inner limiter: refusals without its own fields."""
    found, shares, good = [], [], []
    ways = product(
        (10.0,) if quick else (1.0, 10.0, 50.0),
        (1.0, 10.0, 20.0),
        (100,) if quick else (4, 100),
        ("none", "outer"),
        (False, True),
        (1, 3),
    )
    for rate, burst, callers, fields, waitless, routes in ways:
        case = inner_scene(rate, burst, callers, fields=fields, waitless=waitless, routes=routes)
        outcome = gate(case, limit=20_000.0)
        found.append(outcome)
        shares.append(100.0 * (outcome.refusals - outcome.first_burst) / len(case.errands))
        good.append(outcome.goodput())
    what = "an inner limiter that nothing names: 429s of the requests after the first refused burst"
    return [
        row(what, "<= 5 %", max(shares)),
        row("... goodput, median / worst", ">= 90 / 75 %", spread(good)),
        _stopped(found),
    ]


def _waits(quick: bool) -> list[Row]:
    """Measure refusals without a wait, and headers with a reset on every response."""
    silent = [
        gate(scene(partial(kind, 100.0, 60.0), many(400), Front(waitless=True)))
        for kind in (FromFirst, SlidingLog)
    ]
    good = []
    for form in ("d7",) if quick else ("d7", "d8", "x"):
        for kind in (FromFirst, SlidingLog, Bucket, Gcra, Counters):
            case = scene(partial(kind, 1000.0, 60.0), many(3000), Front(form))
            good.append(gate(case).goodput())
    return [
        row("429s without a wait: 429s a job", "<= 1", max(one.refusals for one in silent)),
        row("a reset on every answer (d7, d8, X-): goodput", ">= 97 / 60 %", spread(good)),
    ]


def random_scene(seed: int) -> Case:
    """Return a job against a service of random kind, size, form and faults."""
    rng = random.Random(seed)
    limit, window = float(rng.choice([5, 20, 100, 1000])), rng.choice([2.0, 10.0, 60.0, 3600.0])
    kind = rng.choice(KINDS)
    routes = {f"/{name}": float(rng.choice([1, 1, 1, max(1, limit // 50)])) for name in range(3)}
    priors: dict[str, float | None] = {
        name: rng.choice([None, 1.0, 10.0, cost]) for name, cost in routes.items()
    }
    front = Front(
        form=rng.choice(FORMS),
        faults=rng.choice([0.0, 0.0, 0.1]),
        counted=rng.random() < 0.5,
        retry_after=rng.random() < 0.5,
        torn=rng.choice([0.0, 0.0, 0.2]),
        silent=rng.choice([0.0, 0.0, 0.2]),
        closed=frozenset(rng.choice([(), (), ("/bad",)])),
        waitless=rng.random() < 0.1,
    )
    names = [*routes, *front.closed]
    errands = [
        Errand(name, routes.get(name, 1.0), priors.get(name))
        for name in rng.choices(names, k=int(min(600.0, 4.0 * limit)))
    ]
    return scene(
        partial(kind, limit, window),
        errands,
        front,
        callers=rng.choice([1, 8, 100, 256]),
        used=float(rng.choice([0, 0, 0.3, 1.0]) * limit),
        seed=seed,
    )


def _any(quick: bool) -> list[Row]:
    """Measure random services of all these kinds."""
    found = [gate(random_scene(seed)) for seed in range(30 if quick else 2000)]
    refusals = sorted(one.refusals for one in found)
    high, storm = refusals[int(0.99 * len(refusals))], max(one.storm for one in found)
    what = f"{len(found)} random services with faults: 429s p99 / max, most at an instant"
    return [row(what, "<= 5 / 20, <= 3", (high, refusals[-1]), storm), _stopped(found)]


def promised_scene(seed: int, *, hidden: bool) -> Case:
    """Return a job of calls with `max_wait`, for a service with all headers or none."""
    rng = random.Random(seed)
    limit = float(rng.choice([20, 100, 400]))
    window = rng.choice([5.0, 10.0, 60.0] if hidden else [10.0, 60.0, 600.0])
    kind = rng.choice(KINDS)
    form = "none" if hidden else rng.choice(["d6", "d7", "d8"])
    count = int(limit * rng.choice([1, 2, 3]))
    callers, spread = rng.choice([count, count, 16]), rng.choice([0.0, 5.0, window / 2, 2 * window])
    max_wait = rng.choice([0.0, 1.0, 5.0, window / 2, 1.5 * window])
    used = limit * rng.choice([0.0, 0.0, 0.3, 1.0])
    if kind is SlidingLog and not hidden:
        used = 0.0  # no header has the time when units used by others come back
    return scene(
        partial(kind, limit, window),
        many(count),
        Front(form),
        callers=callers,
        spread=spread,
        seed=seed,
        max_wait=max_wait,
        used=used,
    )


def _forecasts(quick: bool) -> list[Row]:
    """Replay every refusal by `max_wait` with another future, and check it."""
    rows = []
    for hidden, kind, target in (
        (False, "whole headers", "<= 0.2, <= 0 %"),
        (True, "hidden", "<= 2, <= 2 %"),
    ):
        scenes = (promised_scene(seed, hidden=hidden) for seed in range(14 if quick else 200))
        found = sum(map(check_forecasts, scenes), CheckedForecasts())
        what = f"forecasts, {kind}: {found.checked} refusals of `max_wait` in vain, again at `retry_after`"
        shares = row(what, target, *found.share())
        late = "... later than `max_wait` and a second, quota free again at once"
        rows += [
            evolve(shares, met=shares.met and found.checked > 20),
            row(late, "0, 0", found.late, found.soon),
        ]
    return rows


OUTSIDE: dict[str, Callable[[bool], list[Row]]] = {
    "partial fields": _partial,
    "used before": _used,
    "short hidden windows": _short,
    "tiny limits": _tiny,
    "prices": _prices,
    "closed routes": _closed,
    "in series": _series,
    "unnamed": _unnamed,
    "waits": _waits,
    "random services": _any,
    "forecasts": _forecasts,
}
