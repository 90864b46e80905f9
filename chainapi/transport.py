"""The one door to the network: what a transport is, and the one that aiohttp carries."""

from __future__ import annotations

from typing import Protocol

import aiohttp
from yarl import URL

from chainapi.core.wire import Request, Response
from chainapi.errors import APIConnectionError, APITimeoutError, ResponseTooLargeError

__all__ = ["AiohttpTransport", "Transport"]

MAX_BODY = 64 * 2**20  # bytes, decompressed

# The deadline is the session's, for every transport alike; aiohttp's own would cost more and round up.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None)


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
        self._owned = client is None
        self._max_body = max_body

    async def send(self, request: Request) -> Response:
        """Send one request.

        Raises:
            APIConnectionError: no whole response arrived; ResponseTooLargeError: it is larger than the cap.

        """
        client = self._client
        if client is None:
            client = self._client = _own_client()
        # The error is made outside of the handler: the one of aiohttp holds the request's headers, and would
        # hang on ours as its context.
        fault: APIConnectionError
        try:
            async with client.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                allow_redirects=False,
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
        raise fault

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        """Read the body piece by piece, and stop at the cap: a few bytes can unpack to gigabytes."""
        pieces: list[bytes] = []
        size = 0
        while piece := await answer.content.readany():
            pieces.append(piece)
            size += len(piece)
            if size > self._max_body:
                answer.close()
                raise _Fault(ResponseTooLargeError(f"the body is larger than {self._max_body} bytes"))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def aclose(self) -> None:
        """Close the connections, unless the `ClientSession` was given."""
        client = self._client
        if client is not None and self._owned:
            self._client = None
            await client.close()


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


def _own_client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        timeout=_NO_TIMEOUT,
    )


def _folded(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the headers with lower-case names; repeated ones are joined."""
    folded: dict[str, str] = {}
    for name, value in answer.headers.items():
        lower = name.lower()
        folded[lower] = f"{folded[lower]}, {value}" if lower in folded else value
    return folded


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
