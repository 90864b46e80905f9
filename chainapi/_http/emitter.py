"""Events on their way out: to the logger `chainapi`, and to `on_event`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import attrs
from attrs import define, field

from chainapi._http.message import Response
from chainapi.errors import APIConnectionError

if TYPE_CHECKING:
    from chainapi._limits.member import Member
    from chainapi.events import Event, WaitBegan

__all__ = ["CallEvents", "Emitter", "ServiceEvents"]

LOGGER = logging.getLogger("chainapi")
WORTH_AN_EVENT = 0.01  # seconds: a shorter wait of a call has no event

# Logged at INFO, because the person who runs a program can act on them; all others at DEBUG.
_NOTABLE = frozenset(
    {"KeyNotUnique", "LoopFound", "OrderBroken", "PlanContradicted", "Restarted", "RetryScheduled"}
    | {"TokenRenewed", "WaitBegan"}
)


class Emitter:
    """Emitter of events; false when nobody listens.

    A logger at INFO or below counts as a listener. Callers check it first and import `chainapi.events`
    only then: without a listener no event is made, and the module is not even loaded.
    """

    def __init__(self, *listeners: Callable[[Event], None]) -> None:
        self._listeners = listeners

    def __bool__(self) -> bool:
        return bool(self._listeners) or LOGGER.isEnabledFor(logging.INFO)

    def __call__(self, event: Event) -> None:
        """Log an event, and pass it to the listeners."""
        level = logging.INFO if type(event).__name__ in _NOTABLE else logging.DEBUG
        if LOGGER.isEnabledFor(level):
            fields = " ".join(
                f"{name}={value!r}" for name, value in _fields(event) if value not in ("", None)
            )
            LOGGER.log(level, "%s %s", type(event).__name__, fields)
        for listener in self._listeners:
            listener(event)


def _fields(event: Event) -> list[tuple[str, object]]:
    return [(field.name, getattr(event, field.name)) for field in attrs.fields(type(event))]


@define(eq=False, repr=False)
class ServiceEvents:
    """Events of one service: its waits for quota, and answers without a request.

    Callers check first whether `emit` is true, that is whether anybody listens.

    Attributes:
        waits_until: time of the loop until which no request leaves; -inf without such a wait.

    """

    service: str
    emit: Emitter
    waits_until: float = field(default=-inf, init=False)
    _wait: WaitBegan | None = field(default=None, init=False)  # emitted, and not over yet
    _wait_until: float = field(default=0.0, init=False)

    def cached(self, where: str, tag: str, age: float, use: str) -> None:
        """Emit that a cached response answers a call."""
        from chainapi.events import CacheServed

        self.emit(CacheServed(self.service, where, age, use, tag=tag))

    def on_wait(self, *, reason: str, seconds: float, **_: Any) -> None:
        """Emit soon that no request leaves for `seconds`; the listener of a `Member`.

        Not at once: a user's listener that raises must not interrupt the gate amid a change of its queue.
        """
        loop = asyncio.get_running_loop()
        loop.call_soon(self._begin_wait, reason, seconds, loop.time() + seconds)

    def on_plan(self, plan: str, limit: float | None, window: float | None) -> None:
        """Emit soon that responses contradict a plan; the listener of a `Member`."""
        asyncio.get_running_loop().call_soon(self._end_plan, plan, limit, window)

    def _end_plan(self, plan: str, limit: float | None, window: float | None) -> None:
        if self.emit:
            from chainapi.events import PlanContradicted

            self.emit(PlanContradicted(self.service, plan, limit, window))

    def _begin_wait(self, reason: str, seconds: float, until: float) -> None:
        """Emit a wait, and end the one that is running.

        Nothing is emitted if the running one ends less than a second earlier, or ends later.
        """
        self.waits_until = until
        if not self.emit or (self._wait is not None and until < self._wait_until + 1):
            return
        from chainapi.events import WaitBegan

        self.end_wait()
        self._wait, self._wait_until = WaitBegan(self.service, reason, seconds), until
        self.emit(self._wait)

    def end_wait(self) -> None:
        """Emit that the wait is over, if one is running."""
        if self._wait is not None:
            from chainapi.events import WaitEnded

            wait, self._wait = self._wait, None
            self.emit(WaitEnded(wait.service, wait.reason, wait.seconds))


@define(eq=False, repr=False)
class CallEvents:
    """Events of one call, made only if somebody listens.

    Args:
        service: events of its service.
        member: the session's place in the gate; it knows the reason of a wait.
        where: method and path.
        call: number of the call.
        tag: name of the spender.

    """

    service: ServiceEvents
    member: Member
    where: str
    call: int
    tag: str
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop, init=False)
    _began: float = field(default=0.0, init=False)
    _attempts: int = field(default=0, init=False)
    _queued: float = field(default=0.0, init=False)  # when the call began to wait
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)  # while no wait was emitted
    _waits: str | None = field(default=None, init=False)  # reason of the wait that was emitted

    def began(self, route: str, url: str) -> None:
        """Emit that the call begins."""
        from chainapi.events import CallBegan

        self._began = self._loop.time()
        self._emit(CallBegan, route, url)

    def ended(self, error: str) -> None:
        """Emit that the call is over; `error` is the name of its error."""
        from chainapi.events import CallEnded

        self._emit(CallEnded, self._loop.time() - self._began, self._attempts, error)

    def queued(self) -> None:
        """Emit soon that the call waits for its turn, if it still does."""
        self._queued = self._loop.time()
        self._timer = self._loop.call_later(WORTH_AN_EVENT, self._wait)

    def admitted(self) -> None:
        """Emit that the wait for a turn is over, if one was emitted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waits is not None:
            from chainapi.events import QuotaWaitEnded

            reason, self._waits = self._reason(self._queued) or self._waits, None
            self._emit(QuotaWaitEnded, reason, self._loop.time() - self._queued)

    def sent(self, attempt: int) -> None:
        """Emit that a request leaves, and that the wait before it is over."""
        from chainapi.events import RequestSent

        self._attempts = attempt
        self.service.end_wait()
        self._emit(RequestSent, attempt)

    def received(
        self, outcome: Response | APIConnectionError, elapsed: float, request_id: str | None
    ) -> None:
        """Emit the outcome of a request, `elapsed` seconds after it left."""
        from chainapi.events import ResponseReceived

        if isinstance(outcome, APIConnectionError):
            self._emit(ResponseReceived, None, elapsed, 0, outcome.reason, type(outcome).__name__)
        else:
            size = len(outcome.body)
            self._emit(ResponseReceived, outcome.status, elapsed, size, request_id=request_id)

    def retry(self, attempt: int, wait: float, reason: str) -> None:
        """Emit that the call pauses before its next attempt."""
        from chainapi.events import RetryScheduled

        self._emit(RetryScheduled, attempt, wait, reason)

    def _wait(self) -> None:
        from chainapi.events import QuotaWaitBegan

        now, self._timer = self._loop.time(), None
        self._waits = self._reason(now) or "turn"
        until = self.member.wait.until
        self._emit(QuotaWaitBegan, self._waits, until - now if until > now else None)

    def _reason(self, now: float) -> str:
        """Return the reason of the wait that ends after `now`; empty without one."""
        return self.member.wait.reason if self.member.wait.until > now else ""

    def _emit(self, kind: Callable[..., Event], *values: object, **named: object) -> None:
        service = self.service
        service.emit(kind(service.service, self.where, *values, call=self.call, tag=self.tag, **named))
