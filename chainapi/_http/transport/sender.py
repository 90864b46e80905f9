"""AiohttpTransport: sends requests with aiohttp."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Self

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from chainapi._config import trusted
from chainapi._http.message import Request, Response
from chainapi._http.transport.connector import NO_TIMEOUT, Keeper, keep
from chainapi._http.transport.direct import DirectSender
from chainapi._http.transport.faults import TransportFault, fault_of, reason
from chainapi._http.transport.responses import Responses
from chainapi.core.arguments import whole_number
from chainapi.errors import APIConnectionError, ConfigurationError, SessionClosedError

__all__ = ["MAX_BODY", "AiohttpTransport", "leads_to_network"]

MAX_BODY = 8 * 2**20  # bytes, decompressed; 100 blocks are under 50 kB


class AiohttpTransport:
    """Sends requests with an `aiohttp.ClientSession`.

    Args:
        client: a session of your own, which is never closed or changed here (its middlewares are not used);
            None makes one at the first request: no cookies, no environment proxies, no limit of connections
            (the gate limits the requests in flight). Plain GETs use the connections of that one directly,
            which costs less, unless traces or other tools have to see the requests.
        max_body: bytes that a body may have, decompressed; 8 MiB by default. Reading one takes at most twice
            the memory.
        ssl_context: decides which certificates are trusted; a `client` has its own. None trusts the
            authorities of the system, or those in the file SSL_CERT_FILE and the folder SSL_CERT_DIR.
        proxy: address of an HTTP proxy that all requests go through, with a user and password if it needs
            them. The variables HTTP_PROXY and HTTPS_PROXY are not read.

    Raises:
        ConfigurationError: an argument cannot be used.

    """

    def __init__(
        self,
        client: aiohttp.ClientSession | None = None,
        *,
        max_body: int = MAX_BODY,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
    ) -> None:
        whole_number("max_body", max_body)
        if client is not None and not (ssl_context is None and proxy is None):
            name = "proxy" if ssl_context is None else "ssl_context"
            raise ConfigurationError(f"{name}= has no effect beside a ClientSession: set it on that")
        self._client = client
        self._context = None if client is not None else trusted(ssl_context)
        self._proxy = None if proxy is None else _proxy(proxy)
        self._keeper: Keeper | None = None
        self._direct: DirectSender | None = None  # of a client of its own
        self._loop: asyncio.AbstractEventLoop | None = None  # of a client of its own
        self._closed = False
        self._warming = set[asyncio.Task[None]]()
        self._responses = Responses(max_body)

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
            direct = self._direct
            if direct is not None and (message := direct.message(request)) is not None:
                response = await direct.send(message)
                if response is not None:
                    return response
            return await self._request(client, request)
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
            fault = fault_of(error, request.url if self._proxy is None and self._keeper is not None else "")
        except TransportFault as error:
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

    def warm(self, url: str) -> None:
        """Open a connection to the origin of a URL, in the background.

        It does nothing if the connection cannot be made: the request meets the fault.
        """
        if self._proxy is None and (self._client is None or self._direct is not None):
            task = asyncio.get_running_loop().create_task(self._warm(url))
            self._warming.add(task)
            task.add_done_callback(self._warming.discard)

    async def _warm(self, url: str) -> None:
        with suppress(aiohttp.ClientError, OSError, ValueError, SessionClosedError):
            await self._open()
            if self._direct is not None:
                await self._direct.warm(url)

    async def _open(self) -> aiohttp.ClientSession:
        if self._client is None and not self._closed:
            self._loop = asyncio.get_running_loop()
            client, self._keeper = await keep(self._context)
            self._client = client
            if self._proxy is None:
                self._direct = DirectSender(client, self._responses)
        if self._client is None or self._client.closed:
            raise SessionClosedError("the transport is closed")
        return self._client

    async def _request(self, client: aiohttp.ClientSession, request: Request) -> Response:
        """Send a request with all that the client adds to it."""
        answer = await client.request(
            request.method,
            URL(request.url, encoded=True),
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            auto_decompress=True,
            raise_for_status=False,
            timeout=NO_TIMEOUT,
            proxy=self._proxy,
            middlewares=_SEND_ONCE,
        )
        try:
            response = await self._responses.read(
                answer.status, answer.headers, answer.content, answer.connection
            )
        except BaseException:
            answer.close()
            raise
        answer.release()
        return response

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, and send nothing from then on.

        A `ClientSession` that was passed in stays open.
        """
        self._closed = True
        for task in self._warming:
            task.cancel()
        keeper, self._keeper, self._client, self._direct = self._keeper, None, None, None
        if keeper is not None:
            await anext(keeper, None)


def leads_to_network(transport: object) -> bool:
    """Return whether a transport reaches the servers that other sessions reach."""
    return transport is None or type(transport) is AiohttpTransport


def _proxy(given: object) -> URL:
    """Return the address of a proxy; an error shows neither its user nor its password."""
    try:
        url = URL(given) if isinstance(given, str) else None
    except ValueError:
        url = None
    if url is None or url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError("proxy= must be an address such as http://proxy.example.com:3128")
    return url


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
        fault = APIConnectionError(reason(error))
    raise TransportFault(fault)


_SEND_ONCE = (_send_once,)
