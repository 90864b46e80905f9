"""Journal of an export, and its writer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import evolve
from msgspec import structs

from chainapi import Checkpoint
from chainapi.core.paging.digests import DIGEST_SIZE
from chainapi.core.paging.order import Watermark
from chainapi.core.paging.position import checkpoint_of
from chainapi.core.paging.rows import hash_digests, key_digest
from chainapi.errors import ExportError
from chainapi.export import segments
from chainapi.export.database import FORMAT, SCHEMA, Database
from chainapi.export.integrity import checksum
from chainapi.export.journal import CREATED_AT_ONCE, Journal
from chainapi.export.part_records import BEGUN, Content, Part, Waiting
from chainapi.export.segments import GROUPS, SegmentReader, Segments
from chainapi.export.source_records import Batch, SourceRecord
from chainapi.export.writer import COMMIT_AFTER, COMMIT_AT, COMMIT_SIZE, MAX_PENDING, Writer
from tests.export.power_cuts import PowerCuts


class BusyJournal:
    """A journal on a disk that is busy until `free` is set."""

    def __init__(self) -> None:
        self.groups = None
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
    """Return what a page with these rows adds; a row with spaces behind it is its digest."""
    return Batch(
        source=source,
        rows=rows,
        digests=[digest_of(row) for row in rows],
        encode=lambda rows: (b"".join(row + b"\n" for row in rows), b""),
        position=Checkpoint("q", restarts=walk_pass, watermark=watermark),
        done=done,
        repeats=[digest_of(row) for row in repeats],
        newest=newest,
        ties=ties,
        matched=[(None, "")] * len(rows) if matched else None,
        limit=limit,
        seen=seen,
    )


def digest_of(row: bytes) -> bytes:
    """Return the row with spaces behind it."""
    return row.ljust(DIGEST_SIZE)


def pending(journal: Journal, *, finished: bool = True) -> list[tuple[str, bytes]]:
    """Return the waiting rows with the labels of their sources."""
    pages = journal.waiting_pages(finished=finished, rows=10**9, size=10**9)
    with SegmentReader(journal.folder) as reader:
        return [(label, row) for label, page in pages for row in reader.read(page)[0].split(b"\n")[:-1]]


def sealed(journal: Journal, number: int, *, finished: bool = False) -> Part:
    """Write what waits as a part without files."""
    pages = journal.waiting_pages(finished=finished, rows=10**9, size=10**9)
    part = Part(number, BEGUN, max(page.number for _, page in pages), Content((), "run", "now"))
    journal.begin_part(part)
    journal.complete_part(part)
    journal.clean(part, finished=finished)
    return part


def rows_of(journal: Journal) -> list[bytes]:
    """Return the rows of the finished sources."""
    return [row for _, row in pending(journal)]


async def test_fetching_waits_for_a_slow_disk() -> None:
    """Beyond 64 pending pages the writer has no room until a commit ends."""
    journal, failed = BusyJournal(), threading.Event()
    with ThreadPoolExecutor(1) as thread:
        writer = Writer(cast("Any", journal), thread, lambda _, __: None, failed.set)
        source = SourceRecord(1, "a", "q")
        for _ in range(COMMIT_AT + MAX_PENDING - 1):  # the first ones are taken at once
            writer.put(batch_of(source))
            await writer.wait_for_room()
        writer.put(batch_of(source))
        room = asyncio.create_task(writer.wait_for_room())
        await asyncio.sleep(0)
        assert not room.done()
        journal.free.set()
        await room
        await writer.flush()
    assert journal.commits == [COMMIT_AT, MAX_PENDING]
    assert not failed.is_set()


async def test_a_cancelled_flush_waits_for_its_commit() -> None:
    """A flush that is cancelled still waits until the last pages are committed."""
    journal, committed = BusyJournal(), list[int]()
    with ThreadPoolExecutor(1) as thread:
        writer = Writer(cast("Any", journal), thread, lambda _, rows: committed.append(rows), lambda: None)
        writer.put(batch_of(SourceRecord(1, "a", "q")))
        flushing = asyncio.create_task(writer.flush())
        for _ in range(4):
            await asyncio.sleep(0)
            flushing.cancel()
        await asyncio.sleep(0)
        assert not flushing.done()
        journal.free.set()
        with pytest.raises(asyncio.CancelledError):
            await flushing
    assert len(committed) == 1


@pytest.mark.parametrize(
    ("pages", "size", "after"),
    [
        (COMMIT_AT - 1, 0, COMMIT_AFTER),
        (COMMIT_AT, 0, 0),
        (1, COMMIT_SIZE - 1, COMMIT_AFTER),
        (1, COMMIT_SIZE, 0),
    ],
)
async def test_pages_of_some_milliseconds_are_committed_together(pages: int, size: int, after: float) -> None:
    """Pages gather for 20 milliseconds; 32 pages or 1 MiB do not wait."""
    journal, times = BusyJournal(), list[float]()
    journal.free.set()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:
        writer = Writer(cast("Any", journal), thread, lambda *_: times.append(loop.time()), lambda: None)
        source, begun = SourceRecord(1, "a", "q"), loop.time()
        for _ in range(pages):
            writer.put(evolve(batch_of(source), size=size))
        await asyncio.sleep(1)
    assert journal.commits == [pages]
    assert times == [pytest.approx(begun + after, abs=1e-6)]


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
        assert pending(journal) == [
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


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_a_later_pass_is_matched_in_one_transaction(at_once: int, tmp_path: Path) -> None:
    """Pages of several passes are matched alike, whichever transactions they are in."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        batches = [
            batch_of(one, [b"1", b"2", b"2"]),
            batch_of(one, [b"3"]),
            batch_of(other, [b"1"]),
            batch_of(one, [b"2", b"3", b"3"], walk_pass=1, matched=True),
            batch_of(one, [b"2", b"2", b"1"], walk_pass=1, matched=True),
            batch_of(other, [b"2"], done=True),
            batch_of(one, [b"1", b"4"], walk_pass=2, matched=True),
        ]
        for place in range(0, len(batches), at_once):
            journal.commit(batches[place : place + at_once])
        stored = journal._database._connection.execute("SELECT source, pass FROM digests ORDER BY page")
        assert stored.fetchall() == [(1, 0), (1, 0), (1, 1), (1, 1), (1, 2)]
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        journal.commit([batch_of(one, [b"4", b"4", b"5"], walk_pass=2, matched=True, done=True)])
        found = [row for label, row in pending(journal) if label == "a"]
        assert found == [b"1", b"2", b"2", b"3", b"3", b"2", b"4", b"4", b"4", b"5"]


