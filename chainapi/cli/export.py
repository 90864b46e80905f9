"""``chainapi export``: many lists at once into files, watched while they grow."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attrs import asdict
from cyclopts import Parameter
from cyclopts.validators import Number

from chainapi.cli.common import (
    DEFAULTS,
    FAILED,
    Connection,
    Flag,
    Hidden,
    Many,
    Rows,
    cancelled_by_sigterm,
    changed,
    option_words,
    refuse,
    with_page_size,
)
from chainapi.cli.export_view import ExportView
from chainapi.cli.names import (
    RouteName,
    Value,
    calling,
    is_path,
    method_of,
    read_query,
    read_value,
    read_values,
    resolve,
    usage,
)
from chainapi.cli.progress import Progress
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import counted, shell_words, worded
from chainapi.client.pages import OnInvalid
from chainapi.errors import ChainAPIError, ConfigurationError, IncompleteExportError
from chainapi.export import export as run

if TYPE_CHECKING:
    from chainapi.api.endpoint import Endpoint
    from chainapi.export.run import ExportResult
    from chainapi.session import Session

__all__ = ["export"]

CONCURRENCY = 32  # sources

_EXPORT_OPTIONS = frozenset(inspect.signature(run).parameters)

FileFormat = Literal["jsonl", "csv", "parquet", "sqlite", "duckdb"]


async def export(
    route: RouteName,
    /,
    *values: Value,
    out: str,
    format_: Annotated[FileFormat | None, Parameter(name="--format")] = None,
    param: Many = None,
    page_size: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    over: str | None = None,
    from_: Annotated[str | None, Parameter(name="--from", allow_leading_hyphen=True)] = None,
    api: Literal["data", "metrics"] | None = None,
    items: str | None = None,
    limit: Rows | None = None,
    on_invalid: OnInvalid = "raise",
    concurrency: Rows = CONCURRENCY,
    quiet: Flag = False,
    connection: Connection = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Fetch many lists at once into a file, or into a folder that gets a file each run.

    Started again after whatever ended it, it goes on where it stood; once all is there, it fetches what is
    new where the rows come newest first. What it remembers is in FILE.export, or in DIR/_export.

    Args:
        route: The route by its name, such as data.evm.blocks, or a path.
        values: The sources: values of the parameter in the path that --param does not give; further paths.
        out: File or folder. A name that has no suffix, or ends with a slash, is a folder.
        format_: What the file is; else its suffix says it, and a folder gets jsonl.
        param: A parameter of all sources as NAME=VALUE; may be repeated.
        page_size: Rows a page; else as many as the route gives.
        over: The parameter that the sources are values of, where it is another one.
        from_: File with a source in each line; - is standard input.
        api: The service that has the path; data by default.
        items: The field of the answer that holds the list of a path; without it, the only one that holds any.
        limit: Rows of each source; all without it. A later run fetches all that is new.
        on_invalid: What becomes of a row that is not what the route promises: raise leaves its source for a
            later run, raw puts it into FILE.invalid, beside the file.
        concurrency: Sources that are open at once.
        quiet: Show no progress.
        connection: How the services are reached.
        terminal: Where the command writes.

    """
    options = {
        "out": out,
        "format": format_,
        "param": param,
        "page_size": page_size,
        "over": over,
        "from": from_,
        "api": api,
        "items": items,
        "limit": limit,
        "on_invalid": None if on_invalid == "raise" else on_invalid,
        "concurrency": None if concurrency == CONCURRENCY else concurrency,
        "quiet": quiet,
    }
    again = ["chainapi", "export", route, *values, *option_words({**options, **changed(connection)})]
    words = [*dict.fromkeys([*values, *(_lines(from_) if from_ is not None else ())])]
    traffic = Progress(asyncio.get_running_loop().time)
    async with terminal.session(**asdict(connection), on_event=traffic) as session:
        view = ExportView(traffic, lambda: session.quota, terminal.now)
        try:
            with calling(terminal, route), cancelled_by_sigterm():
                walk, sources, query = _asked(
                    session, route, words, param or [], page_size, over=over, api=api, items=items
                )
                async with view.shown(terminal, quiet=quiet):
                    result = await run(
                        walk,
                        sources,
                        out,
                        format=format_,
                        limit=limit,
                        concurrency=concurrency,
                        on_progress=view.update,
                        on_invalid=on_invalid,
                        **query,
                    )
        except (ChainAPIError, asyncio.CancelledError) as error:
            if isinstance(error, ChainAPIError):
                if view.progress is None:  # nothing was begun
                    raise
                _complain(terminal, route, error)
            same = " with the same standard input" if from_ == "-" else ""
            terminal.tell(f"{view.kept()}; to go on{same}: {shell_words(again)}")
            if isinstance(error, ChainAPIError):
                return FAILED
            raise
    terminal.tell(_summary(result))
    return 0


