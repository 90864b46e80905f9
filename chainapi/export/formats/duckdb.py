"""DuckDB database with one table, ``rows``, and the types of Parquet files."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb

from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.files import chunks
from chainapi.export.formats import Dropped, Rows
from chainapi.export.formats.arrow import BATCH_ROWS, chosen_rows, python_rows, tables_of
from chainapi.export.formats.markers import (
    MARKERS,
    REMOVED,
    Marker,
    add_marker,
    differs,
    in_use,
    newest_marker,
    quoted_name,
)
from chainapi.export.formats.values import (
    Tally,
    check_written,
    extended,
    not_a_table,
    require,
    typed_row,
    unlike,
)
from chainapi.export.worker import interrupting, until
from chainapi.tables.arrow import arrow_schema, grows_to
from chainapi.tables.columns import Column

__all__ = ["FORMAT", "DuckDb"]

# What DuckDB keeps in memory of a large file; it would take most of the machine's.
_SETTINGS: dict[str, Any] = {"memory_limit": "512MB"}

# A file that is read may come from anywhere: it reaches no other file, no extension and nothing of Python.
_CONFINED: dict[str, Any] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}


class DuckDb:
    """Rows as a table of a DuckDB database."""

    name: Final = "duckdb"
    suffix: Final = ".duckdb"
    needs_columns: Final = True

    logs: Final = (".wal",)

    def write(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path | None = None,
        stop: threading.Event | None = None,
        dropped: Dropped = frozenset(),
    ) -> int:
        """Write a database."""
        require(columns, self.name)
        if previous is not None:
            return self._copy(path, columns, rows, previous, stop, dropped)
        for left in (path, _log(path)):
            left.unlink(missing_ok=True)
        try:
            written = _write(path, columns, rows, stop)
        except BaseException:
            _log(path).unlink(missing_ok=True)
            raise
        return check_written(path, written, _tally(path, stop))

    def _copy(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path,
        stop: threading.Event | None,
        dropped: Dropped,
    ) -> int:
        """Copy a database, with all that others have added, and add rows to the copy."""
        with _opened(previous) as batches:
            _columns_in(batches, previous, columns)
        added = path.with_name(f"{path.name}.rows")
        try:
            self.write(added, columns, rows, stop=stop)
            if dropped:
                self.remove(added, dropped)
            with previous.open("rb") as old, path.open("wb") as new:
                for chunk in until(stop, chunks(old)):
                    new.write(chunk)
            with _changed(path, stop) as database:
                return _insert(path, database, added)
        finally:
            added.unlink(missing_ok=True)

    def read(self, path: Path) -> Generator[dict[str, Any], None, None]:
        """Yield the rows of a database."""
        with _opened(path) as batches:
            yield from python_rows(batches, path, self.name)

    def typed(self, row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return a row that `read` yields, with the kinds of these columns."""
        return typed_row(row, columns, json_texts=True)

    def mark(self, path: Path, marker: Marker) -> None:
        """Add a marker to a database."""
        with _changed(path) as database:
            add_marker(database, marker)

    def newest(self, path: Path, stop: threading.Event | None = None) -> tuple[Marker | None, int]:
        """Return the newest marker and the number of rows.

        What a log has is taken into the database.
        """
        with _changed(path, stop) as database:
            return _newest(path, database), _count(database, _plain_table(path, database))

    def merge(
        self, path: Path, added: Path, part: int, run: str, stop: threading.Event | None = None
    ) -> None:
        """Add the rows of another database, and a marker, in one transaction.

        Read them back.
        """
        with _changed(path, stop) as database:
            add_marker(database, Marker(part, run, _insert(path, database, added)))
        self.compare(path, added, stop)

    def remove(self, added: Path, dropped: Dropped) -> None:
        """Write the places of rows that leave another database."""
        with _changed(added) as database:
            database.execute(f"CREATE TABLE {REMOVED} AS SELECT unnest(?::BIGINT[]) AS place", [[*dropped]])

    def compare(self, path: Path, added: Path, stop: threading.Event | None = None) -> None:
        """Compare the newest rows of a database with those that were added."""
        with _confined(added, stop) as database:
            names = ", ".join(map(quoted_name, _types(database, "rows")))
            wanted = _counted(database, "rows")
        with _confined(path, stop) as database:
            table = _plain_table(path, database)
            newest = f"rowid > (SELECT max(rowid) FROM {table}) - {wanted.rows}"  # noqa: S608
            if _counted(database, f"(SELECT {names} FROM {table} WHERE {newest})") != wanted:  # noqa: S608
                raise differs(path)


