"""Promise of paging, tested by a reader that does anything at any time."""

from __future__ import annotations

import gc

import pytest

from tests.paging.machine import PagingMachine
from tests.paging.scripts import play
from tests.paging.tables import TableMachine


@pytest.mark.parametrize(("machine", "scripts"), [(PagingMachine, 60), (TableMachine, 4)])
def test_each_row_once_in_a_few_walks(machine: type[PagingMachine], scripts: int) -> None:
    """All rows come once, before a checkpoint and after its resume, in some walks of each kind."""
    for script in range(scripts):
        play(script, machine)
    gc.collect()


@pytest.mark.sample
@pytest.mark.proof
@pytest.mark.parametrize(
    ("machine", "first"), [*((PagingMachine, first) for first in range(0, 3_500, 500)), (TableMachine, 0)]
)
def test_each_row_once_whatever_happens(machine: type[PagingMachine], first: int) -> None:
    """All rows come once, before a checkpoint and after its resume, in 4,000 walks."""
    for script in range(first, first + 500):
        play(script, machine)
    gc.collect()
