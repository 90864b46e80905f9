"""chainapi in a Starlette application: session, errors, streams, health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http import HTTPStatus
from time import time
from typing import Any, ParamSpec, TypeAlias

import msgspec

from chainapi import Checkpoint, Pages, Session, SessionView
from chainapi._background import end, finish
from chainapi.contrib.deadlines import within
from chainapi.contrib.problems import problem_of, upstream_error
from chainapi.contrib.streams import HEARTBEAT, Body, NDJSONBody, SSEBody
from chainapi.core.arguments import function
from chainapi.core.extras import missing_extra
from chainapi.errors import ChainAPIError, ConfigurationError, QuotaWaitError, SessionClosedError
from chainapi.events import Event, ResponseReceived

try:
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Message, Receive, Scope, Send
    from starlette.websockets import WebSocket
except ModuleNotFoundError:
    raise missing_extra("chainapi.contrib needs", "starlette", "fastapi") from None

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
    "within",
]

_CLIENT_LEFT = 499  # status of a request whose client did not wait, as nginx has it in its log
_TRY_AGAIN_LATER, _INTERNAL_ERROR = 1013, 1011  # codes of a WebSocket that is closed
_SESSION, _ANSWERS = "chainapi", "chainapi_answers"  # names in the state of an application

P = ParamSpec("P")
Answers: TypeAlias = dict[str, tuple[float, ResponseReceived]]  # the last of each service, and its time
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]


def _with_arguments_of(_: Callable[P, Session]) -> Callable[[Callable[..., Lifespan]], Callable[P, Lifespan]]:
    """Return a decorator: type checkers then know the arguments of a function."""
    return lambda function: function


@_with_arguments_of(Session)
def lifespan(**arguments: Any) -> Lifespan:
    """Return a lifespan that opens a session, and closes it with the application.

    The session is ``app.state.chainapi``, and for mounted applications ``request.state.chainapi``. A lifespan
    of your own enters it: ``async with lifespan(...)(app) as state: yield state``.

    Args:
        arguments: arguments of `chainapi.Session`.

    Raises:
        ConfigurationError: at the start of the application; an argument or a variable is invalid.

    """

    @asynccontextmanager
    async def owned(app: Any) -> AsyncIterator[dict[str, Any]]:
        answers: Answers = {}
        then = function("on_event", arguments.get("on_event") or (lambda _: None))

        def listen(event: Event) -> None:
            if isinstance(event, ResponseReceived):
                answers[event.service] = asyncio.get_running_loop().time(), event
            then(event)

        async with Session(**{**arguments, "on_event": listen}) as session:
            state = {_SESSION: session, _ANSWERS: answers}
            for name, value in state.items():
                setattr(app.state, name, value)
            yield state

    return owned


def get_session(connection: HTTPConnection) -> SessionView:
    """Return the session of the application.

    Raises:
        ConfigurationError: the application has none; the message names the lifespan.

    """
    if (session := _session(connection)) is None:
        raise ConfigurationError(
            "the application has no session in app.state.chainapi: pass lifespan=lifespan(...) of"
            " chainapi.contrib.fastapi or .starlette to it, or set the attribute in a test"
        )
    return session


def _session(connection: HTTPConnection) -> SessionView | None:
    session = _found(connection, _SESSION)
    return session if isinstance(session, SessionView) else None


def _found(connection: HTTPConnection, name: str) -> Any:
    """Return what the lifespan left for an application, or for the outer one."""
    return getattr(connection.app.state, name, None) or getattr(connection.state, name, None)


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

    It answers an ExceptionGroup of them too, which a task group of your handler raises. A WebSocket is closed
    with code 1013 ("try again later") or 1011. See the table in docs/web.md.
    """
    app.add_exception_handler(ChainAPIError, _answer_error)
    app.add_exception_handler(ExceptionGroup, _answer_error)


async def _answer_error(connection: Any, fault: Exception) -> Any:
    """Answer an error; close a WebSocket with the kind of problem as its reason."""
    error = upstream_error(fault)
    if error is None:
        raise fault
    problem = problem_of(error, _session(connection), _place(connection.scope))
    if isinstance(connection, WebSocket):
        later = problem.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
        return await connection.close(_TRY_AGAIN_LATER if later else _INTERNAL_ERROR, problem.kind)
    return Response(problem.body, problem.status, problem.headers, problem.MEDIA_TYPE)


