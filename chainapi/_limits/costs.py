"""Prices of routes, in units: documented, and shown by reported remainders.

Two reports bound the prices of the requests between them: together they cost at most the drop of the
remainder, and what may have come back meanwhile. They cost at least the drop if no request of another
unknown price was under way. So the bounds hold for any order of responses, and for services that read the
remainder when they count a request or when they answer it. One report outside of the bounds replaces them.

Until the bounds meet, a request holds its documented price, or the least drop that was seen if that is more:
so a burst of unknown prices does not exceed the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, floor, inf

from msgspec import Struct, field

__all__ = ["Costs"]

MOST_ROUTES = 4096
MOST_ANSWERS = 64  # between two reports that are compared
SHARE = 1 / 30  # of the units left at most: held for a request whose documented price is not proven
UNDOCUMENTED = 1 / 10  # the same, without a documented price
LARGEST = 3_000.0  # units: no documented price is larger
FACTOR = 100.0  # times the documented price: a real one is not larger
FULL = 0.8  # of the most that was left: then a bucket may be full
TRIES = 2  # answers after which a route is known although they show no price
CLOSE = 1.1  # times the lower bound
PROVEN = 64  # answers after which no more than the documented price is held, although units that drip hide it
EPSILON = 1e-6


class Price(Struct):
    """Price of a route: bounds in whole units. A free request counts as one unit.

    Attributes:
        low: the lower bound; `high`: the upper one.
        drop: the least drop for a request: its price if no units came back, and no other was counted.
        tries: answers with a remainder, up to `PROVEN`.
        compared: whether two reports bound it; else the limit and one report do.
        alone: units that must be left for the next request alone, after one was refused.

    """

    low: float = 1.0
    high: float = inf
    drop: float = inf
    tries: int = 0
    compared: bool = False
    alone: float = 0.0

    @property
    def sure(self) -> bool:
        """Whether the bounds are close."""
        return self.high <= self.low + 1.0 or self.high <= CLOSE * self.low

    @property
    def units(self) -> float:
        """The likely price: units that drip in hide a part, other requests only add."""
        return max(self.low, min(self.high, ceil(self.drop - EPSILON)))

    def fitting(self, prior: float | None) -> float:
        """Return a documented price that lies within the bounds, else the likely one."""
        return prior if prior is not None and self.low <= prior <= self.high else self.units

    def narrow(self, least: float, most: float, drop: float) -> None:
        """Take over the bounds and the drop of a stretch."""
        least, most = floor(max(least, 0.0) + EPSILON), max(floor(most + EPSILON), 1.0)
        if most < self.low or least > self.high:  # others caused a drop, or the price changed
            self.low, self.high, self.drop = 1.0, most, inf
        self.low, self.high = max(self.low, min(least, most)), min(self.high, most)
        self.drop = max(self.low, min(self.drop, drop))


class Stretch(Struct):
    """Answered requests between two reports of one limit.

    Attributes:
        begun: when the first report arrived; -inf without one: then the remainder was at most the limit.
        left: its remainder; the service may have counted it at `since`, and units drip from then on.
        quiet: whether no request was in flight then.
        counts: answered requests by route.
        answers: their number.

    """

    begun: float
    since: float
    left: float
    quiet: bool
    counts: dict[str, int] = field(default_factory=dict)
    answers: int = 0


class Costs(Struct):
    """Prices by route.

    Attributes:
        prices: bounds of the routes that were answered with a remainder.
        units: whether the service counts units, not requests; None if unknown. `assumed` if a plan says so.
        right: whether documented prices proved right, and none wrong.
        most_left: the highest remainder; the least limit until a response reports one.
        limit: the least announced limit.

    """

    prices: dict[str, Price] = field(default_factory=dict)
    units: bool | None = None
    assumed: bool = False
    right: bool = False
    wrong: bool = False
    most_left: float = 0.0
    limit: float = inf
    stretch: Stretch | None = None

    def price(self, route: str, prior: float | None) -> float:
        """Return the units to hold for a request; `prior` is the documented price."""
        known = self.prices.get(route)
        if known is not None and known.sure:
            return known.fitting(prior)
        possible = self._possible(prior)
        likely = 1.0 if possible is None else possible
        if (prior is None or not self.right) and (known is None or known.tries < PROVEN):
            part = SHARE if prior is not None else UNDOCUMENTED
            likely = max(likely, self._share(part)) if self.limit < inf else likely
        if known is None:
            return likely
        if known.drop == inf or (known.tries >= TRIES and not known.compared):
            return min(known.high, max(likely, known.low))
        return min(known.high, max(known.drop, likely))

    def _possible(self, prior: float | None) -> float | None:
        """Return a documented price; None if requests count, or it exceeds the limit."""
        return None if prior is None or prior > self.limit or self.units is False else prior

    def _share(self, part: float) -> float:
        """Return the units to hold for an unknown price: a part of the most left."""
        return min(part * (self.most_left or self.limit), LARGEST)

    def most_unknown(self, prior: float | None) -> int:
        """Return how many requests may be in flight until a response shows the price."""
        return max(1, int(self._share(SHARE) / (FACTOR * (prior or 1.0))))

    def shown(self, route: str, prior: float | None) -> float:
        """Return the likely price of a request, for people: no margin for what is unknown."""
        known, possible = self.prices.get(route), self._possible(prior)
        likely = 1.0 if possible is None else possible
        if known is None:
            return likely
        if known.sure:
            return known.fitting(likely)
        return max(known.low, min(likely, known.high))

    def likely(self, route: str, prior: float | None) -> float:
        """Return the likely price: without a documented one, the least drop."""
        known = self.prices.get(route)
        if self._possible(prior) is None and known is not None and known.compared and known.drop < inf:
            return known.units
        return self.shown(route, prior)

    def known_price(self, route: str, prior: float | None) -> float | None:
        """Return the price of a request; None if neither documents nor responses show it."""
        undocumented = self.units is not False and (prior is None or prior > self.limit)
        known = self.prices.get(route)
        return None if undocumented and (known is None or not known.sure) else self.shown(route, prior)

    def low(self, route: str) -> float:
        """Return the lower bound of a price."""
        known = self.prices.get(route)
        return 1.0 if known is None else known.low

    def alone(self, route: str, prior: float | None) -> float:
        """Return the units that must be left for a request that is in flight alone."""
        known = self.prices.get(route)
        if known is not None and known.sure:
            return known.units
        possible = None if self.wrong else self._possible(prior)
        if possible is None:
            part = UNDOCUMENTED if known is None else SHARE
            possible = 1.0 if self.units is False else part * self.most_left
        if known is not None:
            possible = max(known.low, min(known.high, max(possible, known.alone)))
        return max(1.0, min(possible, self.most_left or self.limit))

    def least(self, route: str, prior: float | None) -> float:
        """Return the lowest likely price; a documented one only counts in units."""
        known = self.prices.get(route)
        if known is not None and not known.sure:
            return known.low
        return self.shown(route, prior if self.units else None)

    def known(self, route: str) -> bool:
        """Return whether responses showed a price: then several may be in flight."""
        known = self.prices.get(route)
        if known is None:
            return len(self.prices) >= MOST_ROUTES
        return known.sure or known.compared or known.tries >= TRIES

    @property
    def learned(self) -> dict[str, float]:
        """Prices that responses showed, by route."""
        return {route: one.units for route, one in self.prices.items() if one.sure}

    def announced(self, limit: float) -> None:
        """Record the least announced limit."""
        self.limit = limit

    def refused(self, route: str, left: float) -> None:
        """Learn from a request refused alone: it costs more than `left` units."""
        if (price := self._price(route)) is not None and left + 1.0 > price.low:
            price.low, price.alone = left + 1.0, 2.0 * (left + 1.0)
            price.high, price.drop = max(price.high, price.low), max(price.drop, price.low)

    def _price(self, route: str) -> Price | None:
        """Return the price of a route, to be changed; None if there are too many routes."""
        price = self.prices.get(route)
        if price is None and len(self.prices) < MOST_ROUTES:
            price = self.prices[route] = Price()
        return price

    # --- reports ----------------------------------------------------------------------------

    def begin(self, now: float, sent: float, left: float, *, quiet: bool) -> None:
        """Begin anew with a report: units came back, or another limit reports."""
        # The lowest of overlapping reports may be of a request that was sent a trip earlier.
        self.stretch = Stretch(now, 2.0 * sent - now if now > -inf else -inf, left, quiet)
        if left > self.most_left and now > -inf:
            self.most_left = left

    def came_back(self, sent: float, now: float, remaining: float, drip: float) -> bool:
        """Return whether more units came back since the first report than may drip."""
        stretch = self.stretch
        if stretch is None or sent < stretch.begun:
            return stretch is None
        return remaining > stretch.left + (drip * (now - stretch.since) + 1.0 if drip else 0.0)

    def unreported(self) -> None:
        """Record a request that no report shows: its units may explain a drop."""
        if self.stretch is not None:
            self.stretch.quiet = False

    def report(
        self,
        route: str,
        prior: float | None,
        sent: float,
        now: float,
        left: float,
        drip: float,
        before: Iterable[str],
        *,
        alone: bool,
        drips: bool,
    ) -> None:
        """Compare a report of `left` units with the first one.

        `drip` is the number of units a second that may come back; `drips` if they surely do. `alone` if no
        other request is in flight; `before` has the routes of those that were sent before this one.
        """
        price, stretch = self._price(route), self.stretch
        if price is None:
            return
        # Units that drip hide a price most while the bucket is nearly full; else the reports show too much.
        full = left >= FULL * self.most_left
        if price.tries < TRIES or (full and price.tries < PROVEN):
            price.tries += 1
        if stretch is None or sent < stretch.begun:
            return
        stretch.counts[route] = stretch.counts.get(route, 0) + 1
        stretch.answers += 1
        ends = stretch.answers >= MOST_ANSWERS
        if ends or price.low != price.high:
            self._compare(stretch, sent, now, left, drip, before, drips=drips)
            self._check(price, prior)
        if ends or stretch.begun == -inf or (alone and all(map(self.sure, stretch.counts))):
            self.begin(now, sent, left, quiet=alone)

    def _check(self, price: Price, prior: float | None) -> None:
        """Compare a price with the documented one."""
        if prior is None or prior < 2.0:
            return
        if (self.units is None or self.assumed) and price.high < 2.0:
            self.units = False
        if price.sure and not self.wrong:
            self.right = price.low <= prior <= price.high
            self.wrong = not self.right

    def sure(self, route: str) -> bool:
        """Return whether responses showed the price of a route."""
        price = self.prices.get(route)
        return price is not None and price.sure

    def _compare(
        self,
        stretch: Stretch,
        sent: float,
        now: float,
        left: float,
        drip: float,
        before: Iterable[str],
        *,
        drips: bool,
    ) -> None:
        """Bound the prices of the requests of a stretch."""
        full = min(left, stretch.left) >= FULL * self.most_left
        drop, first = stretch.left - left, stretch.begun == -inf
        # Reports are whole units: a part of one may be hidden if they drip.
        back = drip * (now - sent) if first else drip * (now - stretch.since) + 1.0 if drip else 0.0
        counts = stretch.counts
        with_others = counts.copy()
        for route in before if stretch.quiet else ():
            with_others[route] = with_others.get(route, 0) + 1
        for route, number in counts.items():
            if (price := self.prices.get(route)) is not None:
                own = drop - sum(each * self.low(other) for other, each in counts.items() if other != route)
                least = self._least(with_others, route, drop) if stretch.quiet else -inf
                price.compared = price.compared or not first
                seen = own if full or not drips else own + back
                price.narrow(least, (own + back) / number, seen / number)
                if price.low >= 2.0:
                    self.units, self.assumed = True, False

    def _least(self, counts: Mapping[str, int], route: str, drop: float) -> float:
        """Return the least price that explains a drop; -inf if others may explain it."""
        for other, number in counts.items():
            if other != route:
                if not self.sure(other):
                    return -inf
                drop -= number * self.prices[other].high
        return drop / counts[route]
