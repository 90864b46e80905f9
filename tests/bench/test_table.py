"""Benchmarks: a sample of the walks, and names of benchmarks."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.bench.__main__ import main
from tests.bench.table import ALL, LINES, STRUCT, measure


@pytest.mark.proof
@pytest.mark.program
def test_each_client_reads_all_rows() -> None:
    """Each client of the benchmark reads all rows of a walk, and is measured beside the loop by hand."""
    [work] = [evolve(work, pages=2) for work, _ in LINES if work.nulls]
    measured = measure(work, ALL, seconds=0.0)
    assert list(measured) == [one.name for one in ALL]
    assert all(len(rounds) == 3 and min(rounds) > 0 for rounds in measured.values())
    assert measured[STRUCT.name] == [1.0, 1.0, 1.0]


def test_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A name without a benchmark ends the command with the list of names, before anything is measured."""
    with pytest.raises(SystemExit, match="no benchmark walk: choose from walks, decoding"):
        main(["walk"])
    assert capsys.readouterr().out == ""
