"""The one door to the network: what a transport is, and the one that aiohttp carries."""

from __future__ import annotations

import asyncio
import select
import sys
import warnings
import zlib
from collections.abc import AsyncGenerator
from typing import Protocol
from weakref import WeakSet

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from yarl import URL

from chainapi.core.wire import Request, Response
from chainapi.errors import APIConnectionError, APITimeoutError, ResponseTooLargeError, SessionClosedError

__all__ = ["AiohttpTransport", "Transport"]

MAX_BODY = 64 * 2**20  # bytes, decompressed

# The deadline is the session's, for every transport alike; aiohttp's own would cost more and round up.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None)

_GZIP = b"\x1f\x8b"  # how each gzip stream begins, and no JSON does


class Transport(Protocol):
    """Sends one request and returns its whole response."""

    async def send(self, request: Request) -> Response:
        """Send `request` exactly once, follow no redirect, and return the response whatever its status.

        Raises:
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
            (how many requests fly is decided before they get here).
        max_body: the most bytes a body may have, decompressed.

    """

    def __init__(self, client: aiohttp.ClientSession | None = None, *, max_body: int = MAX_BODY) -> None:
        self._client = client
        self._keeper: AsyncGenerator[aiohttp.ClientSession, None] | None = None
        self._closed = False
        self._max_body = max_body

    async def send(self, request: Request) -> Response:
        """Send one request.

        Raises:
            APIConnectionError: no whole response arrived; ResponseTooLargeError: it is larger than the cap.
            SessionClosedError: the transport, or the `ClientSession` that it was given, is closed.

        """
        client = await self._open()
        # The error is made outside of the handler: the one of aiohttp holds the request's headers, and would
        # hang on ours as its context.
        fault: APIConnectionError
        try:
            async with client.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                allow_redirects=False,
                auto_decompress=True,
                raise_for_status=False,
                timeout=_NO_TIMEOUT,
                middlewares=_SEND_ONCE,
            ) as answer:
                body = await self._read(answer)
                return Response(answer.status, _folded(answer), body)
        except (aiohttp.ServerTimeoutError, TimeoutError):
            fault = APITimeoutError("no answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            fault = APIConnectionError(_reason(error))
        except _Fault as error:
            fault = error.fault
        except asyncio.CancelledError as error:
            # The frames of aiohttp that it came through hold the request's headers: it goes on without them.
            error.__context__ = None
            raise error.with_traceback(None) from None
        raise fault

    async def _open(self) -> aiohttp.ClientSession:
        if self._client is None and not self._closed:
            self._keeper = _kept(_own_client())
            self._client = await anext(self._keeper)
        if self._client is None or self._client.closed:
            raise SessionClosedError("the transport is closed")
        return self._client

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        """Read the body piece by piece, and stop at the cap: a few bytes can unpack to gigabytes."""
        pieces: list[bytes] = []
        size = 0
        while piece := await answer.content.readany():
            pieces.append(piece)
            size += len(piece)
            if size > self._max_body:
                answer.close()
                raise self._too_large()
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return self._unpacked(body) if body.startswith(_GZIP) else body

    def _unpacked(self, body: bytes) -> bytes:
        """Unpack a body that is gzip although no header says so."""
        try:
            unpacked = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(body, self._max_body + 1)
        except zlib.error:
            return body  # whoever decodes it says what is wrong
        if len(unpacked) > self._max_body:
            raise self._too_large()
        return unpacked

    def _too_large(self) -> _Fault:
        return _Fault(ResponseTooLargeError(f"the body is larger than {self._max_body} bytes"))

    async def aclose(self) -> None:
        """Close the connections, unless the `ClientSession` was given; nothing is sent any more."""
        self._closed = True
        keeper, self._keeper, self._client = self._keeper, None, None
        if keeper is not None:
            await anext(keeper, None)


class _Fault(Exception):  # noqa: N818 - never leaves this module
    """Carries a fault past aiohttp, which would send the request again by itself after its own errors."""

    def __init__(self, fault: APIConnectionError) -> None:
        super().__init__()
        self.fault = fault


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a GET a second time, past the gate, when a connection breaks."""
    fault: APIConnectionError
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise  # never got through; aiohttp does not repeat these
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        fault = APIConnectionError(_reason(error))
    raise _Fault(fault)


_SEND_ONCE = (_send_once,)


async def _kept(client: aiohttp.ClientSession) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Give the client, then close it.

    A loop closes the generators that nobody holds any more, and those that are left when it ends: that closes
    the connections of a session that its user forgot.
    """
    try:
        yield client
    except GeneratorExit:
        warnings.warn("a Session was not closed: use async with, or aclose()", ResourceWarning, stacklevel=1)
        raise
    finally:
        await client.close()


KEEP_ALIVE = 75.0  # seconds


class _Connector(aiohttp.TCPConnector):
    """Keeps connections for the next request, but none on which the server has spoken or hung up since.

    What it said unasked would else be taken for the answer to the next request.
    """

    def __init__(self) -> None:
        # A wait for the next minute's quota is longer than the 15 s for which aiohttp keeps connections.
        super().__init__(limit=0, keepalive_timeout=KEEP_ALIVE)
        self._used = WeakSet[object]()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Return a new connection, or one that has been quiet since its last answer."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if connection.protocol not in self._used:
                self._used.add(connection.protocol)
                return connection
            if _is_quiet(connection):
                return connection
            connection.close()


def _is_quiet(connection: Connection) -> bool:
    """Tell whether nothing has arrived, neither read already nor waiting in the socket."""
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or protocol.should_close:
        return False
    return not _is_readable(transport.get_extra_info("socket").fileno())


def _is_readable(descriptor: int) -> bool:
    if sys.platform == "win32":
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()  # takes any number of a file descriptor, and needs none itself
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _own_client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=_Connector(),
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


def _reason(error: aiohttp.ClientError | OSError | ValueError) -> str:
    """Say what broke, without what aiohttp's errors carry along: request headers, bytes of the answer."""
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
