"""Row groups of a Parquet file: an update copies the old ones as bytes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chainapi.errors import ExportError
from chainapi.export import files
from chainapi.export.formats import row_groups
from chainapi.export.formats.parquet import FORMAT, Parquet
from chainapi.export.gathering import GroupSize
from chainapi.export.worker import Stopped
from chainapi.models import EvmBlock
from chainapi.tables.codec import Codec
from tests.export.test_append import Growing
from tests.export.test_formats import many
from tests.export.test_growth import model
from tests.export.test_lost_writes import COLUMNS, lines

ROWS = 300


def groups_of(path: Path) -> list[int]:
    """Return the number of rows of each group."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def written(tmp_path: Path, form: Parquet = FORMAT) -> Path:
    """Return a file with rows."""
    form.write(tmp_path / "old", COLUMNS, lines(ROWS))
    return tmp_path / "old"


@pytest.mark.parametrize("form", [FORMAT, Parquet("none"), Parquet("snappy")])
def test_old_groups_are_copied_as_bytes(form: Parquet, tmp_path: Path) -> None:
    """The old groups keep their bytes and places; every reader finds all rows, in their order."""
    old, new, again = written(tmp_path, form), tmp_path / "new", tmp_path / "again"
    assert form.write(new, COLUMNS, lines(20), old) == ROWS + 20
    assert form.write(again, COLUMNS, lines(7), new) == ROWS + 27
    assert groups_of(again) == [*groups_of(old), 20, 7]
    first = old.read_bytes()
    assert again.read_bytes().startswith(first[: row_groups._end_of_groups(old)])
    rows = [*form.read(old)]
    wanted = [*rows, *rows[:20], *rows[:7]]
    assert [*form.read(again)] == wanted
    query = "SELECT count(*), sum(block_number) FROM read_parquet(?)"
    assert duckdb.execute(query, [str(again)]).fetchall() == [
        (ROWS + 27, sum(row["block_number"] for row in wanted))
    ]
    assert pl.read_parquet(again)["block_hash"].to_list() == [row["block_hash"] for row in wanted]
    with pq.ParquetFile(again) as file:
        assert file.schema_arrow.equals(pq.read_schema(old), check_metadata=True)


def test_small_groups_become_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with too many small groups is written again, in groups as large as those of a new file."""
    monkeypatch.setattr(row_groups, "SMALL_GROUPS", 3)
    path, other = written(tmp_path), tmp_path / "other"
    found = list[list[int]]()
    for _ in range(5):
        FORMAT.write(other, COLUMNS, lines(2), path)
        path, other = other, path
        found.append(groups_of(path))
    assert found == [[300, 2], [300, 2, 2], [300, 2, 2, 2], [308], [308, 2]]


def test_rows_behind_an_empty_file(tmp_path: Path) -> None:
    """A file without rows has no group to copy."""
    assert FORMAT.write(tmp_path / "old", COLUMNS, []) == 0
    assert FORMAT.write(tmp_path / "new", COLUMNS, lines(3), tmp_path / "old") == 3
    assert [*FORMAT.read(tmp_path / "new")] == [*FORMAT.read(written(tmp_path))][:3]


def test_groups_of_the_chosen_size(tmp_path: Path) -> None:
    """Groups of a chosen size are copied if all have it; otherwise all rows are written again."""
    form, old, new, again = Parquet(group_rows=100), tmp_path / "old", tmp_path / "new", tmp_path / "again"
    form.write(old, COLUMNS, lines(ROWS))
    form.write(new, COLUMNS, lines(20), old)
    form.write(again, COLUMNS, lines(7), new)
    assert groups_of(new) == [100, 100, 100, 20]
    assert groups_of(again) == [100, 100, 100, 27]
    assert new.read_bytes().startswith(old.read_bytes()[: row_groups._end_of_groups(old)])


def test_another_compression_writes_all_rows(tmp_path: Path) -> None:
    """A file gets the compression of the newest run as a whole."""
    Parquet("gzip").write(tmp_path / "new", COLUMNS, lines(20), written(tmp_path))
    assert groups_of(tmp_path / "new") == [320]
    assert pq.read_metadata(tmp_path / "new").row_group(0).column(0).compression == "GZIP"


def test_a_new_column_writes_all_rows(tmp_path: Path) -> None:
    """Rows with a new column cannot follow as they are: the old ones are written again."""
    old, new = tmp_path / "old", tmp_path / "new"
    before, after = model(gas_used=int), model(block_hash=str, gas_used=int)
    FORMAT.write(old, Codec(before).columns, [("43114", Codec(before).encode_lines([before(1, 1)]))])
    rows = Codec(after).encode_lines([after(block_number=2, gas_used=2, block_hash="0x")])
    FORMAT.write(new, Codec(after).columns, [("43114", rows)], old)
    assert groups_of(new) == [2]
    assert pq.read_table(new)["block_hash"].to_pylist() == [None, "0x"]


def test_copied_groups_that_the_disk_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old groups that differ from the old file when they are read back are an error."""
    old = written(tmp_path)
    footer = row_groups._write_footer

    def damaged(path: Path, metadata: Any) -> None:
        footer(path, metadata)
        with path.open("rb+") as file:
            file.seek(1_000)
            file.write(b"\0\0\0\0")

    monkeypatch.setattr(row_groups, "_write_footer", damaged)
    with pytest.raises(ExportError, match="has other rows when it is read back than were copied to it"):
        FORMAT.write(tmp_path / "new", COLUMNS, lines(20), old)


