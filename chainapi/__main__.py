"""Console script: ``chainapi`` and ``python -m chainapi``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["main"]

EXTRA = ("cyclopts", "plotext", "rich")
WRONG_USAGE = 2  # as of `chainapi.cli`, which needs the extra
INTERRUPTED = 128 + signal.SIGINT  # as a shell reports a process that the signal ended


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        with _leaving_at_once():
            from chainapi.cli import run
        return run(sys.argv[1:], loading=_leaving_at_once)
    except ModuleNotFoundError as error:  # a command imports its own packages
        return _missing(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        _let_go()


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """End the process at once on Ctrl-C while modules load.

    Nothing needs to be closed yet. An exception would not do: raised in a class body or in a callback it
    becomes another error, or a message.
    """
    if (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):  # ignored, or replaced by the program around it
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _missing(error: ModuleNotFoundError) -> int:
    if error.name is None or error.name.partition(".")[0] not in EXTRA:
        raise error
    print(f"chainapi: {error.name} is not installed: pip install 'chainapi[cli]'", file=sys.stderr)  # noqa: T201
    return WRONG_USAGE


def _let_go() -> None:
    """Drop output for a closed pipe, or the interpreter would print an error at exit."""
    if sys.stdout is None:  # closed before the start
        return
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


if __name__ == "__main__":
    sys.exit(main())
