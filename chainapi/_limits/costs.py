"""Prices of routes, in units: documented, and as the reported remainders show them.

Two reports bound the prices of the requests between them: together they cost at most the drop of the
remainder, and what may have come back meanwhile. They cost at least the drop, less what all other requests in
flight explain. So the bounds hold for any order of responses, and for services that read the remainder when
they count a request or when they answer it. One report outside of the bounds replaces them.

A documented price counts while it lies within the bounds, and while it explains the drops. Else the upper
bound counts, so that a burst of unknown prices does not exceed the limit.
"""

from __future__ import annotations

from math import floor, inf

from msgspec import Struct, field

__all__ = ["Costs"]

MOST_ROUTES = 4096
MOST_ANSWERS = 64  # between two reports that are compared
SHARE = 1 / 30  # of the units left at most: held for a request of which nothing is known
TRIES = 2  # answers after which a route is known although they show no price
EPSILON = 1e-6


class Price(Struct):
    """Price of a route: bounds in whole units.

    A free request counts as one unit.

    Attributes:
        low, high: the bounds.
        trusted: whether the documented price explains all drops so far.
        tries: answers with a remainder, up to two.

    """

    low: float = 1.0
    high: float = inf
    trusted: bool = True
    tries: int = 0

    @property
    def exact(self) -> bool:
        """Whether the bounds meet."""
        return self.low == self.high

    def at_most(self, units: float) -> bool:
        """Lower the upper bound; return whether it changed."""
        units = max(units, 1.0)
        if units >= self.high:
            return False
        if units < self.low:
            self.low = 1.0  # others caused that drop, or the price changed
        self.high = units
        return True

    def at_least(self, units: float, most: float) -> bool:
        """Raise the lower bound, with the upper one of the same report; return whether it changed."""
        if units <= self.low:
            return False
        if units > self.high:
            self.high = most
        self.low = units
        return True


class Stretch(Struct):
    """Requests between two reports of one limit: those sent after the first one, and answered.

    Attributes:
        begun: when the first report arrived; -inf without one: then the remainder was at most the limit.
        left: its remainder.
        held: units in flight at that time, by their prices.
        counts: answered requests by route.
        expected: their units, by their prices.
        answers: their number.

    """

    begun: float
    left: float
    held: float
    counts: dict[str, int] = field(default_factory=dict)
    expected: float = 0.0
    answers: int = 0


