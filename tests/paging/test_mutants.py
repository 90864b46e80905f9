"""The machine is worth something: it catches every broken variant, within the examples that CI runs."""

from __future__ import annotations

import gc

import pytest

from chainapi.errors import ChainAPIError
from tests.paging.mutants import MUTANTS
from tests.paging.runs import check


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mutant_is_caught(name: str) -> None:
    """A broken variant fails under a seed and the settings under which `test_machine` passes."""
    with MUTANTS[name](), pytest.raises((AssertionError, ChainAPIError, KeyError)):
        for seed in range(4):  # what hypothesis draws depends on the modules that happen to be loaded
            check(seed=seed, shrink=False)
    gc.collect()  # what a mutant leaves behind is not the next test's