def test_a_later_pass_is_matched_after_a_kill(tmp_path: Path) -> None:
    """The journal keeps on the disk which rows the current pass has matched."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        journal.commit([batch_of(one, [b"1", b"1"])])
        assert journal.commit([batch_of(one, [b"1"], walk_pass=1, matched=True)]) == 0
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        assert journal.commit([batch_of(one, [b"1", b"1"], walk_pass=1, matched=True)]) == 1
        journal.commit([batch_of(one, walk_pass=1, matched=True, done=True)])
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
        assert journal.commit([batch_of(one, [b"0", b"1"], walk_pass=1, matched=True, limit=4, seen=4)]) == 0
        assert not one.done
        again = batch_of(one, [b"2", b"3", b"4", b"5"], walk_pass=1, matched=True, limit=4, seen=8)
        assert journal.commit([again]) == 2
        assert (one.done, one.limited) == (True, True)
        assert journal.commit([batch_of(one, [b"6"], walk_pass=1, matched=True, limit=4, seen=9)]) == 0
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
        ([(9, (A,), Watermark(9, 1, at=1))], 9, (A,)),
        ([(9, (A, A), Watermark(9, 1, at=1, ties=((9, (A, A)),)))], 9, (A, A)),
        ([(9, (A,), None), (9, (B,), None), (8, (C,), None)], 9, (A, B)),
        ([(8, (A,), None), (9, (B,), None), (None, (), None)], 9, (B,)),
    ],
)
def test_the_newest_exported_rows_have_marks(
    pages: list[tuple[int | None, tuple[str, ...], Watermark | None]],
    newest: int,
    ties: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """The journal keeps marks of the rows with the newest number."""
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
        assert (source.exported, source.exported_ties, source.newest) == (None, (), None)


def test_new_sources_are_stored_with_the_next_pages(tmp_path: Path) -> None:
    """New sources wait for a commit, 63 at most; each has a number and a label of its own meanwhile."""

    def stored(journal: Journal) -> int:
        (count,) = journal._database._connection.execute("SELECT count(*) FROM sources").fetchone()
        return int(count)

    def fail(_: object) -> tuple[bytes, bytes]:
        raise OSError("no page")

    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "1" * 64), journal.source("a", "2" * 64)
        assert journal.source("b", "1" * 64) is one
        assert [(one.number, one.label), (other.number, other.label)] == [(1, "a"), (2, "a~22222222")]
        with pytest.raises(OSError, match="no page"):
            journal.commit([evolve(batch_of(one, [b"1"]), encode=fail)])
        assert stored(journal) == 0
        journal.commit([batch_of(one, [b"1"])])
        assert stored(journal) == 2
        for number in range(CREATED_AT_ONCE):
            assert stored(journal) == 2
            assert journal.source(str(number), str(number)).number == 3 + number
        assert stored(journal) == 2 + CREATED_AT_ONCE
        journal.source("z", "z")
    with closing(Journal.open(tmp_path / "s")) as journal:
        assert stored(journal) == 2 + CREATED_AT_ONCE
        assert journal.source("b", "2" * 64).label == "a~22222222"
        assert journal.source("z", "y").number == 3 + CREATED_AT_ONCE


def test_rows_of_unfinished_sources_are_not_pending(tmp_path: Path) -> None:
    """Rows of finished sources alone are written to the final file."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        journal.commit([batch_of(one, [b"1"]), batch_of(other, [b"2"], done=True)])
        assert pending(journal) == [("b", b"2")]
        assert pending(journal, finished=False) == [("a", b"1"), ("b", b"2")]
        assert journal.count_finished_sources() == 1


