"""SQLite database with one table, ``rows``.

Whole numbers and times (Unix seconds) are INTEGER, amounts and decimals are TEXT because SQLite has no exact
type for them (amounts by choice REAL, or BLOB of 32 bytes); records, lists and other JSON are JSON texts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count, repeat
from pathlib import Path
from typing import Any, Final

from chainapi.export.formats import Dropped, Rows
from chainapi.export.formats.values import (
    NESTED,
    Tally,
    check_written,
    extended,
    loads,
    not_a_table,
    require,
    typed_row,
    unlike,
)
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.rows import json_text, reader
from chainapi.tables.types import SCALARS, Kind, bytes_of

__all__ = ["FORMAT", "Sqlite"]


class Sqlite:
    """Rows as a table of a SQLite database."""

    name: Final = "sqlite"
    suffix: Final = ".sqlite"
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
        ordered = list(columns) if previous is None else _columns_in(previous, columns)
        path.unlink(missing_ok=True)
        with _explained(path), closing(sqlite3.connect(path, isolation_level=None)) as database:
            # An incomplete file is deleted: it needs no journal.
            database.execute("PRAGMA journal_mode=OFF")
            database.execute("PRAGMA synchronous=OFF")
            if previous is not None:
                database.execute("ATTACH ? AS previous", (str(previous),))
            database.execute("BEGIN")
            database.execute(f"CREATE TABLE rows ({', '.join(map(_declared, (_LABEL, *ordered)))})")
            insert = f"INSERT INTO rows VALUES ({', '.join('?' * (len(ordered) + 1))})"  # noqa: S608
            written = Tally(0, 0)
            for batch in _batches(database, ordered, rows, previous, dropped):
                database.executemany(insert, batch)
                written = _added(written, batch)
            database.execute("COMMIT")
        return check_written(path, written, _tally(path))

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a database."""
        if columns:
            _columns_in(path, columns)
        with _opened(path) as database:
            found = database.execute("SELECT * FROM main.rows ORDER BY rowid")
            names = [name for name, *_ in found.description]
            for values in found:
                row = dict(zip(names, values, strict=True))
                yield _typed(row, columns) if columns else row


# Writing

_LABEL = Column(SOURCE, "text")


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _declared(column: Column) -> str:
    return f"{_name(column.name)} {_type(column)}"


def _type(column: Column) -> str:
    return "TEXT" if column.kind in NESTED else SCALARS[column.kind].sqlite


def _batches(
    database: sqlite3.Connection,
    columns: Sequence[Column],
    rows: Rows,
    previous: Path | None,
    dropped: Dropped,
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of the attached database ``previous``, then the new ones.

    The database may have fewer columns; its rows have NULL there.
    """
    if previous is not None:
        names = [name for _, name, *_ in database.execute("PRAGMA previous.table_info(rows)")]
        taken = [*map(_name, names), *["NULL"] * (len(columns) + 1 - len(names))]
        old = _fetched(database, f"SELECT {', '.join(taken)} FROM previous.rows ORDER BY rowid")  # noqa: S608
        places = count()
        yield from ([row for row in batch if next(places) not in dropped] for batch in old)
    read, forms = reader(columns, nested=False), [_FORMS.get(column.kind) for column in columns]
    for label, lines in rows:
        values = [
            found if form is None else [*map(form, found)]
            for form, found in zip(forms, read(lines), strict=True)
        ]
        yield [*zip(repeat(label), *values, strict=False)]


def _fetched(database: sqlite3.Connection, query: str) -> Iterator[list[tuple[Any, ...]]]:
    found = database.execute(query)
    while batch := found.fetchmany(1_000):
        yield batch


def _blob(text: str | None) -> bytes | None:
    return None if text is None else bytes_of(text)


_FORMS: Mapping[Kind, Callable[[Any], Any]] = {"bytes32": _blob, **dict.fromkeys(NESTED, json_text)}


# Reading


def _tally(path: Path) -> Tally:
    """Return the tally of a database."""
    tally = Tally(0, 0)
    with _opened(path) as database:
        for batch in _fetched(database, "SELECT * FROM main.rows"):
            tally = _added(tally, batch)
    return tally


def _added(tally: Tally, rows: Sequence[tuple[Any, ...]]) -> Tally:
    """Add rows to a tally: their number, and the sum of their hashes.

    Equal rows have equal hashes within one process, and the order of the rows does not matter.
    """
    return Tally(tally.rows + len(rows), tally.checksum + sum(map(hash, rows)))


def _columns_in(path: Path, columns: Sequence[Column]) -> list[Column]:
    """Return the columns of a database, and behind them those that it lacks."""
    with _opened(path) as database:
        found = database.execute("SELECT name, type FROM pragma_table_info('rows') ORDER BY cid").fetchall()
    ordered = extended([name for name, _ in found], columns)
    if ordered is None:
        raise unlike(path, "sqlite")
    if any(_type(column) != kind for column, (_, kind) in zip(ordered, found[1:], strict=False)):
        raise unlike(path, "sqlite")
    return ordered


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing database to read its rows.

    SQLite would create a missing one.
    """
    path.stat()
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        try:
            _check_plain(path, database)
            yield database
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            raise unlike(path, "sqlite") from None


def _check_plain(path: Path, database: sqlite3.Connection) -> None:
    """Refuse rows that the file would have to compute.

    The file may come from anywhere.
    """
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA query_only = ON")
    kinds = {
        name.lower(): (kind, root)
        for kind, name, root in database.execute("SELECT type, name, rootpage FROM main.sqlite_master")
    }
    kind, root = kinds.get("rows", ("", 0))
    if not kind:
        raise unlike(path, "sqlite")
    if kind != "table" or not root:
        raise not_a_table(path, "a view" if kind == "view" else "a virtual table")
    if any(hidden for *_, hidden in database.execute("PRAGMA main.table_xinfo(rows)")):
        raise not_a_table(path, "a table with generated columns")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as OSError: the file cannot be written."""
    try:
        yield
    except sqlite3.Error as error:
        raise OSError(f"{path}: {error}") from error


def _typed(row: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    nested = {column.name for column in columns if column.kind in NESTED}
    parsed = {name: loads(value) if value and name in nested else value for name, value in row.items()}
    return typed_row(parsed, columns)


FORMAT = Sqlite()
