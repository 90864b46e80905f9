"""Share of a walk that a run has done, by the numbers of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

__all__ = ["Reach"]


@define
class Reach:
    """Reach of a walk from its first row of a run toward the end of its list.

    The share is that of the numbers, as if rows were spread over them evenly. It never falls: a walk that
    restarts passes rows again.

    Attributes:
        start: least number of the list, at which descending rows end; None if it is not known.
        end: greatest number, at which ascending rows end; None if it is not known.
        share: share of the walk, above 0 and up to 1; None if it is not known.

    """

    start: int | None
    end: int | None
    share: float | None = field(default=None, init=False)
    _first: int | None = field(default=None, init=False)

    def follow(self, numbers: Sequence[int | None]) -> None:
        """Take the numbers of the rows of a page, in the order of the list."""
        if self.start is None and self.end is None:
            return
        last = next((number for number in reversed(numbers) if number is not None), None)
        if last is None:
            return
        if self._first is None:
            self._first = next(number for number in numbers if number is not None)
        first = self._first
        passed = abs(last - first)
        bound = self.start if last < first else self.end
        if bound is None or not passed:
            return
        whole = first - bound if last < first else bound - first
        if whole > 0:
            self.share = min(1.0, max(self.share or 0.0, passed / whole))
