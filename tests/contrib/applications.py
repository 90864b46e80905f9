"""A FastAPI application on a simulator, as a backend author writes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.responses import Response

from chainapi import MetricPoint
from chainapi.contrib.fastapi import (
    ResumeDep,
    SessionDep,
    add_exception_handlers,
    lifespan,
    ndjson,
    router,
    server_sent_events,
)
from chainapi.simulator import Simulator


def application(simulator: Simulator, **options: Any) -> FastAPI:
    """Return an application whose session reaches a simulator in memory."""
    app = FastAPI(lifespan=lifespan(**{**simulator.arguments(), **options}))
    add_exception_handlers(app)
    app.include_router(router(), prefix="/internal")

    @app.get("/chain/{chain}")
    async def chain(chain: int, session: SessionDep) -> Any:
        return await session.data.get(f"/v1/chains/{chain}")

    @app.get("/points/{chain}")
    async def points(chain: int, session: SessionDep, limit: int | None = None) -> list[MetricPoint]:
        return await session.metrics.avg_tps(chain).collect(limit)

    @app.get("/tps/{chain}")
    async def tps(chain: int, session: SessionDep, resume: ResumeDep) -> Response:
        return ndjson(session.metrics.avg_tps(chain, resume=resume))

    @app.get("/tps/{chain}/events")
    async def tps_events(chain: int, session: SessionDep, resume: ResumeDep) -> Response:
        return server_sent_events(session.metrics.avg_tps(chain, resume=resume))

    @app.get("/blocks/{chain}/events")
    async def block_events(chain: int, session: SessionDep) -> Response:
        return server_sent_events(session.data.evm.blocks(chain))

    return app


@asynccontextmanager
async def visited(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Start an application, and give a client of it in memory."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://app.invalid") as client,
    ):
        yield client
