"""Run the judge: `python tests/judge/run.py SEEDS` prints a digest for each seed.

It judges the chainapi on the path of Python. SEEDS is a number of seeds, or a range such as `100-199`. With
`--rows` each seed is a set of bodies for every route, and a digest belongs to a route.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__" and not __package__:  # run as a file: the package to judge stays first on the path
    sys.path[:1] = []
    sys.path.append(str(Path(__file__).parents[2]))

import chainapi
from chainapi.testing import VirtualLoop
from tests.judge.bodies import ROUTES
from tests.judge.programs import play
from tests.judge.rows import examine
from tests.judge.trace import Trace

__all__ = ["main", "rows_of", "seeds_of", "trace_of"]


@contextmanager
def _constant_jitter() -> Iterator[None]:
    """Make the jitter of pauses constant: it comes from functions of the module `random`."""
    before = random.random, random.uniform
    random.random, random.uniform = (lambda: 0.5), (lambda a, b: (a + b) / 2)
    try:
        yield
    finally:
        random.random, random.uniform = before


def trace_of(seed: int) -> Trace:
    """Return the trace of a seed."""
    with _constant_jitter(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(play(seed))


def rows_of(name: str, seeds: range) -> Trace:
    """Return the trace of the bodies of a route."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(examine(name, seeds))


def seeds_of(text: str) -> range:
    """Return the seeds that a command names: a number of them, or the first and the last one."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print digests, or the lines of one trace."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="?", type=seeds_of, default=range(3))
    parser.add_argument("--rows", action="store_true", help="judge the rows of each route")
    parser.add_argument(
        "--trace", metavar="NAME", help="print what the digest of a seed, or a route, is made of"
    )
    parser.add_argument("--package", type=Path, help="folder in which the package to judge has to be")
    given = parser.parse_args(arguments)
    place = Path(chainapi.__file__).resolve().parents[1]
    if given.package is not None and place != given.package.resolve():
        parser.error(f"the chainapi on the path is in {place}, not in {given.package}")
    gc.freeze()  # a tenth faster
    names = [given.trace] if given.trace is not None else ROUTES if given.rows else given.seeds
    for name in names:
        trace = rows_of(str(name), given.seeds) if given.rows else trace_of(int(name))
        if given.trace is None:
            print(name, trace.digest(), flush=True)
        else:
            print(*trace.lines, sep="\n")


if __name__ == "__main__":
    main()
