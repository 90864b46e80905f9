"""Databases that users read and change: new rows join them in one transaction, and what is theirs stays."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from attrs import field, frozen

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export import export
from chainapi.simulator import Simulator
from tests.export.contract import read
from tests.export.growing import CHAINS, NEW, ROWS, Growing, names_in
from tests.export.test_formats import class_with, exported
from tests.sessions import simulated

FORMATS = ("sqlite", "duckdb")
OLD = len(CHAINS) * ROWS
REFUSED = "has other rows than were exported .* put it back as it was"


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a database as a user does."""
    connect: Any = sqlite3.connect if path.suffix == ".sqlite" else duckdb.connect
    with closing(connect(path)) as database:
        yield database
        database.commit()


def ask(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, and return the rows of the last one."""
    with opened(path) as database:
        found = [database.execute(statement).fetchall() for statement in statements]
    return list(found[-1])


async def started(folder: Path, format_: str) -> tuple[Growing, bytes]:
    """Return an export that has run once, whose list has grown since, and its database."""
    growing = Growing(folder / f"b.{format_}")
    return growing, await growing.begin()


USERS = (
    "CREATE INDEX by_number ON rows (block_number)",
    "CREATE TABLE notes AS SELECT source, block_number, 'mine' AS note FROM rows",
    "CREATE VIEW newest AS SELECT * FROM rows ORDER BY block_number DESC LIMIT 10",
)


@pytest.mark.parametrize("format_", FORMATS)
async def test_new_rows_join_the_database_of_a_user(format_: str, tmp_path: Path) -> None:
    """An update adds rows to the same file; what a user added stays there, and works."""
    growing, _ = await started(tmp_path, format_)
    number = growing.path.stat().st_ino
    ask(growing.path, *USERS)
    await growing.run()
    growing.check()
    assert growing.path.stat().st_ino == number
    counts = "SELECT (SELECT count(*) FROM notes), (SELECT count(*) FROM newest)"
    assert ask(growing.path, counts) == [(OLD, 10)]
    assert names_in(tmp_path) == [f"b.{format_}"]


# Locks


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "SELECT * FROM rows"])
async def test_a_locked_sqlite_database(lock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of another program is an error that says so; the next run adds the rows, and names the file."""
    impatient(monkeypatch)
    growing, _ = await started(tmp_path, "sqlite")
    with closing(sqlite3.connect(growing.path, isolation_level=None)) as other:
        reading = other.execute(lock)  # a cursor that has not reached its end
        reading.fetchone()
        with pytest.raises(TargetInUseError, match=r"b\.sqlite is locked: .*End that, and start the same"):
            await growing.run()
        reading.close()
    assert (await growing.run()).written == (growing.path,)
    growing.check()


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite wait for no lock."""
    connect: Any = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **named: connect(*given, **{**named, "timeout": 0.0})
    )


def opened_elsewhere(path: Path) -> subprocess.Popen[bytes]:
    """Return a process that has a DuckDB database open until its input ends."""
    program = "import sys, duckdb; kept = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(path)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout
    other.stdout.readline()
    return other


@pytest.mark.adapter
async def test_a_duckdb_database_that_is_open(tmp_path: Path) -> None:
    """DuckDB lets one process open a database: an error says so, and the next run adds the rows."""
    growing, _ = await started(tmp_path, "duckdb")
    with opened_elsewhere(growing.path) as other:
        with pytest.raises(TargetInUseError, match=r"b\.duckdb is locked: another program"):
            await growing.run()
        other.communicate()
    with closing(duckdb.connect(growing.path)), pytest.raises(TargetInUseError, match="another connection"):
        await growing.run()
    assert (await growing.run()).written == (growing.path,)
    growing.check()


# Logs: SQLite and DuckDB take those beside a file for its own


@pytest.mark.parametrize(
    ("format_", "log"),
    [("sqlite", "-wal"), ("sqlite", "-journal"), pytest.param("duckdb", ".wal", marks=pytest.mark.proof)],
)
async def test_a_log_that_another_database_left(format_: str, log: str, tmp_path: Path) -> None:
    """A new database is refused beside a log, which it would take for its own."""
    growing = Growing(tmp_path / f"b.{format_}")
    left = growing.path.with_name(growing.path.name + log)
    left.write_bytes(b"log")
    with pytest.raises(ExportError, match=f"has a log of another database beside it, b.{format_}{log}: "):
        await growing.run()
    assert left.read_bytes() == b"log"
    assert not growing.path.exists()
    left.unlink()
    await growing.begin()
    await growing.run()
    growing.check()


async def test_a_write_ahead_log_of_a_user(tmp_path: Path) -> None:
    """A SQLite database that a user has set to a write-ahead log keeps it, and changes in the log count."""
    growing, _ = await started(tmp_path, "sqlite")
    with opened(growing.path) as reader:
        reader.execute("PRAGMA journal_mode = WAL")
        reader.execute("CREATE TABLE notes (text)")
        reader.commit()
        await growing.run()
        assert reader.execute("SELECT count(*) FROM rows").fetchone() == (OLD + NEW,)
    assert ask(growing.path, "PRAGMA journal_mode") == [("wal",)]
    growing.check()
    before = growing.path.read_bytes()
    with opened(growing.path) as theirs:
        theirs.execute(CHANGES[0][0])
        theirs.commit()
        assert growing.path.read_bytes() == before  # the change is in the log alone
        with pytest.raises(ExportError, match=REFUSED):
            await growing.run()


# Changes of others


CHANGES = (
    ("DELETE FROM rows WHERE block_number = (SELECT min(block_number) FROM rows)", REFUSED),
    ("INSERT INTO rows SELECT * FROM rows LIMIT 1", REFUSED),
    ("DROP TABLE chainapi_export", "no export wrote it"),
    ("DELETE FROM chainapi_export", "b.sqlite"),
    ("DROP TABLE chainapi_positions", "b.sqlite"),
    ("ALTER TABLE rows RENAME TO other", REFUSED),
)


@pytest.mark.parametrize("format_", ["sqlite", pytest.param("duckdb", marks=pytest.mark.proof)])
async def test_changed_rows_are_refused(format_: str, tmp_path: Path) -> None:
    """A database with more or fewer rows or columns, or without its marker, is refused and left alone."""
    growing, whole = await started(tmp_path, format_)
    for change, said in CHANGES if format_ == "sqlite" else CHANGES[::5]:
        growing.path.write_bytes(whole)
        ask(growing.path, change)
        before = growing.path.read_bytes()
        with pytest.raises(ExportError, match=said):
            await growing.run()
        assert growing.path.read_bytes() == before, change
    growing.path.write_bytes(whole)
    await growing.run()
    growing.check()


async def test_a_trigger_that_drops_rows(tmp_path: Path) -> None:
    """A trigger that drops new rows is found before the transaction is committed."""
    growing, _ = await started(tmp_path, "sqlite")
    ask(growing.path, "CREATE TRIGGER no BEFORE INSERT ON rows BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(ExportError, match="other rows"):
        await growing.run()
    ask(growing.path, "DROP TRIGGER no")
    assert ask(growing.path, "SELECT count(*) FROM rows") == [(OLD,)]
    await growing.run()
    growing.check()


async def test_an_index_that_keeps_a_column_out(tmp_path: Path) -> None:
    """DuckDB changes no type of a table with an index: the error names the remedy, which works."""
    path, rows = tmp_path / "a.duckdb", {"/v1/a": [{"fee": {"amount": "1"}}]}
    fee = class_with(amount=str)
    await exported(path, rows, class_with(fee=fee | None))
    ask(path, "CREATE INDEX one ON rows (source)")
    rows |= {"/v1/b": [{"fee": {"amount": "2", "unit": "x"}}]}
    grown = class_with(fee=class_with(amount=str, unit=str) | None)
    with pytest.raises(
        ExportError, match=r"cannot get the column 'fee': an index .*Drop that, start the same"
    ):
        await exported(path, rows, grown)
    ask(path, "DROP INDEX one")
    await exported(path, rows, grown)
    fees = [row["fee"] for row in read(path, "duckdb")]
    assert fees == [{"amount": "1", "unit": None}, {"amount": "2", "unit": "x"}]


@frozen(kw_only=True)
class Named:
    """Row whose fields have the names of the number of a row in SQLite and DuckDB."""

    block_number: int
    rowid: str = field(alias="blockHash")
    oid: int = field(alias="gasUsed")


@pytest.mark.parametrize("format_", ["sqlite", pytest.param("duckdb", marks=pytest.mark.proof)])
async def test_a_model_with_a_field_rowid(format_: str, tmp_path: Path) -> None:
    """Later runs of an export with a field ``rowid`` add and correct rows."""
    simulator, out, path = Simulator(rows=30), tmp_path / f"b.{format_}", "/v1/chains/43114/blocks"
    options: dict[str, Any] = {"model": Named, "descending_key": "block_number"}
    async with simulated(simulator) as session:
        for run in range(3):
            lookback = "10 blocks" if run == 2 else None
            await export(session.data.list, [path], out, lookback=lookback, **options)
            rows = read(out, format_)
            assert len({row["block_number"] for row in rows}) == len(rows) == 30 + 5 * run
            assert {*rows[0]} == {"source", "block_number", "rowid_", "oid"}
            simulator.insert(path, 5)