# Writing


def _log(path: Path) -> Path:
    """Return the path of the write-ahead log: changes since the last checkpoint."""
    return path.with_name(f"{path.name}.wal")


_COUNTED = "SELECT count(*), coalesce(sum(hash(taken)), 0)::VARCHAR FROM {} taken"  # in any order


def _write(path: Path, columns: Sequence[Column], rows: Rows, stop: threading.Event | None) -> Tally:
    written = Tally(0, 0)
    with (
        _explained(path),
        closing(duckdb.connect(path, config=_SETTINGS)) as database,
        interrupting(stop, database.interrupt, duckdb.Error),
    ):
        database.register("fresh", arrow_schema(columns).empty_table())
        database.execute("CREATE TABLE rows AS SELECT * FROM fresh")
        for table in tables_of(columns, rows):
            database.register("fresh", table)
            database.execute("INSERT INTO rows SELECT * FROM fresh")
            found = _counted(database, "fresh")
            written = Tally(written.rows + found.rows, written.checksum + found.checksum)
        # Closing would swallow the errors of the checkpoint, and leave the rows in the log.
        database.execute("CHECKPOINT")
    return written


def _tally(path: Path, stop: threading.Event | None = None) -> Tally:
    """Return the tally of a database."""
    with _confined(path, stop) as database:
        return _counted(database, _plain_table(path, database))


def _count(database: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])  # noqa: S608


def _counted(database: duckdb.DuckDBPyConnection, table: str) -> Tally:
    rows, checksum = database.execute(_COUNTED.format(table)).fetchall()[0]
    return Tally(rows, int(checksum))


# Changes of a database that is in use


