"""Quota and health of a session as JSON, without requests to the services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import frozen

from chainapi._api.view import SessionView
from chainapi.core.arguments import function
from chainapi.events import ResponseReceived

if TYPE_CHECKING:
    from chainapi.events import Event

__all__ = ["Health", "LastAnswers", "health_of", "quota_of"]


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


@frozen
class Health:
    """Health of a session: status code and JSON body of the response."""

    status: int
    body: bytes


def health_of(session: object, answers: object) -> Health:
    """Return the health of a session, with its last answers.

    Both may be None.
    """
    is_open = isinstance(session, SessionView) and not session.connection.closed
    last = answers.to_dict() if isinstance(answers, LastAnswers) else {}
    report = {"session": "open" if is_open else "closed", "last_answers": last}
    return Health(200 if is_open else 503, msgspec.json.encode(report))


def quota_of(session: SessionView) -> bytes:
    """Return the quota of each service as a JSON object; times are seconds from now."""
    snapshots = {name: msgspec.Raw(quota.to_json()) for name, quota in session.quota.items()}
    return msgspec.json.encode(snapshots)
