"""Exports that meet a fault at any system call, in all threads and libraries; `faults` does it."""

from __future__ import annotations

import pytest

from tests.export.contract import TARGETS
from tests.export.faults import faults

pytestmark = pytest.mark.proof

LOCAL = [str(one) for one in TARGETS if not one.remote]


@pytest.mark.parametrize(
    ("words", "every"),
    [
        pytest.param(("text file", "key and order"), 25, marks=pytest.mark.sample, id="sample"),
        *(pytest.param((target,), 5, id=target) for target in LOCAL),
    ],
)
def test_no_row_is_lost_or_repeated(
    words: tuple[str, ...], every: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """A kill, a full disk or an I/O error at any system call loses and repeats no row."""
    status = faults(*words, "--every", f"{every}").returncode
    assert status == 0, capfd.readouterr().out
