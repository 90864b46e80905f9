"""What a request of each route costs, learned from how the remaining quota drops."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from itertools import pairwise
from math import floor, inf

from attrs import define, field

__all__ = ["Costs"]

SAMPLES = 64  # answers that are compared with each other
MOST_VOTES = 64  # of one route; then they count half, so that a new price is learned in time
MOST_ROUTES = 4096
CLOSE = 0.25  # a gap this near to what the caller says is taken for a blurred view of it
ALONE = 2  # votes of an answer whose request flew alone
HIDES_A_UNIT = 5.0  # units: a price from which on one that dripped in makes a difference in a burst
SHARE = 0.02  # of the most that remained, else of the limit: what a request costs whose price did not show
TRIES = 2  # requests of a route that fly alone to show its price
SILENT = 0.4  # of such a try: one whose answer says nothing


@define(eq=False, repr=False)
class Costs:
    """Prices per route, in units.

    Answers overtake each other, so the drop from one to the next says nothing. But among the answers of
    one stretch, each request left the `remaining` that it reports, and found the next higher one: the gap
    is its price. Answers that are missing make a gap too wide now and then, so frequent gaps count.

    A price that the documentation names (`prior`) counts only where the service is known to count in
    units: `units` says whether it is, None as long as no answer decided that.
    """

    learned: dict[str, float] = field(factory=dict[str, float])
    most_expensive: float = 0.0
    roof: float = inf  # the least limit that the service tells
    units: bool | None = None
    version: int = 0  # counts up when a price changes
    _contradictions: int = 0
    _above: dict[str, float] = field(factory=dict[str, float])  # the least price, by refusals
    _hidden: dict[str, float] = field(factory=dict[str, float])  # the most that a price may be
    _tries: dict[str, float] = field(factory=dict[str, float])
    _votes: dict[str, Counter[float]] = field(factory=dict[str, Counter[float]])
    _samples: list[tuple[float, str]] = field(factory=list[tuple[float, str]])
    _source: object = None
    _low_at: float = 0.0
    _sent: float = -inf
    _most_left: float = 0.0

    def price(self, route: str, prior: float | None) -> float:
        """Return what a request of `route` costs: as learned, else `prior`, else as the most expensive known.

        A `prior` above a whole limit is in other units than the limit, and says nothing.
        """
        known = self.learned.get(route)
        if prior is not None and (prior > self.roof or self.units is False):
            prior = None
        if known is None:
            price = max(
                prior if prior is not None else self.most_expensive or 1.0, self._above.get(route, 0.0)
            )
            # Units that drip in hid the price of requests that flew alone.
            # A burst may be far smaller than the limit: that counts only before any remainder.
            most_left = self._most_left or (self.roof if self.roof < inf else 0.0)
            most = max(SHARE * most_left, self._hidden.get(route, 0.0))
            return max(price, most) if self._tries.get(route, 0) >= TRIES else price
        if prior is not None and abs(known - prior) <= CLOSE * prior:
            return prior
        return known

    def known(self, route: str) -> bool:
        """Return whether several requests of `route` may fly at once: the first have flown alone."""
        return route in self.learned or self._tries.get(route, 0) >= TRIES or len(self._tries) >= MOST_ROUTES

    def likely(self, route: str, prior: float | None) -> float:
        """Return what a request of `route` is foreseen to cost: a `prior` that nothing confirms is none."""
        return self.price(route, prior if self.units else None)

    def tried(self, route: str, *, reported: bool = True) -> None:
        """Note that a request of `route` flew alone; `reported` if its response has what remains."""
        self._tries[route] = self._tries.get(route, 0.0) + (1.0 if reported else SILENT)

    def refused(self, route: str, left: float) -> None:
        """Learn from a request that was refused while `left` was left: it costs more than that."""
        if len(self._above) < MOST_ROUTES:
            self._above[route] = left + 1.0

    def alone(self, route: str, prior: float | None, before: float | None, limit: float, left: float) -> None:
        """Learn from a request that flew alone: `before` was left when it was sent, None is unknown.

        The first answer of all shows no more than that the price is at most what is gone of the limit.
        """
        gap = round((limit if before is None else before) - left, 6)
        if gap <= 0 or (before is None and gap > (prior or 1.0)):
            return
        if prior is not None and prior >= 2 and 0 < prior - gap <= 1:
            gap = prior  # a whole unit may have dripped in meanwhile
        if gap >= 2:
            self.units = True
        elif prior is not None and prior >= 2:
            # Units that came back may hide a part of the price once; votes mend that for this route.
            self._contradictions += 2 if before is None else 1
            if self._contradictions >= 2:
                self.units = False
        # Until others vote, a unit that may have dripped in is counted to a price of several.
        self._vote(route, gap + 1 if gap >= HIDES_A_UNIT else gap, ALONE)

    def hidden(self, route: str, gap: float, dripped: float) -> None:
        """Learn from a request alone whose price did not show: it was at most what `dripped` in hid."""
        if gap <= 0 and len(self._hidden) < MOST_ROUTES:
            self._hidden[route] = max(self._hidden.get(route, 0.0), floor(gap + dripped))

    def sample(
        self,
        source: object,
        route: str,
        remaining: float,
        sent: float,
        now: float,
        *,
        fresh: bool,
        drips: bool = False,
    ) -> None:
        """Note what an answer for `route`, sent and received at these times, reported to remain of `source`.

        `fresh` is the first answer after a pause, in which units came back; where a quota `drips`, some do
        between any two requests that were not sent at once.
        """
        if remaining > self._most_left:
            self._most_left = remaining
        if fresh or source is not self._source:
            self.tally()
            self._samples.clear()
            self._source = source
        elif (drips and sent > self._sent) or (
            self._samples and sent >= self._low_at and remaining >= self._samples[0][0]
        ):
            # Units came back: what follows cannot be compared with what was before.
            self.tally()
            self._samples.clear()
        self._sent = sent
        insort(self._samples, (remaining, route))
        if self._samples[0][0] == remaining:
            self._low_at = now
        if len(self._samples) >= SAMPLES:
            self.tally()

    def tally(self) -> None:
        """Compare the answers noted so far, and begin a new stretch."""
        samples = self._samples
        drops = ((route, round(high - low, 6)) for (low, route), (high, _) in pairwise(samples) if high > low)
        for (route, gap), number in Counter(drops).items():
            self._vote(route, gap, number)
        # The lowest is the level that the next one found.
        del samples[1:]

    def _vote(self, route: str, gap: float, weight: int) -> None:
        votes = self._votes.get(route)
        if votes is None:
            if len(self._votes) >= MOST_ROUTES:
                return
            votes = self._votes[route] = Counter()
        votes[gap] += weight
        if votes.total() > MOST_VOTES:
            for one in list(votes):
                votes[one] //= 2
                if not votes[one]:
                    del votes[one]
        support = max(votes.values())
        if support < 2:
            return
        best = max(gap for gap, count in votes.items() if count == support)
        if self.learned.get(route) != best:
            self.learned[route] = best
            self.version += 1
            self.most_expensive = max(self.learned.values())
