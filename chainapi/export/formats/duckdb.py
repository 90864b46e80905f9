"""DuckDB database with one table, ``rows``, and the types of Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb

from chainapi.errors import ConfigurationError
from chainapi.export.formats import Dropped, Rows
from chainapi.export.formats.arrow import BATCH_ROWS, kept_batches, python_rows, tables_of
from chainapi.export.formats.values import (
    Tally,
    check_written,
    extended,
    not_a_table,
    require,
    typed_row,
    unlike,
)
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

    def write(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path | None = None,
        dropped: Dropped = frozenset(),
    ) -> int:
        """Write a database."""
        require(columns, self.name)
        for left in (path, _log(path)):
            left.unlink(missing_ok=True)
        try:
            with ExitStack() as stack:
                earlier: Iterable[Any] = ()
                if previous is not None:
                    old = stack.enter_context(_opened(previous))
                    columns = _columns_in(old, previous, columns)
                    earlier = kept_batches(old, dropped)
                written = _write(path, columns, tables_of(columns, rows, earlier))
        except BaseException:
            _log(path).unlink(missing_ok=True)
            raise
        return check_written(path, written, _tally(path))

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a database."""
        with _opened(path) as batches:
            if columns:
                _columns_in(batches, path, columns)
            for row in python_rows(batches, path, self.name):
                yield typed_row(row, columns, json_texts=True) if columns else row


# Writing


def _log(path: Path) -> Path:
    """Return the path of the write-ahead log: changes since the last checkpoint."""
    return path.with_name(f"{path.name}.wal")


_COUNTED = "SELECT count(*), coalesce(sum(hash(taken)), 0)::VARCHAR FROM {} taken"  # in any order


def _write(path: Path, columns: Sequence[Column], tables: Iterable[Any]) -> Tally:
    written = Tally(0, 0)
    with _explained(path), closing(duckdb.connect(path, config=_SETTINGS)) as database:
        database.register("fresh", arrow_schema(columns).empty_table())
        database.execute("CREATE TABLE rows AS SELECT * FROM fresh")
        for table in tables:
            database.register("fresh", table)
            database.execute("INSERT INTO rows SELECT * FROM fresh")
            found = _counted(database, "fresh")
            written = Tally(written.rows + found.rows, written.checksum + found.checksum)
        database.execute("CHECKPOINT")  # closing would swallow its errors, and leave the rows in the log
    return written


def _tally(path: Path) -> Tally:
    """Return the tally of a database."""
    with _confined(path) as database:
        return _counted(database, _plain_table(path, database))


def _counted(database: duckdb.DuckDBPyConnection, table: str) -> Tally:
    rows, checksum = database.execute(_COUNTED.format(table)).fetchall()[0]
    return Tally(rows, int(checksum))


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
def _confined(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database that may come from anywhere, to read it.

    Raises:
        ConfigurationError: it is no database, or has a log.

    """
    path.stat()
    if _log(path).exists():
        raise ConfigurationError(
            f"{path} has a log beside it, {_log(path).name}, with rows that are not in it yet: open it with"
            " DuckDB, run CHECKPOINT, and close it"
        )
    with _damage_explained(path):
        database = duckdb.connect(path, read_only=True, config={**_SETTINGS, **_CONFINED})
    with closing(database):
        yield database


@contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.Error:
        raise unlike(path, "duckdb") from None


def _columns_in(batches: Any, path: Path, columns: Sequence[Column]) -> list[Column]:
    """Return the columns of a database, and behind them those that it lacks."""
    ordered = extended(batches.schema.names, columns)
    if ordered is None or not grows_to(batches.schema, arrow_schema(ordered)):
        raise unlike(path, "duckdb")
    return ordered


def _plain_table(path: Path, database: duckdb.DuckDBPyConnection) -> str:
    """Return the qualified name of the table ``rows``; refuse computed rows.

    The system's views are named in full, and filtered here: the file may have its own of the same names.
    """

    def listed(columns: str, view: str) -> list[tuple[Any, ...]]:
        return database.execute(f"SELECT schema_name, {columns} FROM system.main.{view}()").fetchall()  # noqa: S608

    rows = [one[2:] for one in listed("table_name, database_name", "duckdb_tables") if _is_rows(one)]
    if not rows:
        viewed = any(map(_is_rows, listed("view_name", "duckdb_views")))
        raise not_a_table(path, "a view") if viewed else unlike(path, "duckdb")
    if any(one[2] for one in listed("table_name, is_generated", "duckdb_columns") if _is_rows(one)):
        raise not_a_table(path, "a table with generated columns")
    catalog = str(rows[0][0]).replace('"', '""')
    return f'"{catalog}".main.rows'


def _is_rows(named: tuple[Any, ...]) -> bool:
    return (named[0], named[1].lower()) == ("main", "rows")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors of DuckDB as OSError: the file cannot be written."""
    try:
        yield
    except duckdb.Error as error:
        raise OSError(f"{path}: {error}") from error


FORMAT = DuckDb()
