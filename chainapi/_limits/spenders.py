"""Spenders of a quota: requests and units of each process and tag."""

from __future__ import annotations

from attrs import define, field

from chainapi._limits.view import Spender

__all__ = ["MOST_SPENDERS", "OTHER", "Account", "Spenders"]

MOST_SPENDERS = 256
FORGOTTEN = 32  # accounts that are added up at once, so that it is rarely done
OTHER = "other"  # tag of the spenders that are added up


@define(eq=False, repr=False)
class Account:
    """Counts of one spender; see `Spender`. The gate counts.

    `used` is the number of requests that the gate had sent at its last use, `closed` whether it was added up.
    """

    process: str
    tag: str
    used: int = 0
    requests: int = 0
    units: float = 0.0
    refusals: int = 0
    in_flight: int = 0
    waiting: int = 0
    closed: bool = False

    @property
    def idle(self) -> bool:
        """Return whether no request is in flight or waits."""
        return not self.in_flight and not self.waiting

    def shown(self) -> Spender:
        """Return the counts."""
        return Spender(
            self.process, self.tag, self.requests, self.units, self.refusals, self.in_flight, self.waiting
        )


@define(eq=False, repr=False)
class Spenders:
    """Accounts of the spenders, `MOST_SPENDERS` at most.

    Those used least recently are added up in one account, with the tag `OTHER` and no process. New spenders
    use it too while every account has requests under way.
    """

    _accounts: dict[tuple[str, str], Account] = field(factory=dict[tuple[str, str], Account])

    def account(self, process: str, tag: str) -> Account:
        """Return the account of a spender; do not keep it once it is `closed`."""
        account = self._accounts.get((process, tag))
        if account is None:
            if len(self._accounts) >= MOST_SPENDERS - 1 and not self._add_up():
                process, tag = "", OTHER
            account = self._accounts.setdefault((process, tag), Account(process, tag))
        return account

    def shown(self) -> tuple[Spender, ...]:
        """Return all spenders, those with the most units first."""
        spenders = [account.shown() for account in self._accounts.values()]
        return tuple(sorted(spenders, key=lambda one: (-one.units, -one.requests, one.process, one.tag)))

    def _add_up(self) -> bool:
        """Add up the accounts used least recently; return False if all are in use."""
        idle = [one for one in self._accounts.values() if one.idle and (one.process, one.tag) != ("", OTHER)]
        other = self._accounts.setdefault(("", OTHER), Account("", OTHER))
        for one in sorted(idle, key=lambda one: one.used)[:FORGOTTEN]:
            del self._accounts[one.process, one.tag]
            one.closed = True
            other.requests += one.requests
            other.units += one.units
            other.refusals += one.refusals
        return bool(idle)
