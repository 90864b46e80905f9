"""FastAPI application under load, for `tests.bench.web`."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainapi import Cache
from chainapi.contrib.fastapi import SessionDep, add_exception_handlers, lifespan, ndjson
from chainapi.errors import QuotaWaitError

MAX_WAIT = 2.0  # seconds
SHARED = os.environ.get("CHAINAPI_BENCH_SHARED") == "1"

app = FastAPI(lifespan=lifespan(share=SHARED, tag="web"))
add_exception_handlers(app)
cache = Cache(fresh=1.0, stale_while_revalidate=10.0)
BARE: dict[str, Any] = {
    "chainId": "43114",
    "status": "OK",
    "chainName": "Avalanche (C-Chain)",
    "description": "The Contract Chain of a network, with the virtual machine of Ethereum",
    "platformChainId": "2q9e4r6Mu3U68nU1fYjgbR6JvwrRx36CohpAX5UQxse55x1Q5",
    "subnetId": "11111111111111111111111111111111LpoYY",
    "vmName": "EVM",
}


@app.get("/bare")
async def bare() -> dict[str, Any]:
    """Answer without chainapi."""
    return BARE


class TimedRefusals:
    """Middleware that adds the milliseconds from a refusal to its response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""

        async def sent(message: Message) -> None:
            at = scope.get("state", {}).get("refused_at")
            if at is not None and message["type"] == "http.response.start":
                took = f"refusal;dur={(time.perf_counter() - at) * 1000:.3f}"
                message["headers"].append((b"server-timing", took.encode()))
            await send(message)

        await self._app(scope, receive, sent)


app.add_middleware(TimedRefusals)


@app.get("/chain")
async def chain(request: Request, session: SessionDep) -> Any:
    """Answer with a resource, in time or not at all."""
    try:
        return await session.with_options(max_wait=MAX_WAIT).data.get("/v1/chains/43114")
    except QuotaWaitError:
        request.state.refused_at = time.perf_counter()
        raise


@app.get("/cached")
async def cached(session: SessionDep) -> Any:
    """Answer with a resource that is at most a second old."""
    return await session.with_options(cache=cache).data.get("/v1/chains/43114")


@app.get("/blocks")
async def blocks(session: SessionDep) -> Response:
    """Stream rows until the client leaves."""
    return ndjson(session.data.evm.blocks(43114, page_size=10))


@app.get("/state")
async def state() -> dict[str, float]:
    """Answer with what this worker holds."""
    return {"pid": os.getpid(), "tasks": len(asyncio.all_tasks()), **_held()}


def _held() -> dict[str, float]:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "mebibytes": pages * os.sysconf("SC_PAGESIZE") / 2**20,
    }
