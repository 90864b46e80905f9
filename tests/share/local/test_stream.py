"""Links over streams: frames, keep-alive, and ends that do not read or do not answer.

They meet over real socket pairs, in virtual time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from attrs import define, field

from chainapi.core.share.messages import MAX_FRAME, framed
from chainapi.share.link import Link
from chainapi.share.local.handshake import GREETING, Handshake, host_side, participant_side
from chainapi.share.local.stream import PATIENCE, QUIET, StreamLink

pytestmark = pytest.mark.rule

SECRET = b"s" * 32
TICK = 1.0


@define(eq=False)
class Reader:
    """Frames and the break that one end receives."""

    link: Link
    frames: asyncio.Queue[bytes] = field(factory=asyncio.Queue[bytes])
    broken: asyncio.Event = field(factory=asyncio.Event)
    calls: list[str] = field(factory=list[str])

    def __attrs_post_init__(self) -> None:
        self.link.start(self.receive, self.end)

    def receive(self, frame: bytes) -> None:
        """Keep a frame."""
        self.calls.append("frame")
        self.frames.put_nowait(frame)

    def end(self) -> None:
        """Note the end."""
        self.calls.append("broken")
        self.broken.set()


async def opened(sock: socket.socket, link: StreamLink) -> StreamLink:
    """Run a link over a socket."""
    sock.setblocking(False)
    await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=sock)
    return link


def participant_end() -> StreamLink:
    """Return the end of a participant."""
    return StreamLink(Handshake(participant_side(SECRET)), tick=TICK, host=False)


def host_end(active: Callable[[], bool] = lambda: True) -> StreamLink:
    """Return the end of a host."""
    return StreamLink(Handshake(host_side(SECRET)), tick=TICK, host=True, active=active)


@asynccontextmanager
async def linked(active: Callable[[], bool] = lambda: True) -> AsyncIterator[tuple[StreamLink, StreamLink]]:
    """Return the ends of a participant and of a host."""
    one, other = socket.socketpair()
    participant, host = await opened(one, participant_end()), await opened(other, host_end(active))
    try:
        assert await participant.opened
        assert await host.opened
        yield participant, host
    finally:
        participant.close()
        host.close()
        await asyncio.wait([participant.closed, host.closed])


@asynccontextmanager
async def facing(end: StreamLink) -> AsyncIterator[socket.socket]:
    """Return the raw socket that an end faces."""
    one, other = socket.socketpair()
    await opened(one, end)
    with other:
        other.setblocking(False)
        yield other
        end.close()
        await end.closed


async def greeted(raw: socket.socket) -> None:
    """Take part in the handshake of a host's end as a participant."""
    loop = asyncio.get_running_loop()
    participant = Handshake(participant_side(SECRET))
    reply, rest = participant.feed(b"")
    while rest is None:
        await loop.sock_sendall(raw, reply)
        reply, rest = participant.feed(await loop.sock_recv(raw, 1024))
    await loop.sock_sendall(raw, reply)


async def test_frames_before_the_start_come_first() -> None:
    """A frame that arrives while earlier ones wait for `start` is delivered after them, and then the end."""
    async with linked() as (participant, host):
        participant.send(b"1")
        await asyncio.sleep(0.1)
        reader = Reader(host)
        host.data_received(framed(b"2"))  # in the iteration that called `start`
        participant.send(b"3")
        participant.close()
        await reader.broken.wait()
        assert [reader.frames.get_nowait() for _ in range(3)] == [b"1", b"2", b"3"]
        assert reader.calls == ["frame"] * 3 + ["broken"]


