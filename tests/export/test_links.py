"""Parts of JSON lines that are segments of the journal: a second name, and no second writing."""

from __future__ import annotations

import os
from collections import Counter
from errno import EIO, EPERM
from pathlib import Path
from typing import Any

import pytest

from chainapi.export import export
from chainapi.export.formats import format_of
from chainapi.export.part_records import PageRecord
from chainapi.export.progress import ExportProgress
from chainapi.export.segments import link_segment, segment_path
from chainapi.simulator import Simulator
from chainapi.testing import run
from tests.export.power_cuts import PowerCuts
from tests.export.test_export import blocks_of, numbers_in, rows_in
from tests.export.test_parts import CHAINS, blocks_in, parts_of
from tests.sessions import simulated


async def exported(simulator: Simulator, out: Path, **options: Any) -> set[int]:
    """Export blocks in pages of 10; return the numbers of the files that were segments meanwhile."""
    segments = set[int]()

    def note(progress: ExportProgress) -> None:
        journal = out if not out.suffix else out.with_name(f"{out.name}.export")
        for path in (journal / "_export" if journal == out else journal).glob("pages-*"):
            segments.add(path.stat().st_ino)

    async with simulated(simulator) as session:
        chains = options.pop("chains", CHAINS)
        walk = session.data.evm.blocks
        await export(walk, chains, out, page_size=10, on_progress=note, **options)
    return segments


def number_of(path: Path) -> int:
    """Return the number of a file on its disk."""
    return path.stat().st_ino


async def test_a_part_of_a_folder_is_a_segment(tmp_path: Path) -> None:
    """Each part of a folder is the segment that had its rows, under another name."""
    simulator = Simulator(chains=CHAINS, rows=100, latency=1.0)
    segments = await exported(simulator, tmp_path, part_rows=100)
    assert {*map(number_of, parts_of(tmp_path))} <= segments
    assert len(parts_of(tmp_path)) >= 2
    assert all(path.stat().st_nlink == 1 for path in parts_of(tmp_path))
    assert blocks_in(tmp_path) == Counter(blocks_of(simulator, 100, CHAINS))


async def test_the_first_rows_of_a_single_file_are_a_segment(tmp_path: Path) -> None:
    """A new single file is the segment; later rows are appended to it, and not to a segment."""
    simulator, out = Simulator(chains=CHAINS, rows=30, latency=1.0), tmp_path / "b.jsonl"
    segments = await exported(simulator, out)
    assert number_of(out) in segments
    first = numbers_in(out)
    assert first == Counter(blocks_of(simulator, 30, CHAINS))
    simulator.insert("/v1/chains/2/blocks", 7)
    number = number_of(out)
    assert number not in await exported(simulator, out)
    assert number_of(out) == number
    assert (numbers_in(out) - first).total() == 7
    assert numbers_in(out) >= first


@pytest.mark.parametrize(
    "options",
    [
        {"partition": ("source",)},  # a segment has several partitions
        {"format": "jsonl.gz"},
        {"format": "csv"},
    ],
    ids=["partition", "gzip", "csv"],
)
def test_rows_in_another_form_are_written(options: dict[str, Any], tmp_path: Path) -> None:
    """A part whose rows have another form than the segment, or are some of it, is a file of its own."""
    simulator = Simulator(chains=CHAINS, rows=60, latency=1.0)
    chains, suffix = options.get("chains", CHAINS), options.get("format", "jsonl")
    segments = run(exported(simulator, tmp_path, **options))
    parts = sorted(tmp_path.rglob(f"part-*.{suffix}"))
    assert parts
    assert not {*map(number_of, parts)} & segments
    rows = [row for path in parts for row in format_of(path).read(path)]
    assert len(rows) == 60 * len(chains)


@pytest.mark.parametrize(
    ("places", "length"),
    [
        ([(1, 0, 4)], 6),  # bytes of a commit that failed follow
        ([(1, 2, 4)], 6),  # a page in front of them is of another part
        ([(1, 0, 2), (1, 4, 2)], 6),
        ([(1, 0, 2), (2, 0, 4)], 6),  # pages of two segments
        ([], 0),
    ],
)
def test_a_segment_with_other_bytes_is_no_part(
    places: list[tuple[int, int, int]], length: int, tmp_path: Path
) -> None:
    """A segment is a file only if it has the rows of its pages and not a byte more."""
    for number in (1, 2):
        segment_path(tmp_path, number).write_bytes(b"1\n" * (length // 2))
    pages = [
        PageRecord(number, 1, 0, segment, start, size, size // 2, 0, 0, None, None, 0)
        for number, (segment, start, size) in enumerate(places, 1)
    ]
    assert not link_segment(tmp_path, pages, tmp_path / "part")
    assert not (tmp_path / "part").exists()
    whole = [PageRecord(1, 1, 0, 1, 0, length, length // 2, 0, 0, None, None, 0)]
    assert link_segment(tmp_path, whole, tmp_path / "part")


async def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hard links, the rows of a part are written, sorted by source."""

    def refuse(*_: object) -> None:
        raise OSError(EPERM, "no hard links")

    monkeypatch.setattr(os, "link", refuse)
    simulator = Simulator(chains=CHAINS, rows=30)
    segments = await exported(simulator, tmp_path)
    (part,) = parts_of(tmp_path)
    assert number_of(part) not in segments
    keys = [(row["source"], -row["block_number"]) for row in rows_in(part)]
    assert keys == sorted(keys)
    assert blocks_in(tmp_path) == Counter(blocks_of(simulator, 30, CHAINS))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
async def test_a_hard_link_that_is_made_with_an_error(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that makes a link and reports an error loses no row of the journal."""
    link = os.link

    def fail(path: Path, name: Path) -> None:
        link(path, name)
        raise OSError(EIO, "the answer was lost")

    monkeypatch.setattr(os, "link", fail)
    simulator = Simulator(chains=CHAINS, rows=2_000)
    async with simulated(simulator) as session:
        result = await export(session.data.evm.blocks, CHAINS, tmp_path / f"b.{suffix}", page_size=100)
    assert result.rows == 2_000 * len(CHAINS)


async def test_a_part_that_was_changed_before_its_pages_were_forgotten(tmp_path: Path) -> None:
    """A part may be changed as soon as it has its name, also while its segment has not been removed."""
    folder = tmp_path / "run"
    folder.mkdir()
    simulator = Simulator(chains=CHAINS, rows=20)
    with PowerCuts(folder) as cuts:
        await exported(simulator, folder)
    changed = 0
    for number, image in enumerate(cuts.take()):
        place = tmp_path / f"image-{number}"
        segments = [name for name in image if "pages-" in name]
        if "part-00001.jsonl" not in image or not segments:
            continue
        cuts.restore(image, place)
        part, segment = place / "part-00001.jsonl", place / segments[0]
        segment.unlink()
        segment.hardlink_to(part)
        content = part.read_bytes().replace(b'"source"', b'"SOURCE"')
        part.write_bytes(content)
        await exported(simulator, place)
        assert part.read_bytes() == content
        assert parts_of(place) == [part]
        changed += 1
    assert changed
