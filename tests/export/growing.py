"""Exports of blocks whose lists grow between two runs, and what is in their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chainapi.export import export
from chainapi.simulator import Simulator
from tests.export.contract import read
from tests.sessions import simulated

__all__ = ["CHAINS", "NEW", "ROWS", "Growing", "blocks_in", "blocks_of", "names_in", "numbers_in", "rows_in"]

CHAINS, ROWS, NEW = (1, 2, 3), 40, 7


def blocks_of(
    simulator: Simulator, count: int, chains: tuple[int, ...] = tuple(range(1, 13))
) -> set[tuple[str, int]]:
    """Return source and number of the newest `count` blocks of chains, before a test inserts more."""
    first = {chain: 10_000_000 + 1_000 * chain % 40_000_000 for chain in chains}
    newest = simulator.rows
    return {(str(chain), first[chain] + newest - 1 - index) for chain in chains for index in range(count)}


def rows_in(path: Path, format_: str = "jsonl") -> list[dict[str, Any]]:
    """Return the rows of a file, or of all parts of a folder."""
    paths = sorted(path.rglob(f"part-*.{format_}")) if path.is_dir() else [path]
    return [row for one in paths for row in read(one, format_)]


def numbers_in(path: Path) -> Counter[tuple[str, int]]:
    """Count the blocks of a file or a folder of JSON lines by source and number."""
    return Counter((row["source"], row["block_number"]) for row in rows_in(path))


def blocks_in(paths: Iterable[Path], format_: str = "jsonl") -> Counter[tuple[str, int]]:
    """Count the blocks of files by source and number."""
    return Counter((row["source"], int(row["block_number"])) for path in paths for row in read(path, format_))


def names_in(folder: Path) -> list[str]:
    """Return the sorted names in a folder."""
    return sorted(path.name for path in folder.iterdir())


class Growing:
    """An export of blocks to one file, whose list grows between two runs."""

    def __init__(self, folder: Path, format_: str) -> None:
        self.simulator = Simulator(chains=CHAINS, rows=ROWS)
        self.format = format_
        self.path = folder / f"b.{format_}"
        folder.mkdir(exist_ok=True)

    async def run(self, **options: Any) -> Any:
        """Run the export."""
        async with simulated(self.simulator) as session:
            return await export(session.data.evm.blocks, CHAINS, self.path, **options)

    async def begin(self) -> bytes:
        """Run the export, let the list grow, and return the file."""
        await self.run()
        self.simulator.insert("/v1/chains/2/blocks", NEW)
        return self.path.read_bytes()

    def check(self) -> None:
        """Compare the rows of the file with those of the lists."""
        found = blocks_in([self.path], self.format)
        assert found.keys() >= blocks_of(self.simulator, ROWS, CHAINS)
        assert found.total() == len(found) == len(CHAINS) * ROWS + NEW
