"""Tests of applications that use chainapi (extra ``testing``).

The pytest plugin `chainapi.testing.plugin` has the fixtures; without pytest, the same parts are here::

    simulator = CheckedSimulator(limit=50, window=2.0)
    run(main(simulator.session()))                 # in virtual time
    simulator.assert_nothing_sent_in_stops()

The names below are loaded when they are first used: the plugin is imported by every run of pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainapi.testing.clock import Clock
    from chainapi.testing.loops import VirtualLoop, run
    from chainapi.testing.network import NetworkBlockedError, network_blocked
    from chainapi.testing.recording import Player, Recorder
    from chainapi.testing.simulator import CheckedSimulator

__all__ = [
    "CheckedSimulator",
    "Clock",
    "NetworkBlockedError",
    "Player",
    "Recorder",
    "VirtualLoop",
    "network_blocked",
    "run",
]

_MODULES = {
    "CheckedSimulator": "simulator",
    "Clock": "clock",
    "NetworkBlockedError": "network",
    "Player": "recording",
    "Recorder": "recording",
    "VirtualLoop": "loops",
    "network_blocked": "network",
    "run": "loops",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
