"""The command line, made with cyclopts: ``chainapi tps``, ``list``, ``simulate`` and ``demo``.

Data goes to standard output, everything else to standard error. `run` returns the exit code.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, suppress
from typing import Annotated, Any, Literal, TypeVar

from attrs import asdict, frozen
from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number
from rich.text import Text

from chainapi._version import __version__
from chainapi.cli.display import Progress, Terminal, counted, print_series, standard
from chainapi.core.checkpoint import Checkpoint
from chainapi.errors import ChainAPIError, ConfigurationError
from chainapi.models.metrics import MetricPoint
from chainapi.pages import Pages
from chainapi.session import DEFAULT_TIMEOUT, Session

__all__ = ["FAILED", "INTERRUPTED", "PIPE_CLOSED", "WRONG_USAGE", "app", "run"]

T = TypeVar("T")

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130  # as a shell reports a process that SIGINT ended
PIPE_CLOSED = 141  # the same for SIGPIPE
DEFAULT_LIMIT = 30  # rows

app = App(
    name="chainapi",
    version=__version__,
    help_format="plaintext",
    help=(
        "Walk the Metrics API and the Data API, through every page and every rate limit.\n\n"
        "The services are reached at CHAINAPI_METRICS_BASE_URL and CHAINAPI_DATA_BASE_URL. The key of the "
        "Data API is read from CHAINAPI_API_KEY and from nowhere else: other users of the machine can see "
        "a command line.\n\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted, 141 pipe closed."
    ),
)

Hidden = Annotated[Terminal, Parameter(parse=False)]
Rows = Annotated[int, Parameter(validator=Number(gte=1))]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Amount = Annotated[int, Parameter(validator=Number(gte=0))]
Seconds = Annotated[float, Parameter(validator=Number(gt=0))]
Many = Annotated[list[str] | None, Parameter(negative=())]


@Parameter(name="*", group="Connection")
@frozen(kw_only=True)
class Connection:
    """How the services are reached, the same for every command.

    Attributes:
        metrics_base_url: Address of the Metrics API, instead of CHAINAPI_METRICS_BASE_URL.
        data_base_url: Address of the Data API, instead of CHAINAPI_DATA_BASE_URL.
        max_wait: Seconds that a page may wait for the rate limit; without it, as long as it takes.
        timeout: Seconds that one request may take.

    """

    metrics_base_url: str | None = None
    data_base_url: str | None = None
    max_wait: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    timeout: Annotated[float, Parameter(validator=Number(gt=0))] = DEFAULT_TIMEOUT


DEFAULTS = Connection()


def run(
    tokens: Sequence[str],
    *,
    terminal: Terminal | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Run the command line that `tokens` make, and return its exit code.

    What goes wrong becomes one line on standard error.
    """
    terminal = terminal or standard()
    try:
        code = _dispatch(tokens, terminal, loop_factory)
        terminal.out.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    except (CycloptsError, ChainAPIError, OSError) as error:
        with suppress(OSError):  # standard error may be closed as well
            terminal.complain(error)
        return WRONG_USAGE if isinstance(error, CycloptsError | ConfigurationError) else FAILED
    return code


