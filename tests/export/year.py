"""A year of daily updates in virtual time: `python -m tests.export.year [DAYS]`.

It prints the requests, the rows and the size of the journal of some exports, for the first run and for the
updates of all further days. The simulator's lists grow each day.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import frozen

from chainapi.api.catalogue import ROUTES
from chainapi.export import export
from chainapi.simulator import Simulator
from chainapi.testing import run
from tests.sessions import simulated
from tests.simulator.test_routes import CHAINS, arguments, place_of

__all__ = ["LISTS", "Day", "days_of"]

LISTS = {  # new rows a day
    "data.evm.blocks": 200,
    "data.evm.transactions": 200,
    "data.evm.native_transactions": 3,
    "metrics.chains.metric": 1,
}
START = 500  # rows of each list on the first day


@frozen
class Day:
    """Outcome of one daily run.

    Attributes:
        requests: requests that the run sent.
        rows: rows that it added.
        journal: bytes of the journal after it.

    """

    requests: int
    rows: int
    journal: int


def days_of(name: str, days: int) -> list[Day]:
    """Return the outcomes of daily runs over a list that grows, each row exported once."""

    async def daily(folder: Path) -> list[Day]:
        simulator = Simulator(seed=7, rows=START, points=START, chains=CHAINS)
        method: Any
        outcomes: list[Day] = []
        async with simulated(simulator) as session:
            method = reduce(getattr, name.split("."), session)
            for day in range(days):
                simulator.insert(place_of(name), LISTS[name] if day else 0)
                before = simulator.stats.requests
                result = await export(method, [arguments(ROUTES[name])], folder / "rows.jsonl")
                outcomes.append(Day(simulator.stats.requests - before, result.rows, _journal(folder)))
        lines = (folder / "rows.jsonl").read_bytes().splitlines()
        assert len(set(lines)) == len(lines) == START + (days - 1) * LISTS[name]
        return outcomes

    with TemporaryDirectory() as folder:
        return run(daily(Path(folder)))


def _journal(folder: Path) -> int:
    """Return the bytes of the journal."""
    return sum(path.stat().st_size for path in folder.glob("rows.jsonl.export*") for path in _files(path))


def _files(path: Path) -> Iterator[Path]:
    return (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else iter((path,))


def main() -> None:
    """Print the table of a year, or of as many days as the first argument says."""
    days = int(sys.argv[1]) if len(sys.argv) > 1 else 365
    print("| List, new rows a day | Requests of the first run | Requests and rows of the updates | Journal |")
    print("|---|---|---|---|")
    for name in LISTS:
        first, *later = days_of(name, days)
        requests, rows = sum(day.requests for day in later), sum(day.rows for day in later)
        print(
            f"| `{name}`, {LISTS[name]} | {first.requests} | {requests:,}, {rows:,} |"
            f" {first.journal >> 10} to {later[-1].journal >> 10} KiB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
