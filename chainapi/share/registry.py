"""Shared gates of a process: one for each event loop and quota."""

from __future__ import annotations

import asyncio
import os
from typing import TypeAlias, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from attrs import define, frozen

from chainapi._text import quoted
from chainapi.client.config import ServiceConfig
from chainapi.client.permit import AnyGate
from chainapi.core.share.names import frame_key, quota_name
from chainapi.errors import ConfigurationError
from chainapi.share.gate import OnUnavailable, SharedGate
from chainapi.share.link import Authenticating, Carrier
from chainapi.share.watch import Observable

__all__ = ["SharedGates", "chosen", "observable"]

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


@define(eq=False, repr=False)
class _Used:
    """Shared gate, and the number of services that use it."""

    gate: SharedGate
    users: int = 0


_Key: TypeAlias = tuple[object, str, OnUnavailable, int]
_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, _Used]] = WeakKeyDictionary()


@frozen(eq=False, repr=False)
class SharedGates:
    """Gates that processes share; see `chainapi.client.gates.Gates`.

    Attributes:
        choice: see `chosen`.
        on_unavailable: see `SharedGate`.

    """

    choice: Choice
    on_unavailable: OnUnavailable

    def open(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig) -> AnyGate:
        """See `Gates.open`."""
        api_key, name = _api_key(service), self._name(service)
        key = self._key(name)
        used = _LOOPS.setdefault(loop, {})
        if key not in used:
            carrier = _carrier(self.choice, name, frame_key(service.origin, api_key))
            gate = SharedGate(name, service.origin, carrier, self.on_unavailable)
            used[key] = _Used(gate)
        used[key].users += 1
        return used[key].gate

    async def close(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig, gate: AnyGate) -> None:
        """See `Gates.close`: the last session of the loop ends this process's part."""
        key = self._key(self._name(service))
        used = _LOOPS.get(loop, {}).get(key)
        if used is None or used.gate is not gate:
            return  # of a process before os.fork()
        used.users -= 1
        if not used.users:
            del _LOOPS[loop][key]
            await used.gate.aclose()

    def _name(self, service: ServiceConfig) -> str:
        return quota_name(service.origin, _api_key(service))

    def _key(self, name: str) -> _Key:
        return self.choice, name, self.on_unavailable, os.getpid()


def observable(share: str | None, secret: bytes) -> Observable:
    """Return what connects an observer to the host of a quota.

    Args:
        share: as the argument of a session; None means the variable CHAINAPI_SHARE, or else this machine.
        secret: see `frame_key`.

    Raises:
        ConfigurationError: `share` is no address, or its extra is not installed.

    """
    choice = chosen(share) or LOCAL
    carrier = _built_in(choice, secret) if isinstance(choice, str) else choice
    if not isinstance(carrier, Observable):
        raise ConfigurationError(f"{type(carrier).__name__} cannot be observed: it has no method observe()")
    return carrier


def _api_key(service: ServiceConfig) -> str | None:
    return None if service.key is None else service.key.reveal()


def _carrier(choice: Choice, name: str, secret: bytes) -> Carrier:
    """Return a carrier that authenticates the frames of the quota `name`, if it can."""
    if isinstance(choice, str):
        return _built_in(choice, secret)
    if isinstance(choice, Authenticating):
        choice.authenticate(name, secret)
    return choice


def _built_in(choice: str, secret: bytes) -> Carrier:
    """Return a carrier of the package; each imports what it needs only now."""
    if choice == LOCAL:
        from chainapi.share.local import LocalCarrier

        return LocalCarrier()
    from chainapi.share.redis import RedisCarrier

    return RedisCarrier(choice, secret=secret)
