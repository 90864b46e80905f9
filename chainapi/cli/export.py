"""``chainapi export``: many lists at once into files, with progress."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attrs import asdict
from cyclopts import Parameter
from cyclopts.validators import Number

from chainapi.cli.cluster import exporting_on, summary
from chainapi.cli.common import (
    DEFAULTS,
    FAILED,
    PARTLY,
    ConnectionOptions,
    Hidden,
    Many,
    Rows,
    cancelled_by_sigterm,
    changed,
    command_words,
    refuse,
    with_page_size,
)
from chainapi.cli.export_view import ExportView, Shown
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
from chainapi.export.formats import Compression
from chainapi.tables.types import Amounts

if TYPE_CHECKING:
    from chainapi.api.endpoint import Endpoint
    from chainapi.export.run import ExportResult

__all__ = ["export"]

CONCURRENCY = 32  # sources

_EXPORT_OPTIONS = frozenset(inspect.signature(run).parameters)

FileFormat = Literal[
    "jsonl", "csv", "parquet", "sqlite", "duckdb", "jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst"
]


async def export(
    route: RouteName,
    /,
    *values: Value,
    out: str,
    format_: Annotated[FileFormat | None, Parameter(name="--format")] = None,
    journal: str | None = None,
    param: Many = None,
    page_size: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    over: str | None = None,
    from_: Annotated[str | None, Parameter(name="--from", allow_leading_hyphen=True)] = None,
    api: Literal["data", "metrics"] | None = None,
    items: str | None = None,
    fields: str | None = None,
    amounts: Amounts | None = None,
    compression: Compression | None = None,
    compression_level: Rows | None = None,
    row_group_rows: Rows | None = None,
    limit: Rows | None = None,
    lookback: str | None = None,
    ranges: str | None = None,
    on_invalid: OnInvalid = "raise",
    concurrency: Rows = CONCURRENCY,
    partition: str | None = None,
    part_rows: Rows | None = None,
    part_bytes: Rows | None = None,
    part_seconds: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    dask: str | None = None,
    progress: Shown = "bar",
    connection: ConnectionOptions = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Export many lists at once to a file, or to a folder that grows by parts.

    The same command continues an export that was interrupted. After a complete
    export it fetches new rows, if the rows have a block number or a time. The
    state of the export is in FILE.export, in DIR/_export, or in --journal.

    Args:
        route: The name of a route, such as data.evm.blocks, or a path.
        values: The sources: values of the parameter in the path that --param leaves out; or more paths.
        out: File or folder, or a URL such as s3://bucket/blocks/. A name without a suffix, or with a slash at
            its end, is a folder.
        format_: Format of the files; by default that of the export in --out, of a new one that of the suffix,
            and jsonl in a folder without one.
        journal: Folder of the journal of a URL, on a local disk; by default one in the current directory,
            with the last name of the URL: blocks.export.
        param: A parameter of all sources as NAME=VALUE; may be repeated.
        page_size: Rows per page; by default the maximum of a named route.
        over: The parameter whose values are the sources, if it is another one.
        from_: File with one source per line; lines that begin with # are comments; - is standard input.
        api: The service of a path; data by default.
        items: The field of the response that holds the list of a path; by default the only list.
        fields: Columns of the files by their names in Python, separated by commas, such as
            block_number,block_hash; by default those of the export in --out, of a new one all. The first
            column is source in any case.
        amounts: Type of amounts, which may exceed 64 bits: text (the default of a new export) and decimal (38
            digits) are exact, float is rounded, binary is 32 bytes, unsigned.
        compression: Compression of Parquet files; by default that of the last run, zstd in a new export.
        compression_level: Level of the compression of Parquet, .gz and .zst, 1 to 22 of zstd and 1 to 9 of
            gzip; larger is smaller and slower.
        row_group_rows: Rows of a group in Parquet files; by default 100,000, or fewer if they take 64 MiB.
        limit: Most rows of each source; all by default. A later run fetches all new rows.
        lookback: How far below its newest row a finished source is fetched again, so that changed rows are
            corrected: 1d, 6h or 30min for rows with a time, "100 blocks" for rows with a block number.
        ranges: Number of ranges in which each source is walked side by side, such as 8, or the width of each,
            such as "100000 blocks" or "7 days"; one walk by default.
        on_invalid: Rows that do not match the route: raise fails the source, raw writes them to FILE.invalid.
        concurrency: Sources that are fetched at once; with --dask, in each of the 32 partitions.
        partition: Keys that divide the rows of a folder of Parquet, CSV or JSON lines, such as source,day:
            source, and day, month or year of the time of a row in UTC. Their values are names of folders; a
            later run has the same keys.
        part_rows: Rows after which a folder gets a part, also while the export runs; 1,000,000 by default.
        part_bytes: Bytes of rows, as JSON, after which it gets one; 256 MiB by default.
        part_seconds: Seconds after which fetched rows become a part; 600 by default.
        dask: Address of a Dask scheduler, such as tcp://host:8786: its workers fetch, and write Parquet files
            to the folder or the URL of --out.
        progress: bar on a terminal, and a line every ten seconds elsewhere; or json: a line of JSON every
            second; or none.
        connection: Options of the session.
        terminal: The streams of the command.

    """
    parts = {"part_rows": part_rows, "part_bytes": part_bytes, "part_seconds": part_seconds}
    parquet = {
        "compression": compression,
        "compression_level": compression_level,
        "row_group_rows": row_group_rows,
    }
    more = {**parts, **parquet, "lookback": lookback, "ranges": ranges, "journal": journal}
    options = {
        "out": out,
        "format": format_,
        "journal": journal,
        "param": param,
        "page_size": page_size,
        "over": over,
        "from": from_,
        "api": api,
        "items": items,
        "fields": fields,
        "amounts": amounts,
        **parquet,
        "limit": limit,
        "lookback": lookback,
        "ranges": ranges,
        "on_invalid": None if on_invalid == "raise" else on_invalid,
        "concurrency": None if concurrency == CONCURRENCY else concurrency,
        "partition": partition,
        **parts,
        "dask": dask,
        "progress": None if progress == "bar" else progress,
    }
    again = command_words("export", route, values, {**options, **changed(connection)})
    words = [*dict.fromkeys([*values, *(_lines(from_) if from_ is not None else ())])]
    name, sources, query = _plan(route, words, param or [], page_size, over=over, api=api, items=items)
    if dask is not None:
        _check_distributed(route, format_, parts, lookback, partition, journal)
    async with _started(terminal, connection, dask) as (view, start):
        try:
            with calling(terminal, route), cancelled_by_sigterm():
                if progress == "bar" and lookback is None and not _shows_new_rows(route):
                    terminal.note(_NO_UPDATES)
                async with view.shown(terminal, progress):
                    line = await start(
                        name,
                        sources,
                        out,
                        format_,
                        fields=_names(fields),
                        amounts=amounts,
                        limit=limit,
                        concurrency=concurrency,
                        on_progress=view.update,
                        on_invalid=on_invalid,
                        **({} if partition is None else {"partition": _names(partition)}),
                        **{name: value for name, value in more.items() if value is not None},
                        **query,
                    )
        except (ChainAPIError, asyncio.CancelledError) as error:
            if isinstance(error, ChainAPIError):
                if view.progress is None:  # nothing was fetched
                    raise
                _report(terminal, route, error)
            same = " with the same standard input" if from_ == "-" else ""
            terminal.note(f"{view.kept()}; to continue{same}: {shell_words(again)}")
            if isinstance(error, ChainAPIError):
                return _code(error, view)
            raise
    terminal.note(line)
    return 0


