"""aiohttp.web: `python backend_aiohttp.py`."""

from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from chainapi import Session
from chainapi.contrib.problems import problem_of
from chainapi.contrib.streams import NDJSONBody
from chainapi.errors import ChainAPIError

SESSION = web.AppKey("session", Session)


async def session(app: web.Application) -> AsyncIterator[None]:
    """Open the session when the application starts."""
    async with Session(max_wait=2.0, deadline=10.0) as opened:
        app[SESSION] = opened
        yield


@web.middleware
async def answer_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer an error with problem details."""
    try:
        return await handler(request)
    except ChainAPIError as error:
        problem = problem_of(error, request.app[SESSION], request.path)
        return web.Response(
            body=problem.body,
            status=problem.status,
            headers=problem.headers,
            content_type=problem.MEDIA_TYPE,
        )


async def tps(request: web.Request) -> web.StreamResponse:
    """Stream rows as NDJSON."""
    chain = int(request.match_info["chain"])
    async with NDJSONBody(request.app[SESSION].metrics.avg_tps(chain)) as body:
        response = web.StreamResponse(headers={**body.headers, "content-type": body.media_type})
        await response.prepare(request)
        async for piece in body:
            await response.write(piece)
    return response


app = web.Application(middlewares=[answer_errors])
app.cleanup_ctx.append(session)
app.router.add_get(r"/tps/{chain:\d+}", tps)

if __name__ == "__main__":
    web.run_app(app, handler_cancellation=True)  # else a client that left is noticed at the next row
