"""Shared gates of a process: one for each event loop and quota."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from attrs import frozen

from chainapi._config import ServiceConfig
from chainapi._limits.gate import AnyGate
from chainapi._text import quoted
from chainapi.core.share.names import frame_key, quota_name
from chainapi.errors import ConfigurationError
from chainapi.share.link import Carrier
from chainapi.share.participant import OnUnavailable, SharedGate

if TYPE_CHECKING:
    from chainapi.share.local import LocalCarrier
    from chainapi.share.redis import RedisCarrier

__all__ = ["BuiltIn", "SharedGates", "chosen", "observable"]

BuiltIn: TypeAlias = "LocalCarrier | RedisCarrier"
Choice: TypeAlias = "str | Carrier"  # "local", the address of a Redis server, or a carrier of the user

LOCAL = "local"
_CARRIER = ("connect", "remote")  # methods by which a carrier is known


def chosen(share: object) -> Choice | None:
    """Return how a session shares its quotas; None for a quota of its own.

    `share` is the argument of the session; None means the variable CHAINAPI_SHARE.

    Raises:
        ConfigurationError: it is not True, False, "local", the address of a Redis server or a carrier.

    """
    shown, others = "share", "True, False, 'local', a carrier"
    if share is None:
        shown, others = "CHAINAPI_SHARE", "1, 0, local"
        share = os.environ.get("CHAINAPI_SHARE", "").strip()
        share = {"": False, "0": False, "1": True}.get(share, share)
    if share is False:
        return None
    if share is True or share == LOCAL:
        return LOCAL
    if isinstance(share, str) and urlsplit(share).scheme in ("redis", "rediss", "unix"):
        return share
    if not isinstance(share, str) and all(callable(getattr(share, one, None)) for one in _CARRIER):
        return cast("Carrier", share)
    if "@" not in str(share):  # else it may be an address with a password
        shown += f"={quoted(share)}"
    raise ConfigurationError(
        f"{shown} must be {others}, or the address of a Redis server such as redis://localhost:6379/0"
    )


_Key: TypeAlias = tuple[object, str, OnUnavailable, int]
_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, SharedGate]] = WeakKeyDictionary()


@frozen(eq=False, repr=False)
class SharedGates:
    """Gates that processes share; see `chainapi._limits.gates.Gates`.

    Attributes:
        choice: see `chosen`.
        on_unavailable: see `SharedGate`.

    """

    choice: Choice
    on_unavailable: OnUnavailable

    def open(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig) -> AnyGate:
        """See `Gates.open`."""
        api_key = _api_key(service)
        name = quota_name(service.origin, api_key)
        gates, key = _LOOPS.setdefault(loop, {}), self._key(name)
        if key not in gates:
            carrier = _built_in(self.choice) if isinstance(self.choice, str) else self.choice
            secret = frame_key(service.origin, api_key)
            gates[key] = SharedGate(name, service.origin, carrier, self.on_unavailable, secret)
        return gates[key]

    async def close(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig, gate: AnyGate) -> None:
        """See `Gates.close`: the last session of the loop ends this process's part."""
        gates, key = _LOOPS.get(loop, {}), self._key(quota_name(service.origin, _api_key(service)))
        known = gates.get(key)
        if known is None or known is not gate or known.in_use:
            return  # another session uses it, or it is of a process before os.fork()
        del gates[key]
        await known.aclose()

    def _key(self, name: str) -> _Key:
        return self.choice, name, self.on_unavailable, os.getpid()


def observable(share: str | None) -> BuiltIn:
    """Return the carrier that connects observers.

    Args:
        share: as the argument of a session; None means the variable CHAINAPI_SHARE, or else this machine.

    Raises:
        ConfigurationError: `share` is no address, or its extra is not installed.

    """
    choice = chosen(share)
    return _built_in(choice if isinstance(choice, str) else LOCAL)


def _built_in(choice: str) -> BuiltIn:
    """Return a carrier of the package; each imports what it needs only now."""
    if choice == LOCAL:
        from chainapi.share.local import LocalCarrier

        return LocalCarrier()
    from chainapi.share.redis import RedisCarrier

    return RedisCarrier(choice)


def _api_key(service: ServiceConfig) -> str | None:
    return None if service.key is None else service.key.reveal()
