"""DuckDB database with one table, ``rows``, and the types of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb

from chainapi.export.formats import Rows
from chainapi.export.formats.arrow import BATCH_ROWS, python_rows, write_fitting
from chainapi.export.formats.values import not_a_table, require, unlike, value_of
from chainapi.tables.arrow import Types
from chainapi.tables.columns import SOURCE, Column

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

    def write(self, path: Path, columns: Sequence[Column], rows: Rows, previous: Path | None = None) -> None:
        """Write a database."""
        require(columns, self.name)
        types = Types(columns)
        if previous is not None:
            with _opened(previous) as batches:
                if not types.take(batches.schema):
                    raise unlike(previous, self.name)

        def earlier() -> Iterator[Any]:
            if previous is not None:
                with _opened(previous) as batches:
                    yield from batches

        def write(tables: Iterator[Any]) -> None:
            path.unlink(missing_ok=True)
            with _explained(path), closing(duckdb.connect(path, config=_SETTINGS)) as database:
                database.register("fresh", types.schema.empty_table())
                database.execute("CREATE TABLE rows AS SELECT * FROM fresh")
                for table in tables:
                    database.register("fresh", table)
                    database.execute("INSERT INTO rows SELECT * FROM fresh")

        write_fitting(types, rows, earlier, write)

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a database."""
        with _opened(path) as batches:
            if columns and not Types(columns).take(batches.schema):
                raise unlike(path, self.name)
            for row in python_rows(batches, path, self.name):
                yield _typed(row, columns) if columns else row


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open the table of a database as a stream of Arrow batches."""
    path.stat()
    try:
        database = duckdb.connect(path, read_only=True, config={**_SETTINGS, **_CONFINED})
    except duckdb.Error:
        raise unlike(path, "duckdb") from None
    with closing(database):
        try:
            rows = _plain_table(path, database)
            batches = database.sql(f"SELECT * FROM {rows}").to_arrow_reader(BATCH_ROWS)  # noqa: S608
        except duckdb.Error:
            raise unlike(path, "duckdb") from None
        with batches:  # an open stream would lock the database
            yield batches


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
    """Raise errors of DuckDB that come from the operating system as OSError."""
    try:
        yield
    except duckdb.IOException as error:
        raise OSError(f"{path}: {error}") from error


def _typed(row: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    values = {column.name: value_of(column, row[column.name], json_texts=True) for column in columns}
    return {SOURCE: row[SOURCE], **values}


FORMAT = DuckDb()
