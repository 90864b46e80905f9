"""The promise of paging, put to a reader that does anything at any time."""

from __future__ import annotations

import gc

import pytest

from tests.paging.runs import check

pytestmark = pytest.mark.untraced


def test_each_row_once_whatever_happens() -> None:
    """Rows before a checkpoint and rows after resuming from it are all rows, each once, in 2,000 walks."""
    check()
    gc.collect()
