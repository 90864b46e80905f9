"""Shared parts of the commands: app, option types, session, signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attrs import asdict, frozen
from cyclopts import App, Parameter
from cyclopts.types import NonNegativeFloat, PositiveFloat, PositiveInt

from chainapi._http.transport import MAX_BODY, AiohttpTransport
from chainapi._version import __version__
from chainapi.cli.progress import CommandProgress
from chainapi.cli.terminal import Terminal
from chainapi.errors import ConfigurationError
from chainapi.session import DEFAULT_TIMEOUT, Session

if TYPE_CHECKING:
    from chainapi.events import Event

__all__ = [
    "DEFAULTS",
    "DEFAULT_LIMIT",
    "FAILED",
    "INTERRUPTED",
    "PARTLY",
    "PIPE_CLOSED",
    "TERMINATED",
    "WRONG_USAGE",
    "ConnectionOptions",
    "Flag",
    "Hidden",
    "Many",
    "Plan",
    "ServiceOptions",
    "app",
    "on_signal",
    "open_session",
    "refuse",
    "session_of",
]

FAILED = 1
WRONG_USAGE = 2
PARTLY = 3  # some sources failed, and the rows of others were written
# As a shell reports a process that the signal ended: SIGINT, SIGPIPE (which not every system has), SIGTERM.
INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + 13
TERMINATED = 128 + signal.SIGTERM
DEFAULT_LIMIT = 30  # rows

app: App = App(
    name="chainapi",
    version=__version__,
    help_format="plaintext",
    help=(
        "Read the Metrics API and the Data API, through every page and every rate limit.\n\n"
        "--provider public or CHAINAPI_PROVIDER=public reaches the public services, without a key too. For "
        "another deployment, CHAINAPI_METRICS_BASE_URL and CHAINAPI_DATA_BASE_URL have the addresses. "
        "CHAINAPI_API_KEY has the key of the Data API. There is no option for the key: other users of the "
        "machine can see a command line.\n\n"
        "Exit codes: 0 success, 1 failure, 2 wrong usage or configuration, 3 an export in which "
        "some sources failed, 130 interrupted, 141 pipe closed, 143 terminated."
    ),
)

Hidden = Annotated[Terminal, Parameter(parse=False)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Many = Annotated[list[str] | None, Parameter(negative=())]
Plan = Literal["unauthenticated", "free", "base", "growth", "pro"]  # the names of `PLANS`


@Parameter(name="*", group="Connection")
@frozen(kw_only=True)
class ServiceOptions:
    """Options of the addresses of both services.

    Attributes:
        provider: Deployment, instead of CHAINAPI_PROVIDER; the default needs addresses.
        metrics_base_url: Address of the Metrics API, instead of CHAINAPI_METRICS_BASE_URL.
        data_base_url: Address of the Data API, instead of CHAINAPI_DATA_BASE_URL.

    """

    provider: Literal["specification", "public"] | None = None  # the names of `Provider.NAMES`
    metrics_base_url: str | None = None
    data_base_url: str | None = None


@Parameter(name="*", group="Connection")
@frozen(kw_only=True)
class ConnectionOptions(ServiceOptions):
    """Options of the session, the same for every command.

    Attributes:
        plan: Published plan of the key, instead of CHAINAPI_PLAN.
        max_wait: Seconds that a page may wait for the rate limit; unlimited by default.
        timeout: Seconds for one request.
        deadline: Seconds for a page with its waits and retries.
        max_body: Most bytes of a decompressed response.
        proxy: Address of an HTTP proxy.

    """

    plan: Plan | None = None
    max_wait: NonNegativeFloat | None = None
    timeout: PositiveFloat = DEFAULT_TIMEOUT
    deadline: PositiveFloat | None = None
    max_body: PositiveInt = MAX_BODY
    proxy: str | None = None


DEFAULTS = ConnectionOptions()


@asynccontextmanager
async def session_of(
    terminal: Terminal, connection: ConnectionOptions, on_event: Callable[[Event], None]
) -> AsyncIterator[Session]:
    """Open the session of a command."""
    given: dict[str, Any] = {**asdict(connection), "on_event": on_event}
    reached = {name: given.pop(name) for name in ("max_body", "proxy")}
    async with AsyncExitStack() as opened:
        if reached != {"max_body": MAX_BODY, "proxy": None}:
            given["transport"] = await opened.enter_async_context(AiohttpTransport(**reached))
        yield await opened.enter_async_context(terminal.session(**given))


@asynccontextmanager
async def open_session(
    terminal: Terminal, connection: ConnectionOptions, *, table: bool
) -> AsyncIterator[Session]:
    """Open a session that draws its progress, or reports waits in lines."""
    if not terminal.draws(table=table):
        async with session_of(terminal, connection, terminal.report_wait) as session:
            yield session
        return
    progress = CommandProgress(terminal.now)
    async with session_of(terminal, connection, progress) as session:
        progress.quota = lambda: session.quota
        async with terminal.live(progress.render, transient=True):
            yield session


def refuse(why: str, **options: object) -> None:
    """Refuse options that do not apply.

    Raises:
        ConfigurationError: one of them is set.

    """
    for name, value in options.items():
        if value:
            shown = name if name.isupper() else f"--{name.replace('_', '-')}"
            raise ConfigurationError(f"{shown} does not apply: {why}; leave it out")


@contextmanager
def on_signal(number: int, act: Callable[[], object]) -> Iterator[None]:
    """Call a function in place of what the signal does by default."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, act)
    except (NotImplementedError, RuntimeError):  # on Windows; outside of the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
