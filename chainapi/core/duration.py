"""Durations in seconds."""

from __future__ import annotations

__all__ = ["DAY", "HOUR", "MINUTE", "in_words"]

MINUTE = 60.0
HOUR = 3_600.0
DAY = 86_400.0


def in_words(seconds: float) -> str:
    """Return a duration in its largest unit that has two or more."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
