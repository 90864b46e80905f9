"""Telemetry of sessions: its protocol, and the default of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol

from chainapi.errors import ConfigurationError

if TYPE_CHECKING:
    from chainapi._limits.view import QuotaSnapshot
    from chainapi.events import Event

__all__ = ["Observed", "Telemetry", "set_default", "telemetry_of"]


class Observed(Protocol):
    """Session as telemetry reads its quotas."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the session; None before its first use."""
        ...

    def quotas(self) -> Iterator[tuple[str, str, QuotaSnapshot]]:
        """Yield name, origin and quota of each service; called inside the loop."""
        ...


class Telemetry(Protocol):
    """Observer of the calls of sessions, which may add headers to requests."""

    def observe(self, session: Observed) -> None:
        """Observe a session; do not keep it alive."""
        ...

    def on_event(self, event: Event) -> None:
        """Take an event. The events of one call come from its task, and in order."""
        ...

    def attempt(self, call: int) -> AbstractContextManager[Mapping[str, str]]:
        """Return a context for a request of the call with that number.

        It gives further headers. The task of the call enters it after `RequestSent`, and leaves it before
        `ResponseReceived`.
        """
        ...


_default: Telemetry | None = None


def set_default(telemetry: Telemetry | None) -> None:
    """Set the telemetry of sessions that are made from now on and name none."""
    global _default
    _default = telemetry


def telemetry_of(given: Telemetry | Literal[False] | None) -> Telemetry | None:
    """Return the telemetry of a session: as given, or the default of the process.

    Raises:
        ConfigurationError: it is no telemetry.

    """
    if given is None:
        return _default
    if given is False:
        return None
    if not all(callable(getattr(given, name, None)) for name in ("observe", "on_event", "attempt")):
        raise ConfigurationError(
            "telemetry= must be an OpenTelemetry of chainapi.otel, None for the default, or False"
        )
    return given