@contextmanager
def _changed(path: Path, stop: threading.Event | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Commit the statements of the block, durably, or none of them; leave no log.

    Raises:
        ConfigurationError: it is no database of an export.
        TargetInUseError: another program has it open.
        OSError: it cannot be written.
        Stopped: `stop` was set meanwhile.

    """
    path.stat()
    with (
        _explained(path),
        closing(_connected(path)) as database,
        interrupting(stop, database.interrupt, duckdb.Error),
    ):
        database.execute("BEGIN")  # an uncommitted transaction ends with its connection
        yield database
        database.execute("COMMIT")
        database.execute("CHECKPOINT")


def _connected(path: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(path, read_only=read_only, config={**_SETTINGS, **_CONFINED})
    # Another connection of this process, or one that has attached the database.
    except (duckdb.ConnectionException, duckdb.ResourceInUseException) as error:
        raise in_use(path) from error
    except duckdb.IOException as error:
        if "not a valid DuckDB database" in str(error):
            raise unlike(path, "duckdb") from error
        if "lock on file" in str(error) or "being used" in str(error):
            raise in_use(path) from error
        raise


def _insert(path: Path, database: duckdb.DuckDBPyConnection, added: Path) -> int:
    """Insert the rows of another database; return the number of all rows."""
    table = _plain_table(path, database)
    with _confined(added) as fresh:
        _alter(path, database, _types(fresh, "rows"))
        if _types(fresh, REMOVED):
            _remove(database, table, fresh)
        inserted = _run(database, f"INSERT INTO {table} BY NAME SELECT * FROM fresh", fresh, "rows")  # noqa: S608
        if inserted != _count(fresh, "rows"):
            raise differs(path)
    return _count(database, table)


def _run(
    database: duckdb.DuckDBPyConnection, statement: str, other: duckdb.DuckDBPyConnection, table: str
) -> int:
    """Run a statement about ``fresh``, a table of another database.

    Return the number of changed rows.
    """
    with other.sql(f"SELECT * FROM {table}").to_arrow_reader(BATCH_ROWS) as batches:  # noqa: S608
        database.register("fresh", batches)
        (changed,) = database.execute(statement).fetchall()[0]
        database.unregister("fresh")
    return int(changed)


def _remove(database: duckdb.DuckDBPyConnection, table: str, fresh: duckdb.DuckDBPyConnection) -> None:
    """Delete the rows whose places are in the table `REMOVED` of ``fresh``."""
    dropped = {place for (place,) in fresh.execute(f"SELECT place FROM {REMOVED}").fetchall()}  # noqa: S608
    with database.sql(f"SELECT rowid FROM {table}").to_arrow_reader(BATCH_ROWS) as batches:  # noqa: S608
        found = [one for batch in chosen_rows(batches, dropped) for one in batch["rowid"].to_pylist()]
    database.execute(f"DELETE FROM {table} WHERE rowid IN (SELECT unnest(?::BIGINT[]))", [found])  # noqa: S608


def _alter(path: Path, database: duckdb.DuckDBPyConnection, wanted: dict[str, str]) -> None:
    """Give the table the columns and types of new rows.

    Columns, and fields of records, may be added.
    """
    old = _types(database, "rows")
    if old.keys() - wanted.keys():
        raise unlike(path, "duckdb")
    for name, kind in wanted.items():
        try:
            if name not in old:
                database.execute(f"ALTER TABLE main.rows ADD COLUMN {quoted_name(name)} {kind}")
            elif kind != old[name]:
                database.execute(f"ALTER TABLE main.rows ALTER COLUMN {quoted_name(name)} TYPE {kind}")
        except duckdb.DependencyException as error:
            raise ExportError(
                f"{path} cannot get the column {name!r}: an index or another object depends on the table "
                '"rows". Drop that, start the same export again, and create it again; all rows are kept in '
                "the journal"
            ) from error


def _types(database: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """Return the type of each column; an empty dict for a table that does not exist."""
    query = (
        "SELECT column_name, data_type FROM system.main.duckdb_columns()"
        " WHERE schema_name = 'main' AND table_name = ? AND NOT internal ORDER BY column_index"
    )
    return dict(database.execute(query, [table]).fetchall())


def _newest(path: Path, database: duckdb.DuckDBPyConnection) -> Marker | None:
    if not _types(database, MARKERS):
        return None
    _plain_table(path, database, MARKERS)
    return newest_marker(database)


# Reading


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open the table of a database as a stream of Arrow batches."""
    with _confined(path) as database:
        rows = _plain_table(path, database)
        with _damage_explained(path):
            batches = database.sql(f"SELECT * FROM {rows}").to_arrow_reader(BATCH_ROWS)  # noqa: S608
        with batches:  # an open stream would lock the database
            yield batches


@contextmanager
def _confined(path: Path, stop: threading.Event | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database that may come from anywhere, to read it.

    Raises:
        ConfigurationError: it is no database, or has a log.
        TargetInUseError: another program has it open.

    """
    path.stat()
    if _log(path).exists():
        raise ConfigurationError(
            f"{path} has a log beside it, {_log(path).name}, with rows that are not in it yet: open it with"
            " DuckDB, run CHECKPOINT, and close it"
        )
    with _damage_explained(path):
        database = _connected(path, read_only=True)
    with closing(database), interrupting(stop, database.interrupt, duckdb.Error):
        yield database


@contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.Error:
        raise unlike(path, "duckdb") from None


def _columns_in(batches: Any, path: Path, columns: Sequence[Column]) -> list[Column]:
    """Return the columns of a database, followed by those that it lacks."""
    ordered = extended(batches.schema.names, columns)
    if ordered is None or not grows_to(batches.schema, arrow_schema(ordered)):
        raise unlike(path, "duckdb")
    return ordered


def _plain_table(path: Path, database: duckdb.DuckDBPyConnection, name: str = "rows") -> str:
    """Return the qualified name of a table; refuse computed rows.

    The system's views are named in full, and filtered here: the file may have its own of the same names.
    """

    def listed(columns: str, view: str) -> list[tuple[Any, ...]]:
        return database.execute(f"SELECT schema_name, {columns} FROM system.main.{view}()").fetchall()  # noqa: S608

    def is_it(named: tuple[Any, ...]) -> bool:
        return (named[0], named[1].lower()) == ("main", name)

    rows = [one[2:] for one in listed("table_name, database_name", "duckdb_tables") if is_it(one)]
    if not rows:
        viewed = any(map(is_it, listed("view_name", "duckdb_views")))
        raise not_a_table(path, "a view") if viewed else unlike(path, "duckdb")
    if any(one[2] for one in listed("table_name, is_generated", "duckdb_columns") if is_it(one)):
        raise not_a_table(path, "a table with generated columns")
    return f"{quoted_name(str(rows[0][0]))}.main.{name}"


# In errors about damage, whose types are those of other errors.
_DAMAGE = ("Corrupt database file", "Could not read enough bytes")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors of DuckDB as OSError: the file cannot be written.

    Raises:
        ConfigurationError: the file is damaged.
        OSError: DuckDB raised another error.

    """
    try:
        yield
    except duckdb.Error as error:
        if any(words in str(error) for words in _DAMAGE):
            raise unlike(path, "duckdb") from error
        raise OSError(f"{path}: {error}") from error


FORMAT = DuckDb()
