"""Verdict: meaning of a response for the quota."""

from __future__ import annotations

from enum import Enum

__all__ = ["Verdict"]


class Verdict(Enum):
    """Meaning of a response for the quota: a success, or requests stopped by a 429."""

    PASSED = "passed"
    QUOTA = "quota"  # refused: all requests wait
    UNANNOUNCED = "unannounced"  # refused by a limit that no header announces: all requests wait
    ROUTE = "route"  # refused: requests of this route wait
    TOO_EXPENSIVE = "too expensive"  # refused while the whole limit was left
