"""Plugin of pytest: fixtures, markers and options for tests of applications.

Every run of pytest imports this module, so it imports nothing that a run without its fixtures does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from chainapi.session import Session
    from chainapi.testing.clock import Clock
    from chainapi.testing.recording import Player, Recorder
    from chainapi.testing.simulator import CheckedSimulator

MARKERS = (
    "chainapi_simulator(**settings): settings of the fixture chainapi_simulator, as of Simulator",
    "chainapi_limit(requests, per=60.0, service='data', weighted=False): rate limit of the simulator",
    "chainapi_fault(route, **fault): requests that fail, as Fault(route=..., ...) or as its notation",
    "chainapi_session(**arguments): arguments of the fixture chainapi_session, as of Session",
    "chainapi_network(*hosts): hosts that the test may reach; all without an argument",
    "chainapi_recording(path, strict=False, repeat=False): file of the fixture chainapi_recording",
)
PASSED = pytest.StashKey[bool]()
HAS_VIRTUAL = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("chainapi")
    group.addoption(
        "--chainapi-record",
        choices=("none", "once", "all"),
        default="none",
        help="chainapi_recording: none only answers from recordings (default), once records those that are"
        " missing, all records each again",
    )
    group.addoption(
        "--chainapi-network",
        action="store_true",
        help="let tests that use fixtures of chainapi reach any host",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


# Event loops: a test that requests `chainapi_clock` runs in virtual time, and no other


class _VirtualLoops:
    """Answer to pytest-asyncio about the event loop of a test."""

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_asyncio_loop_factories(
        self, config: pytest.Config, item: pytest.Item
    ) -> Mapping[str, Callable[[], AbstractEventLoop]]:
        """Return the factory of the virtual loop."""
        from chainapi.testing.loops import VirtualLoop

        return {"virtual": VirtualLoop}


@contextmanager
def _virtual_loops(config: pytest.Config) -> Iterator[None]:
    """Answer pytest-asyncio for one test.

    It is the one that is collected or set up; others keep their loops.
    """
    plugin = _VirtualLoops()
    config.pluginmanager.register(plugin)
    try:
        yield
    finally:
        config.pluginmanager.unregister(plugin)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Choose the event loop of a test that requests `chainapi_clock`."""
    if "chainapi_clock" not in metafunc.fixturenames:
        return (yield)
    from chainapi.testing.fixtures import choose_virtual_loop

    choose_virtual_loop(metafunc)
    metafunc.config.stash[HAS_VIRTUAL] = True
    with _virtual_loops(metafunc.config):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Let pytest-asyncio choose the loop before it sets up any fixture.

    It does so if the hook is implemented. Otherwise a test could get a fixture of the loop before.
    """
    if not item.config.stash.get(HAS_VIRTUAL, False):
        return (yield)
    with _virtual_loops(item.config):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test passed: only then its recording is saved."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


# Fixtures: none is asynchronous, so they work with every plugin that runs coroutines


@pytest.fixture
def _chainapi_network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Block the network, unless the test may use it."""
    from chainapi.testing.fixtures import network

    with network(request.node):
        yield


@pytest.fixture
def chainapi_clock(_chainapi_network: None) -> Clock:
    """Return the clock of the test, whose event loop runs in virtual time."""
    from chainapi.testing.clock import Clock

    return Clock()


@pytest.fixture
def chainapi_simulator(request: pytest.FixtureRequest, _chainapi_network: None) -> CheckedSimulator:
    """Return a simulator of both services in memory, set by markers, with assertions."""
    from chainapi.testing.fixtures import make_simulator

    return make_simulator(request.node)


@pytest.fixture
def chainapi_session(
    request: pytest.FixtureRequest, chainapi_simulator: CheckedSimulator
) -> Iterator[Session]:
    """Yield a session on `chainapi_simulator`; close it after the test."""
    from chainapi.testing.fixtures import session

    with session(request.node, chainapi_simulator) as made:
        yield made


@pytest.fixture
def chainapi_recording(
    request: pytest.FixtureRequest, _chainapi_network: None
) -> Iterator[Recorder | Player]:
    """Yield a transport that answers from the recording of the test, or records it."""
    from chainapi.testing.fixtures import recording

    with recording(request.node, lambda: request.node.stash.get(PASSED, False)) as made:
        yield made
