"""Stable bytes of simulated answers, by which a change that is meant to change none is checked."""

from __future__ import annotations

import json
from collections.abc import Callable

from chainapi import ROUTES, WRITES
from tests.simulator.digests import FILE, SETTINGS, of_posted, of_route, of_setting

KEPT = json.loads(FILE.read_text("utf-8"))
MEND = "the answers changed; if that is intended, run `python -m tests.simulator.digests` and read the diff"


def changed(kind: str, digest: Callable[[str], str]) -> list[str]:
    """Return the names whose answers have another digest, or that no longer exist."""
    return [name for name, kept in KEPT[kind].items() if digest(name) != kept]


def test_answers_keep_their_bytes() -> None:
    """Each route keeps statuses, headers, bodies and tokens for a seed."""
    assert {*KEPT["routes"], *KEPT["posted"]} <= {*ROUTES, *WRITES}, MEND
    assert changed("routes", of_route) == [], MEND
    assert changed("posted", of_posted) == [], MEND


def test_answers_keep_their_bytes_under_each_setting() -> None:
    """Growth, limits, faults and every anomaly keep their bytes for a seed."""
    names = sorted(KEPT["routes"].keys() & ROUTES.keys())
    assert set(KEPT["settings"]) == set(SETTINGS), MEND
    assert changed("settings", lambda setting: of_setting(setting, names)) == [], MEND
