"""Command line, made with cyclopts: each command in a module of its own.

Data goes to standard output, everything else to standard error. `run` returns the exit code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any, TypeVar

from cyclopts import CycloptsError

from chainapi.cli.common import (
    FAILED,
    INTERRUPTED,
    PARTLY,
    PIPE_CLOSED,
    TERMINATED,
    WRONG_USAGE,
    app,
)
from chainapi.cli.terminal import Terminal, standard
from chainapi.cli.wording import option_text, worded
from chainapi.errors import ChainAPIError, ConfigurationError

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "PARTLY",
    "PIPE_CLOSED",
    "TERMINATED",
    "WRONG_USAGE",
    "app",
    "load_commands",
    "run",
]

T = TypeVar("T")

# The function of each command. Its module is loaded when it is called.
COMMANDS = {
    "tps": "tps:tps",
    "list": "list:list_",
    "routes": "routes:routes",
    "estimate": "estimate:estimate",
    "export": "export:export",
    "compact": "export:compact",
    "quota": "quota:quota",
    "plot": "plot:plot",
    "completion": "completion:completion",
    "simulate": "simulate:simulate",
    "check": "check:check",
    "demo": "demo:demo",
}
for _name, _function in COMMANDS.items():
    app.command(f"chainapi.cli.{_function}", name=_name)


def load_commands() -> None:
    """Load the modules of all commands: the list of commands has their docstrings."""
    for name in COMMANDS:
        app[name]


def run(
    tokens: Sequence[str],
    *,
    terminal: Terminal | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    loading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Run the command line `tokens`, and return its exit code.

    It prints an error as one line on standard error. `loading` is entered while the module of the command is
    loaded.
    """
    terminal = terminal or standard()
    terminal.words = tokens
    try:
        with loading():
            command, bound, hidden = _parsed(tokens, terminal)
        own = {name: terminal for name in hidden if name == "terminal"}
        with _deprecations_reported(terminal):
            result = command(*bound.args, **bound.kwargs, **own)
            code = _run(result, terminal, loop_factory) if asyncio.iscoroutine(result) else result
        terminal.out.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except asyncio.CancelledError:
        return TERMINATED
    except BrokenPipeError:
        return PIPE_CLOSED
    except (CycloptsError, ChainAPIError, OSError) as error:
        with suppress(OSError):  # standard error may be closed as well
            terminal.note(worded(error))
        return WRONG_USAGE if isinstance(error, CycloptsError | ConfigurationError) else FAILED
    return code or 0


def _parsed(tokens: Sequence[str], terminal: Terminal) -> Any:
    """Return the function of a command line, its arguments, and hidden parameters.

    Raises:
        CycloptsError: an argument is invalid.
        ConfigurationError: a class of options refuses a value.

    """
    try:
        if not tokens or tokens[0] in ("--help", "-h"):
            load_commands()
        return app.parse_args(tokens, console=terminal.console, print_error=False, exit_on_error=False)
    except ImportError as error:  # of cyclopts, about the module of a command
        raise error.__cause__ or error from None
    except ValueError as error:
        raise ConfigurationError(option_text(error)) from None


@contextmanager
def _deprecations_reported(terminal: Terminal) -> Iterator[None]:
    """Report a deprecated route in one line, instead of a warning of Python."""
    with warnings.catch_warnings():
        warnings.filterwarnings("default", r"\S+ is deprecated: the service ", DeprecationWarning)
        warnings.showwarning = lambda message, *_, **__: terminal.note(message)
        yield


def _run(
    command: Coroutine[Any, Any, int],
    terminal: Terminal,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> int:
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # for asyncio too
    if interruptible and threading.current_thread() is threading.main_thread():
        command = _interruptible(command, terminal)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(command)


async def _interruptible(command: Coroutine[Any, Any, T], terminal: Terminal) -> T:
    """Await a command; a second Ctrl-C ends the process at once.

    asyncio cancels the command at the first one. At the second it would raise KeyboardInterrupt in the middle
    of any step of the event loop. Tasks that wait for this step would wait for ever, and others report errors
    of what has been closed meanwhile.
    """
    cancel: Any = signal.getsignal(signal.SIGINT)  # of asyncio

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, end)
        cancel(number, frame)

    def end(*_: object) -> None:
        with suppress(OSError, RuntimeError):  # in the middle of another write
            for console in (terminal.console, terminal.messages):
                console.show_cursor()
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, interrupt)
    try:
        return await command
    finally:
        signal.signal(signal.SIGINT, cancel)
