"""The targets, as assertions; virtual time makes the figures exact."""

from __future__ import annotations

import pytest

from tests.limits.report import Row, measure

ROWS = measure(quick=True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_target_is_met(row: Row) -> None:
    """Every row of the table of targets is met."""
    assert row.met, f"{row.what}: wanted {row.target}, measured {row.figure}"