def test_numbers_beyond_64_bits_are_kept(tmp_path: Path) -> None:
    """The number of the newest row may be larger than the integers of SQLite."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        source = journal.source("a", "q")
        assert journal.commit([batch_of(source, [b"1"], newest=2**70), batch_of(source, newest=5)]) == 1
        assert journal.commit([batch_of(source, done=True)]) == 0
        assert journal.source("a", "q").exported == 2**70


def range_of(newest: int | None, marks: str, *, order: Watermark | None) -> dict[str, Any]:
    """Return the arguments of the last page of a range with these marks of its newest number."""
    return {
        "rows": [marks.encode()],
        "newest": newest,
        "ties": tuple(marks),
        "watermark": order,
        "done": True,
    }


LONE, SHARED = Watermark(9, 5), Watermark(9, 5, ties=((9, (ONE,)),))


@pytest.mark.parametrize(
    ("ranges", "newest", "ties"),
    [
        ([(9, "a", None), (5, "b", None)], 9, ("a",)),
        ([(5, "b", None), (9, "a", None)], 9, ("a",)),
        ([(None, "", None), (5, "b", None)], 5, ("b",)),
        ([(9, "a", LONE), (5, "b", LONE)], 9, ("a",)),
        ([(9, "a", LONE), (9, "b", LONE)], 9, ("a", "b")),  # another number has the borders
        ([(9, "a", SHARED), (9, "b", LONE)], 9, ("a", "b")),
    ],
)
def test_a_source_takes_over_what_its_ranges_have(
    ranges: list[tuple[int | None, str, Watermark | None]],
    newest: int | None,
    ties: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """Behind its last range a source has the newest row of all, in any order; they are gone."""
    with closing(Journal.open(tmp_path)) as journal:
        source = journal.source("a", "q")
        journal.split(source, [Checkpoint("q"), Checkpoint("q")])
        assert not source.done
    for number, marks, order in ranges:
        with closing(Journal.open(tmp_path)) as journal:
            part = next(iter(journal.source("a", "q").ranges.values()))
            journal.commit([batch_of(part, **range_of(number, marks, order=order))])
    with closing(Journal.open(tmp_path)) as journal:
        source = journal.source("a", "q")
        assert (source.done, source.ranges, source.taken) == (True, {}, 2)
        assert (source.exported, source.newest, source.exported_ties) == (newest, newest, ties)
        assert journal.count_finished_sources() == 1
        assert [page.place for _, page in journal.waiting_pages(finished=True, rows=9, size=99)] == [1, 2]


def test_a_range_without_an_order_leaves_its_source_without_a_number(tmp_path: Path) -> None:
    """If one range broke the order of the list, its rows do not show which of later ones are new."""
    with closing(Journal.open(tmp_path)) as journal:
        source = journal.source("a", "q")
        journal.split(source, [Checkpoint("q")] * 3)
        for part, unordered in zip([*source.ranges.values()], (False, True, False), strict=True):
            batch = batch_of(part, **range_of(9, "a", order=LONE))
            position = evolve(checkpoint_of(batch.position), unordered=unordered)
            journal.commit([evolve(batch, position=position)])
        assert (source.done, source.exported, source.exported_ties) == (True, None, ())
        assert source.checkpoint is not None
        assert source.checkpoint.unordered


def test_a_source_is_unfinished_until_its_last_range_ends(tmp_path: Path) -> None:
    """Pages of finished ranges wait for a file until the whole source has ended; a folder takes them."""
    with closing(Journal.open(tmp_path)) as journal:
        source = journal.source("a", "q")
        journal.split(source, [Checkpoint("q"), Checkpoint("q")])
        newer, older = source.ranges.values()
        journal.commit([batch_of(older, [b"3"], done=True), batch_of(newer, [b"1"])])
        assert (source.done, [*source.ranges]) == (False, [1])
        assert journal.waiting_pages(finished=True, rows=9, size=99) == []
        waiting = journal.waiting_pages(finished=False, rows=9, size=99)
        assert [(label, page.place) for label, page in waiting] == [("a", 1), ("a", 2)]
        journal.commit([batch_of(newer, [b"2"], done=True)])
        journal.commit([batch_of(source, [b"0"], done=True)])  # of a later run
        waiting = journal.waiting_pages(finished=True, rows=9, size=99)
        assert [page.place for _, page in waiting] == [1, 1, 2, 0]


def test_the_format_on_the_disk_is_pinned() -> None:
    """A new schema, checksum or digest of keys needs a new format number."""
    schema = sha256(SCHEMA.encode()).hexdigest()[:16]
    digests = [digest.hex() for digest in (key_digest("a"), *hash_digests(["a", "0x" + "01fe" * 16]))]
    checksums = checksum("a", 1, None), checksum("a", b"a", 1)
    assert (FORMAT, schema, checksums) == (13, "8f5015fd6cb184f9", (822890261, 2782223604))
    assert digests == ["3d8b2e41a21276e6089a448c"] * 2 + ["01fe" * 6]


def test_rows_of_a_part_are_matched_by_a_later_pass(tmp_path: Path) -> None:
    """A later pass is matched with rows that are in a part already, also by another process."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        journal.commit([batch_of(one, [b"1", b"2"]), batch_of(other, [b"5"], done=True)])
        sealed(journal, 1)
        assert pending(journal, finished=False) == []
        assert journal.commit([batch_of(one, [b"3"])]) == 1
    with closing(Journal.open(tmp_path / "s")) as journal:
        one = journal.source("a", "q")
        again = [b"4", b"3", b"2", b"1", b"1"]
        assert journal.commit([batch_of(one, again, walk_pass=1, matched=True)]) == 2
        assert pending(journal, finished=False) == [("a", row) for row in (b"3", b"4", b"1")]
        assert journal.commit([batch_of(one, walk_pass=1, matched=True, done=True)]) == 0
        assert journal._database._connection.execute("SELECT count(*) FROM digests").fetchone() == (0,)


