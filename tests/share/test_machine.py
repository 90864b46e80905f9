"""Quotas of one machine: the host process, its directory, and who may use them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from chainapi import LimiterOptions, Session
from chainapi.errors import ConfigurationError
from chainapi.share.process import HostProcess
from chainapi.simulator import Fault, Simulator
from tests.real_loop import RealLoop
from tests.share.folders import share_folder

PATH = "/v1/chains/43114"
KEY = "key-that-no-file-may-have"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither modes nor Unix sockets")


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path that CHAINAPI_SHARE_DIR names, short enough for a Unix socket."""
    with share_folder() as folder:
        monkeypatch.setenv("CHAINAPI_SHARE_DIR", f"{folder}/chainapi")
        yield folder / "chainapi"


@asynccontextmanager
async def hosted(directory: Path, *, tcp: bool = False, idle: float | None = None) -> AsyncIterator[Any]:
    """Host the quotas of a directory in this loop, as the process does; its end is that of the process."""
    task = asyncio.create_task(HostProcess.at(directory, tcp=tcp, idle=idle, replaceable=False).run())
    await asyncio.sleep(0.01)
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def shared(sim: Simulator, **options: Any) -> Session:
    """Return a session that shares its quota with the processes of this machine."""
    return Session(**{**sim.arguments(), "share": True, **options})


@asynccontextmanager
async def two_members(**settings: Any) -> AsyncIterator[tuple[Simulator, Session, Session]]:
    """Return two sessions that share a quota through the directory.

    Each has a connection of its own, because they differ in what to do without one.
    """
    sim = Simulator(api_key=KEY, **settings)
    async with shared(sim) as first, shared(sim, limiter=LimiterOptions(on_unavailable="fail")) as second:
        for session in (first, second):
            await session.data.get(PATH)
        yield sim, first, second


def modes(directory: Path) -> dict[str, int]:
    """Return the names and modes of the files in a directory."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


# The directory


async def test_only_the_user_can_use_the_files(directory: Path) -> None:
    """The directory has mode 0700 and each file 0600, whatever the umask; none has the key."""
    umask = os.umask(0o077)
    try:
        async with hosted(directory), two_members() as (_, first, _):
            await first.data.get(PATH)
            await asyncio.sleep(1.0)  # the host stores what it learned
            found = modes(directory)
            contents = [(directory / name).read_bytes() for name in found if not name.endswith(".sock")]
    finally:
        os.umask(umask)
    assert modes(directory.parent) == {"chainapi": 0o700}
    assert set(found.values()) == {0o600}
    assert {name for name in found if not name.endswith(".quota")} == {"host.lock", "host.sock"}
    assert not any(KEY in name for name in found)
    assert not any(KEY.encode() in content for content in contents)


def _foreign(directory: Path) -> Path:
    if os.geteuid() != 0:
        return Path("/")
    directory.mkdir(mode=0o700)
    os.chown(directory, 65_534, -1)
    return directory


def _linked(directory: Path) -> Path:
    directory.mkdir(mode=0o700)
    link = directory.with_name("link")
    link.symlink_to(directory)
    return link


def _open(directory: Path) -> Path:
    directory.mkdir()
    directory.chmod(0o750)
    return directory


def _file(directory: Path) -> Path:
    directory.touch(0o700)
    return directory


def _read_only(directory: Path) -> Path:
    if os.geteuid() == 0:  # who may write everywhere else
        return Path("/sys/chainapi")
    directory.mkdir(mode=0o500)
    return directory


UNSAFE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "foreign": (_foreign, "it belongs to another user"),
    "link": (_linked, "it is a link or a file"),
    "file": (_file, "it is a link or a file"),
    "open": (_open, r"it is open to others \(mode 0750 instead of 0700\)"),
    "read-only": (_read_only, ""),
    "unusable": (lambda path: _file(path) / "inside", "Not a directory"),
}


@pytest.mark.parametrize("choice", ["fail", "degrade"])
@pytest.mark.parametrize("kind", UNSAFE)
async def test_an_unsafe_directory_is_refused(
    kind: str, choice: Literal["fail", "degrade"], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that can never be shared fails the first call with the way out, and sends nothing."""
    make, fault = UNSAFE[kind]
    path = make(directory)
    monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(path))
    sim = Simulator()
    began = asyncio.get_running_loop().time()
    async with shared(sim, limiter=LimiterOptions(on_unavailable=choice)) as session:
        with pytest.raises(ConfigurationError, match=f"(?s){path}.*{fault}.*CHAINAPI_SHARE_DIR"):
            await session.data.get(PATH)
    assert asyncio.get_running_loop().time() < began + 2.0
    assert sim.stats.requests == 0


