"""Guesses: requests that no response covers; their units are predicted to be back."""

from __future__ import annotations

from math import inf

from attrs import define

from chainapi.core.limits.in_flight import InFlight
from chainapi.core.limits.policy import Policy
from chainapi.core.limits.reservation import NEVER, Decision

__all__ = ["Guesses"]

CAUTIOUS = 3  # guesses at once allowed by responses without fields


@define(eq=False, repr=False)
class Guesses:
    """Guesses that may be in flight at once: one, and one more with each response."""

    in_flight: InFlight
    most: int = 1

    def decide(
        self, now: float, opens: float, scarce: Policy, *, probe: bool, hedge: bool, inquiries: bool
    ) -> Decision:
        """Decide about a request while `scarce` has no units for it until `opens`.

        `probe` if it leaves as a probe in any case, as a `hedge` beside another one that is late; with
        `inquiries`, one may leave early as a probe, to show when units come back.
        """
        alone = not self.in_flight.number
        if opens > now:
            return self._inquire(now, opens, scarce, alone=alone, inquiries=inquiries)
        careful = scarce.balance.stale or (not inquiries and scarce.balance.proven)
        if not alone and not hedge and (self.in_flight.guesses >= self.most or careful):
            return NEVER
        return Decision(now, True, probe or (self.most == 1 and alone))

    def _inquire(self, now: float, opens: float, scarce: Policy, *, alone: bool, inquiries: bool) -> Decision:
        """Decide whether one request leaves early although the units are used up."""
        if not alone:
            return Decision(opens)
        probes_at = scarce.probes_at(opens) if inquiries else inf
        if probes_at > now:
            return Decision(min(opens, probes_at), used_up=True)
        return Decision(now, True, True, scarce, True)

    def restart(self) -> None:
        """Begin with one guess again, after a pause."""
        self.most = 1

    def passed(self, *, reported: bool) -> None:
        """Allow one more after a guess passed; few if no response `reported` what remains."""
        if reported or self.most < CAUTIOUS:
            self.most += 1
