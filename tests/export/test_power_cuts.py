"""Exports under bad conditions: power cuts, full disks, many sources, low quota."""

from __future__ import annotations

import asyncio
import gc
import math
import subprocess
import sys
import textwrap
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from chainapi import Session
from chainapi.export import export
from chainapi.export.formats import format_of
from chainapi.export.progress import ExportProgress
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.export.power_cuts import PowerCuts
from tests.export.test_export import blocks_of
from tests.sessions import simulated
from tests.test_session import DATA_URL, reply

CHAINS = (1, 2, 3)


def blocks_in(folders: list[Path], format_: str) -> Counter[tuple[str, int]]:
    """Count the blocks of all files by source and number."""
    return Counter(
        (row["source"], int(row["block_number"]))
        for folder in folders
        for file in folder.glob(f"*.{format_}")
        for row in format_of(format_).read(file)
    )


@pytest.mark.parametrize("format_", ["jsonl", "parquet", "sqlite", "duckdb"])
async def test_only_what_was_synced_survives(format_: str, tmp_path: Path) -> None:
    """A power cut at any sync or rename loses no row of a single file; `crashes` has folders."""
    folder = tmp_path / "run"
    folder.mkdir()
    simulator = Simulator(chains=CHAINS, rows=40)

    def target(place: Path) -> Path:
        return place / f"b.{format_}"

    async with simulated(simulator) as session:
        walk = session.data.evm.blocks
        with PowerCuts(folder) as cuts:
            await export(walk, CHAINS, target(folder), format=format_)
        simulator.insert("/v1/chains/2/blocks", 7)
        with cuts:
            await export(walk, CHAINS, target(folder), format=format_)
        states = cuts.take()
        assert len(states) >= 2 * 6
        for number, image in enumerate(states):
            place = tmp_path / f"image-{number}"
            cuts.restore(image, place)
            await export(walk, CHAINS, target(place), format=format_)
            found = blocks_in([place], format_)
            assert found.keys() >= blocks_of(simulator, 40, CHAINS)
            assert found.total() == len(found) == 3 * 40 + 7


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
async def test_a_part_that_was_taken_away_is_not_written_again(format_: str, tmp_path: Path) -> None:
    """A part may be moved away as soon as it has its name, also if the export stops then."""
    folder = tmp_path / "run"
    folder.mkdir()
    simulator = Simulator(chains=CHAINS, rows=40)
    moved = 0
    async with simulated(simulator) as session:
        walk = session.data.evm.blocks
        with PowerCuts(folder) as cuts:
            await export(walk, CHAINS, folder, format=format_)
        for number, image in enumerate(cuts.take()):
            place, away = tmp_path / f"image-{number}", tmp_path / f"away-{number}"
            cuts.restore(image, place)
            away.mkdir()
            for part in place.glob(f"*.{format_}"):
                part.rename(away / f"moved-{part.name}")
                moved += 1
            await export(walk, CHAINS, place, format=format_)
            assert blocks_in([place, away], format_) == Counter(blocks_of(simulator, 40, CHAINS))
    assert moved


async def test_a_file_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    """A file with a final name is whole after a power cut."""
    simulator = Simulator(chains=CHAINS, rows=40)
    folder = tmp_path / "run"
    folder.mkdir()
    async with simulated(simulator) as session:
        with PowerCuts(folder) as cuts:
            await export(session.data.evm.blocks, CHAINS, folder / "b.jsonl")
    whole = (folder / "b.jsonl").read_bytes()
    found = [image["b.jsonl"] for image in cuts.images if "b.jsonl" in image]
    assert found
    assert set(found) == {whole}


