"""chainapi in a Starlette application: session, errors, streams, health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, ParamSpec, TypeAlias

from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from chainapi import Checkpoint, Pages, Session, SessionView
from chainapi.contrib.health import LastAnswers, health_of, quota_of
from chainapi.contrib.problems import problem_of, upstream_error
from chainapi.contrib.streams import HEARTBEAT, Body, NDJSONBody, SSEBody
from chainapi.errors import ChainAPIError, ConfigurationError

__all__ = [
    "StreamResponse",
    "add_exception_handlers",
    "get_session",
    "health",
    "last_checkpoint",
    "lifespan",
    "ndjson",
    "quota",
    "routes",
    "server_sent_events",
]

P = ParamSpec("P")
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[None]]


def _with_arguments_of(_: Callable[P, Session]) -> Callable[[Callable[..., Lifespan]], Callable[P, Lifespan]]:
    """Return a decorator that gives a function the arguments of `Session`, for type checkers."""
    return lambda function: function


@_with_arguments_of(Session)
def lifespan(**arguments: Any) -> Lifespan:
    """Return a lifespan that opens a session when the application starts, and closes it at the end.

    The session is ``app.state.chainapi``. A lifespan of your own enters it:
    ``async with lifespan(...)(app): ...``.

    Args:
        arguments: those of `chainapi.Session`.

    Raises:
        ConfigurationError: at the start of the application; an argument or a variable is invalid.

    """

    @asynccontextmanager
    async def owned(app: Any) -> AsyncIterator[None]:
        answers = LastAnswers(arguments.get("on_event"))
        async with Session(**{**arguments, "on_event": answers}) as session:
            app.state.chainapi, app.state.chainapi_answers = session, answers
            yield

    return owned


def get_session(connection: HTTPConnection) -> SessionView:
    """Return the session of the application.

    Raises:
        ConfigurationError: the application has none; the message names the lifespan.

    """
    session = getattr(connection.app.state, "chainapi", None)
    if not isinstance(session, SessionView):
        raise ConfigurationError(
            "the application has no session in app.state.chainapi: pass lifespan=lifespan(...) of"
            " chainapi.contrib to it, or set the attribute in a test"
        )
    return session


def last_checkpoint(request: Request) -> Checkpoint | None:
    """Return the checkpoint that a client sends to resume a stream.

    It is the header Last-Event-ID, which browsers send when they connect again, or the query parameter
    ``resume``. None without either.

    Raises:
        CheckpointError: the text is no checkpoint.

    """
    text = request.headers.get("last-event-id") or request.query_params.get("resume")
    return Checkpoint.loads(text) if text else None


def add_exception_handlers(app: Starlette) -> None:
    """Let an application answer each ChainAPIError with problem details (RFC 9457).

    It answers an ExceptionGroup of them too, which a task group of your handler raises. See the table in
    docs/web.md.
    """
    app.add_exception_handler(ChainAPIError, _answer_error)
    app.add_exception_handler(ExceptionGroup, _answer_error)


async def _answer_error(request: Request, fault: Exception) -> Response:
    error = upstream_error(fault)
    if error is None:
        raise fault
    session = getattr(request.app.state, "chainapi", None)
    snapshots = session.quota.values() if isinstance(session, SessionView) else ()
    problem = problem_of(error, snapshots, _place(request.scope))
    return Response(problem.body, problem.status, problem.headers, problem.MEDIA_TYPE)


def ndjson(stream: AsyncIterable[Any]) -> StreamResponse:
    """Return a response with a row as JSON in each line, sent while pages arrive.

    An error before the first row is raised, so that it becomes a status. A later one is the last line:
    ``{"error": {...}}`` with the problem details, and with the checkpoint.

    Args:
        stream: `Pages`, or any asynchronous iterable of rows. It is closed when the client leaves.

    """
    return StreamResponse(partial(NDJSONBody, stream))


def server_sent_events(stream: AsyncIterable[Any], *, heartbeat: float = HEARTBEAT) -> Response:
    """Return a response of server-sent events, sent while pages arrive.

    The events are ``rows`` with a list of rows, ``waiting`` with the seconds of a wait for quota, ``problem``
    with the problem details of an error, and ``end``. The id of ``rows`` is the checkpoint behind them: a
    browser that connects again sends it as Last-Event-ID (see `last_checkpoint`). A list that had ended by
    then is answered with 204, at which browsers stop connecting again.

    Args:
        stream: `Pages`, or any asynchronous iterable of rows. It is closed when the client leaves.
        heartbeat: seconds of silence after which a comment or a ``waiting`` event is sent.

    """
    if isinstance(stream, Pages) and stream.exhausted:
        return Response(status_code=204, headers={"cache-control": "no-store"})
    return StreamResponse(partial(SSEBody, stream, heartbeat=heartbeat))


class StreamResponse(Response):
    """Response that sends a `Body`, and closes it when the client leaves.

    Args:
        make_body: makes the body; it takes ``place=``, the request of the client.

    """

    def __init__(self, make_body: Callable[..., Body]) -> None:
        self._make_body = make_body
        self.status_code, self.background = 200, None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response.

        Raises:
            ChainAPIError: any of chainapi's errors, before the response has begun.

        """
        body = self._make_body(place=_place(scope))
        self.media_type = body.media_type
        self.init_headers(body.headers)
        sending = asyncio.create_task(self._send(body, send, head=scope["method"] == "HEAD"))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sending, leaving), return_when="FIRST_COMPLETED")
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await body.aclose()
        if self.background is not None:
            await self.background()

    async def _send(self, body: Body, send: Send, *, head: bool) -> None:
        await body.begin()
        send = _quiet(send)
        with suppress(_ClientLeftError):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if not head:
                async for piece in body:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class _ClientLeftError(Exception):
    """The server cannot send any more, because the client has left."""


def _quiet(send: Send) -> Send:
    """Return `send` with an error of its own for a client that has left.

    Rows of the user's own iterables may raise an OSError too, and that is no such end.
    """

    async def sent(message: Message) -> None:
        try:
            await send(message)
        except OSError:
            raise _ClientLeftError from None

    return sent


async def _disconnected(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _place(scope: Scope) -> str:
    return f"{scope.get('method', '')} {scope.get('path', '')!r}"


async def quota(request: Request) -> Response:
    """Answer with the quota of each service as JSON; nothing is sent upstream."""
    return _json(quota_of(get_session(request)))


async def health(request: Request) -> Response:
    """Answer with the state of the session and the last answers; 503 if it is not open.

    Nothing is sent upstream.
    """
    state = request.app.state
    session, answers = getattr(state, "chainapi", None), getattr(state, "chainapi_answers", None)
    report = health_of(session, answers)
    return _json(report.body, report.status)


def routes() -> list[Route]:
    """Return the routes ``/quota`` and ``/health``."""
    return [Route("/quota", quota), Route("/health", health)]


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, {"cache-control": "no-store"}, "application/json")
