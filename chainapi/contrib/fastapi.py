"""chainapi in a FastAPI application (extra ``fastapi``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeAlias

from chainapi import Checkpoint, SessionView
from chainapi._api.options import OPTIONS, call_options
from chainapi._http.options import CallOptions
from chainapi.contrib import starlette
from chainapi.contrib.starlette import (
    add_exception_handlers,
    lifespan,
    ndjson,
    server_sent_events,
    within,
)
from chainapi.core.arguments import refuse_unknown
from chainapi.core.extras import missing_extra

try:
    from fastapi import APIRouter, Depends
    from starlette.requests import HTTPConnection, Request
except ModuleNotFoundError:
    raise missing_extra("chainapi.contrib needs", "fastapi", "fastapi") from None

__all__ = [
    "ResumeDep",
    "SessionDep",
    "add_exception_handlers",
    "get_session",
    "last_checkpoint",
    "lifespan",
    "ndjson",
    "router",
    "server_sent_events",
    "view",
    "within",
]

P = ParamSpec("P")
ViewDependency: TypeAlias = Callable[..., Awaitable[SessionView]]


async def get_session(connection: HTTPConnection) -> SessionView:
    """Return the session of the application; a dependency, which tests can override.

    Raises:
        ConfigurationError: the application has none.

    """
    return starlette.get_session(connection)


async def last_checkpoint(request: Request) -> Checkpoint | None:
    """Return the checkpoint that a client sends to resume a stream; a dependency.

    Raises:
        CheckpointError: the text is no checkpoint.

    """
    return starlette.last_checkpoint(request)


SessionDep: TypeAlias = Annotated[SessionView, Depends(get_session)]
ResumeDep: TypeAlias = Annotated[Checkpoint | None, Depends(last_checkpoint)]


def _with_options_of(
    _: Callable[Concatenate[SessionView, P], SessionView],
) -> Callable[[Callable[..., ViewDependency]], Callable[P, ViewDependency]]:
    """Return a decorator: type checkers then know the arguments of a function."""
    return lambda function: function


@_with_options_of(SessionView.with_options)
def view(**options: Any) -> ViewDependency:
    """Return a dependency: a view of the application's session with other options.

    ``WebDep = Annotated[SessionView, Depends(view(max_wait=2.0, deadline=10.0, priority=1))]``. Its limits
    count the calls of all requests together.

    Args:
        options: options of `chainapi.SessionView.with_options`.

    Raises:
        ConfigurationError: an option is unknown or invalid.

    """
    refuse_unknown(options.keys() - set(OPTIONS), OPTIONS, "view")
    call_options(CallOptions(), options)

    async def made(session: SessionDep) -> SessionView:
        """Return the view of the session."""
        return session.with_options(**options)

    return made


def router() -> APIRouter:
    """Return a router with ``/quota`` and ``/health``.

    Neither sends anything upstream. The quota shows the tags and processes that spend it: include the router
    where only you can reach it.
    """
    made = APIRouter(tags=["chainapi"])
    made.add_api_route("/quota", starlette.quota, methods=["GET"], summary="Quota of each service")
    made.add_api_route("/health", starlette.health, methods=["GET"], summary="Health of the session")
    return made
