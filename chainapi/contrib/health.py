"""Last answers of the services, for a page that shows the health of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chainapi.core.arguments import function
from chainapi.core.events import ResponseReceived

if TYPE_CHECKING:
    from chainapi.core.events import Event

__all__ = ["LastAnswers"]


class LastAnswers:
    """Listener of a session's events that remembers the last answer of each service.

    Args:
        then: another listener, which is called with each event.

    Raises:
        ArgumentError: `then` cannot be called.

    """

    def __init__(self, then: Callable[[Event], None] | None = None) -> None:
        self._then = None if then is None else function("on_event", then)
        self._last: dict[str, tuple[float, ResponseReceived]] = {}

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, ResponseReceived):
            self._last[event.service] = asyncio.get_running_loop().time(), event
        if self._then is not None:
            self._then(event)

    def to_dict(self) -> dict[str, Any]:
        """Return status or fault, and the age in seconds, of each last answer."""
        now = asyncio.get_running_loop().time()
        return {
            name: {
                "status": answer.status,
                "fault": answer.fault or None,
                "elapsed": round(answer.elapsed, 3),
                "seconds_ago": round(now - at, 3),
            }
            for name, (at, answer) in self._last.items()
        }
