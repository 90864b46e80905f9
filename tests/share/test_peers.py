"""Peers that break the rules, of another version, or that hang: the others are not affected."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chainapi._limits import verdict as verdicts
from chainapi._limits.gate import Ask, Member
from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi.core.share.messages import (
    HOLDING,
    VERSION,
    Acquire,
    Answered,
    Denied,
    FromHost,
    FromParticipant,
    Granted,
    Hello,
    Holding,
    Join,
    Leave,
    State,
    Stopped,
    Verdict,
    Welcome,
    encode,
    limits_of,
    read_host_frame,
)
from chainapi.errors import ShareUnavailableError
from chainapi.share.host import Host
from chainapi.share.link import Link, linked_pair
from chainapi.share.participant import OnUnavailable, SharedGate
from chainapi.share.permits import SharedPermit

pytestmark = pytest.mark.rule

JOIN = Join(1, max_in_flight=100, timeout=20.0)  # with a cap of its own a session gets no permits in advance


class Peer:
    """Process at the other end of a link to a host."""

    def __init__(self, host: Host, *first: FromParticipant) -> None:
        self.link, far = linked_pair()
        host.serve(far)
        self.frames: list[bytes] = []
        self.broken = False
        self.link.start(self.frames.append, self._break)
        self.link.send(encode(first or [Hello(VERSION, "web:1"), JOIN]))

    def _break(self) -> None:
        self.broken = True

    async def after(self, *messages: FromParticipant) -> list[FromHost]:
        """Return what arrives after some messages, besides reports of the state."""
        await asyncio.sleep(0.001)
        self.frames.clear()
        self.link.send(encode(messages))
        await asyncio.sleep(0.001)
        return self.received

    @property
    def received(self) -> list[FromHost]:
        """Messages that arrived, besides reports of the state."""
        messages = [one for frame in self.frames for one in read_host_frame(frame)]
        return [one for one in messages if not isinstance(one, State)]


def response(permit: int, status: int = 200, left: float = 0.0, wait: float = 30.0) -> Answered:
    """Return the report of a response of a service with 100 requests a minute."""
    policies, again = (PolicyField(100.0, 60.0),), wait if status == 429 else None
    return Answered(permit, status, limits_of(RateLimitInfo(100.0, left, wait, again, policies)))


MISFITS: dict[str, tuple[FromParticipant, ...]] = {
    "a second Hello": (Hello(VERSION, "x"),),
    "session 9 did not join": (Acquire(1, 9, "/a"),),
    "session 8 did not join": (Holding(HOLDING, 8, "/a"),),
    "session 1 did not join": (Leave(1), Acquire(1, 1, "/a")),
    "session 1 joined already, with other settings": (Join(1, tag="new"),),
    "session 2 has an invalid limit: .*must be": (Join(2, rate=(0.0, 1.0, False, "")),),
    "session 3 has an invalid limit: .*must be": (Join(3, limits=((1.0, 0.0, False, ""),)),),
    "request 2 waits": (Acquire(1, 1, "/a"), Acquire(2, 1, "/a"), Acquire(2, 1, "/a")),
    f"permit {HOLDING} is held already": (Holding(HOLDING, 1, "/a"), Holding(HOLDING, 1, "/a")),
}


async def test_messages_that_do_not_fit_end_the_link_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The process gets the reason and loses all that it had; the others are served."""
    for reason, messages in MISFITS.items():
        host = Host()
        peer, other = Peer(host), Peer(host)
        (denied,) = [one for one in await peer.after(*messages) if isinstance(one, Denied)]
        assert re.match(reason, denied.reason), denied.reason
        assert peer.broken
        assert caplog.messages[-1] == f"a process was dropped from the shared quota: {denied.reason}"
        assert host.processes == 1
        assert await other.after(Acquire(1, 1, "/a")) == [Granted(1, 0)]


async def test_strangers_are_denied() -> None:
    """A link that begins without a greeting, with another version or noise is refused with the reason."""
    host = Host()
    strangers: list[tuple[list[FromParticipant], str]] = [
        ([JOIN, Hello(VERSION, "x")], "the first message has to be Hello"),
        ([Hello(VERSION + 1, "x"), JOIN], f"version {VERSION + 1} of the protocol, and the host has"),
    ]
    for first, reason in strangers:
        peer = Peer(host, *first)
        await asyncio.sleep(0.001)
        (denied,) = peer.received
        assert isinstance(denied, Denied)
        assert reason in denied.reason
    noisy = Peer(host)
    await noisy.after(Acquire(1, 1, "/a"), Acquire(2, 1, "/a"))
    noisy.link.send(b"\xc1")
    await asyncio.sleep(0.001)
    assert isinstance(noisy.received[-1], Denied)
    assert host.processes == 0
    assert (host.gate.snapshot().waiting, host.gate.snapshot().in_flight) == (0, 0)


