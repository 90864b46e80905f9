"""The promise of paging, put to a reader that does anything at any time."""

from __future__ import annotations

import gc

import pytest

from tests.paging.runs import check
from tests.paging.scripts import play

pytestmark = pytest.mark.untraced

SCRIPTS = 2_000


def test_each_row_once_whatever_happens() -> None:
    """Rows before a checkpoint and rows after resuming from it are all rows, each once, in 500 walks."""
    check()
    gc.collect()


@pytest.mark.parametrize("first", range(0, SCRIPTS, 500))
def test_each_row_once_by_the_script(first: int) -> None:
    """The same in 2,000 walks that are the same ones with every Python and hypothesis."""
    for script in range(first, first + 500):
        play(script)
    gc.collect()
