"""An export killed at any moment has each row once, in every format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from chainapi.export.formats import format_of
from tests.export.killed_runs import CHAINS, PAGE, PAGES, export_and_kill

pytestmark = [pytest.mark.real_time, pytest.mark.untraced]

KILLS = 20


def rows_of(path: Path) -> Counter[str]:
    """Count the rows of a file."""
    return Counter(repr(sorted(row.items())) for row in format_of(path).read(path))


@pytest.mark.parametrize(
    ("format_", "groups"),
    [("jsonl", False), ("parquet", False), ("parquet", True), ("duckdb", False)],
    ids=["jsonl", "parquet", "parquet groups", "duckdb"],
)
def test_the_rows_are_those_of_a_straight_run(format_: str, tmp_path: Path, *, groups: bool) -> None:
    """Rows after 20 kills are those of a run without kills."""
    straight, killed = tmp_path / f"straight.{format_}", tmp_path / f"killed.{format_}"
    deaths = export_and_kill(killed, straight, KILLS, seed=len(format_), groups=groups)
    assert deaths.kills == KILLS
    assert deaths.requests_met
    assert deaths.by_itself
    assert deaths.writing
    rows = rows_of(killed)
    assert rows == rows_of(straight)
    assert set(rows.values()) == {1}
    assert rows.total() >= len(CHAINS) * PAGES * PAGE
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [killed.name, f"{killed.name}.export", straight.name, f"{straight.name}.export"]
    )


def test_ranges_continue_after_kills(tmp_path: Path) -> None:
    """Rows of lists in ranges, killed in the middle of some of them, are those of whole walks."""
    straight, killed = tmp_path / "straight.jsonl", tmp_path / "killed.jsonl"
    assert export_and_kill(killed, straight, 10, seed=3, ranges=6).kills == 10
    rows = rows_of(killed)
    assert rows == rows_of(straight)
    assert set(rows.values()) == {1}
    assert rows.total() >= len(CHAINS) * PAGES * PAGE
