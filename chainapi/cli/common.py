"""What the commands share: types of their options, how the services are reached, the session, exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Annotated, TypeVar

from attrs import asdict, frozen
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from chainapi.cli.display import Progress, Terminal
from chainapi.pages import Pages
from chainapi.session import DEFAULT_TIMEOUT, Session

__all__ = [
    "DEFAULTS",
    "DEFAULT_LIMIT",
    "FAILED",
    "INTERRUPTED",
    "PIPE_CLOSED",
    "WRONG_USAGE",
    "Amount",
    "Connection",
    "Flag",
    "Hidden",
    "Many",
    "Rows",
    "Seconds",
    "changed",
    "open_session",
    "option_words",
    "write_rows",
]

T = TypeVar("T")

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130  # as a shell reports a process that SIGINT ended
PIPE_CLOSED = 141  # the same for SIGPIPE
DEFAULT_LIMIT = 30  # rows

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


@asynccontextmanager
async def open_session(terminal: Terminal, connection: Connection, *, table: bool) -> AsyncIterator[Session]:
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


async def write_rows(stream: Pages[T], limit: int | None, write: Callable[[T], None]) -> None:
    """Write each row, at most `limit` of them."""
    async with aclosing(stream.items()) as rows:
        given = 0
        async for row in rows:
            write(row)
            given += 1
            if given == limit:
                break


def changed(connection: Connection) -> dict[str, object]:
    """Return what differs from the defaults."""
    defaults = asdict(DEFAULTS)
    return {name: value for name, value in asdict(connection).items() if value != defaults[name]}


def option_words(options: Mapping[str, object]) -> list[str]:
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
