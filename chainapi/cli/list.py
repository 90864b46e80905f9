"""``chainapi list``: the rows of any list, by name or by path, and how to go on with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any, Literal, Self, TypeAlias

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
    read_checkpoint,
    refuse,
    with_page_size,
    write_rows,
)
from chainapi.cli.names import (
    RouteName,
    Value,
    as_it_is,
    calling,
    is_path,
    method_of,
    plain,
    read_query,
    read_values,
    resolve,
)
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import counted, shell_words, worded
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.errors import ChainAPIError, DecodeError
from chainapi.models.invalid import Invalid
from chainapi.session import Session

__all__ = ["list_"]


async def list_(
    route: RouteName,
    /,
    *values: Value,
    api: Literal["data", "metrics"] | None = None,
    items: str | None = None,
    page_size: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    param: Many = None,
    limit: Rows = DEFAULT_LIMIT,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    resume: str | None = None,
    on_invalid: OnInvalid = "raise",
    json: Flag = False,
    connection: Connection = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Print the rows of a list, by the name of its route or by its path.

    A walk that fails or is interrupted says on standard error how to go on where it stood.

    Of a route that gives a single resource, that is printed.

    Args:
        route: A name, such as data.evm.blocks, or a path, such as /v1/chains/43114/blocks.
        values: What stands in the path of a named route, such as 43114.
        api: The service that has the path; data by default.
        items: The field of the answer that holds the list of a path; without it, the only one that holds any.
        page_size: Rows a page; by default as many as a named route gives at most.
        param: A parameter as NAME=VALUE; may be repeated.
        limit: Rows in all.
        all_: All rows, whatever --limit says.
        resume: A checkpoint to go on from, as it was printed.
        on_invalid: What becomes of a row that is not what the route promises: raise ends the command at it,
            raw prints it as it came.
        json: JSON lines instead of a table; always so where the output is no terminal.
        connection: How the services are reached.
        terminal: Where the command writes.

    """
    table = terminal.interactive and not json
    if is_path(route):
        refuse(f"{route} has its values in it", VALUE=values)
        opened = _by_path(
            route, param or [], api=api, items=items, page_size=page_size, on_invalid=on_invalid
        )
    else:
        refuse(f"the name {route} says it", api=api, items=items)
        query = read_values(route, values, with_page_size(param, page_size))
        if resolve(route).single:
            invalid = {"on-invalid": on_invalid == "raw"}
            refuse(f"{route} gives a single resource, no list", all=all_, resume=resume, **invalid)
            return await _print_resource(terminal, connection, route, query, table=table)
        opened = _by_name(terminal, route, {**query, "on_invalid": on_invalid})
    start = read_checkpoint(resume)
    stream: Pages[Any] | None = None
    try:
        async with open_session(terminal, connection, table=table) as session:
            pages = stream = opened(session, start)
            with _Invalid(terminal) as invalid_rows, closing(terminal.rows(table=table)) as rows:
                shown = as_it_is if is_path(route) else plain
                write = invalid_rows.noted(lambda row: rows.add(shown(row)))
                await write_rows(pages, None if all_ else limit, write)
    except (ChainAPIError, asyncio.CancelledError) as error:
        invalid_row = isinstance(error, DecodeError) and error.row is not None
        if stream is None or not ((at := stream.checkpoint).rows or invalid_row):
            raise
        on_invalid = "raw" if invalid_row else on_invalid
        left = {"all": True} if all_ else {"limit": limit - at.rows + (start.rows if start else 0)}
        options = {"api": api, "items": items, "page_size": page_size, "param": param, "json": json, **left}
        if on_invalid == "raw":
            options["on_invalid"] = on_invalid
        if isinstance(error, ChainAPIError):
            terminal.complain(worded(error, "--on-invalid raw prints such a row as it came"))
        _tell_how_to_go_on(terminal, [route, *(values)], {**options, **changed(connection)}, at)
        if isinstance(error, ChainAPIError):
            return FAILED
        raise
    return 0


class _Invalid:
    """Counts the rows that could not be made, and tells of them in the end."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._count = 0
        self._first: DecodeError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._first is not None:
            came = "it came" if self._count == 1 else "they came"
            what = f"{counted(self._count, 'invalid row')} printed as {came}"
            self._terminal.complain(f"{what}; the first: {worded(self._first)}")

    def noted(self, write: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a writer of rows that counts the invalid ones."""

        def written(row: Any) -> None:
            if isinstance(row, Invalid):
                self._count += 1
                self._first = self._first or row.error
            write(row)

        return written


# Opens a stream in a session, where a checkpoint says.
_Opener: TypeAlias = Callable[[Session, Checkpoint | None], Pages[Any]]


def _by_path(path: str, param: Sequence[str], *, api: str | None, **options: Any) -> _Opener:
    query = read_query(param)

    def opened(session: Session, start: Checkpoint | None) -> Pages[Any]:
        service = session.metrics if api == "metrics" else session.data
        pages: Pages[Any] = service.list(path, resume=start, **options, **query)
        return pages

    return opened


def _by_name(terminal: Terminal, name: str, query: Mapping[str, Any]) -> _Opener:
    def opened(session: Session, start: Checkpoint | None) -> Pages[Any]:
        with calling(terminal, name):
            pages: Pages[Any] = method_of(session, name)(**query, resume=start)
        return pages

    return opened


async def _print_resource(
    terminal: Terminal, connection: Connection, name: str, query: Mapping[str, Any], *, table: bool
) -> int:
    async with open_session(terminal, connection, table=table) as session:
        with calling(terminal, name):
            resource = plain(await method_of(session, name)(**query))
    terminal.line(resource, indent=2 if table else None)
    return 0


def _tell_how_to_go_on(
    terminal: Terminal, what: Sequence[str], options: Mapping[str, object], checkpoint: Checkpoint
) -> None:
    words = ["chainapi", "list", *what, *option_words(options), "--resume", checkpoint.dumps()]
    terminal.tell(f"{counted(checkpoint.rows, 'row')} so far; to go on: {shell_words(words)}")
