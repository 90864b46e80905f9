"""Options of Parquet files: compression, its level, rows of a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from chainapi.errors import ConfigurationError
from chainapi.export import export
from chainapi.simulator import Simulator
from tests.sessions import simulated


def groups_of(path: Path) -> list[int]:
    """Return the number of rows of each group."""
    found = pq.ParquetFile(path).metadata
    return [found.row_group(number).num_rows for number in range(found.num_row_groups)]


def compression_of(path: Path) -> str:
    """Return the compression of the first values."""
    return str(pq.ParquetFile(path).metadata.row_group(0).column(0).compression)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "ZSTD"),
        ({"compression": "zstd"}, "ZSTD"),
        ({"compression_level": 9}, "ZSTD"),
        ({"compression": "snappy"}, "SNAPPY"),
        ({"compression": "gzip", "compression_level": 1}, "GZIP"),
        ({"compression": "none"}, "UNCOMPRESSED"),
    ],
)
async def test_files_have_the_chosen_compression(
    options: dict[str, Any], wanted: str, tmp_path: Path
) -> None:
    """The compression is the chosen one, zstd by default, and readers get the same rows."""
    path, plain = tmp_path / "b.parquet", tmp_path / "plain.parquet"
    async with simulated(Simulator(seed=1)) as session:
        await export(session.data.evm.blocks, [43114], path, limit=50, **options)
        await export(session.data.evm.blocks, [43114], plain, limit=50)
    assert compression_of(path) == wanted
    assert pq.read_table(path).equals(pq.read_table(plain))


async def test_later_parts_may_differ(tmp_path: Path) -> None:
    """Neither option locks the target: later parts, and a file that grows, have those of their run."""
    simulator, walk_of = Simulator(chains=(1,), rows=100), "/v1/chains/1/blocks"
    folder, path = tmp_path / "blocks", tmp_path / "b.parquet"
    runs: list[tuple[int, dict[str, Any]]] = [
        (0, {"row_group_rows": 30}),
        (50, {"compression": "gzip", "row_group_rows": 40}),
    ]
    async with simulated(simulator) as session:
        for new, options in runs:
            simulator.insert(walk_of, new)
            for out in (folder, path):
                await export(session.data.evm.blocks, [1], out, format="parquet", **options)
    first, second = sorted(folder.glob("*.parquet"))
    assert (groups_of(first), compression_of(first)) == ([30, 30, 30, 10], "ZSTD")
    assert (groups_of(second), compression_of(second)) == ([40, 10], "GZIP")
    assert (groups_of(path), compression_of(path)) == ([40, 40, 40, 30], "GZIP")


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        (
            "b.parquet",
            {"compression": "lz5"},
            "compression='lz5' must be 'zstd' or 'snappy' or 'gzip' or 'none'",
        ),
        ("b.parquet", {"compression_level": 23}, "compression_level=23 must be a whole number from 1 to 22"),
        ("b.parquet", {"compression": "gzip", "compression_level": 10}, "from 1 to 9"),
        (
            "b.parquet",
            {"compression": "snappy", "compression_level": 1},
            "compression_level= does not apply to snappy, which has no levels",
        ),
        ("b.parquet", {"row_group_rows": 0}, "row_group_rows=0 must be a whole number from 1"),
        ("b.parquet", {"row_group_rows": True}, "row_group_rows=True must be a whole number"),
        ("b.csv", {"compression": "gzip"}, "compression= applies to Parquet, and the files are csv"),
        (
            "b.jsonl.zst",
            {"compression": "zstd"},
            "compression= applies to Parquet, and the files are jsonl.zst",
        ),
        ("b.csv.gz", {"compression_level": 10}, "compression_level=10 must be a whole number from 1 to 9"),
        ("b.csv.zst", {"compression_level": 23}, "compression_level=23 must be a whole number from 1 to 22"),
        ("b.csv", {"compression_level": 1}, "compression_level= does not apply to csv, which has no levels"),
        ("b.jsonl", {"row_group_rows": 5}, "row_group_rows= applies to Parquet, and the files are jsonl"),
    ],
)
async def test_options_that_are_wrong(
    out: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Invalid options, and those of Parquet for another format, are refused before a request."""
    simulator = Simulator(seed=1)
    async with simulated(simulator) as session:
        with pytest.raises(ConfigurationError) as caught:
            await export(session.data.evm.blocks, [43114], tmp_path / out, **options)
    assert message in str(caught.value)
    assert simulator.stats.requests == 0
