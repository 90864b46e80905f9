"""What an export remembers: a SQLite database beside its target, with the rows that wait for the final file.

The rows of a page and the checkpoint behind them are committed in one transaction, which SQLite syncs to the
disk: after a kill or a power cut the database knows both or neither. It is locked for as long as it is open,
so that no two exports work on one target. It is read whole when it is opened, and refused where a bit of it
was changed. Everything here blocks, and belongs to one thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import define, evolve, frozen

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.errors import ExportError
from chainapi.export.columns import INVALID
from chainapi.export.integrity import audit, checksum, row_checksum

__all__ = ["Batch", "Part", "SourceState", "State"]

FORMAT = 3
FETCHED_AT_ONCE = 1_000  # rows

_TABLES = """
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


@define
class SourceState:
    """What is known of a source.

    Attributes:
        number: counts the sources from 1, in the order in which they were met.
        label: names it, such as ``43114``.
        query: fingerprint of its query.
        checkpoint: where its walk stands, as text; None before the first page.
        taken: how many rows of this walk count towards its limit.
        newest: the greatest number among its rows, where the route has a descending number.
        floor: the same at the end of the walk before this one: its rows are in the target already.
        edge: marks of the rows in the target that have the number `floor`; None where numbers are unique.
        done: whether its walk came to its end.

    """

    number: int
    label: str
    query: str
    checkpoint: str | None = None
    taken: int = 0
    newest: int | None = None
    floor: int | None = None
    edge: tuple[str, ...] | None = None
    done: bool = False


@frozen
class Batch:
    """What one page adds to a source.

    Attributes:
        source: the source; committing the batch brings it up to date.
        rows: the rows that are wanted.
        digests: the digest of each.
        known: the digests of rows that the stream knows to be kept already.
        newest: the greatest number among the rows; None for a list without a descending number.
        counted: whether the state is to find out which rows of a later pass it has.
        encode: returns the bytes that are kept of a row.
        checkpoint: where the walk stands behind them.
        taken: how many rows of the walk count towards its limit.
        done: whether no more are wanted.

    """

    source: SourceState
    rows: Sequence[Any]
    digests: Sequence[bytes]
    encode: Callable[[Any], bytes]
    checkpoint: Checkpoint
    taken: int
    done: bool
    known: Sequence[bytes] = ()
    newest: int | None = None
    counted: bool = False


