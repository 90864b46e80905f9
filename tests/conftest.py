"""Every asynchronous test runs in virtual time; one that needs sockets is marked `real_time`.

Long proofs, and those that measure memory, are marked `untraced`: they take several times as long where each
line is counted for coverage, which the other tests see to.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Generator, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, settings

from tests.virtual_time import RealLoop, VirtualLoop

# How fast examples are drawn says something about the machine, nothing about the code.
# The same examples each time: what fails is what was changed.
settings.register_profile(
    "chainapi", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("chainapi")


# The gate, sessions and their ends are tested on uvloop as well, which is no asyncio loop underneath. Other
# tests let time pass at once, which only the loops of these tests can.
ON_OTHER_LOOPS = frozenset(
    {"test_gate_outside", "test_gates", "test_lifecycle", "test_limits_loopback", "test_session"}
)
OTHER_LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = (
    {} if sys.platform == "win32" else {"uvloop": __import__("uvloop").new_event_loop}
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs part of the cases."""
    parser.addoption(
        "--cases",
        type=int,
        metavar="N",
        help="of each test run at most N cases, spread evenly over all of them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what `--cases` leaves out."""
    most: int | None = config.getoption("cases")
    if most is None:
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for cases in tests.values() for item in spread(cases, most)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def spread(cases: Sequence[pytest.Item], most: int) -> Sequence[pytest.Item]:
    """Return at most so many cases, evenly spread."""
    count = min(most, len(cases))
    return [cases[place * len(cases) // count] for place in range(count)]


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    config.addinivalue_line("markers", "real_time: runs on a real event loop, because it opens sockets")
    config.addinivalue_line("markers", "untraced: its lines are not counted for coverage, which is slow")


@pytest.fixture(scope="module", autouse=True)
def _long_lived() -> None:
    """Let collections pass over what lived before a module's tests: most of them ask for several."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let the end of the process collect everything."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test that is marked `untraced` run without what counts lines."""
    if item.get_closest_marker("untraced") is None:
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
    """Give each asynchronous test its loop."""
    if item.get_closest_marker("real_time"):
        others = OTHER_LOOPS if item.path.stem in ON_OTHER_LOOPS else {}
        return {"real": RealLoop, **others}
    return {"virtual": VirtualLoop}
