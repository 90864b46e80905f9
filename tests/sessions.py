"""Sessions on a simulator in memory."""

from __future__ import annotations

from typing import Any

from chainapi import Session
from chainapi.simulator import Simulator

__all__ = ["simulated"]


def simulated(simulator: Simulator, **options: Any) -> Session:
    """Return a session that reaches `simulator` in memory; `options` replace its arguments."""
    return Session(**{**simulator.arguments(), **options})
