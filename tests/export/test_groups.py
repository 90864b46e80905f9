"""Row groups of pages: Parquet exports commit the pages of a second as the row groups of a part."""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from errno import EPERM
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from chainapi.api.catalogue import ROUTES
from chainapi.errors import ColumnValueError, DecodeError, ExportError, IncompleteExportError
from chainapi.export import export
from chainapi.export.formats.arrow import tables_of
from chainapi.export.formats.page_groups import rows_of_group
from chainapi.export.formats.parquet import FORMAT
from chainapi.export.gathering import GroupedPages, GroupSize, PageValues
from chainapi.export.journal import Journal
from chainapi.export.part_records import PageRecord
from chainapi.export.part_writer import _by_group
from chainapi.export.partition import PageRows
from chainapi.export.progress import ExportProgress
from chainapi.export.segments import SegmentReader
from chainapi.export.source_records import Batch, SourceRecord
from chainapi.export.writer import Writer
from chainapi.models import EvmBlock, MetricPoint
from chainapi.simulator import Fault, Simulator
from chainapi.tables.codec import Codec
from chainapi.tables.structs import StructDecoder
from chainapi.tables.types import AMOUNTS
from tests.documents import LISTS, Maker
from tests.export.crashes import groups_of
from tests.export.power_cuts import PowerCuts
from tests.export.test_export import blocks_of
from tests.export.test_growth import model
from tests.export.test_journal import batch_of
from tests.export.test_row_groups import groups_of as rows_of_groups
from tests.sessions import simulated
from tests.tables.test_pages import TEXTS, Reading, rows_of


def both_ways(folder: Path, codec: Codec, body: bytes) -> tuple[Any, Any] | None:
    """Return the rows of a page as a row group, and by way of their JSON lines; None for a faulty page."""
    assert codec.structs is not None
    encoder = FORMAT.groups_of(codec)
    assert encoder is not None
    try:
        rows = StructDecoder(codec.structs, codec.model, "rows").decode(body).rows
        lines, invalid = codec.encode_page(rows, "1")
    except (DecodeError, ColumnValueError):
        return None
    values = encoder.values(rows) if rows else None
    if values is None:
        return None
    assert not invalid
    path = folder / "groups"
    path.write_bytes(b"")
    made = encoder.append(path, 1, [PageValues("1", len(rows), values)])
    assert path.stat().st_size == made.length
    return rows_of_group(path, made.footer), pa.concat_tables(tables_of(codec.columns, [("1", lines)]))


@given(data=st.data())
def test_a_group_has_the_values_of_the_lines(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Odd values, chosen columns and all forms of amounts are the same in a row group as in JSON lines."""
    model = data.draw(st.sampled_from([EvmBlock, MetricPoint, Reading]))
    names = [column.name for column in Codec(model).columns if column.name != "extra"]
    fields = data.draw(st.none() | st.lists(st.sampled_from(names), unique=True, min_size=1))
    codec = Codec(model, data.draw(st.sampled_from(AMOUNTS)), "raise", fields)
    body = f'{{"rows":[{",".join(data.draw(st.lists(rows_of(model), max_size=4)))}]}}'.encode()
    found = both_ways(tmp_path_factory.getbasetemp(), codec, body)
    assert found is None or found[0].equals(found[1])


@given(name=st.sampled_from([name for name in LISTS if name not in TEXTS]), data=st.data())
def test_a_group_has_nested_values(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Rows of all lists, with records and lists in them, are the same in a row group as in JSON lines."""
    model = ROUTES[name].rows
    codec = Codec(model, data.draw(st.sampled_from(AMOUNTS)))
    if FORMAT.groups_of(codec) is None:
        return
    seeds = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=3))
    rows = [Maker(seed, whole=data.draw(st.booleans())).value(model) for seed in seeds]
    found = both_ways(tmp_path_factory.getbasetemp(), codec, json.dumps({"rows": rows}).encode())
    assert found is None or found[0].equals(found[1])


# Gathering


