"""Stable bytes of simulated answers: users' tests may rely on the rows of a seed."""

from __future__ import annotations

import json

import pytest

from chainapi.api.catalogue import ROUTES, WRITES
from tests.simulator.digests import FILE, SETTINGS, of_posted, of_route, of_setting

KEPT = json.loads(FILE.read_text("utf-8"))
MEND = "the answers changed; if that is intended, run `python -m tests.simulator.digests` and read the diff"


@pytest.mark.untraced
@pytest.mark.parametrize("name", sorted(KEPT["routes"]))
def test_a_route_keeps_its_answers(name: str) -> None:
    """Routes keep statuses, headers, bodies and tokens for a seed in all versions."""
    if name not in ROUTES:
        pytest.fail(f"{name} is no route: run `python -m tests.simulator.digests`")
    assert of_route(name) == KEPT["routes"][name], MEND


@pytest.mark.parametrize("name", sorted(KEPT["posted"]))
def test_a_write_keeps_its_answers(name: str) -> None:
    """Routes with POST, PATCH or DELETE keep their answers for a seed in all versions."""
    if name not in ROUTES and name not in WRITES:
        pytest.fail(f"{name} is no route: run `python -m tests.simulator.digests`")
    assert of_posted(name) == KEPT["posted"][name], MEND


@pytest.mark.parametrize("setting", sorted(KEPT["settings"]))
def test_answers_keep_their_bytes_under_each_setting(setting: str) -> None:
    """Settings keep their bytes for a seed in all versions.

    They are growth, limits, faults and every anomaly.
    """
    names = sorted(KEPT["routes"].keys() & ROUTES.keys())
    assert of_setting(setting, names) == KEPT["settings"][setting], MEND


def test_every_setting_has_a_digest() -> None:
    """The file has a digest of each setting that the command writes."""
    assert set(KEPT["settings"]) == set(SETTINGS)
