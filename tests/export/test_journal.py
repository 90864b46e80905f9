"""Journal of an export, and its writer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.order import Watermark
from chainapi.errors import ExportError
from chainapi.export.database import FORMAT, SCHEMA
from chainapi.export.integrity import checksum, row_checksum
from chainapi.export.journal import Journal
from chainapi.export.records import Batch, SourceRecord
from chainapi.export.writer import MAX_PENDING, Writer


class BusyJournal:
    """A journal on a disk that is busy until `free` is set."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.commits: list[int] = []

    def commit(self, batches: Sequence[Batch]) -> int:
        """Wait, then record the number of batches."""
        self.free.wait(30)
        self.commits.append(len(batches))
        return len(batches)


ONE, OTHER, OLD = ("1" * 16, "2" * 16, "3" * 16)  # marks of rows


def batch_of(
    source: SourceRecord,
    rows: Sequence[bytes] = (),
    *,
    done: bool = False,
    walk_pass: int = 0,
    matched: bool = False,
    repeats: Sequence[bytes] = (),
    newest: int | None = None,
    ties: tuple[str, ...] = (),
    watermark: Watermark | None = None,
    limit: int | None = None,
    seen: int = 0,
) -> Batch:
    """Return what a page with these rows adds, which are their own digests."""
    return Batch(
        source=source,
        rows=rows,
        digests=rows,
        encode=lambda row: cast("bytes", row),
        checkpoint=Checkpoint("q", restarts=walk_pass, watermark=watermark),
        done=done,
        repeats=repeats,
        newest=newest,
        ties=ties,
        matched=matched,
        limit=limit,
        seen=seen,
    )


def rows_of(journal: Journal) -> list[bytes]:
    """Return the rows of the finished sources."""
    return [row for _, row in journal.pending_rows()]


async def test_fetching_waits_for_a_slow_disk() -> None:
    """Beyond 64 pending pages the writer has no room until a commit ends."""
    journal, failed = BusyJournal(), threading.Event()
    with ThreadPoolExecutor(1) as thread:
        writer = Writer(cast("Any", journal), thread, lambda _, __: None, failed.set)
        source = SourceRecord(1, "a", "q")
        for _ in range(MAX_PENDING):  # the first one is taken at once
            writer.put(batch_of(source))
            await writer.wait_for_room()
        writer.put(batch_of(source))
        room = asyncio.create_task(writer.wait_for_room())
        await asyncio.sleep(0)
        assert not room.done()
        journal.free.set()
        await room
        await writer.flush()
    assert journal.commits == [1, MAX_PENDING]
    assert not failed.is_set()


def test_a_commit_is_on_the_disk(tmp_path: Path) -> None:
    """SQLite syncs each commit; a second export cannot open the journal."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        assert journal._database._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        with pytest.raises(ExportError, match="another export"):
            Journal.open(tmp_path / "s")
    Journal.open(tmp_path / "s").close()


def test_equal_rows_are_kept(tmp_path: Path) -> None:
    """Equal rows within one pass are all kept."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        assert journal.commit([batch_of(one, [b"1", b"1"]), batch_of(other, [b"1"], done=True)]) == 3
        assert journal.commit([batch_of(one, [b"2", b"1"], done=True)]) == 2
        assert list(journal.pending_rows()) == [
            *(("a", row) for row in (b"1", b"1", b"2", b"1")),
            ("b", b"1"),
        ]


def test_a_later_pass_is_matched(tmp_path: Path) -> None:
    """A later pass leaves out each row as often as the journal has it."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        journal.commit([batch_of(one, [b"1", b"1", b"2"]), batch_of(other, [b"3"])])
        again = [b"2", b"1", b"3", b"1", b"1", b"2"]
        assert journal.commit([batch_of(one, again, walk_pass=1, matched=True)]) == 3
        assert journal.commit([batch_of(one, [b"1"], walk_pass=1, matched=True)]) == 1
        assert journal.commit([batch_of(one, [b"1"] * 5, walk_pass=2, matched=True, done=True)]) == 1
        assert rows_of(journal) == [b"1", b"1", b"2", b"3", b"1", b"2", b"1", b"1"]


def test_a_later_pass_is_matched_after_a_kill(tmp_path: Path) -> None:
    """The journal keeps on the disk which rows the current pass has matched."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        journal.commit([batch_of(one, [b"1", b"1"])])
        assert journal.commit([batch_of(one, [b"1"], walk_pass=1, matched=True)]) == 0
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        assert journal.commit([batch_of(one, [b"1", b"1"], walk_pass=1, matched=True, done=True)]) == 1
        assert rows_of(journal) == [b"1"] * 3


