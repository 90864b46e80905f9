"""Parts of a folder: written while the export runs, each row in one of them, and named by `files`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chainapi.errors import ConfigurationError, ExportError
from chainapi.export import compact, export, files
from chainapi.simulator import Simulator
from tests.export.buckets import bucket
from tests.export.contract import stopped
from tests.export.growing import blocks_of, names_in, numbers_in
from tests.export.test_formats import exported
from tests.sessions import simulated

CHAINS = (1, 2, 3)


@pytest.mark.proof
@pytest.mark.parametrize(("text", "count"), [("x", 60_000), ("x" * 20_000, 2_000)])
async def test_rows_and_bytes_end_a_part(text: str, count: int, tmp_path: Path) -> None:
    """A part ends at the latest with the page that passes 100,000 rows or 64 MiB."""
    lists = {f"/v1/{name}": [{"text": text}] * count for name in "abc"}
    await exported(tmp_path, lists, concurrency=1, compact=False)
    rows = [one.rows for one in files(tmp_path)]
    assert sum(rows) == 3 * count
    assert max(rows) <= 2 * count


async def test_files_has_rows_and_ranges(tmp_path: Path) -> None:
    """A file of a target has its path, rows and bytes, and the newest number of each source."""
    with bucket() as objects:
        for out in (f"{tmp_path}/folder/", "bucket://b/x/", f"{tmp_path}/b.jsonl", f"{tmp_path}/b.sqlite"):
            simulator = Simulator(chains=(1, 2), rows=30)
            async with simulated(simulator) as session:
                await export(session.data.evm.blocks, [1, 2], out, page_size=10)
                old = files(out)
                simulator.insert("/v1/chains/2/blocks", 5)
                await export(session.data.evm.blocks, [1, 2], out, page_size=10)
                (newest,) = await session.data.evm.blocks(2).collect(1)
            found = files(out)
            assert found[: len(old)] == old or not out.endswith("/")
            assert sum(one.rows for one in found) == 65
            assert found[-1].newest["2"] == newest.block_timestamp > (old[-1].newest["2"] or 0)
            for one in found:
                path = str(one.path)
                assert path.startswith(out)
                local = Path(path) if "://" not in path else None
                content = objects.objects()[path.removeprefix("bucket:/")] if local is None else None
                assert one.size == (len(content or b"") if local is None else local.stat().st_size)


async def test_a_target_without_an_export_has_no_files(tmp_path: Path) -> None:
    """`files` and `compact` name a target that no export wrote, and `compact` refuses a file."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.sqlite").touch()
    for name in ("nothing/", "empty/", "b.jsonl", "b.sqlite", "empty.sqlite"):
        with pytest.raises(ExportError, match="has no export"):
            files(f"{tmp_path}/{name}")
    with pytest.raises(ExportError, match="has no export"):
        compact(tmp_path / "empty")
    with pytest.raises(ConfigurationError, match="is one file, which has no parts to merge"):
        compact(tmp_path / "b.jsonl")
    assert names_in(tmp_path) == ["empty", "empty.sqlite"]


async def test_parts_may_be_moved_away_meanwhile(tmp_path: Path) -> None:
    """Parts that are moved away while the export runs are not written again."""
    folder, away = tmp_path / "run", tmp_path / "away"
    away.mkdir()
    simulator = Simulator(chains=CHAINS, rows=200, latency=1.0)

    def move(_: object) -> None:
        for path in folder.glob("part-*"):
            path.rename(away / path.name)

    async with simulated(simulator) as session:
        walk = session.data.evm.blocks
        for seconds in (7.5, 5.5, 100):
            run = export(walk, CHAINS, folder, page_size=10, commit_seconds=2, progress=move)
            await stopped(run, seconds)
    move(None)
    assert len(names_in(away)) >= 8
    assert numbers_in(away) == Counter(blocks_of(simulator, 200, CHAINS))


@pytest.mark.parametrize("name", ["out/part-00000002.jsonl", "out.jsonl"])
async def test_a_file_of_others_in_place_of_the_next_one(name: str, tmp_path: Path) -> None:
    """A file that a user creates during a run is left alone, also if the export wants its name."""
    simulator, theirs = Simulator(chains=CHAINS, rows=40, latency=1.0), tmp_path / name
    out = tmp_path / name.split("/")[0]

    def create(progress: Any) -> None:
        if progress.rows and not theirs.exists():
            theirs.parent.mkdir(exist_ok=True)
            theirs.write_bytes(b"theirs")

    async with simulated(simulator) as session:
        for progress in (create, False):
            with pytest.raises(ExportError, match=theirs.name):
                await export(
                    session.data.evm.blocks, CHAINS, out, page_size=10, commit_seconds=1.5, progress=progress
                )
            assert theirs.read_bytes() == b"theirs"
        theirs.unlink()
        await export(session.data.evm.blocks, CHAINS, out, page_size=10)
    assert numbers_in(out) == Counter(blocks_of(simulator, 40, CHAINS))
