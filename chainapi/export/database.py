"""Tables of the journal of an export, and what errors of SQLite mean for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chainapi.errors import ExportError

__all__ = ["FORMAT", "TABLES", "damaged", "explained", "readable"]

FORMAT = 3

TABLES = """
CREATE TABLE totals (
    name TEXT PRIMARY KEY, records INTEGER NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (
    number INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE, query TEXT NOT NULL, checkpoint TEXT,
    taken INTEGER NOT NULL, newest TEXT, floor TEXT, edge TEXT NOT NULL, done INTEGER NOT NULL,
    kept INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE rows (
    source INTEGER NOT NULL, place INTEGER NOT NULL, digest BLOB NOT NULL, pass INTEGER NOT NULL,
    checksum INTEGER NOT NULL, row BLOB NOT NULL, PRIMARY KEY (source, place)
) WITHOUT ROWID;
CREATE INDEX digests ON rows (source, digest);
CREATE TABLE parts (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, rows INTEGER NOT NULL, size INTEGER NOT NULL,
    digest TEXT NOT NULL, invalid INTEGER NOT NULL, whole INTEGER NOT NULL, checksum INTEGER NOT NULL
);
"""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say what SQLite's errors mean here."""
    try:
        yield
    except sqlite3.Error as error:
        raise ExportError(_explanation(path, error)) from error
    except UnicodeDecodeError as error:  # in what SQLite says about a damaged file
        raise ExportError(damaged(path, "its texts")) from error


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say what it means that something read back is not what was written."""
    try:
        with explained(path):
            yield
    except (ValueError, TypeError, OverflowError) as error:
        raise ExportError(damaged(path, type(error).__name__)) from error


def damaged(path: Path, fault: object) -> str:
    """Return the message of an error about a damaged journal."""
    return (
        f"{path} is damaged ({fault}): what the target has cannot be told from it. Put back a copy of it, or "
        "start over: move it away together with the target, or choose another target"
    )


def _explanation(path: Path, error: sqlite3.Error) -> str:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"another export is writing to this target: {path} is locked"
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return (
                f"{path} cannot grow ({error}): is the disk full? What was committed is kept; "
                "make room and start the same export again"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return f"{path} cannot be written ({error}): choose a target in a folder that can"
        case sqlite3.SQLITE_NOTADB:
            return f"{path} is no state of an export ({error}): move it away, or choose another target"
        case sqlite3.SQLITE_NOMEM | sqlite3.SQLITE_TOOBIG | sqlite3.SQLITE_INTERRUPT:
            return f"{path}: {error}"
        case _:
            return damaged(path, error)
