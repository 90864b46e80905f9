"""Raw loopback server that sends the exact bytes of a script and counts requests.

It runs on the loop of the test. Leaving its ``async with`` block checks that the client left nothing behind:
no connection, no task, no file descriptor.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from attrs import define, field, frozen

from tests.real_loop import RealLoop

__all__ = ["Peer", "RawServer", "Received", "each", "http", "let_pass", "settle", "until"]

ROUNDS = 2_000


@frozen
class Received:
    """The head of one request, as it came, and the number of its connection."""

    raw: bytes
    connection: int

    @property
    def target(self) -> str:
        """Target of the request line."""
        return self.raw.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers, with lower-case names."""
        lines = self.raw.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(": ") for line in lines if line)
        return {name.lower(): value for name, _, value in pairs}


@define(eq=False)
class Peer:
    """Connection, from the server's side."""

    server: RawServer
    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> Received:
        """Read one request; EOFError when the client has closed instead."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        received = Received(head, self.number)
        self.server.requests.append(received)
        return received

    async def send(self, data: bytes, piece: int | None = None) -> None:
        """Send bytes, in chunks of `piece` if given.

        The client may read after each chunk.
        """
        step = piece or len(data) or 1
        for start in range(0, len(data), step):
            self.writer.write(data[start : start + step])
            await self.writer.drain()
            if piece is not None:
                await settle(3)

    async def send_apart(self, *segments: bytes) -> None:
        """Send segments that the client reads one after the other."""
        for segment in segments:
            await self.send(segment)
            await settle()

    def reset(self) -> None:
        """Break the connection off with an RST."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        await self.writer.wait_closed()

    async def stall(self) -> None:
        """Send no more until the client has closed."""
        while await self.reader.read(65_536):
            pass


Script = Callable[[Peer], Awaitable[None]]


@define(eq=False)
class RawServer:
    """Runs `script` for each connection, and closes the connection after it.

    Attributes:
        requests: what was received so far.
        connections: how many connections there have been.
        open: how many of them are open.

    """

    script: Script
    tls: ssl.SSLContext | None = None
    requests: list[Received] = field(init=False, factory=list[Received])
    connections: int = field(init=False, default=0)
    open: int = field(init=False, default=0)
    _server: asyncio.Server | None = field(init=False, default=None)
    _tasks: set[asyncio.Task[Any]] = field(init=False, factory=set[asyncio.Task[Any]])
    _before: tuple[set[asyncio.Task[Any]], set[str]] = field(init=False, default=(set(), set()))

    @property
    def origin(self) -> str:
        """Scheme, address and port."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http{'s' if self.tls else ''}://127.0.0.1:{port}"

    @property
    def seen(self) -> bytes:
        """Everything that was received."""
        return b"".join(received.raw for received in self.requests)

    async def __aenter__(self) -> Self:
        self._before = (asyncio.all_tasks(), _descriptors())
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        if kind is None:
            await until(lambda: self.open == 0)
        for task in self._tasks:
            task.cancel()
        self._server.close()
        await self._server.wait_closed()
        if kind is None:
            tasks, descriptors = self._before
            await until(lambda: asyncio.all_tasks() <= tasks)
            gc.collect()
            await until(lambda: _descriptors() <= descriptors)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            # A client that goes away in the middle is part of the play.
            with suppress(EOFError, ConnectionError, asyncio.CancelledError):
                await self.script(Peer(self, self.connections, reader, writer))
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                writer.close()
                await writer.wait_closed()
        finally:
            self.open -= 1
            self._tasks.discard(task)


def _descriptors() -> set[str]:
    """Return the sockets of this process.

    Other files come and go with imports and logs.
    """
    found = set[str]()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - gone before it could be asked as a path
        with suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            if link.startswith("socket:"):
                found.add(link)
    return found


async def settle(rounds: int = 25) -> None:
    """Let all ready callbacks on the loop run."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def let_pass(seconds: float) -> None:
    """Let time pass at once on the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, RealLoop)
    loop.jump(seconds)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds; fail when it never does."""
    for _ in range(ROUNDS):
        if condition():
            return
        await asyncio.sleep(0)
    # What another thread or the kernel has to do first takes real time.
    for _ in range(ROUNDS):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to be")


def http(body: bytes = b"{}", status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """Return the bytes of an HTTP/1.1 answer.

    `length` replaces the true content length.
    """
    size = len(body) if length is None else length
    head = [f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def each(*answers: bytes, piece: int | None = None) -> Script:
    """Return a script of these answers in turn, over all connections.

    The last one repeats for ever.
    """
    left = list(answers)

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(left.pop(0) if len(left) > 1 else left[0], piece)

    return script
