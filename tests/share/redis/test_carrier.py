"""The carrier over Redis, against a real server.

`CHAINAPI_TEST_REDIS_URL` names a server for the tests that do not stop or configure it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from chainapi import Session
from chainapi.core.share.packets import Kind, Packet, link_of, quota_key, seal
from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share.link import Link, Serve
from chainapi.share.redis import RedisCarrier
from chainapi.share.redis.wire import Address, Wire
from chainapi.simulator import Simulator
from tests.ports import free_port
from tests.raw_server import let_pass, settle, until
from tests.share.redis.server import RedisServer

pytestmark = pytest.mark.real_time

PATIENCE = 60.0  # seconds until a test that hangs fails
LONG = 600.0  # seconds: a lock or a silence that no test waits for


@pytest.fixture(autouse=True)
async def _clean() -> AsyncIterator[None]:
    """Fail a test that hangs, or that leaves a task behind."""
    mine = asyncio.all_tasks()
    timer = asyncio.get_running_loop().call_later(PATIENCE, _cancel_all)
    yield
    timer.cancel()
    assert {task for task in asyncio.all_tasks() - mine if task is not asyncio.current_task()} == set()


def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel("the test hangs")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Return a server that no test stops."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Return the only node of a cluster; it serves after two seconds, so it starts with the first test."""
    server = RedisServer(tmp_path_factory.mktemp("cluster"), "--cluster-enabled", "yes").start()
    assert server.command("CLUSTER", "ADDSLOTS", *map(str, range(16_384))) == "+OK"
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """Return a server that a test may stop and configure."""
    server = RedisServer(tmp_path).start()
    yield server
    server.stop()


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Return the address of a server that is there for all tests."""
    given = os.environ.get("CHAINAPI_TEST_REDIS_URL")
    if given:
        return given
    server: RedisServer = request.getfixturevalue("server")
    return server.url


@pytest.fixture
def name() -> str:
    """Return the name of a quota that no other test uses."""
    return uuid.uuid4().hex


class End:
    """One end of a link: what arrived, and whether it broke."""

    def __init__(self, link: Link, echo: bool = False) -> None:
        self.link = link
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.broken = asyncio.Event()
        link.start(self._echo if echo else self.frames.put_nowait, self.broken.set)

    def _echo(self, frame: bytes) -> None:
        self.frames.put_nowait(frame)
        self.link.send(b"echo " + frame)

    async def ask(self, frame: bytes) -> bytes:
        """Send a frame, and return the next that arrives."""
        self.link.send(frame)
        return await self.frames.get()


class Process:
    """Process that shares a quota: with a carrier of its own, and a host that echoes frames if elected."""

    def __init__(self, url: str, name: str, **options: object) -> None:
        settings = {"ttl": LONG, "silence": LONG, **options}
        self.name = name
        self.carrier = RedisCarrier(url, **settings)  # type: ignore[arg-type]
        self.elections: list[tuple[bytes, float]] = []
        self.served: asyncio.Queue[End] = asyncio.Queue()

    async def connect(self) -> End:
        """Return the participant's end of a new link."""
        return End(await self.carrier.connect(self.name, self._make_host))

    async def aclose(self) -> None:
        """Leave the quota."""
        await self.carrier.aclose(self.name)

    def _make_host(self, memory: bytes, age: float) -> Serve:
        self.elections.append((memory, age))
        return lambda link: self.served.put_nowait(End(link, echo=True))


@asynccontextmanager
async def processes(number: int, url: str, name: str, **options: object) -> AsyncIterator[list[Process]]:
    """Return processes, the first of them the host if `number` is more than 1; close them at the end."""
    them = [Process(url, name, **options) for _ in range(number)]
    try:
        yield them
    finally:
        for process in them:
            await process.aclose()


@asynccontextmanager
async def redis(url: str) -> AsyncIterator[Wire]:
    """Return a connection to look at Redis, and to attack it."""
    wire = await Wire.open(Address(url), 10.0)
    try:
        yield wire
    finally:
        await wire.aclose(10.0)


async def lock(wire: Wire, name: str, prefix: str = "chainapi") -> tuple[int, bytes]:
    """Return the term and the id of the host."""
    value: bytes = await wire.request("GET", f"{prefix}:{{{name}}}:host")
    term, host = value.split(b":")
    return int(term), host


async def connected(*them: Process) -> list[End]:
    """Connect processes one after the other: the first becomes the host."""
    return [await process.connect() for process in them]


# Election, frames, hand-over


