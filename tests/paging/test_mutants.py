"""The machine is worth something: scripts of it catch every broken variant, and pass without one."""

from __future__ import annotations

import gc

import pytest

from chainapi.errors import ChainAPIError
from tests.paging.mutants import MUTANTS
from tests.paging.scripts import play

pytestmark = pytest.mark.untraced

CASES = [(name, script) for name, mutant in MUTANTS.items() for script in mutant.scripts]


def test_each_mutant_has_a_script() -> None:
    """No mutant is left that nothing catches."""
    assert {name for name, _ in CASES} == set(MUTANTS)


@pytest.mark.parametrize(("name", "script"), CASES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mutant_is_caught(name: str, script: int) -> None:
    """A broken variant fails in a script that passes without it."""
    mutant = MUTANTS[name]
    play(script, mutant.machine)
    with mutant.make(), pytest.raises((AssertionError, ChainAPIError, KeyError)):
        play(script, mutant.machine)
    gc.collect()  # what a mutant leaves behind is not the next test's
