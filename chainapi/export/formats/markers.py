"""Markers: the table ``chainapi_parts`` in a database of an export.

It has a row for each part. The rows of a part and its marker are added in one transaction, so that the newest
marker says whether a part is in the database. SQLite and DuckDB share the statements.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import frozen

from chainapi.errors import ExportError, TargetInUseError

__all__ = ["MARKERS", "REMOVED", "Marker", "add_marker", "differs", "in_use", "newest_marker", "quoted_name"]

MARKERS = "chainapi_parts"
REMOVED = "removed"  # in a file with new rows: places of rows that they replace
CREATE = f"CREATE TABLE IF NOT EXISTS {MARKERS} (part BIGINT, run VARCHAR, rows BIGINT)"
INSERT = f"INSERT INTO {MARKERS} (part, run, rows) VALUES (?, ?, ?)"  # noqa: S608
NEWEST = f"SELECT part, run, rows FROM {MARKERS} ORDER BY part DESC LIMIT 1"  # noqa: S608


@frozen
class Marker:
    """Marker of a part.

    Attributes:
        part: number of the part.
        run: name of the run that added it.
        rows: number of rows of the table ``rows`` with those of the part.

    """

    part: int
    run: str
    rows: int


def quoted_name(name: str) -> str:
    """Return the name of a column as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def add_marker(database: Any, marker: Marker) -> None:
    """Add a marker within the transaction of a connection."""
    database.execute(CREATE)
    database.execute(INSERT, (marker.part, marker.run, marker.rows))


def newest_marker(database: Any) -> Marker | None:
    """Return the newest marker that a connection sees; None if the table is empty."""
    found = database.execute(NEWEST).fetchone()
    return None if found is None else Marker(*found)


def in_use(path: Path) -> TargetInUseError:
    """Return the error for a database that another program has open."""
    return TargetInUseError(
        f"{path} is locked: another program, or another connection of this one, has it open. Close it there, "
        "and start the same export again; all rows are kept in the journal"
    )


def differs(path: Path) -> ExportError:
    """Return the error for a database whose newest rows are not those that were added."""
    return ExportError(
        f"{path} has other rows when it is read back than were added: the disk or the file system lost some "
        "of them, or a trigger changed them. All new rows are kept in the journal: check the disk, put a "
        "copy of the file from before this run back, and start the same export again"
    )