async def test_one_of_many_becomes_the_host(url: str, name: str) -> None:
    """Of eight processes that connect at once, one is elected, and serves a link of each."""
    async with processes(8, url, name) as them:
        ends = await asyncio.gather(*(process.connect() for process in them))
        assert sum(len(process.elections) for process in them) == 1
        answers = [await end.ask(b"%d" % place) for place, end in enumerate(ends)]
        assert answers == [b"echo %d" % place for place in range(8)]


async def test_frames_arrive_in_order(url: str, name: str) -> None:
    """A thousand frames each way, of up to 100 kB, arrive in order, and those before `start` first."""
    sizes = [place % 7 if place % 100 else 100_000 for place in range(1_000)]
    frames = [b"%d:" % place + bytes(size) for place, size in enumerate(sizes)]
    async with processes(2, url, name) as them:
        _, end = await connected(*them)
        for start in range(0, 1_000, 20):  # a pause after each: what waits to be sent is limited
            for frame in frames[start : start + 20]:
                end.link.send(frame)
            assert [await end.frames.get() for _ in range(20)] == [
                b"echo " + frame for frame in frames[start : start + 20]
            ]
        assert not end.broken.is_set()


async def test_frames_before_start_are_delivered_first(url: str, name: str) -> None:
    """Frames that arrived before `start`, and the break after them, are delivered in order."""
    async with processes(2, url, name) as them:
        await them[0].connect()
        link = await them[1].carrier.connect(name, them[1]._make_host)
        link.send(b"early")
        await them[0].served.get()
        host = await them[0].served.get()
        link.send(b"late")
        await until(lambda: len(link._early) == 2)  # type: ignore[attr-defined]
        host.link.close()
        await until(lambda: not link.open)  # type: ignore[attr-defined]
        end = End(link)
        await end.broken.wait()
        assert [end.frames.get_nowait() for _ in range(2)] == [b"echo early", b"echo late"]


async def test_a_link_ends_for_both_sides(url: str, name: str) -> None:
    """Whichever side closes a link, the other side's end breaks, and the own end calls nothing more."""
    async with processes(2, url, name) as them:
        _, end = await connected(*them)
        await them[0].served.get()
        host = await them[0].served.get()
        end.link.close()
        await host.broken.wait()
        again = await them[1].connect()
        host = await them[0].served.get()
        host.link.close()
        await again.broken.wait()
        assert not end.broken.is_set()
        assert not host.broken.is_set()
        again.link.send(b"into the void")


async def test_aclose_hands_the_quota_over_at_once(url: str, name: str) -> None:
    """When the host leaves, its participants' links break, and one of them is elected without waiting."""
    async with processes(2, url, name) as (host, participant):
        own, end = await connected(host, participant)
        await host.aclose()
        await own.broken.wait()
        await end.broken.wait()
        again = await participant.connect()
        assert len(participant.elections) == 1
        assert await again.ask(b"x") == b"echo x"


