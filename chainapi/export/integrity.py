"""Checksums and counts that find a damaged journal before anything is fetched.

Each record has a checksum over its fields, each table a count of its records. SQLite itself does not notice a
bit that flipped inside a value, and an index that differs from its table would lose or repeat rows.
The count of a table is added to its checksum instead of hashed, so that an SQL statement can change both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

__all__ = ["COLUMNS", "checksum", "damaged", "find_damage"]

# Columns of each table whose records are counted, the checksum apart.
COLUMNS: Mapping[str, str] = {
    "about": "name, value",
    "sources": "number, label, query, place, checkpoint, taken, newest, floor, edge, window, done",
    "pages": "number, source, place, segment, start, length, rows, invalid_length, invalid, lowest, highest,"
    " crc, stored, first",
    "row_groups": "segment, start, length, rows, crc, tally, footer",
    "digests": "page, source, place, pass, added, again",
    "parts": "number, state, upto, content",
    "invalid": "part, digests",
}


def checksum(*fields: object) -> int:
    """Return the checksum of a record: strings, bytes, whole numbers, None."""
    plain: list[object] = [*fields]
    if bytes in {*map(type, fields)}:
        plain = [("bytes", crc32(one)) if isinstance(one, bytes) else one for one in fields]
    return crc32(repr(plain).encode("utf-8", "surrogatepass"))


def damaged(path: Path, damage: object) -> str:
    """Return the message of an error about a damaged journal or segment."""
    return (
        f"{path} is damaged ({damage}), so the export does not know which rows the target has: put back a "
        f"copy of {path.parent}; or start over: move it away together with the target, or choose another "
        "target"
    )


def find_damage(database: sqlite3.Connection, schema: str) -> str:
    """Return the first damage to a database; an empty string if there is no damage.

    Raises:
        sqlite3.Error: the database cannot be read.

    """
    return next(_damage(database, schema), "")


def _damage(database: sqlite3.Connection, schema: str) -> Iterator[str]:
    if _objects(database) != _expected_objects(schema):
        yield "its tables are not those of a journal"
    (result,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if result != "ok":
        yield str(result)
    totals = dict[object, object]()
    for name, records, stored in database.execute("SELECT name, records, checksum FROM totals"):
        totals[name] = records
        if not (isinstance(records, int) and stored == checksum(name) + records):
            yield f"the count of {name!r}"
    yield from _damage_in_records(database, totals)


def _objects(database: sqlite3.Connection) -> set[tuple[Any, ...]]:
    """Return the tables, indexes and triggers of a database."""
    return set(database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


def _expected_objects(schema: str) -> set[tuple[Any, ...]]:
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(schema)
        return _objects(database)
    finally:
        database.close()


def _damage_in_records(database: sqlite3.Connection, totals: dict[object, object]) -> Iterator[str]:
    """Compare each record with its checksum, and each table with its count."""
    for table, columns in COLUMNS.items():
        count = 0
        for *fields, stored in database.execute(f"SELECT {columns}, checksum FROM {table}"):  # noqa: S608
            count += 1
            if stored != checksum(*fields):
                yield f"a record of {table}: {fields[0]!r}"
        if totals.pop(table, None) != count:
            yield f"the number of {table}"
    if totals:
        yield "its counts"
