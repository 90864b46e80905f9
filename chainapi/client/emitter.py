"""Who hears of events: the logger `chainapi`, and the listener of the user."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from chainapi.core.events import Event

__all__ = ["Listener"]

LOGGER = logging.getLogger("chainapi")

# What a person who runs a program wants to know; all else is detail.
_TOLD = frozenset(
    {"KeyNotUnique", "LoopFound", "OrderBroken", "Restarted", "RetryScheduled", "TokenRenewed", "WaitBegan"}
)


class Listener:
    """Passes events on. It is false when nobody listens (logging at INFO counts).

    No event is made then, and `chainapi.core.events` is not even loaded: who makes one imports it there.
    """

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        self._on_event = on_event

    def __bool__(self) -> bool:
        return self._on_event is not None or LOGGER.isEnabledFor(logging.INFO)

    def __call__(self, event: Event) -> None:
        """Log an event, and hand it to the user's listener."""
        level = logging.INFO if type(event).__name__ in _TOLD else logging.DEBUG
        if LOGGER.isEnabledFor(level):
            fields = " ".join(
                f"{name}={value!r}" for name, value in _fields(event) if value not in ("", None)
            )
            LOGGER.log(level, "%s %s", type(event).__name__, fields)
        if self._on_event is not None:
            self._on_event(event)


def _fields(event: Event) -> list[tuple[str, object]]:
    return [(field.name, getattr(event, field.name)) for field in attrs.fields(type(event))]