@pytest.mark.parametrize("late", [False, True])
async def test_a_cancelled_aclose_closes_the_connection(
    late: bool, url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever the close of the last quota is cancelled, the connection to Redis is closed."""
    async with processes(1, url, name) as (host,):
        await host.connect()
        wire = host.carrier._wire
        assert wire is not None
        closing = asyncio.create_task(host.aclose())
        await settle(2)
        await until(lambda: wire.lost >= late)
        closing.cancel()
        await asyncio.wait([closing, wire._closed])
        await settle()
        assert (wire.lost, host.carrier._wire, caplog.records) == (True, None, [])


async def test_a_host_connects_to_itself_again(url: str, name: str) -> None:
    """A link of the host to itself that ended is replaced, without another election."""
    async with processes(1, url, name) as (host,):
        end = await host.connect()
        (await host.served.get()).link.close()
        await end.broken.wait()
        end = await host.connect()
        assert await end.ask(b"x") == b"echo x"
        end.link.close()
        await (await host.served.get()).broken.wait()
        assert len(host.elections) == 1


async def test_two_quotas_share_one_connection(url: str, name: str) -> None:
    """Quotas have hosts of their own, and leaving one does not touch the other."""
    async with processes(1, url, name) as (one,), processes(1, url, name + "b") as (other,):
        crossed = [Process(url, name + "b"), Process(url, name)]
        crossed[0].carrier, crossed[1].carrier = one.carrier, other.carrier
        await one.connect()
        await other.connect()
        ends = [await process.connect() for process in crossed]
        assert [await end.ask(b"x") for end in ends] == [b"echo x"] * 2
        assert not crossed[0].elections
        await crossed[0].aclose()
        await crossed[1].aclose()
        assert len(one.elections) == len(other.elections) == 1
        assert await (await one.connect()).ask(b"y") == b"echo y"


async def test_prefixes_keep_apart(url: str, name: str) -> None:
    """Processes with another prefix share nothing, and all keys have the prefix."""
    async with (
        redis(url) as wire,
        processes(1, url, name) as (one,),
        processes(1, url, name, prefix="other") as (other,),
    ):
        await one.connect()
        await other.connect()
        other.carrier.store(name, b"memory")
        assert len(one.elections) == len(other.elections) == 1
        keys = await wire.request("KEYS", f"*{name}*")
        assert {key.partition(b":")[0] for key in keys} == {b"chainapi", b"other"}
        assert min([await wire.request("PTTL", key) for key in keys]) > 0


async def test_a_host_that_cannot_be_made(url: str, name: str) -> None:
    """An error of `make_host` reaches the caller, and the quota stays free for others."""

    def fail(memory: bytes, age: float) -> Serve:
        raise ZeroDivisionError

    async with processes(2, url, name) as (one, other):
        with pytest.raises(ZeroDivisionError):
            await one.carrier.connect(name, fail)
        await other.connect()
        assert len(other.elections) == 1


async def test_a_request_before_the_host_is_made_waits(url: str, name: str) -> None:
    """A participant that requests a link while the elected process makes its host gets it afterwards."""
    async with processes(2, url, name) as (host, participant):
        await participant.connect()
        await participant.aclose()  # which leaves the quota to the next, and knows that there is one
        elected = host.carrier._participant(await host.carrier._connected(), name)
        host.carrier._participants[name] = elected
        await elected._begin()
        term = await elected._elect()
        waiting = asyncio.create_task(participant.connect())
        await until(lambda: bool(term._early))  # type: ignore[union-attr]
        await host.connect()
        assert await (await waiting).ask(b"x") == b"echo x"


async def test_an_abandoned_election(own_server: RedisServer, name: str) -> None:
    """A process that gave up while it was elected does not keep the quota."""
    async with processes(2, own_server.url, name, ttl=2.0) as (host, participant):
        _, end = await connected(host, participant)
        await host.aclose()
        await end.broken.wait()
        own_server.pause()
        waiting = asyncio.create_task(participant.connect())
        await settle()
        waiting.cancel()
        await asyncio.wait([waiting])
        own_server.resume()
        await host.connect()
        assert len(host.elections) == 2
        assert not participant.elections


async def test_an_observer_never_becomes_the_host(url: str, name: str) -> None:
    """An observer gets a link to the host, and none without a host or to one that is gone."""
    async with redis(url) as wire, processes(2, url, name, silence=0.4) as (host, observer):
        assert await observer.carrier.observe(name) is None
        await host.connect()
        link = await observer.carrier.observe(name)
        assert link is not None
        end = End(link)
        assert await end.ask(b"x") == b"echo x"
        await host.aclose()
        await end.broken.wait()
        await wire.request("SET", f"chainapi:{{{name}}}:host", f"7:{'0' * 32}")
        assert await observer.carrier.observe(name) is None
        assert not observer.elections


@pytest.mark.parametrize(
    "value", ["", "garbage", "1:" + "g" * 32, "x:" + "0" * 32, f"{2**64}:{'0' * 32}", "1:0"]
)
async def test_a_lock_of_something_else_counts_for_none(value: str, url: str, name: str) -> None:
    """A process is elected although the lock has a value that no version of the carrier writes."""
    async with redis(url) as wire, processes(1, url, name) as (process,):
        for listener in ("", "0", "0" * 32, "g" * 32):
            await _listen(wire, f"chainapi:{{{name}}}:to:{listener}".encode())
        await wire.request("SET", f"chainapi:{{{name}}}:host", value)
        assert await process.carrier.observe(name) is None
        assert await (await process.connect()).ask(b"x") == b"echo x"


@pytest.mark.parametrize("value", ["garbage", "-1", "inf", "nan", "1e300", str(2**53 + 1), "9" * 18])
async def test_a_last_term_of_something_else_counts_for_none(value: str, url: str, name: str) -> None:
    """One process is the host although the last term has a value that no version of the carrier writes."""
    async with redis(url) as wire, processes(2, url, name) as (host, other):
        await wire.request("SET", f"chainapi:{{{name}}}:term", value)
        _, end = await connected(host, other)
        assert await end.ask(b"x") == b"echo x"
        assert not other.elections
        assert (await lock(wire, name))[0] < 2**53


# Memory


async def test_the_memory_reaches_the_next_host(url: str, name: str) -> None:
    """The next host gets what the last one stored, and the time since then by Redis's clock."""
    async with redis(url) as wire, processes(2, url, name) as (one, other):
        await one.connect()
        assert one.elections == [(b"", 0.0)]
        one.carrier.store(name, b"first")
        one.carrier.store(name, b"\x00second")
        await one.aclose()
        at = int(await wire.request("HGET", f"chainapi:{{{name}}}:memory", "at"))
        await wire.request("HSET", f"chainapi:{{{name}}}:memory", "at", at - 90_000_000)
        await other.connect()
        memory, age = other.elections[0]
        assert memory == b"\x00second"
        assert 90.0 <= age < 90.0 + PATIENCE


async def test_forged_memory_is_not_used(url: str, name: str) -> None:
    """Memory that was changed without the secret does not reach the next host."""
    async with redis(url) as wire, processes(2, url, name, secret=b"s") as (one, other):
        await one.connect()
        one.carrier.store(name, b"memory")
        await one.aclose()
        await other.connect()
        assert other.elections[0][0] == b"memory"
        await other.aclose()
        await wire.request(
            "HSET", f"chainapi:{{{name}}}:memory", "data", b"forged memory, long enough for a MAC"
        )
        await one.connect()
        assert one.elections[1][0] == b""


async def test_only_the_host_stores(url: str, name: str) -> None:
    """A participant, and a host that lost the lock, overwrite nothing."""
    async with redis(url) as wire, processes(2, url, name) as (host, participant):
        await connected(host, participant)
        participant.carrier.store(name, b"of a participant")
        participant.carrier.store("unknown", b"of nobody")
        await wire.request("SET", f"chainapi:{{{name}}}:host", "1:" + "0" * 32)
        host.carrier.store(name, b"of an earlier host")
        await host.aclose()
        assert await wire.request("EXISTS", f"chainapi:{{{name}}}:memory") == 0
        assert (await lock(wire, name))[1] == b"0" * 32  # nor does it release the lock of another


async def test_terms_increase(url: str, name: str) -> None:
    """Each host has a higher term than the one before, even if Redis's clock was set back."""
    terms = []
    async with redis(url) as wire:
        for _ in range(3):
            async with processes(1, url, name) as (host,):
                await host.connect()
                terms.append((await lock(wire, name))[0])
                await wire.request("SET", f"chainapi:{{{name}}}:term", terms[-1] + 1_000_000)
    assert terms[1:] == [terms[0] + 1_000_001, terms[0] + 2_000_002]


# Processes that die, hang, or lose their lock


@asynccontextmanager
async def subprocess(url: str, name: str, ttl: float) -> AsyncIterator[asyncio.subprocess.Process]:
    """Return another process, once it is the host."""
    command = (sys.executable, "-m", "tests.share.redis.host_process", url, name, str(ttl))
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        assert await _lines(child, 2) == ["elected", "connected"]
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate(b"")


async def _lines(child: asyncio.subprocess.Process, number: int) -> list[str]:
    assert child.stdout is not None
    return [(await child.stdout.readline()).decode().strip() for _ in range(number)]


async def test_a_killed_host_is_replaced_without_waiting_for_its_lease(url: str, name: str) -> None:
    """After kill -9 the next packet of a participant finds nobody, and the participant is elected at once.

    A forked child of the host lives on: it does not keep the connection of the host.
    """
    async with (
        redis(url) as wire,
        processes(1, url, name) as (participant,),
        subprocess(url, name, LONG) as child,
    ):
        end = await participant.connect()
        assert await end.ask(b"x") == b"x"
        channel = f"chainapi:{{{name}}}:to:".encode() + (await lock(wire, name))[1]
        child.kill()
        while await wire.request("PUBSUB", "NUMSUB", channel) != [channel, 0]:
            pass
        end.link.send(b"to nobody")
        await end.broken.wait()
        end = await participant.connect()
        assert participant.elections == [(b"", 0.0)]
        assert await end.ask(b"y") == b"echo y"


async def test_a_paused_host_serves_nothing_after_its_lease(url: str, name: str) -> None:
    """A host that is suspended beyond its lock is replaced; when it runs again it serves no frame."""
    async with (
        processes(1, url, name, ttl=1.0, silence=1.0) as (participant,),
        subprocess(url, name, 1.0) as child,
    ):
        end = await participant.connect()
        assert await end.ask(b"x") == b"x"
        assert await _lines(child, 1) == ["served x"]
        child.send_signal(signal.SIGSTOP)
        end.link.send(b"too late")
        await end.broken.wait()
        end = await participant.connect()
        assert len(participant.elections) == 1
        child.send_signal(signal.SIGCONT)
        assert sorted(await _lines(child, 3)) == ["broken", "host's end broken", "host's end broken"]
        assert await end.ask(b"y") == b"echo y"


async def test_a_paused_participant_breaks_at_the_host(url: str, name: str) -> None:
    """The host ends the link of a participant that is suspended, so its permits come back as lost."""
    async with processes(1, url, name, silence=1.0) as (host,):
        await host.connect()
        await host.served.get()
        command = (sys.executable, "-m", "tests.share.redis.host_process", url, name, "1.0")
        child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        try:
            assert await _lines(child, 1) == ["connected"]
            end = await host.served.get()
            child.send_signal(signal.SIGSTOP)
            await end.broken.wait()
            child.send_signal(signal.SIGCONT)
            assert await _lines(child, 1) == ["broken"]
        finally:
            child.kill()
            await child.communicate(b"")


async def test_a_host_whose_lock_is_gone_ends(url: str, name: str) -> None:
    """A host that finds another's lock, or none, breaks all of its links."""
    async with redis(url) as wire, processes(2, url, name, ttl=1.0) as (host, participant):
        own, end = await connected(host, participant)
        await wire.request("DEL", f"chainapi:{{{name}}}:host")
        await own.broken.wait()
        await end.broken.wait()
        assert await (await participant.connect()).ask(b"x") == b"echo x"


async def test_a_host_on_a_former_primary_ends(
    own_server: RedisServer, server: RedisServer, name: str, tmp_path: Path
) -> None:
    """A host whose Redis became a read-only replica ends, and connects to where the address leads by then."""
    primary = tmp_path / "now.sock"
    primary.symlink_to(own_server.socket)
    async with processes(1, f"unix://{primary}", name, ttl=1.0) as (host,):
        end = await host.connect()
        assert own_server.command("REPLICAOF", "127.0.0.1", "1") == "+OK"
        await end.broken.wait()
        primary.unlink()
        primary.symlink_to(server.socket)
        with pytest.raises(ShareUnavailableError, match="READONLY"):
            await host.connect()
        assert await (await host.connect()).ask(b"x") == b"echo x"


async def test_a_host_stops_by_its_own_clock(own_server: RedisServer, name: str) -> None:
    """A host that cannot renew its lock stops before Redis would give it to another."""
    async with processes(1, own_server.url, name, ttl=0.4) as (host,):
        end = await host.connect()
        served = await host.served.get()
        own_server.pause()
        await end.broken.wait()
        await served.broken.wait()
        own_server.resume()


async def test_a_host_that_hangs_serves_no_frame_that_waited(url: str, name: str) -> None:
    """When the loop of a host stood still beyond its lock, it serves no frame that waited."""
    async with processes(1, url, name, ttl=5.0) as (host,):
        end = await host.connect()
        end.link.send(b"waits")
        let_pass(6.0)
        await end.broken.wait()
        assert end.frames.empty()
        served = await host.served.get()
        assert served.frames.empty()
        served.link.send(b"late")
        await served.broken.wait()


# Redis that goes away


async def test_links_break_with_the_connection(own_server: RedisServer, name: str) -> None:
    """When Redis ends all links break; when it is there again, with nothing, processes elect and continue."""
    async with processes(3, own_server.url, name) as them:
        ends = await connected(*them)
        own_server.stop()
        for end in ends:
            await end.broken.wait()
        with pytest.raises(ShareUnavailableError, match=rf"cannot connect .* 127.0.0.1:{own_server.port} "):
            await them[0].connect()
        own_server.start()
        ends = await asyncio.gather(*(process.connect() for process in them))
        assert [await end.ask(b"x") for end in ends] == [b"echo x"] * 3
        assert sum(len(process.elections) for process in them) == 2


async def test_a_connection_that_redis_closes_breaks_the_links(own_server: RedisServer, name: str) -> None:
    """A connection is never replaced in silence: a message may be missing."""
    async with processes(2, own_server.url, name) as (host, participant):
        _, end = await connected(host, participant)
        await host.served.get()
        served = await host.served.get()
        own_server.command("CLIENT", "KILL", "TYPE", "pubsub")
        await end.broken.wait()
        await served.broken.wait()
        assert await (await participant.connect()).ask(b"x") == b"echo x"


async def test_redis_that_is_not_there(name: str) -> None:
    """The error of a Redis that cannot be reached names host and port, and no password."""
    port = free_port()
    carrier = RedisCarrier(f"redis://user:hunter2@127.0.0.1:{port}/0")
    with pytest.raises(ShareUnavailableError, match=f"127.0.0.1:{port}") as caught:
        await carrier.connect(name, Process("redis://", name)._make_host)
    assert "hunter2" not in f"{caught.value!r} {caught.value} {carrier!r} {vars(caught.value)}"
    await carrier.aclose(name)


async def test_redis_that_hangs(own_server: RedisServer, name: str) -> None:
    """A Redis that answers nothing breaks links by silence, and is an error for who connects, old or new."""
    async with processes(2, own_server.url, name, silence=0.3, timeout=0.2) as (host, participant):
        _, end = await connected(host, participant)
        own_server.pause()
        await end.broken.wait()
        with pytest.raises(ShareUnavailableError, match=r"did not answer within 0\.2 s"):
            await participant.connect()
        with pytest.raises(ShareUnavailableError, match=r"did not answer within 0\.2 s"):
            await participant.connect()
        own_server.resume()
        assert await (await participant.connect()).ask(b"x") == b"echo x"


async def test_redis_that_does_not_read(own_server: RedisServer, name: str) -> None:
    """A connection breaks when more than 16 MiB waits for Redis to read it."""
    async with processes(2, own_server.url, name) as (host, participant):
        _, end = await connected(host, participant)
        own_server.pause()
        while not end.broken.is_set():
            end.link.send(bytes(2_000_000))
            await asyncio.sleep(0)
        own_server.resume()


async def test_sessions_share_over_redis(own_server: RedisServer) -> None:
    """Sessions of three processes send each request once through one gate, Redis restarted half-way."""
    sim = Simulator(limit=10_000, window=60.0, latency=lambda _: 0.0)
    sessions = [
        Session(
            **sim.arguments(),
            share=RedisCarrier(own_server.url, secret=b"s"),
        )
        for _ in range(3)
    ]
    for restart in (True, False):
        await asyncio.gather(
            *(session.data.get("/v1/chains/43114") for session in sessions for _ in range(20))
        )
        if restart:
            own_server.stop()
            own_server.start()
    for session in sessions:
        await session.aclose()
    assert sim.stats.answered == {200: 120}


# Who may do what


async def test_processes_with_the_secret_share(url: str, name: str) -> None:
    """Processes with the same secret, by constructor or by `authenticate`, share; another gets no link."""
    async with (
        processes(1, url, name, secret=b"one", ttl=0.3, silence=0.3) as (host,),
        processes(2, url, name, ttl=0.3, silence=0.3) as (participant, other),
    ):
        host.carrier.authenticate(name, b"another")  # without effect beside a secret of its own
        await host.connect()
        participant.carrier.authenticate(name, b"one")
        assert await (await participant.connect()).ask(b"x") == b"echo x"
        other.carrier.authenticate(name, b"another")
        with pytest.raises(ShareUnavailableError, match="does not answer"):
            await other.connect()
        assert host.served.qsize() == 2


async def test_forged_packets_are_dropped(url: str, name: str) -> None:
    """Without the secret nobody sends a frame on a link, opens one, or breaks one."""
    async with redis(url) as wire, processes(2, url, name, secret=b"s") as (host, participant):
        term, host_id = await lock_of(wire, name, host)
        to_host = f"chainapi:{{{name}}}:to:".encode() + host_id
        heard = await _listen(wire, to_host)
        end = await participant.connect()
        assert await end.ask(b"x") == b"echo x"
        link = link_of(await heard.get())
        wrong = quota_key(b"wrong", name)
        for number in range(4):
            for kind in Kind:
                for key in (b"", wrong):
                    forged = seal(key, Packet(kind, term, link, number, b"forged"))
                    await wire.request("PUBLISH", to_host, forged)
        fresh = seal(wrong, Packet(Kind.OPEN, term, bytes(16), 0, b"0" * 32))
        for noise in (b"", b"noise", bytes(100), fresh):
            await wire.request("PUBLISH", to_host, noise)
        assert await end.ask(b"y") == b"echo y"
        assert host.served.qsize() == 2


async def lock_of(wire: Wire, name: str, host: Process) -> tuple[int, bytes]:
    """Make `host` the host; return its term and id."""
    await host.connect()
    return await lock(wire, name)


async def _listen(wire: Wire, channel: bytes) -> asyncio.Queue[bytes]:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    listening = asyncio.get_running_loop().create_future()
    wire.subscribe(channel, heard.put_nowait, listening.set_result)
    await listening
    return heard


async def test_a_forged_host_is_not_believed(own_server: RedisServer, name: str) -> None:
    """A process with the lock but not the secret gets no link; the end of Redis ends the attempt too."""
    async with (
        redis(own_server.url) as wire,
        processes(1, own_server.url, name, secret=b"s") as (participant,),
    ):
        await wire.request("SET", f"chainapi:{{{name}}}:host", f"7:{'0' * 32}")
        heard = await _listen(wire, f"chainapi:{{{name}}}:to:{'0' * 32}".encode())
        waiting = asyncio.create_task(participant.connect())
        packet = await heard.get()
        inbox = f"chainapi:{{{name}}}:to:".encode() + packet[33:65]
        for key in (b"", quota_key(b"wrong", name)):
            forged = seal(key, Packet(Kind.ACCEPT, 7, link_of(packet), 0, bytes(16)))
            assert await wire.request("PUBLISH", inbox, forged) == 1
        own_server.stop()
        with pytest.raises(ShareUnavailableError, match="was lost"):
            await waiting


async def test_replayed_packets_are_dropped(url: str, name: str) -> None:
    """Packets that were sent before are served once, on their link, and on a link that they open again."""
    async with redis(url) as wire, processes(2, url, name, secret=b"s") as (host, participant):
        _, host_id = await lock_of(wire, name, host)
        to_host = f"chainapi:{{{name}}}:to:".encode() + host_id
        heard = await _listen(wire, to_host)
        end = await participant.connect()
        assert await end.ask(b"x") == b"echo x"
        recorded = [await heard.get() for _ in range(3)]  # OPEN, BEAT, FRAME
        for packet in recorded:
            await wire.request("PUBLISH", to_host, packet)
        assert await end.ask(b"y") == b"echo y"
        end.link.close()
        await host.served.get()
        await (await host.served.get()).broken.wait()
        for packet in recorded:
            await wire.request("PUBLISH", to_host, packet)
        again = await participant.connect()
        assert await again.ask(b"z") == b"echo z"
        assert host.served.qsize() == 1


async def test_a_missing_packet_breaks_the_link(url: str, name: str) -> None:
    """A gap in the numbers breaks the link at both ends, and the frame behind it is not delivered."""
    async with processes(2, url, name) as (host, participant):
        _, end = await connected(host, participant)
        end.link._out._number += 1  # type: ignore[attr-defined]
        end.link.send(b"behind a gap")
        await end.broken.wait()
        await host.served.get()
        await (await host.served.get()).broken.wait()
        assert end.frames.empty()


async def test_packets_of_an_earlier_term_open_nothing(url: str, name: str) -> None:
    """A request for a link with a host of an earlier term is dropped by the next host, though authentic."""
    async with redis(url) as wire, processes(1, url, name, secret=b"s") as (host,):
        term, host_id = await lock_of(wire, name, host)
        key = quota_key(b"s", name)
        to_host = f"chainapi:{{{name}}}:to:".encode() + host_id
        inbox = await _listen(wire, f"chainapi:{{{name}}}:to:".encode() + b"0" * 32)
        for number in (term - 1, term):
            link = number.to_bytes(16, "big")
            await wire.request("PUBLISH", to_host, seal(key, Packet(Kind.OPEN, number, link, 0, b"0" * 32)))
        assert link_of(await inbox.get()) == term.to_bytes(16, "big")
        assert inbox.empty()


# Errors of the server, and addresses


@pytest.fixture
async def refusing() -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Return the function that starts a server that answers each command with one error."""
    servers = []

    async def start(answer: str) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if await reader.read(1_000):
                writer.write(answer.encode() + b"\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        return f"redis://user:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        ("-LOADING Redis is loading the dataset in memory", r"\(LOADING\): it is still loading"),
        ("-WRONGPASS invalid username-password pair", r"\(WRONGPASS\): the user name or the password"),
        ("-MOVED 3999 127.0.0.1:6381", r"\(MOVED\): another node of the cluster"),
        ("-DENIED Redis is running in protected mode", r"\(DENIED\): it accepts local clients only"),
        ("-NOPROTO unsupported protocol version", r"\(NOPROTO\): .* Redis 6 or newer"),
        (
            "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `user`, `hunter2`",
            "Redis 6 or newer",
        ),
        ("-ERR max number of clients reached", r"\(ERR\): look into its log"),
        ("HTTP/1.1 400 Bad Request", "was lost: the server sent something else than Redis does; correct"),
    ],
)
async def test_a_server_that_refuses(
    answer: str, advice: str, name: str, refusing: Callable[[str], Awaitable[str]]
) -> None:
    """Each refusal is an error that names the remedy, and shows neither password nor the server's text."""
    process = Process(await refusing(answer), name)
    with pytest.raises(ShareUnavailableError, match=advice) as caught:
        await process.connect()
    assert "hunter2" not in str(caught.value)
    assert "args" not in str(caught.value)
    await process.aclose()


async def test_messages_out_of_order_are_ignored(
    name: str, refusing: Callable[[str], Awaitable[str]]
) -> None:
    """Notices of the server, and answers to nothing, are not taken for answers to commands."""
    notice = ">2\r\n$6\r\nnotice\r\n:1\r\n"
    process = Process(await refusing(f"{notice}%1\r\n+proto\r\n:3\r\n:7\r\n{notice}:8"), name, timeout=0.1)
    with pytest.raises(ShareUnavailableError, match=r"did not answer within 0\.1 s"):
        await process.connect()
    await process.aclose()


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        (["CONFIG SET requirepass x"], "NOAUTH"),
        (["CONFIG SET maxmemory 1"], "OOM"),
        (["REPLICAOF 127.0.0.1 1"], "READONLY"),
        (["ACL SETUSER default resetchannels"], "NOPERM"),
        (["ACL SETUSER default -publish"], "NOPERM"),
        (["ACL SETUSER default resetkeys"], "NOPERM"),
    ],
)
async def test_a_configuration_that_refuses(
    commands: list[str], code: str, own_server: RedisServer, name: str
) -> None:
    """A command that a real server does not permit is an error with its code and with advice."""
    async with processes(2, own_server.url, name) as (host, participant):
        if code == "NOPERM":
            await host.connect()
        for command in commands:
            assert own_server.command(*command.split()) == "+OK"
        with pytest.raises(ShareUnavailableError, match=rf"\({code}\): (?!look)"):
            await participant.connect()


