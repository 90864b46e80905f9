"""Forecasts for calls of several priorities, against servers that count, in virtual time."""

from __future__ import annotations

import random

import pytest
from attrs import evolve

from tests.limits.outside import promised_scene
from tests.limits.replays import check_forecasts
from tests.limits.runs import Case, gate

pytestmark = pytest.mark.proof


def mixed_scene(seed: int, *, hidden: bool) -> Case:
    """Return a job of calls with `max_wait` and random priorities."""
    scene, rng = promised_scene(seed, hidden=hidden), random.Random(seed)
    ranks = rng.choice([(0, 1), (0, 1), (0, 1, 2)])
    weights = [rng.random() + 0.1 for _ in ranks]
    errands = [evolve(errand, priority=rng.choices(ranks, weights)[0]) for errand in scene.errands]
    return evolve(scene, errands=errands)


SEEDS = [(21, False), (64, False), (67, False), (100, False), (47, True), (202, True)]


def test_forecasts_are_right_for_calls_of_several_priorities() -> None:
    """No call is refused whose turn would have come in time, and none again at its `retry_after`."""
    for seed, hidden in SEEDS:
        found = check_forecasts(mixed_scene(seed, hidden=hidden))
        assert found.checked > 0
        assert (found.wrong, found.again, found.late, found.soon) == (0, 0, 0, 0), seed


def priced_scene(seed: int, share: float | None, *, documented: bool) -> Case:
    """Return a job whose requests cost 1 or 8: a share of them, or all of the lowest priority, cost 8."""
    scene, rng = mixed_scene(seed, hidden=False), random.Random(seed + 1)
    errands = []
    for errand in scene.errands:
        expensive = errand.priority == 0 if share is None else rng.random() < share
        cost = 8.0 if expensive else 1.0
        route = "/expensive" if expensive else "/cheap"
        errands.append(evolve(errand, route=route, cost=cost, prior=cost if documented else None))
    return evolve(scene, errands=errands)


@pytest.mark.parametrize(
    ("seed", "share", "documented", "in_time"),
    [
        (6, None, True, 265),
        (6, 0.3, True, 216),
        (10, 0.1, False, 156),
        (38, 0.2, True, 202),
        (52, 0.3, True, 12),
    ],
)
def test_no_call_leaves_later_than_it_may_wait(
    seed: int, share: float | None, documented: bool, in_time: int
) -> None:
    """While units drip back, calls of cost 1 and 8 leave within `max_wait` and a second, or are refused.

    At least those are answered that were in time when others left too late.
    """
    outcome = gate(priced_scene(seed, share, documented=documented), limit=1e5)
    assert (outcome.overdue, outcome.hung) == (0, False)
    assert outcome.done >= in_time