async def test_the_directory_of_the_user(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CHAINAPI_SHARE_DIR it is in an absolute XDG_RUNTIME_DIR, else with the temporary files."""
    monkeypatch.delenv("CHAINAPI_SHARE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(directory.parent))
    for runtime, expected in ((str(directory.parent), "chainapi"), ("", f"chainapi-{os.geteuid()}")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        async with hosted(directory.parent / expected), shared(Simulator()) as session:
            await session.data.get(PATH)


async def test_damaged_files_are_replaced(directory: Path) -> None:
    """Files that have no sense any more do not keep processes from sharing."""
    async with hosted(directory), two_members():
        await asyncio.sleep(1.0)
    (quota,) = (name for name in modes(directory) if name.endswith(".quota"))
    for name in (quota, "host.lock", "host.sock"):
        (directory / name).write_bytes(b"damaged" * 100)
    async with hosted(directory), two_members(limit=5, window=10.0) as (sim, _, second):
        await second.data.get(PATH)
        assert sim.stats.answered[200] == 3


async def test_processes_share_although_the_disk_is_full(directory: Path) -> None:
    """Where no file can get content, a host serves sessions all the same."""
    import resource  # Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        async with hosted(directory), two_members() as (_, _, second):
            await asyncio.sleep(1.0)  # the host tries to store what it learned
            await second.data.get(PATH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (directory / "host.lock").read_bytes() == b""


async def test_what_was_learned_is_removed_when_it_is_of_no_use(directory: Path) -> None:
    """A host that begins removes what was learned of quotas that nobody has used for a day."""
    old, kept = directory / "old.quota", directory / "kept.quota"
    async with hosted(directory):
        pass
    for path, seconds in ((old, -1.0), (kept, 60.0)):
        path.write_bytes(struct.pack("!d", time.time() + seconds))
    async with hosted(directory):
        assert (old.exists(), kept.exists()) == (False, True)


# The host


@pytest.mark.parametrize("tcp", [False, True])
async def test_members_continue_with_the_next_host(
    tcp: bool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the host ends, sessions go on with the next one, and with what the last one has learned."""
    if tcp:  # as for a path that is too long for a Unix socket
        directory /= "x" * 100
        monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(directory))
    async with hosted(directory), two_members(limit=10, window=10.0, latency=0.02) as (sim, first, second):
        async with asyncio.TaskGroup() as tasks:
            for session in (first, second) * 10:
                tasks.create_task(session.data.get(PATH))
        assert (directory / "host.port").exists() == tcp
    async with hosted(directory), shared(sim) as third:
        await asyncio.gather(*(third.data.get(PATH) for _ in range(10)))
        assert third.quota["data"].limit == 10
    assert (sim.stats.answered[429] <= 1, sim.stats.sent_while_stopped) == (True, 0)


