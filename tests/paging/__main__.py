"""Soak: `python -m tests.paging --examples 100000` plays scripts of readers, one after the other.

It uses all processors. A failure is printed with its seed and the shortest part of its script that fails, and
ends the run. `--hunt NAME` looks for scripts that catch a mutant, among as many as `--examples`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from multiprocessing import Pool

from chainapi.errors import ChainAPIError
from tests.paging.kill import walk_and_kill
from tests.paging.mutants import MUTANTS, mutated
from tests.paging.scripts import Script, play

ROUND = 500  # scripts from one line of the report to the next


def hunt(name: str, scripts: range) -> None:
    """Print the scripts that catch a mutant, as they are found."""
    for seed in scripts:
        with mutated(name):
            try:
                play(seed)
            except (AssertionError, ChainAPIError, KeyError) as error:
                print(f"{seed}: {type(error).__name__}: {error}"[:110], flush=True)


def failing(seed: int) -> Script | None:
    """Play a script; return the shortest part of it that fails, if it does."""
    script = Script.from_seed(seed)
    try:
        script.play()
    except Exception:  # noqa: BLE001 - whatever the machine finds
        return script.shortest()
    return None


def main() -> None:
    """Play the given number of scripts, then the long walk through kills."""
    parser = argparse.ArgumentParser(prog="python -m tests.paging", description=__doc__)
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first script; else drawn from the time"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--hunt", metavar="NAME", choices=MUTANTS)
    chosen = parser.parse_args()
    if chosen.hunt is not None:
        hunt(chosen.hunt, range(chosen.seed or 0, (chosen.seed or 0) + chosen.examples))
        return
    seed = int(time.time()) if chosen.seed is None else chosen.seed
    print(f"first seed: {seed}", flush=True)
    began = time.monotonic()
    with Pool(chosen.jobs) as pool:
        scripts = range(seed, seed + chosen.examples)
        for done, script in enumerate(pool.imap(failing, scripts, chunksize=ROUND // 10), 1):
            if script is not None:
                print(f"seed {script.seed} fails: {script}", file=sys.stderr)
                script.play()
            if not done % ROUND:
                print(f"{done:>7} examples, {time.monotonic() - began:.0f} s", flush=True)
    walk_and_kill(pages=10_000, kills=50, seed=seed)
    print(f"10,000 pages through 50 kills, each row once: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
