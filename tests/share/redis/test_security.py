"""Packets over Redis that others forge, repeat or lose, and hosts whose lock is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from chainapi.core.share.messages import Hello, Watch
from chainapi.core.share.packets import NONCE, Kind, Packet, PacketLink, quota_key, seal, unseal
from chainapi.errors import ShareUnavailableError
from chainapi.share.registry import observable
from chainapi.share.watch import Observer
from tests.raw_server import let_pass, settle, until
from tests.share.redis.processes import Process, connected, processes
from tests.share.redis.server import RedisServer

pytestmark = [pytest.mark.real_time, pytest.mark.rule]


class Attacker:
    """Client of the server that reads and writes what the machines of a quota do."""

    def __init__(self, redis: Redis, name: str) -> None:
        self.redis, self.base = redis, f"chainapi:{{{name}}}:"

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str, name: str) -> AsyncIterator[Attacker]:
        """Return a client, closed at the end."""
        async with Redis.from_url(url, protocol=2) as redis:
            yield cls(redis, name)

    async def host(self) -> str:
        """Return the channel of the host."""
        held = await self.redis.get(self.base + "host")
        assert isinstance(held, bytes)
        return f"{self.base}to:{held.decode()}"

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[asyncio.Queue[bytes]]:
        """Return what is published to a channel from now on."""
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        async with self.redis.pubsub() as inbox:
            await inbox.subscribe(channel)
            await inbox.get_message(timeout=10.0)

            async def listen() -> None:
                while True:
                    message = await inbox.get_message(ignore_subscribe_messages=True, timeout=10.0)
                    if message is not None:
                        heard.put_nowait(message["data"])

            task = asyncio.create_task(listen())
            try:
                yield heard
            finally:
                task.cancel()
                await asyncio.wait([task])


async def test_an_abandoned_election(own_server: RedisServer, name: str) -> None:
    """A machine whose last session left while it was elected does not keep the quota."""
    async with processes(2, own_server.url, name, ttl=2.0) as (abandoning, other):
        own_server.pause()
        waiting = asyncio.create_task(abandoning.connect())
        await settle()
        waiting.cancel()
        leaving = asyncio.create_task(abandoning.aclose())
        await settle()
        own_server.resume()
        await asyncio.wait([waiting, leaving])
        assert (await (await other.connect()).state()).processes == 1


async def test_an_observer_never_becomes_the_host(url: str, name: str) -> None:
    """An observer reads the state of the host, and finds none without one or after its end."""
    carrier = observable(url)
    async with Attacker.at(url, name) as attacker, processes(1, url, name, secret=b"s") as (host,):
        assert await carrier.observe(name, b"s") is None
        await host.connect()
        link = await carrier.observe(name, b"s")
        assert link is not None
        snapshot = await Observer(link, "observer", lambda: 7.0, name).snapshot()
        assert (snapshot.unix_time, snapshot.waiting) == (7.0, 0)
        await host.aclose()
        assert await carrier.observe(name, b"s") is None
        await attacker.redis.set(attacker.base + "host", "0" * 32)
        assert await carrier.observe(name, b"s") is None
        await carrier.aclose(name)


async def test_a_lock_of_something_else_counts_for_none(url: str, name: str) -> None:
    """A machine is elected although the lock has a value that no machine listens for."""
    for number, value in enumerate((b"", b"garbage", b"g" * 32, b"0" * 32, b"\xff\x00")):
        quota = f"{name}{number}"
        async with Attacker.at(url, quota) as attacker, processes(1, url, quota) as (process,):
            await attacker.redis.set(attacker.base + "host", value)
            assert (await (await process.connect()).state()).processes == 1


async def test_forged_memory_is_not_used(url: str, name: str) -> None:
    """Memory that was changed without the secret does not reach the next host."""
    async with Attacker.at(url, name) as attacker, processes(2, url, name, secret=b"s") as (one, other):
        await one.connect(stopped=100.0)
        await one.aclose()
        assert (await (await other.connect()).state()).stopped > 90.0
        await other.aclose()
        await attacker.redis.set(attacker.base + "memory", b"forged memory, long enough for a MAC", ex=100)
        assert (await (await one.connect()).state()).stopped == 0.0


async def test_a_host_whose_lock_is_gone_ends(url: str, name: str) -> None:
    """A host that finds another's lock, or none, breaks all of its links."""
    async with Attacker.at(url, name) as attacker, processes(2, url, name, ttl=1.0) as (host, guest):
        own, end = await connected(host, guest)
        await attacker.redis.delete(attacker.base + "host")
        await own.broken.wait()
        await end.broken.wait()
        assert (await (await guest.connect()).state()).processes == 1


async def test_a_host_stops_by_its_own_clock(own_server: RedisServer, name: str) -> None:
    """A host that cannot renew its lock answers nothing after Redis would give it to another."""
    async with processes(1, own_server.url, name, ttl=0.4, timeout=0.6) as (host,):
        end = await host.connect()
        own_server.pause()
        await end.broken.wait()
        own_server.resume()


async def test_a_host_that_hangs_serves_no_frame_that_waited(url: str, name: str) -> None:
    """When the loop of a host stood still beyond its lock, it serves no frame that waited."""
    async with processes(1, url, name, ttl=5.0) as (host,):
        end = await host.connect()
        while not end.messages.empty():
            end.messages.get_nowait()
        end.send(Watch())
        let_pass(6.0)
        await end.broken.wait()
        assert end.messages.empty()


