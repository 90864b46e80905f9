"""``chainapi list``: rows of any list, and the command that continues it.

Its argument is the name of a route, or a path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.pages import OnInvalid, Pages
from chainapi._text import did_you_mean, quoted
from chainapi.cli.common import (
    DEFAULT_LIMIT,
    DEFAULTS,
    FAILED,
    ConnectionOptions,
    Flag,
    Hidden,
    Many,
    open_session,
    refuse,
)
from chainapi.cli.names import (
    RouteName,
    Value,
    call_of,
    field_types,
    is_path,
    method_of,
    plain,
    resolve,
)
from chainapi.cli.tables import row_writer
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import again, counted, worded
from chainapi.errors import ChainAPIError, CheckpointError, ConfigurationError, DecodeError
from chainapi.models.invalid import Invalid
from chainapi.models.unions import wire_name

__all__ = ["list_"]


async def list_(
    route: RouteName,
    /,
    *values: Value,
    api: Literal["data", "metrics"] | None = None,
    items: str | None = None,
    page_size: PositiveInt | None = None,
    param: Many = None,
    limit: PositiveInt = DEFAULT_LIMIT,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    fields: str | None = None,
    resume: str | None = None,
    on_invalid: OnInvalid = "raise",
    json: Flag = False,
    connection: ConnectionOptions = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Print the rows of a list, or a single resource.

    Args:
        route: A name, such as data.evm.blocks, or a path, such as /v1/chains/43114/blocks.
        values: Values of the parameters in the path of a named route, such as 43114.
        api: Service of a path; data by default.
        items: Field with the list of a path; by default the only list.
        page_size: Rows per page; by default the maximum of a named route.
        param: Parameter as NAME=VALUE; may be repeated.
        limit: Rows in total.
        all_: All rows; --limit has no effect.
        fields: Fields of a row, separated by commas; all by default.
        resume: Checkpoint to continue from, as it was printed.
        on_invalid: Rows that do not fit: raise ends the command, raw prints them as received.
        json: JSON lines; the default if the output is not a terminal.
        connection: Options of the session.
        terminal: The streams of the command.

    """
    table, printed = terminal.interactive and not json, _printed(route, fields)
    if is_path(route):
        refuse(f"{route} includes its values", VALUE=values)
    method, query = call_of(route, values, param, page_size, api=api, items=items)
    if not is_path(route) and resolve(route).single:
        invalid = {"on-invalid": on_invalid == "raw"}
        refuse(f"{route} returns a single resource", all=all_, resume=resume, **invalid)
        async with open_session(terminal, connection, table=table) as session:
            resource = printed(await method_of(session, method)(**query))
        terminal.line(resource, indent=2 if table else None)
        return 0
    path = [route] if is_path(route) else []
    try:
        start = None if resume is None else Checkpoint.loads(resume)
    except CheckpointError as error:
        raise ConfigurationError(f"--resume: {error}") from None
    stream: Pages[Any] | None = None
    try:
        async with open_session(terminal, connection, table=table) as session:
            pages = method_of(session, method)(*path, **query, on_invalid=on_invalid, resume=start)
            stream = pages
            await _print_rows(terminal, pages, None if all_ else limit, printed, table=table)
    except (ChainAPIError, asyncio.CancelledError) as error:
        invalid_row = isinstance(error, DecodeError) and error.row is not None
        if stream is None or not ((at := stream.checkpoint).rows or invalid_row):
            raise
        options = {"on_invalid": "raw"} if invalid_row else {}
        if not all_:
            options["limit"] = f"{limit - at.rows + (start.rows if start else 0)}"
        if isinstance(error, ChainAPIError):
            terminal.note(worded(error, "--on-invalid raw prints such a row as received"))
        command = again(terminal.words, **options, resume=at.dumps())
        terminal.note(f"{counted(at.rows, 'row')} so far; to continue: {command}")
        if isinstance(error, ChainAPIError):
            return FAILED
        raise
    return 0


def _printed(route: str, fields: str | None) -> Callable[[Any], Any]:
    """Return a function of a row: its JSON, with the chosen fields alone.

    Raises:
        ConfigurationError: the rows of the route have no field of a name.

    """
    made: Callable[[Any], Any] = (lambda row: row) if is_path(route) else plain
    if fields is None:
        return made
    names = [name.strip() for name in fields.split(",")]
    known = [] if is_path(route) else [name for one in field_types(resolve(route)).values() for name in one]
    if wrong := next((name for name in names if known and name not in known), None):
        hint = did_you_mean(wrong, known, f"`chainapi routes {route}` shows them")
        raise ConfigurationError(f"--fields: the rows of {route} have no field {quoted(wrong)}: {hint}")

    def chosen(row: Any) -> Any:
        found = made(row)
        if not isinstance(found, dict):
            return found
        return {name: found.get(name, found.get(wire_name(name))) for name in names}

    return chosen


async def _print_rows(
    terminal: Terminal, stream: Pages[Any], most: int | None, printed: Callable[[Any], Any], *, table: bool
) -> None:
    """Print rows, and at the end a line about those that were invalid."""
    number, first = 0, None
    try:
        with row_writer(terminal, table=table) as write:
            async with aclosing(stream.items(most)) as rows:
                async for row in rows:
                    if isinstance(row, Invalid):
                        number, first = number + 1, first or row.error
                    write(printed(row.raw if isinstance(row, Invalid) else row))
    finally:
        if first is not None:
            what = f"{counted(number, 'invalid row')} printed as received"
            terminal.note(f"{what}; the first: {worded(first)}")
