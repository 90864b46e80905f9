"""Plugin of pytest: each test runs a small test suite of an application, in this process."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

# Loaded once, not in each inner run, after which pytester forgets what the run has loaded.
MODULES = (
    "anyio._backends._asyncio",
    "chainapi.models.evm",
    "chainapi.testing.fixtures",
    "chainapi.testing.recording",
    "chainapi.testing.simulator",
)
for name in MODULES:
    import_module(name)

STRICT = """
[pytest]
filterwarnings = error
addopts = --strict-markers --strict-config -p no:cacheprovider -p no:cov -p no:xdist -p no:hypothesispytest
asyncio_default_fixture_loop_scope = function
"""
AUTO = STRICT + "asyncio_mode = auto\n"
HEAD = "import asyncio, socket\nimport pytest\nfrom chainapi.testing import VirtualLoop\n"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return the folder of a test suite in strict mode; the plugin is there by its entry point."""
    if not [one for one in entry_points(group="pytest11") if one.value == "chainapi.testing.plugin"]:
        pytest.fail("the plugin is not installed: run pip install -e '.[dev]' again")
    for name in ("CHAINAPI_API_KEY", "CHAINAPI_DATA_BASE_URL", "CHAINAPI_METRICS_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeini(STRICT)
    return pytester


def run(suite: pytest.Pytester, code: str, *options: str, **outcomes: int) -> str:
    """Run a test suite, check its outcomes, and return what it printed."""
    suite.makepyfile(HEAD + code)
    result = suite.runpytest_inprocess(*options)
    result.assert_outcomes(**outcomes)
    return result.stdout.str()


TIMED = """
async def test_virtual(chainapi_clock):
    await asyncio.sleep(3600)
    assert chainapi_clock.now() == 3600

def test_plain():
    pass

async def test_real():
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)

@pytest.mark.usefixtures("chainapi_clock")
class TestOfAClass:
    async def test_virtual(self):
        assert isinstance(asyncio.get_running_loop(), VirtualLoop)
"""


def test_virtual_time_in_auto_mode(suite: pytest.Pytester) -> None:
    """Tests that request the clock run in virtual time under pytest-asyncio, others as before."""
    suite.makeini(AUTO)
    printed = run(suite, TIMED, "-v", passed=4)
    assert "::test_virtual PASSED" in printed


def test_virtual_time_in_strict_mode(suite: pytest.Pytester) -> None:
    """In strict mode the same holds for marked tests, fixtures of the test included."""
    code = """
    import pytest_asyncio
    pytestmark = pytest.mark.asyncio(loop_scope="function")

    @pytest_asyncio.fixture
    async def started(chainapi_clock):
        await asyncio.sleep(10)
        yield chainapi_clock.now()
        await asyncio.sleep(10)
        assert chainapi_clock.now() == 70

    async def test_fixture(started, chainapi_clock):
        await asyncio.sleep(50)
        assert (started, chainapi_clock.now()) == (10, 60)

    async def test_real():
        assert not isinstance(asyncio.get_running_loop(), VirtualLoop)
    """
    run(suite, "\n".join(line[4:] for line in code.splitlines()), passed=2)


def test_loops_of_the_suite_stay(suite: pytest.Pytester) -> None:
    """A hook of the suite still chooses the loops of tests that do not request the clock."""
    suite.makeini(AUTO)
    suite.makeconftest(
        """
        import asyncio
        class Own(asyncio.SelectorEventLoop): pass
        class Other(asyncio.SelectorEventLoop): pass
        def pytest_asyncio_loop_factories(config, item):
            return {"own": Own, "other": Other}
        """
    )
    code = """
async def test_own():
    assert type(asyncio.get_running_loop()).__name__ in ("Own", "Other")

async def test_virtual(chainapi_clock):
    assert type(asyncio.get_running_loop()) is VirtualLoop
"""
    printed = run(suite, code, "-v", passed=3)
    assert "test_own[other] PASSED" in printed
    assert "test_virtual PASSED" in printed


def test_fixtures_of_a_wider_loop_are_made_again(suite: pytest.Pytester) -> None:
    """A fixture of the session's loop is not shared between real and virtual time."""
    suite.makeini(AUTO)
    code = """
import pytest_asyncio

@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kind():
    return type(asyncio.get_running_loop())

@pytest.mark.asyncio(loop_scope="session")
async def test_real(kind):
    assert kind is not VirtualLoop

@pytest.mark.asyncio(loop_scope="session")
async def test_virtual(kind, chainapi_clock, chainapi_session):
    assert type(asyncio.get_running_loop()) is kind is VirtualLoop
    await chainapi_session.data.get("/v1/chains/43114")

@pytest.mark.asyncio(loop_scope="session")
async def test_real_again(kind, chainapi_session):
    assert type(asyncio.get_running_loop()) is kind is not VirtualLoop
    await chainapi_session.data.get("/v1/chains/43114")
"""
    run(suite, code, passed=3)


def test_virtual_time_with_anyio(suite: pytest.Pytester) -> None:
    """Tests that anyio runs get virtual time in the same way, and run once, on asyncio."""
    code = """
pytestmark = pytest.mark.anyio

async def test_virtual(chainapi_clock, chainapi_session):
    await asyncio.sleep(3600)
    assert chainapi_clock.now() == 3600
    assert await chainapi_session.data.get("/v1/chains/43114")

@pytest.fixture
async def made(chainapi_clock):
    await asyncio.sleep(5)
    return chainapi_clock.now()

async def test_fixture(made, anyio_backend_name):
    assert (made, anyio_backend_name) == (5, "asyncio")

@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_real(anyio_backend):
    assert not isinstance(asyncio.get_running_loop(), VirtualLoop)
"""
    assert "::test_virtual PASSED" in run(suite, code, "-v", passed=3)


MISTAKES = """
@pytest.mark.asyncio
async def test_clock_too_late(request):
    request.getfixturevalue('chainapi_clock').now()

@pytest.mark.chainapi_simulator(rws=1)
def test_unknown_setting(chainapi_simulator): pass

@pytest.mark.chainapi_limit(-1)
def test_impossible_limit(chainapi_simulator): pass

@pytest.mark.chainapi_simulator(row=1)
def test_unknown_setting_like_another(chainapi_simulator): pass

@pytest.mark.chainapi_limit('2/min')
def test_limit_of_text(chainapi_simulator): pass

@pytest.mark.chainapi_fault('data.evm.blocks', page='3', stall=True)
def test_page_of_text(chainapi_simulator): pass

@pytest.mark.chainapi_limit(1, service='all')
def test_unknown_service(chainapi_simulator): pass

@pytest.mark.chainapi_fault('data.evm.blocks')
def test_fault_without_effect(chainapi_simulator): pass

@pytest.mark.chainapi_fault('data.bloks=stall')
def test_fault_of_no_route(chainapi_simulator): pass

@pytest.mark.chainapi_session(max_attempt=1)
def test_unknown_argument(chainapi_session): pass

@pytest.mark.chainapi_recording(strikt=True)
def test_unknown_option_of_a_recording(chainapi_recording): pass

def test_no_recording(chainapi_recording): pass
"""
SAID = (
    "not in virtual time: request the fixture chainapi_clock in the test itself",
    "@pytest.mark.chainapi_simulator: ",
    "'rws'",
    "@pytest.mark.chainapi_simulator: Simulator got an unknown argument 'row'; did you mean 'rows'?",
    "@pytest.mark.chainapi_limit: requests=-1 must be a whole number, 0 or more",
    "@pytest.mark.chainapi_limit: requests='2/min' must be a whole number, 0 or more",
    "@pytest.mark.chainapi_fault: page='3' must be a whole number, 1 or more",
    "@pytest.mark.chainapi_limit: service='all' must be 'data' or 'metrics'",
    "@pytest.mark.chainapi_fault: a fault has one effect",
    "@pytest.mark.chainapi_fault: no route is named 'data.bloks'",
    "@pytest.mark.chainapi_session: Session got an unknown argument 'max_attempt'; did you mean",
    "@pytest.mark.chainapi_recording: ",
    "'strikt'",
    "Record it with pytest --chainapi-record=once",
)


def test_mistakes_are_explained(suite: pytest.Pytester) -> None:
    """A mistake in a marker fails its test with the name of the marker and the reason."""
    printed = " ".join(run(suite, MISTAKES, failed=1, errors=11).split())
    assert [text for text in SAID if text not in printed] == []


def test_stalls_take_no_real_time(suite: pytest.Pytester) -> None:
    """Five attempts that stall for thirty seconds each are over at once."""
    code = """
from chainapi.errors import APITimeoutError

@pytest.mark.asyncio
@pytest.mark.chainapi_fault("data.evm.blocks", stall=True)
async def test_stall(chainapi_session, chainapi_clock, chainapi_simulator):
    with pytest.raises(APITimeoutError):
        await anext(chainapi_session.data.evm.blocks(43114))
    assert chainapi_clock.now() > 150
    chainapi_simulator.assert_requests(5, "data.evm.blocks")
"""
    run(suite, code, passed=1)


MARKED = """
pytestmark = [
    pytest.mark.asyncio, pytest.mark.chainapi_simulator(rows=30, seed=3), pytest.mark.chainapi_limit(9)
]
BLOCKS = "/v1/chains/43114/blocks"

@pytest.mark.chainapi_simulator(rows=25)
@pytest.mark.chainapi_limit(4, per=60.0)
@pytest.mark.chainapi_limit(1, per=1.0, service="metrics")
@pytest.mark.chainapi_fault("data.evm.blocks", page=2, times=1, every=1, status=503)
@pytest.mark.chainapi_fault("data.evm.*=expire,page:3,times:1")
@pytest.mark.chainapi_session(tag="of the test", timeout=5.0)
async def test_markers(chainapi_simulator, chainapi_session, chainapi_clock):
    assert (chainapi_simulator.seed, chainapi_simulator.limit, chainapi_simulator.metrics_limit) == (3, 4, 1)
    rows = await chainapi_session.data.evm.blocks(43114, page_size=10).collect()
    chainapi_simulator.assert_every_row_once(rows, BLOCKS)
    chainapi_simulator.assert_nothing_sent_in_stops()
    chainapi_simulator.assert_refused_at_most(1)
    assert [one.status for one in chainapi_simulator.select(page=2)][:2] == [503, 200]
    assert chainapi_simulator.count(status=400) == 1
    assert chainapi_simulator.requests[0].route == "data.evm.blocks"

async def test_of_the_module(chainapi_simulator):
    assert (chainapi_simulator.rows, chainapi_simulator.limit, chainapi_simulator.faults) == (30, 9, ())

async def test_checkpoints_have_virtual_dates(chainapi_session, chainapi_clock):
    await asyncio.sleep(3600)
    pages = chainapi_session.data.evm.blocks(43114, page_size=10)
    await anext(pages)
    assert pages.checkpoint.minted_at == chainapi_clock.wall() == chainapi_clock.epoch + 3600
"""


def test_markers_set_the_simulator_and_the_session(suite: pytest.Pytester) -> None:
    """Markers of a test replace those of its module; faults, limits and arguments reach their fixtures."""
    run(suite, MARKED, passed=3)


def test_failed_assertion_shows_the_requests(suite: pytest.Pytester) -> None:
    """A failed assertion shows the lines of the test and the requests, and no code of chainapi."""
    code = """
@pytest.mark.asyncio
async def test_x(chainapi_session, chainapi_simulator):
    await chainapi_session.data.get("/v1/chains/43114")
    chainapi_simulator.assert_requests(2)
"""
    printed = run(suite, code, failed=1)
    assert "1 requests, not 2; sent were:" in printed
    assert "GET /v1/chains/43114 -> 200" in printed
    assert "testing/simulator.py" not in printed


APART = """
from chainapi import Cache, Session
CACHE = Cache(fresh=3600.0)
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.chainapi_limit(1, per=3600.0)]

async def requested(session, simulator):
    await session.with_options(cache=CACHE, max_wait=0.0).data.chain(43114)
    simulator.assert_requests(1)

@pytest.mark.parametrize("number", range(2))
async def test_in_memory(number, chainapi_session, chainapi_simulator):
    await requested(chainapi_session, chainapi_simulator)

@pytest.mark.parametrize("number", range(2))
async def test_on_a_port(number, chainapi_simulator):
    async with chainapi_simulator as running:
        async with Session(data_base_url=running.data_base_url, api_key=running.api_key) as session:
            await requested(session, running)
"""


def test_nothing_of_one_test_reaches_the_next(suite: pytest.Pytester) -> None:
    """Tests of one event loop and one cache each begin with a whole quota and without a response."""
    run(suite, APART, passed=4)


def test_session_is_closed_in_its_loop(suite: pytest.Pytester) -> None:
    """A session is closed after its test, also in a loop that lives on or that runs in a thread."""
    code = """
import threading
sessions = []

@pytest.mark.asyncio(loop_scope="module")
async def test_loop_lives_on(chainapi_session):
    sessions.append(chainapi_session)
    await chainapi_session.data.get("/v1/chains/43114")

def test_loop_of_a_thread(chainapi_session, loop):
    sessions.append(chainapi_session)
    asyncio.run_coroutine_threadsafe(chainapi_session.data.get("/v1/chains/43114"), loop).result(10)

@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()

def test_they_are_closed(chainapi_session):
    assert [session.connection.closed for session in sessions] == [True, True]
"""
    run(suite, code, passed=3)


OUTSIDE = """
def reach(host):
    one = socket.socket()
    one.settimeout(0.001)
    with one, pytest.raises((OSError, RuntimeError)) as caught:
        one.connect((host, 9))
    return type(caught.value).__name__ != "NetworkBlockedError"
"""


def test_network_is_blocked_unless_allowed(suite: pytest.Pytester) -> None:
    """Fixtures block the network for their tests only; markers allow hosts or all, an option all tests."""
    code = """
def test_before():
    assert reach("192.0.2.1")

def test_blocked(chainapi_simulator):
    assert not reach("192.0.2.1") and reach("127.0.0.1")

def test_blocked_too(chainapi_clock):
    assert not reach("192.0.2.1")

@pytest.mark.chainapi_network
def test_allowed(chainapi_simulator):
    assert reach("192.0.2.1")

@pytest.mark.chainapi_network("192.0.2.2")
def test_one_host(chainapi_session):
    assert not reach("192.0.2.1") and reach("192.0.2.2")

def test_after():
    assert reach("192.0.2.1")
"""
    run(suite, OUTSIDE + code, passed=6)
    option = OUTSIDE + "def test_x(chainapi_simulator): assert reach('192.0.2.1')"
    run(suite, option, "--chainapi-network", passed=1)


RECORDED = """
pytestmark = pytest.mark.asyncio(loop_scope="function")

@pytest.mark.parametrize("chain", [43114, 43113])
async def test_chain(chain, chainapi_recording, request):
    where = {}
    if type(chainapi_recording).__name__ == "Recorder":
        from chainapi.testing import CheckedSimulator
        simulator = CheckedSimulator(rows=25)
        chainapi_recording._given = simulator.transport()
        where = {"data_base_url": simulator.data_base_url, "api_key": simulator.api_key}
    async with chainapi_recording.session(**where) as session:
        rows = await session.data.list(f"/v1/chains/{chain}/blocks", page_size=10).collect()
    assert len(rows) == LENGTH
"""


def files(suite: pytest.Pytester) -> list[str]:
    """Return the recordings of a suite."""
    return sorted(str(path.relative_to(suite.path)) for path in suite.path.rglob("*.jsonl*"))


def test_recordings_are_made_and_played(suite: pytest.Pytester) -> None:
    """Modes: none needs the files, once makes those that are missing, all makes each again."""
    name = "test_recordings_are_made_and_played"
    code = RECORDED.replace("LENGTH", "25")
    run(suite, code, errors=2)
    assert files(suite) == []
    run(suite, RECORDED.replace("LENGTH", "26"), "--chainapi-record=once", failed=2)
    assert files(suite) == []  # a test that failed saves nothing
    run(suite, code, "--chainapi-record=once", passed=2)
    made = [f"recordings/{name}/test_chain-{chain}.jsonl" for chain in (43113, 43114)]
    assert files(suite) == made
    run(suite, code, passed=2)
    Path(suite.path, made[0]).unlink()
    Path(suite.path, made[1]).write_text("not one")
    run(suite, code, "--chainapi-record=once", passed=1, errors=1)
    run(suite, code, "--chainapi-record=all", passed=2)
    run(suite, code, passed=2)
    assert all("simulated-key" not in Path(suite.path, one).read_text() for one in made)


def test_recordings_have_a_marker(suite: pytest.Pytester) -> None:
    """The marker names the file, repeats the last answer, or fails a test that leaves exchanges unplayed."""
    line = {
        "method": "GET",
        "url": "https://data.invalid/v1/x",
        "seconds": 0.0,
        "response": {"status": 200, "body": 5},
    }
    Path(suite.path, "own.jsonl").write_text(f'{{"chainapi_recording": 1}}\n{json.dumps(line)}\n')
    code = """
from chainapi.transport import Request
pytestmark = pytest.mark.asyncio

async def get(player):
    return (await player.send(Request("GET", "https://data.invalid/v1/x"))).body

@pytest.mark.chainapi_recording("own.jsonl", repeat=True)
async def test_repeats(chainapi_recording):
    assert [await get(chainapi_recording) for _ in range(3)] == [b"5"] * 3

@pytest.mark.chainapi_recording("own.jsonl", strict=True)
async def test_strict(chainapi_recording):
    await get(chainapi_recording)

@pytest.mark.chainapi_recording("own.jsonl")
async def test_not_strict(chainapi_recording):
    pass

@pytest.mark.chainapi_recording("own.jsonl", strict=True)
async def test_unplayed(chainapi_recording):
    pass
"""
    printed = run(suite, code, passed=4, errors=1)
    assert "1 recorded requests of" in printed
    assert "GET /v1/x" in printed


def test_network_is_open_for_a_recorder_only(suite: pytest.Pytester) -> None:
    """A test that records may reach the network; one that plays may not."""
    code = OUTSIDE + "def test_x(chainapi_recording): assert reach('192.0.2.1')"
    run(suite, code, "--chainapi-record=once", passed=1)
    run(suite, code, failed=1)


SERVED = """
import threading
from chainapi.simulator import Simulator

@pytest.fixture(scope="module")
def where():
    simulator, loop = Simulator(latency=0.05), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(simulator.__aenter__(), loop).result(10)
    yield {"data_base_url": simulator.data_base_url, "api_key": simulator.api_key}
    asyncio.run_coroutine_threadsafe(simulator.__aexit__(None, None, None), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()

@pytest.mark.asyncio
async def test_x(chainapi_recording, chainapi_clock, where):
    async with chainapi_recording.session(**where, timeout=30.0) as session:
        assert await session.data.get("/v1/chains/43114")
    assert chainapi_clock.now() < 10.0
    await asyncio.sleep(LONG)
    assert chainapi_clock.now() >= LONG
"""


def test_recorder_runs_in_real_time(suite: pytest.Pytester) -> None:
    """A test in virtual time records over sockets in real time, and plays in virtual time."""
    run(suite, SERVED.replace("LONG", "0.01"), "--chainapi-record=once", passed=1)
    run(suite, SERVED.replace("LONG", "3600.0"), passed=1)


@pytest.mark.adapter
@pytest.mark.program
def test_plugin_costs_nothing_unused(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without the fixtures loads neither aiohttp nor the simulator, and no module but the plugin."""
    suite.makepyfile(
        """
        import sys
        def test_x():
            assert "chainapi.testing.plugin" in sys.modules
            loaded = {name for name in sys.modules if name.startswith("chainapi.")}
            assert loaded == {"chainapi._version", "chainapi.testing", "chainapi.testing.plugin"}
            assert {"aiohttp", "attr", "msgspec", "asyncio"}.isdisjoint(sys.modules)
        """
    )
    suite.makeini("[pytest]\nfilterwarnings = error")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins may load anything
    result = suite.runpytest_subprocess("-p", "chainapi.testing.plugin")
    result.assert_outcomes(passed=1)
