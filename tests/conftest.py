"""Event loops and markers of all tests.

Asynchronous tests run in virtual time; tests that need sockets are marked `real_time`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from chainapi.testing import VirtualLoop
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
        "test_gates",
        "test_lifecycle",
        "test_local",
        "test_session",
    }
)
OTHER_LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = (
    {} if sys.platform == "win32" else {"uvloop": __import__("uvloop").new_event_loop}
)


PACKAGE = str(Path(__file__).parents[1] / "chainapi")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers.

    A test without a marker of a tier is of tier 2: it calls documented names, in virtual time.
    """
    config.addinivalue_line("markers", "rule: tier 1, a pure rule that has no documented name")
    config.addinivalue_line("markers", "adapter: tier 3, a real socket, program, Redis or Dask")
    config.addinivalue_line("markers", "proof: tier 4, takes long; `nox -s proofs` runs it")
    config.addinivalue_line("markers", "sample: a proof that CI runs too")
    config.addinivalue_line("markers", "recipes: needs the extra `recipes`; `nox -s recipes` runs it")
    config.addinivalue_line("markers", "browser: needs the extra `browser` and Chromium; `nox -s browser`")
    config.addinivalue_line("markers", "real_time: runs on a real event loop, because it opens sockets")
    config.addinivalue_line("markers", "program: starts a program; the loop of the test does not matter")


@pytest.fixture(scope="module", autouse=True)
def _long_lived() -> None:
    """Exclude older objects from garbage collections: most tests run several."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which asyncio logged an error of chainapi.

    It logs errors of callbacks, and those that nobody retrieved. Errors of Dask are logged at a later garbage
    collection, in whichever test runs then.
    """
    yield
    records = [one for one in caplog.get_records("call") if one.name == "asyncio"]
    assert not [one.getMessage() for one in records if one.levelno >= logging.ERROR and _is_own(one)]


def _is_own(record: logging.LogRecord) -> bool:
    """Check for an error of the package, or of a callback or task in it."""
    error = record.exc_info[0] if record.exc_info else None
    return PACKAGE in record.getMessage() or (error is not None and error.__module__.startswith("chainapi."))


def pytest_sessionfinish() -> None:
    """Include all objects again."""
    gc.unfreeze()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop factory of each asynchronous test."""
    if item.get_closest_marker("real_time"):
        elsewhere = item.path.stem in ON_OTHER_LOOPS and item.get_closest_marker("program") is None
        return {"real": RealLoop, **(OTHER_LOOPS if elsewhere else {})}
    return {"virtual": VirtualLoop}
