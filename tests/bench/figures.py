"""Figures of a benchmark as text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

__all__ = ["shown"]


def shown(figures: Sequence[float], digits: int = 2) -> str:
    """Return the median of the rounds, with the least and the greatest figure."""
    return f"{median(figures):.{digits}f} ({min(figures):.{digits}f} to {max(figures):.{digits}f})"
