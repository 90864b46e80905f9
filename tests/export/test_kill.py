"""Exports whose process is killed at any moment, in threads and in libraries too: each row is there once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chainapi.simulator import Simulator
from tests.export.contract import DATABASES, read

pytestmark = [pytest.mark.real_time, pytest.mark.proof]

CHAINS = tuple(range(1, 9))
ADDRESS = "0x" + "1" * 40
PAGES, PAGE = 20, 25  # of each chain; rows
KILLS = 20

PROGRAM = """
import asyncio, sys
from chainapi import Session
from chainapi.export import export

async def main(out, ranges):
    async with Session() as session:
        walk, over = session.data.evm.blocks, range(1, 9)
        if ranges:
            walk, over = session.data.evm.native_transactions, [(chain, "0x" + "1" * 40) for chain in over]
        print("ready", flush=True)
        await export(walk, over, out, page_size=25, concurrency=4, ranges=int(ranges) or None)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def run(simulator: Simulator, out: Path, ranges: int, draw: Random | None = None) -> bool:
    """Export in a process; kill it after some requests, or some time later; return whether it was killed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(out), str(ranges)),
        env=simulator.environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    await process.stdout.readline()
    if draw is not None:
        wanted = simulator.stats.requests + draw.randint(0, PAGES)
        while process.returncode is None and simulator.stats.requests < wanted:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.001)
        await asyncio.sleep(draw.choice((0.0, draw.uniform(0, 0.1))))
        if process.returncode is None:
            process.kill()
    code = await process.wait()
    assert code in (0, -signal.SIGKILL), code
    return code != 0


@pytest.mark.parametrize(
    ("format_", "ranges"),
    [
        pytest.param("jsonl", 0, marks=pytest.mark.sample),
        ("parquet", 0),
        ("sqlite", 0),
        ("duckdb", 0),
        ("jsonl", 6),
    ],
)
async def test_the_rows_are_those_of_a_straight_run(format_: str, ranges: int, tmp_path: Path) -> None:
    """Rows after 20 kills, at drawn moments, are those of a run without kills, whole or in ranges."""
    killed, straight, draw = tmp_path / f"a.{format_}", tmp_path / f"b.{format_}", Random(format_)
    deaths = 0
    async with Simulator(chains=CHAINS, rows=PAGES * PAGE, latency=0.005) as simulator:
        while deaths < KILLS:
            if await run(simulator, killed, ranges, draw):
                deaths += 1
            else:  # it was done before it came to that: there is more to do
                place = f"addresses/{ADDRESS}/transactions:listNative" if ranges else "blocks"
                simulator.insert(f"/v1/chains/{CHAINS[0]}/{place}", 3 * PAGE)
        assert not await run(simulator, killed, ranges)
        assert not await run(simulator, straight, 0 if not ranges else 1)

    def rows_of(path: Path) -> Counter[str]:
        rows: list[dict[str, Any]] = read(path, format_)
        return Counter(repr(sorted(row.items())) for row in rows)

    assert rows_of(killed) == rows_of(straight)
    assert set(rows_of(killed).values()) == {1}
    assert rows_of(killed).total() >= len(CHAINS) * PAGES * PAGE
    ends = [""] if format_ in DATABASES else ["", ".log"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(  # noqa: ASYNC240
        [one.name + end for one in (killed, straight) for end in ends]
    )
