"""Quota that several machines share over Redis (extra ``redis``).

The host processes of the machines elect one of them: it holds a lock in Redis, with a lease, and the gate.
The others are its guests, and pass the frames of their sessions on to it. They publish packets to channels of
one another. Others may publish there too, and Redis forgets what nobody receives: so packets are authentic
and numbered (`chainapi.core.share.packets`), and a missing one breaks the link.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field
from msgspec import DecodeError
from msgspec.msgpack import Decoder, Encoder
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from chainapi.core.share.messages import Denied, Remote, encode
from chainapi.core.share.packets import (
    NONCE,
    GapError,
    Kind,
    Packet,
    PacketLink,
    quota_key,
    seal,
    seal_memory,
    unseal,
    unseal_memory,
)
from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share.host import Host
from chainapi.share.link import Ends, linked_pair

if TYPE_CHECKING:
    from chainapi.share.link import Link

__all__ = ["Machine", "address_of"]

DRIFT = 0.1  # part of a lease by which the clocks of host and Redis may differ at its end
KEEP = 7 * 86_400  # seconds: what was learned of a quota is of no use after so long without a process
MAX_UNCONFIRMED = 1_024  # links without a packet of the guest: replayed requests for links make such ones
MAX_UNSENT = 16_777_216  # bytes for one machine that Redis did not take yet

# What to do after an error of Redis. Its text is never shown: it may have the password.
_ADVICE: list[tuple[type[Exception], str]] = [
    (exceptions.BusyLoadingError, "it is still loading its data: try again later"),
    (
        exceptions.AuthenticationError,
        "it wants another user name or password: correct the URL, redis://USER:PASSWORD@HOST",
    ),
    (exceptions.NoPermissionError, "the user lacks a permission: grant those that docs/processes.md lists"),
    (exceptions.ReadOnlyError, "it is a replica: put the address of the primary into the URL"),
    (
        exceptions.MasterDownError,
        "it is a replica without its primary: put the address of the primary into the URL",
    ),
    (
        exceptions.MovedError,
        "another node of the cluster has the keys: put the address of that node into the URL",
    ),
    (exceptions.OutOfMemoryError, "its memory is full: raise its maxmemory"),
    (exceptions.InvalidResponse, "it sent something else than Redis does: correct the URL"),
    (exceptions.ResponseError, "it refused a command: look into its log"),
    (exceptions.ConnectionError, "it cannot be reached, or ended: start it, or correct the URL"),
]

_Entry: TypeAlias = tuple[int, bytes | None]  # number of a session, and its frame: empty begins, None ends
_WHOLE = 0  # number of no session: of the whole link
_ENCODER = Encoder()
_ENTRIES: Decoder[list[_Entry]] = Decoder(list[_Entry])


def address_of(url: str) -> str:
    """Return where a URL leads, without its credentials.

    Raises:
        ConfigurationError: the URL is malformed.

    """
    # Raised outside of the handler: errors of redis-py repeat parts of the URL.
    refused = ""
    try:
        connection: Any = _client(url, 1.0).connection_pool.make_connection()  # type: ignore[no-untyped-call]
        return str(getattr(connection, "path", "") or f"{connection.host}:{connection.port}")
    except (TypeError, ValueError, OSError, exceptions.RedisError) as error:
        refused = type(error).__name__
    raise ConfigurationError(
        f"the URL of Redis is malformed, or has an option that redis-py refuses ({refused}): "
        "use redis://USER:PASSWORD@HOST:PORT/DB, rediss://... or unix://PATH"
    )


def _client(url: str, timeout: float) -> Redis:
    """Return a client that never connects again: messages would be missing."""
    never = Retry(NoBackoff(), 0)
    return Redis.from_url(
        url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=never,
        client_name="chainapi",
        protocol=2,
    )


def _lease_clock() -> float:
    """Return the time of the event loop, plus the time that the machine was suspended.

    Redis counts a lease while this machine sleeps; the clock of an event loop stops.
    """
    suspended = 0.0
    if sys.platform == "linux":
        suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return asyncio.get_running_loop().time() + suspended


class Machine:
    """Part of this machine in one quota, for as long as it has sessions.

    Args:
        name: name of the quota.
        remote: the server.
        hosts: whether this machine may become the host.

    """

    def __init__(self, name: str, remote: Remote, *, hosts: bool = True) -> None:
        self._name, self._remote, self._hosts = name, remote, hosts
        self._numbers = count(_WHOLE + 1)
        self._sessions: dict[int, Link] = {}
        self._early: list[_Entry] = []  # from before the term
        self._term: _Term | None = None
        self._task: asyncio.Task[None] | None = None

    def serve(self, link: Link, first: bytes = b"") -> None:
        """Pass the frames of a session on to the host, beginning with `first`, and back."""
        number = next(self._numbers)
        self._sessions[number] = link
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        self._forth(number, b"")
        if first:
            self._forth(number, first)
        link.start(partial(self._forth, number), partial(self._forth, number, None))

    async def observe(self) -> Link | None:
        """Return a link to the host; None if no machine hosts.

        Raises:
            ShareUnavailableError: Redis cannot be reached.

        """
        try:
            if not await _Term(self._name, self._remote, self.back).hosted():
                return None
        except exceptions.RedisError as error:
            raise ShareUnavailableError(self._explained(error)) from None
        return self.connect()

    def connect(self) -> Link:
        """Return a link to the host, for a session of this event loop."""
        near, far = linked_pair()
        self.serve(far)
        return near

    async def aclose(self) -> None:
        """Leave the quota, and break the links of all sessions."""
        if self._task is not None:
            self._leave(self._task)
            await asyncio.wait([self._task])

    def back(self, number: int, frame: bytes | None) -> None:
        """Send a frame of the host to a session, or with None end its link."""
        if frame is None:
            if (link := self._sessions.pop(number, None)) is not None:
                link.close()
        elif (session := self._sessions.get(number)) is not None:
            session.send(frame)

    def _forth(self, number: int, frame: bytes | None) -> None:
        if self._term is None:
            self._early.append((number, frame))
        else:
            self._term.take(number, frame)
        if frame is None:
            self._sessions.pop(number, None)
            if not self._sessions and self._task is not None:
                self._leave(self._task)

    def _leave(self, task: asyncio.Task[None]) -> None:
        if self._term is not None:
            self._term.end()
        else:
            task.cancel()

    async def _run(self) -> None:
        """Take part for one term; then the links of all sessions break."""
        reason = ""
        try:
            await _Term(self._name, self._remote, self.back).run(self._began, hosts=self._hosts)
        except exceptions.RedisError as error:
            reason = self._explained(error)
        except ShareUnavailableError as error:
            reason = str(error)
        finally:
            self._task = self._term = None
            self._early.clear()
            sessions, self._sessions = self._sessions, {}
            for link in sessions.values():
                if reason:
                    link.send(encode([Denied(reason[:1024], again=True)]))
                link.close()

    def _began(self, term: _Term) -> None:
        self._term = term
        early, self._early = self._early, []
        for number, frame in early:
            term.take(number, frame)
        if not self._sessions:
            term.end()

    def _explained(self, error: exceptions.RedisError) -> str:
        where = address_of(self._remote.url)
        if isinstance(error, exceptions.TimeoutError):
            return (
                f"Redis at {where} did not answer within {self._remote.timeout:g} s: look whether it runs,"
                " and whether this machine can reach it"
            )
        advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "look into its log")
        return f"Redis at {where} cannot be used ({type(error).__name__}): {advice}"


@define(eq=False)
class _Peer:
    """Another machine, and what to send to it."""

    packets: PacketLink
    channel: str
    heard: float
    confirmed: bool = False  # whether it sent a packet
    sent: float = -inf
    outbox: list[_Entry] = field(factory=list[_Entry])
    unsent: int = 0  # bytes in the outbox

    def post(self, number: int, frame: bytes | None) -> bool:
        """Send a frame with all others of this moment; False if too many wait."""
        self.outbox.append((number, frame))
        self.unsent += len(frame or b"")
        return self.unsent <= MAX_UNSENT

    def packet(self, now: float) -> bytes:
        """Return the next packet, with all that waits; it may be a keep-alive."""
        entries, self.outbox = self.outbox, []
        self.unsent, self.sent = 0, now
        return self.packets.seal(_ENCODER.encode(entries))


class _Term:
    """Time in which this machine is the host, or the guest of one host.

    Args:
        name: name of the quota.
        remote: the server.
        back: sends a frame to a session of this machine.

    """

    def __init__(self, name: str, remote: Remote, back: Callable[[int, bytes | None], None]) -> None:
        self._base = f"{remote.prefix}:{{{name}}}:"  # the braces keep all keys on one node of a cluster
        self._key = quota_key(remote.secret, name)
        self._remote, self._to_session = remote, back
        self._me = os.urandom(NONCE).hex()
        self._redis = _client(remote.url, remote.timeout)
        self._inbox = self._redis.pubsub()
        self._lock = Lock(self._redis, self._base + "host", timeout=remote.ttl, blocking=False)
        self._candidate = False  # whether it may have the lock
        self._beat = min(remote.ttl, remote.silence) / 4  # seconds between keep-alives
        self._over = asyncio.Event()
        self._peers: dict[bytes, _Peer] = {}  # by the name of the link
        self._outgoing: dict[_Peer, None] = {}  # those to which there is something to send
        self._unsent = asyncio.Event()
        self._memory: bytes | None = None  # to be stored
        self._lease_ends = -inf
        self._gate: Host | None = None  # while this machine is the host
        self._ends = Ends[tuple[bytes, int]](self._from_gate)  # by link and session; b"" is this machine

    async def run(self, began: Callable[[_Term], None], *, hosts: bool) -> None:
        """Become the host or a guest, call `began`, and serve until that is over.

        Raises:
            RedisError: Redis cannot be reached, or refused a command.
            ShareUnavailableError: the host does not answer.

        """
        async with self._redis, self._inbox:
            try:
                await self._inbox.subscribe(self._channel(self._me))
                await self._inbox.get_message(timeout=self._remote.timeout)  # from now on packets arrive
                await self._elect(hosts=hosts)
                began(self)
                await self._work()
            except exceptions.TimeoutError:
                self._candidate = False  # to give up the lock would take as long again
                raise
            finally:
                await self._leave()

    async def hosted(self) -> bool:
        """Return whether a machine is the host."""
        async with self._redis:
            held = await self._get("host") or b"nobody"
            [(_, listeners)] = await self._redis.pubsub_numsub(self._channel(held.decode("latin-1")))
            return bool(listeners)

    def end(self) -> None:
        """Leave the quota soon."""
        if self._gate is not None and self._serves():
            self._gate.save()
        self._over.set()

    def take(self, number: int, frame: bytes | None) -> None:
        """Take a frame of a session of this machine."""
        if not self._serves():
            return
        if self._gate is not None:
            self._deliver(b"", number, frame)
        else:
            for host in [*self._peers.values()]:  # one, unless it was just lost
                self._post(host, number, frame)

    # --- election -------------------------------------------------------------------------------

    async def _elect(self, *, hosts: bool) -> None:
        loop = asyncio.get_running_loop()
        self._candidate = hosts
        until = loop.time() + 2 * max(self._remote.ttl, self._remote.silence)
        while loop.time() < until:
            asked = _lease_clock()
            if hosts and await self._lock.acquire(token=self._me):
                self._renewed(asked)
                await self._begin_gate()
                return
            held = await self._get("host")
            if held is not None and await self._open(held.decode("latin-1")):
                return
        raise ShareUnavailableError(
            "the machine that hosts the quota does not answer over Redis: look whether it uses the same"
            " secret, and the same version of chainapi"
        )

    async def _begin_gate(self) -> None:
        """Begin as the host, with what the last one has learned."""
        memory = await self._get("memory") or b""
        left = await self._redis.pttl(self._base + "memory") / 1_000
        self._gate = Host(unseal_memory(self._key, memory), max(0.0, KEEP - left), store=self._store)

    async def _open(self, host: str) -> bool:
        """Open a link to a host; False if it ended, or does not answer within a beat."""
        nonce = os.urandom(NONCE)
        request = Packet(Kind.OPEN, nonce + bytes(NONCE), 0, self._me.encode())
        if not await self._redis.publish(self._channel(host), seal(self._key, request)):
            with suppress(exceptions.LockError):  # it ended, or lost its connection and serves nobody
                await self._lock.do_release(host.encode("latin-1"))
            return False
        loop = asyncio.get_running_loop()
        until = loop.time() + self._beat
        while (left := until - loop.time()) > 0:
            packet = await self._packet(left)
            if packet is not None and packet.kind is Kind.TO_GUEST and packet.link[:NONCE] == nonce:
                peer = self._add(packet.link, host, hosts=False)
                return peer.packets.accept(packet)
        return False

    def _accept(self, packet: Packet) -> None:
        """Open a link for a guest."""
        unconfirmed = sum(not peer.confirmed for peer in self._peers.values())
        if self._gate is not None and unconfirmed < MAX_UNCONFIRMED:
            name = packet.link[:NONCE] + os.urandom(NONCE)
            peer = self._add(name, packet.payload[: 2 * NONCE].decode("latin-1"), hosts=True)
            self._send(peer)

    def _add(self, link: bytes, machine: str, *, hosts: bool) -> _Peer:
        now = asyncio.get_running_loop().time()
        peer = self._peers[link] = _Peer(
            PacketLink(self._key, link, hosts=hosts), self._channel(machine), now
        )
        return peer

    # --- frames ---------------------------------------------------------------------------------

    def _serves(self) -> bool:
        """Return whether frames may pass: not from a host whose lease may have ended."""
        if self._gate is not None and _lease_clock() >= self._lease_ends:
            self._over.set()
        return not self._over.is_set()

    def _deliver(self, link: bytes, number: int, frame: bytes | None) -> None:
        """Hand a frame to the gate of this machine."""
        if frame == b"" and self._gate is not None:
            self._gate.serve(self._ends.add((link, number)))
        else:
            self._ends.receive((link, number), frame)

    def _from_gate(self, key: tuple[bytes, int], frame: bytes | None) -> bool:
        link, number = key
        if not self._serves():
            return False
        if not link:
            self._to_session(number, frame)
            return True
        return link in self._peers and self._post(self._peers[link], number, frame)

    def _post(self, peer: _Peer, number: int, frame: bytes | None) -> bool:
        if not peer.post(number, frame):
            self._lose(peer)
            return False
        self._send(peer)
        return True

    def _send(self, peer: _Peer) -> None:
        self._outgoing[peer] = None
        self._unsent.set()

    def _lose(self, peer: _Peer) -> None:
        """End the link to a machine, and inform it."""
        self._peers.pop(peer.packets.name, None)
        if self._gate is None:
            self._over.set()
        for (link, _), end in [*self._ends.items()]:
            if link == peer.packets.name:
                end.snap()
        peer.outbox.clear()
        peer.post(_WHOLE, None)
        self._send(peer)

    def _read(self, packet: Packet) -> None:
        if packet.kind is Kind.OPEN:
            self._accept(packet)
        elif (peer := self._peers.get(packet.link)) is not None:
            self._read_from(peer, packet)

    def _read_from(self, peer: _Peer, packet: Packet) -> None:
        try:
            if not peer.packets.accept(packet):
                return
            entries = _ENTRIES.decode(packet.payload)
        except (GapError, DecodeError):
            self._lose(peer)
            return
        peer.heard, peer.confirmed = asyncio.get_running_loop().time(), True
        for number, frame in entries:
            if number == _WHOLE:
                self._lose(peer)
            elif self._gate is None:
                self._to_session(number, frame)
            else:
                self._deliver(packet.link, number, frame)

    # --- what runs for the whole term ------------------------------------------------------------

    async def _work(self) -> None:
        parts = (self._receive(), self._publish(), self._tick())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.end()  # redis-py may swallow the cancellation of a task
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _receive(self) -> None:
        while not self._over.is_set():
            packet = await self._packet(self._beat)
            if packet is not None and self._serves():
                self._read(packet)

    async def _packet(self, seconds: float) -> Packet | None:
        """Return the next packet; None after `seconds` without one, or for a forged one."""
        message = await self._inbox.get_message(ignore_subscribe_messages=True, timeout=seconds)
        return None if message is None else unseal(self._key, message["data"])

    async def _publish(self) -> None:
        while not self._over.is_set():
            await self._unsent.wait()
            self._unsent.clear()
            await self._flush()

    async def _flush(self) -> None:
        """Send what waits, one packet to each machine, in one round trip."""
        now = asyncio.get_running_loop().time()
        peers, self._outgoing = [*self._outgoing], {}
        pipe = self._redis.pipeline(transaction=False)
        for peer in peers:
            pipe.publish(peer.channel, peer.packet(now))
        if self._memory is not None:
            memory, self._memory = seal_memory(self._key, self._memory), None
            pipe.set(self._base + "memory", memory, ex=KEEP)
        answers = await pipe.execute(raise_on_error=False)
        for peer, receivers in zip(peers, answers, strict=False):  # the memory may have one more
            if isinstance(receivers, Exception):
                raise receivers
            if not receivers and peer.packets.name in self._peers:
                self._lose(peer)

    async def _tick(self) -> None:
        """Renew the lease, and look after the links."""
        loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._beat):
                    await self._over.wait()
                    return
            if self._gate is not None and not await self._renew():
                return
            for peer in [*self._peers.values()]:
                if loop.time() - peer.heard > self._remote.silence:
                    self._lose(peer)
                elif loop.time() - peer.sent >= self._beat / 2:
                    self._send(peer)

    # --- the lock -------------------------------------------------------------------------------

    async def _renew(self) -> bool:
        """Renew the lease; return False if another machine has the lock, or none."""
        asked = _lease_clock()
        try:
            await self._lock.reacquire()
        except exceptions.LockError:
            return False
        self._renewed(asked)
        return True

    def _renewed(self, asked: float) -> None:
        # Redis counts from when it grants the lease, which is later: so the host stops first.
        self._lease_ends = asked + self._remote.ttl * (1 - DRIFT)

    def _store(self, memory: bytes, _: float) -> None:
        self._memory = memory
        self._unsent.set()

    async def _leave(self) -> None:
        """Let another machine take over, and inform the guests."""
        for end in [*self._ends.values()]:
            end.snap()
        with suppress(exceptions.RedisError, TimeoutError):
            async with asyncio.timeout(self._remote.timeout):
                await self._flush()
                if self._candidate:
                    with suppress(exceptions.LockError):
                        await self._lock.do_release(self._me.encode())
                for peer in [*self._peers.values()]:
                    self._lose(peer)
                await self._flush()

    async def _get(self, key: str) -> bytes | None:
        found = await self._redis.get(self._base + key)
        return found if isinstance(found, bytes) else None

    def _channel(self, machine: str) -> str:
        return f"{self._base}to:{machine}"
