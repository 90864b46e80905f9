"""Shared parts of the commands: app, option types, session, output of rows."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attrs import asdict, frozen
from cyclopts import App, Parameter
from cyclopts.types import NonNegativeFloat, PositiveFloat, PositiveInt
from rich.text import Text

from chainapi._http.transport import MAX_BODY, AiohttpTransport
from chainapi._paging.checkpoint import Checkpoint
from chainapi._version import __version__
from chainapi.cli.progress import Progress
from chainapi.cli.terminal import Terminal
from chainapi.errors import CheckpointError, ConfigurationError
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
    "ended_by_second_interrupt",
    "on_signal",
    "open_session",
    "read_checkpoint",
    "refuse",
    "with_page_size",
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
        "Walk the Metrics API and the Data API, through every page and every rate limit.\n\n"
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
    progress = Progress(asyncio.get_running_loop().time)
    draws = terminal.draws(table=table)
    on_event = progress if draws else terminal.report_wait
    async with session_of(terminal, connection, on_event) as session, AsyncExitStack() as drawn:
        if draws:
            await drawn.enter_async_context(
                terminal.live(lambda: Text(progress.line(session.quota), style="dim"), transient=True)
            )
        yield session


def read_checkpoint(text: str | None) -> Checkpoint | None:
    """Return the checkpoint of --resume.

    Raises:
        ConfigurationError: the text is not a checkpoint.

    """
    try:
        return None if text is None else Checkpoint.loads(text)
    except CheckpointError as error:
        raise ConfigurationError(f"--resume: {error}") from None


def refuse(why: str, **options: object) -> None:
    """Refuse options that do not apply.

    Raises:
        ConfigurationError: one of them is set.

    """
    for name, value in options.items():
        if value:
            shown = name if name.isupper() else f"--{name.replace('_', '-')}"
            raise ConfigurationError(f"{shown} does not apply: {why}; leave it out")


def with_page_size(param: Sequence[str] | None, page_size: int | None) -> list[str]:
    """Return the parameters of a named route, with the page size."""
    return [*(param or []), *([] if page_size is None else [f"page_size={page_size}"])]


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


@contextmanager
def ended_by_second_interrupt(terminal: Terminal) -> Iterator[None]:
    """End the process at once on a second Ctrl-C; the first one cancels the command.

    asyncio would raise KeyboardInterrupt in the middle of any step of the event loop. Tasks that wait for
    this step would wait for ever, and others report errors of what has been closed meanwhile.
    """
    cancel = signal.getsignal(signal.SIGINT)
    if not callable(cancel) or threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            terminal.show_cursor()
            os._exit(INTERRUPTED)
        interrupted = True
        cancel(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, cancel)