def _complain(terminal: Terminal, route: str, error: ChainAPIError) -> None:
    """Tell an error, or those of all sources that failed."""
    if isinstance(error, IncompleteExportError):
        for label, failure in error.failures.items():
            terminal.complain(f"{label or route}: {worded(failure, _ADVICE)}")
    else:
        terminal.complain(worded(error))


_ADVICE = "--on-invalid raw puts such rows into a file of their own"


def _lines(name: str) -> list[str]:
    """Return the lines of a file, or of standard input, that have something in them.

    Raises:
        ConfigurationError: it cannot be read.

    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(f"--from {name} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--from {name} is no text in UTF-8") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _asked(
    session: Session,
    route: str,
    words: Sequence[str],
    params: Sequence[str],
    page_size: int | None,
    *,
    over: str | None,
    api: str | None,
    items: str | None,
) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]:
    """Return the method, its sources, and the arguments that all of them share.

    Raises:
        ConfigurationError: what is asked for does not fit together.

    """
    if is_path(route):
        refuse(f"the sources of {route} are more paths", over=over)
        options = {"page_size": page_size, "items": items}
        given = {name: value for name, value in options.items() if value is not None}
        query = {**given, **read_query(params, _EXPORT_OPTIONS)}
        return getattr(session, api or "data").list, _paths(route, words), query
    refuse(f"the name {route} says it", api=api, items=items)
    sources, query = _of_route(route, words, with_page_size(params, page_size), over)
    return method_of(session, route), sources, query


def _paths(route: str, words: Sequence[str]) -> list[str]:
    if wrong := next((word for word in words if not is_path(word)), None):
        raise ConfigurationError(f"{wrong!r} is no path: the sources of {route} are more paths")
    return [*dict.fromkeys([route, *words])]


def _of_route(
    route: str, words: Sequence[str], params: Sequence[str], over: str | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the arguments of each source, and those that all of them share."""
    declared = resolve(route)
    if declared.single:
        raise ConfigurationError(f"{route} gives one resource, no list: `chainapi list` prints it")
    shared = read_values(route, (), params, whole=False)
    name = over or _left_out(declared, route, shared)
    if name is None:
        if words:
            raise ConfigurationError(f"{words[0]!r} is one value too many: {usage(route)}")
        return [{}], shared
    varied = next((one for one in declared.parameters if one.name == name and name not in shared), None)
    if varied is None:
        raise ConfigurationError(f"--over {name}: it is given by --param, or {route} does not take it")
    if not words:
        raise ConfigurationError(f"there is nothing to export: give values of {name}, or --from FILE")
    return [{name: read_value(varied, word)} for word in words], shared


def _left_out(declared: Endpoint, route: str, shared: Mapping[str, Any]) -> str | None:
    """Return the one parameter in the path that is not given; None where all are."""
    left = [one.name for one in declared.parameters if one.in_path and one.name not in shared]
    if len(left) > 1:
        raise ConfigurationError(
            f"{route} needs {', '.join(left)}: give all but one with --param NAME=VALUE, "
            "the values are then those of the one that is left"
        )
    return left[0] if left else None


def _summary(result: ExportResult) -> str:
    rows, sources = counted(result.rows, "new row"), counted(result.sources, "source")
    if result.written is None:
        return f"nothing new: {result.path} has the rows of {sources}"
    invalid = (
        "" if result.written_invalid is None else f"; {result.invalid:,} invalid in {result.written_invalid}"
    )
    return f"{rows} of {sources} fetched, {result.written} written{invalid}"
