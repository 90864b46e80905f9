"""Part of a host process in quotas that several machines share over Redis.

Redis elects the host, by its clock, and passes packets between channels of the processes. Packets are
authentic, numbered, and never repeated; see docs/redis.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from chainapi.core.extras import missing_extra
from chainapi.core.share.messages import Remote
from chainapi.core.share.packets import quota_key
from chainapi.share.link import Link, Serve

if TYPE_CHECKING:
    from chainapi.share.redis.participant import Participant
    from chainapi.share.redis.wire import Wire

__all__ = ["RedisPeer"]


class RedisPeer:
    """Part of a process in the quotas of a Redis server.

    It hosts them, or reaches their hosts. It belongs to one event loop, and uses one connection for all
    quotas.

    Arguments:
        url: ``redis://``, ``rediss://`` or ``unix://``, with the options of redis-py.
        prefix: of all keys and channels.
        secret: of all processes, to authenticate packets, instead of that of each quota; see `authenticate`.
        ttl: seconds after which a host that hangs, or that Redis cannot reach, loses the quota to another.
        silence: seconds without a packet after which a link breaks.
        timeout: seconds within which Redis has to answer.

    Raises:
        ConfigurationError: redis-py is not installed, or the URL is malformed.

    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "chainapi",
        secret: bytes = b"",
        ttl: float = 2.0,
        silence: float = 2.0,
        timeout: float = 2.0,
    ) -> None:
        try:
            from chainapi.share.redis.term import Times
            from chainapi.share.redis.wire import Address
        except ModuleNotFoundError as error:
            raise missing_extra("a quota shared over Redis needs", error.name, "redis") from None
        self._address = Address(url)
        self._prefix = prefix
        self._secret = secret
        self._secrets: dict[str, bytes] = {}
        self._times = Times(ttl, silence, timeout)
        self._participants: dict[str, Participant] = {}
        self._opening = asyncio.Lock()
        self._wire: Wire | None = None

    @classmethod
    def of(cls, remote: Remote) -> Self:
        """Return a peer with the settings of a carrier."""
        return cls(
            remote.url,
            prefix=remote.prefix,
            secret=remote.secret,
            ttl=remote.ttl,
            silence=remote.silence,
            timeout=remote.timeout,
        )

    def __repr__(self) -> str:
        return f"RedisPeer({str(self._address)!r}, prefix={self._prefix!r})"

    def authenticate(self, name: str, secret: bytes) -> None:
        """Authenticate packets of the quota `name` by a secret that its processes have.

        A session calls it before `connect`, with a digest of its API key. It has no effect if the carrier
        has a secret of its own. Without a secret, everybody who can write to Redis can forge packets.
        """
        self._secrets[name] = secret

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
        from chainapi.share.redis.election import Election
        from chainapi.share.redis.participant import Participant

        key = quota_key(self._secret or self._secrets.get(name, b""), name)
        return Participant(wire, Election(self._prefix, name, self._times.ttl), key, self._times)

    async def _connected(self) -> Wire:
        from chainapi.share.redis.wire import Wire

        async with self._opening:
            if self._wire is None or self._wire.lost:
                wire = await Wire.open(self._address, self._times.timeout)
                wire.on_lost = self._lost
                self._wire = wire
            return self._wire

    def _lost(self) -> None:
        for participant in self._participants.values():
            participant.end()
