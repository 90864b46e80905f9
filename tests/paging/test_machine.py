"""Promise of paging, tested by a reader that does anything at any time."""

from __future__ import annotations

import gc

import pytest

from tests.paging.machine import FlowMachine, PagingMachine
from tests.paging.runs import check
from tests.paging.scripts import play
from tests.paging.tables import TableMachine

# The walk alone is several times faster than a session, and draws the larger part.
SCRIPTS = [(FlowMachine, first) for first in range(0, 1_500, 500)] + [
    (PagingMachine, 0),
    (PagingMachine, 500),
    (TableMachine, 0),
]


@pytest.mark.sample
@pytest.mark.proof
@pytest.mark.parametrize(("machine", "examples"), [(FlowMachine, 200), (PagingMachine, 100)])
def test_each_row_once_whatever_happens(machine: type[PagingMachine], examples: int) -> None:
    """Rows before a checkpoint and after its resume are all rows, once, in 300 walks."""
    check(examples, machine=machine)
    gc.collect()


@pytest.mark.parametrize(("machine", "scripts"), [(FlowMachine, 40), (PagingMachine, 20), (TableMachine, 4)])
def test_each_row_once_in_a_few_walks(machine: type[PagingMachine], scripts: int) -> None:
    """Rows before a checkpoint and after its resume are all rows, once, in some short walks of each kind."""
    for script in range(scripts):
        play(script, machine)
    gc.collect()


@pytest.mark.proof
@pytest.mark.parametrize(("machine", "first"), SCRIPTS)
def test_each_row_once_by_the_script(machine: type[PagingMachine], first: int) -> None:
    """Rows are given once in 3,000 walks, the same with every Python and hypothesis."""
    for script in range(first, first + 500):
        play(script, machine)
    gc.collect()
