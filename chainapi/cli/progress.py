"""Progress of a session: counts of its events, and its waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from attrs import Factory, define, field

from chainapi._limits.view import QuotaSnapshot
from chainapi.cli.wording import counted
from chainapi.events import Event, PageReceived, RequestSent, ResponseReceived

__all__ = ["Progress", "Traffic", "pause", "waits"]


@define(eq=False)
class Traffic:
    """Traffic to one service.

    `waited` is the time in seconds between requests with none in flight.
    """

    requests: int = 0
    refused: int = 0
    waited: float = 0.0
    _in_flight: int = 0
    _idle_since: float | None = None

    def sent(self, now: float) -> None:
        """Count a request, and end the wait before it."""
        self.requests += 1
        self._in_flight += 1
        if self._idle_since is not None:
            self.waited += now - self._idle_since
            self._idle_since = None

    def received(self, now: float, status: int | None) -> None:
        """Count a response, or a request that failed without one."""
        self.refused += status == 429
        self._in_flight -= 1
        if not self._in_flight:
            self._idle_since = now


@define(eq=False)
class Progress:
    """Counts of the events of a session; `clock` returns seconds."""

    clock: Callable[[], float]
    began: float = field(init=False, default=Factory(lambda self: self.clock(), takes_self=True))
    services: Mapping[str, Traffic] = field(factory=lambda: {"metrics": Traffic(), "data": Traffic()})
    pages: Counter[str] = field(factory=Counter[str])  # by `where`, as are the rows
    rows: Counter[str] = field(factory=Counter[str])

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case RequestSent():
                self.services[event.service].sent(self.clock())
            case ResponseReceived():
                self.services[event.service].received(self.clock(), event.status)
            case PageReceived():
                self.pages[event.where] += 1
                self.rows[event.where] += event.rows

    @property
    def requests(self) -> int:
        """Requests sent."""
        return sum(traffic.requests for traffic in self.services.values())

    def line(self, quota: Mapping[str, QuotaSnapshot]) -> str:
        """Return one line: pages, rows, requests, and waits."""
        parts = [
            counted(self.pages.total(), "page"),
            counted(self.rows.total(), "row"),
            counted(self.requests, "request"),
        ]
        parts += [f"{service}: {waits(known)}" for service, known in quota.items() if pause(known)]
        return " · ".join(parts)


def waits(quota: QuotaSnapshot) -> str:
    """Return the wait of a service: in seconds, from a minute on with the time of day."""
    left = pause(quota)
    if left < 60 or quota.unix_time is None:
        return f"rate limit, next request in {left:.1f} s"
    now = datetime.fromtimestamp(quota.unix_time).astimezone()
    then = now + timedelta(seconds=left)
    day = "" if then.date() == now.date() else f"{then:%Y-%m-%d} "
    return f"{quota.policy}, back at {day}{then:%H:%M}"


def pause(quota: QuotaSnapshot) -> float:
    """Return the seconds until the next request can be sent."""
    if quota.stopped_for or not quota.waiting or quota.in_flight:
        return quota.stopped_for
    return quota.reset_in or 0.0
