"""SQLite database with one table, ``rows``.

Whole numbers and times (Unix seconds) are INTEGER, amounts and decimals are TEXT because SQLite has no exact
type for them, records, lists and other JSON are JSON texts. A column of whole numbers is TEXT if one of them
does not fit into 64 bits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from chainapi.export.formats import Rows
from chainapi.export.formats.values import NESTED, header, loads, not_a_table, require, unlike, value_of
from chainapi.tables.columns import SOURCE, Column, json_text, unpacker

__all__ = ["FORMAT", "Sqlite"]

_TYPES = {"integer": "INTEGER", "time": "INTEGER", "boolean": "INTEGER", "float": "REAL"}


class Sqlite:
    """Rows as a table of a SQLite database."""

    name: Final = "sqlite"
    suffix: Final = ".sqlite"
    needs_columns: Final = True

    def write(self, path: Path, columns: Sequence[Column], rows: Rows, previous: Path | None = None) -> None:
        """Write a database."""
        require(columns, self.name)
        types = ["TEXT", *(_TYPES.get(column.kind, "TEXT") for column in columns)]
        before = types if previous is None else _types_in(previous, columns)
        types = _joined(types, before)
        try:
            self._write(path, columns, rows, (previous, before), types)
        except OverflowError:
            types = _joined(types, _types_needed(columns, rows()))
            self._write(path, columns, rows, (previous, before), types)

    @staticmethod
    def _write(
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        earlier: tuple[Path | None, Sequence[str]],
        types: Sequence[str],
    ) -> None:
        path.unlink(missing_ok=True)
        names = [_name(name) for name in header(columns)]
        previous, before = earlier
        with _explained(path), closing(sqlite3.connect(path, isolation_level=None)) as database:
            # An incomplete file is deleted: it needs no journal.
            database.execute("PRAGMA journal_mode=OFF")
            database.execute("PRAGMA synchronous=OFF")
            if previous is not None:
                database.execute("ATTACH ? AS previous", (str(previous),))
            database.execute("BEGIN")
            declared = ", ".join(f"{name} {kind}" for name, kind in zip(names, types, strict=True))
            database.execute(f"CREATE TABLE rows ({declared})")
            if previous is not None:
                taken = ", ".join(
                    name if kind == had else f"CAST({name} AS {kind})"
                    for name, kind, had in zip(names, types, before, strict=True)
                )
                database.execute(f"INSERT INTO rows SELECT {taken} FROM previous.rows ORDER BY rowid")  # noqa: S608
            places = ", ".join("?" * len(names))
            database.executemany(f"INSERT INTO rows VALUES ({places})", _records(columns, types, rows()))  # noqa: S608
            database.execute("COMMIT")

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a database."""
        with _opened(path) as database:
            if columns:
                _types_in(path, columns)
            found = database.execute("SELECT * FROM main.rows ORDER BY rowid")
            names = [name for name, *_ in found.description]
            for values in found:
                row = dict(zip(names, values, strict=True))
                yield _typed(row, columns) if columns else row


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _records(
    columns: Sequence[Column], types: Sequence[str], rows: Iterable[tuple[str, bytes]]
) -> Iterator[tuple[Any, ...]]:
    unpack = unpacker(columns, nested=False)
    changes = [
        (number, change)
        for number, (column, kind) in enumerate(zip(columns, types[1:], strict=True))
        if (change := _change(column, kind)) is not None
    ]
    for source, row in rows:
        values = [*unpack(row)]
        for number, change in changes:
            if values[number] is not None:
                values[number] = change(values[number])
        yield (source, *values)


def _change(column: Column, kind: str) -> Callable[[Any], Any] | None:
    if column.kind in NESTED:
        return json_text
    return str if kind == "TEXT" and column.kind in ("integer", "big", "time") else None


def _types_needed(columns: Sequence[Column], rows: Iterable[tuple[str, bytes]]) -> list[str]:
    """Return the types that the rows need, after one of them did not fit."""
    unpack = unpacker(columns, nested=False)
    types = [_TYPES.get(column.kind, "TEXT") for column in columns]
    for _, row in rows:
        for number, value in enumerate(unpack(row)):
            if types[number] == "INTEGER" and value is not None and not -(2**63) <= value < 2**63:
                types[number] = "TEXT"
    return ["TEXT", *types]


def _joined(one: Sequence[str], other: Sequence[str]) -> list[str]:
    return ["TEXT" if "TEXT" in pair else pair[0] for pair in zip(one, other, strict=True)]


def _types_in(path: Path, columns: Sequence[Column]) -> list[str]:
    with _opened(path) as database:
        found = database.execute("SELECT name, type FROM pragma_table_info('rows') ORDER BY cid").fetchall()
    if [name for name, _ in found] != header(columns):
        raise unlike(path, "sqlite")
    return [kind for _, kind in found]


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
    """Raise errors of SQLite that come from the operating system as OSError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(f"{path}: {error}") from error


def _typed(row: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    made = {SOURCE: row[SOURCE]}
    for column in columns:
        value = row[column.name]
        made[column.name] = value_of(column, loads(value) if value and column.kind in NESTED else value)
    return made


FORMAT = Sqlite()
