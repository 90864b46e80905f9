"""The command line, made with cyclopts: ``chainapi tps``, ``list``, ``plot``, ``simulate``, ``demo``.

Data goes to standard output, everything else to standard error. `run` returns the exit code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from cyclopts import App, CycloptsError

from chainapi._version import __version__
from chainapi.cli.common import FAILED, INTERRUPTED, PIPE_CLOSED, WRONG_USAGE
from chainapi.cli.display import Terminal, standard
from chainapi.cli.list import list_
from chainapi.cli.plot import plot
from chainapi.cli.simulate import demo, simulate
from chainapi.cli.tps import tps
from chainapi.errors import ChainAPIError, ConfigurationError

__all__ = ["FAILED", "INTERRUPTED", "PIPE_CLOSED", "WRONG_USAGE", "app", "run"]

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
app.command(tps, usage="Usage: chainapi tps [OPTIONS] CHAIN...")
app.command(list_, name="list")
app.command(plot, usage="Usage: chainapi plot [OPTIONS] FILE")
app.command(simulate)
app.command(demo)


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