def test_a_part_takes_the_oldest_pages(tmp_path: Path) -> None:
    """A part has enough pages in the order of their commits, sorted by source; the others wait."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        for page in range(3):
            journal.commit([batch_of(other, [b"b%d" % page]), batch_of(one, [b"a%d" % page])])
        assert journal.waiting == Waiting(6, 6, 18)
        for limits in ({"rows": 3, "size": 10**9}, {"rows": 10**9, "size": 9}):
            pages = journal.waiting_pages(finished=False, **limits)
            assert [(label, page.number) for label, page in pages] == [("a", 2), ("b", 1), ("b", 3)]
            assert journal.waiting == Waiting(3, 3, 9)
        pages = journal.waiting_pages(finished=False, rows=3, size=10**9)
        part = Part(1, BEGUN, 3, Content((), "run", "now"))
        journal.begin_part(part)
        journal.clean(part, finished=False)
        assert pending(journal, finished=False) == [("a", b"a1"), ("a", b"a2"), ("b", b"b2")]


def test_segments_without_waiting_pages_are_deleted(tmp_path: Path) -> None:
    """A segment is deleted once a part has all of its pages."""
    folder = tmp_path / "s"
    with closing(Journal.open(folder)) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        journal.commit([batch_of(one, [b"1"]), batch_of(other, [b"2"], done=True)])
        sealed(journal, 1, finished=True)
        journal.commit([batch_of(one, [b"3"])])
        assert sorted(path.name for path in folder.glob("pages-*")) == ["pages-00001", "pages-00002"]
        journal.commit([batch_of(one, done=True)])
        sealed(journal, 2, finished=True)
        assert [*folder.glob("pages-*")] == []


def test_other_files_beside_the_segments_are_left_alone(tmp_path: Path) -> None:
    """A copy of a segment, which a user or an editor made, is neither read nor deleted."""
    folder = tmp_path / "s"
    with closing(Journal.open(folder)) as journal:
        (folder / "pages-00001.bak").write_bytes(b"copy")
        (folder / "groups-").write_bytes(b"copy")
        journal.commit([batch_of(journal.source("a", "q"), [b"1"], done=True)])
        sealed(journal, 1, finished=True)
    assert sorted(path.name for path in folder.iterdir()) == ["groups-", "journal", "pages-00001.bak"]


@pytest.mark.parametrize("write_every", [1, segments.WRITE_EVERY])
def test_a_commit_that_fails_leaves_nothing(
    write_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed commit takes its rows back, and the next one follows the last that succeeded."""

    def fail(_: Sequence[Any]) -> tuple[bytes, bytes]:
        raise ValueError("no row")

    monkeypatch.setattr(segments, "WRITE_EVERY", write_every)
    with closing(Journal.open(tmp_path / "s")) as journal:
        one, other = journal.source("a", "q"), journal.source("b", "p")
        journal.commit([batch_of(one, [b"1"])])
        with pytest.raises(ValueError, match="no row"):
            journal.commit([batch_of(one, [b"2"]), evolve(batch_of(other, [b"3"]), encode=fail)])
        assert (tmp_path / "s" / "pages-00001").read_bytes() == b"1\n"
        assert journal.waiting == Waiting(1, 1, 2)
        journal.commit([batch_of(one, [b"4"])])
        assert pending(journal, finished=False) == [("a", b"1"), ("a", b"4")]
        again = [b"4", b"2", b"1"]  # the digest of the second one was taken back, too
        assert journal.commit([batch_of(one, again, walk_pass=1, matched=True)]) == 1


