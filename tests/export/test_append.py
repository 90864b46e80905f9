"""Updates of a single file: old rows stay as they are, and others may keep copies of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import pytest

from chainapi.errors import ExportError
from chainapi.export import export
from chainapi.simulator import Simulator
from tests.export.contract import read
from tests.export.growing import NEW, Growing, names_in
from tests.export.held_steps import HeldStep
from tests.export.test_formats import exported
from tests.sessions import simulated

TEXTS = ("jsonl", "csv", "jsonl.gz", "csv.zst")


@pytest.mark.parametrize("format_", TEXTS)
async def test_old_rows_are_not_written_again(format_: str, tmp_path: Path) -> None:
    """An update adds bytes behind those of the file, and leaves no other file behind."""
    growing = Growing(tmp_path, format_)
    before = await growing.begin()
    number = growing.path.stat().st_ino
    await growing.run()
    assert growing.path.read_bytes().startswith(before)
    assert growing.path.stat().st_ino == number
    growing.check()
    assert names_in(tmp_path) == [f"b.{format_}", f"b.{format_}.export"]
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


async def test_row_groups_are_copied(tmp_path: Path) -> None:
    """An update of a Parquet file leaves the old row groups, and one for the new rows follows."""
    growing = Growing(tmp_path, "parquet")
    before = await growing.begin()
    end = max(offsets(growing.path))
    await growing.run()
    growing.check()
    assert groups_of(growing.path) == [120, NEW]
    assert growing.path.read_bytes()[:end] == before[:end]


@pytest.mark.proof
async def test_many_small_row_groups_become_large_ones(tmp_path: Path) -> None:
    """A file with more than 32 small row groups is written again, in groups of a new file."""
    simulator, out, counts = Simulator(chains=(1,), rows=3), tmp_path / "b.parquet", list[int]()
    async with simulated(simulator) as session:
        for _ in range(36):
            await export(session.data.evm.blocks, [1], out)
            counts.append(len(groups_of(out)))
            simulator.insert("/v1/chains/1/blocks", 1)
    assert counts == [*range(1, 34), 1, 2, 3]
    assert sum(groups_of(out)) == 3 + 35


def groups_of(path: Path) -> list[int]:
    """Return the number of rows of each row group."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def offsets(path: Path) -> list[int]:
    """Return where the last column of each row group begins."""
    metadata = pq.read_metadata(path)
    return [
        metadata.row_group(number).column(metadata.num_columns - 1).data_page_offset
        for number in range(metadata.num_row_groups)
    ]


@pytest.mark.parametrize("name", ["jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst", "parquet"])
async def test_the_level_reaches_the_compressor(name: str, tmp_path: Path) -> None:
    """A greater level makes a smaller file, with the same rows."""
    words = ("block", "chain", "gas", "hash", "number", "parent")
    rows = [
        {"text": " ".join(words[(place * one) % 6] for one in range(9)), "number": place}
        for place in range(500)
    ]
    sizes = list[int]()
    for level in (1, 9):
        out = tmp_path / f"{level}.{name}"
        await exported(out, {"/v1/a": rows}, compression_level=level)
        sizes.append(out.stat().st_size)
    assert sizes[1] < sizes[0]
    assert read(tmp_path / f"1.{name}", name) == read(tmp_path / f"9.{name}", name)


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
async def test_a_change_while_an_export_runs_is_refused(format_: str, tmp_path: Path) -> None:
    """What someone else writes to the file during an update is neither overwritten nor counted."""
    growing = Growing(tmp_path, format_)
    before = await growing.begin()
    with pytest.raises(ExportError, match="was changed"):
        await growing.run(on_progress=lambda _: growing.path.write_bytes(before + b"{}\n"))
    assert growing.path.read_bytes() == before + b"{}\n"
    growing.path.write_bytes(before)
    await growing.run()
    growing.check()


@pytest.mark.rule
@pytest.mark.parametrize("format_", ["jsonl", "csv.zst"])
async def test_an_export_that_is_cancelled_while_it_appends(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled export ends with the next piece and leaves the old rows; the next run adds the new ones."""
    growing = Growing(tmp_path, format_)
    before = await growing.begin()
    held, sync = HeldStep(), os.fsync

    def slow(handle: int) -> None:
        sync(handle)
        if growing.path.stat().st_size > len(before):
            held.wait()

    with monkeypatch.context() as patched:
        patched.setattr("chainapi.export.files.CHUNK", 500)
        patched.setattr("chainapi.export.append.SYNC_EVERY", 500)
        patched.setattr(os, "fsync", slow)
        await held.cancel(growing.run())
    assert growing.path.read_bytes() == before
    await growing.run()
    growing.check()


@pytest.mark.parametrize("format_", ["jsonl", "csv.zst", "sqlite"])
async def test_a_file_with_a_hard_link_is_written_again(format_: str, tmp_path: Path) -> None:
    """A copy by a hard link keeps its rows."""
    growing = Growing(tmp_path / "run", format_)
    before = await growing.begin()
    copy = tmp_path / "copy"
    copy.hardlink_to(growing.path)
    await growing.run()
    assert copy.read_bytes() == before
    growing.check()


async def test_a_read_only_file_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without the right to write gets its rows as well, and keeps its mode."""
    growing = Growing(tmp_path, "jsonl")
    await growing.begin()
    growing.path.chmod(0o444)
    number = growing.path.stat().st_ino
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may always write
    await growing.run()
    assert growing.path.stat().st_mode & 0o777 == 0o444
    assert growing.path.stat().st_ino != number
    growing.check()
