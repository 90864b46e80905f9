"""``chainapi export``: many lists at once into files, with progress."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from attrs import asdict, frozen
from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, PositiveInt

from chainapi._paging.pages import OnInvalid
from chainapi._tables.types import Amounts
from chainapi.cli.common import (
    DEFAULTS,
    FAILED,
    PARTLY,
    ConnectionOptions,
    Flag,
    Hidden,
    Many,
    on_signal,
    refuse,
    session_of,
)
from chainapi.cli.names import (
    RouteName,
    Value,
    call_of,
    is_path,
    method_of,
    read_value,
    resolve,
    usage,
)
from chainapi.cli.progress import CommandProgress, Shown
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import again, counted, worded
from chainapi.errors import ChainAPIError, ConfigurationError, ExportError, IncompleteExportError
from chainapi.export import ExportResult, ParquetOptions, files
from chainapi.export import compact as merge_parts
from chainapi.export import export as run
from chainapi.export.layout import Compression, FileFormat

if TYPE_CHECKING:
    from chainapi.export.progress import ExportProgress

__all__ = ["compact", "export"]

_NO_UPDATES = "the rows of this list do not show which are new: later runs do not fetch it again"
_ADVICE = "--on-invalid raw writes such rows to a file of their own"


@Parameter(name="*")
@frozen(kw_only=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        out: File, folder, or URL such as s3://bucket/blocks/; a name without a suffix is a folder.
        format: Format; by default as in the target, else by the suffix of --out, else jsonl.
        param: Parameter of all sources as NAME=VALUE; may be repeated.
        page_size: Rows per page; by default the maximum of a named route.
        over: Parameter whose values are the sources, if it is another one.
        from_: File with a source per line; - is standard input.
        api: Service of a path; data by default.
        items: Field with the list of a path; by default the only list.
        fields: Columns, separated by commas; all by default.
        amounts: Type of amounts: text (default) and decimal (38 digits) are exact, float is rounded.
        escape_formulas: Write an apostrophe before texts of CSV that a spreadsheet takes for formulas.
        compression: Compression of Parquet; by default as in the last run, zstd in a new export.
        compression_level: 1 to 22 of zstd, 1 to 9 of gzip; larger is smaller and slower.
        row_group_rows: Rows of a group in Parquet; by default 100,000, or fewer of 64 MiB.
        partition: Keys that divide a folder, such as source,day: source, day, month, year.
        limit: Most rows of each source until it has ended once; all by default.
        lookback: Window below the newest row that is fetched again: 1d, 6h or "100 blocks".
        ranges: Number of ranges of a source that are read side by side, or their width: "7 days".
        on_invalid: Rows that do not fit: raise fails the source, raw keeps them aside.
        concurrency: Sources that are fetched at once; with --dask, in each of the 32 partitions.
        commit_seconds: Seconds until fetched rows are in the target; 60 for folders, 1 for files.
        compact: Merge small parts of a folder.
        wait: Seconds to wait for another export to the same target.
        dask: Address of a Dask scheduler, such as tcp://host:8786, whose workers write Parquet.
        progress: bar on a terminal and lines elsewhere, or json: a line a second.
        show: Print the files, rows and newest numbers of this target, and export nothing.

    """

    out: str | None = None
    format: FileFormat | None = None
    param: Many = None
    page_size: PositiveInt | None = None
    over: str | None = None
    from_: Annotated[str | None, Parameter(name="--from", allow_leading_hyphen=True)] = None
    api: Literal["data", "metrics"] | None = None
    items: str | None = None
    fields: str | None = None
    amounts: Amounts | None = None
    escape_formulas: Flag = False
    compression: Compression | None = None
    compression_level: PositiveInt | None = None
    row_group_rows: PositiveInt | None = None
    partition: str | None = None
    limit: PositiveInt | None = None
    lookback: str | None = None
    ranges: str | None = None
    on_invalid: OnInvalid = "raise"
    concurrency: PositiveInt = 32
    commit_seconds: NonNegativeFloat | None = None
    compact: bool = True
    wait: NonNegativeFloat = 0.0
    dask: str | None = None
    progress: Shown = "bar"
    show: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `chainapi.export.export`, or of `chainapi.dask.export`."""
        names = ["amounts", "limit", "lookback", "ranges", "on_invalid", "concurrency", "commit_seconds"]
        names += ["format", "wait"] if self.dask is None else []
        arguments = {name: getattr(self, name) for name in names}
        arguments |= {"fields": _names(self.fields), "compact": self.compact}
        named = ("compression", "compression_level", "row_group_rows")
        parquet = {name: one for name in named if (one := getattr(self, name)) is not None}
        arguments["parquet"] = ParquetOptions(**parquet) if parquet else None
        if self.dask is None:
            arguments["partition"] = _names(self.partition)
            arguments["escape_formulas"] = self.escape_formulas or None
        return arguments


async def export(
    route: RouteName | None = None,
    /,
    *values: Value,
    options: ExportOptions = ExportOptions(),
    connection: ConnectionOptions = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Export many lists at once to a file, or to a folder that grows by parts.

    The same command continues an export that was interrupted. After a complete
    export it fetches new rows, if the rows have a block number or a time.

    Args:
        route: The name of a route, such as data.evm.blocks, or a path.
        values: The sources: values of the path parameter that --param leaves out, or more paths.
        options: Options of the export.
        connection: Options of the session.
        terminal: The streams of the command.

    """
    if options.show is not None:
        refuse("--show exports nothing", out=options.out, from_=options.from_)
        return _show(terminal, options.show)
    if route is None or options.out is None:
        raise ConfigurationError(
            f"{'a ROUTE' if route is None else '--out'} is missing: chainapi export ROUTE [VALUE...] --out"
            " PATH"
        )
    words = [*dict.fromkeys([*values, *(_lines(options.from_) if options.from_ is not None else ())])]
    name, query = call_of(
        route, (), options.param, options.page_size, whole=False, api=options.api, items=options.items
    )
    sources = _sources(route, words, options.over, query)
    if options.dask is not None:
        refuse("rows of a path have no columns, which Parquet needs: name a route", dask=is_path(route))
        other = options.format if options.format != "parquet" else None
        refuse("workers of a cluster write Parquet", format=other, escape_formulas=options.escape_formulas)
        refuse("a cluster has a part for each partition of the sources", partition=options.partition)
        refuse("the run that begins later takes over", wait=options.wait)
    arguments, task = options.arguments(), cast("asyncio.Task[int]", asyncio.current_task())
    async with _started(terminal, connection, options.dask) as (view, start):
        try:
            with on_signal(signal.SIGTERM, task.cancel):
                updated = not is_path(route) and resolve(route).record.shows_new_rows
                if options.progress == "bar" and options.lookback is None and not updated:
                    terminal.note(_NO_UPDATES)
                async with view.shown(terminal, options.progress):
                    result = await start(
                        name, sources, options.out, progress=view.update, **arguments, **query
                    )
        except (ChainAPIError, asyncio.CancelledError) as error:
            if isinstance(error, ChainAPIError):
                if view.export is None:  # nothing was fetched
                    raise
                _report(terminal, route, error)
            same = " with the same standard input" if options.from_ == "-" else ""
            terminal.note(f"{_kept(view.export)}; to continue{same}: {again(terminal.words)}")
            if isinstance(error, ChainAPIError):
                return _code(error, view.export)
            raise
    terminal.note(_summary(result))
    return 0


