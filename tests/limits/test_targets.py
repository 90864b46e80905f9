"""The targets, as assertions; virtual time makes the figures exact."""

from __future__ import annotations

import pytest

from tests.limits.processes import over_processes
from tests.limits.report import TARGETS, Row, strategies, table
from tests.limits.rules import RULES, lines_of, rules_table, switched_off, worse
from tests.limits.wide import WIDE, measure_case

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


def test_measurements_are_spread_over_processes() -> None:
    """Random jobs that two processes measure have the figures that one finds, in order."""
    assert over_processes(measure_case, range(6)) == over_processes(measure_case, range(6), 1)


@pytest.mark.parametrize(
    ("target", "before", "after", "is_worse"),
    [
        (">= 99.5 / 98.5 %", "99.86 / 98.66 %", "99.80 / 98.60 %", False),
        (">= 99.5 / 98.5 %", "99.86 / 98.66 %", "99.80 / 97.66 %", True),
        (">= 99 / 98 %, <= 5", "99.63 / 99.01 %, 4", "99.63 / 99.01 %, 5", True),
        (">= 99 / 98 %, <= 5", "99.63 / 99.01 %, 4", "99.90 / 99.90 %, 3", False),
        ("<= 0.5 %", "0.44 %", "0.60 %", True),
        ("0, 0", "0, 0", "0, 1,024", True),
        ("<= 62, <= 2", "21, 1", "inf, 1", True),
    ],
)
def test_a_row_that_got_worse(target: str, before: str, after: str, is_worse: bool) -> None:
    """A number is compared in the direction of its target, and tiny changes do not count."""
    assert worse(Row("", target, before, met=True), Row("", target, after, met=True)) is is_worse


def test_rules_are_switched_off_one_at_a_time() -> None:
    """A rule is replaced while it is switched off; its lines are those of its function, or one."""
    for _, place, replacement in RULES:
        assert lines_of(place) >= 1
        with switched_off(place, replacement), switched_off(place, replacement):
            assert lines_of(place) == 1


@pytest.mark.proof
def test_table_of_rules() -> None:
    """Each rule has its line in the table, with what gets worse without it."""
    lines = rules_table(["hung requests", "small jobs"], quick=True).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == [f"| {name}" for name, _, _ in RULES]
    assert "wait longer by: " in lines[0]
