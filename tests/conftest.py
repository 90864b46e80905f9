"""Event loops, markers and options of all tests.

Asynchronous tests run in virtual time; tests that need sockets are marked `real_time`. Coverage makes a test
take up to three times as long. So long proofs and measurements of memory are marked `untraced`, and coverage
counts the lines of `TRACED` cases of each test, and of the first `TRACED_EXAMPLES` that Hypothesis makes: the
others run the same lines with other values.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import logging
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from chainapi.testing import VirtualLoop
from tests.real_loop import RealLoop

if TYPE_CHECKING:
    from _typeshed import TraceFunction

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


TRACED = 1  # cases of each test, spread evenly over all of them
TRACED_EXAMPLES = 10
EXAMPLES = 20  # that Hypothesis makes for each of the cases that `--cases` allows
COUNTED = pytest.StashKey[bool]()
PACKAGE = str(Path(__file__).parents[1] / "chainapi")
P = ParamSpec("P")
R = TypeVar("R")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--cases`."""
    parser.addoption(
        "--cases",
        type=int,
        metavar="N",
        help="run at most N cases of each test, spread evenly, and 20 N examples of Hypothesis",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that `--cases` omits; choose those whose lines coverage counts."""
    most: int | None = config.getoption("cases")
    if most is not None:
        kept = {item for cases in cases_of(items) for item in spread(cases, most)}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
        make_fewer_examples(items, EXAMPLES * most)
    for cases in cases_of(items):
        for item in spread(cases, TRACED):
            item.stash[COUNTED] = item.get_closest_marker("untraced") is None


def make_fewer_examples(items: Iterable[pytest.Item], most: int) -> None:
    """Have Hypothesis make at most that many examples of each test, whatever the test asks for."""
    for item in items:
        test = getattr(item, "obj", None)
        made = getattr(test, "__func__", test)
        chosen: settings | None = getattr(made, "_hypothesis_internal_use_settings", None)
        if chosen is not None and chosen.max_examples > most:  # an option of pytest for it does not exist
            vars(made)["_hypothesis_internal_use_settings"] = settings(chosen, max_examples=most)


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
    """Register the markers.

    A test without a marker of a tier is of tier 2: it calls documented names, in virtual time.
    """
    config.addinivalue_line("markers", "rule: tier 1, a pure rule that has no documented name")
    config.addinivalue_line("markers", "adapter: tier 3, a real socket, program, Redis or Dask")
    config.addinivalue_line(
        "markers", "proof: tier 4, takes long or needs a program; `nox -s proofs` runs it"
    )
    config.addinivalue_line("markers", "real_time: runs on a real event loop, because it opens sockets")
    config.addinivalue_line("markers", "program: starts a program; the loop of the test does not matter")
    config.addinivalue_line("markers", "untraced: coverage, which is slow, does not count its lines")


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test and its fixtures without the tracer of coverage, if its lines are not counted."""
    if item.stash.get(COUNTED, False):
        return (yield)
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Count the lines of the first examples alone, if Hypothesis makes them."""
    made, trace = getattr(getattr(item, "obj", None), "hypothesis", None), sys.gettrace()
    if made is None or trace is None or inspect.iscoroutinefunction(made.inner_test):
        return (yield)
    sys.settrace(None)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(made, "inner_test", traced_at_first(made.inner_test, trace))
            return (yield)
    finally:
        sys.settrace(trace)


def traced_at_first(test: Callable[P, R], trace: TraceFunction) -> Callable[P, R]:
    """Return a test whose first `TRACED_EXAMPLES` are traced."""
    examples = iter(range(TRACED_EXAMPLES))

    @functools.wraps(test)
    def example(*args: P.args, **kwargs: P.kwargs) -> R:
        if next(examples, None) is None:
            return test(*args, **kwargs)
        sys.settrace(trace)
        try:
            return test(*args, **kwargs)
        finally:
            sys.settrace(None)

    return example


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop factory of each asynchronous test."""
    if item.get_closest_marker("real_time"):
        elsewhere = item.path.stem in ON_OTHER_LOOPS and item.get_closest_marker("program") is None
        return {"real": RealLoop, **(OTHER_LOOPS if elsewhere else {})}
    return {"virtual": VirtualLoop}
