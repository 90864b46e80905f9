"""Events on their way out: to the logger `chainapi`, and to `on_event`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import attrs
from attrs import define, field

from chainapi.core.http import Response
from chainapi.errors import APIConnectionError

if TYPE_CHECKING:
    from chainapi.core.events import Event, WaitBegan

__all__ = ["Emitter", "ServiceEvents"]

LOGGER = logging.getLogger("chainapi")

# Logged at INFO, because the person who runs a program can act on them; all others at DEBUG.
_NOTABLE = frozenset(
    {"KeyNotUnique", "LoopFound", "OrderBroken", "Restarted", "RetryScheduled", "TokenRenewed", "WaitBegan"}
)


class Emitter:
    """Emitter of events; false when nobody listens.

    A logger at INFO or below counts as a listener. Callers check it first and import `chainapi.core.events`
    only then: without a listener no event is made, and the module is not even loaded.
    """

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        self._on_event = on_event

    def __bool__(self) -> bool:
        return self._on_event is not None or LOGGER.isEnabledFor(logging.INFO)

    def __call__(self, event: Event) -> None:
        """Log an event, and pass it to the user's listener."""
        level = logging.INFO if type(event).__name__ in _NOTABLE else logging.DEBUG
        if LOGGER.isEnabledFor(level):
            fields = " ".join(
                f"{name}={value!r}" for name, value in _fields(event) if value not in ("", None)
            )
            LOGGER.log(level, "%s %s", type(event).__name__, fields)
        if self._on_event is not None:
            self._on_event(event)


def _fields(event: Event) -> list[tuple[str, object]]:
    return [(field.name, getattr(event, field.name)) for field in attrs.fields(type(event))]


@define(eq=False, repr=False)
class ServiceEvents:
    """Events of one service: its requests, and their waits for quota.

    `where` is method and path. Callers check first whether `emit` is true, that is whether anybody listens.

    Attributes:
        waits_until: time of the loop until which no request leaves; -inf without such a wait.

    """

    service: str
    emit: Emitter
    waits_until: float = field(default=-inf, init=False)
    _wait: WaitBegan | None = field(default=None, init=False)  # emitted, and not over yet
    _wait_until: float = field(default=0.0, init=False)

    def sent(self, where: str, attempt: int) -> None:
        """Emit that a request leaves, and that the wait before it is over."""
        from chainapi.core.events import RequestSent

        self._end_wait()
        self.emit(RequestSent(self.service, where, attempt))

    def received(self, where: str, outcome: Response | APIConnectionError, elapsed: float) -> None:
        """Emit the outcome of a request, `elapsed` seconds after it left."""
        from chainapi.core.events import ResponseReceived

        if isinstance(outcome, APIConnectionError):
            self.emit(ResponseReceived(self.service, where, None, elapsed, 0, outcome.reason))
        else:
            self.emit(ResponseReceived(self.service, where, outcome.status, elapsed, len(outcome.body)))

    def cached(self, where: str, age: float, use: str) -> None:
        """Emit that a cached response answers a call."""
        from chainapi.core.events import CacheServed

        self.emit(CacheServed(self.service, where, age, use))

    def retry(self, where: str, attempt: int, wait: float, reason: str) -> None:
        """Emit that a call pauses before its next attempt."""
        from chainapi.core.events import RetryScheduled

        self.emit(RetryScheduled(self.service, where, attempt, wait, reason))

    def on_wait(self, *, reason: str, seconds: float, **_: Any) -> None:
        """Emit soon that no request leaves for `seconds`; the listener of a `Member`.

        Not at once: a user's listener that raises must not interrupt the gate amid a change of its queue.
        """
        loop = asyncio.get_running_loop()
        loop.call_soon(self._begin_wait, reason, seconds, loop.time() + seconds)

    def _begin_wait(self, reason: str, seconds: float, until: float) -> None:
        """Emit a wait, and end the one that is running.

        Nothing is emitted if the running one ends less than a second earlier, or ends later.
        """
        self.waits_until = until
        if not self.emit or (self._wait is not None and until < self._wait_until + 1):
            return
        from chainapi.core.events import WaitBegan

        self._end_wait()
        self._wait, self._wait_until = WaitBegan(self.service, reason, seconds), until
        self.emit(self._wait)

    def _end_wait(self) -> None:
        """Emit that the wait is over, if one is running."""
        if self._wait is not None:
            from chainapi.core.events import WaitEnded

            wait, self._wait = self._wait, None
            self.emit(WaitEnded(wait.service, wait.reason, wait.seconds))
