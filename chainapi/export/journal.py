"""Journal of an export: settings, positions of sources, pending rows, files.

It is a SQLite database beside the target. The rows of a page and the checkpoint behind them are one
transaction, which SQLite syncs to the disk: after a kill or a power cut the journal has both or neither.
Everything here blocks, and belongs to one thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Self

from attrs import evolve

from chainapi.export.database import Database
from chainapi.export.integrity import checksum
from chainapi.export.records import CLEANED, IN_PLACE, Batch, Part, SourceRecord
from chainapi.export.spec import free_label
from chainapi.tables.codec import INVALID

__all__ = ["Journal"]

FETCHED_AT_ONCE = 1_000  # rows


class Journal:
    """Journal of one export.

    Attributes:
        path: path of the database.
        invalid: number of invalid rows committed since the journal was opened.

    """

    def __init__(self, database: Database) -> None:
        self.path = database.path
        self.invalid = 0
        self._database = database

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create the journal, lock it and check it.

        Raises:
            ExportError: another export has it open, it is not a journal, it is damaged, or it cannot be
                written.

        """
        return cls(Database.open(path))

    def close(self) -> None:
        """Close the journal and release its lock."""
        self._database.close()

    # Settings of the export

    def settings(self) -> dict[str, Any]:
        """Return the settings of the export; an empty dict for a new one."""
        with self._database.reading() as db:
            return {name: json.loads(value) for name, value in db.execute("SELECT name, value FROM about")}

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Store the settings of an export without pages, in place of those stored before."""
        records = [*_settings(settings)]
        with self._database.transaction() as db:
            self._database.add_to_total("about", len(records) - db.execute("DELETE FROM about").rowcount)
            self._database.add_to_total("sources", -db.execute("DELETE FROM sources").rowcount)
            db.executemany("INSERT INTO about VALUES (?, ?, ?)", records)

    def extend(self, settings: Mapping[str, Any]) -> None:
        """Store settings that say more than the stored ones: there are new columns."""
        with self._database.transaction() as db:
            for name, text, digest in _settings(settings):
                db.execute("UPDATE about SET value = ?, checksum = ? WHERE name = ?", (text, digest, name))

    def has_pages(self) -> bool:
        """Return whether a page was ever committed."""
        with self._database.reading() as db:
            (found,) = db.execute(
                "SELECT EXISTS (SELECT 1 FROM sources WHERE checkpoint IS NOT NULL)"
            ).fetchone()
        return bool(found)

    # Sources and their rows

    def source(self, label: str, query: str) -> SourceRecord:
        """Return the source with this query; create it if it is missing.

        Its label gets a suffix if another source has it.
        """
        with self._database.reading() as db:
            found = db.execute(
                "SELECT number, label, query, checkpoint, taken, newest, floor, edge, done FROM sources"
                " WHERE query = ?",
                (query,),
            ).fetchone()
            if found is not None:
                return SourceRecord.from_fields(*found)
        with self._database.transaction() as db:
            (number,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM sources").fetchone()
            source = SourceRecord(number, free_label(label, query, self._is_taken), query)
            fields = source.fields
            self._database.add_to_total("sources", 1)
            db.execute(
                "INSERT INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)", (*fields, checksum(*fields))
            )
        return source

    def _is_taken(self, label: str) -> bool:
        with self._database.reading() as db:
            (taken,) = db.execute(
                "SELECT EXISTS (SELECT 1 FROM sources WHERE label = ?)", (label,)
            ).fetchone()
        return bool(taken)

    def commit(self, batches: Sequence[Batch]) -> int:
        """Store the rows of pages and the positions behind; count and return new rows."""
        invalid = self.invalid
        try:
            with self._database.transaction() as db:
                return sum(self._store(db, batch) for batch in batches)
        except BaseException:
            self.invalid = invalid
            raise

    def _store(self, db: Connection, batch: Batch) -> int:
        source, (rows, met) = batch.source, _new_rows(db, batch)
        (last,) = db.execute(
            "SELECT coalesce(max(place), 0) FROM rows WHERE source = ?", (source.number,)
        ).fetchone()
        encoded = [(digest, batch.encode(row)) for digest, row in rows]
        self.invalid += sum(row.startswith(INVALID) for _, row in encoded)
        db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", batch.records(last, encoded))
        source.advance(batch, len(rows), met=met)
        number, _, _, *changed = fields = source.fields
        db.execute(
            "UPDATE sources SET checkpoint = ?, taken = ?, newest = ?, floor = ?, edge = ?, done = ?,"
            " kept = kept + ?, checksum = ? + kept WHERE number = ?",
            (*changed, len(rows), checksum(*fields) + len(rows), number),
        )
        return len(rows)

    # Final files

    def count_pending_rows(self) -> tuple[int, int]:
        """Return the numbers of valid and of invalid rows that wait for the final file."""
        with self._database.reading() as db:
            valid, invalid = db.execute(
                "SELECT coalesce(sum(substr(row, 1, 1) != :sign), 0),"
                " coalesce(sum(substr(row, 1, 1) = :sign), 0)"
                " FROM rows JOIN sources ON number = source WHERE done",
                {"sign": INVALID},
            ).fetchone()
        return int(valid), int(invalid)

    def count_finished_sources(self) -> int:
        """Return the number of sources whose walk has ended."""
        with self._database.reading() as db:
            (count,) = db.execute("SELECT count(*) FROM sources WHERE done").fetchone()
        return int(count)

    def pending_rows(self, *, invalid: bool = False) -> Iterator[tuple[str, bytes]]:
        """Yield each pending row, encoded, with the label of its source, by source.

        Args:
            invalid: whether to yield the invalid rows; else only the valid ones.

        """
        with self._database.reading() as db:
            cursor = db.execute(
                "SELECT label, row FROM sources CROSS JOIN rows ON source = number"
                " WHERE done AND (substr(row, 1, 1) = ?) = ? ORDER BY number, place",
                (INVALID, invalid),
            )
            cursor.arraysize = FETCHED_AT_ONCE
            while rows := cursor.fetchmany():
                yield from rows

    def last_part(self) -> Part | None:
        """Return the newest final file, in any state; None for an export without files."""
        with self._database.reading() as db:
            found = db.execute(
                "SELECT number, name, rows, size, digest, invalid, state FROM parts"
                " ORDER BY number DESC LIMIT 1"
            ).fetchone()
        return None if found is None else Part(*found)

    def begin_part(self, part: Part) -> None:
        """Store the digest of a file with the pending rows, before its rename."""
        fields = part.fields
        with self._database.transaction() as db:
            self._database.add_to_total("parts", 1)
            db.execute("INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*fields, checksum(*fields)))

    def complete_part(self, part: Part) -> None:
        """Store that a file has its name: a user may take it away from here on."""
        with self._database.transaction() as db:
            _set_state(db, part, IN_PLACE)

    def clean(self, part: Part) -> None:
        """Delete the pending rows, which are in a final file."""
        with self._database.transaction() as db:
            _set_state(db, part, CLEANED)
            db.execute("DELETE FROM rows WHERE source IN (SELECT number FROM sources WHERE done)")
            db.execute("UPDATE sources SET checksum = checksum - kept, kept = 0 WHERE done")
        self._database.shrink()

    def discard_part(self, part: Part) -> None:
        """Delete the record of a file that never got its name."""
        with self._database.transaction() as db:
            self._database.add_to_total("parts", -1)
            db.execute("DELETE FROM parts WHERE number = ?", (part.number,))


def _settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield the columns of the settings' records."""
    for name, value in settings.items():
        text = json.dumps(value)
        yield name, text, checksum(name, text)


