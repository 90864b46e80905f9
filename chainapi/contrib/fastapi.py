"""chainapi in a FastAPI application (extra ``fastapi``)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from chainapi import Checkpoint, SessionView
from chainapi.contrib import missing, starlette
from chainapi.contrib.starlette import (
    add_exception_handlers,
    lifespan,
    ndjson,
    server_sent_events,
)

try:
    from fastapi import APIRouter, Depends
    from starlette.requests import HTTPConnection, Request
except ModuleNotFoundError:
    raise missing("fastapi") from None

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
]


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


def router() -> APIRouter:
    """Return a router with ``/quota`` and ``/health``.

    Neither sends anything upstream. The quota shows the tags and processes that spend it: include the router
    where only you can reach it.
    """
    made = APIRouter(tags=["chainapi"])
    made.add_api_route("/quota", starlette.quota, methods=["GET"], summary="Quota of each service")
    made.add_api_route("/health", starlette.health, methods=["GET"], summary="Health of the session")
    return made