def test_a_copy_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop ends the copy at the next piece; pieces are synced as the copy goes."""
    monkeypatch.setattr(files, "CHUNK", 1_000)
    monkeypatch.setattr(row_groups, "SYNC_EVERY", 2)
    stop, old, syncs = threading.Event(), written(tmp_path), list[Path]()

    def sync(path: Path) -> None:
        syncs.append(path)
        stop.set()

    monkeypatch.setattr(row_groups, "sync_file", sync)
    with pytest.raises(Stopped):
        FORMAT.write(tmp_path / "new", COLUMNS, lines(20), old, stop)
    assert syncs == [tmp_path / "new"]


async def test_an_update_copies_the_groups(tmp_path: Path) -> None:
    """An update of an export leaves the old groups, and one for the new rows."""
    growing = Growing(tmp_path, "parquet")
    await growing.begin()
    await growing.run()
    growing.check()
    assert groups_of(growing.path) == [120, 7]


@pytest.mark.parametrize(("rows", "kept"), [(GroupSize().full, True), (GroupSize().least, False)])
def test_groups_that_pages_fill_are_not_small(rows: int, kept: bool, tmp_path: Path) -> None:
    """A file may have any number of full row groups, but only a few small ones."""
    table = pa.table({"block_number": pa.array([0] * rows, pa.int64())})
    with pq.ParquetWriter(tmp_path / "old", table.schema, compression="zstd") as writer:
        for _ in range(row_groups.SMALL_GROUPS + 1):
            writer.write_table(table, row_group_size=rows)
    metadata = pq.read_metadata(tmp_path / "old")
    assert row_groups.can_copy(metadata, table.schema, "zstd", None) is kept


def test_large_rows_make_groups_that_are_not_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group counts as large by its bytes too: rows may be so large that few make a group."""
    monkeypatch.setattr(row_groups, "SMALL_GROUPS", 0)
    columns = Codec(EvmBlock).columns
    for size, groups in ((1 << 30, [60]), (1, [50, 10])):
        monkeypatch.setattr(row_groups, "SMALL_BYTES", size)
        FORMAT.write(tmp_path / "old", columns, many(50))
        FORMAT.write(tmp_path / "new", columns, many(10), tmp_path / "old")
        assert groups_of(tmp_path / "new") == groups
