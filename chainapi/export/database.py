"""Sinks of databases: a commit is one transaction, with the positions in it.

The export owns the tables ``rows``, ``invalid`` (rows that do not fit their model) and those whose names
begin with ``chainapi_``. Tables, indexes and views of others stay.
"""

from __future__ import annotations

import json
import os
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import msgspec

from chainapi._tables.columns import SOURCE, Column
from chainapi._tables.rows import json_text, reader
from chainapi._tables.types import SCALARS, Kind
from chainapi.errors import ExportError, TargetInUseError
from chainapi.export.disk import Lock, refused, sync
from chainapi.export.given import PageDigests, WalkId
from chainapi.export.log import Commit, TargetState
from chainapi.export.sink import CommitSize, Moves, Sink, check_path, earlier_version, not_ours
from chainapi.export.text import NESTED, EncodedRows
from chainapi.export.window import Windows

__all__ = ["Database", "DatabaseFault", "Sqlite", "quoted_name"]

DatabaseFault = Literal["locked", "damaged", "other"]

FORMAT = 2  # of the tables of the export
EXPORT, POSITIONS, GIVEN, INVALID = "chainapi_export", "chainapi_positions", "chainapi_given", "invalid"
BUSY = 5.0  # seconds that a transaction waits for the lock of another program
_LABEL = Column(SOURCE, "text")
_GIVEN = msgspec.msgpack.Decoder(list[PageDigests])


