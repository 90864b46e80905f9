"""`chainapi.connect`: a session for scripts, Flask and Django, without asyncio."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import pytest

import chainapi
from chainapi import Checkpoint
from chainapi.errors import ConfigurationError, NotFoundError, PagingError, ServerError, SessionClosedError
from chainapi.simulator import Fault, Simulator
from chainapi.testing import CheckedSimulator, VirtualLoop
from chainapi.transport import Request, Response

CHAIN = 43114
BLOCKS = f"/v1/chains/{CHAIN}/blocks"


def connected(simulator: Simulator, **options: Any) -> Any:
    """Return a session without `await` that reaches a simulator in memory, in virtual time."""
    return chainapi.connect(loop_factory=VirtualLoop, **{**simulator.arguments(), **options})


@pytest.fixture
def simulator() -> CheckedSimulator:
    """Make a simulator."""
    return CheckedSimulator(rows=250)


@pytest.fixture
def api(simulator: CheckedSimulator) -> Iterator[Any]:
    """Connect to it."""
    with connected(simulator) as api:
        yield api


def test_a_list_is_an_iterable_of_its_rows(api: Any, simulator: CheckedSimulator) -> None:
    """A list gives its rows, its pages, its batches and a table, with the names of a session."""
    simulator.assert_every_row_once(api.data.evm.blocks(CHAIN), BLOCKS)
    simulator.assert_every_row_once(api.data.evm.blocks(CHAIN).items(), BLOCKS)
    assert [len(page) for page in api.data.evm.blocks(CHAIN).pages()] == [100, 100, 50]
    assert [len(rows) for rows in api.data.evm.blocks(CHAIN).batches(120)] == [120, 120, 10]
    assert api.data.evm.blocks(CHAIN).to_arrow().num_rows == 250
    assert len(api.data.list(BLOCKS, page_size=100).collect()) == 250
    assert api.data.evm.blocks(CHAIN).first() == next(iter(api.data.evm.blocks(CHAIN)))


def test_resources_options_and_quota_are_those_of_the_session(api: Any) -> None:
    """A coroutine returns its result; a view, a property and a function of the session work too."""
    assert api.data.get(f"/v1/chains/{CHAIN}")["chainId"] == str(CHAIN)
    assert api.data.evm.block(CHAIN, "13114000").block_number == 13_114_000
    assert api.with_options(max_wait=2.0).data.evm.blocks(CHAIN).first() is not None
    assert api.quota.keys() == {"metrics", "data"}
    assert api.run(lambda session: session.data.evm.blocks(CHAIN).first()) is not None
    assert "blocks" in dir(api.data.evm)
    assert api.data.evm.blocks.__doc__.startswith("Read the blocks")
    assert "Session" in repr(api)


def test_limit_holds_for_each_reading(api: Any, simulator: CheckedSimulator) -> None:
    """`limit=` of a list is the default of all its readers, requests no page more, and can be replaced."""
    blocks = api.data.evm.blocks(CHAIN, limit=30)
    assert [len([*blocks]), len(blocks.collect()), len(blocks.collect(5))] == [30, 30, 5]
    assert [len(rows) for rows in blocks.batches(20, limit=25)] == [20, 5]
    assert len([*api.data.list(BLOCKS, limit=3)]) == 3
    simulator.assert_requests(2)
    with pytest.raises(ConfigurationError, match="limit"):
        api.data.evm.block(CHAIN, "13114000", limit=1)


def test_streams_that_a_stream_yields(api: Any) -> None:
    """The ranges of a split are streams too."""
    days = api.metrics.chains.metric(CHAIN, "txCount", start_timestamp=1_766_000_000)
    ranges = [part.collect() for part in days.split(3)]
    whole = api.metrics.chains.metric(CHAIN, "txCount", start_timestamp=1_766_000_000).collect()
    assert len(ranges) == 3
    assert [row for rows in ranges for row in rows] == whole


def test_an_iterator_that_is_left_is_closed(api: Any, simulator: CheckedSimulator) -> None:
    """After `break` the stream can be read on, at the exact row, also in another session."""
    blocks = api.data.evm.blocks(CHAIN)
    for _ in blocks:
        break
    resumed = api.data.evm.blocks(CHAIN, resume=Checkpoint.loads(blocks.checkpoint.dumps())).collect()
    rest = blocks.collect()
    assert [len(rest), len(resumed)] == [249, 249]
    with pytest.raises(PagingError, match="read to its end"):
        blocks.collect()
    simulator.assert_requests(6)


def test_errors_have_their_type_and_the_line_of_the_caller() -> None:
    """An error is the session's, with its checkpoint; the traceback begins at the call."""
    simulator = Simulator(rows=250, faults=[Fault(after_page=1, status=500)])
    with connected(simulator, max_attempts=1) as api:
        with pytest.raises(ServerError) as caught:
            api.data.evm.blocks(CHAIN).collect()
        assert caught.value.checkpoint is not None
        assert caught.value.checkpoint.rows == 100
        assert len(caught.value.partial) == 100
        assert str(caught.traceback[0].path).endswith("test_sync.py")
        with pytest.raises(NotFoundError):
            api.metrics.avg_tps(999).first()
        with pytest.raises(AttributeError, match=r"did you mean session\.data\.evm\.blocks"):
            _ = api.data.evm.blokcs
        with pytest.raises(TypeError, match=r"write `stream\.first\(\)`"):
            _ = api.data.evm.blocks(CHAIN)[0]
        with pytest.raises(CancelledError):
            api.run(cancelling)
        with pytest.raises(ConfigurationError, match=r"run\(\) takes a function: run\(main\), not run\(main"):
            api.run([])
    with pytest.raises(ConfigurationError, match="max_atempts"):
        chainapi.connect(max_atempts=3)


