"""Part of a host process in quotas that several machines share over Redis.

Redis elects the host, by its clock, and passes packets between channels of the processes. Packets are
authentic, numbered, and never repeated; see docs/redis.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chainapi.core.share.messages import Remote
from chainapi.core.share.packets import quota_key
from chainapi.share.link import Link, Serve
from chainapi.share.redis.election import Election
from chainapi.share.redis.participant import Participant
from chainapi.share.redis.term import Times
from chainapi.share.redis.wire import Address, Wire

__all__ = ["RedisPeer"]


class RedisPeer:
    """Part of a process in the quotas of a Redis server.

    It hosts them, or reaches their hosts. It belongs to one event loop, and uses one connection for all
    quotas.

    Args:
        remote: the server, and the options of `RedisCarrier`.

    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._address = Address(remote.url)
        self._times = Times(remote.ttl, remote.silence, remote.timeout)
        self._participants: dict[str, Participant] = {}
        self._opening = asyncio.Lock()
        self._wire: Wire | None = None

    async def connect(self, name: str, make_host: Callable[[bytes, float], Serve]) -> Link:
        """Return a link to the host of a quota, elected among all peers.

        A peer that is elected calls `make_host` with the memory that Redis has (empty for none) and its age
        in seconds, and then the returned function with the host's end of each new link, its own among them.

        Raises:
            ShareUnavailableError: Redis or the host cannot be reached.

        """
        return await (await self._part(name)).connect(make_host)

    async def observe(self, name: str) -> Link | None:
        """Return a link to the host without becoming it; None if no process hosts."""
        return await (await self._part(name)).observe()

    def store(self, name: str, memory: bytes) -> None:
        """Store the memory of a quota for later hosts, if this peer hosts it."""
        if name in self._participants:
            self._participants[name].store(memory)

    async def aclose(self, name: str) -> None:
        """End this part in a quota; the connection is closed with the last one."""
        participant = self._participants.pop(name, None)
        if participant is not None:
            participant.end()
        async with self._opening:
            if self._wire is not None and not self._participants:
                wire, self._wire = self._wire, None
                await wire.aclose(self._times.timeout)

    async def _part(self, name: str) -> Participant:
        wire = await self._connected()
        participant = self._participants.get(name)
        if participant is None or participant.ended:
            participant = self._participants[name] = self._participant(wire, name)
        return participant

    def _participant(self, wire: Wire, name: str) -> Participant:
        election = Election(self._remote.prefix, name, self._times.ttl)
        return Participant(wire, election, quota_key(self._remote.secret, name), self._times)

    async def _connected(self) -> Wire:
        async with self._opening:
            if self._wire is None or self._wire.lost:
                wire = await Wire.open(self._address, self._times.timeout)
                wire.on_lost = self._lost
                self._wire = wire
            return self._wire

    def _lost(self) -> None:
        for participant in self._participants.values():
            participant.end()
