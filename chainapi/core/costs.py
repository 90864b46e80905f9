"""What a request of each route costs, learned from how the remaining quota drops."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from itertools import pairwise

from attrs import define, field

__all__ = ["Costs"]

SAMPLES = 64  # answers that are compared with each other
MOST_VOTES = 64  # of one route; then they count half, so that a new price is learned in time
MOST_ROUTES = 4096


@define(eq=False)
class Costs:
    """Prices per route, in units.

    Answers overtake each other, so the drop from one to the next says nothing. But among the answers of
    one stretch, each request left the `remaining` that it reports, and found the next higher one: the gap
    is its price. Answers that are missing make a gap too wide, so the most frequent gap counts.
    """

    learned: dict[str, float] = field(factory=dict[str, float])
    dearest: float = 0.0
    cheapest: float = 1.0
    _votes: dict[str, Counter[float]] = field(factory=dict[str, Counter[float]])
    _samples: list[tuple[float, str]] = field(factory=list[tuple[float, str]])
    _source: object = None

    def price(self, route: str, prior: float | None) -> float:
        """Return what a request of `route` costs: as learned, else `prior`, else as the dearest known."""
        known = self.learned.get(route)
        if known is not None:
            return known
        return prior if prior is not None else self.dearest or 1.0

    def sample(self, source: object, route: str, remaining: float, *, quiet: bool) -> None:
        """Note that an answer for `route` told what remains of `source`; `quiet` when no other is out."""
        if source is not self._source:
            self.tally()
            self._source = source
        insort(self._samples, (remaining, route))
        if len(self._samples) >= SAMPLES or (quiet and len(self._samples) >= 4):
            self.tally()

    def tally(self) -> None:
        """Compare the answers noted so far, and begin a new stretch."""
        samples = self._samples
        for (low, route), (high, _) in pairwise(samples):
            if high > low:
                self._vote(route, round(high - low, 6))
        # The last answer is the level that the next one will be compared with.
        self._samples = samples[:1]

    def _vote(self, route: str, gap: float) -> None:
        votes = self._votes.get(route)
        if votes is None:
            if len(self._votes) >= MOST_ROUTES:
                return
            votes = self._votes[route] = Counter()
        votes[gap] += 1
        if votes.total() > MOST_VOTES:
            for one in list(votes):
                votes[one] //= 2
                if not votes[one]:
                    del votes[one]
        best, support = votes.most_common(1)[0]
        if support > 1 and self.learned.get(route) != best:
            self.learned[route] = best
            self.dearest = max(self.learned.values())
            self.cheapest = min(self.learned.values())
