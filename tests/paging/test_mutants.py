"""Mutation test of the machine: scripts catch every mutant, and pass without."""

from __future__ import annotations

import gc

import pytest

from chainapi.errors import ChainAPIError
from tests.paging.mutants import MUTANTS, mutated
from tests.paging.scripts import play

pytestmark = [pytest.mark.proof, pytest.mark.sample]

CASES = [(name, script) for name, mutant in MUTANTS.items() for script in mutant["scripts"]]


def test_each_mutant_has_a_script() -> None:
    """Each mutant has a script that catches it."""
    assert {name for name, _ in CASES} == set(MUTANTS)


@pytest.mark.parametrize(("name", "script"), CASES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mutant_is_caught(name: str, script: int) -> None:
    """A mutant fails in a script that passes without it."""
    play(script)
    with mutated(name), pytest.raises((AssertionError, ChainAPIError, KeyError)):
        play(script)
    gc.collect()  # what a mutant leaves behind is not the next test's