PERMISSIONS = (
    "~chainapi:* &chainapi:* +hello +client|setname +select +ping +eval +publish +subscribe +unsubscribe "
    "+pubsub|numsub +get +set +del +pexpire +time +hmget +hset"
)


async def test_a_user_with_the_documented_permissions(own_server: RedisServer, name: str) -> None:
    """A user of Redis with the permissions that the docs list, and no others, shares a quota."""
    documented = (Path(__file__).parents[3] / "docs" / "redis.md").read_text("utf-8")
    assert PERMISSIONS in " ".join(documented.split())
    own_server.command(*f"ACL SETUSER app on >p@ss resetchannels {PERMISSIONS}".split())
    url = f"redis://app:p%40ss@127.0.0.1:{own_server.port}/2"
    async with processes(2, url, name) as (host, participant):
        _, end = await connected(host, participant)
        assert await end.ask(b"x") == b"echo x"
        host.carrier.store(name, b"memory")
        await host.aclose()
        await participant.connect()
        assert participant.elections[0][0] == b"memory"


async def test_a_unix_socket(own_server: RedisServer, name: str) -> None:
    """A URL may name a Unix socket."""
    async with processes(2, f"unix://{own_server.socket}?db=1", name) as them:
        _, end = await connected(*them)
        assert await end.ask(b"x") == b"echo x"
        assert str(own_server.socket) in repr(them[0].carrier)


