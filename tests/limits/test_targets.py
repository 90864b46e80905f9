"""The targets, as assertions; virtual time makes the figures exact."""

from __future__ import annotations

import pytest

from tests.limits.processes import over_processes
from tests.limits.report import TARGETS, strategies, table
from tests.limits.wide import WIDE

CHEAP = ("small jobs", "closed routes")  # the others are proofs


def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of a part of the table: CI runs the cheap ones, and of the first laboratory all."""
    if name in CHEAP:
        return ()
    return (pytest.mark.proof,) if name in WIDE else (pytest.mark.proof, pytest.mark.sample)


@pytest.mark.parametrize("name", [pytest.param(one, marks=marks(one)) for one in TARGETS])
def test_targets_are_met(name: str) -> None:
    """Every row of this part of the table of targets is met."""
    rows = TARGETS[name](True)
    assert rows
    assert [row for row in rows if not row.met] == []


@pytest.mark.proof
def test_usual_strategies_are_worse() -> None:
    """The usual strategies get many refusals, the gate few."""
    lines = [line.split("|") for line in strategies(quick=True).splitlines()[2:]]
    worst = [int(cells[3].split("/")[1].replace(",", "")) for cells in lines]
    assert worst[-1] <= 2
    assert min(worst[:-1]) > 100


def test_table_marks_what_is_not_met() -> None:
    """A target that is missed stands out in the table."""
    row = TARGETS["small jobs"](True)[0]
    assert "| yes |" in table([row])
    assert "**no**" in table([type(row)(row.what, row.target, row.figure, met=False)])


def test_results_of_processes_keep_their_order() -> None:
    """Measurements that are spread over processes come back in order."""
    assert over_processes(abs, range(-9, 0)) == [*range(9, 0, -1)]