def ndjson(stream: AsyncIterable[Any], *, limit: int | None = None) -> StreamResponse:
    """Return a response with a row as JSON in each line, sent while pages arrive.

    An error before the first row is raised, so that it becomes a status. A later one is the last line:
    ``{"error": {...}}`` with the problem details, and with the checkpoint.

    Args:
        stream: `Pages`, or any asynchronous iterable of rows. It is closed when the client leaves.
        limit: rows at most; those before a resume count too.

    """
    return StreamResponse(NDJSONBody(stream, limit=limit))


def server_sent_events(
    stream: AsyncIterable[Any], *, limit: int | None = None, heartbeat: float = HEARTBEAT
) -> Response:
    """Return a response of server-sent events, sent while pages arrive.

    The events are ``rows`` with a list of rows, ``waiting`` with the seconds of a wait for quota, ``problem``
    with the problem details of an error, and ``end``. The id of ``rows`` is the checkpoint after them: a
    browser that connects again sends it as Last-Event-ID (see `last_checkpoint`). A list that had ended by
    then is answered with 204, at which browsers stop connecting again.

    Args:
        stream: `Pages`, or any asynchronous iterable of rows. It is closed when the client leaves.
        limit: rows at most; those before a resume count too.
        heartbeat: seconds of silence after which a comment or a ``waiting`` event is sent.

    """
    body = SSEBody(stream, limit=limit, heartbeat=heartbeat)
    if isinstance(stream, Pages) and (stream.exhausted or body.rows_left == 0):
        return Response(status_code=204, headers={"cache-control": "no-store"})
    return StreamResponse(body)


class StreamResponse(Response):
    """Response that sends a `Body`, and closes it when the client leaves.

    Args:
        body: the body; the response sets its `place`.

    """

    def __init__(self, body: Body) -> None:
        self._body = body
        self.status_code = 200
        self.background: BackgroundTask | None = None
        self.media_type: str | None = body.media_type
        self.init_headers(body.headers)
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response.

        Raises:
            ChainAPIError: any of chainapi's errors, before the response has begun.

        """
        body = self._body
        body.place = _place(scope)
        sending = asyncio.create_task(self._send(body, send, head=scope["method"] == "HEAD"))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sending, leaving), return_when="FIRST_COMPLETED")
            if sending.done():
                sending.result()
        except asyncio.CancelledError:
            if self._begun:
                raise
            raise _shut_down(body.quota_wait) from None
        finally:
            try:
                await end(sending, leaving)
            finally:
                await body.aclose()
        if not self._begun:  # BaseHTTPMiddleware takes an application without a response for a broken one
            send = _quiet(send)
            with suppress(_ClientLeftError):
                await send({"type": "http.response.start", "status": _CLIENT_LEFT, "headers": []})
                await send({"type": "http.response.body"})
        if self.background is not None:
            await self.background()

    async def _send(self, body: Body, send: Send, *, head: bool) -> None:
        await body.begin()
        self._begun, send = True, _quiet(send)
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        with suppress(_ClientLeftError):
            await finish(send(start))  # whole, or nobody would know whether the response has begun
            if not head:
                async for piece in body:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _shut_down(wait: float) -> ChainAPIError:
    """Return the error of a request that a server cancels when it shuts down."""
    if wait:
        return QuotaWaitError(time() + wait, retry_after=wait, deadline=0.0)
    return SessionClosedError("the server shut down before the first page came")


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
    return f"{scope.get('method', 'WEBSOCKET')} {scope['path']!r}"


async def quota(request: Request) -> Response:
    """Answer with the quota of each service as JSON; nothing is sent upstream."""
    quotas = get_session(request).quota
    return _json({name: msgspec.Raw(quota.to_json()) for name, quota in quotas.items()})


async def health(request: Request) -> Response:
    """Answer with the state of the session and the last answers of the services.

    The status is 503 if the session is not open. Nothing is sent upstream.
    """
    session, answers = _session(request), _found(request, _ANSWERS) or {}
    is_open = session is not None and not session.connection.closed
    now = asyncio.get_running_loop().time()
    last = {
        name: {
            "status": answer.status,
            "fault": answer.fault or None,
            "elapsed": round(answer.elapsed, 3),
            "seconds_ago": round(now - at, 3),
        }
        for name, (at, answer) in answers.items()
    }
    report = {"session": "open" if is_open else "closed", "last_answers": last}
    return _json(report, 200 if is_open else 503)


def routes() -> list[Route]:
    """Return the routes ``/quota`` and ``/health``."""
    return [Route("/quota", quota), Route("/health", health)]


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, {"cache-control": "no-store"}, "application/json")
