"""One quota over Redis, for processes on several machines (extra ``redis``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from chainapi.core.extras import missing_extra
from chainapi.core.share.messages import Remote
from chainapi.share.local import LocalCarrier

if TYPE_CHECKING:
    from chainapi.share.link import Link
    from chainapi.share.machines import Machine

__all__ = ["RedisCarrier"]


class RedisCarrier:
    """Carrier over Redis, or a compatible server such as Valkey.

    Sessions connect to the host process of their machine, and these processes meet over Redis: one of them
    hosts the quota.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``, with the options of redis-py.
        prefix: of all keys and channels.
        secret: authenticates the packets of all quotas, in place of a secret for each; see `remote`.
        ttl: seconds after which a host that hangs, or that Redis cannot reach, loses the quota to another.
        silence: seconds without a packet after which a link breaks.
        timeout: seconds within which Redis has to answer.
        directory: where the processes of this machine meet; see `LocalCarrier`.

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
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        try:
            from chainapi.share.machines import address_of
        except ModuleNotFoundError as error:
            raise missing_extra("a quota shared over Redis needs", error.name, "redis") from None
        self._local = LocalCarrier(directory)
        self._observers: dict[str, Machine] = {}
        self._where = address_of(url)
        self._remote = Remote(url, prefix, secret, ttl, silence, timeout)

    @property
    def patience(self) -> float:
        """See `Carrier.patience`."""
        return self._local.patience

    def __repr__(self) -> str:
        return f"RedisCarrier({self._where!r}, prefix={self._remote.prefix!r})"

    def remote(self, name: str, secret: bytes) -> Remote:
        """See `Carrier.remote`.

        `secret` has no effect if the carrier has one of its own. Without any, everybody who can write to
        Redis can forge packets.
        """
        return replace(self._remote, secret=self._remote.secret or secret)

    async def connect(self, name: str) -> Link:
        """Return a link to the host process of this machine."""
        return await self._local.connect(name)

    async def observe(self, name: str, secret: bytes) -> Link | None:
        """Return a link to the host over Redis; None if no machine hosts."""
        from chainapi.share.machines import Machine

        if name not in self._observers:
            self._observers[name] = Machine(name, self.remote(name, secret), hosts=False)
        return await self._observers[name].observe()

    async def aclose(self, name: str) -> None:
        """End this process's part in a quota."""
        if (observer := self._observers.pop(name, None)) is not None:
            await observer.aclose()
        await self._local.aclose(name)