async def compact(target: str, /, *, terminal: Hidden) -> int:
    """Merge the small parts of a folder that exports have written.

    An export does so itself, unless it runs with --no-compact.

    Args:
        target: The folder, or a URL of one.
        terminal: The streams of the command.

    """
    merged = await asyncio.to_thread(merge_parts, target)
    terminal.note(
        f"{merged:,} parts merged in {target}" if merged else f"{target} has no small parts to merge"
    )
    return 0


def _show(terminal: Terminal, target: str) -> int:
    """Print the files of a target."""
    found = files(target)
    newest = dict[str, int]()
    for file in found:
        terminal.out.write(f"{file.path}\t{file.rows}\t{file.size}\n")
        for label, number in file.newest.items():
            if number is not None:
                newest[label] = max(number, newest.get(label, number))
    rows, size = sum(file.rows for file in found), sum(file.size for file in found)
    terminal.note(f"{counted(rows, 'row')} in {counted(len(found), 'file')}, {size:,} bytes")
    for label, number in newest.items():
        terminal.note(f"newest of {label}: {number}")
    return 0


@asynccontextmanager
async def _started(
    terminal: Terminal, connection: ConnectionOptions, dask: str | None
) -> AsyncIterator[tuple[CommandProgress, Callable[..., Awaitable[ExportResult]]]]:
    """Open a session or a cluster; yield the view, and a function that exports.

    Raises:
        ConfigurationError: the address of a scheduler is malformed, or a package is missing.
        ExportError: the scheduler cannot be reached.

    """
    if dask is not None:
        import chainapi.dask as cluster

        usual = asdict(DEFAULTS)
        changed = {name: value for name, value in asdict(connection).items() if value != usual[name]}
        async with _connected(dask) as client:
            distributed = partial(cluster.export, client, session_arguments=changed or None)
            yield CommandProgress(terminal.now, requests=None), distributed
        return
    view = CommandProgress(terminal.now)
    async with session_of(terminal, connection, view) as session:
        view.quota = lambda: session.quota

        def start(name: str, *given: Any, **options: Any) -> Awaitable[ExportResult]:
            return run(method_of(session, name), *given, **options)

        yield view, start


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Any]:
    from distributed import Client

    client: Any = Client(address, asynchronous=True)
    try:
        await client
    except OSError as error:
        raise ExportError(
            f"the Dask scheduler at {address} cannot be reached ({error}): start it, or check --dask"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"--dask {address}: {error}") from error
    finally:
        if client.status != "running":  # else its destructor would write warnings after the error
            await client.close()
    async with client:
        yield client


