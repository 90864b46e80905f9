"""Limits that responses announce, and which one their numbers report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi._limits.policy import DEFAULT_WINDOW, Policy

__all__ = ["Announced", "contradiction"]

MOST_POLICIES = 8


class Announced(Struct, eq=False):
    """Limits that responses named; omitted values stay.

    `read` removes a limit when a response lists the limits without it, or when no response named it for a
    window and the last list does not have it.

    Attributes:
        policies: the limits, the one first that the last response reports.
        last: limit and policies of the last response, because others rarely differ.

    """

    policies: list[Policy] = field(default_factory=list)
    last: tuple[float | None, tuple[PolicyField, ...]] = (None, ())

    def __bool__(self) -> bool:
        return bool(self.policies)

    @property
    def first(self) -> Policy | None:
        """The limit that the last response reports."""
        return self.policies[0] if self.policies else None

    def read(self, info: RateLimitInfo, now: float, cost: float, *, refused: bool) -> Policy | None:
        """Update the limits that a response names; return the one that its numbers report."""
        if not info.limit and info.remaining is None and not info.policies:
            return self.first if refused else None
        fields = (info.limit, info.policies)
        if self.policies and fields == self.last and not refused:
            return self.policies[0]
        named = [policy for policy in info.policies if policy.quota > 0]
        if named:
            current = self._list(named, now, refused=refused)
        elif info.limit:
            current = [self._find(info.limit, None) or self._add(Policy(info.limit, announced=True))]
            current[0].on_refusal = refused and len(self.policies) > 1 and not current[0].reported
        else:
            current = self._unnamed(info, cost)
        self._choose(current, info)
        self._forget(now)
        # Without a list, the limit of a single policy stays the same one.
        alone = bool(info.limit) and len(self.policies) == 1 and self.policies[0].sized
        self.last = fields if not refused and (named or alone) else (None, ())
        return self.first

    def claims(self, info: RateLimitInfo) -> dict[int, tuple[float, float | None]]:
        """Return remainder and reset of each reported limit, by its place."""
        claims: dict[int, tuple[float, float | None]] = {}
        if len(info.service_limits) > 1:
            places = {one.name: place for place, one in enumerate(self.policies)}
            for claim in info.service_limits:
                if claim.remaining is not None and claim.name in places:
                    claims[places[claim.name]] = claim.remaining, claim.reset
        if self.policies and info.remaining is not None:
            claims[0] = info.remaining, info.reset
        return claims

    def _list(self, named: Sequence[PolicyField], now: float, *, refused: bool) -> list[Policy]:
        """Take over a list of limits; others stay only if just refusals named them."""
        current = [self._listed(one, now, refused=refused) for one in named]
        if refused:
            keep = [one for one in self.policies if all(one.window != new.window for new in current)]
        else:
            keep = [one for one in self.policies if one.on_refusal and one not in current]
            for one in self.policies:
                one.listed = False
            for one in current:
                one.listed = True
        self.policies = [*current, *(one for one in keep if one not in current)][:MOST_POLICIES]
        return current

    def _listed(self, listed: PolicyField, now: float, *, refused: bool) -> Policy:
        """Return the limit of a member of a list."""
        one = self._find(listed.quota, listed.window)
        if one is None:
            one = Policy(listed.quota, announced=True, on_refusal=refused and bool(self.policies))
        elif not refused:
            one.on_refusal = False
        one.name = listed.name
        if not one.sized:
            one.limit, one.sized = listed.quota, True
        if listed.window is not None and one.window != listed.window:
            one.set_window(now, listed.window, named=True)
        one.named_window = one.named_window or listed.window is not None
        return one

    def _find(self, quota: float, window: float | None) -> Policy | None:
        """Return the matching limit; one with unknown window or size may match."""
        for one in self.policies:
            if one.sized and one.limit == quota and (window is None or one.window == window):
                return one
        for one in self.policies:
            if not one.sized or (one.limit == quota and not one.named_window):
                return one
        return None

    def _add(self, one: Policy) -> Policy:
        self.policies = [one, *self.policies][:MOST_POLICIES]
        return one

    def _unnamed(self, info: RateLimitInfo, cost: float) -> list[Policy]:
        """Return the limit that a remainder without a limit reports."""
        if self.policies:
            return [self.policies[0]]
        least = (info.remaining or 0.0) + cost
        if info.remaining is None or not least:
            return []  # a refusal with nothing left does not show the size of the limit
        return [self._add(Policy(least, announced=True, sized=False))]

    def _choose(self, current: Sequence[Policy], info: RateLimitInfo) -> None:
        """Put the limit first that the numbers of a response report."""
        left = info.remaining or 0.0
        current = [one for one in current if one.limit >= left or not one.sized] or current
        matching = [one for one in current if one.limit == info.limit]
        if not matching and (not current or self.policies[0] in current):
            return
        latest = (matching or current)[0]
        self.policies = [latest, *(one for one in self.policies if one is not latest)]

    def _forget(self, now: float) -> None:
        """Remove unlisted limits that no response named for a window."""
        self.policies = [
            one
            for one in self.policies
            if one is self.policies[0]
            or one.on_refusal
            or one.listed
            or now <= one.read_at + (one.window or DEFAULT_WINDOW)
        ]


def contradiction(
    plan: Sequence[Policy], info: RateLimitInfo, *, counts_requests: bool | None
) -> PolicyField | None:
    """Return the announced limit that contradicts a plan; None without one.

    It has another amount for a window of the plan, or no window and an amount that the plan has for none. If
    the service `counts_requests`, it is any: a plan counts units.
    """
    amounts = {limit.window: limit.limit for limit in plan}
    announced = info.policies or ((PolicyField(info.limit),) if info.limit else ())
    for one in announced:
        own = amounts.values() if one.window is None else [amounts.get(one.window, one.quota)]
        if one.quota and (counts_requests or one.quota not in own):
            return one
    return None
