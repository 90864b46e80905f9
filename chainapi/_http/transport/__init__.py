"""Transports: the protocol, and the class that sends requests with aiohttp."""

from __future__ import annotations

from chainapi._http.transport.protocol import Transport
from chainapi._http.transport.sender import MAX_BODY, AiohttpTransport, leads_to_network

__all__ = ["MAX_BODY", "AiohttpTransport", "Transport", "leads_to_network"]
