"""New rows of databases: one transaction adds them to the database that users read."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest

from chainapi.errors import ConfigurationError, ExportError, TargetInUseError
from chainapi.export import worker
from chainapi.export.files import partial_of
from chainapi.export.formats import DatabaseFormat, format_of
from chainapi.export.formats import sqlite as sqlites
from chainapi.export.formats.markers import Marker
from chainapi.export.progress import ExportProgress
from chainapi.export.worker import Stopped, interrupting
from chainapi.models import EvmBlock
from chainapi.simulator import Simulator
from chainapi.tables.codec import Codec
from tests.export.power_cuts import PowerCuts, Statements
from tests.export.test_append import CHAINS, NEW, ROWS, Growing
from tests.export.test_formats import many
from tests.export.test_growth import exported, model
from tests.export.test_lost_writes import files_of_at_most
from tests.export.test_parts import names_in

FORMATS = ("sqlite", "duckdb")
OLD = len(CHAINS) * ROWS
COLUMNS = Codec(EvmBlock).columns


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


def own(name: str) -> DatabaseFormat:
    """Return a format of databases."""
    found = format_of(name)
    assert isinstance(found, DatabaseFormat)
    return found


STARTED: dict[str, dict[Path, bytes]] = {}  # files of an export that has run once, by format


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the content of each file, by its path in the folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): path.read_bytes() for path in files}


async def started(folder: Path, format_: str) -> tuple[Growing, bytes]:
    """Return an export that has run once, whose list has grown since, and its database."""
    growing = Growing(folder, format_)
    if format_ not in STARTED:
        before = await growing.begin()
        STARTED[format_] = contents(folder)
        return growing, before
    for name, content in STARTED[format_].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    growing.simulator.insert("/v1/chains/2/blocks", NEW)
    return growing, growing.path.read_bytes()


USERS = (
    "CREATE INDEX by_number ON rows (block_number)",
    "CREATE TABLE notes AS SELECT source, block_number, 'mine' AS note FROM rows",
    "CREATE VIEW newest AS SELECT * FROM rows ORDER BY block_number DESC LIMIT 10",
)


@pytest.mark.parametrize("format_", FORMATS)
async def test_new_rows_join_the_database_of_a_user(format_: str, tmp_path: Path) -> None:
    """An update adds rows to the same file, and syncs it; what a user added stays there, and works."""
    growing, _ = await started(tmp_path, format_)
    number, cuts = growing.path.stat().st_ino, PowerCuts(tmp_path)
    ask(growing.path, *USERS)
    cuts.settle()
    with cuts:
        await growing.run()
    growing.check()
    assert cuts.images[-1][growing.path.name] == growing.path.read_bytes()
    assert growing.path.stat().st_ino == number
    counts = "SELECT (SELECT count(*) FROM notes), (SELECT count(*) FROM newest)"
    assert ask(growing.path, counts) == [(OLD, 10)]
    assert names_in(tmp_path) == [f"b.{format_}", f"b.{format_}.export"]
    parts = ask(growing.path, "SELECT part, rows, length(run) FROM chainapi_parts ORDER BY part")
    assert parts == [(1, OLD, 32), (2, OLD + NEW, 32)]
    await growing.run()
    growing.check()


@pytest.mark.untraced
@pytest.mark.parametrize("format_", FORMATS)
async def test_a_kill_between_any_two_statements(format_: str, tmp_path: Path) -> None:
    """A kill at any statement leaves the old or the new rows; the next run completes these, and no others."""
    growing, _ = await started(tmp_path / "run", format_)
    with Statements(growing.folder) as statements:
        await growing.run()
    growing.check()
    path, cuts = growing.path, PowerCuts(tmp_path)
    # The last image of each state of the database: the statements of the journal have tests of their own.
    images = {repr([image.get(path.name + end) for end in LOGS]): image for image in statements.images}
    assert len(images) >= 3
    for number, image in enumerate(images.values()):
        place, user = tmp_path / f"image-{number}", tmp_path / f"user-{number}"
        cuts.restore(image, place)
        cuts.restore(image, user)
        assert ask(user / path.name, "SELECT count(*) FROM rows") in ([(OLD,)], [(OLD + NEW,)])
        if number == 0:  # before the transaction
            ask(user / path.name, CHANGES[0])
            with pytest.raises(ExportError, match="has other rows than the export wrote"):
                await growing.run(user)
        await growing.run(place)
        growing.check(place)
        assert names_in(place) == [path.name, f"{path.name}.export"]


LOGS = ("", "-journal", "-wal", ".wal")  # suffixes of the files of a database


@pytest.mark.untraced
@pytest.mark.parametrize("format_", FORMATS)
async def test_a_full_disk_leaves_the_old_rows_or_the_new_ones(format_: str, tmp_path: Path) -> None:
    """An update that does not fit is an error, wherever the disk is full; later each row is there once."""
    growing = Growing(tmp_path, format_)
    await growing.run()
    rows, errors = OLD, list[str]()
    for room in (0, 5_000, 300_000):
        growing.simulator.insert("/v1/chains/2/blocks", 60)
        try:
            with files_of_at_most(growing.path.stat().st_size + room):
                await growing.run()
        except ExportError as error:
            errors.append(str(error))
        found = ask(growing.path, "SELECT count(*) FROM rows")[0][0]
        assert found in range(rows, OLD + 181, 60)
        rows = found
    assert errors
    assert all("start the same export again" in error for error in errors)
    await growing.run()
    distinct = "SELECT count(*), count(DISTINCT source || '/' || block_number) FROM rows"
    assert ask(growing.path, distinct) == [(OLD + 180, OLD + 180)]


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_new_column_is_added_to_the_table(format_: str, tmp_path: Path) -> None:
    """A column that a model has gained is added in the transaction; earlier rows have NULL there."""
    simulator, out = Simulator(seed=1, chains=(43114, 43113)), tmp_path / f"blocks.{format_}"
    await exported(simulator, out, model(gas_used=int), limit=5)
    number = out.stat().st_ino
    grown = model(block_hash=str, gas_used=int)
    rows = await exported(simulator, out, grown, "/v1/chains/43113/blocks", limit=5)
    assert out.stat().st_ino == number
    assert sorted(row["block_hash"] is None for row in rows) == [False] * 5 + [True] * 5


# Locks


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SELECT * FROM rows"])
async def test_a_locked_sqlite_database(lock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of another program is an error that says so; the next run adds the rows, and names the file."""
    monkeypatch.setattr(sqlites, "BUSY", 0.0)
    growing, _ = await started(tmp_path, "sqlite")
    with closing(sqlite3.connect(growing.path, isolation_level=None)) as other:
        reading = other.execute(lock)  # a cursor that has not reached its end
        reading.fetchone()
        with pytest.raises(
            TargetInUseError, match=r"b\.sqlite is locked: .*Close it there, and start the same"
        ):
            await growing.run()
        if lock == "BEGIN EXCLUSIVE":
            with pytest.raises(TargetInUseError, match=r"b\.sqlite is locked: "):
                list(own("sqlite").read(growing.path))
        reading.close()
    assert (await growing.run()).written == (growing.path,)
    assert (await growing.run()).written == ()
    growing.check()


