"""Journal of an export, and its writer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from chainapi import Checkpoint
from chainapi.core.paging.digests import DIGEST_SIZE
from chainapi.core.paging.order import Watermark
from chainapi.core.paging.rows import hash_digests, key_digest
from chainapi.export import segments
from chainapi.export.database import FORMAT, SCHEMA
from chainapi.export.integrity import checksum
from chainapi.export.journal import Journal
from chainapi.export.part_records import Waiting
from chainapi.export.segments import SegmentReader
from chainapi.export.source_records import Batch, SourceRecord

pytestmark = pytest.mark.rule


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


def rows_of(journal: Journal) -> list[bytes]:
    """Return the rows of the finished sources."""
    return [row for _, row in pending(journal)]


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


A, B, C = (mark * 16 for mark in "abc")  # marks of rows


def test_the_format_on_the_disk_is_pinned() -> None:
    """A new schema, checksum or digest of keys needs a new format number."""
    schema = sha256(SCHEMA.encode()).hexdigest()[:16]
    digests = [digest.hex() for digest in (key_digest("a"), *hash_digests(["a", "0x" + "01fe" * 16]))]
    checksums = checksum("a", 1, None), checksum("a", b"a", 1)
    assert (FORMAT, schema, checksums) == (13, "8f5015fd6cb184f9", (822890261, 2782223604))
    assert digests == ["3d8b2e41a21276e6089a448c"] * 2 + ["01fe" * 6]


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