class Costs(Struct):
    """Prices by route.

    Attributes:
        prices: bounds of the routes that were answered with a remainder.
        units: whether the service counts units, not requests; None if unknown.
        most_left: the highest remainder; the least limit until a response reports one.
        limit: the least announced limit.
        version: counts up when a price may have changed.

    """

    prices: dict[str, Price] = field(default_factory=dict)
    units: bool | None = None
    most_left: float = 0.0
    limit: float = inf
    version: int = 0
    stretch: Stretch | None = None

    def price(self, route: str, prior: float | None) -> float:
        """Return the units to hold for a request; `prior` is the documented price."""
        known = self.prices.get(route)
        if known is not None and known.low == known.high:
            return known.high
        likely = prior
        if prior is None or prior > self.limit or self.units is False:
            likely = max(1.0, SHARE * (self.most_left or self.limit)) if self.limit < inf else 1.0
        if known is None:
            return likely
        return max(known.low, min(likely, known.high)) if known.trusted else known.high

    def shown(self, route: str, prior: float | None) -> float:
        """Return the likely price of a request, for people: no margin for what is unknown."""
        if prior is None or prior > self.limit or self.units is False:
            prior = 1.0
        known = self.prices.get(route)
        return prior if known is None else max(known.low, min(prior, known.high))

    def least(self, route: str, prior: float | None) -> float:
        """Return the least likely price of a request: a documented price counts if the service counts units."""
        known = self.prices.get(route)
        if known is not None and not known.exact:
            return known.low
        return self.shown(route, prior if self.units else None)

    def known(self, route: str) -> bool:
        """Return whether several requests of a route may be in flight: responses showed its price."""
        known = self.prices.get(route)
        return len(self.prices) >= MOST_ROUTES if known is None else known.tries >= TRIES

    @property
    def learned(self) -> dict[str, float]:
        """Prices that responses showed, by route."""
        return {route: one.high for route, one in self.prices.items() if one.exact}

    def announced(self, limit: float) -> None:
        """Record the least announced limit."""
        if limit != self.limit:
            self.limit = limit
            self.version += 1

    def refused(self, route: str, left: float) -> None:
        """Learn from a request that was refused alone, with `left` units left: it costs more."""
        if (price := self._price(route)) is not None and price.at_least(left + 1.0, inf):
            self.version += 1

    def _price(self, route: str) -> Price | None:
        """Return the price of a route, to be changed; None if there are too many routes."""
        price = self.prices.get(route)
        if price is None and len(self.prices) < MOST_ROUTES:
            price = self.prices[route] = Price()
        return price

    # --- reports ----------------------------------------------------------------------------

    def begin(self, now: float, left: float, held: float) -> None:
        """Begin anew with a report: units may have come back before it, or it is one of another limit."""
        self.stretch = Stretch(now, left, held)
        if left > self.most_left:
            self.most_left = left
            self.version += 1

    def report(
        self, route: str, prior: float | None, sent: float, now: float, left: float, held: float, drip: float
    ) -> None:
        """Compare a report with the first one: `left` units, with `held` ones still in flight.

        `drip` is the number of units a second that may come back.
        """
        price, stretch = self._price(route), self.stretch
        if price is None:
            return
        if price.tries < TRIES:
            price.tries, self.version = price.tries + 1, self.version + 1
        if stretch is None or sent < stretch.begun:
            return
        stretch.expected += self.price(route, prior)
        stretch.counts[route] = stretch.counts.get(route, 0) + 1
        stretch.answers += 1
        full = stretch.answers >= MOST_ANSWERS
        if full or price.low != price.high:
            self._compare(stretch, now, left, held, drip)
            if prior is not None and prior >= 2.0 and self.units is None and price.high < 2.0:
                self.units = False
        if full or stretch.begun == -inf or (not held and all(map(self._exact, stretch.counts))):
            self.begin(now, left, held)

    def _exact(self, route: str) -> bool:
        price = self.prices.get(route)
        return price is not None and price.low == price.high

    def _compare(self, stretch: Stretch, now: float, left: float, held: float, drip: float) -> None:
        """Bound the prices of the requests of a stretch."""
        drop, first = stretch.left - left, stretch.begun == -inf
        if first and drop > stretch.expected + EPSILON:
            return  # others may have used the window before: the next report shows the price
        # Reports are whole units: a part of one may be hidden if they drip.
        back = drip * (now - stretch.begun) + 1.0 if drip and not first else 0.0
        others = inf if first else stretch.held + held
        explained = drop <= stretch.expected + others + EPSILON
        for route, number in stretch.counts.items():
            if (price := self.prices.get(route)) is not None:
                most = (drop + back - self._others(stretch, route)) / number
                least = (drop - others) / number if len(stretch.counts) == 1 else -inf
                self._bound(price, least, most, explained=explained)

    def _others(self, stretch: Stretch, route: str) -> float:
        """Return the units of the other routes of a stretch, as far as their prices are sure."""
        return sum(
            number * self.prices[other].high
            for other, number in stretch.counts.items()
            if other != route and self._exact(other)
        )

    def _bound(self, price: Price, least: float, most: float, *, explained: bool) -> None:
        most = floor(most + EPSILON)
        changed = price.at_most(most)
        if least > price.low:
            changed |= price.at_least(floor(least + EPSILON), max(most, 1.0))
        if not explained and price.trusted and not price.exact:
            price.trusted, changed = False, True
        if price.high < inf:
            price.tries = TRIES
        if changed:
            self.version += 1
            if price.low >= 2.0:
                self.units = True
