"""Exports that are cancelled while parts are written: they end soon, and leave no task and no thread."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from chainapi.export import export
from chainapi.export.formats import Dropped, Rows
from chainapi.export.formats.jsonl import JsonLines
from chainapi.export.progress import ExportProgress
from chainapi.simulator import Simulator
from tests.export.test_export import blocks_of, numbers_in
from tests.sessions import simulated

CHAINS = (1, 2, 3)


@frozen(eq=False)
class SlowLines(JsonLines):
    """JSON lines whose writer waits before each page until it may go on."""

    begun: threading.Event = field(factory=threading.Event)
    go: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))
    written: list[str] = field(factory=list[str])

    @property
    def keeps_lines(self) -> bool:
        """Check whether a segment may be the file; it would not be written."""
        return False

    @property
    def pages(self) -> int:
        """Number of pages that were written."""
        return len(self.written)

    def write(
        self,
        path: Path,
        columns: Any,
        rows: Rows,
        previous: Path | None = None,
        stop: threading.Event | None = None,
        dropped: Dropped = frozenset(),
    ) -> int:
        """Write a file, a page at a time."""

        def slowly() -> Iterator[tuple[str, bytes]]:
            for page in rows:
                self.begun.set()
                assert self.go.acquire(timeout=20)
                self.written.append(page[0])
                yield page

        return super().write(path, columns, slowly(), previous, stop, dropped)


@pytest.mark.parametrize("out", ["b.jsonl", "b/"])
@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_cancelled_export_stops_writing(
    out: str, cancels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that is cancelled at its last part ends at the next page, at no loss."""
    simulator, slow = Simulator(chains=CHAINS, rows=60), SlowLines()
    tasks = asyncio.all_tasks()
    async with simulated(simulator) as session:
        walk, target = session.data.evm.blocks, f"{tmp_path}/{out}"
        with monkeypatch.context() as patched:
            patched.setattr("chainapi.export.formats.jsonl.FORMAT", slow)
            run = asyncio.create_task(export(walk, CHAINS, target, page_size=10))
            await asyncio.to_thread(slow.begun.wait, 20)
            for _ in range(cancels):
                run.cancel()
                await asyncio.sleep(0)
            slow.go.release()
            with pytest.raises(asyncio.CancelledError):
                await run
        assert slow.pages == 1
        assert asyncio.all_tasks() == tasks
        assert [name for name in names(tmp_path) if "part" in name] == []
        requests = simulator.stats.requests
        result = await export(walk, CHAINS, target, page_size=10)
    assert simulator.stats.requests == requests + 3  # to see whether there is anything new
    assert result.rows == 0
    assert numbers_in(Path(result.written[0])) == Counter(blocks_of(simulator, 60, CHAINS))
    assert [one.name for one in threading.enumerate() if "export" in one.name] == []


def names(folder: Path) -> list[str]:
    """Return the names of all files."""
    return [path.name for path in folder.rglob("*")]


async def test_progress_counts_the_written_rows(tmp_path: Path) -> None:
    """Progress has the rows written of those to write, and a form for machines."""
    simulator = Simulator(chains=CHAINS, rows=100, latency=1.0)
    records = list[dict[str, Any]]()

    def note(progress: ExportProgress) -> None:
        records.append(progress.record)

    async with simulated(simulator) as session:
        walk = session.data.evm.blocks
        await export(walk, CHAINS, tmp_path, page_size=10, part_rows=60, on_progress=note)
    assert [one["written"] for one in records] == sorted(one["written"] for one in records)
    assert all(one["written"] <= one["to_write"] for one in records)
    assert any(0 < one["written"] < 300 for one in records if one["stage"] == "fetching")
    last = records[-1]
    assert (last["stage"], last["rows"], last["written"], last["to_write"]) == ("done", 300, 300, 300)
    assert last["seconds_left"] == 0.0


@pytest.mark.rule
def test_the_time_left_includes_writing() -> None:
    """The rows that wait for a part are added at the pace of the parts so far."""
    now = 0.0
    progress = ExportProgress(10, clock=lambda: now)
    now = 100.0
    for number in range(5):
        progress.seen += 1
        progress.rows += 100
        progress.committed(str(number), done=True)
    assert progress.seconds_left == 100.0
    progress.begin_writing(200, 300)
    now = 104.0
    progress.wrote(200)
    assert progress.step == "check"
    assert progress.seconds_left == 104.0  # how long the steps behind the first rows take is not known
    progress.begin_placing()
    progress.end_writing()
    assert progress.seconds_left == pytest.approx(104.0 + 300 * 0.02)
    progress.stage = "writing"
    progress.begin_writing(300, 0)
    assert progress.seconds_left == pytest.approx(6.0)
    assert progress.text() == "200 of 500 rows written · about 6 s left"
    progress.wrote(300)
    now = 108.0
    assert progress.text() == "500 of 500 rows written · reading them back · about 2 s left"
    progress.begin_placing()
    assert progress.text() == "500 of 500 rows written · putting them in place · about 2 s left"
    assert progress.record["step"] == "place"
    progress.end_writing()
    progress.stage = "done"
    assert progress.seconds_left == 0.0


async def test_progress_has_the_steps_of_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While new rows are added to a database, the progress names the step."""
    simulator, steps = Simulator(chains=CHAINS, rows=20), list[Any]()
    monkeypatch.setattr("chainapi.export.run.REPORT_EVERY", 0.0)

    def note(progress: ExportProgress) -> None:
        if progress.step and progress.step not in steps:
            steps.append(progress.step)

    async with simulated(simulator) as session:
        for _ in range(2):
            steps.clear()
            await export(session.data.evm.blocks, CHAINS, tmp_path / "b.sqlite", on_progress=note)
            simulator.insert("/v1/chains/2/blocks", 5)
    assert steps == [step for step in ("rows", "check", "place") if step in steps]
    assert steps
