"""Progress of exports: counts, stages, and the time left, by the numbers of rows where a list has an end."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chainapi.export import export
from chainapi.simulator import Simulator
from tests.export.growing import blocks_of, numbers_in, transfers
from tests.ledger import Ledger
from tests.sessions import reaching, simulated

CHAINS = tuple(range(1, 13))


async def estimates(path: Path, **options: Any) -> list[tuple[float, float | None]]:
    """Export 120 pages; return the time and the estimate of the time left at each report of fetching."""
    found = list[tuple[float, float | None]]()
    loop = asyncio.get_running_loop()

    def note(progress: Any) -> None:
        if progress.stage == "fetching":
            found.append((loop.time(), progress.seconds_left))

    async with reaching(Ledger(list(range(1_000, 1_360)), latency=0.1)) as session:
        await transfers(session, path, progress=note, **options)
    return found


@pytest.mark.parametrize("options", [{"start_block": 999}, {"start_block": 999, "ranges": 4}])
async def test_the_time_left_within_a_source(options: dict[str, Any], tmp_path: Path) -> None:
    """The time left of one source is known from its first pages on, whole or in ranges."""
    found = await estimates(tmp_path / "t.jsonl", **options)
    end = found[-1][0]
    for time, left in found[len(found) // 4 :]:
        assert left == pytest.approx(end - time, rel=0.35, abs=0.2)


async def test_without_an_end_the_time_left_is_not_known(tmp_path: Path) -> None:
    """A list whose end is not known has no estimate, nor one with a limit by its numbers."""
    found = await estimates(tmp_path / "t.jsonl")
    assert {left for _, left in found[:-2]} == {None}


async def test_an_update_ends_at_the_newest_known_row(tmp_path: Path) -> None:
    """The end of an update is the newest row of the target."""
    ledger, left = Ledger(list(range(1_000, 1_010))), list[float | None]()

    def note(progress: Any) -> None:
        if progress.stage == "fetching":
            left.append(progress.seconds_left)

    async with reaching(ledger) as session:
        await transfers(session, tmp_path / "t.jsonl")
        ledger.numbers += range(1_010, 1_070)
        await transfers(session, tmp_path / "t.jsonl", progress=note)
    assert None not in left
    assert left[-1] == 0.0


async def test_progress_is_reported(tmp_path: Path) -> None:
    """Progress counts to all sources and rows, as JSON and as a line for people."""
    simulator = Simulator(chains=CHAINS, rows=100, latency=1.0)
    reports, left, records, texts = list[Any](), list[Any](), list[dict[str, Any]](), list[str]()

    def note(progress: Any) -> None:
        reports.append((progress.stage, progress.done, progress.pages, progress.rows))
        left.append(progress.seconds_left)
        records.append(progress.record)
        texts.append(progress.text())

    async with simulated(simulator) as session:
        walk, out = session.data.evm.blocks, tmp_path / "b.parquet"
        await export(walk, CHAINS, out, page_size=50, concurrency=3, progress=note)
    assert reports[-2:] == [("writing", 12, 24, 1200), ("done", 12, 24, 1200)]
    assert [stage for stage, *_ in reports[:-2]] == ["fetching"] * (len(reports) - 2)
    assert all(a[1:] <= b[1:] for a, b in pairwise(reports))
    assert (left[0], left[-1]) == (None, 0)
    assert max(one for one in left if one is not None) < 20  # of about ten seconds in all
    assert json.loads(json.dumps(records)) == records
    last = {name: records[-1][name] for name in ("stage", "sources", "done", "rows", "seconds_left")}
    assert last == {"stage": "done", "sources": 12, "done": 12, "rows": 1200, "seconds_left": 0.0}
    assert [one["rows"] for one in records] == [rows for *_, rows in reports]
    assert texts[0].startswith("0 of 12 sources · 50 rows")
    assert texts[-1].startswith("12 of 12 sources · 1,200 rows")
    assert not [text for text in texts if "0 of 0" in text]


async def test_progress_that_fails_ends_the_export(tmp_path: Path) -> None:
    """The export raises the error of the callback, and keeps what was committed."""
    simulator = Simulator(chains=CHAINS, rows=100, latency=1.0)

    def note(progress: Any) -> None:
        if progress.pages > 3:
            raise RuntimeError("the disk of the callback is full")

    async with simulated(simulator) as session:
        with pytest.raises(RuntimeError, match="of the callback"):
            await export(session.data.evm.blocks, CHAINS, tmp_path / "b.jsonl", progress=note)
        result = await export(session.data.evm.blocks, CHAINS, tmp_path / "b.jsonl")
    assert 0 < result.rows <= 800
    assert numbers_in(tmp_path / "b.jsonl") == Counter(blocks_of(simulator, 100))
