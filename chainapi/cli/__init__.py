"""Command line, made with cyclopts: each command in a module of its own.

Data goes to standard output, everything else to standard error. `run` returns the exit code.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from cyclopts import CycloptsError

from chainapi.cli.check import check
from chainapi.cli.common import (
    FAILED,
    INTERRUPTED,
    PARTLY,
    PIPE_CLOSED,
    TERMINATED,
    WRONG_USAGE,
    app,
    ended_by_second_interrupt,
)
from chainapi.cli.completion import completion
from chainapi.cli.estimate import estimate
from chainapi.cli.export import compact, export
from chainapi.cli.list import list_
from chainapi.cli.plot import plot
from chainapi.cli.quota import quota
from chainapi.cli.routes import routes
from chainapi.cli.simulate import demo, simulate
from chainapi.cli.terminal import Terminal, standard
from chainapi.cli.tps import tps
from chainapi.cli.wording import worded
from chainapi.errors import ChainAPIError, ConfigurationError

__all__ = ["FAILED", "INTERRUPTED", "PARTLY", "PIPE_CLOSED", "TERMINATED", "WRONG_USAGE", "app", "run"]

T = TypeVar("T")

app.command(tps, usage="Usage: chainapi tps [OPTIONS] CHAIN...")
app.command(list_, name="list", usage="Usage: chainapi list [OPTIONS] ROUTE [VALUE...]")
app.command(routes, usage="Usage: chainapi routes [OPTIONS] [TEXT]")
app.command(estimate, usage="Usage: chainapi estimate [OPTIONS] ROUTE [VALUE...]")
app.command(export, usage="Usage: chainapi export [OPTIONS] ROUTE [VALUE...] --out PATH")
app.command(compact, usage="Usage: chainapi compact FOLDER")
app.command(quota)
app.command(plot, usage="Usage: chainapi plot [OPTIONS] PATH")
app.command(completion)
app.command(simulate, usage="Usage: chainapi simulate [OPTIONS] [-- COMMAND [ARGUMENT...]]")
app.command(check, usage="Usage: chainapi check [OPTIONS] [TEXT]")
app.command(demo)


def run(
    tokens: Sequence[str],
    *,
    terminal: Terminal | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Run the command line `tokens`, and return its exit code.

    It prints an error as one line on standard error.
    """
    terminal = terminal or standard()
    terminal.words = tokens
    try:
        code = _dispatch(tokens, terminal, loop_factory)
        terminal.out.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except asyncio.CancelledError:
        return TERMINATED
    except BrokenPipeError:
        return PIPE_CLOSED
    except (CycloptsError, ChainAPIError, OSError) as error:
        with suppress(OSError):  # standard error may be closed as well
            terminal.report(worded(error))
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
    if asyncio.iscoroutine(result):
        interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # for asyncio too
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            result = runner.run(_interruptible(result, terminal) if interruptible else result)
    code: int | None = result
    return code or 0


async def _interruptible(command: Coroutine[Any, Any, T], terminal: Terminal) -> T:
    with ended_by_second_interrupt(terminal):
        return await command
