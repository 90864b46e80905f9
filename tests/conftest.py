"""Event loops, markers and options of all tests.

Asynchronous tests run in virtual time; tests that need sockets are marked `real_time`. Coverage makes a test
take up to three times as long. So long proofs and measurements of memory are marked `untraced`, and coverage
counts the lines of `TRACED` cases of each test: other cases run the same lines with other values.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, settings

from chainapi.testing.loops import VirtualLoop
from tests.real_loop import RealLoop

pytest_plugins = ("pytester",)

# No deadlines: the speed of examples depends on the machine. The same examples in each run: a failure is due
# to a change of the code.
settings.register_profile(
    "chainapi", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("chainapi")


# Tests of gates and sessions also run on uvloop, which is not built on an asyncio loop. Other tests need a
# clock that jumps, which uvloop does not have.
ON_OTHER_LOOPS = frozenset(
    {
        "test_gate_outside",
        "test_gates",
        "test_lifecycle",
        "test_limits_loopback",
        "test_local",
        "test_session",
    }
)
OTHER_LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = (
    {} if sys.platform == "win32" else {"uvloop": __import__("uvloop").new_event_loop}
)


TRACED = 2  # cases of each test, spread evenly over all of them
COUNTED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--cases`."""
    parser.addoption(
        "--cases",
        type=int,
        metavar="N",
        help="run at most N cases of each test, spread evenly over all of them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that `--cases` omits; choose those whose lines coverage counts."""
    most: int | None = config.getoption("cases")
    if most is not None:
        kept = {item for cases in cases_of(items) for item in spread(cases, most)}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    for cases in cases_of(items):
        for item in spread(cases, TRACED):
            item.stash[COUNTED] = item.get_closest_marker("untraced") is None


def cases_of(items: Iterable[pytest.Item]) -> Iterable[Sequence[pytest.Item]]:
    """Return the cases of each test."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return tests.values()


def spread(cases: Sequence[pytest.Item], most: int) -> Sequence[pytest.Item]:
    """Return at most `most` cases, evenly spread."""
    count = min(most, len(cases))
    return [cases[place * len(cases) // count] for place in range(count)]


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "real_time: runs on a real event loop, because it opens sockets")
    config.addinivalue_line("markers", "program: starts a program; the loop of the test does not matter")
    config.addinivalue_line("markers", "untraced: coverage, which is slow, does not count its lines")


@pytest.fixture(scope="module", autouse=True)
def _long_lived() -> None:
    """Exclude older objects from garbage collections: most tests run several."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Include all objects again."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test without the tracer of coverage, if its lines are not counted."""
    if item.stash.get(COUNTED, False):
        return (yield)
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop factory of each asynchronous test."""
    if item.get_closest_marker("real_time"):
        elsewhere = item.path.stem in ON_OTHER_LOOPS and item.get_closest_marker("program") is None
        return {"real": RealLoop, **(OTHER_LOOPS if elsewhere else {})}
    return {"virtual": VirtualLoop}
