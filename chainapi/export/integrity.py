"""Checksums and counts that find a damaged journal before anything is fetched.

Each record has a checksum over its fields, each table a count of its records. SQLite itself does not notice a
bit that flipped inside a value, and an index that differs from its table would lose or repeat rows.
A number that changes in place is added to the checksum instead of hashed, so that an SQL statement can change
both.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any
from zlib import crc32

__all__ = ["checksum", "find_damage", "row_checksum"]


def checksum(*fields: object) -> int:
    """Return the checksum of a record: texts, whole numbers, None."""
    return crc32(repr(fields).encode("utf-8", "surrogatepass"))


def row_checksum(source: int, position: int, digest: bytes, row: bytes) -> int:
    """Return the checksum of a row without the number of its pass, which is added."""
    return crc32(row, crc32(b"%d %d " % (source, position) + digest))


def find_damage(database: sqlite3.Connection, schema: str) -> str:
    """Return the first damage to a database; an empty text if there is no damage.

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
    yield from _damage_in_rows(database)


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
    """Compare the records of the small tables with their checksums and counts."""
    for table, columns in _RECORDS.items():
        count = 0
        for *fields, stored in database.execute(f"SELECT {columns}, checksum FROM {table}"):  # noqa: S608
            count += 1
            added = fields.pop() if table == "sources" else 0
            if not isinstance(added, int) or stored != checksum(*fields) + added:
                yield f"a record of {table}: {fields[0]!r}"
        if totals.pop(table, None) != count:
            yield f"the number of {table}"
    if totals:
        yield "its counts"


_RECORDS = {
    "about": "name, value",
    "sources": "number, label, query, checkpoint, taken, newest, floor, edge, done, kept",
    "parts": "number, name, rows, size, digest, invalid, state",
}


def _damage_in_rows(database: sqlite3.Connection) -> Iterator[str]:
    counts = Counter[int]()
    for source, position, digest, walk_pass, stored, row in database.execute(
        "SELECT source, place, digest, pass, checksum, row FROM rows"
    ):
        counts[source] += 1
        match source, position, digest, walk_pass, row:
            case int(), int(), bytes(), int(), bytes() if (
                stored == row_checksum(source, position, digest, row) + walk_pass
            ):
                pass
            case _:
                yield f"row {position!r} of source {source!r}"
    for number, label, kept in database.execute("SELECT number, label, kept FROM sources"):
        if counts.pop(number, 0) != kept:
            yield f"the number of rows of {label!r}"
    if counts:
        yield "rows of an unknown source"