@frozen
class Part:
    """A final file: its number from 1, its name, and its state when last written.

    `invalid` is how many bytes the file of the rows that could not be made has of it and of those before it.
    """

    number: int
    name: str
    rows: int
    size: int
    digest: str
    invalid: int
    whole: bool

    @property
    def fields(self) -> tuple[Any, ...]:
        """Its record."""
        return self.number, self.name, self.rows, self.size, self.digest, self.invalid, int(self.whole)


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
        with _explained(path):
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        state = cls(path, connection)
        try:
            with _explained(path):
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
        if not new and (fault := audit(db, _TABLES)):
            raise ExportError(_damaged(self.path, fault))

    def _make_tables(self) -> None:
        for statement in _TABLES.split(";"):
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
        with _readable(self.path):
            found = self._db.execute("SELECT name, value FROM about")
            return {name: json.loads(value) for name, value in found}

    def untouched(self) -> bool:
        """Tell whether no page was ever kept."""
        with _readable(self.path):
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
        with _readable(self.path):
            found = self._db.execute(
                "SELECT number, label, query, checkpoint, taken, newest, floor, edge, done FROM sources"
                " WHERE label = ?",
                (label,),
            ).fetchone()
            if found is not None:
                return _source(*found)
        with self._transaction():
            (number,) = self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM sources").fetchone()
            source = SourceState(number, label, query)
            fields = _fields(source)
            self._count("sources", 1)
            self._db.execute(
                "INSERT INTO sources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)", (*fields, checksum(*fields))
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
        db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", _records(batch, place, encoded))
        _bring_up_to_date(source, batch)
        number, _, _, *changed = fields = _fields(source)
        db.execute(
            "UPDATE sources SET checkpoint = ?, taken = ?, newest = ?, floor = ?, edge = ?, done = ?,"
            " kept = kept + ?, checksum = ? + kept WHERE number = ?",
            (*changed, len(rows), checksum(*fields) + len(rows), number),
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
        with _readable(self.path):
            made, invalid = self._db.execute(
                "SELECT coalesce(sum(substr(row, 1, 1) != :sign), 0),"
                " coalesce(sum(substr(row, 1, 1) = :sign), 0)"
                " FROM rows JOIN sources ON number = source WHERE done",
                {"sign": INVALID},
            ).fetchone()
        return int(made), int(invalid)

    def finished(self) -> int:
        """Return how many sources are at their end."""
        with _readable(self.path):
            (count,) = self._db.execute("SELECT count(*) FROM sources WHERE done").fetchone()
        return int(count)

    def finished_rows(self, *, invalid: bool = False) -> Iterator[tuple[str, bytes]]:
        """Give the rows of finished sources with their labels, source by source.

        Those that could not be made are left out; with `invalid`, all others are.
        """
        with _explained(self.path):
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
        with _readable(self.path):
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
        with _explained(self.path):
            self._db.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")

    def part_given_up(self, part: Part) -> None:
        """Forget a file that never got its name."""
        with self._transaction():
            self._count("parts", -1)
            self._db.execute("DELETE FROM parts WHERE number = ?", (part.number,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say what SQLite's errors mean here."""
    try:
        yield
    except sqlite3.Error as error:
        raise ExportError(_explanation(path, error)) from error
    except UnicodeDecodeError as error:  # in what SQLite says about a damaged file
        raise ExportError(_damaged(path, "its texts")) from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say what it means that something read back is not what was written."""
    try:
        with _explained(path):
            yield
    except (ValueError, TypeError, OverflowError) as error:
        raise ExportError(_damaged(path, type(error).__name__)) from error


def _damaged(path: Path, fault: object) -> str:
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
            return _damaged(path, error)


def _bring_up_to_date(source: SourceState, batch: Batch) -> None:
    checkpoint = batch.checkpoint
    numbers = [number for number in (source.newest, batch.newest) if number is not None]
    source.newest = None if checkpoint.unordered else max(numbers, default=None)
    source.checkpoint, source.taken, source.done = checkpoint.dumps(), batch.taken, batch.done
    if batch.done:
        source.floor = source.newest
        source.edge = _edge(source, checkpoint)


def _edge(source: SourceState, checkpoint: Checkpoint) -> tuple[str, ...] | None:
    """Return the marks of the rows at the floor; those known before, where the list has none of them now."""
    if checkpoint.watermark is None:
        return source.edge
    if not checkpoint.watermark.ties:
        return None
    return next((marks for number, marks in checkpoint.watermark.ties if number == source.floor), source.edge)


def _records(batch: Batch, place: int, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows, each with its digest, as the table has them: behind those up to `place`."""
    number, walk_pass = batch.source.number, batch.checkpoint.restarts
    for at, (digest, row) in enumerate(rows, place + 1):
        yield number, at, digest, walk_pass, row_checksum(number, at, digest, row) + walk_pass, row


def _fields(source: SourceState) -> tuple[Any, ...]:
    """Return a source as its table has it."""
    numbers = _text(source.newest), _text(source.floor)
    edge, done = json.dumps(source.edge), int(source.done)
    named = source.number, source.label, source.query, source.checkpoint
    return (*named, source.taken, *numbers, edge, done)


def _source(
    number: int,
    label: str,
    query: str,
    checkpoint: str | None,
    taken: int,
    newest: str | None,
    floor: str | None,
    edge: str,
    done: int,
) -> SourceState:
    """Return a source from its record.

    Raises:
        ValueError, TypeError: it is none.

    """
    if checkpoint is not None:
        Checkpoint.loads(checkpoint)
    numbers, marks = (_number(newest), _number(floor)), json.loads(edge)
    known = None if marks is None else tuple(marks)
    return SourceState(number, label, query, checkpoint, taken, *numbers, known, bool(done))


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
