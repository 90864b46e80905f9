"""Damage to the state of an export, found before anything is fetched: checksums and counts of its records.

Each record has a checksum over its fields, each table a count of its records. A number that is changed in
place is added to the checksum, so that SQL can change both. A flipped bit is found in a value as in the pages
of SQLite: an index that differs from its table would lose or repeat rows.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any
from zlib import crc32

__all__ = ["audit", "checksum", "row_checksum"]


def checksum(*fields: object) -> int:
    """Return the checksum of a record: texts, whole numbers, None."""
    return crc32(repr(fields).encode("utf-8", "surrogatepass"))


def row_checksum(source: int, place: int, digest: bytes, row: bytes) -> int:
    """Return the checksum of a row, the number of its pass not added."""
    return crc32(row, crc32(b"%d %d " % (source, place) + digest))


def audit(database: sqlite3.Connection, tables: str) -> str:
    """Return what is wrong with a state whose tables were made by `tables`; nothing where all is right.

    Raises:
        sqlite3.Error: it cannot be read.

    """
    return next(_faults(database, tables), "")


def _faults(database: sqlite3.Connection, tables: str) -> Iterator[str]:
    if _schema(database) != _expected_schema(tables):
        yield "its tables are not those of an export"
    (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        yield str(found)
    totals = dict[object, object]()
    for name, records, kept in database.execute("SELECT name, records, checksum FROM totals"):
        totals[name] = records
        if not (isinstance(records, int) and kept == checksum(name) + records):
            yield f"the count of {name!r}"
    yield from _faults_in_records(database, totals)
    yield from _faults_in_rows(database)


def _schema(database: sqlite3.Connection) -> set[tuple[Any, ...]]:
    return set(database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


def _expected_schema(tables: str) -> set[tuple[Any, ...]]:
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(tables)
        return _schema(database)
    finally:
        database.close()


def _faults_in_records(database: sqlite3.Connection, totals: dict[object, object]) -> Iterator[str]:
    """Compare each record of the small tables with its checksum, and their numbers with the counts."""
    for table, columns in _RECORDS.items():
        count = 0
        for *fields, kept in database.execute(f"SELECT {columns}, checksum FROM {table}"):  # noqa: S608
            count += 1
            added = fields.pop() if table == "sources" else 0
            if not isinstance(added, int) or kept != checksum(*fields) + added:
                yield f"a record of {table}: {fields[0]!r}"
        if totals.pop(table, None) != count:
            yield f"the number of {table}"
    if totals:
        yield "its counts"


_RECORDS = {
    "about": "name, value",
    "sources": "number, label, query, checkpoint, taken, newest, floor, edge, done, kept",
    "parts": "number, name, rows, size, digest, invalid, whole",
}


def _faults_in_rows(database: sqlite3.Connection) -> Iterator[str]:
    counts = Counter[int]()
    for source, place, digest, walk_pass, kept, row in database.execute(
        "SELECT source, place, digest, pass, checksum, row FROM rows"
    ):
        counts[source] += 1
        match source, place, digest, walk_pass, row:
            case int(), int(), bytes(), int(), bytes() if (
                kept == row_checksum(source, place, digest, row) + walk_pass
            ):
                pass
            case _:
                yield f"row {place!r} of source {source!r}"
    for number, label, kept in database.execute("SELECT number, label, kept FROM sources"):
        if counts.pop(number, 0) != kept:
            yield f"the number of rows of {label!r}"
    if counts:
        yield "rows of no source"