async def test_a_stop_of_an_hour_outlives_all_processes(directory: Path) -> None:
    """After the host and all sessions have ended in a stop, a newcomer sends nothing before its end."""
    sim = Simulator(faults=[Fault(at=2, status=429, headers={"retry-after": "3600"})])
    async with hosted(directory, idle=60.0) as host:
        async with shared(sim) as session:
            await session.data.get(PATH)
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await session.data.get(PATH)
        assert await host
    await asyncio.sleep(300.0)
    (quota,) = (name for name in modes(directory) if name.endswith(".quota"))
    made = time.time() - 299.0  # by the clock of the machine, which was virtual, and goes on meanwhile
    os.utime(directory / quota, (made, made))
    async with hosted(directory), shared(sim) as session:
        await session.data.get(PATH)
    assert sim.stats.sent_while_stopped == 0


async def test_a_host_ends_without_sessions_or_without_its_directory(directory: Path) -> None:
    """It ends after a minute without a session, and soon after its directory was removed; one is enough."""
    loop = asyncio.get_running_loop()
    async with hosted(directory, idle=60.0) as host:
        begun = loop.time()
        assert not await HostProcess.at(directory).run()  # there is one
        async with shared(Simulator()) as session:
            await session.data.get(PATH)
            await asyncio.sleep(100.0)
            assert not host.done()
        await host
        assert 159.0 <= loop.time() - begun <= 162.0
        assert not (directory / "host.sock").exists()
    async with hosted(directory) as host:
        (directory / "host.sock").unlink()
        await asyncio.wait_for(host, 2.0)


async def test_a_session_that_looks_for_a_host_lets_one_begin(directory: Path) -> None:
    """A session holds the lock of the host for the moment of a look; a host that begins then tries again."""
    import fcntl  # Windows has none

    async with hosted(directory):
        pass
    with (directory / "host.lock").open("rb+") as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)
        asyncio.get_running_loop().call_later(0.03, fcntl.flock, looking, fcntl.LOCK_UN)
        async with hosted(directory) as host, shared(Simulator()) as session:
            await asyncio.sleep(0.1)
            assert not host.done()
            await session.data.get(PATH)


async def test_a_session_may_have_any_number_of_requests_that_wait(directory: Path) -> None:
    """Sixteen megabytes of requests reach the host at once, and leave in turn."""
    sim, calls = Simulator(limit=100, window=10.0), 16_000
    async with hosted(directory), shared(sim, limiter=LimiterOptions(on_unavailable="fail")) as session:
        await session.data.get(PATH)
        view, path = session.with_options(tag="é" * 64), f"{PATH}/{'x' * 1_024}"
        tasks = [asyncio.create_task(view.data.get(path)) for _ in range(calls)]
        await asyncio.sleep(20.0)
        assert sim.stats.requests > 100
        assert session.quota["data"].waiting > calls - 400
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


STRANGE = (b"GET / HTTP/1.1\r\n\r\n", (2**31).to_bytes(4, "big"), b"\0\0\0\2\x91\xc0", b"\0\0\0\1\x90")


