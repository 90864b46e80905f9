"""Policies of a service, named by its responses; omitted values stay."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi.core.limits.balance import DEFAULT_WINDOW, Balance
from chainapi.core.limits.memory import LONGEST_NAME, PoliciesPart, PolicyPart
from chainapi.core.limits.policy import Policy

__all__ = ["Policies"]

MOST_POLICIES = 8


@define(eq=False, repr=False)
class Policies:
    """Policies named by responses, and the one that the last response reports.

    `read` removes a policy when a response lists the policies without it, or when no response named it for
    a window and the last list does not have it.
    """

    known: list[Policy] = field(factory=list[Policy])
    latest: Policy | None = None
    _listed: list[Policy] = field(factory=list[Policy])
    _names: dict[str, Policy] = field(factory=dict[str, Policy])
    _last_fields: object = None

    def read(self, info: RateLimitInfo, now: float, cost: float, *, refused: bool) -> Policy | None:
        """Update the policies named by a response; return the one its numbers report."""
        if not info.limit and info.remaining is None and not info.policies:
            return self.latest if refused else None
        fields = (info.limit, info.policies)
        if fields == self._last_fields and not refused and self.latest is not None:
            return self.latest
        named = [policy for policy in info.policies if policy.quota > 0]
        if named:
            current = self._list(named, now, refused=refused)
        elif info.limit:
            current = [self._find(info.limit, None) or self._add(Policy(Balance(info.limit), named=True))]
            current[0].only_on_refusal = refused and len(self.known) > 1 and not current[0].balance.reported
        else:
            current = self._unnamed(info, cost)
        # Without a list, the limit of a single policy stays the same policy.
        alone = bool(info.limit) and len(self.known) == 1 and self.known[0].sized
        self._last_fields = fields if not refused and (named or alone) else None
        self._choose(current, info)
        self._forget(now)
        return self.latest

    def claims(self, info: RateLimitInfo) -> dict[Policy, tuple[float, float | None]]:
        """Return remainder and reset of each reported policy except that of `read`."""
        if len(info.service_limits) < 2:
            return {}
        claims = dict[Policy, tuple[float, float | None]]()
        for one in info.service_limits:
            policy = self._names.get(one.name)
            if policy is not None and policy is not self.latest and one.remaining is not None:
                claims[policy] = one.remaining, one.reset
        return claims

    def roof(self) -> float:
        """Return the least limit."""
        return min((one.limit for one in self.known), default=float("inf"))

    # --- memory -----------------------------------------------------------------------------

    def memory(self, then: float, entries: int) -> PoliciesPart:
        """Return the state for a memory; each ledger has `entries` at most."""
        places = {one: place for place, one in enumerate(self.known)}
        names = [(name, one) for name, one in self._names.items() if len(name) <= LONGEST_NAME]
        return PoliciesPart(
            [one.memory(then, entries) for one in self.known],
            None if self.latest is None else places.get(self.latest),
            [places[one] for one in self._listed if one in places],
            {name: places[one] for name, one in names[-MOST_POLICIES:] if one in places},
        )

    def restore(self, part: PoliciesPart, restored: Callable[[PolicyPart], Policy]) -> None:
        """Continue from a memory; `restored` makes a policy of its part."""
        self.known = known = [restored(one) for one in part.known]
        self.latest = None if part.latest is None else known[part.latest]
        self._listed = [known[place] for place in part.listed]
        self._names = {name: known[place] for name, place in part.names.items()}
        self._last_fields = None

    # --- lists of policies ------------------------------------------------------------------

    def _list(self, named: list[PolicyField], now: float, *, refused: bool) -> list[Policy]:
        current = []
        for policy in named:
            one = self._find(policy.quota, policy.window)
            if one is None:
                one = Policy(
                    Balance(policy.quota, policy.window),
                    named=True,
                    only_on_refusal=refused and bool(self.known),
                )
            elif not refused:
                one.only_on_refusal = False
            one.name_window(now, policy.quota, policy.window)
            if policy.name is not None:
                self._names[policy.name] = one
            current.append(one)
        if refused:
            keep = [one for one in self.known if all(one.window != new.window for new in current)]
        else:
            keep = [one for one in self.known if one.only_on_refusal]
            self._listed = current
        self.known = [*current, *(one for one in keep if one not in current)][:MOST_POLICIES]
        return current

    def _find(self, quota: float, window: float | None) -> Policy | None:
        """Return the matching policy; one with unknown window or limit may match."""
        for one in self.known:
            if one.sized and one.limit == quota and (window is None or one.window == window):
                return one
        for one in self.known:
            if (one.limit == quota or not one.sized) and (one.guessed or not one.sized):
                return one
        return None

    def _add(self, one: Policy) -> Policy:
        self.known = [one, *self.known][:MOST_POLICIES]
        return one

    def _unnamed(self, info: RateLimitInfo, cost: float) -> list[Policy]:
        """Return the policies that a remainder without a limit reports."""
        if self.latest is not None:
            return [self.latest]
        least = (info.remaining or 0.0) + cost
        if info.remaining is None or not least:
            return []  # a refusal with nothing left does not show the size of the limit
        return [self._add(Policy(Balance(least), named=True, sized=False))]

    def _choose(self, current: list[Policy], info: RateLimitInfo) -> None:
        matching = [one for one in current if one.limit == info.limit]
        if matching:
            self.latest = matching[0]
        elif current and self.latest not in current:
            self.latest = current[0]

    def _forget(self, now: float) -> None:
        """Remove unlisted policies that no response named for a window."""
        self.known = [
            one
            for one in self.known
            if one is self.latest
            or one.only_on_refusal
            or one in self._listed
            or now <= one.balance.recorded_at + (one.window or DEFAULT_WINDOW)
        ]
