"""Transport protocol between a session and HTTP, and its version for aiohttp."""

from __future__ import annotations

from chainapi.client.transport import AiohttpTransport, Transport
from chainapi.core.http import Request, Response

__all__ = ["AiohttpTransport", "Request", "Response", "Transport"]
