"""Scripts for readers: one seed is one script, with any Python.

A seed draws the manners of a service, and the actions of its reader. A script that catches a mutant catches
it in every run.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from tests.paging.machine import PagingMachine
from tests.paging.service import LIFETIME, Fault, Manners

__all__ = ["Script", "play"]

Choices = Mapping[str, Sequence[Any]]
Arguments = dict[str, Any]

# What is ordinary comes first, and more often than what is odd: two oddities at a time hide each other.
MANNERS: Choices = {
    "kind": ["points", "plain", "keyed", "ordered", "both", "bykey"],
    "until": [False, False, True],
    "names": ["own"] * 6 + ["pairs", "threes", "far", "one"],
    "ties": [1, 1, 1, 2, 3, 50],
    "clash": [1, 1, 1, 1, 2, 3],
    "order": ["descending"] * 5 + ["swapped", "shuffled", "ascending"],
    "tokens": ["anchored", "anchored", "anchored", "position", "overlap", "scroll"],
    "page_size": [1, 2, 3, 4, 5, 9],
    "latency": [0.0, 2.0],
    "ending": ["absent", "null", "empty"],
    "late_end": [False, True],
    "empties": [0, 0, 0, 1, 2],
    "nulls": [False, True],
    "cycle": [None] * 7 + [(1, 0), (2, 0), (3, 1), (4, 2)],
    "repeat": [None] * 10 + ["last", "all"],
    "dead_status": [400, 404, 410, 422],
    "stillborn": [False] * 9 + [True],
    "small": [False, False, True],
}
BEGINNING: Choices = {"rows": range(15), "prefetch": range(4), "patience": [False, True]}

FAULTS = [
    Fault(429),
    Fault(429, retry_after=1.0),
    Fault(429, retry_after=60.0),
    Fault(429, retry_after=90_000.0),
    Fault(500),
    Fault(503, retry_after=5.0),
    Fault(503, retry_after=90_000.0),
    Fault(broken="cut"),
    Fault(broken="garbled"),
    Fault(broken="stall"),
]
READERS = ["pages", "rows", "collect"]
ROWS = range(21)  # the index of one

ACTIONS: Mapping[str, Choices] = {
    "read_pages": {"count": range(1, 5)},
    "read_rows": {"count": range(1, 10)},
    "collect": {"limit": [None, *range(1, 10)]},
    "cancelled": {"delay": [0.0, 0.5, 1.0, 1.5, 3.0, 30.0, 100_000.0], "how": READERS},
    "closed_meanwhile": {"delay": [0.0, 0.5, 1.5, 3.0, 30.0], "how": READERS, "session": [False, True]},
    "resume": {
        "back": [0, 0, 0, *range(13)],
        "prefetch": range(4),
        "on_expired": ["restart", "restart", "raise"],
        "close": [False, True],
        "grown": [0, 0, 0, 1, 6],
        "shrunk": [0, 0, 1, 2],
    },
    "interrupted": {"count": range(1, 7), "grown": [0, 0, 1, 6], "shrunk": [0, 0, 1, 2]},
    "wait": {"seconds": [1.0, 100.0, LIFETIME / 2, LIFETIME, 3 * LIFETIME]},
    "wait_for_death": {"late": [-61.0, -3.0, -1.0, -0.001, 0.0, 1.0]},
    "move_wall_clock": {"seconds": [-1e6, -3_600.0, 3_600.0, 1e6]},
    "insert": {"count": range(1, 6)},
    "delete": {"index": ROWS},
    "copy": {"index": ROWS},
    "mislay": {"index": ROWS},
    "change": {"index": ROWS},
    "move": {"index": ROWS},
    "shut": {},
    "reopen": {},
    "fail": {"fault": FAULTS, "count": range(1, 4)},
    "forget_tokens": {"newest": [None, None, 1, 2]},
}
# Actions that need a service which gives again what it once gave.
LASTING = frozenset(
    {"cancelled", "closed_meanwhile", "resume", "interrupted", "copy", "mislay", "move", "shut"}
)

STEPS = 12  # of one script at most
READING = ("read_rows", "collect")  # what every script may do


@frozen
class Script:
    """Script: the manners of a service, and the actions of its reader."""

    manners: Manners
    beginning: Arguments
    steps: tuple[tuple[str, Arguments], ...]
    seed: int

    @classmethod
    def from_seed(cls, seed: int) -> Script:
        """Draw a script from a seed; it lacks some kinds of actions, so that the others come often."""
        source = random.Random(seed)
        manners, beginning = _draw(source, MANNERS), _draw(source, BEGINNING)
        names = [name for name in ACTIONS if name in READING or source.random() < 0.6]
        chosen = [source.choice(names) for _ in range(source.randint(1, STEPS))]
        steps = tuple((name, _draw(source, ACTIONS[name])) for name in chosen)
        return cls(Manners(**manners), beginning, steps, seed)

    def play(self, machine_type: type[PagingMachine] = PagingMachine) -> None:
        """Let a reader follow the script. Raises what the machine finds."""
        random.seed(self.seed)  # of the jitter between attempts
        machine = machine_type(self.manners, **self.beginning)
        try:
            for name, arguments in self.steps:
                if not (machine.fragile and name in LASTING):
                    getattr(machine, name)(**arguments)
            machine.finish()
        finally:
            machine.end()

    def shortest(self) -> Script:
        """Return the script without the actions that it does not need to fail."""
        for place in range(len(self.steps)):
            shorter = evolve(self, steps=self.steps[:place] + self.steps[place + 1 :])
            try:
                shorter.play()
            except Exception:  # noqa: BLE001 - it still fails
                return shorter.shortest()
        return self


def _draw(source: random.Random, choices: Choices) -> Arguments:
    return {name: source.choice(options) for name, options in choices.items()}


def play(seed: int, machine_type: type[PagingMachine] = PagingMachine) -> None:
    """Let a reader follow the script of a seed. Raises what the machine finds."""
    Script.from_seed(seed).play(machine_type)
