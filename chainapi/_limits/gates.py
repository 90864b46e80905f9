"""Gates of a process: one for each event loop, origin, API key and transport.

A gate is kept while a session uses it, and afterwards while it is among the `REMEMBERED` gates that were used
last in its loop: a session that opens after another one closed begins with the quota that was learned.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct, field

from chainapi._config import Secret, ServiceConfig
from chainapi._limits.gate import AnyGate, Gate

__all__ = ["Gates", "LoopGates", "OwnGates"]

REMEMBERED = 256  # gates of a loop that are kept when no session uses them

_PORTS = {"http": 80, "https": 443}
_SALT = os.urandom(16)


class _Identity:
    """Identity of one object as a dictionary key.

    It is a weak reference if the object allows one.
    """

    __slots__ = ("_get", "_number")

    def __init__(self, thing: object) -> None:
        self._number = id(thing)
        self._get: Callable[[], object]
        try:
            self._get = weakref.ref(thing)
        except TypeError:
            self._get = lambda: thing

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        thing = self._get()
        return isinstance(other, _Identity) and thing is not None and thing is other._get()


Place: TypeAlias = tuple[str, str, int | None, bytes, _Identity | None]


class _Gates(Struct, eq=False):
    """Gates of one loop: those in use, and those used last."""

    known: weakref.WeakValueDictionary[Place, Gate] = field(default_factory=weakref.WeakValueDictionary)
    recent: OrderedDict[Place, Gate] = field(default_factory=OrderedDict)

    def get(self, place: Place) -> Gate:
        gate = self.known.get(place)
        if gate is None:
            gate = self.known[place] = Gate()
        self.keep(place, gate)
        return gate

    def keep(self, place: Place, gate: Gate) -> None:
        self.recent[place] = gate
        self.recent.move_to_end(place)
        if len(self.recent) > REMEMBERED:
            self.recent.popitem(last=False)


_LOOPS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Gates] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()  # loops run in threads of their own


class Gates(Protocol):
    """Source of the gates of a session."""

    def open(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig) -> AnyGate:
        """Return the gate of a service in a loop."""
        ...

    async def close(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig, gate: AnyGate) -> None:
        """Release a gate, after the session left it."""
        ...


class OwnGates:
    """Gates that no other session uses."""

    def open(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig) -> AnyGate:
        """See `Gates.open`."""
        return Gate()

    async def close(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig, gate: AnyGate) -> None:
        """See `Gates.close`."""


class LoopGates(Struct, frozen=True, eq=False):
    """Gates that all sessions of a loop share, for each `transport`.

    Two transports may lead to different servers.

    `transport` is the one that the user passed, and None for the network.
    """

    transport: object

    def open(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig) -> AnyGate:
        """See `Gates.open`."""
        with _LOCK:
            for other in [other for other in _LOOPS if other.is_closed()]:
                del _LOOPS[other]
            try:
                gates = _LOOPS.setdefault(loop, _Gates())
            except TypeError:  # a loop without weak references: its gates would never be freed
                return Gate()
            return gates.get(_place(service, self.transport))

    async def close(self, loop: asyncio.AbstractEventLoop, service: ServiceConfig, gate: AnyGate) -> None:
        """See `Gates.close`: the loop remembers the gates used last."""
        place = _place(service, self.transport)
        with _LOCK:
            gates = next((gates for known, gates in _LOOPS.items() if known is loop), None)
            if gates is not None and isinstance(gate, Gate):
                gates.keep(place, gate)


def _place(service: ServiceConfig, transport: object) -> Place:
    parts = urlsplit(service.base_url)
    port = parts.port or _PORTS.get(parts.scheme)
    reached = None if transport is None else _Identity(transport)
    return parts.scheme, parts.hostname or "", port, _digest(service.key), reached


def _digest(key: Secret | None) -> bytes:
    """Return a keyed digest of an API key; empty for no key.

    It is equal for equal keys, and useless outside this process.
    """
    return b"" if key is None else blake2b(key.reveal().encode(), key=_SALT, digest_size=16).digest()
