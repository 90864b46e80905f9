"""Quart: `hypercorn backend_quart:app`."""

from collections.abc import AsyncGenerator

from quart import Quart, Response, request

from chainapi import Session
from chainapi.contrib.problems import problem_of
from chainapi.contrib.streams import NDJSONBody
from chainapi.errors import ChainAPIError

app = Quart(__name__)


@app.while_serving
async def session() -> AsyncGenerator[None, None]:
    """Open the session when the application starts."""
    async with Session(max_wait=2.0, deadline=10.0) as opened:
        app.extensions["chainapi"] = opened
        yield


@app.errorhandler(ChainAPIError)
async def answer_error(error: ChainAPIError) -> Response:
    """Answer an error with problem details."""
    problem = problem_of(error, app.extensions["chainapi"], request.path)
    return Response(problem.body, problem.status, dict(problem.headers), content_type=problem.MEDIA_TYPE)


@app.get("/tps/<int:chain>")
async def tps(chain: int) -> Response:
    """Stream rows as NDJSON."""
    body = NDJSONBody(app.extensions["chainapi"].metrics.avg_tps(chain))
    await body.begin()  # an error by now becomes a status
    response = Response(aiter(body), headers=dict(body.headers), content_type=body.media_type)
    response.timeout = None  # a wait for quota may take longer than Quart's minute
    return response
