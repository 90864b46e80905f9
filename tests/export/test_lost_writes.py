"""Writes that the disk refuses or loses: no format takes a file for whole that lacks rows."""

from __future__ import annotations

import json
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from chainapi import Pages
from chainapi.errors import ConfigurationError, ExportError
from chainapi.export import export
from chainapi.export.formats import FORMATS, format_of
from chainapi.export.formats.text_files import TextFiles
from chainapi.models import EvmBlock
from chainapi.models.codec import decode_resource
from chainapi.simulator import Simulator
from chainapi.tables.codec import Codec
from chainapi.tables.columns import columns_of
from tests.documents import Maker
from tests.sessions import simulated

COLUMNS = columns_of(EvmBlock)


def lines(count: int) -> list[tuple[str, bytes]]:
    """Return encoded blocks."""
    made = (json.dumps(Maker(number, whole=True).record(EvmBlock)) for number in range(count))
    rows = [decode_resource(text.encode(), EvmBlock) for text in made]
    return [("43114", Codec(EvmBlock).encode_lines(rows, "43114"))]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Refuse to let any file of this process grow beyond a size in bytes, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("rows", "size"), [(10, 200), (300, 20_000)])
def test_a_full_disk_is_an_error(name: str, rows: int, size: int, tmp_path: Path) -> None:
    """A file that does not fit on the disk raises OSError, in every format."""
    path = tmp_path / "f"
    with files_of_at_most(size), pytest.raises(OSError, match=r"f: |too large"):
        format_of(name).write(path, COLUMNS, lines(rows))
    assert [*tmp_path.iterdir()] in ([path], [])
    assert format_of(name).write(path, COLUMNS, lines(rows)) == rows
    assert len([*format_of(name).read(path)]) == rows


@pytest.mark.parametrize("size", [20_000, 100_000, 300_000])
def test_a_database_whose_checkpoint_fails(size: int, tmp_path: Path) -> None:
    """A DuckDB database raises OSError where the log fits on the disk and the rows do not.

    DuckDB swallows that error on closing, and leaves the rows in a log that no rename takes along.
    """
    path = tmp_path / "f.duckdb"
    with files_of_at_most(size), pytest.raises(OSError, match="Could not write file"):
        format_of(path).write(path, COLUMNS, lines(10))
    assert [found for found in tmp_path.iterdir() if found.suffix == ".wal"] == []
    assert format_of(path).write(path, COLUMNS, lines(10)) == 10


async def test_an_export_whose_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export whose database does not fit on the disk fails, and the next one has every row."""
    path = tmp_path / "blocks.duckdb"
    kind: Any = type(format_of(path))
    write = kind.write

    def limited(*arguments: Any) -> Any:
        with files_of_at_most(100_000):
            return write(*arguments)

    simulator = Simulator(seed=1)

    async def run() -> int:
        async with simulated(simulator) as session:
            walk: Callable[..., Pages[Any]] = session.data.evm.blocks
            return (await export(walk, [43114], path, limit=30)).rows

    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", limited)
        with pytest.raises(ExportError, match=r"cannot be written: .*kept in the journal"):
            await run()
    assert not path.exists()
    await run()
    assert len([*format_of(path).read(path)]) == 30


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


def lose(path: Path, name: str) -> None:
    """Take a row out of a file."""
    if name == "parquet":
        pq.write_table(pq.read_table(path).slice(1), path)
    elif name in ("sqlite", "duckdb"):
        database: Any = sqlite3.connect(path) if name == "sqlite" else duckdb.connect(path)
        with closing(database):
            database.execute(SQL.format("DELETE FROM", "WHERE"))
            database.commit()
    else:
        rewrite(path, name, lambda content: b"".join(content.splitlines(keepends=True)[:-1]))


def change(path: Path, name: str) -> None:
    """Change a value in a file."""
    if name == "parquet":
        table = pq.read_table(path)
        number = table.schema.get_field_index("gas_used")
        pq.write_table(table.set_column(number, "gas_used", table["gas_limit"]), path)
    elif name in ("sqlite", "duckdb"):
        database: Any = sqlite3.connect(path) if name == "sqlite" else duckdb.connect(path)
        with closing(database):
            database.execute("UPDATE rows SET block_hash = 'other' WHERE block_number > 5")
            database.commit()
    else:
        rewrite(path, name, lambda content: content.replace(b"block_hash-1", b"block_hash-2"))


def tear(path: Path, name: str) -> None:
    """Take away the last byte of a file."""
    path.write_bytes(path.read_bytes()[:-1])


def rewrite(path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change the content of a text file, compressed or not."""
    files = TextFiles.of("".join(path.suffixes[1:]))
    with files.open(path) as file:
        content = file.read()
    with files.create(path) as file:
        file.write(change(content))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("damage", "message"), [(lose, "has 19 rows when"), (change, "other values in them")]
)
def test_rows_that_the_disk_loses_are_missed(
    name: str,
    damage: Callable[[Path, str], None],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row that is lost or changed behind the writer's back is found when the file is read back."""
    path = tmp_path / f"f.{name}"
    assert format_of(name).write(path, COLUMNS, lines(20)) == 20
    damage_before_the_check(damage, name, monkeypatch)
    with pytest.raises(ExportError, match=message) as caught:
        format_of(name).write(path, COLUMNS, lines(20))
    assert "All rows are kept in the journal" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in FORMATS if "." in name])
def test_a_compressed_file_without_its_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed file whose last byte is lost is missed, although all rows can be read."""
    damage_before_the_check(tear, name, monkeypatch)
    with pytest.raises(ExportError, match="when it is read back, but"):
        format_of(name).write(tmp_path / "f", COLUMNS, lines(20))


def damage_before_the_check(
    damage: Callable[[Path, str], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage files of a format before they are read back."""
    module = import_module(f"chainapi.export.formats.{name.partition('.')[0]}")
    tally = module._tally

    def damaged(path: Path, *options: Any) -> Any:
        damage(path, name)
        return tally(path, *options)

    monkeypatch.setattr(module, "_tally", damaged)
