"""Sink of a DuckDB database, with the types of Parquet files (extra `duckdb`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb

from chainapi.errors import ExportError
from chainapi.export.database import Database, Fault, quoted_name
from chainapi.export.disk import hidden, sync_file, sync_folder
from chainapi.export.parquet import conformed, row_key
from chainapi.export.sink import CommitSize
from chainapi.export.text import PageRows
from chainapi.tables.columns import SOURCE

__all__ = ["DuckDb"]

# DuckDB would take most of the memory of the machine for a large file. The file may come from anywhere: it
# reaches no other file, no extension and nothing of Python.
_SETTINGS: dict[str, Any] = {
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

    logs = (".wal",)
    errors = duckdb.Error
    locked = "another program, or another connection of this one, has it open. Close it there"
    names = (
        "SELECT lower(table_name), 'table' FROM system.main.duckdb_tables()"
        " WHERE NOT internal AND schema_name = 'main'"
        " UNION ALL SELECT lower(view_name), 'a view' FROM system.main.duckdb_views()"
        " WHERE NOT internal AND schema_name = 'main'"
    )
    begins = "BEGIN"
    ends = "CHECKPOINT"
    retypes = True  # that of a record which gained fields

    def __init__(self, path: Path, writer: str, *, seconds: float | None = None) -> None:
        super().__init__(path, writer, seconds=seconds)
        self.size = CommitSize(100_000, 32 << 20, self.size.seconds)

    def connect(self) -> Any:
        """See `Database.connect`."""
        if not self._path.exists():
            self._make()
        return duckdb.connect(self._path, config=_SETTINGS)

    def _make(self) -> None:
        """Create the database whole: DuckDB refuses half of one."""
        path = hidden(self._path)
        for left in (path, path.with_name(f"{path.name}.wal")):
            left.unlink(missing_ok=True)
        with closing(duckdb.connect(path)) as database:
            self.create(database)
            database.execute("CHECKPOINT")
        sync_file(path)
        path.replace(self._path)
        sync_folder(self._path.parent)

    def fault(self, error: Exception) -> Fault:
        """See `Database.fault`."""
        said = str(error)
        if isinstance(error, duckdb.ConnectionException) or any(one in said for one in _LOCKED):
            return "locked"
        return "damaged" if any(one in said for one in _DAMAGED) else "other"

    def check(self) -> None:
        """See `Database.check`."""
        if self._path.stat().st_size % BLOCK:
            raise self.damaged()

    def types(self) -> dict[str, str]:
        """See `Database.types`."""
        with self._registered(self._form.schema.empty_table()):
            return {name: kind for name, kind, *_ in self._ask("DESCRIBE fresh")}

    def alter(self, name: str, change: str) -> None:
        """See `Database.alter`."""
        try:
            super().alter(name, change)
        except duckdb.DependencyException as error:
            raise ExportError(
                f"{self._path} cannot get the column {name!r}: an index or another object depends on the "
                'table "rows". Drop that, start the same export again, and create it again'
            ) from error

    def insert(self, pages: Sequence[PageRows]) -> int:
        """See `Database.insert`."""
        with self._registered(self._form.table(pages)):
            [(count,)] = self._ask("INSERT INTO rows BY NAME SELECT * FROM fresh")
        return int(count)

    @contextmanager
    def _registered(self, table: Any) -> Iterator[None]:
        """Give the database a table of Arrow as ``fresh``."""
        self.database.register("fresh", table)
        yield
        self.database.unregister("fresh")

    def put(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """See `Database.put`; a statement for each row would take a millisecond each."""
        columns = [[*values] for values in zip(*rows, strict=True)]
        self.database.execute(f"{statement} SELECT {', '.join(['unnest(?)'] * len(columns))}", columns)

    def found(self, labels: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any], Any]]:
        """See `Database.found`."""
        schema = self._form.schema
        names = ", ".join(map(quoted_name, schema.names))
        query = f"SELECT rowid, {names} FROM rows WHERE {SOURCE} IN (SELECT unnest(?::VARCHAR[]))"  # noqa: S608
        table = self.database.sql(query, params=[[*labels]]).to_arrow_table()
        numbers = iter(table.column(0).to_pylist())
        for batch in conformed(table.drop_columns(["rowid"]), schema).to_batches(READ_ROWS):
            for row in batch.to_pylist():
                yield next(numbers), row, row_key(row)

    def delete(self, numbers: Sequence[int]) -> None:
        """See `Database.delete`."""
        self.database.execute("DELETE FROM rows WHERE rowid IN (SELECT unnest(?::BIGINT[]))", [[*numbers]])


_LOCKED = ("lock on file", "being used by another process", "already open")
# In errors about damage, whose types are those of other errors.
_DAMAGED = ("Corrupt database file", "Could not read enough bytes", "not a valid DuckDB database")
