"""Routes with few requests at once: refused alone, or of an unknown price.

A refusal with quota left concerns its route, and so does one of a route that is refused again while others
pass. Only that route waits, then sends one request, then a few. Refusals of two routes without a success in
between concern the whole quota after all.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from msgspec import Struct, field

__all__ = ["Routes"]

PROVEN = 64  # successes after which a route has no special treatment any more
MOST_ROUTES = 1024
LATER = 1e-3  # seconds after the end of a stop: so another route sends the probe


class RouteState(Struct):
    """Route with few requests at once.

    Attributes:
        until: time until which it is closed.
        refused_at: when it was refused; -inf if it was not.
        refusals: refusals in a row of this route alone.
        in_flight: its requests in flight; `most`: as many may be. The last one was sent at `sent`.
        passed: successes since the refusal; `others_passed`: whether others had one.
        own: whether a refusal concerned only this route.

    """

    until: float = -inf
    refused_at: float = -inf
    refusals: int = 0
    in_flight: int = 0
    most: int = 1
    sent: float = -inf
    passed: int = 0
    others_passed: bool = False
    own: bool = False


class Routes(Struct, eq=False):
    """Routes with few requests at once; none most of the time."""

    known: dict[str, RouteState] = field(default_factory=dict)

    def opens_at(self, route: str, now: float, patience: float) -> float:
        """Return when a route allows a request; a response may allow it earlier.

        One more leaves `patience` seconds after the last one: a hung request must not hold the others.
        """
        one = self.known.get(route)
        if one is None:
            return now
        if now < one.until:
            return one.until
        return now if one.in_flight < one.most else max(now, one.sent + patience)

    def closed_until(self, route: str) -> float:
        """Return the time until which a route is closed; -inf if it is open."""
        one = self.known.get(route)
        return -inf if one is None else one.until

    def closed(self, now: float, other: str) -> Iterator[str]:
        """Yield the closed routes, without one of them."""
        return (name for name, one in self.known.items() if one.until > now and name != other)

    # --- requests ---------------------------------------------------------------------------

    def try_price(self, route: str, most: int) -> None:
        """Allow few requests at once until a response shows the price of a route."""
        if route not in self.known and len(self.known) < MOST_ROUTES:
            self.known[route] = RouteState(most=most)

    def priced(self, route: str) -> None:
        """Record that the price of a route is known."""
        one = self.known.get(route)
        if one is not None and not one.refusals:
            del self.known[route]

    def send(self, route: str, now: float) -> None:
        """Record a sent request."""
        if (one := self.known.get(route)) is not None:
            one.in_flight, one.sent = one.in_flight + 1, now

    def landed(self, route: str) -> None:
        """Record that a request is no longer in flight."""
        if (one := self.known.get(route)) is not None:
            one.in_flight = max(0, one.in_flight - 1)

    def passed(self, route: str, sent: float) -> None:
        """Record a request that was not refused: one more may leave."""
        for name, one in self.known.items():
            if name != route and sent >= one.refused_at:
                one.others_passed = True
        mine = self.known.get(route)
        if mine is not None and mine.refusals and sent >= mine.until:
            mine.most, mine.passed, mine.own = mine.most + 1, mine.passed + 1, False
            if mine.passed >= PROVEN:
                del self.known[route]

    # --- refusals ---------------------------------------------------------------------------

    def concerns_only(self, route: str, now: float, left: bool | None) -> bool:
        """Return whether a refusal concerns only its route.

        `left` is whether quota was left; None if unknown.
        """
        mine = self.known.get(route)
        if left:
            return not any(
                name != route and one.until > now and not one.others_passed and one.most == 1
                for name, one in self.known.items()
            )
        return left is None and mine is not None and mine.refusals > 0 and (mine.others_passed or mine.own)

    def passes_alone(self, route: str) -> bool:
        """Return whether only this route had successes since its refusal."""
        one = self.known.get(route)
        return one is not None and one.passed > 0 and not one.others_passed

    def refuse(self, route: str, now: float) -> RouteState:
        """Record a refusal of a route alone, and return the route."""
        one = self._get(route)
        if one.passed or not one.refusals:
            one.refusals = 1  # a route with successes is limited, not closed
        elif one.most > 1 or now >= one.until:
            one.refusals += 1
        one.refused_at, one.most, one.passed = now, 1, 0
        one.others_passed, one.own = False, True
        return one

    def step_back(self, route: str, now: float, stop: float) -> None:
        """Let another route send the probe after two stops by requests of this route."""
        one = self._get(route)
        one.until, one.refused_at = max(one.until, stop + LATER), now
        one.others_passed, one.refusals = False, max(1, one.refusals)

    def _get(self, route: str) -> RouteState:
        if route not in self.known and len(self.known) >= MOST_ROUTES:
            self.known.pop(next(iter(self.known)))
        return self.known.setdefault(route, RouteState())
