"""Scope of a refusal: the whole quota, or one route.

A refusal with quota left concerns its route, and so does one of a route that is refused again while others
pass. Only that route waits, then sends one request, then a few. Refusals of two routes without a success in
between concern the whole quota after all.
"""

from __future__ import annotations

from itertools import islice
from math import inf

from attrs import define, field

from chainapi.core.limits.memory import LONGEST_NAME, RoutePart, relative
from chainapi.core.limits.memory import MOST_ROUTES as MOST_REMEMBERED

__all__ = ["Routes"]

PROVEN = 64  # successes after which a route has no special treatment any more
MOST_ROUTES = 1024
LATER = 1e-3  # seconds after the end of a stop: so another route sends the probe


@define(eq=False, repr=False)
class _Route:
    """Refused route: closed until a time, then with `most` requests at once."""

    until: float
    refused_at: float
    refusals: int = 1
    in_flight: int = 0
    most: int = 1
    passed: int = 0
    others_passed: bool = False
    own: bool = False  # whether a refusal concerned only this route

    def memory(self, name: str, then: float) -> RoutePart:
        """Return the state for a memory."""
        return RoutePart(
            name,
            relative(then, self.until),
            relative(then, self.refused_at),
            self.refusals,
            self.most,
            self.passed,
            self.others_passed,
            self.own,
        )

    @classmethod
    def restored(cls, part: RoutePart, then: float) -> _Route:
        """Return a refused route from a memory; its requests in flight are unknown."""
        until, refused_at = then + part.until, then + part.refused_at
        one = cls(until, refused_at, part.refusals, 0, max(1, part.most), part.passed)
        one.others_passed, one.own = part.others_passed, part.own
        return one


@define(eq=False, repr=False)
class Routes:
    """Refused routes; empty most of the time."""

    known: dict[str, _Route] = field(factory=dict[str, _Route])

    def opens_at(self, route: str, now: float) -> float:
        """Return when the route allows a request; inf if a response decides."""
        one = self.known.get(route)
        if one is None:
            return now
        if now < one.until:
            return one.until
        return now if one.in_flight < one.most else inf

    def closed_until(self, route: str) -> float:
        """Return the time until which a route is closed; -inf if it is open."""
        one = self.known.get(route)
        return -inf if one is None else one.until

    def places(self, route: str, now: float) -> float:
        """Return the number of requests of `route` that may leave now."""
        one = self.known.get(route)
        if one is None:
            return inf
        return 0 if now < one.until else max(0, one.most - one.in_flight)

    def wakes_at(self, route: str, now: float) -> float:
        """Return the next time to check a route again; inf if a response decides."""
        one = self.known.get(route)
        return inf if one is None or one.until <= now else one.until

    def send(self, route: str) -> None:
        """Record a sent request."""
        if (one := self.known.get(route)) is not None:
            one.in_flight += 1

    def landed(self, route: str) -> None:
        """Record that a request is no longer in flight."""
        if (one := self.known.get(route)) is not None:
            one.in_flight = max(0, one.in_flight - 1)

    def passed(self, route: str, sent: float) -> None:
        """Record a request that was not refused."""
        for name, one in self.known.items():
            one.others_passed = one.others_passed or (name != route and sent >= one.refused_at)
        mine = self.known.get(route)
        if mine is None or sent < mine.until:
            return
        mine.most, mine.passed, mine.own = mine.most + 1, mine.passed + 1, False
        if mine.passed >= PROVEN:
            del self.known[route]

    def concerns_route_only(self, route: str, now: float, *, left: bool | None) -> bool:
        """Return whether a refusal concerns only its route.

        `left` is whether quota was left; None if unknown.
        """
        mine = self.known.get(route)
        if left:
            return not any(
                name != route and one.until > now and not one.others_passed and one.most == 1
                for name, one in self.known.items()
            )
        return left is None and mine is not None and (mine.others_passed or mine.own)

    def passes(self, route: str) -> bool:
        """Return whether a route was never refused alone, or some of it passed since."""
        one = self.known.get(route)
        return one is None or one.passed > 0

    def passes_alone(self, route: str) -> bool:
        """Return whether only this route had successes since its refusal."""
        one = self.known.get(route)
        return one is not None and one.passed > 0 and not one.others_passed

    def closed(self, now: float) -> list[str]:
        """Return the routes that are closed."""
        return [name for name, one in self.known.items() if one.until > now]

    def refused(self, route: str, now: float) -> int:
        """Record a refusal of a route alone; return the number of such in a row."""
        one = self.known.get(route)
        if one is None:
            if len(self.known) >= MOST_ROUTES:
                self.known.pop(next(iter(self.known)))
            self.known[route] = _Route(now, now, own=True)
            return 1
        if one.passed:
            one.refusals = 1  # a route with successes is limited, not closed
        elif one.most > 1 or now >= one.until:
            one.refusals += 1
        one.refused_at, one.most, one.passed = now, 1, 0
        one.others_passed, one.own = False, True
        return one.refusals

    def close(self, route: str, until: float) -> None:
        """Close a route until a time, which only moves later."""
        one = self.known[route]
        one.until = max(one.until, until)

    def step_back(self, route: str, now: float, stop: float) -> None:
        """Let another route send the probe after two stops by requests of this route."""
        one = self.known.get(route)
        if one is None:
            self.known[route] = _Route(stop + LATER, now)
        else:
            one.until, one.refused_at, one.others_passed = max(one.until, stop + LATER), now, False

    # --- memory -----------------------------------------------------------------------------

    def memory(self, then: float) -> list[RoutePart]:
        """Return the state for a memory: the routes refused last."""
        short = ((name, one) for name, one in reversed(self.known.items()) if len(name) <= LONGEST_NAME)
        return [one.memory(name, then) for name, one in islice(short, MOST_REMEMBERED)]

    def restore(self, parts: list[RoutePart], then: float) -> None:
        """Continue from a memory."""
        self.known.clear()
        for part in reversed(parts):
            self.known[part.name] = _Route.restored(part, then)
