"""Sink of a DuckDB database, with the types of Parquet files (extra `duckdb`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import duckdb

from chainapi._tables.columns import SOURCE
from chainapi.errors import ExportError
from chainapi.export.database import Database, DatabaseFault, quoted_name
from chainapi.export.disk import hidden, sync
from chainapi.export.parquet import conformed, row_key
from chainapi.export.sink import CommitSize
from chainapi.export.text import EncodedRows

__all__ = ["SETTINGS", "DuckDb"]

# DuckDB would take most of the memory of the machine for a large file. The file may come from anywhere: it
# reaches no other file, no extension and nothing of Python.
SETTINGS: dict[str, Any] = {
    "memory_limit": "128MB",
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}
READ_ROWS = 16_384  # at once
BLOCK = 4_096  # bytes, of which a file has a whole number


class DuckDb(Database):
    """Sink of a DuckDB database.

    DuckDB lets no other program open it while the export runs.
    """

    size: CommitSize = CommitSize(100_000, 32 << 20, 1.0)
    logs: Sequence[str] = (".wal",)
    errors: type[Exception] = duckdb.Error
    locked = "another program, or another connection of this one, has it open. Close it there"
    names = (
        "SELECT lower(table_name), 'table' FROM system.main.duckdb_tables()"
        " WHERE NOT internal AND schema_name = 'main'"
        " UNION ALL SELECT lower(view_name), 'a view' FROM system.main.duckdb_views()"
        " WHERE NOT internal AND schema_name = 'main'"
    )
    begins = "BEGIN"
    ends = "CHECKPOINT"
    retypes = True  # a record may gain fields

    def _connect(self) -> Any:
        if not self._path.exists():
            self._make()
        return duckdb.connect(self._path, config=SETTINGS)

    def _make(self) -> None:
        """Create the database whole: DuckDB refuses half of one."""
        path = hidden(self._path)
        for left in (path, path.with_name(f"{path.name}.wal")):
            left.unlink(missing_ok=True)
        with closing(duckdb.connect(path)) as database:
            self._create(database)
            database.execute("CHECKPOINT")
        sync(path)
        path.replace(self._path)
        sync(self._path.parent)

    def _fault(self, error: Exception) -> DatabaseFault:
        said = str(error)
        if isinstance(error, duckdb.ConnectionException) or any(one in said for one in _LOCKED):
            return "locked"
        return "damaged" if any(one in said for one in _DAMAGED) else "other"

    def _check(self) -> None:
        if self._path.stat().st_size % BLOCK:
            raise self.damaged()

    def _types(self) -> dict[str, str]:
        made = self.database.from_arrow(self._form.schema.empty_table())
        return dict(zip(made.columns, map(str, made.types), strict=True))

    def _alter(self, name: str, change: str) -> None:
        try:
            super()._alter(name, change)
        except duckdb.DependencyException as error:
            raise ExportError(
                f"{self._path} cannot get the column {name!r}: an index or another object depends on the "
                'table "rows". Drop that, start the same export again, and create it again'
            ) from error

    def _insert(self, pages: Sequence[EncodedRows]) -> int:
        self.database.register("fresh", self._form.table(pages))
        [(count,)] = self._ask("INSERT INTO rows BY NAME SELECT * FROM fresh")
        self.database.unregister("fresh")
        return int(count)

    def _put(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        # A statement for each row would take a millisecond each.
        columns = [[*values] for values in zip(*rows, strict=True)]
        self.database.execute(f"{statement} SELECT {', '.join(['unnest(?)'] * len(columns))}", columns)

    def _found(self, labels: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any], Any]]:
        schema = self._form.schema
        names = ", ".join(map(quoted_name, schema.names))
        query = f"SELECT rowid, {names} FROM rows WHERE {SOURCE} IN (SELECT unnest(?::VARCHAR[]))"  # noqa: S608
        table = self.database.sql(query, params=[[*labels]]).to_arrow_table()
        numbers = iter(table.column(0).to_pylist())
        for batch in conformed(table.drop_columns(["rowid"]), schema).to_batches(READ_ROWS):
            for row in batch.to_pylist():
                yield next(numbers), row, row_key(row)

    def _delete(self, numbers: Sequence[int]) -> None:
        self.database.execute("DELETE FROM rows WHERE rowid IN (SELECT unnest(?::BIGINT[]))", [[*numbers]])


_LOCKED = ("lock on file", "being used by another process", "already open")
# In errors about damage, whose types other errors have too.
_DAMAGED = ("Corrupt database file", "Could not read enough bytes", "not a valid DuckDB database")
