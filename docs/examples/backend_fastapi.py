"""FastAPI: `uvicorn backend_fastapi:app`."""

from typing import Any

from fastapi import FastAPI

from chainapi.contrib.fastapi import (
    ResumeDep,
    SessionDep,
    add_exception_handlers,
    lifespan,
    ndjson,
    router,
    server_sent_events,
)

app = FastAPI(lifespan=lifespan(max_wait=2.0, deadline=10.0))
add_exception_handlers(app)
app.include_router(router(), prefix="/internal")


@app.get("/tps/{chain}")
async def tps(chain: int, session: SessionDep, resume: ResumeDep) -> Any:
    """Stream rows as NDJSON."""
    return ndjson(session.metrics.avg_tps(chain, resume=resume))


@app.get("/tps/{chain}/events")
async def tps_events(chain: int, session: SessionDep, resume: ResumeDep) -> Any:
    """Stream rows as server-sent events, for an `EventSource` in a browser."""
    patient = session.with_options(max_wait=3600.0, deadline=3600.0)
    return server_sent_events(patient.metrics.avg_tps(chain, resume=resume))