def _dispatch(
    tokens: Sequence[str],
    terminal: Terminal,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> int:
    command, bound, hidden = app.parse_args(
        tokens, console=terminal.console, print_error=False, exit_on_error=False
    )
    result = command(*bound.args, **bound.kwargs, **dict.fromkeys(hidden, terminal))
    if not asyncio.iscoroutine(result):
        return 0  # help and version
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        code: int | None = runner.run(result)
    return code or 0


@app.command(usage="Usage: chainapi tps [OPTIONS] CHAIN...")
async def tps(
    chains: list[str],
    /,
    *,
    limit: Rows = DEFAULT_LIMIT,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    json: Flag = False,
    connection: Connection = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Print the average transactions per second of chains, newest first.

    All chains are fetched at once; one that fails keeps no other from being printed.

    Args:
        chains: Ids of the chains, such as 43114.
        limit: Points of each chain.
        all_: All points, whatever --limit says.
        json: JSON lines instead of a table; always so where the output is no terminal.
        connection: How the services are reached.
        terminal: Where the command writes.

    """
    table = terminal.interactive and not json
    series: dict[str, list[MetricPoint]] = {chain: [] for chain in chains}
    failures: list[str] = []

    async def walk(chain: str, stream: Pages[MetricPoint]) -> None:
        try:
            if table:
                series[chain] = await stream.collect(None if all_ else limit)
            else:
                await _each(stream, None if all_ else limit, lambda point: terminal.line(_line(chain, point)))
        except ChainAPIError as error:
            series[chain] = error.partial or []
            failures.append(str(error))

    async with _session(terminal, connection, table=table) as session:
        streams = {chain: session.metrics.avg_tps(chain) for chain in series}
        try:
            async with asyncio.TaskGroup() as group:
                for chain, stream in streams.items():
                    group.create_task(walk(chain, stream))
        except ExceptionGroup as errors:  # nothing but what writing met
            raise errors.exceptions[0] from None
    print_series(terminal.console, {chain: points for chain, points in series.items() if points})
    for failure in dict.fromkeys(failures):
        terminal.complain(failure)
    return FAILED if failures else 0


def _line(chain: str, point: MetricPoint) -> dict[str, object]:
    try:
        time = point.time.isoformat()
    except (ValueError, OverflowError):  # no date
        time = None
    name = int(chain) if chain.isdecimal() and str(int(chain)) == chain else chain
    return {"chain": name, "timestamp": point.timestamp, "time": time, "value": point.value}


@app.command(name="list")
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
        async with _session(terminal, connection, table=table) as session:
            service = session.data if api == "data" else session.metrics
            pages = stream = service.list(path, items=items, page_size=page_size, resume=start, **values)
            with closing(terminal.rows(table=table)) as rows:
                await _each(pages, None if all_ else limit, rows.add)
    except (ChainAPIError, asyncio.CancelledError) as error:
        if stream is None or not (at := stream.checkpoint).rows:
            raise
        given = at.rows - (start.rows if start else 0)
        options = {"api": api, "items": items, "page_size": page_size, "param": param, "json": json}
        options |= {"all": True} if all_ else {"limit": limit - given}
        if isinstance(error, ChainAPIError):
            terminal.complain(error)
        _tell_how_to_go_on(terminal, path, {**options, **_given(connection)}, at)
        if isinstance(error, ChainAPIError):
            return FAILED
        raise
    return 0


def _tell_how_to_go_on(
    terminal: Terminal, path: str, options: Mapping[str, object], checkpoint: Checkpoint
) -> None:
    words = ["chainapi", "list", path, *_words(options), "--resume", checkpoint.dumps()]
    terminal.tell(f"{counted(checkpoint.rows, 'row')} so far; to go on: {shlex.join(words)}")


@app.command
async def simulate(
    *,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))] = 0,
    limit: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    window: Seconds = 60.0,
    metrics_limit: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    metrics_window: Seconds = 60.0,
    points: Amount = 1_000,
    rows: Amount = 1_000,
    latency: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0,
    seed: int = 0,
    terminal: Hidden,
) -> None:
    """Simulate both services on this machine until Ctrl-C.

    The variables that lead to them are printed first; in a file, `set -a; . FILE` takes them over.

    Args:
        port: Port on the loopback interface; 0 takes any that is free.
        limit: Requests that the Data API takes in a window; without it, any number.
        window: Seconds that the window lasts.
        metrics_limit: Requests that the Metrics API takes in a window, which it does not tell.
        metrics_window: Seconds that its window lasts.
        points: Daily points of each chain.
        rows: Rows of every other list.
        latency: Seconds that each answer takes.
        seed: Everything that looks random follows from it.
        terminal: Where the command writes.

    """
    from chainapi.simulator import Simulator

    simulator = Simulator(
        seed,
        port=port,
        limit=limit,
        window=window,
        metrics_limit=metrics_limit,
        metrics_window=metrics_window,
        points=points,
        rows=rows,
        latency=latency,
    )
    async with simulator:
        for name, value in simulator.environment().items():
            terminal.out.write(f"{name}={shlex.quote(value)}\n")
        terminal.out.flush()
        await asyncio.get_running_loop().create_future()


@app.command
async def demo(*, terminal: Hidden) -> None:
    """Walk both services, simulated on this machine, through limits that are too low.

    It takes about ten seconds and needs no network and no key.

    Args:
        terminal: Where the command writes.

    """
    from chainapi.cli.demo import demonstrate

    await demonstrate(terminal)


@asynccontextmanager
async def _session(terminal: Terminal, connection: Connection, *, table: bool) -> AsyncIterator[Session]:
    """Open a session whose progress is drawn or told."""
    progress = Progress(asyncio.get_running_loop().time)
    draws = terminal.draws(table=table)
    on_event = progress if draws else terminal.tells
    async with (
        terminal.session(**asdict(connection), on_event=on_event) as session,
        AsyncExitStack() as drawn,
    ):
        if draws:
            await drawn.enter_async_context(
                terminal.live(lambda: Text(progress.line(session.quota), style="dim"), transient=True)
            )
        yield session


async def _each(stream: Pages[T], limit: int | None, write: Callable[[T], None]) -> None:
    """Write each row, at most `limit` of them."""
    async with aclosing(stream.items()) as rows:
        given = 0
        async for row in rows:
            write(row)
            given += 1
            if given == limit:
                break


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


_OPTIONS = frozenset({"self", "path", "items", "model", "page_size", "resume"})


def _given(connection: Connection) -> dict[str, object]:
    """Return what differs from the defaults."""
    defaults = asdict(DEFAULTS)
    return {name: value for name, value in asdict(connection).items() if value != defaults[name]}


def _words(options: Mapping[str, object]) -> list[str]:
    """Return options as they are written on a command line."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        match value:
            case None | False:
                pass
            case True:
                words.append(option)
            case list():
                words += [word for entry in value for word in (option, entry)]
            case _:
                words += [option, str(value)]
    return words