def opened_elsewhere(path: Path) -> subprocess.Popen[bytes]:
    """Return a process that has a DuckDB database open until its input ends."""
    program = "import sys, duckdb; kept = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(path)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout
    other.stdout.readline()
    return other


async def test_a_duckdb_database_that_is_open(tmp_path: Path) -> None:
    """DuckDB lets one process open a database: an error says so, and the next run adds the rows."""
    growing, _ = await started(tmp_path, "duckdb")
    with opened_elsewhere(growing.path) as other:
        with pytest.raises(TargetInUseError, match=r"b\.duckdb is locked: another program"):
            await growing.run()
        other.communicate()
    with closing(duckdb.connect(growing.path)), pytest.raises(TargetInUseError, match="another connection"):
        await growing.run()
    with closing(duckdb.connect()) as attached:
        attached.execute(f"ATTACH '{growing.path}' AS blocks (READ_ONLY)")
        with pytest.raises(TargetInUseError, match="another connection"):
            await growing.run()
        assert len([*own("duckdb").read(growing.path)]) == OLD
    assert (await growing.run()).written == (growing.path,)
    growing.check()


# Logs: SQLite and DuckDB take those beside a file for its own


@pytest.mark.parametrize(("format_", "log"), [(name, log) for name in FORMATS for log in own(name).logs])
async def test_a_log_that_another_database_left(format_: str, log: str, tmp_path: Path) -> None:
    """A new database is refused beside a log, at the start and before it gets its name."""
    growing = Growing(tmp_path, format_)
    left = growing.path.with_name(growing.path.name + log)

    def leave(progress: ExportProgress) -> None:
        left.write_bytes(b"log")

    for on_progress in (None, leave, None):
        if on_progress is None:
            left.write_bytes(b"log")
        with pytest.raises(ExportError, match=f"has a log of another database beside it, b.{format_}{log}: "):
            await growing.run(on_progress=on_progress)
        assert left.read_bytes() == b"log"
        assert not growing.path.exists()
        left.unlink()
    await growing.begin()
    await growing.run()
    growing.check()


