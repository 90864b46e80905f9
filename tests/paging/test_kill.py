"""Kills at any moment of a walk, and its resume from a checkpoint file."""

from __future__ import annotations

import pytest

from tests.paging.kill import walk_and_kill

pytestmark = [pytest.mark.real_time, pytest.mark.proof]


@pytest.mark.parametrize(("pages", "kills", "descending_key"), [(1_000, 50, None), (400, 10, "blockNumber")])
def test_every_row_is_there_once(pages: int, kills: int, descending_key: str | None) -> None:
    """1,000 pages through 50 kills leave each row once and in order, whether the list has an order or not."""
    walk_and_kill(pages, kills, seed=6, descending_key=descending_key)
