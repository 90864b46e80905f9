"""Soak: `python -m tests.paging --examples 100000` runs the machine repeatedly.

It uses all processors. Each round is 500 examples of a seed of its own; a failure is printed with the seed
and the smallest example that was found, and ends the run.

Readers walk without an event loop, or with `--session` on one, with prefetch and cancellation.
`--hunt NAME` looks for scripts that catch a mutant, among as many as `--examples`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from chainapi.errors import ChainAPIError
from tests.paging.kill import walk_and_kill
from tests.paging.machine import FlowMachine, PagingMachine
from tests.paging.mutants import MUTANTS, Mutant
from tests.paging.runs import EXAMPLES, check
from tests.paging.scripts import play


def hunt(mutant: Mutant, scripts: int) -> None:
    """Print the scripts that catch a mutant, as they are found."""
    for script in range(scripts):
        with mutant.make():
            try:
                play(script, mutant.machine)
            except (AssertionError, ChainAPIError, KeyError) as error:
                print(f"{script}: {type(error).__name__}: {error}"[:110], flush=True)


def main() -> None:
    """Run the given number of examples, then the long walk through kills."""
    parser = argparse.ArgumentParser(prog="python -m tests.paging", description=__doc__)
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="of the first round; else drawn from the time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--session", action="store_true", help="walk on sessions in virtual time")
    parser.add_argument("--hunt", metavar="NAME", choices=MUTANTS)
    chosen = parser.parse_args()
    if chosen.hunt is not None:
        hunt(MUTANTS[chosen.hunt], chosen.examples)
        return
    machine = PagingMachine if chosen.session else FlowMachine
    seed = int(time.time()) if chosen.seed is None else chosen.seed
    print(f"first seed: {seed}", flush=True)
    began = time.monotonic()
    rounds = [min(EXAMPLES, chosen.examples - at) for at in range(0, chosen.examples, EXAMPLES)]
    done = 0
    with ProcessPoolExecutor(chosen.jobs) as pool:
        running = {
            pool.submit(check, size, seed=seed + index, machine=machine): index
            for index, size in enumerate(rounds)
        }
        for future in as_completed(running):
            if (error := future.exception()) is not None:
                pool.shutdown(cancel_futures=True)
                print(f"seed {seed + running[future]} fails:", file=sys.stderr)
                raise error
            done += rounds[running[future]]
            print(f"{done:>7} examples, {time.monotonic() - began:.0f} s", flush=True)
    killed = walk_and_kill(pages=10_000, kills=50, seed=seed)
    killed.check(pages=10_000, kills=50)
    print(f"10,000 pages, {killed.kills} kills, {killed.rows} rows, each once: {killed.seconds:.0f} s")


if __name__ == "__main__":
    main()
