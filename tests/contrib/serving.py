"""Applications on a real server, on a free port of the loopback interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from tests.raw_server import until


@asynccontextmanager
async def served(app: Any, http: str = "h11", grace: int = 5) -> AsyncIterator[int]:
    """Serve an ASGI application with uvicorn, and give its port; its requests end `grace` seconds later."""
    config = uvicorn.Config(
        app, port=0, http=http, lifespan="on", log_config=None, timeout_graceful_shutdown=grace
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    await until(lambda: server.started or serving.done())
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def asked(port: int, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """Send a GET request, and give the reader of its response; disconnect at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: app.invalid\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.close()
        await writer.wait_closed()
