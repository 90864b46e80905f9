"""Carrier between the processes of one machine: several carriers in one process, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from attrs import define, field

from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share import forks
from chainapi.share.link import Link, Serve
from chainapi.share.local import LocalCarrier
from chainapi.share.local.election import Elections
from chainapi.share.local.handshake import GREETING
from chainapi.share.local.stream import PATIENCE

pytestmark = pytest.mark.rule

real_time = pytest.mark.real_time
both_sockets = pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])


@define(eq=False)
class Process:
    """Carrier with a host that returns each frame with its name before it."""

    name: str
    carrier: LocalCarrier
    quota: str = "q"
    hosted: int = 0
    memory: tuple[bytes, float] = (b"", 0.0)
    served: list[Link] = field(factory=list[Link])
    served_broken: int = 0
    frames: asyncio.Queue[bytes] = field(factory=asyncio.Queue[bytes])
    broken: asyncio.Event = field(factory=asyncio.Event)
    link: Link | None = None

    async def connect(self) -> Link:
        """Connect, and start the link."""
        self.link = await self.carrier.connect(self.quota, self.make_host)
        self.broken.clear()
        self.link.start(self.frames.put_nowait, self.broken.set)
        return self.link

    async def asked(self, frame: bytes = b"") -> bytes:
        """Send a frame to the host, and return its answer."""
        assert self.link is not None
        self.link.send(frame or b"?")
        return await asyncio.wait_for(self.frames.get(), 30)

    async def host(self) -> str:
        """Return the name of the host."""
        return (await self.asked()).decode().removesuffix("?")

    def make_host(self, memory: bytes, age: float) -> Serve:
        """Begin to host."""
        self.hosted += 1
        self.memory = memory, age

        def serve(link: Link) -> None:
            self.served.append(link)
            link.start(lambda frame: link.send(self.name.encode() + frame), broken)

        def broken() -> None:
            self.served_broken += 1

        return serve


@asynccontextmanager
async def processes(directory: Path, count: int, tcp: bool = False) -> AsyncIterator[list[Process]]:
    """Connect some carriers; the first one becomes the host."""
    participants = [Process(f"p{number}", LocalCarrier(directory, tcp=tcp)) for number in range(count)]
    try:
        for participant in participants:
            await participant.connect()
            await participant.host()  # it served the link
        yield participants
    finally:
        for participant in reversed(participants):
            await participant.carrier.aclose("q")


def files(directory: Path) -> dict[str, int]:
    """Return the names and modes of the files in a directory."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


