"""The machine is worth something: it catches every broken variant, within the examples that CI runs."""

from __future__ import annotations

import gc

import pytest

from chainapi.errors import ChainAPIError
from tests.paging.mutants import MUTANTS
from tests.paging.runs import check

pytestmark = pytest.mark.untraced


def check_seeds() -> None:
    """Run the machine under several seeds: what hypothesis draws depends on the modules that are loaded."""
    for seed in range(4):
        check(seed=seed, shrink=False)


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mutant_is_caught(name: str) -> None:
    """A broken variant fails under a seed and the settings under which `test_machine` passes."""
    with MUTANTS[name](), pytest.raises((AssertionError, ChainAPIError, KeyError)):
        check_seeds()
    gc.collect()  # what a mutant leaves behind is not the next test's
