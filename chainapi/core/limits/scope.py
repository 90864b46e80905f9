"""How far a refusal reaches: the whole quota, or one route.

A refusal beside which quota is left is about its route, and so is one of a route that is refused again while
others pass. That route alone waits, then tries with one request, then with few. Refusals of two routes with
nothing passing in between are about the whole quota after all.
"""

from __future__ import annotations

from enum import Enum
from math import inf

from attrs import define, field

__all__ = ["Routes", "Verdict"]

PROVEN = 64  # successes after which a route is like all others
MOST_ROUTES = 1024
LATER = 1e-3  # seconds after the end of a stop: others are the probe then


class Verdict(Enum):
    """Meaning of a response for the quota: a success, or a refusal (429) and which requests it stops."""

    PASSED = "passed"
    QUOTA = "quota"  # refused: all requests wait
    UNANNOUNCED = "unannounced"  # refused by a limit that no header announces: all requests wait
    ROUTE = "route"  # refused: requests of this route wait
    TOO_EXPENSIVE = "too expensive"  # refused while the whole limit was left


@define(eq=False, repr=False)
class _Route:
    """A route that was refused: it is closed until a time, and then tries with `most` at once."""

    until: float
    refused_at: float
    refusals: int = 1
    in_flight: int = 0
    most: int = 1
    passed: int = 0
    others_passed: bool = False
    own: bool = False  # whether a refusal was about the route alone


@define(eq=False, repr=False)
class Routes:
    """The routes that were refused; empty most of the time."""

    known: dict[str, _Route] = field(factory=dict[str, _Route])

    def opens_at(self, route: str, now: float) -> float:
        """Return when a request of `route` may leave as far as that decides; inf: an answer does."""
        one = self.known.get(route)
        if one is None:
            return now
        if now < one.until:
            return one.until
        return now if one.in_flight < one.most else inf

    def closed_until(self, route: str) -> float:
        """Return until when a route is closed; -inf when it is not."""
        one = self.known.get(route)
        return -inf if one is None else one.until

    def places(self, route: str, now: float) -> float:
        """Return how many requests of `route` may leave now."""
        one = self.known.get(route)
        if one is None:
            return inf
        return 0 if now < one.until else max(0, one.most - one.in_flight)

    def wakes_at(self, route: str, now: float) -> float:
        """Return when it is worth looking at a route again; inf: an answer decides."""
        one = self.known.get(route)
        return inf if one is None or one.until <= now else one.until

    def send(self, route: str) -> None:
        """Note that a request leaves."""
        if (one := self.known.get(route)) is not None:
            one.in_flight += 1

    def landed(self, route: str) -> None:
        """Note that a request is no longer in flight."""
        if (one := self.known.get(route)) is not None:
            one.in_flight = max(0, one.in_flight - 1)

    def passed(self, route: str, sent: float) -> None:
        """Note a request that was not refused."""
        for name, one in self.known.items():
            one.others_passed = one.others_passed or (name != route and sent >= one.refused_at)
        mine = self.known.get(route)
        if mine is None or sent < mine.until:
            return
        mine.most, mine.passed, mine.own = mine.most + 1, mine.passed + 1, False
        if mine.passed >= PROVEN:
            del self.known[route]

    def concerns_route_only(self, route: str, now: float, *, left: bool | None) -> bool:
        """Return whether a refusal is about its route alone; `left` says whether quota was left, if known."""
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
        """Return whether some of a route passed since it was refused, and nothing of any other."""
        one = self.known.get(route)
        return one is not None and one.passed > 0 and not one.others_passed

    def closed(self, now: float) -> list[str]:
        """Return the routes that are closed."""
        return [name for name, one in self.known.items() if one.until > now]

    def refused(self, route: str, now: float) -> int:
        """Note that a route was refused alone; return how often that was so in a row."""
        one = self.known.get(route)
        if one is None:
            if len(self.known) >= MOST_ROUTES:
                self.known.pop(next(iter(self.known)))
            self.known[route] = _Route(now, now, own=True)
            return 1
        if one.passed:
            one.refusals = 1  # a limiter that lets some pass is no closed route
        elif one.most > 1 or now >= one.until:
            one.refusals += 1
        one.refused_at, one.most, one.passed = now, 1, 0
        one.others_passed, one.own = False, True
        return one.refusals

    def close(self, route: str, until: float) -> None:
        """Close a route until a time; that only ever moves later."""
        one = self.known[route]
        one.until = max(one.until, until)

    def step_back(self, route: str, now: float, stop: float) -> None:
        """Let others be the probe when a stop ends that this route's request met twice."""
        one = self.known.get(route)
        if one is None:
            self.known[route] = _Route(stop + LATER, now)
        else:
            one.until, one.refused_at, one.others_passed = max(one.until, stop + LATER), now, False
