"""Costs of requests per route, learned from the drops of the remaining quota."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from itertools import islice, pairwise
from math import inf

from attrs import define, field

from chainapi.core.limits.memory import LONGEST_NAME, CostPart, CostsPart, amount
from chainapi.core.limits.memory import MOST_ROUTES as MOST_REMEMBERED

__all__ = ["Costs"]

SAMPLES = 64  # responses compared with each other
MOST_VOTES = 64  # of one route; above it all votes count half, so that a new price wins in time
MOST_ROUTES = 4096
CLOSE = 0.25  # a gap this near to the documented price counts as that price, measured inexactly
ALONE = 2  # votes of the response to a request sent alone
HIDES_A_UNIT = 5.0  # units: from this price on, a unit that dripped in makes a difference in a burst
SHARE = 1 / 30  # of the most that remained, else of the limit: the cost of a request that showed no price
TRIES = 2  # requests of a route sent alone to show its price
SILENT = 0.4  # of such a try: a response without the remaining quota


@define(eq=False, repr=False)
class Costs:
    """Prices per route, in units.

    Responses overtake each other, so the drop from one to the next shows nothing. But among the responses
    of one stretch, each request left the `remaining` that it reports, and found the next higher one: the
    gap is its price. A missing response makes a gap too wide now and then, so the most frequent gap counts.

    A documented price (`prior`) counts only if the service is known to count units: `units` is True then,
    and None until a response decides that.
    """

    learned: dict[str, float] = field(factory=dict[str, float])
    most_expensive: float = 0.0
    roof: float = inf  # the least announced limit
    units: bool | None = None
    version: int = 0  # counts up when a price may have changed
    _contradictions: int = 0
    _above: dict[str, float] = field(factory=dict[str, float])  # the least price, by refusals
    _tries: dict[str, float] = field(factory=dict[str, float])
    _votes: dict[str, Counter[float]] = field(factory=dict[str, Counter[float]])
    _samples: list[tuple[float, str]] = field(factory=list[tuple[float, str]])
    _source: object = None
    _low_at: float = 0.0
    _sent: float = -inf
    _most_left: float = 0.0

    def price(self, route: str, prior: float | None) -> float:
        """Return the units to hold for a request.

        That is its cost, or more while responses hide it.
        """
        known = self.learned.get(route)
        if known is not None and (prior is None or prior == known):  # as for nearly all requests
            return known
        price = self.shown(route, prior)
        if known is not None or self._tries.get(route, 0) < TRIES:
            return price
        # Units that dripped in hid the price of requests sent alone. A burst may be far smaller than the
        # limit, so the limit counts only until a response reports what remains.
        most_left = self._most_left or (self.roof if self.roof < inf else 0.0)
        return max(price, SHARE * most_left)

    def shown(self, route: str, prior: float | None) -> float:
        """Return the cost of a request: as learned, else `prior`, else the highest known.

        A `prior` above a whole limit is in other units than the limit, so it does not count.
        """
        if prior is not None and (prior > self.roof or self.units is False):
            prior = None
        known = self.learned.get(route)
        if known is None:
            likely = prior if prior is not None else self.most_expensive or 1.0
            return max(likely, self._above.get(route, 0.0))
        if prior is not None and abs(known - prior) <= CLOSE * prior:
            return prior
        return known

    def known_price(self, route: str, prior: float | None) -> float | None:
        """Return the cost of a request; None if neither documents nor responses show it."""
        counts_requests = self.units is False
        if route not in self.learned and not counts_requests and (prior is None or prior > self.roof):
            return None
        return self.shown(route, prior)

    def known(self, route: str) -> bool:
        """Return whether several requests of `route` may be in flight at once.

        The first ones are sent alone, to show the price.
        """
        return route in self.learned or self._tries.get(route, 0) >= TRIES or len(self._tries) >= MOST_ROUTES

    def likely(self, route: str, prior: float | None) -> float:
        """Return the predicted cost of a request; an unconfirmed `prior` does not count."""
        return self.price(route, prior if self.units else None)

    def tried(self, route: str, *, reported: bool = True) -> None:
        """Record a request sent alone; `reported` if its response has what remains."""
        self._tries[route] = self._tries.get(route, 0.0) + (1.0 if reported else SILENT)
        self.version += 1

    def limit(self, roof: float) -> None:
        """Record the least announced limit."""
        if roof != self.roof:
            self.roof = roof
            self.version += 1

    def refused(self, route: str, left: float) -> None:
        """Learn from a request refused with `left` units left: it costs more than that."""
        if len(self._above) < MOST_ROUTES:
            self._above[route] = left + 1.0
            self.version += 1

    def alone(self, route: str, prior: float | None, before: float | None, limit: float, left: float) -> None:
        """Learn from a request sent alone, with `before` units left; None is unknown.

        The very first response shows only that the price is at most the missing part of the limit.
        """
        gap = round((limit if before is None else before) - left, 6)
        if gap <= 0 or (before is None and gap > (prior or 1.0)):
            return
        if prior is not None and prior >= 2 and 0 < prior - gap <= 1:
            gap = prior  # a whole unit may have dripped in meanwhile
        if gap >= 2:
            self.units = True
        elif prior is not None and prior >= 2:
            # Units that came back may hide a part of the price once; votes correct that for this route.
            self._contradictions += 2 if before is None else 1
            if self._contradictions >= 2:
                self.units = False
        # Until others vote, add a unit that may have dripped in to a price of several units.
        self._vote(route, gap + 1 if gap >= HIDES_A_UNIT else gap, ALONE)

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
        """Record what remained of `source` by a response for `route`.

        `fresh` marks the first response after a pause, in which units came back; if a quota `drips`, some
        units come back between any two requests that were not sent at once.
        """
        if remaining > self._most_left:
            self._most_left = remaining
            self.version += 1
        if fresh or source is not self._source:
            self.tally()
            self._samples.clear()
            self._source = source
        elif (drips and sent > self._sent) or (
            self._samples and sent >= self._low_at and remaining >= self._samples[0][0]
        ):
            # Units came back: later responses are not comparable with earlier ones.
            self.tally()
            self._samples.clear()
        self._sent = sent
        insort(self._samples, (remaining, route))
        if self._samples[0][0] == remaining:
            self._low_at = now
        if len(self._samples) >= SAMPLES:
            self.tally()

    def tally(self) -> None:
        """Compare the responses recorded so far, and begin a new stretch."""
        samples = self._samples
        drops = ((route, round(high - low, 6)) for (low, route), (high, _) in pairwise(samples) if high > low)
        for (route, gap), number in Counter(drops).items():
            self._vote(route, gap, number)
        # The lowest is the level that the next request found.
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

    # --- memory -----------------------------------------------------------------------------

    def memory(self) -> CostsPart:
        """Return the state for a memory: the routes learned last."""
        routes = [*islice(reversed(self.learned), MOST_REMEMBERED)]
        routes += islice(reversed(self._tries), MOST_REMEMBERED)
        short = [route for route in dict.fromkeys(routes) if len(route) <= LONGEST_NAME]
        return CostsPart(
            [self._part(route) for route in short[:MOST_REMEMBERED]],
            self.units,
            min(self._contradictions, 2),
            amount(self._most_left),
        )

    def _part(self, route: str) -> CostPart:
        learned, votes = self.learned.get(route), self._votes.get(route)
        number = 0 if learned is None or votes is None else votes[learned]
        return CostPart(route, learned, number, self._above.get(route), self._tries.get(route, 0.0))

    def restore(self, part: CostsPart) -> None:
        """Continue from a memory."""
        routes = part.routes[::-1]
        learned = {one.route: (one.learned, one.votes) for one in routes if one.learned is not None}
        self.learned = {route: price for route, (price, _) in learned.items()}
        self._votes = {route: Counter({price: votes}) for route, (price, votes) in learned.items() if votes}
        self._above = {one.route: one.above for one in routes if one.above is not None}
        self._tries = {one.route: one.tries for one in routes if one.tries}
        self.most_expensive = max(self.learned.values(), default=0.0)
        self.units = part.units if self.units is None else self.units
        self._contradictions, self._most_left = part.contradictions, part.most_left
        self.version += 1
