"""Sinks of databases: a commit is one transaction, with the positions in it.

The export owns the tables ``rows``, ``invalid`` (rows that do not fit their model) and those whose names
begin with ``chainapi_``. Tables, indexes and views of others stay.
"""

from __future__ import annotations

import json
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export.batch import PageRows
from chainapi.export.disk import Lock, explained, refuse_link, sync_folder
from chainapi.export.folder import CommitSize, Moves, earlier_version
from chainapi.export.given import Given, Walk
from chainapi.export.log import DataFile, State
from chainapi.export.partition import Partitioner
from chainapi.export.progress import Step
from chainapi.export.text import NESTED
from chainapi.export.window import Window, Windows
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.rows import json_text, reader
from chainapi.tables.types import SCALARS, Kind, bytes_of

__all__ = ["Database", "Sqlite"]

FORMAT = 1  # of the tables of the export
EXPORT, POSITIONS, GIVEN, INVALID = "chainapi_export", "chainapi_positions", "chainapi_given", "invalid"
BUSY = 5.0  # seconds that a transaction waits for the lock of another program
_LABEL = Column(SOURCE, "text")
_GIVEN = msgspec.msgpack.Decoder(list[Given])


class Database(ABC):
    """Sink of a database file.

    Attributes:
        state: what is in force.
        size: when a commit is due.
        rows: number of rows of the table.
        added: the database, if this run has changed it.

    """

    name: str  # of the format
    logs: Sequence[
        str
    ]  # suffixes of files in which the database keeps changes until they are in its own file

    def __init__(self, path: Path, writer: str, *, seconds: float | None = None) -> None:
        self.size = CommitSize(100_000, 8 << 20, 1.0 if seconds is None else seconds)
        self.state, self.added = State(), list[str]()
        self.columns: tuple[Column, ...] = ()
        self._path = path
        self._lock = Lock(path.with_name(f"{path.name}.lock"), str(path))
        self._settings: dict[str, Any] | None = None
        self._waiting = list[PageRows]()
        self.rows = 0
        self._grown = False  # whether the table has all columns
        self._has_given = True  # whether the table of hashes may have rows

    packs = False
    ends_with: Step | None = None

    # What a format does

    @abstractmethod
    def connect(self) -> Any:
        """Return the connection, which stays open until `close`.

        The file is created if it is missing.
        """

    @abstractmethod
    def explained(self) -> Any:
        """Return a context in which errors of the database become errors of chainapi."""

    @abstractmethod
    def tables(self) -> dict[str, str]:
        """Return the kind of each table and view, ``table`` or another one, by name."""

    @abstractmethod
    def check(self) -> None:
        """Refuse a file that is shorter than it was."""

    @abstractmethod
    def grow(self) -> None:
        """Create the table of rows, or the columns that it lacks."""

    @abstractmethod
    def insert(self, pages: Sequence[PageRows]) -> int:
        """Insert rows; return how many the table got."""

    @abstractmethod
    def put(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows of a few values into a table of the export; the statement names it."""

    @abstractmethod
    def found(self, labels: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any], Any]]:
        """Yield the number, the values and the key of each row of some sources."""

    @abstractmethod
    def keys(self, page: PageRows) -> list[Any]:
        """Return for each row the key that `found` yields for an equal one."""

    @abstractmethod
    def delete(self, numbers: Sequence[int]) -> None:
        """Delete rows by their numbers."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection, and leave no log."""

    # The sink

    def address(self, name: str = "") -> str:
        """Return the path of the database."""
        return str(self._path)

    def open(self) -> State:
        """Take the lock, and read the positions.

        The database itself rolls back what a killed run began.

        Raises:
            TargetInUseError: another export, or another program, has the database open.
            ExportError: it is no database of an export, or rows were added or deleted since.

        """
        if self._path.with_name(f"{self._path.name}.export").exists():
            raise earlier_version(str(self._path))
        refuse_link(self._path)
        self._lock.acquire()
        if not self._path.exists():
            self._refuse_logs()
            return self.state
        return self.read()

    def read(self) -> State:
        """Read the positions; see `open`."""
        with self.explained():
            database, tables = self.connect(), self.tables()
            self.check()
            if "chainapi_parts" in tables:
                raise earlier_version(str(self._path))
            if tables and EXPORT not in tables:
                raise ExportError(
                    f"{self._path} exists, and no export wrote it: move it away, or choose another target"
                )
            if tables:
                self._read(database, tables)
        return self.state

    def _refuse_logs(self) -> None:
        """Refuse the log of a database that is gone: it would be applied to the new one."""
        for suffix in self.logs:
            log = self._path.with_name(self._path.name + suffix)
            if os.path.lexists(log):
                raise ExportError(
                    f"{self._path} has a log of another database beside it, {log.name}: it would damage the "
                    "new one. Move it away, and start the same export again"
                )

    def _read(self, database: Any, tables: Mapping[str, str]) -> None:
        for name in ("rows", EXPORT, POSITIONS, GIVEN, INVALID):
            if tables.get(name, "table") != "table":
                raise ExportError(
                    f"{self._path} has {tables[name]} in place of the table {name}: no export wrote it; "
                    "choose another target"
                )
        about = {
            name: json.loads(value)
            for name, value in database.execute(f"SELECT * FROM {EXPORT}").fetchall()  # noqa: S608
        }
        if about.get("format") != FORMAT:
            raise ExportError(
                f"{self._path} was exported by another version of chainapi: keep it, and choose another "
                "target"
            )
        self.state.number, self.state.settings = about["number"], about["settings"]
        self.rows = about["rows"]
        found = database.execute(f"SELECT source, position FROM {POSITIONS}").fetchall()  # noqa: S608
        self.state.positions = {label: json.loads(position) for label, position in found}
        [(count,)] = database.execute("SELECT count(*) FROM rows").fetchall() if "rows" in tables else [(0,)]
        if count != self.rows:
            raise ExportError(
                f"{self._path} has other rows than were exported ({count:,}, not {self.rows:,}): put it "
                "back as it was, or delete it to start over"
            )

    def begin(self, form: Any, settings: Mapping[str, Any], partitioner: Partitioner | None) -> None:
        """Take the columns of the rows.

        Store the settings with the next commit, if they differ.
        """
        self.columns = form.columns
        self._settings = None if settings == self.state.settings else dict(settings)

    def given(self, walk: Walk) -> Iterable[Given]:
        """Yield the hashes of the rows of a walk, in the order in which they were stored."""
        if self.state.number:
            query = f"SELECT outcomes FROM {GIVEN} WHERE source = ? AND place = ? ORDER BY number"  # noqa: S608
            for (content,) in self.connect().execute(query, [*walk]).fetchall():
                yield from _GIVEN.decode(content)

    def write(self, pages: Iterable[PageRows]) -> None:
        """Add rows to the next commit."""
        self._waiting += pages

    def commit(self, moves: Moves) -> list[DataFile]:
        """Store the rows written and the positions after them: both, or neither.

        Raises:
            TargetInUseError: another program, or another export, has the database open.
            ExportError: it cannot be written.

        """
        with self._transaction(moves):
            pass
        return []

    def replace(
        self, windows: Mapping[str, Window], number: Callable[[Mapping[str, Any]], int | None], moves: Moves
    ) -> tuple[int, int]:
        """Let rows that were fetched again replace rows of the table.

        Return the numbers of rows that the table gains and loses.
        """
        compared = Windows(windows, number, self)
        with self._transaction(moves):
            numbers = list[int]()

            def rows() -> Iterator[tuple[Mapping[str, Any], Any]]:
                for one, row, key in self.found([*windows]):
                    numbers.append(one)
                    yield row, key

            dropped = compared.dropped(rows())
            self.delete([numbers[place] for place in dropped])
            self.rows -= len(dropped)
            new = [*compared.new()]
            self._waiting += new
        return sum(page.count for page in new), compared.removed

    def missing(self, label: str, start: int) -> str | None:
        """Return None: the rows are in the database."""
        return None

    def finish(self) -> None:  # noqa: B027 - most databases need none
        """Do nothing: the database is complete."""

    def close(self) -> None:
        """Close the database, and release the lock."""
        try:
            self.disconnect()
        finally:
            self._lock.release(stays=False)

    @contextmanager
    def _transaction(self, moves: Moves) -> Iterator[None]:
        """Run the block, insert what waits and store the positions, in one transaction."""
        waiting, before = self._waiting, self.rows
        changed = bool(waiting)
        is_new = not self._path.exists()
        with self.explained():
            database = self.connect()
            database.execute(self.begin_statement)
            try:
                if not self.state.number:
                    self.create(database)
                self._claim(database)
                if not self._grown:
                    self.grow()
                yield
                self.rows += self._inserted()
                changed = changed or bool(self._waiting)
                self._store(database, moves)
                database.execute("COMMIT")
            except BaseException:
                self.rows, self._waiting = before, waiting
                self._roll_back(database)
                raise
        if is_new:
            with explained(self._path):
                sync_folder(self._path.parent)
        self._waiting, self._grown = [], True
        self.state.number += 1
        self.state.positions.update(moves.positions)
        if self._settings is not None:
            self.state.settings, self._settings = self._settings, None
        if self.rows != before or changed or moves.invalid:
            self.added = [self._path.name]

    begin_statement = "BEGIN"

    def _inserted(self) -> int:
        """Insert what waits; return the number of rows.

        Raises:
            ExportError: the table got another number of rows.

        """
        wanted = sum(page.count for page in self._waiting)
        if self.insert(self._waiting) != wanted:
            raise ExportError(
                f"{self._path} has other rows than were added, as a trigger leaves them: drop it, and start "
                "the same export again"
            )
        return wanted

    def _roll_back(self, database: Any) -> None:
        with suppress(Exception):  # the database has rolled back already
            database.execute("ROLLBACK")

    def create(self, database: Any) -> None:
        """Create the tables of the export, unless they are there."""
        for name, columns in _TABLES.items():
            database.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        about = {"format": FORMAT, "number": 0, "rows": 0, "settings": {}}
        database.executemany(f"INSERT OR IGNORE INTO {EXPORT} VALUES (?, ?)", _texts(about))  # noqa: S608

    def _claim(self, database: Any) -> None:
        """Refuse a number that another export has committed."""
        found = database.execute(f"SELECT value FROM {EXPORT} WHERE name = 'number'").fetchall()  # noqa: S608
        if json.loads(found[0][0]) != self.state.number:
            raise TargetInUseError(
                f"another export is writing to this target, {self._path}: run one export at a time"
            )

    def _store(self, database: Any, moves: Moves) -> None:
        number = self.state.number + 1
        about: dict[str, Any] = {"format": FORMAT, "number": number, "rows": self.rows}
        about |= {} if self._settings is None else {"settings": self._settings}
        self.put(f"INSERT OR REPLACE INTO {EXPORT}", _texts(about))
        self.put(f"INSERT OR REPLACE INTO {POSITIONS}", _texts(moves.positions))
        ended = [(label,) for label, one in moves.positions.items() if one.get("done")]
        if ended and self._has_given:
            database.executemany(f"DELETE FROM {GIVEN} WHERE source = ?", ended)  # noqa: S608
        given = [(*walk, number, msgspec.msgpack.encode(outcomes)) for walk, outcomes in moves.given.items()]
        self.put(f"INSERT INTO {GIVEN}", given)
        self._has_given = self._has_given or bool(given)
        if moves.invalid:
            database.execute(
                f"CREATE TABLE IF NOT EXISTS {INVALID} (source TEXT, path TEXT, error TEXT, row TEXT)"
            )
            invalid = [_INVALID.decode(line) for line in moves.invalid]
            rows = [(one.source, one.path, one.error, bytes(one.row).decode()) for one in invalid]
            self.put(f"INSERT INTO {INVALID}", rows)


def damaged_database(path: Path) -> ExportError:
    """Return the error for a file that is no database, or no longer one."""
    return ExportError(
        f"{path} exists, and no export wrote it as it is: it is damaged, or was changed since. Put a copy "
        "back, or choose another target"
    )


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, json.dumps(value)) for name, value in values.items()]


