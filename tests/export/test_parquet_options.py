"""Options of Parquet files: compression, its level, rows of a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from chainapi.errors import ConfigurationError
from chainapi.export import ParquetOptions, export
from chainapi.simulator import Simulator
from tests.export.contract import read
from tests.export.test_formats import exported
from tests.sessions import simulated


def groups_of(path: Path) -> list[int]:
    """Return the number of rows of each group."""
    found = pq.ParquetFile(path).metadata
    return [found.row_group(number).num_rows for number in range(found.num_row_groups)]


def compression_of(path: Path) -> str:
    """Return the compression of the first values."""
    return str(pq.ParquetFile(path).metadata.row_group(0).column(0).compression)


async def test_files_have_the_chosen_compression(tmp_path: Path) -> None:
    """The compression is the chosen one, zstd by default, and readers get the same rows."""
    chosen: list[tuple[Any, str]] = [
        (None, "ZSTD"),
        (ParquetOptions(), "ZSTD"),
        (ParquetOptions(compression_level=9), "ZSTD"),
        (ParquetOptions(compression="snappy"), "SNAPPY"),
        (ParquetOptions(compression="gzip", compression_level=1), "GZIP"),
        (ParquetOptions(compression="none"), "UNCOMPRESSED"),
    ]
    tables = list[Any]()
    async with simulated(Simulator(seed=1)) as session:
        for place, (options, wanted) in enumerate(chosen):
            path = tmp_path / f"{place}.parquet"
            await export(session.data.evm.blocks, [43114], path, limit=50, parquet=options)
            assert compression_of(path) == wanted
            tables.append(pq.read_table(path))
    assert all(table.equals(tables[0]) for table in tables)


async def test_the_level_reaches_the_compressor(tmp_path: Path) -> None:
    """A greater level makes a smaller file, with the same rows."""
    words = ("block", "chain", "gas", "hash", "number", "parent")
    rows = [
        {"text": " ".join(words[(place * one) % 6] for one in range(9)), "number": place}
        for place in range(500)
    ]
    low, high = tmp_path / "low.parquet", tmp_path / "high.parquet"
    for out, level in ((low, 1), (high, 19)):
        await exported(out, {"/v1/a": rows}, parquet=ParquetOptions(compression_level=level))
    assert high.stat().st_size < low.stat().st_size
    assert read(low, "parquet") == read(high, "parquet")


async def test_options_are_those_of_the_run(tmp_path: Path) -> None:
    """A run may have other options than the one before, and one that names none has the same."""
    simulator = Simulator(chains=(1,), rows=100)
    folder, path = tmp_path / "blocks", tmp_path / "b.parquet"
    runs: list[tuple[int, dict[str, Any]]] = [
        (0, {"parquet": ParquetOptions(row_group_rows=30)}),
        (50, {"parquet": ParquetOptions(compression="gzip", row_group_rows=40)}),
        (50, {}),
    ]
    async with simulated(simulator) as session:
        for new, options in runs:
            simulator.insert("/v1/chains/1/blocks", new)
            for out in (folder, path):
                await export(session.data.evm.blocks, [1], out, format="parquet", **options)
    found = [(groups_of(part), compression_of(part)) for part in sorted(folder.glob("*.parquet"))]
    assert found == [([30, 30, 30, 10], "ZSTD"), ([40, 10], "GZIP"), ([40, 10], "GZIP")]
    assert (groups_of(path), compression_of(path)) == ([40] * 5, "GZIP")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compression": "lz5"}, "compression='lz5' must be 'zstd' or 'snappy' or 'gzip' or 'none'"),
        ({"compression": 5}, "compression=5 must be"),
        ({"compression_level": 23}, "compression_level=23 must be a whole number from 1 to 22"),
        ({"compression_level": "x"}, "compression_level='x' must be a whole number"),
        ({"compression": "gzip", "compression_level": 10}, "from 1 to 9"),
        (
            {"compression": "snappy", "compression_level": 1},
            "compression_level= does not apply to snappy, which has no levels",
        ),
        ({"row_group_rows": 0}, "row_group_rows=0 must be a whole number from 1"),
        ({"row_group_rows": True}, "row_group_rows=True must be a whole number"),
    ],
)
def test_options_that_are_wrong(options: dict[str, Any], message: str) -> None:
    """An option that no Parquet file can have is refused by its name."""
    with pytest.raises(ConfigurationError) as caught:
        ParquetOptions(**options)
    assert message in str(caught.value)