async def raw_stream(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the host's socket without a handshake."""
    address = Elections(directory).address("q")
    assert address is not None
    if address.port:
        return await asyncio.open_connection("127.0.0.1", address.port)
    return await asyncio.open_unix_connection(Elections(directory).socket_path(address))


# --- links --------------------------------------------------------------------------------------


@real_time
@both_sockets
async def test_the_first_hosts_all(directory: Path, tcp: bool) -> None:
    """The first process becomes the host, once; the others connect to it, and frames go both ways."""
    async with processes(directory, 3, tcp) as participants:
        assert [await participant.host() for participant in participants] == ["p0"] * 3
        assert [participant.hosted for participant in participants] == [1, 0, 0]
        assert len(participants[0].served) == 3


@real_time
@both_sockets
async def test_the_end_of_the_host_elects_another(directory: Path, tcp: bool) -> None:
    """When the host ends, all links break at both ends, and one of the others hosts the rest."""
    async with processes(directory, 4, tcp) as (first, *others):
        await first.carrier.aclose("q")
        for participant in (first, *others):
            await asyncio.wait_for(participant.broken.wait(), 30)
        assert first.served_broken == 4
        await asyncio.gather(*(participant.connect() for participant in others))
        assert len({await participant.host() for participant in others}) == 1
        assert sum(participant.hosted for participant in others) == 1


@real_time
async def test_garbage_breaks_only_its_connection(directory: Path) -> None:
    """A connection that sends garbage is closed, and is never served; the links of others stay."""
    async with processes(directory, 2) as (first, participant):
        for garbage in (b"GET / HTTP/1.1\r\n\r\n" * 10, GREETING + bytes(16 + 32), b"\xff" * 100_000):
            reader, writer = await raw_stream(directory)
            writer.write(garbage)
            assert GREETING.startswith((await asyncio.wait_for(_until_end(reader), 30))[:8])
            writer.close()
        assert await participant.host() == "p0"
        assert len(first.served) == 2


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:  # the host closed it with bytes unread
        return GREETING


@real_time
async def test_a_wrong_secret_is_refused_over_tcp(directory: Path) -> None:
    """A process that has the port and not the secret gets no link."""
    async with processes(directory, 1, tcp=True) as (first,):
        address = directory / "q.host"
        right = address.read_bytes()
        address.write_bytes(right[:17] + b"0" * 64 + right[81:])
        stranger = LocalCarrier(directory)
        with pytest.raises(ShareUnavailableError, match="does not answer"):
            await stranger.observe("q")
        assert len(first.served) == 1
        address.write_bytes(right)
        link = await stranger.observe("q")
        assert link is not None
        await stranger.aclose("q")


# --- election -----------------------------------------------------------------------------------


def died(directory: Path, tcp: bool = False) -> None:
    """Leave the files of a host that was killed."""
    elections = Elections(directory, tcp)
    elections.prepare()
    seat = elections.elect("q")
    assert seat is not None
    for descriptor in (seat._lock, seat._listening):
        forks.release(descriptor)
    seat.listener.close()
    os.close(seat._lock)


@real_time
@both_sockets
async def test_the_files_of_a_killed_host_are_replaced(directory: Path, tcp: bool) -> None:
    """A stale address, lock and socket do not keep a process from becoming the host."""
    died(directory, tcp)
    stale = files(directory).keys()
    async with processes(directory, 2) as participants:
        assert [await participant.host() for participant in participants] == ["p0", "p0"]
        assert files(directory).keys() & stale == {"q.election", "q.host"}


async def test_a_silent_host_is_replaced(directory: Path) -> None:
    """A process that holds the lock and accepts no handshake is replaced after `PATIENCE` ticks."""
    elections = Elections(directory)
    elections.prepare()
    stopped = elections.elect("q")  # it listens, and never accepts
    assert stopped is not None
    began = asyncio.get_running_loop().time()
    async with processes(directory, 2) as participants:
        assert asyncio.get_running_loop().time() - began == pytest.approx(PATIENCE, abs=0.5)
        assert [await participant.host() for participant in participants] == ["p0", "p0"]
        assert not stopped.valid()
        stopped.release()  # it wakes up: the files of its successor stay
        assert await participants[1].host() == "p0"
        late = Process("late", LocalCarrier(directory))
        await late.connect()
        assert await late.host() == "p0"
        await late.carrier.aclose("q")


async def test_a_host_that_wakes_up_answers_nothing(directory: Path) -> None:
    """A host that was stopped and replaced drops what arrived meanwhile."""
    async with processes(directory, 2) as (first, participant):
        elections, loop = Elections(directory), asyncio.get_running_loop()
        successor = elections.elect("q", instead_of=elections.address("q"))
        assert successor is not None
        assert participant.link is not None
        participant.link.send(b"?")
        loop.jump(60)  # type: ignore[attr-defined]
        await participant.broken.wait()
        assert participant.frames.empty()
        assert first.carrier._hosts["q"].check() is False
        successor.release()


async def test_an_election_that_never_ends_is_reported(directory: Path) -> None:
    """A process that holds the lock of the election makes connecting fail, with the directory in the text."""
    elections = Elections(directory)
    elections.prepare()
    with elections._election("q") as entered:
        assert entered
        with pytest.raises(ShareUnavailableError, match=f"(?s)stopped or busy.*{directory}"):
            await LocalCarrier(directory).connect("q", Process("p", LocalCarrier(directory)).make_host)


@real_time
@both_sockets
@pytest.mark.parametrize("first", [True, False], ids=["as the host", "as a participant"])
async def test_connecting_can_be_cancelled_at_any_moment(directory: Path, tcp: bool, first: bool) -> None:
    """A call that is cancelled after any number of steps leaves nothing open, and no lock."""
    async with processes(directory, 0 if first else 1, tcp):
        for steps in range(1, 12):
            participant = Process("p", LocalCarrier(directory, tcp=tcp))
            task = asyncio.create_task(participant.connect())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await participant.carrier.aclose("q")
            await asyncio.sleep(0)
            assert len(files(directory)) == (1 if first else 4 - tcp)
    async with processes(directory, 2, tcp) as participants:
        assert [await participant.host() for participant in participants] == ["p0", "p0"]


async def test_another_version_is_reported(directory: Path) -> None:
    """A host of another version is not replaced: the error names both versions."""
    elections = Elections(directory)
    elections.prepare()
    seat = elections.elect("q")
    assert seat is not None

    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING[:-1] + b"\x02" + bytes(48))
        writer.close()

    server = await asyncio.start_unix_server(greet, sock=seat.listener)
    participant = Process("p", LocalCarrier(directory))
    with pytest.raises(ShareUnavailableError, match=r"version 2 .* version 1"):
        await participant.connect()
    await asyncio.sleep(0.1)
    server.close()
    seat.release()