def _set_state(db: Connection, part: Part, state: int) -> None:
    fields = evolve(part, state=state).fields
    db.execute(
        "UPDATE parts SET state = ?, checksum = ? WHERE number = ?", (state, checksum(*fields), part.number)
    )


def _new_rows(db: Connection, batch: Batch) -> tuple[list[tuple[bytes, Any]], bool]:
    """Return the rows of a batch that the journal lacks, with their digests.

    Return as well whether this pass had a row that the journal has. In a later pass equal rows are matched
    one by one: the list may hold a row more than once.
    """
    if not batch.checkpoint.restarts:
        return [*zip(batch.digests, batch.rows, strict=True)], True
    for digest in batch.repeats:
        _match(db, batch, digest)
    if not batch.matched:
        return [*zip(batch.digests, batch.rows, strict=True)], True
    met = batch.limit is None or _has_met(db, batch)
    known = [_match(db, batch, digest) for digest in batch.digests]
    return batch.unmatched(known, met=met), met or any(known)


def _has_met(db: Connection, batch: Batch) -> bool:
    """Check whether this pass of a source with a limit had a row that the journal has."""
    (found,) = db.execute(
        "SELECT EXISTS (SELECT 1 FROM rows WHERE source = ? AND pass = ?)",
        (batch.source.number, batch.checkpoint.restarts),
    ).fetchone()
    return bool(found)


def _match(db: Connection, batch: Batch, digest: bytes) -> bool:
    """Move one row with this digest to this pass; return False if none is left."""
    moved = db.execute(
        "UPDATE rows SET pass = :pass, checksum = checksum - pass + :pass"
        " WHERE source = :source AND place = (SELECT min(place) FROM rows"
        " WHERE source = :source AND digest = :digest AND pass < :pass)",
        {"pass": batch.checkpoint.restarts, "source": batch.source.number, "digest": digest},
    )
    return moved.rowcount > 0