@asynccontextmanager
async def _started(
    terminal: Terminal, connection: ConnectionOptions, dask: str | None
) -> AsyncIterator[tuple[ExportView, Callable[..., Awaitable[str]]]]:
    """Open a session or a cluster; yield the view, and a function that exports."""
    if dask is not None:
        async with exporting_on(dask, connection) as distributed:

            async def start_there(name: str, sources: Any, out: str, _: None, **options: Any) -> str:
                return summary(await distributed(name, sources, out, **options))

            yield ExportView(None, dict, terminal.now), start_there
        return
    traffic = Progress(asyncio.get_running_loop().time)
    async with terminal.session(**asdict(connection), on_event=traffic) as session:

        async def start_here(name: str, sources: Any, out: str, format_: str | None, **options: Any) -> str:
            return _summary(await run(method_of(session, name), sources, out, format=format_, **options))

        yield ExportView(traffic, lambda: session.quota, terminal.now), start_here


_NO_UPDATES = "the rows of this list do not show which are new: later runs do not fetch it again"


def _shows_new_rows(route: str) -> bool:
    return not is_path(route) and resolve(route).record.shows_new_rows


def _code(error: ChainAPIError, view: ExportView) -> int:
    """Return the exit code of an export that failed in part or as a whole."""
    seen = 0 if view.progress is None else view.progress.seen
    return PARTLY if isinstance(error, IncompleteExportError) and len(error.failures) < seen else FAILED


def _check_distributed(
    route: str,
    format_: FileFormat | None,
    parts: Mapping[str, float | None],
    lookback: str | None,
    partition: str | None,
    journal: str | None,
) -> None:
    """Refuse arguments that do not apply to a cluster.

    Raises:
        ConfigurationError: one of them is given.

    """
    refuse("workers of a cluster never write a file again", lookback=lookback)
    refuse("a part of a cluster is one file", partition=partition)
    refuse("workers of a cluster keep their state beside the parts", journal=journal)
    for name in ("part_bytes", "part_seconds"):
        if parts[name] is not None:
            option = f"--{name.replace('_', '-')}"
            raise ConfigurationError(f"{option} does not apply to --dask: leave it out, or give --part-rows")
    if is_path(route):
        raise ConfigurationError(
            "--dask does not apply to paths: their rows have no columns, which Parquet needs; name a route"
        )
    if format_ not in (None, "parquet"):
        raise ConfigurationError(
            f"--format {format_} does not apply: workers of a cluster write Parquet only"
        )


