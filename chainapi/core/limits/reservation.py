"""Decision about a request, and the reservation of one that was granted.

Both are made for each request, and a Struct is made in a quarter of the time of other classes.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

from chainapi.core.limits.policy import Policy

__all__ = ["NEVER", "Decision", "Reservation"]


class Decision(Struct, frozen=True):
    """Decision of `Quota.decide`; pass it to `Quota.send` or `Quota.wait`.

    Attributes:
        when: `now`, a later time, or inf if a response decides.
        guess: whether no response covers the request.
        probe: whether it leaves as a probe.
        inquiry: the policy whose return of units the probe should show; None for other requests.
        used_up: whether units have to come back first and nothing is in flight.

    """

    when: float
    guess: bool = False
    probe: bool = False
    inquiry: Policy | None = None
    used_up: bool = False


NEVER = Decision(inf)  # until a response decides


class Reservation(Struct, eq=False):
    """Reservation for one granted request: `sent` at this time, for `cost` units.

    `alone` is set if no other was in flight, so that its response shows its price; `counted` if it passed
    beside others, so that the service has surely counted it. `inquiry` is that of its decision.
    """

    route: str
    cost: float
    sent: float
    stops: int
    probe: bool
    guess: bool
    prior: float | None
    alone: bool
    counted: bool = False
    inquiry: Policy | None = None

    @property
    def required_probe(self) -> bool:
        """Whether another probe must follow if this one ends without information.

        A guess while units are used up is an optional probe: without it, they come back all the same.
        """
        return self.probe and not self.guess
