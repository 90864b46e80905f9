"""SQLite database with one table, ``rows``.

Whole numbers and times (Unix seconds) are INTEGER, amounts and decimals are TEXT because SQLite has no exact
type for them (amounts by choice REAL, or BLOB of 32 bytes); records, lists and other JSON are JSON text.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from chainapi.export.formats import Dropped, Rows
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
    NESTED,
    Tally,
    check_written,
    extended,
    not_a_table,
    parsed,
    require,
    typed_row,
    unlike,
)
from chainapi.export.worker import interrupting, look
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.rows import json_text, reader
from chainapi.tables.types import SCALARS, Kind, bytes_of

__all__ = ["FORMAT", "Sqlite"]


class Sqlite:
    """Rows as a table of a SQLite database."""

    name: Final = "sqlite"
    suffix: Final = ".sqlite"
    needs_columns: Final = True
    logs: Final = ("-journal", "-wal")

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
        path.unlink(missing_ok=True)
        with _explained(path), closing(sqlite3.connect(path, isolation_level=None)) as database:
            # An incomplete file is deleted: it needs no journal.
            database.execute("PRAGMA journal_mode=OFF")
            database.execute("PRAGMA synchronous=OFF")
            database.execute("BEGIN")
            database.execute(f"CREATE TABLE rows ({', '.join(map(_declared, (_LABEL, *columns)))})")
            insert = f"INSERT INTO rows VALUES ({', '.join('?' * (len(columns) + 1))})"  # noqa: S608
            written = Tally(0, 0)
            for batch in _batches(columns, rows):
                database.executemany(insert, batch)
                written = _added(written, batch)
            database.execute("COMMIT")
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
        _check_columns(previous, columns)
        added = path.with_name(f"{path.name}.rows")
        try:
            self.write(added, columns, rows, stop=stop)
            if dropped:
                self.remove(added, dropped)
            path.unlink(missing_ok=True)
            # Its end deletes the log, unless another program has the database open.
            with _writable(previous, stop) as old, closing(sqlite3.connect(path)) as new:
                old.backup(new, pages=PAGES, progress=lambda *_: look(stop))
            with _changed(path, stop, added) as database:
                return _insert(path, database)
        finally:
            added.unlink(missing_ok=True)

    def read(self, path: Path) -> Generator[dict[str, Any], None, None]:
        """Yield the rows of a database."""
        with _opened(path) as database:
            found = database.execute("SELECT * FROM main.rows ORDER BY rowid")
            names = [name for name, *_ in found.description]
            for values in found:
                yield dict(zip(names, values, strict=True))

    def typed(self, row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return a row that `read` yields, with the kinds of these columns."""
        return typed_row(parsed(row, columns), columns)

    def mark(self, path: Path, marker: Marker) -> None:
        """Add a marker to a database."""
        with _changed(path) as database:
            add_marker(database, marker)

    def newest(self, path: Path, stop: threading.Event | None = None) -> tuple[Marker | None, int]:
        """Return the newest marker and the number of rows.

        What a stopped program left is rolled back.
        """
        with _writable(path, stop) as database:
            (count,) = database.execute("SELECT count(*) FROM main.rows").fetchone()
            return _newest(database), count

    def merge(
        self, path: Path, added: Path, part: int, run: str, stop: threading.Event | None = None
    ) -> None:
        """Add the rows of another database, and a marker, in one transaction.

        Read them back.
        """
        with _changed(path, stop, added) as database:
            add_marker(database, Marker(part, run, _insert(path, database)))
        self.compare(path, added, stop)

    def remove(self, added: Path, dropped: Dropped) -> None:
        """Write the places of rows that leave another database."""
        with _changed(added) as database:
            database.execute(f"CREATE TABLE {REMOVED} (place INTEGER)")
            database.executemany(f"INSERT INTO {REMOVED} VALUES (?)", ((place,) for place in dropped))  # noqa: S608

    def compare(self, path: Path, added: Path, stop: threading.Event | None = None) -> None:
        """Compare the newest rows of a database with those that were added."""
        with _opened(added, stop) as database:
            names = ", ".join(map(quoted_name, _columns_of(database, "main")))
            wanted = _sum(database, f"SELECT {names} FROM main.rows")  # noqa: S608
        with _opened(path, stop) as database:
            query = f"SELECT {names} FROM main.rows WHERE rowid > (SELECT max(rowid) FROM main.rows) - ?"  # noqa: S608
            if _sum(database, query, wanted.rows) != wanted:
                raise differs(path)


