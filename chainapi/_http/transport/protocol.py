"""Transport: the protocol between a session and HTTP."""

from __future__ import annotations

from typing import Protocol

from chainapi._http.message import Request, Response

__all__ = ["Transport"]


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
