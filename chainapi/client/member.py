"""Members of a gate: its sessions, with their settings and wait listeners."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING
from weakref import WeakSet

from msgspec import Struct

from chainapi.client.ceiling import Ceiling
from chainapi.errors import QueueFullError, QuotaWaitError

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

    from chainapi._limits.view import Limit
    from chainapi.core.limits.group import Group
    from chainapi.core.limits.quota import Quota
    from chainapi.core.limits.spenders import Account

__all__ = ["MAX_IN_FLIGHT", "Member", "Members", "Settings"]

MAX_IN_FLIGHT = 100  # requests without a response, if a session does not set it


class Settings(Struct, frozen=True):
    """Settings in which the sessions that share a gate may differ."""

    max_in_flight: int
    probe: bool
    max_stop: float


class Member:
    """Membership of a session in a gate: settings of its requests, and its listener.

    Args:
        rate: a ceiling for these requests; see `Gate`.
        max_in_flight: most of these requests without a response at once. None sets no limit besides that
            of the gate, which is the largest of its open sessions, each with 100 by default.
        limits: limits that the service does not announce; they hold for the whole gate from then on.
        probe: False on one open session holds for the whole gate.
        max_stop: the longest of the open sessions holds for the whole gate.
        on_wait: see `Gate`; called for waits of these requests.
        on_plan: called once, when responses contradict the plan among `limits`: with its name, and the amount
            and window that they announce.
        now: the wall clock in Unix seconds, for errors and snapshots.
        process: name of the process that the session belongs to; "" for this one. Processes have equal
            shares of the quota while they wait.
        tag: name of the spender, for requests without a tag of their own.
        group: limits the requests in flight of several members, for those without `rate` or `max_in_flight`.
        timeout: seconds after which its requests are given up; it may grow later.

    """

    def __init__(
        self,
        *,
        rate: Limit | AsyncLimiter | None = None,
        max_in_flight: int | None = None,
        limits: Sequence[Limit] = (),
        probe: bool = True,
        max_stop: float | None = None,
        on_wait: Callable[..., None] | None = None,
        on_plan: Callable[[str, float | None, float | None], None] | None = None,
        now: Callable[[], float] = time.time,
        process: str = "",
        tag: str = "",
        group: Group | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.given = rate
        self.most_in_flight = max_in_flight
        self.process = process
        self.tag = tag
        self.timeout = timeout
        self.account: Account | None = None  # of its tag, in the gate that it joined
        self.ceiling = None if rate is None else Ceiling(rate)
        self.limits = tuple(limits)
        in_flight = MAX_IN_FLIGHT if max_in_flight is None else max_in_flight
        self.settings = Settings(in_flight, probe, inf if max_stop is None else max_stop)
        self.on_wait = on_wait
        self.on_plan = on_plan
        self.plan = next((limit.plan for limit in self.limits if limit.plan), "")
        self.now = now
        self.reported_until, self.reported_reason = -inf, ""  # of the wait last reported to `on_wait`
        self.wait_reason, self.wait_until = "", -inf  # of the wait that is known
        self._common = group
        self.group = self._new_group()

    def enter(self, account: Account) -> None:
        """Begin in a gate, with the account of the tag there.

        Requests in the last gate count in the last group: their ends can wake nobody in this gate.
        """
        self.account = account
        self.group = self._new_group()

    def too_long(self, seconds: float, max_wait: float, left: float | None) -> QuotaWaitError:
        """Return the error of a wait longer than `max_wait` or the time until a deadline."""
        allowed = max_wait if left is None else None
        return QuotaWaitError(self.now() + seconds, retry_after=seconds, max_wait=allowed, deadline=left)

    def queue_full(self, seconds: float, most: float) -> QueueFullError:
        """Return the error of a call beside which as many wait as may."""
        return QueueFullError(self.now() + seconds, retry_after=seconds, max_waiting=int(most))

    def report_wait(self, reason: str, now: float, until: float, waiting: int) -> None:
        """Remember a wait until a known time, and call the listener.

        The listener is called once for each wait of a second or more.
        """
        from chainapi.core.limits.scheduler import WORTH_REPORTING, is_another_wait

        self.wait_reason, self.wait_until = reason, until
        another = is_another_wait(until, reason, self.reported_until, self.reported_reason)
        if self.on_wait is not None and another and now + WORTH_REPORTING <= until:
            self.reported_until, self.reported_reason = until, reason
            self.on_wait(reason=reason, seconds=until - now, waiting=waiting)

    def end_plan(self, name: str, limit: float | None, window: float | None) -> None:
        """Drop the plan if it has that name, and call the listener."""
        if name and name == self.plan:
            self.plan, self.limits = "", tuple(one for one in self.limits if not one.plan)
            if self.on_plan is not None:
                self.on_plan(name, limit, window)

    def _new_group(self) -> Group | None:
        """Return an empty group for limits of its own, else that of several members."""
        most, paced = self.most_in_flight, self.given is not None
        if most is None and not paced:
            return self._common
        from chainapi.core.limits.group import Group  # imported here: most sessions have no such limit

        return Group(inf if most is None else most, paced)


class Members:
    """Members of a gate whose sessions are open, and the settings on which they agree."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._by_settings: dict[Settings, WeakSet[Member]] = {}

    def join(self, member: Member) -> None:
        """Apply the settings of a session; its limits hold from now on."""
        self._by_settings.setdefault(member.settings, WeakSet()).add(member)
        self._agree()
        self._quota.add_limits(member.limits)

    def leave(self, member: Member) -> None:
        """Forget the settings of a closed session; its limits stay."""
        if (members := self._by_settings.get(member.settings)) is not None:
            members.discard(member)
        self._agree()

    def report_plans(self) -> None:
        """Report the plans that responses contradicted to the sessions that named them."""
        contradicted = self._quota.contradicted
        for members in self._by_settings.values():
            for member in list(members):
                for name, announced in contradicted:
                    member.end_plan(name, announced.quota, announced.window)
        contradicted.clear()

    def _agree(self) -> None:
        """Use the largest `max_in_flight` and `max_stop`; probe only if all allow it."""
        self._by_settings = {settings: members for settings, members in self._by_settings.items() if members}
        if self._by_settings:
            quota, wanted = self._quota, self._by_settings
            quota.max_in_flight = max(one.max_in_flight for one in wanted)
            quota.max_stop = max(one.max_stop for one in wanted)
            quota.probe = all(one.probe for one in wanted)
