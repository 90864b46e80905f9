"""Transport protocol between a session and HTTP, and its version for aiohttp."""

from __future__ import annotations

from chainapi._http.message import Request, Response
from chainapi._http.transport import AiohttpTransport, Transport

__all__ = ["AiohttpTransport", "Request", "Response", "Transport"]
