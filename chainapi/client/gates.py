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
from typing import TypeAlias
from urllib.parse import urlsplit

from attrs import define, field

from chainapi.client.config import Secret, ServiceConfig
from chainapi.client.limiter import Gate

__all__ = ["gate_of", "used"]

REMEMBERED = 256  # gates of a loop that are kept when no session uses them

_PORTS = {"http": 80, "https": 443}
_SALT = os.urandom(16)


class _Identity:
    """Identity of one object as a dictionary key.

    It is a weak reference where the object allows one.
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


@define(eq=False)
class _Gates:
    """Gates of one loop: those in use, and those used last."""

    known: weakref.WeakValueDictionary[Place, Gate] = field(factory=weakref.WeakValueDictionary)
    recent: OrderedDict[Place, Gate] = field(factory=OrderedDict)

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


def gate_of(loop: asyncio.AbstractEventLoop, endpoint: ServiceConfig, transport: object) -> Gate:
    """Return the gate of a service in a loop.

    `transport` is the one that the user passed, and None for the network. Each has gates of its own, because
    two transports may lead to different servers.
    """
    with _LOCK:
        for other in [other for other in _LOOPS if other.is_closed()]:
            del _LOOPS[other]
        try:
            gates = _LOOPS.setdefault(loop, _Gates())
        except TypeError:  # a loop without weak references: its gates would never be freed
            return Gate()
        return gates.get(_place(endpoint, transport))


def used(loop: asyncio.AbstractEventLoop, endpoint: ServiceConfig, transport: object, gate: Gate) -> None:
    """Remember the gate of a session that closes."""
    place = _place(endpoint, transport)
    with _LOCK:
        gates = next((gates for known, gates in _LOOPS.items() if known is loop), None)
        if gates is not None:
            gates.keep(place, gate)


def _place(endpoint: ServiceConfig, transport: object) -> Place:
    parts = urlsplit(endpoint.base_url)
    port = parts.port or _PORTS.get(parts.scheme)
    reached = None if transport is None else _Identity(transport)
    return parts.scheme, parts.hostname or "", port, _digest(endpoint.key), reached


def _digest(key: Secret | None) -> bytes:
    """Return a keyed digest of an API key; empty for no key.

    It is equal for equal keys, and useless outside this process.
    """
    return b"" if key is None else blake2b(key.reveal().encode(), key=_SALT, digest_size=16).digest()
