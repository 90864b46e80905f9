"""Who hears of events: the logger `chainapi`, and the listener of the user."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs

from chainapi.core.events import Event, LoopFound, Restarted, RetryScheduled, WaitBegan

__all__ = ["Listener"]

LOGGER = logging.getLogger("chainapi")

# What a person who runs a program wants to know; all else is detail.
_LEVELS: dict[type, int] = {
    LoopFound: logging.INFO,
    Restarted: logging.INFO,
    RetryScheduled: logging.INFO,
    WaitBegan: logging.INFO,
}


class Listener:
    """Passes events on. It is false when nobody listens (logging at INFO counts): no event is made then."""

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        self._on_event = on_event

    def __bool__(self) -> bool:
        return self._on_event is not None or LOGGER.isEnabledFor(logging.INFO)

    def __call__(self, event: Event) -> None:
        """Log an event, and hand it to the user's listener."""
        level = _LEVELS.get(type(event), logging.DEBUG)
        if LOGGER.isEnabledFor(level):
            fields = " ".join(
                f"{name}={value!r}" for name, value in _fields(event) if value not in ("", None)
            )
            LOGGER.log(level, "%s %s", type(event).__name__, fields)
        if self._on_event is not None:
            self._on_event(event)


def _fields(event: Event) -> list[tuple[str, object]]:
    return [(field.name, getattr(event, field.name)) for field in attrs.fields(type(event))]