class Database(Sink):
    """Sink of a database file.

    The first step of a commit begins its transaction. If the commit fails, the end of the connection rolls it
    back. If the run is killed, the database itself does.

    Attributes:
        rows: number of rows of the table.

    """

    size: CommitSize = CommitSize(100_000, 8 << 20, 1.0)
    logs: Sequence[str]  # suffixes of files with changes that are not in the file of the database yet
    errors: type[Exception]  # of the database
    locked: str  # why the database may be locked, and what to do
    names: str  # query: the kind of each table and view, ``table`` or another one, by name
    begins: str  # statement that begins a transaction
    ends: str  # statement after the last one, which leaves no log
    retypes: bool  # whether a column may need another type later

    def __init__(self, path: Path, *, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self.rows: int = 0
        self._path = path
        self._lock = Lock(path.with_name(f"{path.name}.lock"), str(path))
        self._database: Any = None
        self._begun = False  # whether the transaction of the next commit has begun
        self._grown = False  # whether the table has all columns

    # What a format does

    @abstractmethod
    def _connect(self) -> Any:
        """Open the file, which is created if it is missing."""

    @abstractmethod
    def _fault(self, error: Exception) -> DatabaseFault:
        """Return what an error of the database means."""

    @abstractmethod
    def _check(self) -> None:
        """Refuse a file that is shorter than it was."""

    @abstractmethod
    def _types(self) -> dict[str, str]:
        """Return the type of each column of the rows by name."""

    @abstractmethod
    def _insert(self, pages: Sequence[EncodedRows]) -> int:
        """Insert rows; return how many the table got."""

    def _put(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows, at least one, into a table of the export; the statement names it."""
        self.database.executemany(f"{statement} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    @abstractmethod
    def _found(self, labels: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any], Any]]:
        """Yield number, values and key (`keys`) of each row of some sources."""

    def _delete(self, numbers: Sequence[int]) -> None:
        """Delete rows by their numbers."""
        self.database.executemany("DELETE FROM rows WHERE rowid = ?", [(one,) for one in numbers])

    def _alter(self, name: str, change: str) -> None:
        """Change a column of the table of rows."""
        self.database.execute(f"ALTER TABLE rows {change}")

    # Begin and end

    @property
    def database(self) -> Any:
        """Connection, which stays open until `close`."""
        if self._database is None:
            self._database = self._connect()
        return self._database

    def open(self) -> TargetState:
        """Take the lock, and read the positions."""
        check_path(self._path)
        self._lock.acquire()
        if not self._path.exists():
            self._refuse_logs()
            return self.state
        return self.read()

    def read(self) -> TargetState:
        """Read the positions.

        Raises:
            TargetInUseError: another program has the database open.
            ExportError: it is no database of an export, or rows were added or deleted since.

        """
        with self.explained():
            tables = self._tables()
            self._check()
            if "chainapi_parts" in tables:
                raise earlier_version(str(self._path))
            if tables and EXPORT not in tables:
                raise not_ours(str(self._path))
            if tables:
                self._read(tables)
        return self.state

    def close(self) -> None:
        """Close the database, and release the lock."""
        try:
            self.disconnect()
        finally:
            self._lock.release(stays=False)

    def disconnect(self) -> None:
        """Close the connection; leave no log, and no file without a transaction."""
        database, self._database = self._database, None
        if database is None:
            return
        try:
            with suppress(self.errors):  # there is no transaction, or the database has rolled back already
                database.execute("ROLLBACK")
            with self.explained():  # closing would swallow these errors, and leave the rows in the log
                database.execute(self.ends)
        finally:
            database.close()
            if not self.state.number and self._path.exists() and not self._path.stat().st_size:
                self._path.unlink()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise errors of the database as errors of its path."""
        try:
            yield
        except self.errors as error:
            fault = self._fault(error)
            if fault == "locked":
                raise TargetInUseError(
                    f"{self._path} is locked: {self.locked}, and start the same export again"
                ) from error
            if fault == "damaged":
                raise self.damaged() from error
            raise refused(self._path, str(error)) from error

    def damaged(self) -> ExportError:
        """Return the error for a file that is no database, or no longer one."""
        return ExportError(
            f"{self._path} exists, and no export wrote it as it is: it is damaged, or was changed since. Put "
            "a copy back, or choose another target"
        )

    def _tables(self) -> dict[str, str]:
        return dict(self._ask(self.names))

    def _ask(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        return list(self.database.execute(query, values).fetchall())

    def _refuse_logs(self) -> None:
        """Refuse the log of a database that is gone: it would be applied to the new one."""
        for suffix in self.logs:
            log = self._path.with_name(self._path.name + suffix)
            if os.path.lexists(log):
                raise ExportError(
                    f"{self._path} has a log of another database beside it, {log.name}: it would damage the "
                    "new one. Move it away, and start the same export again"
                )

    def _read(self, tables: Mapping[str, str]) -> None:
        for name in ("rows", EXPORT, POSITIONS, GIVEN, INVALID):
            if tables.get(name, "table") != "table":
                raise ExportError(
                    f"{self._path} has {tables[name]} in place of the table {name}: no export wrote it; "
                    "choose another target"
                )
        found = self._ask(f"SELECT name, value FROM {EXPORT}")  # noqa: S608
        about = {name: json.loads(value) for name, value in found}
        if about.get("format") != FORMAT:
            raise ExportError(
                f"{self._path} was exported by another version of chainapi: keep it, and choose another "
                "target"
            )
        self.state.number, self.state.settings = about["number"], about["settings"]
        self.rows = about["rows"]
        found = self._ask(f"SELECT source, position FROM {POSITIONS}")  # noqa: S608
        self.state.positions = {label: json.loads(position) for label, position in found}
        [(count,)] = self._ask("SELECT count(*) FROM rows") if "rows" in tables else [(0,)]
        if count != self.rows:
            raise ExportError(
                f"{self._path} has other rows than were exported ({count:,}, not {self.rows:,}): put it "
                "back as it was, or delete it to start over"
            )

    # Commits

    def given(self, walk: WalkId) -> Iterable[PageDigests]:
        """Yield the digests of the rows of a walk, in the order in which they were stored."""
        if self.state.number:
            query = f"SELECT digests FROM {GIVEN} WHERE source = ? AND place = ? ORDER BY number"  # noqa: S608
            with self.explained():
                found = self._ask(query, walk)
            for (content,) in found:
                yield from _GIVEN.decode(content)

    def drop(self, compared: Windows) -> None:
        """Delete the rows that leave, in the transaction of the next commit."""
        numbers = list[int]()

        def rows() -> Iterator[tuple[Mapping[str, Any], Any]]:
            for number, row, key in self._found([*compared.windows]):
                numbers.append(number)
                yield row, key

        with self._transaction():
            if dropped := compared.dropped(rows()):
                self._delete([numbers[place] for place in dropped])
                self.rows -= len(dropped)
                self.added[:] = [self._path.name]

    def commit(self, moves: Moves) -> None:
        """Store the rows written and the positions after them: both, or neither."""
        pages, self._waiting = self._waiting, []
        with self._transaction():
            self._add(pages)
            self._store(moves)
            self.database.execute("COMMIT")
        self._begun = False
        if not self.state.number:
            sync(self._path.parent)
        settings, self._settings = self._settings, None
        number = self.state.number + 1
        self.state.take(Commit(number, 0, "", positions=moves.positions, settings=settings))
        if pages or moves.invalid:
            self.added[:] = [self._path.name]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a block in the transaction of the next commit."""
        with self.explained():
            if not self._begun:
                self.database.execute(self.begins)
                self._begun = True
                if not self.state.number:
                    self._create(self.database)
                self._claim()
                self._grow()
            yield

    def _create(self, database: Any) -> None:
        """Create the tables of the export, unless they are there."""
        for name, columns in _TABLES.items():
            database.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        about = {"format": FORMAT, "number": 0, "rows": 0, "settings": {}}
        database.executemany(f"INSERT OR IGNORE INTO {EXPORT} VALUES (?, ?)", _texts(about))  # noqa: S608

    def _claim(self) -> None:
        """Refuse a number that another export has committed."""
        [(number,)] = self._ask(f"SELECT value FROM {EXPORT} WHERE name = 'number'")  # noqa: S608
        if json.loads(number) != self.state.number:
            raise TargetInUseError(
                f"another export is writing to this target, {self._path}: run one export at a time"
            )

    def _grow(self) -> None:
        """Create the table of rows, or the columns that it lacks."""
        if self._grown:
            return
        wanted = {name: (quoted_name(name), kind) for name, kind in self._types().items()}
        if "rows" not in self._tables():
            self.database.execute(f"CREATE TABLE rows ({', '.join(map(' '.join, wanted.values()))})")
        found = {name: kind for _, name, kind, *_ in self._ask("PRAGMA table_info(rows)")}
        for name, (quoted, kind) in wanted.items():
            if name not in found:
                self._alter(name, f"ADD COLUMN {quoted} {kind}")
            elif self.retypes and kind != found[name]:
                self._alter(name, f"ALTER COLUMN {quoted} TYPE {kind}")
        self._grown = True

    def _add(self, pages: Sequence[EncodedRows]) -> None:
        wanted = sum(page.count for page in pages)
        if pages and self._insert(pages) != wanted:
            raise ExportError(
                f"{self._path} has other rows than were added, as a trigger leaves them: drop it, and start "
                "the same export again"
            )
        self.rows += wanted

    def _store(self, moves: Moves) -> None:
        number = self.state.number + 1
        about: dict[str, Any] = {"format": FORMAT, "number": number, "rows": self.rows}
        about |= {} if self._settings is None else {"settings": self._settings}
        self._put(f"INSERT OR REPLACE INTO {EXPORT}", _texts(about))
        if moves.positions:
            self._put(f"INSERT OR REPLACE INTO {POSITIONS}", _texts(moves.positions))
        ended = [(label,) for label, one in moves.positions.items() if one.get("done")]
        if ended:
            self.database.executemany(f"DELETE FROM {GIVEN} WHERE source = ?", ended)  # noqa: S608
        given = [(*walk, number, msgspec.msgpack.encode(pages)) for walk, pages in moves.given.items()]
        if given:
            self._put(f"INSERT INTO {GIVEN}", given)
        if moves.invalid:
            self.database.execute(
                f"CREATE TABLE IF NOT EXISTS {INVALID} (source TEXT, path TEXT, error TEXT, row TEXT)"
            )
            invalid = [_INVALID.decode(line) for line in moves.invalid]
            rows = [(one.source, one.path, one.error, bytes(one.row).decode()) for one in invalid]
            self._put(f"INSERT INTO {INVALID}", rows)


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, json.dumps(value)) for name, value in values.items()]


_TABLES = {
    EXPORT: "name TEXT PRIMARY KEY, value TEXT",
    POSITIONS: "source TEXT PRIMARY KEY, position TEXT",
    GIVEN: "source TEXT, place INTEGER, number BIGINT, digests BLOB",
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

    logs: Sequence[str] = ("-journal", "-wal")
    errors: type[Exception] = sqlite3.Error
    locked = "another program has it open and is in a transaction. End that"
    names = (
        "SELECT lower(name), CASE WHEN type = 'view' THEN 'a view' WHEN rootpage THEN 'table'"
        " ELSE 'a virtual table' END FROM sqlite_master"
        " WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'"
    )
    begins = "BEGIN IMMEDIATE"
    ends = "PRAGMA wal_checkpoint(TRUNCATE)"
    retypes = False

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode=rwc"
        database = sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA trusted_schema = OFF")
        # In a mode with a rollback journal, EXTRA syncs the folder once that journal is deleted: after a
        # power cut it might come back, and roll the transaction back.
        database.execute("PRAGMA synchronous = EXTRA")
        return database

    def _fault(self, error: Exception) -> DatabaseFault:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return "locked"
        return "damaged" if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) else "other"

    def _check(self) -> None:
        [(count,)], [(size,)] = self._ask("PRAGMA page_count"), self._ask("PRAGMA page_size")
        has_log = self._path.with_name(f"{self._path.name}-wal").exists()  # with pages that the file lacks
        found = self._path.stat().st_size
        if not has_log and (found % size or found < count * size):
            raise self.damaged()

    def _types(self) -> dict[str, str]:
        return {one.name: _type(one) for one in (_LABEL, *self._form.columns)}

    def _insert(self, pages: Sequence[EncodedRows]) -> int:
        names = [quoted_name(name) for name in self._types()]
        marks = ", ".join("?" * len(names))
        statement = f"INSERT INTO rows ({', '.join(names)}) VALUES ({marks})"  # noqa: S608
        return sum(self.database.executemany(statement, self.keys(page)).rowcount for page in pages)

    def _found(self, labels: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any], Any]]:
        names, wanted = [*self._types()], {*labels}
        listed = ", ".join(map(quoted_name, names))
        for number, *values in self.database.execute(f"SELECT rowid, {listed} FROM rows"):  # noqa: S608
            if values[0] in wanted:
                yield number, dict(zip(names, values, strict=True)), tuple(values)

    def keys(self, page: EncodedRows) -> list[Any]:
        """Return the rows of a page as the table has them."""
        forms = [_FORMS.get(one.kind) for one in self._form.columns]
        values = [
            found if form is None else [*map(form, found)]
            for form, found in zip(forms, self._read_lines(page.lines), strict=True)
        ]
        return [*zip(repeat(page.label), *values, strict=False)]

    @cached_property
    def _read_lines(self) -> Callable[[bytes], list[Sequence[Any]]]:
        return reader(self._form.columns, nested=False)


def _type(column: Column) -> str:
    return "TEXT" if column.kind in NESTED else SCALARS[column.kind].sqlite


_FORMS: Mapping[Kind, Callable[[Any], Any]] = dict.fromkeys(NESTED, json_text)
