"""Announced reset of a policy: the time when all of its units are back."""

from __future__ import annotations

from math import inf

from attrs import define, field

from chainapi.core.limits.memory import ResetPart, amount, moment, seconds

__all__ = ["ROUNDED", "Reset"]

ROUNDED = 1.75  # seconds: a reset that moves by less is the same one, rounded to whole seconds


@define(eq=False, repr=False)
class Reset:
    """Reset that responses announce, and whether it is the end of a window.

    Attributes:
        at: announced time when all units are back; inf if unknown.
        moving: whether it moved later as units were spent: then units drip, or each has a window of its own.

    """

    at: float = field(default=inf, init=False)
    moving: bool = field(default=False, init=False)
    _first: float = field(default=inf, init=False)  # the first one announced since units came back
    _left: float = field(default=0.0, init=False)  # units that remained at that time

    @property
    def announced(self) -> bool:
        """Whether successes announced it.

        Else it is the end of a refusal's wait, when only few units may be back.
        """
        return self._first < inf

    def announce(self, at: float, left: float) -> None:
        """Record the reset that a success announces while `left` units remain."""
        if self._first == inf:
            self._left = left
        self._first = min(self._first, at)
        self.moving = at - self._first > ROUNDED
        self.at = at

    def refused(self, stop: float) -> None:
        """Record the end of the stop after a refusal: units are back then."""
        self.at, self._first, self.moving = stop, inf, False

    def clear(self) -> None:
        """Forget the reset: units came back, so the announced end has passed."""
        self.at, self._first = inf, inf

    def after(self, time: float) -> float:
        """Return the end of the window if it is after a time; else inf."""
        return inf if self.moving or self.at <= time else self.at

    def stays(self, left: float, spent: float) -> bool:
        """Return whether the reset stayed while more than `spent` units were spent."""
        return not self.moving and self.at < inf and self._left - left > spent

    def memory(self, then: float) -> ResetPart:
        """Return the state for a memory."""
        return ResetPart(seconds(then, self.at), self.moving, seconds(then, self._first), amount(self._left))

    def restore(self, part: ResetPart, then: float) -> None:
        """Continue from a memory."""
        self.at, self.moving = moment(then, part.at), part.moving
        self._first, self._left = moment(then, part.first), part.left
