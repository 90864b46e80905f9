"""One line of the table of targets."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from attrs import frozen

__all__ = ["Row", "spread"]


@frozen
class Row:
    """One target: what it is about, what is wanted, what was measured, and whether that will do."""

    what: str
    target: str
    figure: str
    met: bool


def spread(values: Sequence[float]) -> str:
    """Return median and least of percentages."""
    return f"{median(values):.2f} / {min(values):.2f} %"