@frozen
class Encoder:
    """Encoder whose values of rows are the rows; `b"line"` has none."""

    size: GroupSize = field(factory=lambda: GroupSize(least=4, full=8))

    def values(self, rows: Sequence[Any]) -> Sequence[Any] | None:
        """Return the rows as the only column."""
        return None if b"line" in rows else [[*rows]]

    def append(self, path: Path, segment: int, pages: Sequence[PageValues]) -> Any:
        """Append nothing."""


class Commits:
    """Journal that keeps the number of rows of each commit, and of those that were packed."""

    def __init__(self, groups: Encoder) -> None:
        self.groups = groups
        self.made: list[tuple[int, int]] = []

    def commit(self, batches: Sequence[Batch]) -> int:
        """Take batches."""
        rows = [len(batch.rows) for batch in batches]
        packed = [len(batch.rows) for batch in batches if batch.values is not None]
        self.made.append((sum(rows), sum(packed)))
        return sum(rows)


def rows(count: int, row: bytes = b"row") -> Batch:
    """Return a page with a number of rows."""
    return batch_of(SourceRecord(1, "a", "q"), [row] * count)


async def settle() -> None:
    """Let the thread end its steps; no timer of a second is due before."""
    await asyncio.sleep(0.1)


async def test_pages_of_a_second_are_committed_together() -> None:
    """Few pages gather for a second; a whole row group does not wait, and the end does not either."""
    journal = Commits(Encoder())
    with ThreadPoolExecutor(1) as thread:
        writer = Writer(cast("Any", journal), thread, lambda *_: None, lambda: None)
        for _ in range(3):
            writer.put(rows(1))
            await settle()
        assert journal.made == []
        await asyncio.sleep(0.8)
        assert journal.made == [(3, 0)]
        for _ in range(8):
            writer.put(rows(1))
            await writer.wait_for_room()
            await settle()
        assert journal.made == [(3, 0), (8, 4)]  # its second half was not packed before
        writer.put(rows(5))
        writer.put(rows(1))
        await writer.flush()
        assert journal.made[2:] == [(6, 5)]
        await asyncio.sleep(5)
        assert len(journal.made) == 3


async def test_rows_without_values_are_committed_at_once() -> None:
    """Rows that are JSON lines do not gather: they would take the memory of a row group."""
    journal = Commits(Encoder())
    with ThreadPoolExecutor(1) as thread:
        writer = Writer(cast("Any", journal), thread, lambda *_: None, lambda: None)
        writer.put(rows(0))
        writer.put(rows(4))
        await settle()
        assert journal.made == []
        writer.put(rows(2, b"line"))
        writer.put(rows(2))
        await settle()
        assert journal.made == [(8, 4)]
        await writer.flush()


async def test_large_pages_are_packed_and_committed_by_their_bytes() -> None:
    """Pages of few large rows become a row group once they have its bytes."""
    journal = Commits(Encoder(GroupSize(least=100, full=200, size=1_000)))
    with ThreadPoolExecutor(1) as thread:
        writer = Writer(cast("Any", journal), thread, lambda *_: None, lambda: None)
        for _ in range(4):
            writer.put(evolve(rows(1), size=250))
            await settle()
        assert journal.made == [(4, 3)]


@pytest.mark.parametrize(
    "odd",
    [
        rows(2, b"line"),
        evolve(rows(2), matched=[(None, ""), (None, "")]),
        evolve(rows(2), source=SourceRecord(1, "a", "q", place=2)),
        evolve(rows(2), source=SourceRecord(1, "a", "q", window=7)),
    ],
    ids=["lines", "matched", "range", "window"],
)
def test_rows_behind_a_page_of_lines_are_lines(odd: Batch) -> None:
    """Within a commit, the rows of a source in the group are before its JSON lines."""
    other = evolve(rows(2), source=SourceRecord(2, "b", "p"))
    batches = [rows(2), odd, rows(2), other, rows(0)]
    group = GroupedPages.of(Encoder(), batches)
    lines = (b"row\n" * 2, b"")
    found = [group.encode(batch, batch.rows) for batch in batches]
    assert found[0] == PageValues("a", 2, [[b"row", b"row"]])
    assert found[1] in (lines, (b"line\n" * 2, b""))
    assert found[2:] == [lines, PageValues("b", 2, [[b"row", b"row"]]), (b"", b"")]
    for few in (GroupedPages.of(Encoder(), batches[:1]), GroupedPages.of(None, batches)):
        assert few.encode(batches[0], batches[0].rows) == lines