async def test_a_log_beside_a_copy(tmp_path: Path) -> None:
    """A database with a hard link is not replaced while a program has its log; nothing is lost."""
    growing, _ = await started(tmp_path / "run", "sqlite")
    (tmp_path / "link").hardlink_to(growing.path)
    with opened(growing.path) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE notes (text)")
        other.commit()
        with pytest.raises(TargetInUseError, match=r"b\.sqlite is locked: .*Close it there"):
            await growing.run()
        other.execute("INSERT INTO notes VALUES ('mine')")
    assert (await growing.run()).written == (growing.path,)
    growing.check()
    assert ask(growing.path, "SELECT * FROM notes") == [("mine",)]


# Changes of others


CHANGES = (
    "DELETE FROM rows WHERE block_number = (SELECT min(block_number) FROM rows)",
    "DROP TABLE chainapi_parts",
    "INSERT INTO rows SELECT * FROM rows LIMIT 1",
    "DELETE FROM chainapi_parts",
    "ALTER TABLE rows RENAME TO other",
)


@pytest.mark.parametrize(
    ("format_", "change"),
    [*(("sqlite", change) for change in CHANGES), *(("duckdb", change) for change in CHANGES[:2])],
)
async def test_changed_rows_are_refused(format_: str, change: str, tmp_path: Path) -> None:
    """A database with more or fewer rows, or without its marker, is refused and left alone."""
    growing, _ = await started(tmp_path, format_)
    ask(growing.path, change)
    before = growing.path.read_bytes()
    requests = growing.simulator.stats.requests
    with pytest.raises(ExportError, match="has other rows than the export wrote: put it back as it was"):
        await growing.run()
    assert growing.path.read_bytes() == before
    assert growing.simulator.stats.requests == requests


