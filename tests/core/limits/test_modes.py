"""Modes of a quota: each step is in the table, and quotas reach each entry of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chainapi import Limit
from chainapi.core.limits.modes import TRANSITIONS, Event, Mode, sends_probe
from chainapi.core.limits.probe import Probes
from chainapi.core.limits.quota import Quota
from tests.core.limits.test_quota import walk

PAGE = Path(__file__).parents[3] / "docs" / "rate-limits.md"


class Recorder(Probes):
    """Probes that record the steps of the mode."""

    taken: list[tuple[Mode, Event, Mode]]

    def _take(self, event: Event) -> None:
        before = self.mode
        super()._take(event)
        self.taken.append((before, event, self.mode))


def entries() -> Iterator[tuple[Mode, Event, Mode]]:
    """Return the entries of the table."""
    for before, events in TRANSITIONS.items():
        for event, after in events.items():
            yield before, event, after


def steps(seed: int) -> list[tuple[Mode, Event, Mode]]:
    """Return the steps of a random walk."""
    quota = Quota(20, (Limit(3.0, 20.0),) if seed % 2 else (), probe=seed % 3 > 0)
    quota.probes = probes = Recorder()
    probes.taken = []
    if seed % 4 == 3:
        quota.restore(Quota().memory(0.0), 0.0, 1.0)
    for _ in walk(quota, seed):
        assert quota.mode is (probes.taken[-1][2] if probes.taken else Mode.LEARNING)
    return probes.taken


@pytest.mark.parametrize("seed", range(10))
def test_steps_are_in_the_table(seed: int) -> None:
    """A quota changes its mode by events only, and each of its steps is in the table."""
    taken = steps(seed)
    assert set(taken) <= set(entries())
    assert all(one[2] is other[0] for one, other in pairwise(taken))


def test_entries_are_reached() -> None:
    """Each entry of the table is a step of some quota."""
    missing = set(entries()) - {step for seed in range(60) for step in steps(seed)}
    assert not missing


def test_modes_are_all_in_the_table() -> None:
    """Each mode and event has an entry; a mode before a probe has that step."""
    assert list(TRANSITIONS) == list(Mode)
    assert {event for _, event, _ in entries()} == set(Event)
    for mode in Mode:
        assert sends_probe(mode) is (mode in (Mode.LEARNING, Mode.STOPPED, Mode.RETRYING))
        assert TRANSITIONS[mode][Event.PROBE_SENT] is Mode.PROBING


def test_page_draws_the_table() -> None:
    """The diagram in the docs has the modes and entries of the table, and no others."""
    text = PAGE.read_text("utf-8")
    assert text.count("stateDiagram-v2") == 1
    diagram = text.split("stateDiagram-v2")[1].split("```")[0]
    drawn = set(re.findall(r"^ +(\w+) --> (\w+): (.+)$", diagram, re.MULTILINE))
    assert drawn == {(before.name, after.name, event.value) for before, event, after in entries()}
    assert dict(re.findall(r"^ +(\w+): (.+)$", diagram, re.MULTILINE)) == {
        one.name: one.value for one in Mode
    }
    assert "[*] --> LEARNING\n" in diagram
