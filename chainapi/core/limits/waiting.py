"""Limit on the calls that wait for a quota at once."""

from __future__ import annotations

from itertools import count

from attrs import field, frozen

__all__ = ["WaitingLimit"]


@frozen(eq=False)
class WaitingLimit:
    """Limit on the calls that wait for a quota at once.

    Attributes:
        most: calls that may wait.
        number: the calls with the same number are counted together; by default it is unique in the process.

    """

    most: float
    number: int = field(factory=count().__next__)
