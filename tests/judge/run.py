"""Run the judge: `python tests/judge/run.py SEEDS` prints a digest for each seed.

It judges the chainapi on the path of Python. SEEDS is a number of seeds, or a range such as `100-199`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__" and not __package__:  # run as a file: the package to judge stays first on the path
    sys.path[:1] = []
    sys.path.append(str(Path(__file__).parents[2]))

from chainapi.testing import VirtualLoop
from tests.judge.programs import play
from tests.judge.trace import Trace

__all__ = ["main", "seeds_of", "trace_of"]


@contextmanager
def constant_jitter() -> Iterator[None]:
    """Make the jitter of pauses constant: it comes from the module `random`."""
    before = random.random
    random.random = lambda: 0.5
    try:
        yield
    finally:
        random.random = before


def trace_of(seed: int) -> Trace:
    """Return the trace of a seed."""
    with constant_jitter(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(play(seed))


def seeds_of(text: str) -> range:
    """Return the seeds that a command names: a number of them, or the first and the last one."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def main(arguments: list[str] | None = None) -> None:
    """Print digests or traces."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="?", type=seeds_of, default=range(10))
    parser.add_argument("--trace", type=int, metavar="SEED", help="print what the digest of a seed is made of")
    given = parser.parse_args(arguments)
    if given.trace is not None:
        print(*trace_of(given.trace).lines, sep="\n")
        return
    for seed in given.seeds:
        print(seed, trace_of(seed).digest(), flush=True)


if __name__ == "__main__":
    main()
