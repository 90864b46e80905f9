"""Exponential backoff after refusals that name no wait."""

from __future__ import annotations

__all__ = ["FIRST_BACKOFF", "LONGEST_BACKOFF", "backoff"]

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0  # seconds


def backoff(number: int, longest: float = LONGEST_BACKOFF) -> float:
    """Return the seconds after refusal `number` in a row: 1, 2, 4 ... `longest`."""
    return min(longest, FIRST_BACKOFF * 2.0 ** min(max(number - 1, 0), 16))