async def test_memory_that_is_not_stored_breaks_no_link(own_server: RedisServer, name: str) -> None:
    """A Redis without room for what a host learned passes messages on."""
    async with processes(2, own_server.url, name) as (host, guest):
        own, end = await connected(host, guest)
        own_server.command("CONFIG", "SET", "maxmemory", "1")
        await guest.connect(stopped=100.0)  # which the host is to store at once
        refusals = "return string.match(redis.call('INFO', 'errorstats'), 'OOM:count=(%d+)') or '0'"
        await until(lambda: own_server.command("EVAL", refusals, "0") != "0")
        for _ in range(3):  # each goes to the host and back
            assert (await end.state()).stopped > 90.0
        assert not own.broken.is_set()
        assert own_server.command("EXISTS", f"chainapi:{{{name}}}:memory") == ":0"


async def test_redis_that_does_not_read(own_server: RedisServer, name: str) -> None:
    """A link breaks when more than 16 MiB waits for Redis to take it."""
    async with processes(2, own_server.url, name) as (host, guest):
        _, end = await connected(host, guest)
        own_server.pause()
        while not end.broken.is_set():
            end.link.send(bytes(2_000_000))
            await asyncio.sleep(0)
        own_server.resume()


async def test_forged_packets_are_dropped(url: str, name: str) -> None:
    """Without the secret nobody sends a frame on a link, opens one, or breaks one."""
    async with Attacker.at(url, name) as attacker, processes(2, url, name, secret=b"s") as (host, guest):
        await host.connect()
        to_host = await attacker.host()
        async with attacker.listening(to_host) as heard:
            end = await guest.connect()
            request, frame = [await heard.get() for _ in range(2)]
        for key in (quota_key(b"", name), quota_key(b"wrong", name)):
            for packet in (unseal(quota_key(b"s", name), one) for one in (request, frame)):
                assert packet is not None
                for number in range(4):
                    forged = packet._replace(number=number, payload=b"\x91\x92\x00\xc0")
                    assert await attacker.redis.publish(to_host, seal(key, forged)) == 1
        for noise in (b"", b"noise", bytes(100)):
            await attacker.redis.publish(to_host, noise)
        assert (await end.state()).processes == 2


async def test_a_forged_host_is_not_believed(own_server: RedisServer, name: str) -> None:
    """A machine with the lock but not the secret gets no link; the end of Redis ends the attempt too."""
    async with (
        Attacker.at(own_server.url, name) as attacker,
        processes(1, own_server.url, name, secret=b"s") as (guest,),
    ):
        await attacker.redis.set(attacker.base + "host", "0" * 32)
        waiting = await _answered_by_another(attacker, guest)
        own_server.stop()
        with pytest.raises(ShareUnavailableError, match="cannot be reached, or ended"):
            await waiting


async def _answered_by_another(attacker: Attacker, guest: Process) -> asyncio.Task[object]:
    """Answer the request of a guest without the secret; return the task that waits for a link."""
    async with attacker.listening(await attacker.host()) as heard:
        waiting = asyncio.create_task(guest.connect())
        request = unseal(quota_key(b"s", guest.name), await heard.get())
        assert request is not None
        inbox = f"{attacker.base}to:{request.payload.decode()}"
        for secret in (b"", b"wrong"):
            link = PacketLink(quota_key(secret, guest.name), request.link[:NONCE] + bytes(NONCE), hosts=True)
            assert await attacker.redis.publish(inbox, link.seal(b"\x90")) == 1
        await settle()
    return waiting


async def test_replayed_packets_are_dropped(url: str, name: str) -> None:
    """Packets that were sent before are served once, also on a link that they request again."""
    async with Attacker.at(url, name) as attacker, processes(2, url, name, secret=b"s") as (host, guest):
        own = await host.connect()
        to_host = await attacker.host()
        async with attacker.listening(to_host) as heard:
            end = await guest.connect()
            end.send(Hello(0, "of a former time"))  # which ends the link of the session
            await end.broken.wait()
            recorded = [await heard.get() for _ in range(3)]  # the request, the greeting, the second one
        again = await guest.connect()
        for _ in range(2):
            for packet in recorded:
                assert await attacker.redis.publish(to_host, packet) == 1
        assert (await again.state()).processes == (await own.state()).processes == 2


async def test_a_missing_packet_breaks_the_link(url: str, name: str) -> None:
    """A gap in the numbers breaks the link, and nothing behind it is served."""
    async with Attacker.at(url, name) as attacker, processes(2, url, name, secret=b"s") as (host, guest):
        own = await host.connect()
        to_host = await attacker.host()
        async with attacker.listening(to_host) as heard:
            end = await guest.connect()
            packet = [await heard.get() for _ in range(2)][1]
        key = quota_key(b"s", name)
        known = unseal(key, packet)
        assert known is not None
        assert known.kind is Kind.TO_HOST
        later = Packet(Kind.TO_HOST, known.link, known.number + 2, b"\x91\x92\x02\xc4\x00")
        await attacker.redis.publish(to_host, seal(key, later))
        await end.broken.wait()
        assert (await own.state()).processes == 1
        assert (await (await guest.connect()).state()).processes == 2
