"""Row groups of pages: Parquet exports commit the pages of a second as the row groups of a part."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.errors import ColumnValueError, DecodeError, ExportError, IncompleteExportError
from chainapi.export import export
from chainapi.export.formats import parquet
from chainapi.export.formats.arrow import tables_of
from chainapi.export.formats.page_groups import rows_of_group
from chainapi.export.formats.parquet import FORMAT
from chainapi.export.gathering import GroupSize, PageValues
from chainapi.models import EvmBlock, MetricPoint
from chainapi.simulator import Fault, Simulator
from chainapi.tables.codec import Codec
from chainapi.tables.structs import StructDecoder
from chainapi.tables.types import AMOUNTS
from tests.export.buckets import bucket
from tests.export.contract import BLOCKS, LATENCY, TARGETS, read, stops
from tests.export.growing import CHAINS, blocks_of
from tests.export.test_append import groups_of as sizes_of
from tests.sessions import simulated
from tests.tables.test_pages import Reading, rows_of

pytestmark = pytest.mark.rule

SMALL = GroupSize(least=20, full=40)
LINES = GroupSize(least=10_000, full=20_000, seconds=0.01)


@contextmanager
def groups_of(size: GroupSize) -> Iterator[None]:
    """Let pages of Parquet exports become row groups of a size."""
    before = parquet.FORMAT
    parquet.FORMAT = evolve(before, group_size=size)
    try:
        yield
    finally:
        parquet.FORMAT = before


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


@settings(max_examples=40)
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


async def exported(
    simulator: Simulator, out: Path, size: GroupSize = SMALL, seconds: float | None = None
) -> set[int]:
    """Export blocks in pages of 10, for some seconds; return the numbers of segments of row groups."""
    segments = set[int]()

    def note(_: object) -> None:
        segments.update(path.stat().st_ino for path in out.parent.rglob("groups-*"))

    async with simulated(simulator, max_attempts=1) as session:
        with groups_of(size):
            try:
                async with asyncio.timeout(seconds):
                    await export(session.data.evm.blocks, CHAINS, out, page_size=10, on_progress=note)
            except TimeoutError:
                assert seconds is not None
    return segments


def check(simulator: Simulator, path: Path, rows: int) -> None:
    """Check that a file has all rows, those of each source in the order of its list."""
    found = defaultdict[str, list[int]](list)
    for row in read(path, "parquet"):
        found[row["source"]].append(row["block_number"])
    assert Counter((label, number) for label, numbers in found.items() for number in numbers) == Counter(
        blocks_of(simulator, rows, CHAINS)
    )
    assert all(numbers == sorted(numbers, reverse=True) for numbers in found.values())


async def test_a_part_is_a_segment_of_row_groups(tmp_path: Path) -> None:
    """The row groups that were committed are those of the file, with the few last rows behind them."""
    simulator, out = Simulator(chains=CHAINS, rows=70, latency=0.01), tmp_path / "b.parquet"
    segments = await exported(simulator, out)
    assert out.stat().st_ino in segments
    assert out.stat().st_nlink == 1
    assert sizes_of(out) == [40] * 5 + [10]
    check(simulator, out, 70)


@pytest.mark.parametrize(
    ("first", "then", "groups"),
    [(SMALL, LINES, 5), (LINES, SMALL, 1), (SMALL, SMALL, 5)],
    ids=["groups, lines", "lines, groups", "two segments"],
)
async def test_a_run_that_was_stopped(first: GroupSize, then: GroupSize, groups: int, tmp_path: Path) -> None:
    """Rows of two runs, in row groups and as JSON lines, are in the file once and in order."""
    simulator, out = Simulator(chains=CHAINS, rows=120, latency=0.1), tmp_path / "b.parquet"
    await exported(simulator, out, first, seconds=0.65)
    assert not out.exists()
    await exported(simulator, out, then)
    check(simulator, out, 120)
    assert len(sizes_of(out)) == groups


async def test_an_unfinished_source_keeps_its_rows(tmp_path: Path) -> None:
    """A file gets the rows of finished sources; those of others wait in the same row groups."""
    simulator, out = Simulator(chains=CHAINS, rows=70, latency=0.01), tmp_path / "b.parquet"
    simulator.faults = (Fault(at=15, status=500),)
    with pytest.raises(IncompleteExportError):
        await exported(simulator, out)
    assert len({row["source"] for row in read(out, "parquet")}) == 2
    await exported(simulator, out)
    check(simulator, out, 70)


async def test_a_damaged_row_group_is_found(tmp_path: Path) -> None:
    """A segment that lacks a row group, or has another one, is refused at the start."""
    simulator, out = Simulator(chains=CHAINS, rows=120, latency=0.1), tmp_path / "b.parquet"
    await exported(simulator, out, seconds=0.65)
    (segment,) = tmp_path.rglob("groups-*")  # noqa: ASYNC240
    content = segment.read_bytes()
    for damaged in (content[:-9] + bytes([content[-9] ^ 1]) + content[-8:], content[:-1], b""):
        segment.write_bytes(damaged)
        with pytest.raises(ExportError, match=r"groups-00001 is damaged .*put back a copy"):
            await exported(simulator, out)
    segment.write_bytes(content + b"never committed")
    await exported(simulator, out)
    check(simulator, out, 120)


@pytest.mark.parametrize(("most", "twice"), [(3, 0), pytest.param(10_000, 1, marks=pytest.mark.proof)])
@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[8]], ids=str)
async def test_a_kill_or_a_power_cut_at_any_step(target: Any, most: int, twice: int, tmp_path: Path) -> None:
    """After a kill or a power cut at any step, rows in row groups are there once."""
    story = evolve(BLOCKS, invalid=())
    with groups_of(GroupSize(least=4, full=8, seconds=LATENCY)), bucket() as objects:
        assert await stops(target, story, tmp_path, objects, most, twice) >= 3