async def cancelling(_: object) -> None:
    """Raise what asyncio raises in a cancelled task."""
    raise asyncio.CancelledError


def test_threads_share_the_session_and_its_quota() -> None:
    """Threads wait for quota side by side, and none sends during a stop."""
    simulator = CheckedSimulator(rows=40, limit=3, window=60.0)
    with connected(simulator) as api, ThreadPoolExecutor(8) as pool:
        for rows in pool.map(lambda _: api.data.evm.blocks(CHAIN).collect(), range(8)):
            simulator.assert_every_row_once(rows, BLOCKS)
    simulator.assert_nothing_sent_in_stops()
    simulator.assert_refused_at_most(1)


async def test_a_running_loop_is_refused_with_advice() -> None:
    """Where an event loop runs, the call that would block it raises and says to use Session."""
    with pytest.raises(ConfigurationError, match=r"notebook.*async with Session"):
        chainapi.connect(**Simulator().arguments())
    api = await asyncio.to_thread(connected, Simulator())
    with pytest.raises(ConfigurationError, match=r"notebook.*async with Session"):
        _ = api.data
    await asyncio.to_thread(api.close)


class Unanswered:
    """Transport that runs a function at each request, and never answers.

    Attributes:
        cancelled: whether a request was cancelled.

    """

    def __init__(self, at_request: Any) -> None:
        self.at_request = at_request
        self.cancelled = False

    async def send(self, request: Request) -> Response:
        """Wait for ever."""
        self.at_request()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled = True
        raise AssertionError

    async def aclose(self) -> None:
        """Do nothing."""


def test_closing_ends_the_calls_of_other_threads(simulator: CheckedSimulator) -> None:
    """A call under way and each later one raise SessionClosedError; the thread has ended."""
    sent = threading.Event()
    before = threading.active_count()
    transport = Unanswered(sent.set)
    api = chainapi.connect(**{**simulator.arguments(), "transport": transport})
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(api.data.chains().collect)
        sent.wait()
        api.close()
        with pytest.raises(SessionClosedError):
            calling.result()
    api.close()
    with pytest.raises(SessionClosedError, match=r"connect\(\) again"):
        _ = api.data
    assert transport.cancelled
    assert threading.active_count() == before


HEAD = """
import os, signal, sys, chainapi
from tests.test_sync import Unanswered
from chainapi.simulator import Simulator
arguments = Simulator().arguments()
"""
INTERRUPTED = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
transport = Unanswered(lambda: os.kill(os.getpid(), signal.SIGINT))
with chainapi.connect(**{**arguments, "transport": transport}) as api:
    try:
        api.data.chains().collect()
    except KeyboardInterrupt:
        print("interrupted")
print(transport.cancelled)
"""
FORGOTTEN = """
api = chainapi.connect(**arguments)
print(api.data.chains().first() is not None)
print(api.metrics.avg_tps(43114).first() is not None)
"""
FORKED = """
api = chainapi.connect(**arguments)
if os.fork() == 0:
    try:
        api.data
    except chainapi.errors.ConfigurationError as error:
        print(error, flush=True)
    sys.exit()
os.wait()
print(api.data.chains().first() is not None)
"""


@pytest.mark.adapter
@pytest.mark.program
@pytest.mark.parametrize(
    ("program", "printed"),
    [
        pytest.param(INTERRUPTED, "interrupted\nTrue\n", id="Ctrl-C cancels the call"),
        pytest.param(FORGOTTEN, "True\nTrue\n", id="the end of the program closes the session"),
        pytest.param(
            FORKED,
            "this session was made before a fork: call connect() in each worker\nTrue\n",
            id="a fork is refused, and its parent goes on",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork"),
        ),
    ],
)
def test_programs(program: str, printed: str) -> None:
    """Ctrl-C cancels the call under way, a program ends by itself, and a forked child is told what to do."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + program], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")
