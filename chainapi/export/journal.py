"""What an export remembers: a SQLite database beside its target, with the rows that wait for the final file.

The rows of a page and the checkpoint behind them are committed in one transaction, which SQLite syncs to the
disk: after a kill or a power cut the database knows both or neither. It is locked for as long as it is open,
so that no two exports work on one target. It is read whole when it is opened, and refused where a bit of it
was changed. Everything here blocks, and belongs to one thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import evolve

from chainapi.errors import ExportError
from chainapi.export.columns import INVALID
from chainapi.export.database import FORMAT, TABLES, damaged, explained, readable
from chainapi.export.integrity import audit, checksum
from chainapi.export.records import Batch, Part, SourceState, bring_up_to_date, fields, records, source_of

__all__ = ["State"]

FETCHED_AT_ONCE = 1_000  # rows


class State:
    """The database of one export.

    Attributes:
        path: where it is.
        invalid: how many of the rows kept since it was opened could not be made.

    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.invalid = 0
        self._db = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the database, or make it.

        Raises:
            ExportError: another export has it open, it is none of ours, it is damaged, or it cannot be
                written.

        """
        with explained(path):
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        state = cls(path, connection)
        try:
            with explained(path):
                state._prepare()
        except BaseException:
            connection.close()
            raise
        return state

    def close(self) -> None:
        """Let go of the database and its lock."""
        self._db.close()

    def _prepare(self) -> None:
        db = self._db
        db.execute("PRAGMA locking_mode = EXCLUSIVE")  # held from the first write on
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        new = version == 0 and not tables
        if not new and version != FORMAT:
            raise ExportError(
                f"{self.path} is no state of an export that this version of chainapi reads: "
                "move it away, or choose another target"
            )
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")  # a commit is on the disk when it returns
        with self._transaction():
            if new:
                self._make_tables()
        if not new and (fault := audit(db, TABLES)):
            raise ExportError(damaged(self.path, fault))

    def _make_tables(self) -> None:
        for statement in TABLES.split(";"):
            self._db.execute(statement)
        totals = [(name, checksum(name)) for name in ("about", "sources", "parts")]
        self._db.executemany("INSERT INTO totals VALUES (?, 0, ?)", totals)
        self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _count(self, table: str, more: int) -> None:
        """Note how many records a table has more than before."""
        self._db.execute(
            "UPDATE totals SET records = records + :more, checksum = checksum + :more WHERE name = :table",
            {"more": more, "table": table},
        )

    # What the export is of

    def about(self) -> dict[str, Any]:
        """Return what the export was begun with; nothing for a new one."""
        with readable(self.path):
            found = self._db.execute("SELECT name, value FROM about")
            return {name: json.loads(value) for name, value in found}

    def untouched(self) -> bool:
        """Tell whether no page was ever kept."""
        with readable(self.path):
            (pages,) = self._db.execute(
                "SELECT EXISTS (SELECT 1 FROM sources WHERE checkpoint IS NOT NULL)"
            ).fetchone()
        return not pages

    def begin(self, about: Mapping[str, Any]) -> None:
        """Note what the export is begun with, in place of whatever was noted."""
        texts = {name: json.dumps(value) for name, value in about.items()}
        rows = [(name, text, checksum(name, text)) for name, text in texts.items()]
        with self._transaction():
            self._count("about", len(rows) - self._db.execute("DELETE FROM about").rowcount)
            self._count("sources", -self._db.execute("DELETE FROM sources").rowcount)
            self._db.executemany("INSERT INTO about VALUES (?, ?, ?)", rows)

    # Sources and their rows

    def source(self, label: str, query: str) -> SourceState:
        """Return the source of this label; a new one is made, and known from its first page on."""
        with readable(self.path):
            found = self._db.execute(
                "SELECT number, label, query, checkpoint, taken, newest, floor, edge, done FROM sources"
                " WHERE label = ?",
                (label,),
            ).fetchone()
            if found is not None:
                return source_of(*found)
        with self._transaction():
            (number,) = self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM sources").fetchone()
            source = SourceState(number, label, query)
            values = fields(source)
            self._count("sources", 1)
            self._db.execute(
                "INSERT INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)", (*values, checksum(*values))
            )
        return source

    def commit(self, batches: Sequence[Batch]) -> int:
        """Keep the rows of some pages, together with where their walks stand; return how many were new."""
        invalid = self.invalid
        try:
            with self._transaction():
                return sum(self._keep(batch) for batch in batches)
        except BaseException:
            self.invalid = invalid
            raise

    def _keep(self, batch: Batch) -> int:
        source, db = batch.source, self._db
        rows = self._new_rows(batch)
        (place,) = db.execute(
            "SELECT coalesce(max(place), 0) FROM rows WHERE source = ?", (source.number,)
        ).fetchone()
        encoded = [(digest, batch.encode(row)) for digest, row in rows]
        self.invalid += sum(row.startswith(INVALID) for _, row in encoded)
        db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", records(batch, place, encoded))
        bring_up_to_date(source, batch)
        number, _, _, *changed = values = fields(source)
        db.execute(
            "UPDATE sources SET checkpoint = ?, taken = ?, newest = ?, floor = ?, edge = ?, done = ?,"
            " kept = kept + ?, checksum = ? + kept WHERE number = ?",
            (*changed, len(rows), checksum(*values) + len(rows), number),
        )
        return len(rows)

    def _new_rows(self, batch: Batch) -> list[tuple[bytes, Any]]:
        """Return the rows of a batch that are not kept yet: in a later pass, each as often as it is new."""
        rows = zip(batch.digests, batch.rows, strict=True)
        if not batch.checkpoint.restarts:
            return list(rows)
        for digest in batch.known:
            self._meet(batch, digest)
        return [(digest, row) for digest, row in rows if not (batch.counted and self._meet(batch, digest))]

    def _meet(self, batch: Batch, digest: bytes) -> bool:
        """Note that this pass has met a row that is kept; False where none is left that it could be."""
        met = self._db.execute(
            "UPDATE rows SET pass = :pass, checksum = checksum - pass + :pass"
            " WHERE source = :source AND place = (SELECT min(place) FROM rows"
            " WHERE source = :source AND digest = :digest AND pass < :pass)",
            {"pass": batch.checkpoint.restarts, "source": batch.source.number, "digest": digest},
        )
        return met.rowcount > 0

    # Final files

    def waiting(self) -> tuple[int, int]:
        """Return how many valid and how many invalid rows wait for their file."""
        with readable(self.path):
            made, invalid = self._db.execute(
                "SELECT coalesce(sum(substr(row, 1, 1) != :sign), 0),"
                " coalesce(sum(substr(row, 1, 1) = :sign), 0)"
                " FROM rows JOIN sources ON number = source WHERE done",
                {"sign": INVALID},
            ).fetchone()
        return int(made), int(invalid)

    def finished(self) -> int:
        """Return how many sources are at their end."""
        with readable(self.path):
            (count,) = self._db.execute("SELECT count(*) FROM sources WHERE done").fetchone()
        return int(count)

    def finished_rows(self, *, invalid: bool = False) -> Iterator[tuple[str, bytes]]:
        """Give the rows of finished sources with their labels, source by source.

        Those that could not be made are left out; with `invalid`, all others are.
        """
        with explained(self.path):
            cursor = self._db.execute(
                "SELECT label, row FROM sources CROSS JOIN rows ON source = number"
                " WHERE done AND (substr(row, 1, 1) = ?) = ? ORDER BY number, place",
                (INVALID, invalid),
            )
            cursor.arraysize = FETCHED_AT_ONCE
            while rows := cursor.fetchmany():
                yield from rows

    def last_part(self) -> Part | None:
        """Return the final file that was written, or begun, last."""
        with readable(self.path):
            found = self._db.execute(
                "SELECT number, name, rows, size, digest, invalid, whole FROM parts"
                " ORDER BY number DESC LIMIT 1"
            ).fetchone()
        if found is None:
            return None
        number, name, rows, size, digest, invalid, whole = found
        return Part(number, name, rows, size, digest, invalid, bool(whole))

    def part_written(self, part: Part) -> None:
        """Note, before it gets its name, which file will have the rows that wait."""
        fields = part.fields
        with self._transaction():
            self._count("parts", 1)
            self._db.execute(
                "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, checksum(*fields))
            )

    def part_in_place(self, part: Part) -> None:
        """Note that the file has its name: the rows in it wait no longer."""
        fields = evolve(part, whole=True).fields
        with self._transaction():
            self._db.execute(
                "UPDATE parts SET whole = 1, checksum = ? WHERE number = ?", (checksum(*fields), part.number)
            )
            self._db.execute("DELETE FROM rows WHERE source IN (SELECT number FROM sources WHERE done)")
            self._db.execute("UPDATE sources SET checksum = checksum - kept, kept = 0 WHERE done")
        with explained(self.path):
            self._db.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")

    def part_given_up(self, part: Part) -> None:
        """Forget a file that never got its name."""
        with self._transaction():
            self._count("parts", -1)
            self._db.execute("DELETE FROM parts WHERE number = ?", (part.number,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with explained(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