def _kept(progress: ExportProgress | None) -> str:
    """Return the committed rows, and the number of failed sources."""
    if progress is None:
        return f"{counted(0, 'new row')} kept"
    invalid = f", {progress.invalid:,} invalid beside them" if progress.invalid else ""
    kept = f"{counted(progress.rows, 'new row')} kept{invalid}"
    return f"{kept}, {progress.failed:,} of {progress.seen:,} sources failed" if progress.failed else kept


def _code(error: ChainAPIError, progress: ExportProgress | None) -> int:
    """Return the exit code of an export that failed in part or as a whole."""
    seen = 0 if progress is None else progress.seen
    return PARTLY if isinstance(error, IncompleteExportError) and len(error.failures) < seen else FAILED


def _report(terminal: Terminal, route: str, error: ChainAPIError) -> None:
    """Report an error, or the errors of all failed sources."""
    if isinstance(error, IncompleteExportError):
        for label, failure in error.failures.items():
            terminal.note(f"{label or route}: {worded(failure, _ADVICE)}")
    else:
        terminal.note(worded(error))


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


def _sources(
    route: str, words: Sequence[str], over: str | None, query: dict[str, Any]
) -> Sequence[str | dict[str, Any]]:
    """Return the paths of the sources, or the arguments of each source of a route.

    Raises:
        ConfigurationError: the words are no sources of the route.

    """
    if is_path(route):
        refuse("the sources of an export by path are paths", over=over)
        if wrong := next((word for word in words if not is_path(word)), None):
            raise ConfigurationError(f"{wrong!r} is not a path: more sources of {route} begin with '/'")
        return [*dict.fromkeys([route, *words])]
    endpoint = resolve(route)
    if endpoint.single:
        raise ConfigurationError(
            f"{route} returns a single resource, not a list: print it with `chainapi list`"
        )
    left = (
        [over] if over else [one.name for one in endpoint.parameters if one.in_path and one.name not in query]
    )
    if len(left) > 1:
        raise ConfigurationError(
            f"{route} needs {', '.join(left)}: give all but one with --param NAME=VALUE; "
            "the sources are values of the remaining one"
        )
    if not left:
        if words:
            raise ConfigurationError(f"{words[0]!r} is one value too many; usage: {usage(route)}")
        return [{}]
    [name] = left
    varied = next((one for one in endpoint.parameters if one.name == name and name not in query), None)
    if varied is None:
        raise ConfigurationError(f"--over {name} does not apply: --param sets it, or {route} lacks it")
    if not words:
        raise ConfigurationError(f"there are no sources: give values of {name}, or --from FILE")
    return [{name: read_value(varied, word)} for word in words]


def _summary(result: ExportResult) -> str:
    sources, ends = counted(result.sources, "source"), list[str]()
    if result.written and result.invalid:
        ends.append(f"{result.invalid:,} invalid in {_named(result, result.written_invalid)}")
    if result.removed:
        ends.append(f"{counted(result.removed, 'row')} replaced or removed")
    if result.skipped:
        ends.append(f"{counted(result.skipped, 'source')} not fetched again")
    if result.closed > result.skipped:
        ends.append(f"later runs do not fetch {counted(result.closed, 'source')} again")
    said = f"no new rows: {result.path} has the rows of {sources}"
    if result.written or result.removed:
        said = f"{counted(result.rows, 'new row')} of {sources} fetched"
    written = f", {_named(result, result.written)} written" if result.written else ""
    return "; ".join([said + written, *ends])


def _named(result: ExportResult, files: Sequence[Path | str]) -> str:
    """Return the name of the only file, or the number of files and their folder."""
    return str(files[0]) if len(files) == 1 else f"{len(files):,} files in {result.path}"
