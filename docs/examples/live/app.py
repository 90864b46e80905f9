"""Live page: the TPS of several chains, drawn in the browser as points arrive.

``python docs/examples/live/app.py`` serves it on a simulator with a low rate limit. For the service that the
environment configures: ``uvicorn --app-dir docs/examples/live app:app``.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from chainapi.contrib.fastapi import (
    ResumeDep,
    SessionDep,
    add_exception_handlers,
    lifespan,
    server_sent_events,
)
from chainapi.simulator import Simulator

PAGE = Path(__file__).parent / "page"

# Ten pages for each chain. Only a 429 reveals that 12 requests are allowed in 8 seconds. A day takes 5 s.
SIMULATED: Mapping[str, Any] = {
    "seed": 7,
    "metrics_limit": 12,
    "metrics_window": 8.0,
    "latency": 0.3,
    "grow_every": 5.0,
}
EVERY = 60.0  # seconds between two requests for new points of a chain
CHAINS = (43114, 53935, 432204)

api = APIRouter()


@api.get("/chains")
async def chains(session: SessionDep) -> list[dict[str, Any]]:
    """Return the chains that have metrics."""
    rows = await session.metrics.chains.list().collect()
    return [{"id": row.evm_chain_id, "name": row.chain_name} for row in rows]


@api.get("/tps/{chain}")
async def tps(chain: int, session: SessionDep, resume: ResumeDep) -> Response:
    """Stream the daily TPS of a chain, newest first, as server-sent events."""
    return server_sent_events(session.metrics.avg_tps(chain, resume=resume))


@api.get("/tps/{chain}/new")
async def new_points(request: Request, chain: int, session: SessionDep, resume: ResumeDep) -> Response:
    """Stream the points that a chain gains from now on, or after a checkpoint."""
    points = session.metrics.avg_tps(chain, resume=resume)
    return server_sent_events(points.follow(every=request.app.state.every))


def live_app(every: float = EVERY, **session_arguments: Any) -> FastAPI:
    """Return the application; the other arguments are those of `chainapi.Session`."""
    app = FastAPI(title="TPS of several chains", lifespan=lifespan(**session_arguments))
    app.state.every = every
    add_exception_handlers(app)
    app.include_router(api)
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


app = live_app()


async def main() -> None:
    """Serve the page on a simulator and on a free port, until it is interrupted."""
    async with Simulator(**SIMULATED) as simulator:
        simulated = live_app(every=5.0, metrics_base_url=simulator.metrics_base_url)
        listener = socket.create_server(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/?{urlencode({'chain': CHAINS}, doseq=True)}"
        print(f"Open {address} (Ctrl+C ends it)", flush=True)
        # Streams of open pages would keep the server from ending.
        config = uvicorn.Config(simulated, log_level="warning", timeout_graceful_shutdown=1)
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
