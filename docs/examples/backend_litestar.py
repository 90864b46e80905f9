"""Litestar: `uvicorn backend_litestar:app`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response, get
from litestar.datastructures import State
from litestar.params import FromPath
from litestar.response import Stream

from chainapi import Session
from chainapi.contrib.problems import problem_of
from chainapi.contrib.streams import NDJSONBody
from chainapi.errors import ChainAPIError


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    """Open the session when the application starts."""
    async with Session(max_wait=2.0, deadline=10.0) as session:
        app.state.session = session
        yield


def answer_error(request: Request[Any, Any, State], error: ChainAPIError) -> Response[bytes]:
    """Answer an error with problem details."""
    problem = problem_of(error, request.app.state.session, request.url.path)
    return Response(
        problem.body,
        status_code=problem.status,
        headers=dict(problem.headers),
        media_type=problem.MEDIA_TYPE,
    )


@get("/tps/{chain:int}")
async def tps(chain: FromPath[int], state: State) -> Stream:
    """Stream rows as NDJSON."""
    body = NDJSONBody(state.session.metrics.avg_tps(chain))
    await body.begin()  # an error by now becomes a status
    return Stream(body, media_type=body.media_type, headers=dict(body.headers))


app = Litestar([tps], lifespan=[lifespan], exception_handlers={ChainAPIError: answer_error})
