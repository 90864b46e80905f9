"""Forecasts for calls of several priorities, against servers that count, in virtual time."""

from __future__ import annotations

import random

import pytest
from attrs import evolve

from tests.limits.outside import promised_scene
from tests.limits.replays import check_forecasts
from tests.limits.runs import Case

pytestmark = pytest.mark.proof


def mixed_scene(seed: int, *, hidden: bool) -> Case:
    """Return a job of calls with `max_wait` and random priorities."""
    scene, rng = promised_scene(seed, hidden=hidden), random.Random(seed)
    ranks = rng.choice([(0, 1), (0, 1), (0, 1, 2)])
    weights = [rng.random() + 0.1 for _ in ranks]
    errands = [evolve(errand, priority=rng.choices(ranks, weights)[0]) for errand in scene.errands]
    return evolve(scene, errands=errands)


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


PRIORITIES = [(21, False), (64, False), (67, False), (100, False), (47, True), (202, True)]
PRICES = [(6, None, True), (6, 0.3, True), (10, 0.1, False), (38, 0.2, True), (52, 0.3, True)]
SCENES = [mixed_scene(seed, hidden=hidden) for seed, hidden in PRIORITIES]
SCENES += [priced_scene(seed, share, documented=documented) for seed, share, documented in PRICES]


@pytest.mark.parametrize("scene", SCENES, ids=[str(one) for one in (*PRIORITIES, *PRICES)])
def test_a_call_leaves_within_max_wait_or_is_refused_for_good_reason(scene: Case) -> None:
    """Calls of several priorities and prices leave within `max_wait` and a second, or are refused.

    None is refused whose turn would have come in time, and none again at its `retry_after`.
    """
    found = check_forecasts(scene, most=12)
    assert found.checked > 0
    assert (found.wrong, found.again, found.late, found.soon) == (0, 0, 0, 0)
