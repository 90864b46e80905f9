"""Row of the table of targets."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from attrs import frozen

__all__ = ["Row", "spread"]


@frozen
class Row:
    """Target: subject, wanted value, measured value, and whether that is enough."""

    what: str
    target: str
    figure: str
    met: bool


def spread(values: Sequence[float]) -> str:
    """Return median and least of percentages."""
    return f"{median(values):.2f} / {min(values):.2f} %"
