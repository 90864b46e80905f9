"""Parts of a folder: written while the export runs, listed in its manifest, each row in one of them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chainapi.errors import ConfigurationError, ExportError, IncompleteExportError
from chainapi.export import export
from chainapi.export.manifest import MANIFEST
from chainapi.export.progress import ExportProgress
from chainapi.simulator import Fault, Simulator
from tests.export.test_export import blocks_of, numbers_in, rows_in
from tests.sessions import simulated

CHAINS = (1, 2, 3)


def manifest_of(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the manifest; the parts that it names are those of the folder."""
    entries = [json.loads(line) for line in (folder / MANIFEST).read_text().splitlines()]
    assert {entry["name"] for entry in entries} == {
        str(path.relative_to(folder)) for path in folder.rglob("part-*")
    }
    return entries


def parts_of(folder: Path) -> list[Path]:
    """Return the parts of a folder."""
    return sorted(folder.rglob("*.jsonl"))


def names_in(folder: Path) -> list[str]:
    """Return the sorted names in a folder."""
    return sorted(path.name for path in folder.iterdir())


def blocks_in(folder: Path) -> Counter[tuple[str, int]]:
    """Count the blocks of all parts by source and number."""
    return sum((numbers_in(path) for path in parts_of(folder)), Counter[tuple[str, int]]())


@pytest.mark.parametrize("same", [True, False])
async def test_a_link_in_place_of_the_manifest(same: bool, tmp_path: Path) -> None:
    """A symbolic link in place of the manifest is refused by name, and neither followed nor replaced."""
    simulator, out = Simulator(chains=CHAINS, rows=20), tmp_path / "out"
    async with simulated(simulator) as session:
        await export(session.data.evm.blocks, [1], out)
        theirs = (out / MANIFEST).rename(tmp_path / "theirs")
        if not same:
            theirs.write_bytes(b"")
        content = theirs.read_bytes()
        (out / MANIFEST).symlink_to(theirs)
        with pytest.raises(ExportError, match=rf"{MANIFEST} is a symbolic link to .*theirs, which"):
            await export(session.data.evm.blocks, [1, 2], out)
    assert (out / MANIFEST).is_symlink()
    assert theirs.read_bytes() == content
    assert len(parts_of(out)) == 1


@pytest.mark.parametrize("name", ["out/part-00002.jsonl", "out.jsonl"])
async def test_a_file_of_others_in_place_of_the_next_one(name: str, tmp_path: Path) -> None:
    """A file that a user creates during a run is left alone, also if the export wants its name."""
    simulator, theirs = Simulator(chains=CHAINS, rows=40), tmp_path / name
    out = tmp_path / name.split("/")[0]
    options: dict[str, Any] = {"page_size": 10, "part_rows": 50} if out != theirs else {}

    def create(progress: ExportProgress) -> None:
        if progress.rows and not theirs.exists():
            theirs.write_bytes(b"theirs")

    async with simulated(simulator) as session:
        for on_progress in (create, None):
            with pytest.raises(ExportError, match=f"{theirs.name} exists, but .* has no record of it"):
                await export(session.data.evm.blocks, CHAINS, out, on_progress=on_progress, **options)
            assert theirs.read_bytes() == b"theirs"
        theirs.unlink()
        await export(session.data.evm.blocks, CHAINS, out, **options)
    assert blocks_in(tmp_path) == Counter(blocks_of(simulator, 40, CHAINS))


async def test_a_folder_gets_parts_while_the_export_runs(tmp_path: Path) -> None:
    """A part has the rows of unfinished sources too, and later ones follow it in the same run."""
    simulator = Simulator(chains=CHAINS, rows=200, latency=1.0)
    met = list[int]()

    def note(progress: ExportProgress) -> None:
        if progress.stage == "fetching" and progress.done == 0:
            met.append(len(parts_of(tmp_path)))

    async with simulated(simulator) as session:
        walk = session.data.evm.blocks
        result = await export(walk, CHAINS, tmp_path, page_size=10, part_rows=100, on_progress=note)
    assert met[-1] >= 3
    entries = manifest_of(tmp_path)
    assert result.written == tuple(tmp_path / entry["name"] for entry in entries)
    assert sum(entry["rows"] for entry in entries) == result.rows == 600
    assert all(100 <= entry["rows"] < 140 for entry in entries[:-1])
    assert blocks_in(tmp_path) == Counter(blocks_of(simulator, 200, CHAINS))
    for path in parts_of(tmp_path):  # the rows of a source newest first
        for chain in CHAINS:
            numbers = [row["block_number"] for row in rows_in(path) if row["source"] == str(chain)]
            assert numbers == sorted(numbers, reverse=True)
    assert [name for name in names_in(tmp_path) if not name.endswith("jsonl")] == ["_export", MANIFEST]
    assert names_in(tmp_path / "_export") == ["journal"]


