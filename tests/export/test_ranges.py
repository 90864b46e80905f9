"""Ranges of exports: a long list walked side by side, with the rows of one walk, whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chainapi import Session
from chainapi.errors import ColumnValueError, ExportError, IncompleteExportError
from chainapi.export import ExportResult, export
from tests.export.contract import stopped
from tests.export.growing import rows_in
from tests.ledger import ADDRESS, Ledger
from tests.sessions import reaching

DAY = 86_400
ONE = (43114, ADDRESS)


async def exported(session: Session, path: Path, over: Any = (ONE,), **options: Any) -> ExportResult:
    """Export the transfers of a ledger, in pages of ten rows."""
    walk = session.data.evm.erc20_transactions
    return await export(walk, over, path, **{"page_size": 10, **options})


def serials_in(path: Path) -> list[int]:
    """Return what identifies each row, the newest row first: ranges write theirs by turns."""
    return sorted((int(row["tx_hash"][2:]) for row in rows_in(path)), reverse=True)


async def stopped_after(seconds: float, session: Session, path: Path, **options: Any) -> None:
    """Begin an export, and cancel it after some seconds."""
    task = await stopped(exported(session, path, **options), seconds)
    assert task.cancelled() or isinstance(task.exception(), IncompleteExportError | None)


# Values that fit no column


@pytest.mark.parametrize(("shape", "misfits", "kept"), [("file", (77,), 170), ("folder", (77, 112), 150)])
async def test_a_value_that_does_not_fit_fails_its_source_alone(
    shape: str, misfits: tuple[int, ...], kept: int, tmp_path: Path
) -> None:
    """The range with the value keeps the pages before it; its other ranges and the other sources end."""
    path = tmp_path / ("t.jsonl" if shape == "file" else "t")
    ledger, bad, good = Ledger(list(range(200))), f"43114/{ADDRESS}", f"43113/{ADDRESS}/70"
    ledger.changed = {serial: {"blockTimestamp": 10**15} for serial in misfits}
    over = [ONE, {"chain_id": 43113, "address": ADDRESS, "end_block": 70}]
    counts = list[tuple[int, int, int]]()

    def note(progress: Any) -> None:
        counts.append((progress.done, progress.failed, progress.rows))

    async with reaching(ledger) as session:
        for fetched in (70 + kept, 0):  # the value is still there in the second run
            with pytest.raises(IncompleteExportError) as caught:
                await exported(session, path, over, ranges=4, progress=note)
            ((label, failure),) = caught.value.failures.items()
            assert (label, counts[-1]) == (bad, (1, 1, fetched))
            assert isinstance(failure, ColumnValueError)
            assert str(failure).startswith(f"$.block_timestamp: {10**15} does not fit its column")
            found = Counter(row["source"] for row in rows_in(path))
            assert (found[good], found[bad]) == (70, kept)
        result = await exported(session, path, over, ranges=4, on_invalid="raw")
        assert (result.rows, result.invalid) == (200 - kept - len(misfits), len(misfits))
        assert (await exported(session, path, over, ranges=4, on_invalid="raw")).rows == 0
    found = Counter(row["source"] for row in rows_in(path))
    assert found == Counter({good: 70, bad: 200 - len(misfits)})
    serials = {int(row["tx_hash"][2:]) for row in rows_in(path) if row["source"] == bad}
    assert serials == {*range(200)} - {*misfits}


# Time and order


async def test_eight_ranges_take_an_eighth_of_the_time(tmp_path: Path) -> None:
    """An export in eight ranges sends pages side by side; its file has the rows of one walk."""
    ledger, seconds = Ledger([*range(800)], latency=0.3), list[float]()
    async with reaching(ledger) as session:
        for ranges in (None, 8):
            begun = ledger.now
            await exported(session, tmp_path / f"{ranges}.jsonl", ranges=ranges)
            seconds.append(ledger.now - begun)
    assert serials_in(tmp_path / "8.jsonl") == serials_in(tmp_path / "None.jsonl") == [*range(800)][::-1]
    # The newest row, and eleven pages of the longest range.
    assert seconds == pytest.approx([80 * 0.3, (1 + 11) * 0.3], rel=1e-3)


@pytest.mark.parametrize(
    ("ranges", "starts"),
    [("25 blocks", {24, 49, 74}), ("50blocks", {49}), (4, {24, 49, 74}), ("2", {49}), ("1", set[int]())],
)
async def test_widths_are_those_of_split(ranges: int | str, starts: set[int], tmp_path: Path) -> None:
    """A number, or a width with its unit, makes the ranges that split() makes of it."""
    ledger = Ledger(list(range(100)))
    async with reaching(ledger) as session:
        await exported(session, tmp_path / "t.jsonl", ranges=ranges)
    assert {int(one["startBlock"]) for one in ledger.requests if "startBlock" in one} == starts
    assert serials_in(tmp_path / "t.jsonl") == list(range(100))[::-1]


# Stops


async def test_a_restart_continues_each_range(tmp_path: Path) -> None:
    """Later runs continue the ranges of the first one, whatever ranges= they have, and split no more."""
    ledger, path = Ledger(list(range(400)), latency=1.0), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        await stopped_after(5.5, session, path, ranges=4)
        met, before = len(ledger.requests), {one.get("startBlock") for one in ledger.requests}
        ledger.numbers += range(400, 420)
        await stopped_after(2.5, session, path, ranges=32)
        await exported(session, path)
        assert {one.get("startBlock") for one in ledger.requests[met:]} <= before
        assert not any(one["pageSize"] == "1" for one in ledger.requests[met:])
        assert len(ledger.requests) < 60
        assert serials_in(path) == list(range(400))[::-1]
        again = await exported(session, path, ranges=4)
    assert (again.rows, again.closed) == (20, 0)
    assert Counter(serials_in(path)) == Counter(range(420))


async def test_an_update_is_one_walk_from_the_newest_row(tmp_path: Path) -> None:
    """A finished source gains its new rows by one request, as if it had been walked as a whole."""
    ledger, path = Ledger([number // 3 for number in range(300)]), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        await exported(session, path, ranges=8)
        for growth in (1, 5, 0):
            newest = ledger.numbers[-1]
            ledger.numbers += [newest + one // 4 for one in range(growth)]
            ledger.requests.clear()
            assert (await exported(session, path, ranges=8)).rows == growth
            assert [one["startBlock"] for one in ledger.requests] == [str(newest - 1)]
    assert Counter(serials_in(path)) == Counter(range(306))


async def test_an_empty_list_is_split_when_it_has_rows(tmp_path: Path) -> None:
    """A list without rows stays whole, and a later run has its rows."""
    ledger, path = Ledger([]), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        assert (await exported(session, path, ranges=8)).rows == 0
        ledger.numbers += range(50)
        assert (await exported(session, path, ranges=8)).rows == 50
    assert serials_in(path) == list(range(50))[::-1]


async def test_a_source_that_began_whole_stays_whole(tmp_path: Path) -> None:
    """A source with a position of its own is not split: its walk continues."""
    ledger, path = Ledger(list(range(100)), latency=1.0), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        await stopped_after(3.5, session, path)
        await exported(session, path, ranges=8)
    assert not any("startBlock" in one for one in ledger.requests)
    assert serials_in(path) == list(range(100))[::-1]


# Many sources


async def test_a_range_that_fails_fails_its_source_once(tmp_path: Path) -> None:
    """Other ranges are read to their ends; the next run fetches what is left, and no page again."""
    ledger, path = Ledger(list(range(200)), statuses=[200, 200, 500, 500]), tmp_path / "t.jsonl"
    async with reaching(ledger, max_attempts=1) as session:
        with pytest.raises(IncompleteExportError, match="1 of 1 sources failed") as caught:
            await exported(session, path, ranges=5)
        assert [*caught.value.failures] == [f"43114/{ADDRESS}"]
        assert len(rows_in(path)) == 120
        ledger.requests.clear()
        await exported(session, path, ranges=5)
    assert len(ledger.requests) == 2 * 5
    assert serials_in(path) == list(range(200))[::-1]


async def test_an_error_of_the_sources_ends_the_export(tmp_path: Path) -> None:
    """An error of the caller's own iterator is raised, and what was fetched is kept."""
    ledger, path = Ledger(list(range(30)), latency=1.0), tmp_path / "t.jsonl"

    async def broken() -> AsyncIterator[tuple[int, str]]:
        yield ONE
        await asyncio.sleep(2.5)
        raise KeyError("mine")

    async with reaching(ledger) as session:
        with pytest.raises(KeyError, match="mine"):
            await exported(session, path, broken(), ranges=2)
        ledger.requests.clear()
        await exported(session, path)
    assert len(ledger.requests) < 5
    assert Counter(serials_in(path)) == Counter(range(30))


# Refusals


async def test_too_many_ranges_fail_the_source(tmp_path: Path) -> None:
    """A source that would have more ranges than split() makes fails alone, with its words."""
    ledger, path = Ledger([1, 10**9]), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        with pytest.raises(IncompleteExportError, match="more than 100000: use wider ones"):
            await exported(session, path, ranges="1 block")


async def test_ranges_are_no_setting_of_the_export(tmp_path: Path) -> None:
    """A run with other settings is refused while ranges are unfinished; other ranges are not."""
    ledger, path = Ledger(list(range(100)), latency=1.0), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        await stopped_after(2.5, session, path, ranges=4)
        with pytest.raises(ExportError, match="start_block was left out, is 5"):
            await exported(session, path, start_block=5)
        await exported(session, path, ranges="9 blocks")
    assert serials_in(path) == list(range(100))[::-1]
