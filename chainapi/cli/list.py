"""``chainapi list``: the rows of any list, and how to go on with them."""

from __future__ import annotations

import asyncio
import inspect
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from chainapi.cli.common import (
    DEFAULT_LIMIT,
    DEFAULTS,
    FAILED,
    Connection,
    Flag,
    Hidden,
    Many,
    Rows,
    changed,
    open_session,
    option_words,
    write_rows,
)
from chainapi.cli.display import Terminal, counted
from chainapi.core.checkpoint import Checkpoint
from chainapi.errors import ChainAPIError, ConfigurationError
from chainapi.pages import Pages
from chainapi.service import ServiceAPI

__all__ = ["list_"]


async def list_(
    path: str,
    /,
    *,
    api: Literal["data", "metrics"] = "data",
    items: str | None = None,
    page_size: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    param: Many = None,
    limit: Rows = DEFAULT_LIMIT,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    resume: str | None = None,
    json: Flag = False,
    connection: Connection = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Print the rows of any list route.

    A walk that fails or is interrupted says on standard error how to go on where it stood.

    Args:
        path: The route, such as /v1/chains/43114/blocks.
        api: The service that has it.
        items: The field that holds the list; without it, the only one that holds any.
        page_size: Rows a page.
        param: A query parameter as NAME=VALUE; may be repeated.
        limit: Rows in all.
        all_: All rows, whatever --limit says.
        resume: A checkpoint to go on from, as it was printed.
        json: JSON lines instead of a table; always so where the output is no terminal.
        connection: How the services are reached.
        terminal: Where the command writes.

    """
    start = None if resume is None else Checkpoint.loads(resume)
    values = _params(param or [])
    table = terminal.interactive and not json
    stream: Pages[Any] | None = None
    try:
        async with open_session(terminal, connection, table=table) as session:
            service = session.data if api == "data" else session.metrics
            pages = stream = service.list(path, items=items, page_size=page_size, resume=start, **values)
            with closing(terminal.rows(table=table)) as rows:
                await write_rows(pages, None if all_ else limit, rows.add)
    except (ChainAPIError, asyncio.CancelledError) as error:
        if stream is None or not (at := stream.checkpoint).rows:
            raise
        given = at.rows - (start.rows if start else 0)
        options = {"api": api, "items": items, "page_size": page_size, "param": param, "json": json}
        options |= {"all": True} if all_ else {"limit": limit - given}
        if isinstance(error, ChainAPIError):
            terminal.complain(error)
        _tell_how_to_go_on(terminal, path, {**options, **changed(connection)}, at)
        if isinstance(error, ChainAPIError):
            return FAILED
        raise
    return 0


def _tell_how_to_go_on(
    terminal: Terminal, path: str, options: Mapping[str, object], checkpoint: Checkpoint
) -> None:
    words = ["chainapi", "list", path, *option_words(options), "--resume", checkpoint.dumps()]
    terminal.tell(f"{counted(checkpoint.rows, 'row')} so far; to go on: {shlex.join(words)}")


def _params(texts: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE; a name that comes again has a list of values."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"--param {text!r} must be NAME=VALUE")
        if name in _OPTIONS:
            raise ConfigurationError(f"--param {text!r}: {name} is not for the query, see --help")
        values.setdefault(name, []).append(value)
    return values


_OPTIONS = frozenset(inspect.signature(ServiceAPI.list).parameters)