async def test_tls(own_server: RedisServer, name: str, tmp_path: Path) -> None:
    """`rediss://` verifies the certificate, by the authority that the URL names, and then shares a quota."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with _tls_proxy(own_server.port, context) as port:
        base = f"rediss://localhost:{port}"
        async with processes(2, f"{base}?ssl_ca_certs={tmp_path / 'ca.pem'}", name) as them:
            _, end = await connected(*them)
            assert await end.ask(bytes(200_000)) == b"echo " + bytes(200_000)
        stranger = Process(base, name)
        with pytest.raises(ShareUnavailableError, match="cannot connect"):
            await stranger.connect()
        await stranger.aclose()


@asynccontextmanager
async def _tls_proxy(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, forth), pump(back, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "localhost", 0, ssl=context, family=2)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def test_a_node_of_a_cluster(cluster: RedisServer, name: str) -> None:
    """A node of a cluster serves quotas as any server does."""
    await until(lambda: "cluster_state:ok" in cluster.command("CLUSTER", "INFO"))
    async with processes(2, cluster.url, name) as them:
        _, end = await connected(*them)
        assert await end.ask(b"x") == b"echo x"


@pytest.mark.parametrize(
    "address", ["http://hunter2", "redis://:hunter2@h:port", "redis://h?hunter2=1", "redis://h?db=hunter2"]
)
def test_malformed_addresses(address: str) -> None:
    """A URL that redis-py refuses is a ConfigurationError that does not repeat it."""
    with pytest.raises(ConfigurationError, match="use redis://") as caught:
        RedisCarrier(address)
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__} {caught.value.__context__!r}"


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without redis-py the error names the extra."""
    for module in [module for module in sys.modules if module.startswith("chainapi.share.redis.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "hiredis", None)
    with pytest.raises(ConfigurationError, match=r"needs hiredis.*pip install 'chainapi\[redis\]'"):
        RedisCarrier("redis://localhost")