# Writing

PAGES = 1_000  # of a database that are copied between two looks at `stop`
BUSY = 5.0  # seconds that a transaction waits for the lock of another program
LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)  # codes of errors
_LABEL = Column(SOURCE, "text")


def _declared(column: Column) -> str:
    return f"{quoted_name(column.name)} {_type(column)}"


def _type(column: Column) -> str:
    return "TEXT" if column.kind in NESTED else SCALARS[column.kind].sqlite


def _batches(columns: Sequence[Column], rows: Rows) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the values of rows."""
    read, forms = reader(columns, nested=False), [_FORMS.get(column.kind) for column in columns]
    for label, lines in rows:
        values = [
            found if form is None else [*map(form, found)]
            for form, found in zip(forms, read(lines), strict=True)
        ]
        yield [*zip(repeat(label), *values, strict=False)]


def _blob(text: str | None) -> bytes | None:
    return None if text is None else bytes_of(text)


_FORMS: Mapping[Kind, Callable[[Any], Any]] = {"bytes32": _blob, **dict.fromkeys(NESTED, json_text)}


# Changes of a database that is in use


@contextmanager
def _changed(
    path: Path, stop: threading.Event | None = None, added: Path | None = None
) -> Iterator[sqlite3.Connection]:
    """Commit the statements of the block together, durably, or none of them.

    It may read the database ``added``.

    Raises:
        ConfigurationError, TargetInUseError, OSError, Stopped: see `_writable`.

    """
    with _writable(path, stop) as database:
        if added is not None:
            database.execute("ATTACH ? AS added", (_uri(added, "ro"),))
        database.execute("BEGIN IMMEDIATE")  # an uncommitted transaction ends with its connection
        yield database
        database.execute("COMMIT")


@contextmanager
def _writable(path: Path, stop: threading.Event | None) -> Iterator[sqlite3.Connection]:
    """Open an existing database to change it.

    SQLite rolls back what a stopped program left.

    The database keeps its journal mode. In a mode with a rollback journal, EXTRA syncs the folder once that
    journal is deleted: after a power cut it might come back, and roll the transaction back.

    Raises:
        ConfigurationError: it is no database of an export.
        TargetInUseError: another program has locked it.
        OSError: it cannot be written.
        Stopped: `stop` was set meanwhile.

    """
    path.stat()
    with (
        _explained(path),
        closing(_connected(path, "rw")) as database,
        interrupting(stop, database.interrupt, sqlite3.Error),
    ):
        _check_plain(path, database)
        database.execute("PRAGMA synchronous = EXTRA")
        yield database
        database.execute("PRAGMA main.wal_checkpoint(TRUNCATE)")


def _insert(path: Path, database: sqlite3.Connection) -> int:
    """Insert the rows of the attached database ``added``.

    Return the number of all rows.
    """
    marker = _newest(database)
    before = marker.rows if marker else database.execute("SELECT count(*) FROM main.rows").fetchone()[0]
    new, old = _columns_of(database, "added"), _columns_of(database, "main")
    if any(new.get(name) != kind for name, kind in old.items()):
        raise unlike(path, "sqlite")
    for name, kind in new.items():
        if name not in old:
            database.execute(f"ALTER TABLE main.rows ADD COLUMN {quoted_name(name)} {kind}")
    removed = _remove(database)
    names = ", ".join(map(quoted_name, new))
    inserted = database.execute(
        f"INSERT INTO main.rows ({names}) SELECT {names} FROM added.rows ORDER BY rowid"  # noqa: S608
    ).rowcount
    if inserted != database.execute("SELECT count(*) FROM added.rows").fetchone()[0]:
        raise differs(path)
    return int(before) - removed + inserted


def _remove(database: sqlite3.Connection) -> int:
    """Delete the rows whose places are in the table `REMOVED` of ``added``.

    Return their number.
    """
    if not _columns_of(database, "added", REMOVED):
        return 0
    places = {place for (place,) in database.execute(f"SELECT place FROM added.{REMOVED}")}  # noqa: S608
    first, count = min(places), max(places) - min(places) + 1  # the newest rows are the last ones
    rows = database.execute("SELECT rowid FROM main.rows ORDER BY rowid LIMIT ? OFFSET ?", (count, first))
    found = [one for place, one in enumerate(rows, first) if place in places]
    return database.executemany("DELETE FROM main.rows WHERE rowid = ?", found).rowcount


def _newest(database: sqlite3.Connection) -> Marker | None:
    if not _columns_of(database, "main", MARKERS):
        return None
    return newest_marker(database)


# Reading


def _tally(path: Path, stop: threading.Event | None = None) -> Tally:
    """Return the tally of a database."""
    with _opened(path, stop) as database:
        return _sum(database, "SELECT * FROM main.rows")


def _sum(database: sqlite3.Connection, query: str, *parameters: int) -> Tally:
    """Return the tally of a query."""
    tally, found = Tally(0, 0), database.execute(query, parameters)
    while batch := found.fetchmany(1_000):
        tally = _added(tally, batch)
    return tally


def _added(tally: Tally, rows: Sequence[tuple[Any, ...]]) -> Tally:
    """Add rows to a tally: their number, and the sum of their hashes.

    Equal rows have equal hashes within one process, and the order of the rows does not matter.
    """
    return Tally(tally.rows + len(rows), tally.checksum + sum(map(hash, rows)))


def _check_columns(path: Path, columns: Sequence[Column]) -> None:
    """Refuse a database with other columns than these; it may lack some."""
    with _opened(path) as database:
        found = _columns_of(database, "main")
    if extended([*found], columns) is None:
        raise unlike(path, "sqlite")
    kinds = {column.name: _type(column) for column in (_LABEL, *columns)}
    if any(kinds[name] != kind for name, kind in found.items()):
        raise unlike(path, "sqlite")


def _columns_of(database: sqlite3.Connection, schema: str, table: str = "rows") -> dict[str, str]:
    """Return the type of each column; an empty dict for a table that does not exist."""
    query = "SELECT name, type FROM pragma_table_info(?, ?) ORDER BY cid"
    return dict(database.execute(query, (table, schema)).fetchall())


def _uri(path: Path, mode: str) -> str:
    return f"{path.resolve().as_uri()}?mode={mode}"


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(_uri(path, mode), uri=True, timeout=BUSY, isolation_level=None)
    database.execute("PRAGMA trusted_schema = OFF")
    return database


@contextmanager
def _opened(path: Path, stop: threading.Event | None = None) -> Iterator[sqlite3.Connection]:
    """Open an existing database to read its rows.

    SQLite would create a missing one.

    Raises:
        ConfigurationError: it is no database of an export.
        TargetInUseError: another program has locked it.

    """
    path.stat()
    with closing(_connected(path, "ro")) as database:
        try:
            with interrupting(stop, database.interrupt, sqlite3.Error):
                database.execute("PRAGMA query_only = ON")
                _check_plain(path, database)
                yield database
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if _code(error) in LOCKED:
                raise in_use(path) from error
            raise unlike(path, "sqlite") from None


def _check_plain(path: Path, database: sqlite3.Connection) -> None:
    """Refuse rows, or markers, that the file would have to compute.

    The file may come from anywhere.
    """
    kinds = {
        name.lower(): (kind, root)
        for kind, name, root in database.execute("SELECT type, name, rootpage FROM main.sqlite_master")
    }
    if "rows" not in kinds:
        raise unlike(path, "sqlite")
    for table in ("rows", MARKERS):
        kind, root = kinds.get(table, ("table", 1))
        if kind != "table" or not root:
            raise not_a_table(path, "a view" if kind == "view" else "a virtual table")
        if any(hidden for *_, hidden in database.execute(f"PRAGMA main.table_xinfo({table})")):
            raise not_a_table(path, "a table with generated columns")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as errors of the file.

    Raises:
        ConfigurationError: it is no database.
        TargetInUseError: another program has locked it.
        OSError: it cannot be written.

    """
    try:
        yield
    except sqlite3.Error as error:
        if _code(error) in LOCKED:
            raise in_use(path) from error
        if _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise unlike(path, "sqlite") from error
        raise OSError(f"{path}: {error}") from error


def _code(error: Exception) -> int:
    """Return the primary code of an error of SQLite; 0 for other errors."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


FORMAT = Sqlite()
