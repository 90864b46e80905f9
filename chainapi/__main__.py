"""The console script: ``chainapi`` and ``python -m chainapi``."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

EXTRA = ("cyclopts", "plotext", "rich")


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        from chainapi.cli import INTERRUPTED, run
    except ModuleNotFoundError as error:
        return _missing(error)
    try:
        return run(sys.argv[1:])
    except ModuleNotFoundError as error:  # what only one command needs is imported by that command
        return _missing(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        _let_go()


def _missing(error: ModuleNotFoundError) -> int:
    if error.name is None or error.name.partition(".")[0] not in EXTRA:
        raise error
    print(f"chainapi: {error.name} is not installed: pip install 'chainapi[cli]'", file=sys.stderr)  # noqa: T201
    return 1


def _let_go() -> None:
    """Drop what cannot be written any more, or the interpreter would complain of it at exit."""
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