async def test_strangers_are_not_served(directory: Path) -> None:
    """What is no session of this package is cut off, over TCP without the secret too; others are served."""
    async with hosted(directory), two_members() as (sim, first, _):
        for data in STRANGE:
            reader, writer = await asyncio.open_unix_connection(directory / "host.sock")
            writer.write(data)
            assert await reader.read() == b""
            writer.close()
        await first.data.get(PATH)
        assert sim.stats.answered[200] == 3
    async with hosted(directory, tcp=True):
        port = int((directory / "host.port").read_text().split()[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 32)
        assert await reader.read() == b""
        writer.close()


# Processes


def in_real_time(test: Callable[..., Any]) -> Callable[[Path], None]:
    """Return a test that runs in real time, with processes."""

    def run(directory: Path) -> None:
        with asyncio.Runner(loop_factory=RealLoop) as runner:
            runner.run(asyncio.wait_for(test(directory), 30.0))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return pytest.mark.adapter(run)


async def until_host(directory: Path, other: int = 0) -> int:
    """Wait for a host process that is not another one, and return its id."""
    while (found := host_of(directory)) in (0, other):  # noqa: ASYNC110 - another process sets no event
        await asyncio.sleep(0.01)
    return found


def host_of(directory: Path) -> int:
    """Return the id of the process that has hosted last, or 0."""
    with suppress(FileNotFoundError, ValueError):
        return int((directory / "host.lock").read_text("ascii"))
    return 0


def is_alive(process: int) -> bool:
    """Return whether a process has not ended; its parent may not know yet."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    return False


@in_real_time
async def test_the_first_session_starts_a_host(directory: Path) -> None:
    """It runs in its own session at the root, knows no key, and leaves nothing once its directory is gone."""
    async with Simulator(api_key=KEY) as sim, shared(sim, data_base_url=sim.data_base_url) as session:
        await session.data.get(PATH)
        host = await until_host(directory)
        about = Path(f"/proc/{host}")
        assert os.getsid(host) == host
        assert (about / "cwd").readlink() == Path("/")
        assert {int(path.name) for path in (about / "fd").iterdir()} >= {0, 1, 2}
        assert not any(KEY.encode() in (about / name).read_bytes() for name in ("environ", "cmdline"))
    (directory / "host.sock").unlink()
    while is_alive(host):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_host_that_does_not_answer_is_replaced(number: signal.Signals, directory: Path) -> None:
    """Calls that wait while the host is killed or frozen leave within seconds, by another host."""

    async def test(directory: Path) -> None:
        async with Simulator(latency=0.01) as sim, shared(sim, data_base_url=sim.data_base_url) as session:
            await session.data.get(PATH)
            host = await until_host(directory)
            os.kill(host, number)
            async with asyncio.timeout(10.0):
                await asyncio.gather(*(session.data.get(PATH) for _ in range(20)))
            assert await until_host(directory, host) != host
            assert sim.stats.answered[429] == 0

    in_real_time(test)(directory)


@in_real_time
async def test_an_operator_may_start_the_host(directory: Path) -> None:
    """`python -m chainapi.share` hosts until a signal ends it; a second one ends at once."""
    command = [sys.executable, "-m", "chainapi.share"]
    host = await asyncio.create_subprocess_exec(*command)
    assert await until_host(directory) == host.pid
    assert await (await asyncio.create_subprocess_exec(*command)).wait() == 1
    async with Simulator() as sim, shared(sim, data_base_url=sim.data_base_url) as session:
        await session.data.get(PATH)
        assert host_of(directory) == host.pid
    host.terminate()
    assert await host.wait() == 0
    assert not (directory / "host.sock").exists()


@in_real_time
async def test_a_thread_hosts_where_no_process_can_be_started(directory: Path) -> None:
    """Without an interpreter to start, a thread of the session hosts, and a warning says so once."""
    records = list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logger, executable = logging.getLogger("chainapi.share"), sys.executable
    logger.addHandler(handler)
    sys.executable = "/usr/bin/embedding-program"
    try:
        async with Simulator() as sim, shared(sim, data_base_url=sim.data_base_url) as session:
            await asyncio.gather(*(session.data.get(PATH) for _ in range(3)))
            assert (directory / "host.lock").read_bytes() == b"0"
    finally:
        sys.executable = executable
        logger.removeHandler(handler)
    assert len(records) == 1
    assert "hosts the shared quotas in a thread" in records[0]


@in_real_time
async def test_a_program_that_ends_leaves_its_host_in_silence(directory: Path) -> None:
    """A short program that starts a host ends at once, without a warning, while the host lives on."""
    async with Simulator(api_key="k") as sim:
        code = (
            "import asyncio\nfrom chainapi import Session\n"
            "async def main():\n"
            f"    options = {{'share': True, 'data_base_url': {sim.data_base_url!r}, 'api_key': 'k'}}\n"
            "    async with Session(**options) as session:\n"
            f"        await session.data.get({PATH!r})\n"
            "asyncio.run(main())\n"
        )
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", code, stderr=subprocess.PIPE
        )
        _, printed = await done.communicate()
        assert (done.returncode, printed) == (0, b"")
        os.kill(host_of(directory), 0)  # it lives
