"""The simulator's answers keep their bytes: users' tests may rely on the rows of a seed."""

from __future__ import annotations

import json

import pytest

from chainapi.api.catalogue import ROUTES
from tests.simulator.digests import FILE, SETTINGS, of_route, of_setting

KEPT = json.loads(FILE.read_text("utf-8"))
MEND = "the answers changed; if that is intended, run `python -m tests.simulator.digests` and read the diff"


@pytest.mark.untraced
@pytest.mark.parametrize("name", sorted(KEPT["routes"]))
def test_a_route_keeps_its_answers(name: str) -> None:
    """Statuses, headers, bodies and page tokens of a route follow from the seed, in every version."""
    if name not in ROUTES:
        pytest.fail(f"{name} is no route: run `python -m tests.simulator.digests`")
    assert of_route(name) == KEPT["routes"][name], MEND


@pytest.mark.parametrize("setting", sorted(KEPT["settings"]))
def test_answers_keep_their_bytes_under_each_setting(setting: str) -> None:
    """Growth, limits, faults and every anomaly give the same bytes for a seed, in every version."""
    names = sorted(KEPT["routes"].keys() & ROUTES.keys())
    assert of_setting(setting, names) == KEPT["settings"][setting], MEND


def test_every_setting_has_a_digest() -> None:
    """The file has a digest of each setting that the command writes."""
    assert set(KEPT["settings"]) == set(SETTINGS)