def test_a_row_group_is_read_once() -> None:
    """Rows of one row group stand together, and those of each source stay in the order of its list."""
    pages = [
        ("a", PageRecord(3, 1, 1, 9, 0, 1, 1, 0, 0, None, None, 0)),  # of a range
        ("a", PageRecord(1, 1, 0, 1, 0, 1, 1, 0, 0, None, None, 0, first=0)),
        ("a", PageRecord(4, 1, 0, 9, 9, 1, 1, 0, 0, None, None, 0)),
        ("a", PageRecord(5, 1, 0, 1, 7, 1, 1, 0, 0, None, None, 0, first=0)),
        ("b", PageRecord(2, 2, 0, 1, 0, 1, 1, 0, 0, None, None, 0, first=1)),
        ("b", PageRecord(6, 2, 0, 1, 7, 1, 1, 0, 0, None, None, 0, first=1)),
    ]
    found = _by_group([PageRows.whole(label, page) for label, page in pages])
    assert [one.page.number for one in found] == [3, 1, 2, 4, 5, 6]


# Parts

CHAINS = (1, 2, 3)
SMALL = GroupSize(least=20, full=40)


async def exported(
    simulator: Simulator, out: Path, size: GroupSize = SMALL, seconds: float | None = None
) -> set[int]:
    """Export blocks in pages of 10, for some seconds; return the numbers of segments of row groups."""
    segments, counts = set[int](), list[tuple[int, int]]()

    def note(progress: ExportProgress) -> None:
        segments.update(path.stat().st_ino for path in out.parent.rglob("groups-*"))
        counts.append((progress.written, progress.to_write))

    async with simulated(simulator, max_attempts=1) as session:
        with groups_of(size):
            try:
                async with asyncio.timeout(seconds):
                    await export(session.data.evm.blocks, CHAINS, out, page_size=10, on_progress=note)
            except TimeoutError:
                assert seconds is not None
            else:
                assert counts[-1][0] == counts[-1][1] > 0
    return segments


def check(simulator: Simulator, path: Path, rows: int) -> None:
    """Check that a file has all rows, those of each source in the order of its list."""
    found = defaultdict[str, list[int]](list)
    for row in FORMAT.read(path):
        found[row["source"]].append(row["block_number"])
    assert {(label, number) for label, numbers in found.items() for number in numbers} == blocks_of(
        simulator, rows, CHAINS
    )
    for numbers in found.values():
        assert numbers == sorted(set(numbers), reverse=True)


async def test_a_part_is_a_segment_of_row_groups(tmp_path: Path) -> None:
    """The row groups that were committed are those of the file, with the few last rows behind them."""
    simulator, out = Simulator(chains=CHAINS, rows=70, latency=0.01), tmp_path / "b.parquet"
    segments = await exported(simulator, out)
    assert out.stat().st_ino in segments
    assert out.stat().st_nlink == 1
    assert rows_of_groups(out) == [40] * 5 + [10]
    check(simulator, out, 70)


async def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hard links, the row groups are copied."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(EPERM, os.strerror(EPERM))

    monkeypatch.setattr(os, "link", refuse)
    simulator, out = Simulator(chains=CHAINS, rows=70, latency=0.01), tmp_path / "b.parquet"
    segments = await exported(simulator, out)
    assert segments
    assert out.stat().st_ino not in segments
    assert rows_of_groups(out) == [40] * 5 + [10]
    check(simulator, out, 70)


