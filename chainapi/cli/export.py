"""``chainapi export``: many lists at once into files, watched while they grow."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attrs import asdict, define
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.text import Text

from chainapi.cli.common import DEFAULTS, FAILED, Connection, Flag, Hidden, Many, Rows
from chainapi.cli.display import Progress, Terminal, counted, pause
from chainapi.cli.names import (
    RouteName,
    Value,
    calling,
    is_path,
    method_of,
    read_pairs,
    read_value,
    read_values,
    resolve,
    usage,
)
from chainapi.errors import ChainAPIError, ConfigurationError, IncompleteExportError

if TYPE_CHECKING:
    from chainapi.core.quota import QuotaSnapshot
    from chainapi.export.progress import ExportProgress
    from chainapi.export.run import ExportResult
    from chainapi.methods import Declared
    from chainapi.session import Session

__all__ = ["ExportView", "export"]

TOLD_EVERY = 10.0  # seconds between two lines about progress
WIDEST_BAR = 40  # characters

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
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    api: Literal["data", "metrics"] = "data",
    limit: Rows | None = None,
    concurrency: Rows = 32,
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
        api: The service that has the path.
        limit: Rows of each source; all without it.
        concurrency: Sources that are open at once.
        quiet: Show no progress.
        connection: How the services are reached.
        terminal: Where the command writes.

    """
    from chainapi.export import export as run

    words = [*values, *(_lines(from_) if from_ is not None else [])]
    size = {} if page_size is None else {"page_size": page_size}
    traffic = Progress(asyncio.get_running_loop().time)
    async with terminal.session(**asdict(connection), on_event=traffic) as session:
        view = ExportView(traffic, lambda: session.quota)
        try:
            with calling(terminal, route):
                walk, sources, query = _asked(session, route, words, param or [], over, api)
                async with view.shown(terminal, quiet=quiet):
                    result = await run(
                        walk,
                        sources,
                        out,
                        format=format_,
                        limit=limit,
                        concurrency=concurrency,
                        on_progress=view.update,
                        **query,
                        **size,
                    )
        except IncompleteExportError as error:
            for label, failure in error.failures.items():
                terminal.complain(f"{label}: {failure}")
            terminal.complain(error)
            return FAILED
        except (ChainAPIError, asyncio.CancelledError):
            if view.progress is not None and view.progress.pages:
                terminal.tell(f"{view.kept()}; to go on, give the same command again")
            raise
    terminal.tell(_summary(result))
    return 0


def _lines(name: str) -> list[str]:
    text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _asked(
    session: Session, route: str, words: Sequence[str], params: Sequence[str], over: str | None, api: str
) -> tuple[Callable[..., Any], Iterable[Any], Mapping[str, Any]]:
    """Return the method, its sources, and the arguments that all of them share.

    Raises:
        ConfigurationError: what is asked for does not fit together.

    """
    if not is_path(route):
        sources, shared = _of_route(route, words, params, over)
        return method_of(session, route), sources, shared
    if over is not None:
        raise ConfigurationError("--over needs the name of a route: the sources of a path are more paths")
    query: dict[str, Any] = {}
    for name, value in read_pairs(params):
        query.setdefault(name, []).append(value)
    return getattr(session, api).list, [route, *words], query


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


def _left_out(declared: Declared, route: str, shared: Mapping[str, Any]) -> str | None:
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
        return f"{result.path} has all rows of {sources}: nothing new"
    return f"{rows} of {sources} in {result.written}"


@define(eq=False)
class ExportView:
    """What a person sees of an export: drawn on a terminal, else told in a line now and then.

    Attributes:
        traffic: counts the requests of the session.
        quota: gives what is known of the quotas.
        progress: of the export, once there is any.

    """

    traffic: Progress
    quota: Callable[[], Mapping[str, QuotaSnapshot]]
    progress: ExportProgress | None = None

    def update(self, progress: ExportProgress) -> None:
        """Take note of progress."""
        self.progress = progress

    @asynccontextmanager
    async def shown(self, terminal: Terminal, *, quiet: bool) -> AsyncIterator[None]:
        """Show the progress while the block runs."""
        if quiet:
            yield
        elif terminal.err.isatty():
            async with terminal.live(self.render, transient=True):
                yield
        else:
            telling = asyncio.create_task(self._tell(terminal))
            try:
                yield
            finally:
                telling.cancel()
                with suppress(asyncio.CancelledError):
                    await telling

    def render(self) -> RenderableType:
        """Return what is drawn: a bar of the sources, and two lines."""
        progress = self.progress
        if progress is None:
            return Text("opening the target", style="dim")
        total = progress.sources
        bar = ProgressBar(total=total or None, completed=progress.done, width=WIDEST_BAR)
        return Group(bar, Text(self.counts()), Text(" · ".join(self.waits()), style="dim"))

    def line(self) -> str:
        """Return all of it in one line."""
        return " · ".join([self.counts(), *self.waits()])

    def kept(self) -> str:
        """Say what was committed."""
        return f"{counted(self.progress.rows if self.progress else 0, 'new row')} kept"

    def counts(self) -> str:
        """Say what is done: sources, rows, requests, and the time that is left."""
        progress = self.progress
        if progress is None:
            return "opening the target"
        total = "" if progress.sources is None else f" of {progress.sources:,}"
        parts = [
            f"{progress.done:,}{total} sources",
            counted(progress.rows, "row"),
            f"{progress.rows_per_second:,.0f} rows/s",
            counted(self.traffic.requests, "request"),
        ]
        if progress.failed:
            parts.append(f"{progress.failed:,} failed")
        if progress.stage == "writing":
            parts.append("writing the file")
        elif progress.seconds_left is not None:
            parts.append(f"about {_duration(progress.seconds_left)} left")
        return " · ".join(parts)

    def waits(self) -> list[str]:
        """Say what is left of the quotas, and what is waited for."""
        said = []
        for service, snapshot in self.quota().items():
            if snapshot.remaining is not None and snapshot.limit is not None:
                said.append(f"{service}: {snapshot.remaining:,.0f} of {snapshot.limit:,.0f} left")
            if left := pause(snapshot):
                until = datetime.now(UTC).astimezone() + timedelta(seconds=left)
                said.append(f"{service}: rate limit, on at {until:%H:%M:%S} in {left:.0f} s")
        return said

    async def _tell(self, terminal: Terminal) -> None:
        while True:
            await asyncio.sleep(TOLD_EVERY)
            terminal.complain(self.line())


def _duration(seconds: float) -> str:
    """Return a duration as people say it."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