async def test_a_reader_that_fails_breaks_the_link() -> None:
    """An error of the function that takes frames breaks the link, and goes to the loop's handler."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    async with linked() as (participant, host):
        other = Reader(participant)
        participant.send(b"1")
        await asyncio.sleep(0.1)

        def fail(_: bytes) -> None:
            raise ZeroDivisionError

        host.start(fail, lambda: None)
        await other.broken.wait()
    assert [type(error) for error in errors] == [ZeroDivisionError]


@pytest.mark.parametrize("frame", [b"", bytes(MAX_FRAME + 1)], ids=["empty", "too long"])
async def test_a_frame_that_cannot_be_sent_breaks_the_link(frame: bytes) -> None:
    """A frame that the other end would not accept breaks the link at both ends."""
    async with linked() as (participant, host):
        at_participant, at_host = Reader(participant), Reader(host)
        participant.send(frame)
        assert at_participant.calls == []
        await at_participant.broken.wait()
        await at_host.broken.wait()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n" * 9, bytes(200)])
async def test_garbage_instead_of_a_handshake_ends_the_stream(data: bytes) -> None:
    """An end that is sent garbage at the start ends the stream, and was never open."""
    async with facing(host_end()) as raw:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(raw, data)
        assert (await loop.sock_recv(raw, 100)).startswith(GREETING)
        assert await loop.sock_recv(raw, 1) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names the user at the other end of a socket")
async def test_a_process_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end ends the stream before the handshake if another user runs the other process."""
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    end = host_end()
    async with facing(end) as raw:
        assert await end.opened is False
        assert await asyncio.get_running_loop().sock_recv(raw, 1) == b""


async def test_an_oversized_frame_breaks_the_link() -> None:
    """A length beyond the limit breaks the link before the frame is there."""
    end = host_end()
    async with facing(end) as raw:
        await greeted(raw)
        reader = Reader(end)
        await asyncio.get_running_loop().sock_sendall(raw, framed(b"ok") + b"\xff\xff\xff\xff")
        await reader.broken.wait()
        assert reader.frames.get_nowait() == b"ok"


async def test_a_host_that_does_not_answer_is_given_up() -> None:
    """A participant breaks the link `QUIET` + `PATIENCE` ticks after the last byte, and reports silence."""
    async with linked() as (participant, host):
        loop = asyncio.get_running_loop()
        reader = Reader(participant)
        began = loop.time()
        host._transport.pause_reading()  # a host whose loop is blocked
        await reader.broken.wait()
        assert (QUIET + PATIENCE - 1) * TICK <= loop.time() - began <= (QUIET + PATIENCE) * TICK
        assert participant.silent


@pytest.mark.parametrize("make", [participant_end, host_end])
async def test_a_handshake_that_does_not_continue_is_given_up(make: Callable[[], StreamLink]) -> None:
    """An end waits `PATIENCE` ticks for the handshake, even if single bytes arrive."""
    end = make()
    async with facing(end) as raw:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(PATIENCE - 1):
            await loop.sock_sendall(raw, b"c")
            await asyncio.sleep(TICK)
        assert await end.opened is False
        assert loop.time() - began == pytest.approx(PATIENCE * TICK)
        assert end.silent


async def test_a_peer_that_does_not_read_is_given_up() -> None:
    """An end breaks after `PATIENCE` ticks in which the other one does not read."""
    async with linked() as (participant, host):
        reader, loop = Reader(host), asyncio.get_running_loop()
        participant._transport.pause_reading()
        began = loop.time()
        for _ in range(6):
            host.send(bytes(100_000))
        await reader.broken.wait()
        assert loop.time() - began == pytest.approx(PATIENCE * TICK)


async def test_unsent_bytes_are_bounded() -> None:
    """An end breaks at once when more than 16 MiB waits for a peer that does not read; a burst is less."""
    async with linked() as (participant, host):
        reader, loop = Reader(host), asyncio.get_running_loop()
        participant._transport.pause_reading()
        began = loop.time()
        for _ in range(15):
            host.send(bytes(1_000_000))
        assert host.open
        for _ in range(4):
            host.send(bytes(1_000_000))
        await reader.broken.wait()
        assert loop.time() == pytest.approx(began, abs=TICK / 2)


async def test_a_host_that_is_no_longer_active_uses_no_frame() -> None:
    """Frames that arrive at a host that was replaced are dropped, and break the link."""
    active = True
    async with linked(lambda: active) as (participant, host):
        at_host, at_participant = Reader(host), Reader(participant)
        active = False
        participant.send(b"acquire")
        await at_participant.broken.wait()
        await at_host.broken.wait()
        assert at_host.calls == ["broken"]


async def test_no_participant_is_accepted_by_a_host_that_is_no_longer_active() -> None:
    """A connection to a host that was replaced ends at once."""
    end = host_end(lambda: False)
    async with facing(end) as raw:
        assert await end.opened is False
        assert await asyncio.get_running_loop().sock_recv(raw, 1) == b""
