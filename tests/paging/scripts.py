"""Scripts for readers: one seed is one script, with any hypothesis and Python.

A script that catches a mutant catches it in every run, which a search for it does not.
"""

from __future__ import annotations

import random
from typing import Any

from attrs import frozen

from tests.paging.choices import ACTIONS, BEGINNING, LASTING, MANNERS, Choices
from tests.paging.machine import FlowMachine, PagingMachine
from tests.paging.service import Manners

__all__ = ["Script", "play"]

STEPS = 12  # of one script at most
READING = ("read_rows", "collect")  # what every script may do
Arguments = dict[str, Any]


@frozen
class Script:
    """Script: the manners of a service, and the actions of its reader."""

    manners: Manners
    beginning: Arguments
    steps: tuple[tuple[str, Arguments], ...]

    @classmethod
    def from_seed(cls, seed: int) -> Script:
        """Draw a script from a seed, without some kinds of actions.

        So the others come often.
        """
        source = random.Random(seed)
        manners, beginning = _draw(source, MANNERS), _draw(source, BEGINNING)
        names = [name for name in ACTIONS if name in READING or source.random() < 0.6]
        chosen = [source.choice(names) for _ in range(source.randint(1, STEPS))]
        steps = tuple((name, _draw(source, ACTIONS[name])) for name in chosen)
        return cls(Manners(**manners), beginning, steps)


def _draw(source: random.Random, choices: Choices) -> Arguments:
    return {name: source.choice(options) for name, options in choices.items()}


def play(seed: int, machine_type: type[PagingMachine] = FlowMachine) -> None:
    """Let a reader follow the script of a seed. Raises what the machine finds."""
    script = Script.from_seed(seed)
    random.seed(seed)  # of the jitter between attempts
    machine = machine_type()
    try:
        machine.begin(drawn=script.manners, **script.beginning)
        for name, arguments in script.steps:
            if not (machine.fragile and name in LASTING):
                getattr(machine, name)(**arguments)
    except BaseException:
        machine.end()
        raise
    machine.teardown()
