"""Kills at any moment of a walk, and its resume from a checkpoint file."""

from __future__ import annotations

import pytest

from tests.paging.kill import PAGE, walk_and_kill

pytestmark = [pytest.mark.real_time, pytest.mark.untraced]


@pytest.mark.parametrize(
    ("pages", "kills", "descending_key"), [(10_000, 50, None), (1_000, 10, "blockNumber")]
)
def test_every_row_is_there_once(pages: int, kills: int, descending_key: str | None) -> None:
    """10,000 pages through 50 kills leave each row once and in order.

    The list has an order or not.
    """
    killed = walk_and_kill(pages, kills, seed=6, descending_key=descending_key)
    assert killed.kills == kills
    assert len(killed.lines) == killed.rows == pages * PAGE
    assert killed.lines == list(range(killed.lines[0], killed.lines[0] - pages * PAGE, -1))
    assert killed.requests > pages  # what was lost with a walker was requested again
