"""Clients of aiohttp that a transport makes: their connections, and their end."""

from __future__ import annotations

import asyncio
import os
import select
import ssl
import sys
import warnings
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import aiohttp
from aiohttp.connector import Connection

__all__ = ["NO_TIMEOUT", "Connector", "Keeper", "keep"]

# The session has a timeout for every transport; aiohttp's own would cost more and round up.
NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None)

KEEP_ALIVE = 75.0  # seconds

# Closes its client at its end.
Keeper = AsyncGenerator[aiohttp.ClientSession, None]


class Connector(aiohttp.TCPConnector):
    """Connector that reuses connections, except those with unsolicited bytes.

    Connections that the server closed are not reused either. Unsolicited bytes would be taken for the
    response to the next request.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None) -> None:
        # A wait for the next minute's quota is longer than the 15 s for which aiohttp keeps connections.
        super().__init__(
            limit=0, ssl=True if ssl_context is None else ssl_context, keepalive_timeout=KEEP_ALIVE
        )
        # Connections that had a response; each with a function that returns whether its socket is readable.
        self._used = WeakKeyDictionary[object, Callable[[], object]]()

    def __del__(self, *_: object) -> None:
        """Do nothing: the keeper of an unclosed session has warned already."""

    async def connect(self, *args: Any, **settings: Any) -> Connection:
        """Return a new connection, or one that received nothing since its last response."""
        while True:
            connection = await super().connect(*args, **settings)
            protocol, transport = connection.protocol, connection.transport
            readable = None if protocol is None else self._used.get(protocol)
            if protocol is None or readable is None:
                if transport is not None:
                    self._used[protocol] = _readable(transport.get_extra_info("socket").fileno())
                return connection
            if transport is not None and not protocol.should_close and not readable():
                return connection  # nothing was read, and nothing waits in the socket
            connection.close()


def _readable(descriptor: int) -> Callable[[], object]:
    """Return a check of a socket: true if it has bytes to read, or was closed."""
    if sys.platform == "win32":
        return lambda: select.select([descriptor], [], [], 0)[0]
    poll = select.poll()  # takes descriptors of any number, and needs none of its own
    poll.register(descriptor, select.POLLIN)
    return partial(poll.poll, 0)


async def keep(ssl_context: ssl.SSLContext | None) -> tuple[aiohttp.ClientSession, Keeper]:
    """Open a client for the running loop, and return it with its keeper.

    It has no cookies, no proxies of the environment, and no limit of connections.
    """
    client = aiohttp.ClientSession(
        connector=Connector(ssl_context),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        timeout=NO_TIMEOUT,
    )
    _OPEN.add(client)
    keeper = _kept(client)
    await anext(keeper)
    return client, keeper


_OPEN = WeakSet[aiohttp.ClientSession]()


def _let_go() -> None:
    """Let go of the clients of the parent: a child must not close their connections."""
    for client in _OPEN:
        client.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


async def _kept(client: aiohttp.ClientSession) -> Keeper:
    """Yield the client, then close it.

    A loop closes generators that nobody refers to, and those that are left when it ends. So it closes the
    connections of a session that was never closed.
    """
    try:
        yield client
    except (GeneratorExit, asyncio.CancelledError):
        # Cancelled: asyncio.run() cancels the task in which the loop closes a generator that was dropped.
        _warn_of_unclosed()
        raise
    finally:
        _OPEN.discard(client)
        await client.close()


def _warn_of_unclosed() -> None:
    """Warn of a session that was not closed.

    Never raise the warning as an error, which no caller could catch.
    """
    message = "a Session was not closed: use async with, or aclose()"
    try:
        warnings.warn(message, ResourceWarning, stacklevel=1)
    except ResourceWarning:
        warnings.showwarning(message, ResourceWarning, __file__, 0)
