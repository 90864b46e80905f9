"""Values of the fixtures, made from the markers of a test.

The first fixture that is used loads this module.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import pytest

from chainapi.core.arguments import refuse_unknown, seconds_of, whole_number, whole_numbers
from chainapi.testing.clock import Clock
from chainapi.testing.loops import VirtualLoop, real_time
from chainapi.testing.network import network_blocked

if TYPE_CHECKING:
    from chainapi.session import Session
    from chainapi.simulator import Fault
    from chainapi.testing.recording import Player, Recorder
    from chainapi.testing.simulator import CheckedSimulator

__all__ = [
    "choose_virtual_loop",
    "make_simulator",
    "network",
    "recording",
    "session",
]

T = TypeVar("T")

CLOSING = 10.0  # real seconds for a session to close in a loop of another thread


_WHOLE = {"page", "after_page", "at", "every", "times", "status"}  # numbers of a fault


# Virtual time


def choose_virtual_loop(metafunc: pytest.Metafunc) -> None:
    """Let anyio run a test in virtual time."""
    if "anyio_backend" in metafunc.fixturenames:
        backend = ("asyncio", {"loop_factory": VirtualLoop})
        metafunc.definition.add_marker(
            pytest.mark.parametrize("anyio_backend", [backend], ids=[pytest.HIDDEN_PARAM], scope="module")
        )


# Network


def network(node: pytest.Item) -> AbstractContextManager[None]:
    """Return the block of the network that the markers and options set."""
    hosts: list[str] = []
    for mark in node.iter_markers("chainapi_network"):
        if not mark.args:
            return nullcontext()
        hosts += mark.args
    if node.config.getoption("--chainapi-network") or _records(node):
        return nullcontext()
    return network_blocked(hosts)


# Simulator and session


def make_simulator(node: pytest.Item) -> CheckedSimulator:
    """Return the simulator that the markers describe.

    Markers of the test replace the settings of its module's markers.

    Raises:
        pytest.UsageError: a marker has an argument that does not exist, or an impossible value.

    """
    from chainapi.testing.simulator import CheckedSimulator

    settings: dict[str, Any] = {}
    for mark in _outermost_first(node, "chainapi_limit"):
        settings |= _read(mark, _limit)
    for mark in _outermost_first(node, "chainapi_simulator"):
        settings |= _read(mark, _settings)
    faults = [_read(mark, _fault) for mark in node.iter_markers("chainapi_fault")]
    settings["faults"] = [*faults, *settings.get("faults", ())]
    return _make("chainapi_simulator", CheckedSimulator, settings)


@contextmanager
def session(node: pytest.Item, simulator: CheckedSimulator) -> Iterator[Session]:
    """Yield a session on a simulator, as the markers say; close it in its event loop."""
    arguments: dict[str, Any] = {}
    if "chainapi_clock" in getattr(node, "fixturenames", ()):
        arguments["now"] = Clock().wall
    for mark in _outermost_first(node, "chainapi_session"):
        arguments |= _read(mark, dict[str, Any])
    made = _make("chainapi_session", simulator.session, arguments)
    yield made
    loop = made.connection.loop
    if loop is None or loop.is_closed():  # never used, or ended by the end of its loop
        return
    if loop.is_running():  # in another thread
        asyncio.run_coroutine_threadsafe(made.aclose(), loop).result(CLOSING)
    else:
        loop.run_until_complete(made.aclose())


def _outermost_first(node: pytest.Item, name: str) -> list[pytest.Mark]:
    return [*node.iter_markers(name)][::-1]


def _read(mark: pytest.Mark, make: Callable[..., T]) -> T:
    """Return the record that a marker describes."""
    return _make(mark.name, make, mark.kwargs, *mark.args)


def _make(marker: str, make: Callable[..., T], arguments: Mapping[str, Any], *values: Any) -> T:
    """Return what the arguments of a marker describe.

    Raises pytest.UsageError with the name of the marker.
    """
    try:
        return make(*values, **arguments)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"@pytest.mark.{marker}: {error}") from error


def _settings(**settings: Any) -> Mapping[str, Any]:
    """Return the settings of a simulator."""
    from chainapi.testing.simulator import CheckedSimulator

    known = [one.name for one in attrs.fields(CheckedSimulator) if one.init]
    refuse_unknown(settings.keys() - known, known, "Simulator")
    return settings


def _limit(
    requests: int, per: float = 60.0, *, service: str = "data", weighted: bool = False
) -> Mapping[str, Any]:
    """Return the settings of a rate limit: `requests` in a window of `per` seconds."""
    whole_number("requests", requests, 0)
    seconds_of("per", per)
    if service not in ("data", "metrics"):
        raise ValueError(f"service={service!r} must be 'data' or 'metrics'")
    prefix = "metrics_" if service == "metrics" else ""
    limit = {f"{prefix}limit": requests, f"{prefix}window": per}
    return {**limit, "weighted": True} if weighted else limit  # a limit of the other service can be weighted


def _fault(route: str | None = None, **fault: Any) -> Fault:
    """Return a fault from its attributes, or from its notation."""
    from chainapi.simulator import Fault

    if route is not None and "=" in route and not fault:
        return Fault.parse(route)
    whole_numbers(**{name: fault[name] for name in _WHOLE & fault.keys()})
    return Fault(route=route, **fault)


# Recordings


@contextmanager
def recording(node: pytest.Item, passed: Callable[[], bool]) -> Iterator[Recorder | Player]:
    """Yield the player of the test's recording, or a recorder.

    For a recorder time passes as on the machine. If the test passed, save a new recording, or check that
    a strict one was used up.

    Raises:
        RecordingError: there is no recording, and it is not to be recorded.

    """
    from chainapi.testing.recording import Player, Recorder

    if _records(node):
        recorder = Recorder(_path(node))
        with real_time():
            yield recorder
        if passed():
            recorder.save()
        return
    marked = _marked(node)
    player = Player(_path(node), repeat=marked.get("repeat", False))
    yield player
    if passed() and marked.get("strict", False):
        player.assert_all_played()


def _records(node: pytest.Item) -> bool:
    """Return whether the test records."""
    if "chainapi_recording" not in getattr(node, "fixturenames", ()):
        return False
    mode = node.config.getoption("--chainapi-record")
    return mode == "all" or (mode == "once" and not _path(node).exists())


def _path(node: pytest.Item) -> Path:
    """Return the file of a test's recording, beside the module of the test."""
    folder: Path = node.path.parent
    if path := _marked(node).get("path"):
        return Path(folder, path)
    return (
        folder / "recordings" / node.path.stem / (re.sub(r"[^\w.-]+", "-", node.name).strip("-") + ".jsonl")
    )


def _marked(node: pytest.Item) -> Mapping[str, Any]:
    """Return the arguments of the closest marker `chainapi_recording`."""
    mark = node.get_closest_marker("chainapi_recording")
    return {} if mark is None else _read(mark, _recording)


def _recording(path: str | None = None, *, strict: bool = False, repeat: bool = False) -> Mapping[str, Any]:
    return {"path": path, "strict": strict, "repeat": repeat}