# --- observers, memory --------------------------------------------------------------------------


async def test_an_observer_never_hosts(directory: Path) -> None:
    """An observer reaches a host; without one, or after it was killed, it gets None."""
    observer = LocalCarrier(directory)
    assert observer.names() == []
    assert await observer.observe("q") is None
    async with processes(directory, 1) as (first,):
        assert observer.names() == ["q"]
        link = await observer.observe("q")
        assert link is not None
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        link.start(answers.put_nowait, lambda: None)
        link.send(b"?")
        assert await answers.get() == b"p0?"
        await observer.aclose("q")
        assert len(first.served) == 2
    assert observer.names() == []
    died(directory)
    assert observer.names() == ["q"]
    assert await observer.observe("q") is None


async def test_memory_that_cannot_be_written_is_dropped(directory: Path) -> None:
    """A full disk, or whatever refuses the file, does not end the host."""
    async with processes(directory, 1) as (first,):
        (directory / "q.draft").mkdir()
        first.carrier.store("q", b"learned")
        assert await first.host() == "p0"


# --- files --------------------------------------------------------------------------------------


async def test_names_are_no_paths(directory: Path) -> None:
    """A name that could leave the directory is refused."""
    carrier = LocalCarrier(directory)
    for name in ("", "../q", "a b", "x" * 65, "a.b"):
        with pytest.raises(ConfigurationError, match="letters, digits"):
            await carrier.connect(name, Process("p", carrier).make_host)
    assert files(directory.parent) == {}


async def test_a_secret_is_in_no_text(directory: Path) -> None:
    """The address of a host shows its secret neither in its text nor in that of its place."""
    elections = Elections(directory)
    elections.prepare()
    seat = elections.elect("q")
    assert seat is not None
    assert seat.address.secret.hex() not in repr(seat)
    assert repr(seat.address.secret) not in repr(seat)
    seat.release()


# --- forks --------------------------------------------------------------------------------------


def test_held_descriptors_are_dropped() -> None:
    """A held socket ends for its peer; a number that belongs to another file meanwhile is left alone."""
    held, peer = socket.socketpair()
    other, other_peer = socket.socketpair()
    with held, peer, other, other_peer:
        before = dict(forks._held)
        forks._held.clear()
        forks.hold(held.fileno())
        forks._held[other.fileno()] = (0, 0)  # another file had this number
        forks._held[10_000] = (0, 0)  # closed
        forks.drop()
        assert peer.recv(1) == b""
        other.send(b"x")
        assert other_peer.recv(1) == b"x"
        assert not forks._held
        forks._held.update(before)
