"""Transports: the protocol, and the class that sends requests with aiohttp."""

from __future__ import annotations

import asyncio
import atexit
import os
import select
import ssl
import sys
import warnings
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet, ref

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from msgspec import Struct
from yarl import URL

from chainapi.core.arguments import whole_number
from chainapi.core.http import Request, Response
from chainapi.errors import (
    APIConnectionError,
    APITimeoutError,
    CertificateError,
    ConfigurationError,
    ConnectError,
    ResponseTooLargeError,
    SessionClosedError,
)

__all__ = ["AiohttpTransport", "Transport"]

MAX_BODY = 8 * 2**20  # bytes, decompressed; 100 blocks are under 50 kB

# The session has a timeout for every transport; those of aiohttp would cost more and round up.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None)

_GZIP = b"\x1f\x8b"  # how each gzip stream begins, and no JSON does


class Transport(Protocol):
    """Sends one request and returns its whole response."""

    async def send(self, request: Request) -> Response:
        """Send `request` exactly once, and return the response with any status.

        Follow no redirect.

        Raises:
            ConnectError: no connection was made, so nothing was sent; the request may be repeated.
            APIConnectionError: no whole response arrived.

        """
        ...

    async def aclose(self) -> None:
        """Close what is open; calling it again does nothing."""
        ...


class AiohttpTransport:
    """Sends requests through an `aiohttp.ClientSession`.

    Args:
        client: a session of your own, which is never closed or changed here (its middlewares are not used);
            None makes one at the first request: no cookies, no environment proxies, no limit of connections
            (the gate limits the requests in flight).
        max_body: bytes that a body may have, decompressed; reading one takes at most twice the memory.
        ssl_context: decides which certificates are trusted, or returns the context that does, at the first
            request; a `client` has its own. None trusts the authorities of the system.

    Raises:
        ConfigurationError: an argument cannot be used.

    """

    def __init__(
        self,
        client: aiohttp.ClientSession | None = None,
        *,
        max_body: int = MAX_BODY,
        ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        whole_number("max_body", max_body)
        if client is not None and ssl_context is not None:
            raise ConfigurationError("ssl_context= has no effect beside a ClientSession: set it on that")
        self._client = client
        self._ssl_context = ssl_context
        self._keeper: AsyncGenerator[aiohttp.ClientSession, None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of a client of its own
        self._closed = False
        self._max_body = max_body
        self._watched = WeakSet[object]()  # protocols of connections

    async def send(self, request: Request) -> Response:
        """Send one request.

        Raises:
            APIConnectionError: no whole response arrived; ConnectError: no connection was made;
                CertificateError: the server's certificate is not trusted; ResponseTooLargeError: the body is
                larger than the cap.
            SessionClosedError: the transport, or the `ClientSession` that it was given, is closed.

        """
        client = self._client
        if client is None or client.closed:
            client = await self._open()
        # The error is raised outside of the handler: aiohttp's error holds the headers of the request, the
        # key among them, and would become the context of ours.
        fault: APIConnectionError
        try:
            answer = await client.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                auto_decompress=True,
                raise_for_status=False,
                timeout=_NO_TIMEOUT,
                middlewares=_SEND_ONCE,
            )
            try:
                body = self._arrived(answer.content)
                if body is None:
                    body = await self._read_pieces(answer)
                return Response(answer.status, _folded(answer), self._unpacked(body))
            finally:
                answer.release()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            fault = _fault_of(error)
        except _Fault as error:
            fault = error.fault
        except RuntimeError as error:
            if self._loop is None or not self._loop.is_closed():
                raise error.with_traceback(None) from None  # as below
            raise GeneratorExit from None  # dropped after its loop was closed: no connection can be closed
        except asyncio.CancelledError as error:
            # The frames of aiohttp in its traceback hold the request's headers: it is raised without them.
            error.__context__ = None
            raise error.with_traceback(None) from None
        raise fault

    async def _open(self) -> aiohttp.ClientSession:
        if self._client is None and not self._closed:
            given = self._ssl_context
            client = _own_client(given() if callable(given) else given)
            _let_go()
            self._loop, self._keeper = asyncio.get_running_loop(), _kept(client)
            _KEPT[client] = _Kept(ref(self._keeper), self._loop, os.getpid())
            self._client = await anext(self._keeper)
        if self._client is None or self._client.closed:
            raise SessionClosedError("the transport is closed")
        return self._client

    def _arrived(self, content: aiohttp.StreamReader) -> bytes | None:
        """Return a body that has arrived, as most have.

        None if its end is still to come, or if it may be larger than the cap.
        """
        return content.read_nowait() if content.is_eof() and content.total_bytes <= self._max_body else None

    async def _read_pieces(self, answer: aiohttp.ClientResponse) -> bytes:
        """Read the body, up to the cap: a few bytes can decompress to gigabytes."""
        pieces: list[bytes] = []
        size = 0
        with self._watch(answer) as lost:
            while piece := await _next_piece(answer.content, lost):
                pieces.append(piece)
                size += len(piece)
                if size > self._max_body:
                    answer.close()
                    raise self._too_large()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @contextmanager
    def _watch(self, answer: aiohttp.ClientResponse) -> Iterator[asyncio.Future[None] | None]:
        """End the body when its connection is lost; yield the future of that loss.

        After a bad chunk aiohttp closes the connection and never ends the body: the read would never return.
        """
        content, connection = answer.content, answer.connection
        protocol = None if connection is None else connection.protocol
        if protocol is None or content.is_eof():  # the body has arrived
            yield None
            return

        def end(_: object) -> None:
            if not content.is_eof() and content.exception() is None:
                content.set_exception(aiohttp.ClientPayloadError())

        lost = protocol.closed
        if lost is None:  # the connection was lost before
            end(None)
            yield None
            return
        if protocol not in self._watched:
            self._watched.add(protocol)
            lost.add_done_callback(_retrieve)
        lost.add_done_callback(end)
        try:
            yield lost
        finally:
            lost.remove_done_callback(end)

    def _unpacked(self, body: bytes) -> bytes:
        """Decompress a body that is gzip although no header names that encoding."""
        if not body.startswith(_GZIP):
            return body
        try:
            unpacked = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(body, self._max_body + 1)
        except zlib.error:
            return body  # the decoder raises the error
        if len(unpacked) > self._max_body:
            raise self._too_large()
        return unpacked

    def _too_large(self) -> _Fault:
        return _Fault(
            ResponseTooLargeError(
                f"the body is larger than max_body={self._max_body} bytes, decompressed: request smaller"
                " pages, or set a larger max_body"
            )
        )

    async def aclose(self) -> None:
        """Close the connections, and send nothing from then on.

        A `ClientSession` that was passed in stays open.
        """
        self._closed = True
        keeper, self._keeper, self._client = self._keeper, None, None
        if keeper is not None:
            await anext(keeper, None)


async def _next_piece(content: aiohttp.StreamReader, lost: asyncio.Future[None] | None) -> bytes:
    """Return the bytes of a body that have arrived; empty at its end."""
    try:
        return await content.readany()
    except RuntimeError:  # the connection is closing: the body ends when that is done
        if lost is None:
            raise aiohttp.ClientPayloadError from None
    await asyncio.wait((lost,))
    return await content.readany()


def _retrieve(lost: asyncio.Future[None]) -> None:
    """Retrieve the exception of a lost connection, so that asyncio does not log it."""
    if not lost.cancelled():
        lost.exception()


class _Fault(Exception):  # noqa: N818 - never leaves this module
    """Wrapper of an error on its way through aiohttp.

    aiohttp repeats a request after errors of its own.
    """

    def __init__(self, fault: APIConnectionError) -> None:
        super().__init__()
        self.fault = fault


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Prevent aiohttp from repeating a request after a broken connection.

    Its second request would pass no gate.
    """
    fault: APIConnectionError
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise  # no connection, so nothing was sent; aiohttp does not repeat these
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        fault = APIConnectionError(_reason(error))
    raise _Fault(fault)


_SEND_ONCE = (_send_once,)


async def _kept(client: aiohttp.ClientSession) -> AsyncGenerator[aiohttp.ClientSession, None]:
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


KEEP_ALIVE = 75.0  # seconds


class _Kept(Struct, frozen=True):
    """Owner of an open client: the generator that closes it, its loop, its process."""

    keeper: ref[AsyncGenerator[aiohttp.ClientSession, None]]
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


class _Connector(aiohttp.TCPConnector):
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

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Return a new connection, or one that received nothing since its last response."""
        while True:
            connection = await super().connect(req, traces, timeout)
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


def _own_client(ssl_context: ssl.SSLContext | None) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=_Connector(ssl_context),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        timeout=_NO_TIMEOUT,
    )


