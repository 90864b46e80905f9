"""Durations in seconds."""

from __future__ import annotations

__all__ = ["DAY", "HOUR", "MINUTE"]

MINUTE = 60.0
HOUR = 3_600.0
DAY = 86_400.0