def test_repeats_that_the_stream_found_are_matched(tmp_path: Path) -> None:
    """A repeat that the stream found is matched; the next equal row is new."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        journal.commit([batch_of(one, [b"1", b"2"])])
        assert journal.commit([batch_of(one, [b"3"], walk_pass=1, repeats=[b"1"])]) == 1
        assert journal.commit([batch_of(one, [b"1", b"2"], walk_pass=1, matched=True, done=True)]) == 1
        assert rows_of(journal) == [b"1", b"2", b"3", b"1"]


def test_a_limit_leaves_out_what_is_above_known_rows(tmp_path: Path) -> None:
    """A later pass stores no row above the first known one, and ends at the limit."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        journal.commit([batch_of(one, [b"1", b"2"], limit=4)])
        assert not one.done
        assert journal.commit([batch_of(one, [b"8", b"9"], walk_pass=1, matched=True, limit=4, seen=2)]) == 0
        assert journal.commit([batch_of(one, [b"0", b"1"], walk_pass=1, matched=True, limit=4, seen=3)]) == 0
        again = batch_of(one, [b"2", b"3", b"4", b"5"], walk_pass=1, matched=True, limit=4, seen=7)
        assert journal.commit([again]) == 2
        assert (one.done, one.limited) == (True, True)
        assert journal.commit([batch_of(one, [b"6"], walk_pass=1, matched=True, limit=4, seen=8)]) == 0
        assert rows_of(journal) == [b"1", b"2", b"3", b"4"]


def test_a_limit_ends_a_pass_that_meets_no_known_row(tmp_path: Path) -> None:
    """A pass that begins with as many unknown rows as the limit stores none."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        journal.commit([batch_of(one, [b"1", b"2"], limit=3)])
        assert journal.commit([batch_of(one, [b"7", b"8"], walk_pass=1, matched=True, limit=3, seen=2)]) == 0
        assert not one.done
        assert journal.commit([batch_of(one, [b"9"], walk_pass=1, matched=True, limit=3, seen=3)]) == 0
        assert one.done
        assert rows_of(journal) == [b"1", b"2"]


A, B, C = (mark * 16 for mark in "abc")  # marks of rows


@pytest.mark.parametrize(
    ("pages", "newest", "ties"),
    [
        ([(9, (A,), Watermark(9, 1, at=1))], 9, None),  # each number is of one row
        ([(9, (A, A), Watermark(9, 1, at=1, ties=((9, (A, A)),)))], 9, (A, A)),
        ([(9, (A,), None), (9, (B,), None), (8, (C,), None)], 9, (A, B)),
        ([(8, (A,), None), (9, (B,), None), (None, (), None)], 9, (B,)),
    ],
)
def test_the_newest_exported_rows_have_marks(
    pages: list[tuple[int | None, tuple[str, ...], Watermark | None]],
    newest: int,
    ties: tuple[str, ...] | None,
    tmp_path: Path,
) -> None:
    """The journal keeps marks of the newest rows if rows may share a number."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        source = journal.source("a", "q")
        for place, (number, marks, watermark) in enumerate(pages, 1):
            done = place == len(pages)
            journal.commit([batch_of(source, newest=number, ties=marks, watermark=watermark, done=done)])
        for record in (source, journal.source("a", "q")):
            assert (record.exported, record.exported_ties) == (newest, ties)
        journal.commit([batch_of(source, done=True)])  # a run without news
        assert journal.source("a", "q").exported == newest


def test_a_new_source_has_no_exported_rows(tmp_path: Path) -> None:
    """A source whose walk never ended has no exported number and no marks."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        journal.source("a", "q")
        source = journal.source("a", "q")
        assert (source.exported, source.exported_ties, source.newest) == (None, None, None)


def test_rows_of_unfinished_sources_are_not_pending(tmp_path: Path) -> None:
    """Rows of finished sources alone are written to the final file."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        journal.commit([batch_of(one, [b"1"]), batch_of(other, [b"2"], done=True)])
        assert list(journal.pending_rows()) == [("b", b"2")]
        assert (journal.count_pending_rows(), journal.count_finished_sources()) == ((1, 0), 1)


def test_numbers_beyond_64_bits_are_kept(tmp_path: Path) -> None:
    """The number of the newest row may be larger than the integers of SQLite."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        source = journal.source("a", "q")
        assert journal.commit([batch_of(source, [b"1"], newest=2**70), batch_of(source, newest=5)]) == 1
        assert journal.commit([batch_of(source, done=True)]) == 0
        assert journal.source("a", "q").exported == 2**70


def test_the_format_on_the_disk_is_pinned() -> None:
    """A new schema or checksum needs a new format number, or it looks like damage."""
    schema = sha256(SCHEMA.encode()).hexdigest()[:16]
    checksums = checksum("a", 1, None), row_checksum(1, 2, b"digest", b"row")
    assert (FORMAT, schema, checksums) == (6, "4dc8743566e0f0b2", (4033506478, 195845498))
