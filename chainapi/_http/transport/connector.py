"""Clients of aiohttp that a transport makes: their connections, and their end."""

from __future__ import annotations

import asyncio
import atexit
import os
import select
import ssl
import sys
import warnings
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import aiohttp
from aiohttp.connector import Connection
from msgspec import Struct

__all__ = ["NO_TIMEOUT", "Connector", "Keeper", "keep"]

# The session has a timeout for every transport; those of aiohttp would cost more and round up.
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
    _let_go()
    keeper = _kept(client)
    _KEPT[client] = _Kept(ref(keeper), asyncio.get_running_loop(), os.getpid())
    await anext(keeper)
    return client, keeper


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
        _KEPT.pop(client, None)
        await client.close()


class _Kept(Struct, frozen=True):
    """Owner of an open client: the generator that closes it, its loop, its process."""

    keeper: ref[Keeper]
    loop: asyncio.AbstractEventLoop
    process: int


# Referred to until they are closed: aiohttp logs an error for an open client that is garbage-collected.
_KEPT: dict[aiohttp.ClientSession, _Kept] = {}


def _let_go(*, running: bool = False) -> None:
    """Detach clients that cannot be closed any more.

    Their loop is closed, or belongs to another process. `running` includes those whose loop runs in another
    thread.
    """
    for client, kept in list(_KEPT.items()):
        ours = kept.process == os.getpid()
        if not ours or kept.loop.is_closed() or (running and kept.loop.is_running()):
            del _KEPT[client]
            client.detach()
            if ours:
                _warn_of_unclosed()


@atexit.register
def _close_at_exit() -> None:
    """Close clients that are still open at the end of the program.

    Only those in loops that are neither closed nor running. Otherwise aiohttp would log an error for each
    client, connector and connection.
    """
    _let_go(running=True)
    for kept in list(_KEPT.values()):
        kept.loop.run_until_complete(_finish(kept))


async def _finish(kept: _Kept) -> None:
    await _turns()  # the loop now closes a keeper without references
    if (keeper := kept.keeper()) is not None:
        await keeper.aclose()
    await _turns()


async def _turns() -> None:
    """Run the callbacks that closing schedules."""
    for _ in range(10):
        await asyncio.sleep(0)


def _warn_of_unclosed() -> None:
    """Warn of a session that was not closed.

    Never raise the warning as an error, which no caller could catch.
    """
    message = "a Session was not closed: use async with, or aclose()"
    try:
        warnings.warn(message, ResourceWarning, stacklevel=1)
    except ResourceWarning:
        warnings.showwarning(message, ResourceWarning, __file__, 0)