FULL = """
    import asyncio, resource, signal, sys
    from chainapi import Session
    from chainapi.errors import ExportError
    from chainapi.export import export
    from chainapi.simulator import Simulator

    def run_out_of_room(progress):
        if progress.stage == sys.argv[2]:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))

    async def main(out):
        simulator = Simulator(chains=range(1, 21), rows=400)
        async with Session(transport=simulator.transport(), data_base_url=simulator.data_base_url,
                           api_key=simulator.api_key) as session:
            try:
                result = await export(
                    session.data.evm.blocks, range(1, 21), out, on_progress=run_out_of_room
                )
                print(result.rows)
            except ExportError as error:
                print(error)

    asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.untraced
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ("fetching", "b.csv.export cannot grow (File too large)"),
        ("writing", "b.csv cannot be written: File too large; all rows are kept in the journal"),
    ],
)
def test_a_full_disk_loses_nothing(stage: str, said: str, tmp_path: Path) -> None:
    """A full disk raises an error with the remedy; a run with free space completes."""
    path = tmp_path / "b.csv"

    def run(stage: str) -> str:
        command = [sys.executable, "-c", textwrap.dedent(FULL), str(path), stage]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    assert said in run(stage)
    assert not path.exists()
    assert not path.with_name(".b.csv.partial").exists()
    left = int(run("never"))
    assert left < (8_000 if stage == "fetching" else 1)
    found = blocks_in([tmp_path], "csv")
    assert len(found) == found.total() == 8_000


# Many sources through one quota


@pytest.mark.untraced
async def test_five_hundred_chains_through_one_quota(tmp_path: Path) -> None:
    """500 chains take at most 1.05 times what the quota allows, with three 429s."""
    limit, window = 120, 60.0
    chains = range(1, 501)
    simulator = Simulator(chains=chains, rows=40, limit=limit, window=window, latency=0.05)
    loop = asyncio.get_running_loop()
    async with simulated(simulator) as session:
        begun = loop.time()
        result = await export(session.data.evm.blocks, chains, tmp_path / "b.jsonl", page_size=10)
        taken = loop.time() - begun
    requests = 500 * 4
    assert result.rows == requests * 10
    assert simulator.stats.answered[200] == requests
    # The first window opens with the first request; then the last request waits for that number of windows.
    allowed = (math.ceil(requests / limit) - 1) * window
    assert taken <= 1.05 * allowed
    assert simulator.stats.answered[429] <= 3
    assert simulator.stats.sent_while_stopped == 0


class TwoPages:
    """A stateless service: five blocks and a token, then five older blocks."""

    async def send(self, request: Request) -> Response:
        """Return the page of a request."""
        await asyncio.sleep(0.01)
        older = "pageToken" in request.url
        blocks = [{**BLOCK, "blockNumber": str((5 if older else 10) - index)} for index in range(5)]
        return reply({"blocks": blocks} if older else {"blocks": blocks, "nextPageToken": "older"})

    async def aclose(self) -> None:
        """Do nothing."""


BLOCK = {
    **dict.fromkeys(
        ("baseFee", "gasUsed", "gasLimit", "gasCost", "feesSpent", "cumulativeTransactions"), "7"
    ),
    "blockTimestamp": 1_767_225_600,
    "txCount": 3,
    "blockHash": "0xaa",
    "parentHash": "0xbb",
}


@pytest.mark.untraced
async def test_memory_does_not_grow_with_the_sources(tmp_path: Path) -> None:
    """An export of 720 sources takes as much memory as one of 520.

    A finished source leaves its name only; its rows would be 13 KiB. The number of pages that wait for a
    commit depends on the threads, up to a limit.
    """

    async def held(sources: int) -> tuple[int, int]:
        """Return the bytes at the end of fetching, and at the peak."""
        at_the_end = 0

        def note(progress: ExportProgress) -> None:
            nonlocal at_the_end
            if progress.stage == "writing":
                gc.collect()  # cycles are no memory that is held; a process with many modules collects seldom
                at_the_end = tracemalloc.get_traced_memory()[0]

        async with Session(transport=TwoPages(), data_base_url=DATA_URL, api_key="key") as session:
            over = (f"/v1/chains/{chain}/blocks" for chain in range(sources))  # without order: more is kept
            tracemalloc.start()
            result = await export(
                session.data.list, over, tmp_path / f"{sources}.jsonl", concurrency=16, on_progress=note
            )
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert result.rows == 10 * sources
        return at_the_end, most

    await held(20)  # what is loaded and compiled at first use
    few, many = await held(520), await held(720)  # the ledger of the gate, which is bounded, is full by then
    assert many[0] - few[0] < 600 * 1024
    assert many[1] - few[1] < 2 * 2**20