_TABLES = {
    EXPORT: "name TEXT PRIMARY KEY, value TEXT",
    POSITIONS: "source TEXT PRIMARY KEY, position TEXT",
    GIVEN: "source TEXT, place INTEGER, number BIGINT, outcomes BLOB",
}


class _Invalid(msgspec.Struct):
    source: str
    path: str
    error: str
    row: msgspec.Raw


_INVALID = msgspec.json.Decoder(_Invalid)


def quoted_name(name: str) -> str:
    """Return the name of a column as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


class Sqlite(Database):
    """Sink of a SQLite database.

    Whole numbers and times (Unix seconds) are INTEGER, amounts and decimals are TEXT because SQLite has no
    exact type for them (amounts by choice REAL, or BLOB of 32 bytes); records, lists and other JSON are JSON
    text.
    """

    name = "sqlite"
    logs = ("-journal", "-wal")
    begin_statement = "BEGIN IMMEDIATE"
    _database: sqlite3.Connection | None = None

    def connect(self) -> sqlite3.Connection:
        """See `Database.connect`."""
        if self._database is None:
            uri = f"{self._path.absolute().as_uri()}?mode=rwc"
            database = sqlite3.connect(
                uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False
            )
            database.execute("PRAGMA trusted_schema = OFF")
            # In a mode with a rollback journal, EXTRA syncs the folder once that journal is deleted: after a
            # power cut
            # it might come back, and roll the transaction back.
            database.execute("PRAGMA synchronous = EXTRA")
            self._database = database
        return self._database

    @contextmanager
    def explained(self) -> Iterator[None]:
        """See `Database.explained`."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise TargetInUseError(
                    f"{self._path} is locked: another program has it open and is in a transaction. End "
                    "that, and start the same export again"
                ) from error
            if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise damaged_database(self._path) from error
            raise ExportError(
                f"{self._path} cannot be written: {error}; make room, or remove another cause, and start "
                "the same export again"
            ) from error

    def tables(self) -> dict[str, str]:
        """See `Database.tables`."""
        found = self.connect().execute("SELECT lower(name), type, rootpage FROM sqlite_master").fetchall()
        return {
            name: "table"
            if kind == "table" and root
            else "a virtual table"
            if kind == "table"
            else f"a {kind}"
            for name, kind, root in found
            if kind in ("table", "view") and not name.startswith("sqlite_")
        }

    def check(self) -> None:
        """See `Database.check`."""
        [(count,)] = self.connect().execute("PRAGMA page_count").fetchall()
        [(size,)] = self.connect().execute("PRAGMA page_size").fetchall()
        has_log = self._path.with_name(f"{self._path.name}-wal").exists()  # with pages that the file lacks
        if not has_log and (self._path.stat().st_size % size or self._path.stat().st_size < count * size):
            raise damaged_database(self._path)

    def grow(self) -> None:
        """See `Database.grow`."""
        database = self.connect()
        found = {name for _, name, *_ in database.execute("PRAGMA table_info(rows)")}
        columns = [f"{quoted_name(one.name)} {_type(one)}" for one in (_LABEL, *self.columns)]
        if not found:
            database.execute(f"CREATE TABLE rows ({', '.join(columns)})")
        for one, column in zip((_LABEL, *self.columns), columns, strict=True):
            if found and one.name not in found:
                database.execute(f"ALTER TABLE rows ADD COLUMN {column}")

    def insert(self, pages: Sequence[PageRows]) -> int:
        """See `Database.insert`."""
        names = ", ".join(quoted_name(one.name) for one in (_LABEL, *self.columns))
        marks = ", ".join("?" * (len(self.columns) + 1))
        statement = f"INSERT INTO rows ({names}) VALUES ({marks})"  # noqa: S608
        return sum(self.connect().executemany(statement, self.keys(page)).rowcount for page in pages)

    def put(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """See `Database.put`."""
        if rows:
            self.connect().executemany(f"{statement} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def found(self, labels: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any], Any]]:
        """See `Database.found`."""
        names = [SOURCE, *(one.name for one in self.columns)]
        listed, wanted = ", ".join(map(quoted_name, names)), {*labels}
        for number, *values in self.connect().execute(f"SELECT rowid, {listed} FROM rows"):  # noqa: S608
            if values[0] in wanted:
                yield number, dict(zip(names, values, strict=True)), tuple(values)

    def keys(self, page: PageRows) -> list[Any]:
        """See `Database.keys`."""
        if self._read_lines is None:
            self._read_lines = reader(self.columns, nested=False)
        forms = [_FORMS.get(one.kind) for one in self.columns]
        values = [
            found if form is None else [*map(form, found)]
            for form, found in zip(forms, self._read_lines(page.lines), strict=True)
        ]
        return [*zip(repeat(page.label), *values, strict=False)]

    _read_lines: Callable[[bytes], list[Sequence[Any]]] | None = None

    def delete(self, numbers: Sequence[int]) -> None:
        """See `Database.delete`."""
        self.connect().executemany("DELETE FROM rows WHERE rowid = ?", ((one,) for one in numbers))

    def disconnect(self) -> None:
        """See `Database.disconnect`."""
        database, self._database = self._database, None
        if database is None:
            return
        try:
            with self.explained():
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            database.close()
            self._remove_empty()

    def _remove_empty(self) -> None:
        """Delete a file that no transaction has filled."""
        if not self.state.number and self._path.exists() and not self._path.stat().st_size:
            self._path.unlink()


def _type(column: Column) -> str:
    return "TEXT" if column.kind in NESTED else SCALARS[column.kind].sqlite


def _blob(text: str | None) -> bytes | None:
    return None if text is None else bytes_of(text)


_FORMS: Mapping[Kind, Callable[[Any], Any]] = {"bytes32": _blob, **dict.fromkeys(NESTED, json_text)}
