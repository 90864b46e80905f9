"""Time left within one long source: estimated by the numbers of its rows where the list has an end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from chainapi.export.progress import ExportProgress
from chainapi.export.reach import Reach
from tests.export.windows import transfers
from tests.ledger import Ledger
from tests.sessions import reaching


@pytest.mark.rule
@pytest.mark.parametrize(
    ("start", "end", "pages", "share"),
    [
        (0, None, [[100, 90], [80]], 0.2),
        (50, None, [[100, None, 75]], 0.5),
        (None, 200, [[100, 120], [150]], 0.5),  # the oldest rows first
        (None, 200, [[100, 75]], None),
        (0, None, [[100, 120]], None),
        (0, 200, [[100, 100], []], None),
        (0, None, [[None]], None),
        (120, None, [[100, 90]], None),  # the service does not bound this number
        (50, None, [[100, 40]], 1.0),
        (0, None, [[100, 40], [100, 90]], 0.6),  # the walk restarted
    ],
)
def test_the_share_of_a_walk(
    start: int | None, end: int | None, pages: list[list[int | None]], share: float | None
) -> None:
    """The share is that of the numbers between the first row and the end of the list in its order."""
    reach = Reach(start, end)
    for numbers in pages:
        reach.follow(numbers)
    assert reach.share == pytest.approx(share)


async def estimates(path: Path, **options: Any) -> list[tuple[float, float | None]]:
    """Export 120 pages; return the time and the estimate of the time left at each report of fetching."""
    found = list[tuple[float, float | None]]()
    loop = asyncio.get_running_loop()

    def note(progress: ExportProgress) -> None:
        if progress.stage == "fetching":
            found.append((loop.time(), progress.seconds_left))

    async with reaching(Ledger(list(range(1_000, 1_360)), latency=0.1)) as session:
        await transfers(session, path, on_progress=note, **options)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"start_block": 999},
        {"start_block": 999, "ranges": 4},
    ],
)
async def test_the_time_left_within_a_source(options: dict[str, Any], tmp_path: Path) -> None:
    """The time left of one source is known from its first pages on, whole or in ranges."""
    found = await estimates(tmp_path / "t.jsonl", **options)
    end = found[-1][0]
    for time, left in found[len(found) // 4 :]:
        assert left == pytest.approx(end - time, rel=0.35, abs=0.2)


async def test_without_an_end_the_time_left_is_not_known(tmp_path: Path) -> None:
    """A list whose end is not known has no estimate, nor one with a limit by its numbers."""
    found = await estimates(tmp_path / "t.jsonl")
    assert {left for _, left in found[:-1]} == {None}


async def test_an_update_ends_at_the_newest_known_row(tmp_path: Path) -> None:
    """The end of an update is the newest row of the target."""
    ledger, left = Ledger(list(range(1_000, 1_010))), list[float | None]()

    def note(progress: ExportProgress) -> None:
        if progress.stage == "fetching":
            left.append(progress.seconds_left)

    async with reaching(ledger) as session:
        await transfers(session, tmp_path / "t.jsonl")
        ledger.numbers += range(1_010, 1_070)
        await transfers(session, tmp_path / "t.jsonl", on_progress=note)
    assert None not in left
    assert left[-1] == 0.0
