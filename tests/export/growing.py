"""Exports of blocks whose lists grow between two runs, and what is in their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import define, field

from chainapi import Session
from chainapi.export import ExportResult, export
from chainapi.simulator import Simulator
from tests.export.contract import read
from tests.ledger import ADDRESS
from tests.sessions import simulated

__all__ = [
    "CHAINS",
    "NEW",
    "ROWS",
    "Growing",
    "blocks_in",
    "blocks_of",
    "names_in",
    "numbers_in",
    "rows_in",
    "transfers",
]

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


async def transfers(session: Session, out: Path | str, **options: Any) -> ExportResult:
    """Export the transfers of an address, three rows a page."""
    walk = session.data.evm.erc20_transactions
    return await export(walk, [(43114, ADDRESS)], out, page_size=3, **options)


@define
class Growing:
    """An export of blocks to a target, whose list grows between two runs."""

    out: Path | str
    simulator: Simulator = field(factory=lambda: Simulator(chains=CHAINS, rows=ROWS))

    async def run(self, **options: Any) -> ExportResult:
        """Run the export."""
        async with simulated(self.simulator) as session:
            return await export(session.data.evm.blocks, CHAINS, self.out, **options)

    def grow(self) -> None:
        """Add rows to a list."""
        self.simulator.insert("/v1/chains/2/blocks", NEW)

    @property
    def path(self) -> Path:
        """The file that is the target."""
        return Path(self.out)

    async def begin(self) -> bytes:
        """Run the export, let the list grow, and return the file."""
        await self.run()
        self.grow()
        return self.path.read_bytes()

    def check(self) -> None:
        """Compare the rows of the file with those of the lists."""
        found = blocks_in([self.path], self.path.name.partition(".")[2])
        assert found.keys() >= blocks_of(self.simulator, ROWS, CHAINS)
        assert found.total() == len(found) == len(CHAINS) * ROWS + NEW
