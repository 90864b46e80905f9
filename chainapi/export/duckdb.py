"""Sink of a DuckDB database, with the types of Parquet files (extra `duckdb`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export.batch import PageRows
from chainapi.export.database import Database, damaged_database, quoted_name
from chainapi.export.disk import hidden, sync_file, sync_folder
from chainapi.export.folder import CommitSize
from chainapi.export.parquet import ArrowRows, conformed, row_key
from chainapi.export.partition import Partitioner
from chainapi.tables.columns import SOURCE

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

    name = "duckdb"
    logs = (".wal",)
    packs = True
    _database: Any = None
    _arrow: ArrowRows | None = None

    def begin(self, form: Any, settings: Mapping[str, Any], partitioner: Partitioner | None) -> None:
        """See `Database.begin`."""
        super().begin(form, settings, partitioner)
        self.size = CommitSize(100_000, 32 << 20, self.size.seconds)
        self._arrow = form.rows_of()

    def connect(self) -> Any:
        """See `Database.connect`."""
        if self._database is None:
            if not self._path.exists():
                self._make()
            self._database = duckdb.connect(self._path, config=SETTINGS)
        return self._database

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

    def check(self) -> None:
        """See `Database.check`."""
        if self._path.stat().st_size % BLOCK:
            raise damaged_database(self._path)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """See `Database.explained`."""
        try:
            yield
        except duckdb.Error as error:
            said = str(error)
            if isinstance(error, duckdb.ConnectionException) or any(one in said for one in _LOCKED):
                raise TargetInUseError(
                    f"{self._path} is locked: another program, or another connection of this one, has it"
                    " open. Close it"
                    " there, and start the same export again"
                ) from error
            if any(one in said for one in _DAMAGED):
                raise damaged_database(self._path) from error
            raise ExportError(
                f"{self._path} cannot be written: {said}; make room, or remove another cause, and start the "
                "same export again"
            ) from error

    def tables(self) -> dict[str, str]:
        """See `Database.tables`."""
        query = (
            "SELECT lower(table_name), 'table' FROM system.main.duckdb_tables() WHERE NOT internal AND"
            " schema_name = 'main'"
            " UNION ALL SELECT lower(view_name), 'a view' FROM system.main.duckdb_views()"
            " WHERE NOT internal AND schema_name = 'main'"
        )
        return dict(self.connect().execute(query).fetchall())

    def grow(self) -> None:
        """See `Database.grow`."""
        assert self._arrow is not None  # noqa: S101 - for the type checker
        database = self.connect()
        database.register("fresh", self._arrow.schema.empty_table())
        wanted = {name: kind for name, kind, *_ in database.execute("DESCRIBE fresh").fetchall()}
        if "rows" not in self.tables():
            database.execute("CREATE TABLE rows AS SELECT * FROM fresh")
            return
        found = {name: kind for name, kind, *_ in database.execute("DESCRIBE main.rows").fetchall()}
        for name, kind in wanted.items():
            try:
                if name not in found:
                    database.execute(f"ALTER TABLE rows ADD COLUMN {quoted_name(name)} {kind}")
                elif kind != found[name]:
                    database.execute(f"ALTER TABLE rows ALTER COLUMN {quoted_name(name)} TYPE {kind}")
            except duckdb.DependencyException as error:
                raise ExportError(
                    f"{self._path} cannot get the column {name!r}: an index or another object depends on "
                    "the table "
                    '"rows". Drop that, start the same export again, and create it again'
                ) from error

    def insert(self, pages: Sequence[PageRows]) -> int:
        """See `Database.insert`."""
        assert self._arrow is not None  # noqa: S101 - for the type checker
        if not pages:
            return 0
        table = self._arrow.table(pages)
        database = self.connect()
        database.register("fresh", table)
        [(count,)] = database.execute("INSERT INTO rows BY NAME SELECT * FROM fresh").fetchall()
        database.unregister("fresh")
        return int(count)

    def put(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """See `Database.put`."""
        if rows:  # a statement for each row would take a millisecond each
            table = pa.table({f"c{place}": [*values] for place, values in enumerate(zip(*rows, strict=True))})
            database = self.connect()
            database.register("fresh", table)
            database.execute(f"{statement} SELECT * FROM fresh")  # noqa: S608
            database.unregister("fresh")

    def found(self, labels: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any], Any]]:
        """See `Database.found`."""
        assert self._arrow is not None  # noqa: S101 - for the type checker
        schema = self._arrow.schema
        names = ", ".join(map(quoted_name, schema.names))
        query = f"SELECT rowid, {names} FROM rows WHERE {SOURCE} IN (SELECT unnest(?::VARCHAR[]))"  # noqa: S608
        table = self.connect().sql(query, params=[[*labels]]).to_arrow_table()
        numbers = iter(table.column(0).to_pylist())
        for batch in conformed(table.drop_columns(["rowid"]), schema).to_batches(READ_ROWS):
            for row in batch.to_pylist():
                yield next(numbers), row, row_key(row)

    def keys(self, page: PageRows) -> list[Any]:
        """See `Database.keys`."""
        assert self._arrow is not None  # noqa: S101 - for the type checker
        return [row_key(row) for row in self._arrow.table([page]).to_pylist()]

    def delete(self, numbers: Sequence[int]) -> None:
        """See `Database.delete`."""
        if numbers:
            self.connect().execute(
                "DELETE FROM rows WHERE rowid IN (SELECT unnest(?::BIGINT[]))", [[*numbers]]
            )

    def disconnect(self) -> None:
        """See `Database.disconnect`."""
        database, self._database = self._database, None
        if database is None:
            return
        try:
            with self.explained():
                # Closing would swallow the errors of the checkpoint, and leave the rows in the log.
                database.execute("CHECKPOINT")
        finally:
            database.close()


_LOCKED = ("lock on file", "being used by another process", "already open")
# In errors about damage, whose types are those of other errors.
_DAMAGED = ("Corrupt database file", "Could not read enough bytes", "not a valid DuckDB database")