def _folded(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the headers with lower-case names; repeated ones are joined."""
    headers = answer.headers
    folded = {name.lower(): value for name, value in headers.items()}
    if len(folded) == len(headers):
        return folded
    return {name: ", ".join(headers.getall(name)) for name in folded}


def _fault_of(error: aiohttp.ClientError | OSError | ValueError) -> APIConnectionError:
    if isinstance(error, TimeoutError):
        return APITimeoutError("no answer in time")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return CertificateError(_distrust(error))
    if isinstance(error, aiohttp.ClientConnectorError):
        return ConnectError(_reason(error))
    return APIConnectionError(_reason(error))


def _reason(error: aiohttp.ClientError | OSError | ValueError) -> str:
    """Return the cause of an error of aiohttp, without headers and response bytes."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer was cut short or could not be unpacked"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is not valid HTTP ({type(error).__name__})"
    if isinstance(error, OSError) and error.strerror:
        return f"the connection broke: {error.strerror}"
    return f"the connection broke ({type(error).__name__})"


def _distrust(error: aiohttp.ClientConnectorCertificateError) -> str:
    """Return why a certificate is not trusted, and what to do about it."""
    certificate = error.certificate_error
    why, code = str(certificate), None
    if isinstance(certificate, ssl.SSLCertVerificationError):
        why, code = certificate.verify_message, certificate.verify_code
    place = f"{error.host}:{error.port}"
    return f"cannot connect to {place}: its certificate is not trusted ({why}): {_advice(code)}"


def _advice(code: int | None) -> str:
    """Return advice about a certificate, by the verification error code of OpenSSL."""
    if code in (9, 10):  # not valid yet, not valid any more
        return "check this machine's clock; otherwise the operator of the server must renew it"
    if code in (62, 64):  # for another name, for another address
        return "check the base address, and whether a proxy of the network intercepts the connection"
    return (
        "a proxy of the network may intercept the connection; if an authority of your own signed the"
        " certificate, set ssl_context= or the variable SSL_CERT_FILE"
    )
