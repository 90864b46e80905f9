"""Writes that the disk loses: no format takes a file for whole that lacks rows when it is read back."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.formats import FORMATS, format_of, row_groups
from chainapi.export.formats.text_files import TextFiles
from chainapi.export.worker import Stopped
from chainapi.models import EvmBlock
from chainapi.models.codec import decode_resource
from chainapi.tables.codec import Codec
from chainapi.tables.columns import columns_of
from tests.documents import Maker
from tests.export.disks import files_of_at_most

pytestmark = pytest.mark.rule

COLUMNS = columns_of(EvmBlock)


def lines(count: int) -> list[tuple[str, bytes]]:
    """Return encoded blocks."""
    made = (json.dumps(Maker(number, whole=True).record(EvmBlock)) for number in range(count))
    rows = [decode_resource(text.encode(), EvmBlock) for text in made]
    return [("43114", Codec(EvmBlock).encode_lines(rows, "43114"))]


@pytest.mark.parametrize("size", [20_000, 300_000])
def test_a_database_whose_checkpoint_fails(size: int, tmp_path: Path) -> None:
    """A DuckDB database raises OSError where the log fits on the disk and the rows do not.

    DuckDB swallows that error on closing, and leaves the rows in a log that no rename takes along.
    """
    path = tmp_path / "f.duckdb"
    with files_of_at_most(size), pytest.raises(OSError, match="Could not write file"):
        format_of(path).write(path, COLUMNS, lines(10))
    assert [found for found in tmp_path.iterdir() if found.suffix == ".wal"] == []
    assert format_of(path).write(path, COLUMNS, lines(10)) == 10


def test_a_database_with_a_log_is_refused(tmp_path: Path) -> None:
    """A DuckDB database with a log beside it is refused for reading and as an earlier file."""
    path = tmp_path / "f.duckdb"
    form = format_of(path)
    form.write(path, COLUMNS, lines(1))
    path.with_name("f.duckdb.wal").write_bytes(b"")
    with pytest.raises(ConfigurationError, match=r"has a log beside it, f\.duckdb\.wal"):
        list(form.read(path))
    with pytest.raises(ConfigurationError, match="run CHECKPOINT"):
        form.write(tmp_path / "g.duckdb", COLUMNS, lines(1), path)


# Damage between the write and the check

SQL = "{} rows {} block_number = (SELECT min(block_number) FROM rows)"


def run_sql(path: Path, name: str, statement: str) -> None:
    """Change a database."""
    database: Any = sqlite3.connect(path) if name == "sqlite" else duckdb.connect(path)
    with closing(database):
        database.execute(statement)
        database.commit()


def lose(path: Path, name: str) -> None:
    """Take a row out of a file."""
    if name == "parquet":
        pq.write_table(pq.read_table(path).slice(1), path)
    elif name in ("sqlite", "duckdb"):
        run_sql(path, name, SQL.format("DELETE FROM", "WHERE"))
    else:
        rewrite(path, name, lambda content: b"".join(content.splitlines(keepends=True)[:-1]))


def change(path: Path, name: str) -> None:
    """Change a value in a file."""
    if name == "parquet":
        table = pq.read_table(path)
        number = table.schema.get_field_index("gas_used")
        pq.write_table(table.set_column(number, "gas_used", table["gas_limit"]), path)
    elif name in ("sqlite", "duckdb"):
        run_sql(path, name, "UPDATE rows SET block_hash = 'other' WHERE block_number > 5")
    else:
        rewrite(path, name, lambda content: content.replace(b"block_hash-1", b"block_hash-2"))


def tear(path: Path, name: str) -> None:
    """Take away the last byte of a compressed file, whose rows can still be read."""
    path.write_bytes(path.read_bytes()[:-1])


def rewrite(path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change the content of a text file, compressed or not."""
    files = TextFiles.of("".join(path.suffixes[1:]))
    with files.open(path) as file:
        content = file.read()
    with files.create(path) as file:
        file.write(change(content))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_the_disk_loses_are_missed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is lost or changed behind the writer's back is found when the file is read back."""
    module = import_module(f"chainapi.export.formats.{name.partition('.')[0]}")
    tally, written = module._tally, lines(20)
    damages = [(lose, "has 19 rows when"), (change, "other values in them")]
    for damage, message in [*damages, (tear, "when it is read back, but")] if "." in name else damages:
        path = tmp_path / f"{damage.__name__}.{name}"

        def damaged(path: Path, *options: Any, damage: Any = damage) -> Any:
            damage(path, name)
            return tally(path, *options)

        monkeypatch.setattr(module, "_tally", damaged)
        with pytest.raises(ExportError, match=message) as caught:
            format_of(name).write(path, COLUMNS, written)
        if damage is not tear:
            assert "All rows are kept in the journal" in str(caught.value)


def test_copied_groups_that_the_disk_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old row groups that differ from the old file when they are read back are an error."""
    form, old = format_of("parquet"), tmp_path / "old"
    form.write(old, COLUMNS, lines(100))
    footer = row_groups._write_footer

    def damaged(path: Path, metadata: Any) -> None:
        footer(path, metadata)
        with path.open("rb+") as file:
            file.seek(1_000)
            file.write(b"\0\0\0\0")

    monkeypatch.setattr(row_groups, "_write_footer", damaged)
    with pytest.raises(ExportError, match="has other rows when it is read back than were copied to it"):
        form.write(tmp_path / "new", COLUMNS, lines(20), old)


@pytest.mark.parametrize("name", ["jsonl", "csv", "parquet", "sqlite", "duckdb"])
def test_a_read_back_that_is_stopped(name: str, tmp_path: Path) -> None:
    """A stop ends the read-back of a file of any format."""
    stop, (page,) = threading.Event(), lines(5)

    def pages() -> Iterator[tuple[str, bytes]]:
        yield page
        stop.set()

    with pytest.raises(Stopped):
        format_of(name).write(tmp_path / f"a.{name}", COLUMNS, pages(), stop=stop)
