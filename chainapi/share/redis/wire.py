"""Connection to Redis: commands, and messages of channels, over one socket.

redis-py reads the URL (TLS, Unix sockets, users). This module speaks the protocol, RESP3, with the parser of
hiredis: redis-py awaits each answer in a task, which takes four times as much processor time. Answers and
messages arrive over one socket, in the order in which Redis made them. The socket is never replaced: when it
breaks, so do the links that were built on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import hiredis
from redis.asyncio.connection import ConnectionPool, SSLConnection
from redis.exceptions import RedisError

from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share import forks

__all__ = ["Address", "Answer", "LostError", "OnAnswer", "RefusedError", "Wire", "resolve"]

MAX_UNSENT = 16_777_216  # bytes that Redis has not read; beyond it the connection is given up

Answer: TypeAlias = Any  # of Redis: an integer, bytes, None, a list of these; or an exception
OnAnswer: TypeAlias = Callable[[Answer], None]

_NOTHING = object()  # of the parser: the answer is not complete

# Codes with which Redis begins an error, and what to do. The rest of an error is never shown: it can have the
# arguments of the command, the password among them.
_ADVICE = {
    "NOAUTH": "it wants a password: put it into the URL, redis://USER:PASSWORD@HOST",
    "WRONGPASS": "the user name or the password is wrong: correct it in the URL",
    "NOPERM": "the user lacks a permission: grant those that docs/redis.md lists",
    "DENIED": "it accepts local clients only: set a password, or turn its protected mode off",
    "LOADING": "it is still loading its data: try again later",
    "READONLY": "it is a read-only replica: put the address of the primary into the URL",
    "MASTERDOWN": "it is a replica without its primary: put the address of the primary into the URL",
    "OOM": "its memory is full: raise its maxmemory",
    "MISCONF": "it cannot save its data and refuses to write: look into its log",
    "MOVED": "another node of the cluster has the keys: put the address of that node into the URL",
    "CLUSTERDOWN": "its cluster is down: look into its log",
    "NOPROTO": "it does not speak RESP3: Redis 6 or newer is needed",
    "BUSY": "it runs a script of another client for too long: try again later",
}
_CODE = re.compile(rf"(?:^|-)({'|'.join(_ADVICE)})\b")


class RefusedError(Exception):
    """Redis refused a command; has the code of the error, and never its text."""

    def __init__(self, text: str) -> None:
        found = _CODE.search(text)
        self.code = found[1] if found else "NOPROTO" if text.startswith("ERR unknown command") else "ERR"
        super().__init__(self.code)


class LostError(Exception):
    """The connection was lost before the answer arrived, for a reason in words."""

    def __init__(self, reason: str = "the server ended, or the network failed") -> None:
        super().__init__(reason)


class Address:
    """Address of a Redis server; no string of it shows the credentials of its URL."""

    def __init__(self, url: str) -> None:
        # Raised outside of the handler: errors of redis-py repeat parts of the URL.
        refused = None
        try:
            options: Any = ConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]
            self._tls = options.ssl_context.get() if isinstance(options, SSLConnection) else None
            self._options = options
        except (TypeError, ValueError, OSError, RedisError) as error:
            refused = type(error).__name__
        if refused is not None:
            raise ConfigurationError(
                f"the URL of Redis is malformed, or has an option that redis-py refuses ({refused}): "
                "use redis://USER:PASSWORD@HOST:PORT/DB, rediss://... or unix://PATH"
            )
        self._path: str | None = getattr(self._options, "path", None)

    def __str__(self) -> str:
        return self._path or f"{self._options.host}:{self._options.port}"

    async def connect(self, wire: Wire) -> None:
        """Connect a wire, without greeting; raises OSError."""
        loop, options = asyncio.get_running_loop(), self._options
        if self._path is not None:
            await loop.create_unix_connection(lambda: wire, self._path)
        else:
            await loop.create_connection(lambda: wire, options.host, int(options.port), ssl=self._tls)

    def greeting(self) -> list[tuple[bytes | str | int, ...]]:
        """Return the first commands: protocol, credentials, database."""
        user, password, database = self._options.username, self._options.password, self._options.db
        login = ("AUTH", user or "default", password or "") if user or password else ()
        hello = ("HELLO", 3, *login, "SETNAME", "chainapi")
        return [hello, ("SELECT", int(database))] if database else [hello]


def resolve(future: asyncio.Future[Answer], answer: Answer) -> None:
    """Give a future its answer, unless nobody awaits it any more."""
    if not future.done():
        future.set_result(answer)


class Wire(asyncio.Protocol):
    """Connection to Redis; belongs to one event loop."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._parser = hiredis.Reader(notEnoughData=_NOTHING, replyError=RefusedError)
        self._waiting: deque[OnAnswer] = deque()
        self._inboxes: dict[bytes, Callable[[bytes], None]] = {}
        self._unsent: list[bytes] = []
        self.lost = False
        self.on_lost: Callable[[], None] = lambda: None

    @classmethod
    async def open(cls, address: Address, timeout: float) -> Wire:
        """Connect to Redis and log in, within `timeout` seconds.

        Raises:
            ShareUnavailableError: Redis cannot be reached, does not answer, or refuses the credentials.

        """
        wire = cls(str(address))
        try:
            async with asyncio.timeout(timeout):
                await address.connect(wire)
                for command in address.greeting():
                    await wire.request(*command)
        except BaseException as error:
            wire.abort()
            if isinstance(error, TimeoutError):
                raise wire.silent(timeout) from None
            if isinstance(error, OSError):
                raise wire.unreachable(error) from None
            raise
        return wire

    # --- commands -------------------------------------------------------------------------------

    def call(self, on_answer: OnAnswer, *command: bytes | str | int) -> None:
        """Send a command.

        `on_answer` is called with the answer, `RefusedError` or `LostError`.

        It is called before anything that Redis sent later is looked at.
        """
        if self.lost:
            self._loop.call_soon(on_answer, LostError())
            return
        self._waiting.append(on_answer)
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(hiredis.pack_command(command))  # type: ignore[arg-type] # of one element, it says

    async def request(self, *command: bytes | str | int) -> Answer:
        """Return the answer to a command.

        Raises:
            ShareUnavailableError: Redis refused the command, or the connection was lost.

        """
        future: asyncio.Future[Answer] = self._loop.create_future()
        self.call(lambda answer: resolve(future, answer), *command)
        return self.checked(await future)

    def subscribe(self, channel: bytes, on_message: Callable[[bytes], None], on_answer: OnAnswer) -> None:
        """Deliver the messages of a channel."""
        self._inboxes[channel] = on_message
        self.call(on_answer, b"SUBSCRIBE", channel)

    def unsubscribe(self, channel: bytes) -> None:
        """Deliver no further message of a channel."""
        self._inboxes.pop(channel, None)
        self.call(lambda _: None, b"UNSUBSCRIBE", channel)

    # --- errors ---------------------------------------------------------------------------------

    def checked(self, answer: Answer) -> Answer:
        """Return an answer that is no error; raises ShareUnavailableError."""
        if isinstance(answer, RefusedError):
            advice = _ADVICE.get(answer.code, "look into its log")
            raise ShareUnavailableError(f"Redis at {self._where} refused a command ({answer.code}): {advice}")
        if isinstance(answer, LostError):
            raise ShareUnavailableError(f"the connection to Redis at {self._where} was lost: {answer}")
        return answer

    def silent(self, seconds: float) -> ShareUnavailableError:
        """Return the error of a Redis that sends no answer."""
        return ShareUnavailableError(
            f"Redis at {self._where} did not answer within {seconds:g} s: look whether it runs, "
            "and whether this machine can reach it"
        )

    def unreachable(self, error: OSError) -> ShareUnavailableError:
        """Return the error of a failed connection."""
        return ShareUnavailableError(
            f"cannot connect to Redis at {self._where} ({error.strerror or type(error).__name__}): "
            "start it, or correct the URL"
        )

    # --- life -----------------------------------------------------------------------------------

    async def aclose(self, timeout: float) -> None:
        """Close the connection once Redis has read everything, or after `timeout` seconds."""
        try:
            with contextlib.suppress(ShareUnavailableError, TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.request("PING")
        finally:  # also if the close is cancelled
            self.abort()
        await self._closed

    def abort(self, error: LostError | None = None) -> None:
        """Close the connection at once; `error` is the answer to what waits for one."""
        if self._transport is not None:
            self._transport.abort()
        self._lose(error or LostError())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._descriptor = self._transport.get_extra_info("socket").fileno()
        forks.hold(self._descriptor)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        forks.release(self._descriptor)
        resolve(self._closed, None)
        self._lose(LostError())

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._parser.feed(data)
        try:
            while (answer := self._parser.gets()) is not _NOTHING and not self.lost:
                self._take(answer)
        except hiredis.ProtocolError:
            self.abort(LostError("the server sent something else than Redis does; correct the URL"))

    def _take(self, answer: Answer) -> None:
        if isinstance(answer, hiredis.PushNotification):
            if answer[0] == b"message":
                on_message = self._inboxes.get(answer[1])
                if on_message is not None:
                    on_message(answer[2])
                return
            if answer[0] not in (b"subscribe", b"unsubscribe"):  # which are answers to these commands
                return
        if self._waiting:
            self._waiting.popleft()(answer)

    def _flush(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if self.lost or self._transport is None:
            return
        if self._transport.get_write_buffer_size() > MAX_UNSENT:
            self.abort()
        else:
            self._transport.write(data)

    def _lose(self, error: LostError) -> None:
        if self.lost:
            return
        self.lost = True
        waiting, self._waiting = self._waiting, deque()
        for on_answer in waiting:
            on_answer(error)
        self.on_lost()
