"""Modes of a quota, and the events that move it from one mode to another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import assert_never

__all__ = ["TRANSITIONS", "Event", "Mode", "sends_probe"]


class Mode(Enum):
    """State of the knowledge about a quota."""

    LEARNING = "no request sent yet, probe next"
    PROBING = "probe in flight"
    KNOWN = "units known from responses"
    DRAINED = "units used up, waiting until some come back"
    STOPPED = "refused, probe next after the stop"
    RETRYING = "probe failed, probe next"


class Event(Enum):
    """Event that moves a quota from one mode to another."""

    PROBE_SENT = "probe sent"
    PROBES_ENDED = "no probe in flight any more"
    PROBE_FAILED = "probe ended without information on the quota"
    REFUSED = "429 for all requests"
    USED_UP = "too few units for the next request, none in flight"
    UNITS_BACK = "request sent, covered by units"
    RESTORED = "memory of an earlier host restored"


TRANSITIONS: Mapping[Mode, Mapping[Event, Mode]] = {
    # The next request is a probe all the same: others may have left since the memory was made.
    Mode.LEARNING: {Event.PROBE_SENT: Mode.PROBING, Event.RESTORED: Mode.RETRYING},
    Mode.PROBING: {
        # Others follow a late probe: a service that hangs must not hold all requests back.
        Event.PROBE_SENT: Mode.PROBING,
        Event.PROBES_ENDED: Mode.KNOWN,
        Event.PROBE_FAILED: Mode.RETRYING,
        Event.REFUSED: Mode.STOPPED,
    },
    Mode.KNOWN: {
        # The first request of a route shows its cost only if no other is in flight.
        Event.PROBE_SENT: Mode.PROBING,
        # A 429 for one route shows nothing about the quota, though the probe has its response.
        Event.PROBE_FAILED: Mode.RETRYING,
        Event.REFUSED: Mode.STOPPED,
        Event.USED_UP: Mode.DRAINED,
    },
    Mode.DRAINED: {
        Event.PROBE_SENT: Mode.PROBING,
        Event.UNITS_BACK: Mode.KNOWN,
    },
    Mode.STOPPED: {
        Event.PROBE_SENT: Mode.PROBING,
        # Requests sent before the stop do not change its end.
        Event.PROBE_FAILED: Mode.STOPPED,
        Event.REFUSED: Mode.STOPPED,
    },
    Mode.RETRYING: {
        Event.PROBE_SENT: Mode.PROBING,
        Event.PROBE_FAILED: Mode.RETRYING,
        Event.REFUSED: Mode.STOPPED,
    },
}


def sends_probe(mode: Mode) -> bool:
    """Return whether the next request of a quota in `mode` is a probe."""
    match mode:
        case Mode.LEARNING | Mode.STOPPED | Mode.RETRYING:
            return True
        case Mode.PROBING | Mode.KNOWN | Mode.DRAINED:
            return False
        case _:
            assert_never(mode)