def test_what_others_append_to_a_segment_is_synced_and_taken_back(tmp_path: Path) -> None:
    """A row group is on the disk after a sync of its segment; one behind it can be taken back."""
    groups = Segments(tmp_path, GROUPS)

    def append(path: Path, number: int) -> None:
        with path.open("ab") as file:
            file.write(b"group of segment %d," % number)

    with PowerCuts(tmp_path) as cuts:
        groups.grow(append)
        groups.sync()
    assert cuts.images[-1] == {"groups-00001": b"group of segment 1,"}
    groups.grow(append)
    groups.rewind()
    groups.close()
    assert (tmp_path / "groups-00001").read_bytes() == b"group of segment 1,"


@pytest.mark.parametrize("change", ["flip", "cut", "remove"])
def test_a_damaged_segment_is_found(change: str, tmp_path: Path) -> None:
    """A segment that lacks a waiting row, or has another one, is refused when the journal is opened."""
    with closing(Journal.open(tmp_path / "s")) as journal:
        journal.commit([batch_of(journal.source("a", "q"), [b"1", b"2"])])
    segment = tmp_path / "s" / "pages-00001"
    if change == "remove":
        segment.unlink()
    else:
        segment.write_bytes(b"1\n3\n" if change == "flip" else b"1\n")
    with pytest.raises(ExportError, match=r"pages-00001 is damaged .*put back a copy"):
        Journal.open(tmp_path / "s")
    segment.write_bytes(b"1\n2\n3\nnever committed")
    with closing(Journal.open(tmp_path / "s")) as journal:
        assert pending(journal, finished=False) == [("a", b"1"), ("a", b"2")]


def test_compressed_pages_are_read_back(tmp_path: Path) -> None:
    """Rows in compressed pages come back as they were; damaged ones are an error."""
    rows = [b'{"number":%d}' % number for number in range(500)]
    with closing(Journal.open(tmp_path / "s", compress=True)) as journal:
        journal.commit([batch_of(journal.source("a", "q"), rows, done=True)])
        size = journal.waiting.size
        assert size == sum(len(row) + 1 for row in rows)
        assert [row for _, row in pending(journal)] == rows
        (segment,) = (tmp_path / "s").glob("pages-*")
        assert segment.stat().st_size * 3 < size
        ((_, page),) = journal.waiting_pages(finished=True, rows=10**9, size=10**9)
    content = segment.read_bytes()
    segment.write_bytes(content[:-1] + b"x")
    with pytest.raises(ExportError, match="damaged"):
        Journal.open(tmp_path / "s", compress=True)
    segment.write_bytes(content)
    with SegmentReader(tmp_path / "s") as reader, pytest.raises(ExportError, match="damaged"):
        reader.read(structs.replace(page, length=7))


def test_a_journal_that_cannot_be_locked_is_no_full_disk(tmp_path: Path) -> None:
    """If SQLite cannot lock a file, as on a read-only file system, the error names the reason."""
    path = tmp_path / "journal"
    Database.open(path).close()
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        with pytest.raises(ExportError, match=r"cannot be locked .*read-only") as caught:  # noqa: SIM117
            with Database(path, connection).reading() as database:
                database.execute("SELECT * FROM about").fetchall()
    assert "disk full" not in str(caught.value)