@pytest.mark.parametrize("format_", FORMATS)
async def test_another_file_in_place_of_the_database(format_: str, tmp_path: Path) -> None:
    """A file that is no database, a damaged one, or none at all, is refused."""
    growing, before = await started(tmp_path, format_)
    for other in (b"text" * 10_000, before[: len(before) // 2], before[:4_096] + bytes(len(before) - 4_096)):
        growing.path.write_bytes(other)
        with pytest.raises(ExportError, match="has other rows than the export wrote"):
            await growing.run()
    growing.path.unlink()
    with pytest.raises(ExportError, match="is missing: put it back"):
        await growing.run()
    assert not growing.path.exists()
    growing.path.write_bytes(before)
    await growing.run()
    growing.check()


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_column_of_others_in_the_rows(format_: str, tmp_path: Path) -> None:
    """A change that only the transaction meets is refused as well, and its rows stay in the journal."""
    growing, before = await started(tmp_path, format_)
    ask(growing.path, "ALTER TABLE rows ADD COLUMN mine INTEGER")
    with pytest.raises(ExportError, match="has other rows than the export wrote: put it back as it was"):
        await growing.run()
    growing.path.write_bytes(before)
    await growing.run()
    growing.check()


async def test_an_old_copy_of_the_database(tmp_path: Path) -> None:
    """A copy from before the newest part is refused: the journal has forgotten the rows that it lacks."""
    growing, before = await started(tmp_path, "sqlite")
    await growing.run()
    newest = growing.path.read_bytes()
    growing.path.write_bytes(before)
    with pytest.raises(ExportError, match="has other rows than the export wrote"):
        await growing.run()
    growing.path.write_bytes(newest)
    await growing.run()
    growing.check()


@pytest.mark.untraced
@pytest.mark.parametrize("format_", FORMATS)
async def test_rows_that_the_disk_loses_behind_a_transaction(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Added rows that differ when they are read back raise an error, now and in the next run."""
    growing, before = await started(tmp_path, format_)
    kind: Any = type(own(format_))
    compare = kind.compare

    def damaged(self: Any, path: Path, *rest: Any) -> None:
        ask(path, "UPDATE rows SET block_hash = 'other' WHERE block_number > 0")
        compare(self, path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "compare", damaged)
        with pytest.raises(ExportError, match=r"has other rows when it is read back .*All new rows are kept"):
            await growing.run()
    with pytest.raises(ExportError, match="has other rows when it is read back"):
        await growing.run()
    growing.path.write_bytes(before)
    await growing.run()
    growing.check()


async def test_a_trigger_that_drops_rows(tmp_path: Path) -> None:
    """A trigger that drops new rows is found before the transaction is committed."""
    growing, _ = await started(tmp_path, "sqlite")
    ask(growing.path, "CREATE TRIGGER no BEFORE INSERT ON rows BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(ExportError, match=r"has other rows when it is read back .*trigger"):
        await growing.run()
    ask(growing.path, "DROP TRIGGER no")
    assert ask(growing.path, "SELECT count(*) FROM rows") == [(OLD,)]
    await growing.run()
    growing.check()


async def test_an_index_that_keeps_a_column_out(tmp_path: Path) -> None:
    """DuckDB changes no type of a table with an index: the error names the remedy, which works."""
    form, path, added = own("duckdb"), tmp_path / "a.duckdb", tmp_path / "b.duckdb"
    ask(
        path,
        "CREATE TABLE rows AS SELECT 'a' AS source, {'value': 1} AS fee",
        "CREATE INDEX one ON rows (source)",
    )
    ask(added, "CREATE TABLE rows AS SELECT 'b' AS source, {'value': 2, 'unit': 'x'} AS fee, 7 AS more")
    with pytest.raises(
        ExportError, match=r"cannot get the column 'fee': an index .*Drop that, start the same"
    ):
        form.merge(path, added, 1, "run")
    ask(path, "DROP INDEX one")
    form.merge(path, added, 1, "run")
    assert form.newest(path) == (Marker(1, "run", 2), 2)
    assert ask(path, "SELECT * FROM rows ORDER BY source") == [
        ("a", {"value": 1, "unit": None}, None),
        ("b", {"value": 2, "unit": "x"}, 7),
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_with_other_columns(name: str, tmp_path: Path) -> None:
    """A table that has a column which the new rows lack is refused."""
    path, added = tmp_path / f"a.{name}", tmp_path / f"b.{name}"
    ask(path, "CREATE TABLE rows (source VARCHAR, other VARCHAR)")
    ask(added, "CREATE TABLE rows (source VARCHAR, gas VARCHAR)")
    with pytest.raises(ConfigurationError, match=r"is not a .* file of an export with these columns"):
        own(name).merge(path, added, 1, "run")


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_copy_keeps_what_a_user_added(format_: str, tmp_path: Path) -> None:
    """A database with a hard link is copied: the link keeps its rows, the copy the user's tables."""
    growing, _ = await started(tmp_path / "run", format_)
    ask(growing.path, *USERS)
    before = growing.path.read_bytes()
    (tmp_path / "link").hardlink_to(growing.path)
    await growing.run()
    assert (tmp_path / "link").read_bytes() == before
    growing.check()
    assert ask(growing.path, "SELECT count(*) FROM notes") == [(OLD,)]
    assert ask(growing.path, "SELECT part FROM chainapi_parts ORDER BY part") == [(1,), (2,)]
    (tmp_path / "link").unlink()
    await growing.run()


async def test_a_write_ahead_log_of_a_user(tmp_path: Path) -> None:
    """A SQLite database that a user has set to a write-ahead log keeps it, and loses nothing of it."""
    growing, _ = await started(tmp_path, "sqlite")
    with opened(growing.path) as reader:
        reader.execute("PRAGMA journal_mode = WAL")
        reader.execute("CREATE TABLE notes (text)")
        reader.commit()
        await growing.run()
        assert reader.execute("SELECT count(*) FROM rows").fetchone() == (OLD + NEW,)
    assert ask(growing.path, "PRAGMA journal_mode") == [("wal",)]
    await growing.run()
    growing.check()
    before = growing.path.read_bytes()
    with opened(growing.path) as theirs:
        theirs.execute(CHANGES[0])
        theirs.commit()
        assert growing.path.read_bytes() == before  # the change is in the log alone
        with pytest.raises(ExportError, match="has other rows than the export wrote"):
            await growing.run()


# Rows that replace others


@pytest.mark.parametrize("name", FORMATS)
def test_rows_replace_others(name: str, tmp_path: Path) -> None:
    """The rows at the places in `removed` are deleted, and the new ones added, in one transaction."""
    form, path, added = own(name), tmp_path / f"a.{name}", tmp_path / f"b.{name}"
    table = "CREATE TABLE rows (source VARCHAR, id BIGINT, gas BIGINT)"
    old = "('a', 1, 1), ('a', 2, 2), ('a', 3, 3), ('b', 2, 4), ('b', NULL, 5)"
    ask(path, table, f"INSERT INTO rows VALUES {old}", "DELETE FROM rows WHERE gas = 1")
    ask(added, table, "INSERT INTO rows VALUES ('a', 2, 20), ('a', 4, 40)")
    form.remove(added, frozenset({0, 3}))
    form.merge(path, added, 1, "run")
    found = ask(path, "SELECT * FROM rows ORDER BY source, id")
    assert found == [("a", 2, 20), ("a", 3, 3), ("a", 4, 40), ("b", 2, 4)]
    assert form.newest(path) == (Marker(1, "run", 4), 4)
    form.compare(path, added)


# Stops


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_transaction_that_is_stopped(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop interrupts the transaction, and leaves the old rows; the next run adds the new ones."""
    growing, _ = await started(tmp_path, format_)
    monkeypatch.setattr(worker, "LOOK_EVERY", 0.001)
    module = import_module(f"chainapi.export.formats.{format_}")
    mark = module.add_marker

    def endless(database: Any, marker: Any) -> None:
        mark(database, marker)
        stopping.set()
        database.execute(ENDLESS)

    stopping = threading.Event()
    form = own(format_)
    partial = partial_of(growing.path)
    form.write(partial, COLUMNS, many(5))
    before = growing.path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(module, "add_marker", endless)
        with pytest.raises(Stopped):
            form.merge(growing.path, partial, 2, "run", stopping)
    assert growing.path.read_bytes() == before or format_ == "duckdb"
    assert ask(growing.path, "SELECT count(*) FROM rows") == [(OLD,)]
    await growing.run()
    growing.check()


ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"


@pytest.mark.parametrize("name", ["jsonl", "csv", "parquet", "sqlite", "duckdb"])
def test_a_read_back_that_is_stopped(name: str, tmp_path: Path) -> None:
    """A stop ends the read-back of a file of any format."""
    stop, path = threading.Event(), tmp_path / f"a.{name}"

    def lines() -> Iterator[tuple[str, bytes]]:
        yield from many(5)
        stop.set()

    with pytest.raises(Stopped):
        format_of(name).write(path, COLUMNS, lines(), stop=stop)


def test_an_error_that_is_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a database without a stop stays what it is."""
    with (
        pytest.raises(sqlite3.OperationalError, match="boom"),
        interrupting(threading.Event(), lambda: None, sqlite3.Error),
    ):
        raise sqlite3.OperationalError("boom")


def test_no_file_of_an_export_is_left(tmp_path: Path) -> None:
    """A copy that fails leaves no file with new rows behind."""
    form, old = own("sqlite"), tmp_path / "a.sqlite"
    form.write(old, COLUMNS, many(3))
    with files_of_at_most(old.stat().st_size), pytest.raises(OSError, match=r"b\.sqlite"):
        form.write(tmp_path / "b.sqlite", COLUMNS, many(100), old)
    assert sorted(path.name for path in tmp_path.iterdir() if "rows" in path.name) == []


def test_a_copy_of_a_database_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop ends the copy of a SQLite database at the next pages."""
    monkeypatch.setattr(sqlites, "PAGES", 1)
    form, old, stop = own("sqlite"), tmp_path / "a.sqlite", threading.Event()
    form.write(old, COLUMNS, many(200))
    looks = count(1)

    def look(found: threading.Event | None) -> None:
        if next(looks) == 3:
            stop.set()
        worker.look(found)

    monkeypatch.setattr(sqlites, "look", look)
    with pytest.raises(Stopped):
        form.write(tmp_path / "b.sqlite", COLUMNS, many(1), old, stop)
    assert next(looks) == 4
