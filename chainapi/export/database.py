"""SQLite database of a journal: schema, lock, transactions, errors.

The database stays locked while it is open, because two exports that write to one target would repeat rows.
Every method blocks, and all calls come from one thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import define

from chainapi.errors import ExportError
from chainapi.export.integrity import COLUMNS, checksum, damaged, find_damage

__all__ = ["Database"]

FORMAT = 13  # of the schema and the checksums; a journal of another number is refused

SCHEMA = """
CREATE TABLE totals (
    name TEXT PRIMARY KEY, records INTEGER NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (
    number INTEGER NOT NULL, label TEXT NOT NULL, query TEXT NOT NULL, place INTEGER NOT NULL,
    checkpoint TEXT,
    taken INTEGER NOT NULL, newest TEXT, floor TEXT, edge TEXT NOT NULL, window TEXT,
    done INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (number, place), UNIQUE (label, place), UNIQUE (query, place)
);
CREATE TABLE pages (
    number INTEGER PRIMARY KEY, source INTEGER NOT NULL, place INTEGER NOT NULL, segment INTEGER NOT NULL,
    start INTEGER NOT NULL, length INTEGER NOT NULL, rows INTEGER NOT NULL, invalid_length INTEGER NOT NULL,
    invalid INTEGER NOT NULL, lowest TEXT, highest TEXT, crc INTEGER NOT NULL, stored INTEGER NOT NULL,
    first INTEGER, checksum INTEGER NOT NULL
);
CREATE TABLE row_groups (
    segment INTEGER NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL, rows INTEGER NOT NULL,
    crc INTEGER NOT NULL, tally INTEGER NOT NULL, footer BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (segment, start)
);
CREATE TABLE digests (
    page INTEGER PRIMARY KEY, source INTEGER NOT NULL, place INTEGER NOT NULL, pass INTEGER NOT NULL,
    added BLOB NOT NULL, again BLOB NOT NULL, checksum INTEGER NOT NULL
);
CREATE INDEX digests_of_source ON digests (source, place);
CREATE TABLE parts (
    number INTEGER PRIMARY KEY, state INTEGER NOT NULL, upto INTEGER NOT NULL, content TEXT NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE invalid (part INTEGER PRIMARY KEY, digests BLOB NOT NULL, checksum INTEGER NOT NULL);
"""


@define(eq=False)
class Database:
    """Open database; its lock ends with `close`, or with the process.

    Attributes:
        path: path of the database.

    """

    path: Path
    _connection: sqlite3.Connection

    @classmethod
    def open(cls, path: Path, *, check: bool = True) -> Self:
        """Open or create the database, lock it and, with `check`, check every record.

        Raises:
            ExportError: another export has it open, it is not a journal, it is damaged, or it cannot be
                written.

        """
        with _explained(path):
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        database = cls(path, connection)
        try:
            with _explained(path):
                database._prepare(check=check)
        except BaseException:
            connection.close()
            raise
        return database

    def close(self) -> None:
        """Close the database and release its lock."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit the statements of the block together, or none of them.

        Raises:
            ExportError: SQLite refused a statement.

        """
        with _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read records outside of a transaction.

        Raises:
            ExportError: SQLite refused a statement, or a record does not have the form that was written.

        """
        try:
            with _explained(self.path):
                yield self._connection
        except (ValueError, TypeError, OverflowError) as error:
            raise ExportError(damaged(self.path, type(error).__name__)) from error

    def insert(self, table: str, records: Sequence[Sequence[Any]]) -> None:
        """Add records to a table within a transaction, with their checksums."""
        if records:
            places = ", ".join("?" * (len(records[0]) + 1))
            rows = [(*fields, checksum(*fields)) for fields in records]
            self._connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608
            self._add_to_total(table, len(records))

    def delete(self, table: str, where: str, parameters: Sequence[Any] = ()) -> None:
        """Delete records of a table within a transaction."""
        deleted = self._connection.execute(f"DELETE FROM {table} WHERE {where}", parameters).rowcount  # noqa: S608
        if deleted:
            self._add_to_total(table, -deleted)

    def _add_to_total(self, table: str, records: int) -> None:
        """Change the counted number of records of a table; `records` may be negative."""
        self._connection.execute(
            "UPDATE totals SET records = records + :more, checksum = checksum + :more WHERE name = :table",
            {"more": records, "table": table},
        )

    def _prepare(self, *, check: bool) -> None:
        db = self._connection
        db.execute("PRAGMA locking_mode = EXCLUSIVE")  # held from the first write on
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        new = version == 0 and not tables
        if not new and version != FORMAT:
            raise ExportError(
                f"{self.path} is not a journal that this version of chainapi reads: "
                "move it away, or choose another target"
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
        with self.transaction():  # takes the lock
            if new:
                self._create_tables()
        if check and not new and (damage := find_damage(db, SCHEMA)):
            raise ExportError(damaged(self.path, damage))

    def _create_tables(self) -> None:
        for statement in SCHEMA.split(";"):
            self._connection.execute(statement)
        totals = [(name, checksum(name)) for name in COLUMNS]
        self._connection.executemany("INSERT INTO totals VALUES (?, 0, ?)", totals)
        self._connection.execute(f"PRAGMA user_version = {FORMAT}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as ExportError."""
    try:
        yield
    except sqlite3.Error as error:
        raise ExportError(_explanation(path, error)) from error
    except UnicodeDecodeError as error:  # of a message of SQLite that quotes damaged text
        raise ExportError(damaged(path, "text that is not UTF-8")) from error


def _explanation(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_IOERR_LOCK:
        return (
            f"{path} cannot be locked ({error}): its file system is read-only, or has no locks. "
            "Make it writable and start the same export again, or choose a target on another one"
        )
    match code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"another export is writing to this target: {path} is locked. Wait for its end, "
                "or choose another target"
            )
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return (
                f"{path} cannot grow ({error}): is the disk full? What was committed is kept; "
                "make room and start the same export again"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return f"{path} cannot be written ({error}): choose a target in a folder that can"
        case sqlite3.SQLITE_NOTADB:
            return f"{path} is not a journal of an export ({error}): move it away, or choose another target"
        case sqlite3.SQLITE_NOMEM | sqlite3.SQLITE_TOOBIG | sqlite3.SQLITE_INTERRUPT:
            return f"{path} cannot be used ({error}): free memory and start the same export again"
        case _:
            return damaged(path, error)
