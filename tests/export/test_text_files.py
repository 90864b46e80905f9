"""New rows are there while a run continues; old rows of text files stay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pytest

from chainapi.errors import ExportError
from chainapi.export import export, files
from chainapi.simulator import Simulator
from tests.export.buckets import bucket
from tests.export.contract import read
from tests.export.growing import Growing, names_in
from tests.sessions import simulated


@pytest.mark.parametrize("format_", ["jsonl", "csv", "jsonl.gz", "csv.zst"])
async def test_old_rows_are_not_written_again(format_: str, tmp_path: Path) -> None:
    """An update adds bytes behind those of the file, and leaves no other file but its log."""
    growing = Growing(tmp_path / f"b.{format_}")
    before = await growing.begin()
    number = growing.path.stat().st_ino
    await growing.run()
    assert growing.path.read_bytes().startswith(before)
    assert growing.path.stat().st_ino == number
    growing.check()
    assert names_in(tmp_path) == [f"b.{format_}", f"b.{format_}.log"]
    assert readers(growing.path) == [[row["block_hash"] for row in read(growing.path, format_)]] * 3


def readers(path: Path) -> list[list[str]]:
    """Return the block hashes of a file, as each of three programs reads them."""
    if "jsonl" in path.suffixes[0]:
        found: Any = duckdb.sql(f"SELECT block_hash FROM read_json('{path}', format='newline_delimited')")
        frames = [pa_json.read_json(path), pl.read_ndjson(path)]
    else:
        found = duckdb.sql(f"SELECT block_hash FROM read_csv('{path}')")
        frames = [pa_csv.read_csv(path), pl.read_csv(path, infer_schema=False)]
    return [[row[0] for row in found.fetchall()], *(list(map(str, frame["block_hash"])) for frame in frames)]


@pytest.mark.parametrize(
    ("name", "options", "rows"),
    [
        ("b.jsonl", {}, [0, 20, 40]),
        ("b.csv.gz", {"commit_seconds": 2}, [0, 0, 30]),
        ("b.sqlite", {}, [0, 20, 40]),
        ("b/", {"commit_seconds": 2}, [0, 0, 30]),
        ("b/", {}, [0, 0, 0]),  # 60 seconds
        ("bucket://b/x/", {"commit_seconds": 2}, [0, 0, 30]),
    ],
)
async def test_rows_are_there_while_the_run_continues(
    name: str, options: dict[str, Any], rows: list[int], tmp_path: Path
) -> None:
    """Rows of unfinished sources come `commit_seconds` after their page at most.

    A part or a file has its rows in the order of their list, and nothing but a log is beside it.
    """
    simulator, found = Simulator(chains=(1,), rows=100, latency=1.0), list[int]()
    out = name if "://" in name else f"{tmp_path}/{name}"
    format_ = name.partition(".")[2].strip("/") or "jsonl"
    with bucket() as objects:

        def parts() -> list[Path]:
            if "://" in name:
                objects.copy_to(tmp_path / "copy" / "b")
            return sorted(tmp_path.rglob("part-*")) if name.endswith("/") else [tmp_path / name]

        async with simulated(simulator) as session:
            walk = session.data.evm.blocks
            running = asyncio.create_task(export(walk, [1], out, page_size=10, format=format_, **options))
            for seconds in (0.5, 2.25, 2.25):
                await asyncio.sleep(seconds)
                found.append(sum(len(read(path, format_)) for path in parts() if path.is_file()))
            result = await running
        assert result.rows == 100
        assert found == rows
        assert result.written == tuple(one.path for one in files(out))
        numbers = [int(row["block_number"]) for path in parts() for row in read(path, format_)]
    assert numbers == sorted(numbers, reverse=True)
    assert {path.name for path in tmp_path.iterdir()} <= {"b", "copy", name, f"{name}.log"}  # noqa: ASYNC240


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
async def test_a_change_while_an_export_runs_is_refused(format_: str, tmp_path: Path) -> None:
    """What someone else writes to the file during an update is neither overwritten nor counted."""
    growing = Growing(tmp_path / f"b.{format_}")
    before = await growing.begin()
    theirs = before + b"{}\n"
    with pytest.raises(ExportError, match="was changed"):
        await growing.run(progress=lambda _: growing.path.write_bytes(theirs))
    with pytest.raises(ExportError, match="was changed"):
        await growing.run()
    assert growing.path.read_bytes() == theirs
    growing.path.write_bytes(before)
    await growing.run()
    growing.check()
