"""Packets over Redis that others forge, repeat or lose, and hosts whose lock is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chainapi.core.share.packets import Kind, Packet, link_of, quota_key, seal
from chainapi.errors import ShareUnavailableError
from chainapi.share.redis.wire import Address, Wire
from tests.raw_server import let_pass, settle, until
from tests.share.redis.processes import End, Process, connected, processes
from tests.share.redis.server import RedisServer

pytestmark = [pytest.mark.real_time, pytest.mark.rule]


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


@pytest.mark.parametrize("late", [False, True])
async def test_a_cancelled_aclose_closes_the_connection(
    late: bool, url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever the close of the last quota is cancelled, the connection to Redis is closed."""
    async with processes(1, url, name) as (host,):
        await host.connect()
        wire = host.peer._wire
        assert wire is not None
        closing = asyncio.create_task(host.aclose())
        await settle(2)
        await until(lambda: wire.lost >= late)
        closing.cancel()
        await asyncio.wait([closing, wire._closed])
        await settle()
        assert (wire.lost, host.peer._wire, caplog.records) == (True, None, [])


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
        assert await observer.peer.observe(name) is None
        await host.connect()
        link = await observer.peer.observe(name)
        assert link is not None
        end = End(link)
        assert await end.ask(b"x") == b"echo x"
        await host.aclose()
        await end.broken.wait()
        await wire.request("SET", f"chainapi:{{{name}}}:host", f"7:{'0' * 32}")
        assert await observer.peer.observe(name) is None
        assert not observer.elections


LOCKS = ("", "garbage", "1:" + "g" * 32, "x:" + "0" * 32, f"{2**64}:{'0' * 32}", "1:0")


async def test_a_lock_of_something_else_counts_for_none(url: str, name: str) -> None:
    """A process is elected although the lock has a value that no version of the carrier writes."""
    for number, value in enumerate(LOCKS):
        quota = f"{name}{number}"
        async with redis(url) as wire, processes(1, url, quota) as (process,):
            for listener in ("", "0", "0" * 32, "g" * 32):
                await _listen(wire, f"chainapi:{{{quota}}}:to:{listener}".encode())
            await wire.request("SET", f"chainapi:{{{quota}}}:host", value)
            assert await process.peer.observe(quota) is None
            assert await (await process.connect()).ask(b"x") == b"echo x", value


async def test_a_last_term_of_something_else_counts_for_none(url: str, name: str) -> None:
    """One process is the host although the last term has a value that no version of the carrier writes."""
    for number, value in enumerate(("garbage", "-1", "inf", "nan", "1e300", str(2**53 + 1), "9" * 18)):
        quota = f"{name}{number}"
        async with redis(url) as wire, processes(2, url, quota) as (host, other):
            await wire.request("SET", f"chainapi:{{{quota}}}:term", value)
            _, end = await connected(host, other)
            assert await end.ask(b"x") == b"echo x", value
            assert not other.elections
            assert (await lock(wire, quota))[0] < 2**53


async def test_forged_memory_is_not_used(url: str, name: str) -> None:
    """Memory that was changed without the secret does not reach the next host."""
    async with redis(url) as wire, processes(2, url, name, secret=b"s") as (one, other):
        await one.connect()
        one.peer.store(name, b"memory")
        await one.aclose()
        await other.connect()
        assert other.elections[0][0] == b"memory"
        await other.aclose()
        await wire.request(
            "HSET", f"chainapi:{{{name}}}:memory", "data", b"forged memory, long enough for a MAC"
        )
        await one.connect()
        assert one.elections[1][0] == b""


async def test_a_host_whose_lock_is_gone_ends(url: str, name: str) -> None:
    """A host that finds another's lock, or none, breaks all of its links."""
    async with redis(url) as wire, processes(2, url, name, ttl=1.0) as (host, participant):
        own, end = await connected(host, participant)
        await wire.request("DEL", f"chainapi:{{{name}}}:host")
        await own.broken.wait()
        await end.broken.wait()
        assert await (await participant.connect()).ask(b"x") == b"echo x"


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


async def test_redis_that_does_not_read(own_server: RedisServer, name: str) -> None:
    """A connection breaks when more than 16 MiB waits for Redis to read it."""
    async with processes(2, own_server.url, name) as (host, participant):
        _, end = await connected(host, participant)
        own_server.pause()
        while not end.broken.is_set():
            end.link.send(bytes(2_000_000))
            await asyncio.sleep(0)
        own_server.resume()


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
        end.link._out._number += 1
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


PERMISSIONS = (
    "~chainapi:* &chainapi:* +hello +client|setname +select +ping +eval +publish +subscribe +unsubscribe "
    "+pubsub|numsub +get +set +del +pexpire +time +hmget +hset"
)