def _report(terminal: Terminal, route: str, error: ChainAPIError) -> None:
    """Report an error, or the errors of all failed sources."""
    if isinstance(error, IncompleteExportError):
        for label, failure in error.failures.items():
            terminal.report(f"{label or route}: {worded(failure, _ADVICE)}")
    else:
        terminal.report(worded(error))


_ADVICE = "--on-invalid raw writes such rows to a file of their own"


def _names(joined: str | None) -> list[str] | None:
    """Return names that commas separate."""
    return None if joined is None else [name.strip() for name in joined.split(",")]


def _lines(name: str) -> list[str]:
    """Return the lines of a file, or of standard input.

    Empty ones and comments are left out.

    Raises:
        ConfigurationError: the file cannot be read, or standard input is closed.

    """
    if name == "-" and sys.stdin is None:
        raise ConfigurationError("--from -: standard input is closed; give it a file or a pipe")
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(f"--from {name} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--from {name} is not UTF-8 text: convert it") from None
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())  # the mark of some editors
    return [line for line in lines if line and not line.startswith("#")]


def _plan(
    route: str,
    words: Sequence[str],
    params: Sequence[str],
    page_size: int | None,
    *,
    over: str | None,
    api: str | None,
    items: str | None,
) -> tuple[str, Sequence[Any], Mapping[str, Any]]:
    """Return the name of the method, its sources, and the arguments of all sources.

    Raises:
        ConfigurationError: the arguments do not fit together.

    """
    if is_path(route):
        refuse("the sources of an export by path are paths", over=over)
        options = {"page_size": page_size, "items": items}
        given = {name: value for name, value in options.items() if value is not None}
        query = {**given, **read_query(params, _EXPORT_OPTIONS)}
        return f"{api or 'data'}.list", _paths(route, words), query
    refuse(f"the route {route} sets it", api=api, items=items)
    sources, query = _of_route(route, words, with_page_size(params, page_size), over)
    return route, sources, query


def _paths(route: str, words: Sequence[str]) -> list[str]:
    if wrong := next((word for word in words if not is_path(word)), None):
        raise ConfigurationError(f"{wrong!r} is not a path: more sources of {route} begin with '/'")
    return [*dict.fromkeys([route, *words])]


def _of_route(
    route: str, words: Sequence[str], params: Sequence[str], over: str | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the arguments of each source, and those that all of them share."""
    endpoint = resolve(route)
    if endpoint.single:
        raise ConfigurationError(
            f"{route} returns a single resource, not a list: print it with `chainapi list`"
        )
    shared = read_values(route, (), params, whole=False)
    name = over or _left_out(endpoint, route, shared)
    if name is None:
        if words:
            raise ConfigurationError(f"{words[0]!r} is one value too many; usage: {usage(route)}")
        return [{}], shared
    varied = next((one for one in endpoint.parameters if one.name == name and name not in shared), None)
    if varied is None:
        raise ConfigurationError(f"--over {name} does not apply: --param sets it, or {route} lacks it")
    if not words:
        raise ConfigurationError(f"there are no sources: give values of {name}, or --from FILE")
    return [{name: read_value(varied, word)} for word in words], shared


def _left_out(endpoint: Endpoint, route: str, shared: Mapping[str, Any]) -> str | None:
    """Return the only path parameter that --param leaves out, or None.

    Raises:
        ConfigurationError: there are several.

    """
    left = [one.name for one in endpoint.parameters if one.in_path and one.name not in shared]
    if len(left) > 1:
        raise ConfigurationError(
            f"{route} needs {', '.join(left)}: give all but one with --param NAME=VALUE; "
            "the sources are values of the remaining one"
        )
    return left[0] if left else None


def _summary(result: ExportResult) -> str:
    rows, sources = counted(result.rows, "new row"), counted(result.sources, "source")
    skipped = f"; {result.skipped:,} of them not fetched again" if result.skipped else ""
    if result.closed > result.skipped:
        skipped += f"; later runs do not fetch {result.closed:,} of them again"
    if result.removed:
        skipped = f"; {counted(result.removed, 'row')} replaced or removed{skipped}"
    if not result.written and not result.removed:
        return f"no new rows: {result.path} has the rows of {sources}{skipped}"
    if not result.written:
        return f"{rows} of {sources} fetched{skipped}"
    invalid = (
        f"; {result.invalid:,} invalid in {_named(result, result.written_invalid)}" if result.invalid else ""
    )
    return f"{rows} of {sources} fetched, {_named(result, result.written)} written{invalid}{skipped}"


def _named(result: ExportResult, files: Sequence[Path | str]) -> str:
    """Return the name of the only file, or the number of files and their folder."""
    return str(files[0]) if len(files) == 1 else f"{len(files):,} files in {result.path}"