@pytest.mark.parametrize(
    ("limits", "parts"), [({"part_bytes": 20_000}, 12), ({"part_seconds": 5.0}, 4), ({}, 1)]
)
async def test_bytes_and_time_end_a_part(limits: dict[str, Any], parts: int, tmp_path: Path) -> None:
    """A part ends with its bytes as JSON, or when its first row has waited for a time."""
    simulator = Simulator(chains=CHAINS, rows=200, latency=1.0)
    async with simulated(simulator) as session:
        result = await export(session.data.evm.blocks, CHAINS, tmp_path, page_size=10, **limits)
    assert len(result.written) == pytest.approx(parts, abs=1)
    assert blocks_in(tmp_path) == Counter(blocks_of(simulator, 200, CHAINS))


async def test_the_manifest_has_the_ranges_of_each_part(tmp_path: Path) -> None:
    """An entry has rows, bytes, sources with their numbers, columns, the run and the time."""
    simulator = Simulator(chains=(1, 2), rows=30)
    async with simulated(simulator) as session:
        for new in (0, 5):
            simulator.insert("/v1/chains/2/blocks", new)
            await export(session.data.evm.blocks, [1, 2], tmp_path, page_size=10)
    first, second = manifest_of(tmp_path)
    assert first.keys() == {"name", "part", "rows", "bytes", "sources", "columns", "replaces", "run", "time"}
    for entry in (first, second):
        path = tmp_path / entry["name"]
        assert entry["bytes"] == path.stat().st_size
        rows = rows_in(path)
        assert [column["name"] for column in entry["columns"]] == [*rows[0]][1:]
        assert entry["sources"] == [
            {"source": chain, "rows": len(numbers), "lowest": min(numbers), "highest": max(numbers)}
            for chain in ("1", "2")
            if (numbers := [row["block_timestamp"] for row in rows if row["source"] == chain])
        ]
    assert first["run"] != second["run"]
    assert first["time"] <= second["time"]


async def test_a_manifest_that_was_changed_is_written_again(tmp_path: Path) -> None:
    """The journal restores a manifest that is missing, torn or different."""
    simulator = Simulator(chains=(1,), rows=30)
    async with simulated(simulator) as session:
        await export(session.data.evm.blocks, [1], tmp_path)
        whole = (tmp_path / MANIFEST).read_bytes()
        for damage in (None, whole[:-5], b"{}\n" + whole, b"[" * 100_000, b'{"name": "x", "part": 1e400}'):
            (tmp_path / MANIFEST).unlink()
            if damage is not None:
                (tmp_path / MANIFEST).write_bytes(damage)
            await export(session.data.evm.blocks, [1], tmp_path)
            assert (tmp_path / MANIFEST).read_bytes() == whole


async def test_parts_may_be_moved_away(tmp_path: Path) -> None:
    """Parts that are moved away while the export runs are not written again."""
    folder, away = tmp_path / "run", tmp_path / "away"
    away.mkdir()
    simulator = Simulator(chains=CHAINS, rows=200, latency=1.0)

    def move(_: ExportProgress) -> None:
        for path in parts_of(folder):
            path.rename(away / path.name)

    async with simulated(simulator) as session:
        walk = session.data.evm.blocks
        for seconds in (7.5, 5.5, 100):
            run = asyncio.create_task(
                export(walk, CHAINS, folder, page_size=10, part_rows=50, on_progress=move)
            )
            await asyncio.wait([run], timeout=seconds)
            run.cancel()
            await asyncio.wait([run])
    move(ExportProgress())
    assert len(parts_of(away)) >= 10
    assert blocks_in(away) == Counter(blocks_of(simulator, 200, CHAINS))


async def test_rows_of_a_failed_source_are_in_a_part(tmp_path: Path) -> None:
    """A folder gets the rows that a failed source had; the next run adds the rest."""
    simulator = Simulator(chains=(1,), rows=100)
    async with simulated(simulator, max_attempts=1) as session:
        simulator.faults = (Fault(at=4, status=500),)
        with pytest.raises(IncompleteExportError):
            await export(session.data.evm.blocks, [1], tmp_path, page_size=20)
        assert blocks_in(tmp_path).total() == 60
        simulator.faults = ()
        await export(session.data.evm.blocks, [1], tmp_path, page_size=20)
    assert blocks_in(tmp_path) == Counter(blocks_of(simulator, 100, (1,)))


async def test_limits_of_parts_are_for_folders(tmp_path: Path) -> None:
    """Invalid limits, and any limit of a single file, are refused before a request."""
    simulator = Simulator()
    async with simulated(simulator) as session:
        for name in ("part_rows", "part_bytes", "part_seconds"):
            with pytest.raises(ConfigurationError, match=f"{name}= applies to a folder"):
                await export(session.data.evm.blocks, [1], tmp_path / "b.jsonl", **{name: 10})  # type: ignore[arg-type]
            with pytest.raises(ConfigurationError, match=f"{name}=-1 must be"):
                await export(session.data.evm.blocks, [1], tmp_path, **{name: -1})  # type: ignore[arg-type]
    assert simulator.stats.requests == 0
