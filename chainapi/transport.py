"""Transport protocol: what a session needs to send a request, and the one on aiohttp."""

from __future__ import annotations

from chainapi.client.transport import AiohttpTransport, Transport
from chainapi.core.http import Request, Response

__all__ = ["AiohttpTransport", "Request", "Response", "Transport"]