LINES = GroupSize(least=10_000, full=20_000, seconds=0.01)


@pytest.mark.parametrize(
    ("first", "then", "groups"),
    [(SMALL, LINES, 5), (LINES, SMALL, 1), (SMALL, SMALL, 5), (LINES, LINES, 1)],
    ids=["groups, lines", "lines, groups", "two segments", "lines"],
)
async def test_a_run_that_was_stopped(first: GroupSize, then: GroupSize, groups: int, tmp_path: Path) -> None:
    """Rows of two runs, in row groups and as JSON lines, are in the file once and in order."""
    simulator, out = Simulator(chains=CHAINS, rows=120, latency=0.1), tmp_path / "b.parquet"
    await exported(simulator, out, first, seconds=0.65)
    assert not out.exists()
    await exported(simulator, out, then)
    check(simulator, out, 120)
    assert len(rows_of_groups(out)) == groups


async def test_an_unfinished_source_keeps_its_rows(tmp_path: Path) -> None:
    """A file gets the rows of finished sources; those of others wait in the same row groups."""
    simulator, out = Simulator(chains=CHAINS, rows=70, latency=0.01), tmp_path / "b.parquet"
    simulator.faults = (Fault(at=15, status=500),)
    with pytest.raises(IncompleteExportError):
        await exported(simulator, out)
    assert len({row["source"] for row in FORMAT.read(out)}) == 2
    assert [*tmp_path.rglob("groups-*")]  # noqa: ASYNC240
    await exported(simulator, out)
    check(simulator, out, 70)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
async def test_a_damaged_row_group_is_found(damage: str, tmp_path: Path) -> None:
    """A segment that lacks a row group, or has another one, is refused when it is read, and at the start."""
    simulator, out = Simulator(chains=CHAINS, rows=120, latency=0.1), tmp_path / "b.parquet"
    with PowerCuts(tmp_path) as cuts:
        await exported(simulator, out, seconds=0.65)
    (segment,) = tmp_path.rglob("groups-*")  # noqa: ASYNC240
    content = segment.read_bytes()
    assert cuts.images[-1][str(segment.relative_to(tmp_path))] == content
    with closing(Journal.open(tmp_path / "b.parquet.export")) as journal:
        pages = [page for _, page in journal.waiting_pages(finished=False, rows=10**9, size=10**9)]
        groups = journal.groups_of(pages)
        match damage:
            case "flip":
                segment.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
            case "cut":
                segment.write_bytes(content[:-1])
            case _:
                segment.unlink()
        last = max(pages, key=lambda page: page.start)
        with SegmentReader(journal.folder, groups) as reader, pytest.raises(ExportError, match="is damaged"):
            reader.table(last)
    with pytest.raises(ExportError, match=r"groups-00001 is damaged .*put back a copy"):
        await exported(simulator, out)
    segment.write_bytes(content + b"never committed")
    await exported(simulator, out)
    check(simulator, out, 120)


def test_row_groups_of_fewer_columns(tmp_path: Path) -> None:
    """Rows of a row group that lacks a new column have null there."""
    before, after = model(gas_used=int), model(block_hash=str, gas_used=int)
    codecs = Codec(before), Codec(after)
    lines = [
        codecs[0].encode_lines([before(block_number=1, gas_used=2)]),
        *(
            codecs[1].encode_lines([after(block_number=number, gas_used=0, block_hash="0")])
            for number in (2, 3)
        ),
    ]
    old, new = [
        pa.concat_tables(tables_of(codec.columns, [("1", one)]))
        for codec, one in zip(codecs, lines, strict=False)
    ]
    given = cast("Any", [("1", old), ("1", lines[2]), ("1", new)])
    assert FORMAT.write(tmp_path / "new", codecs[1].columns, given) == 3
    found = [(row["block_number"], row["block_hash"]) for row in FORMAT.read(tmp_path / "new")]
    assert found == [(1, None), (3, "0"), (2, "0")]
