"""Runs of the machine: the settings of the tests and of the long soak."""

from __future__ import annotations

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.paging.machine import FlowMachine, PagingMachine

__all__ = ["EXAMPLES", "check"]

EXAMPLES = 500  # of each round of the soak
STEPS = 12  # rules of one example


def check(examples: int = EXAMPLES, *, seed: int = 0, machine: type[PagingMachine] = FlowMachine) -> None:
    """Run the machine, with the same examples for the same seed.

    Raises what the machine finds.
    """
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    seeded = hypothesis.seed(seed)(type("Seeded", (machine,), {}))
    run_state_machine_as_test(seeded, settings=chosen)