async def test_failure_of_the_host_ends_the_link() -> None:
    """An unexpected error is not hidden, and the process may connect again instead of waiting for ever."""
    host = Host()
    errors: list[BaseException] = []
    peer = Peer(host, Hello(VERSION, "x"), Join(1))
    await asyncio.sleep(0.001)
    host.gate.acquire_now = None  # type: ignore[assignment, method-assign]
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    assert await peer.after(Acquire(1, 1, "/a")) == [Denied("the host failed at a message")]
    assert [type(error) for error in errors] == [TypeError]


async def test_permits_of_a_hung_process_end_after_its_timeout() -> None:
    """A permit is lost some seconds after the timeout of its session; a late refusal still stops all."""
    about_30: Any = pytest.approx(30.0, abs=0.01)
    host = Host()
    peer, other = Peer(host), Peer(host)
    assert await peer.after(Acquire(1, 1, "/a")) == [Granted(1, 0)]
    await asyncio.sleep(24.0)
    assert host.gate.snapshot().in_flight == 1
    await asyncio.sleep(10.0)
    assert host.gate.snapshot().in_flight == 0
    assert await peer.after(response(0, 429)) == [Verdict(0, verdicts.Verdict.QUOTA), Stopped(about_30)]
    assert other.received[-1] == Stopped(about_30)


class PlayedHost:
    """Carrier of one process, whose host the test plays."""

    def __init__(self) -> None:
        self.connections = 0
        self.link: Any = None
        self.welcomes = True
        self.failure: Exception | None = None

    patience = 2.0

    def remote(self, name: str, secret: bytes) -> None:
        """Return None: there are no other machines."""

    async def connect(self, name: str) -> Link:
        """Return a link to the host."""
        self.connections += 1
        if self.failure is not None:
            raise self.failure
        near, self.link = linked_pair()
        self.link.start(lambda _: None, lambda: None)
        if self.welcomes:
            self.link.send(encode([Welcome(VERSION)]))
        return near

    async def aclose(self, name: str) -> None:
        """End nothing."""


@asynccontextmanager
async def asking(
    host: PlayedHost, on_unavailable: OnUnavailable = "fail"
) -> AsyncIterator[asyncio.Task[SharedPermit]]:
    """Let a process ask for a permit, and leave at the end."""
    gate, member = SharedGate("quota", "https://data.test", host, on_unavailable), Member()
    gate.join(member)
    task = asyncio.create_task(gate.acquire(Ask("/a"), member))
    await asyncio.sleep(0.001)
    yield task
    task.cancel()
    gate.leave(member)
    await gate.aclose()


BROKEN = (b"\xc1", b"\x91\x92\x21\xa2\xff\xfe", encode([State(b"no snapshot")]), b"\x91\x93\x22\x01\xff")


async def test_malformed_frames_of_a_host_break_the_link(caplog: pytest.LogCaptureFixture) -> None:
    """After bytes that are no message a process connects again, with a pause, and warns."""
    for frame in BROKEN:
        host = PlayedHost()
        async with asking(host, "degrade"):
            host.link.send(frame)
            await asyncio.sleep(0.2)
            assert host.connections == 1
            await asyncio.sleep(0.1)
            assert host.connections == 2
            assert "the link to the host of the shared quota broke: malformed" in caplog.messages[-1]
            host.link.send(encode([Denied("you are not welcome")]))


async def test_a_denied_process_gets_the_reason() -> None:
    """A refusal by the host ends the link; the error of the call has the reason."""
    host = PlayedHost()
    host.welcomes = False
    async with asking(host) as task:
        while not task.done():
            await asyncio.sleep(0.26)
            host.link.send(encode([Denied("version 9 of the protocol")]))
        with pytest.raises(ShareUnavailableError, match="version 9 of the protocol"):
            task.result()
        assert 2 <= host.connections <= 12


async def test_a_carrier_that_raises_anything() -> None:
    """Whatever a carrier of the program raises is the reason for which calls fail."""
    host = PlayedHost()
    host.failure = KeyError("no route")
    async with asking(host) as task:
        with pytest.raises(ShareUnavailableError, match="the carrier failed: KeyError: 'no route'"):
            await task
        assert host.connections > 1


async def test_a_process_that_leaves_early_ends_its_link() -> None:
    """A process that leaves before the host has accepted it ends the link."""
    host = PlayedHost()
    host.welcomes = False
    async with asking(host):
        assert host.link.open
    await asyncio.sleep(0)
    assert not host.link.open
