"""Rows, resources and errors that a session makes of the bytes of one response."""

from __future__ import annotations

import asyncio
import atexit
import json
import warnings
from collections.abc import Awaitable, Callable
from functools import cache, reduce
from pathlib import Path
from typing import Any, TypeVar

import pytest

from chainapi import ROUTES, Page, Session
from chainapi.errors import APIStatusError, DecodeError
from chainapi.export import export
from chainapi.testing import VirtualLoop
from tests.documents import Maker, values
from tests.sessions import Answering, reaching

__all__ = [
    "LARGE",
    "called",
    "decoded",
    "exported",
    "failure_of",
    "page_of",
    "refused",
    "resource_of",
    "rows_of",
    "table_of",
]

T = TypeVar("T")

LARGE = 2**18  # bytes; a larger body is decoded in several steps


def page_of(body: bytes, model: Any = None, items: str | None = "rows", **options: Any) -> Page[Any]:
    """Return the page that a list makes of a body."""

    async def read(session: Session) -> Page[Any]:
        return await anext(session.data.list("/v1/x", items=items, model=model, **options))

    return _read(body, read)


def rows_of(body: bytes, model: Any = None, items: str | None = "rows", **options: Any) -> list[Any]:
    """Return the rows that a list makes of a body."""
    return [*page_of(body, model, items, **options)]


def decoded(model: Any, *values: Any, **options: Any) -> list[Any]:
    """Return the rows that a list makes of JSON values."""
    return rows_of(json.dumps({"rows": values}).encode(), model, **options)


def resource_of(body: bytes, model: Any = None) -> Any:
    """Return the single resource that `get` makes of a body."""

    async def read(session: Session) -> Any:
        return await session.data.get("/v1/x", model=model)

    return _read(body, read)


def called(name: str, body: bytes, **options: Any) -> Any:
    """Return the page or the resource that a route makes of a body, by its dotted name."""
    declared = ROUTES[name]

    async def read(session: Session) -> Any:
        method: Any = reduce(getattr, name.split("."), session)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            made = method(**values(declared, Maker(seed=1), optional=False), **options)
            return await made if declared.single else await anext(made)

    return _read(body, read)


def table_of(body: bytes, model: Any = None, items: str | None = "rows", **options: Any) -> Any:
    """Return the table of Arrow of a list whose only page is a body; `amounts` is among the options."""
    amounts = options.pop("amounts", "text")

    async def read(session: Session) -> Any:
        pages = session.data.list("/v1/x", items=items, model=model, **options)
        return await pages.to_arrow(amounts=amounts)

    return _read(body, read)


def exported(body: bytes, out: Path, model: Any = None, **options: Any) -> Path:
    """Export a list whose only page is a body into a file, and return the file."""

    async def read(session: Session) -> None:
        await export(session.data.list, ["/v1/x"], out, items="rows", model=model, **options)

    _read(body, read)
    return out


def failure_of(body: bytes) -> APIStatusError:
    """Return the error of a response of 400 with a body."""

    async def read(session: Session) -> None:
        await session.data.get("/v1/x")

    with pytest.raises(APIStatusError) as caught:
        _read(body, read, 400)
    return caught.value


def refused(read: Any, *arguments: Any, **options: Any) -> DecodeError:
    """Return the DecodeError of a call of one of the functions above; its text is short and printable."""
    with pytest.raises(DecodeError) as caught:
        read(*arguments, **options)
    assert len(str(caught.value)) <= 2_000
    assert str(caught.value).isprintable()
    return caught.value


def _read(body: bytes, read: Callable[[Session], Awaitable[T]], status: int = 200) -> T:
    runner, session, transport = _opened()
    transport.body, transport.status = body, status
    transport.requests.clear()
    return runner.run(_awaited(read(session)))


async def _awaited(reading: Awaitable[T]) -> T:
    return await reading


@cache
def _opened() -> tuple[asyncio.Runner, Session, Answering]:
    """Return a session for all calls, and the loop in which it stays open.

    Thousands of calls take a quarter of the time that they would take with a session each.
    """
    runner, transport = asyncio.Runner(loop_factory=VirtualLoop), Answering()
    session = reaching(transport, max_attempts=1)

    def close() -> None:
        runner.run(session.aclose())
        runner.close()

    atexit.register(close)
    return runner, session, transport
