"""Ranges of exports: a long list walked side by side, with the rows of one walk, whatever happens."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Session
from chainapi.errors import (
    ArgumentError,
    ColumnValueError,
    ConfigurationError,
    ExportError,
    IncompleteExportError,
)
from chainapi.export import export
from chainapi.export.progress import ExportProgress
from chainapi.export.run import ExportResult
from chainapi.testing import run
from tests.export.walked_in_ranges import LATENCY, walked
from tests.ledger import ADDRESS, Ledger, point
from tests.sessions import reaching

DAY = 86_400
ONE = (43114, ADDRESS)


async def exported(session: Session, path: Path, over: Any = (ONE,), **options: Any) -> ExportResult:
    """Export the transfers of a ledger, in pages of ten rows."""
    walk = session.data.evm.erc20_transactions
    return await export(walk, over, path, **{"page_size": 10, **options})


def rows_in(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines, or of all parts of a folder."""
    files = sorted(path.glob("part-*.jsonl")) if path.is_dir() else [path]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def serials_in(path: Path) -> list[int]:
    """Return what identifies each row."""
    return [int(row["tx_hash"][2:]) for row in rows_in(path)]


def begun_ranges(path: Path) -> list[int]:
    """Return the places of the unfinished ranges in the journal of a file."""
    journal = path.with_name(f"{path.name}.export") / "journal"
    database = sqlite3.connect(journal)
    try:
        return [place for (place,) in database.execute("SELECT place FROM sources WHERE place > 0")]
    finally:
        database.close()


async def stopped_after(seconds: float, session: Session, path: Path, **options: Any) -> None:
    """Begin an export, and cancel it after some seconds."""
    task = asyncio.create_task(exported(session, path, **options))
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or isinstance(task.exception(), IncompleteExportError | None)


# Values that fit no column


@pytest.mark.parametrize(
    ("shape", "misfits", "kept"), [("file", (77,), 170), ("folder", (77,), 170), ("folder", (77, 112), 150)]
)
async def test_a_value_that_does_not_fit_fails_its_source_alone(
    shape: str, misfits: tuple[int, ...], kept: int, tmp_path: Path
) -> None:
    """The range with the value keeps the pages before it; its other ranges and the other sources end."""
    path = tmp_path / ("t.jsonl" if shape == "file" else "t")
    ledger, bad, good = Ledger(list(range(200))), f"43114/{ADDRESS}", f"43113/{ADDRESS}/70"
    ledger.changed = {serial: {"blockTimestamp": 10**15} for serial in misfits}
    over = [ONE, {"chain_id": 43113, "address": ADDRESS, "end_block": 70}]
    counts = list[tuple[int, int, int]]()

    def note(progress: ExportProgress) -> None:
        counts.append((progress.done, progress.failed, progress.rows))

    async with reaching(ledger) as session:
        for fetched in (70 + kept, 0):  # the value is still there in the second run
            with pytest.raises(IncompleteExportError) as caught:
                await exported(session, path, over, ranges=4, on_progress=note)
            ((label, failure),) = caught.value.failures.items()
            assert (label, counts[-1]) == (bad, (1, 1, fetched))
            assert isinstance(failure, ColumnValueError)
            assert str(failure).startswith(f"$.block_timestamp: {10**15} does not fit its column")
            found = Counter(row["source"] for row in rows_in(path))
            assert (found[good], found[bad]) == (70, kept if shape == "folder" else 0)
        result = await exported(session, path, over, ranges=4, on_invalid="raw")
        assert (result.rows, result.invalid) == (200 - kept - len(misfits), len(misfits))
        assert (await exported(session, path, over, ranges=4, on_invalid="raw")).rows == 0
    found = Counter(row["source"] for row in rows_in(path))
    assert found == Counter({good: 70, bad: 200 - len(misfits)})
    serials = {int(row["tx_hash"][2:]) for row in rows_in(path) if row["source"] == bad}
    assert serials == {*range(200)} - {*misfits}


# Time and order


def test_eight_ranges_take_an_eighth_of_the_time() -> None:
    """An export in eight ranges sends pages side by side; its file is that of one walk, in its order."""
    one, eight = (walked(list(range(800)), ranges) for ranges in (None, 8))
    assert one.content.count(b"\n") == 800
    assert eight.content == one.content
    assert one.seconds == pytest.approx(80 * LATENCY)
    # The newest row, eleven pages of the longest range, and the first requests, which leave one by one.
    assert eight.seconds == pytest.approx((1 + 11 + 2) * LATENCY)


@pytest.mark.parametrize(
    ("ranges", "starts"),
    [
        ("25 blocks", {24, 49, 74}),
        ("50blocks", {49}),
        (4, {24, 49, 74}),
        ("2", {49}),
        ("1", set[int]()),
    ],
)
async def test_widths_are_those_of_split(ranges: int | str, starts: set[int], tmp_path: Path) -> None:
    """A number, or a width with its unit, makes the ranges that split() makes of it."""
    ledger = Ledger(list(range(100)))
    async with reaching(ledger) as session:
        await exported(session, tmp_path / "t.jsonl", ranges=ranges)
    assert {int(one["startBlock"]) for one in ledger.requests if "startBlock" in one} == starts
    assert serials_in(tmp_path / "t.jsonl") == list(range(100))[::-1]


@pytest.mark.parametrize("ranges", ["7 days", "7d", "7 d"])
async def test_days_have_their_borders_at_midnight(ranges: str, tmp_path: Path) -> None:
    """A list by time is split into days, as a lookback writes them too; each point is there once."""
    ledger = Ledger([DAY * day for day in range(50)], point, "results")
    async with reaching(ledger) as session:
        walk, path = session.metrics.chains.metric, tmp_path / "p.jsonl"
        options: dict[str, Any] = {"metric": "activeAddresses", "start_timestamp": 0, "ranges": ranges}
        await export(walk, [43114], path, **options)
        assert [row["timestamp"] // DAY for row in rows_in(path)] == list(range(50))[::-1]
        ledger.numbers.append(50 * DAY)
        assert (await export(walk, [43114], path, **options)).rows == 1
    ends = {int(one["endTimestamp"]) for one in ledger.requests if "endTimestamp" in one}
    assert ends == {7 * DAY * week for week in range(1, 8)}


# Stops


async def test_a_restart_continues_each_range(tmp_path: Path) -> None:
    """Later runs continue the ranges of the journal, whatever ranges= they have, and split no more."""
    ledger, path = Ledger(list(range(400)), latency=1.0), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        await stopped_after(5.5, session, path, ranges=4)
        assert begun_ranges(path) == [1, 2, 3, 4]
        met, before = len(ledger.requests), {one.get("startBlock") for one in ledger.requests}
        ledger.numbers += range(400, 420)
        await stopped_after(2.5, session, path, ranges=32)
        await exported(session, path)
        assert begun_ranges(path) == []
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


STEPS = st.lists(
    st.tuples(
        st.floats(0.5, 9.0),  # seconds until the export is cancelled
        st.sampled_from([0.0, 101.0]),  # seconds until the next run: tokens die
        st.integers(0, 25),  # rows that the list gains meanwhile
        st.sampled_from([None, 3, "20 blocks"]),  # ranges of the next run
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.proof
@settings(max_examples=6, deadline=None)
@given(
    ties=st.sampled_from([1, 4, 11]),
    lifetime=st.sampled_from([4.0, 100.0]),
    folder=st.booleans(),
    steps=STEPS,
)
def test_ranges_are_exact(
    ties: int, lifetime: float, folder: bool, steps: list[tuple[float, float, int, int | str | None]]
) -> None:
    """Exports in ranges that are stopped again and again, while tokens die and the list grows, are exact."""

    async def check(place: Path) -> None:
        ledger = Ledger([one // ties for one in range(120)], latency=1.0, lifetime=lifetime, last_in=True)
        path = place / ("out" if folder else "out.jsonl")
        options: dict[str, Any] = {"part_rows": 30} if folder else {}
        ranges: int | str | None = 5
        async with reaching(ledger) as session:
            for seconds, pause, growth, later in steps:
                await stopped_after(seconds, session, path, ranges=ranges, **options)
                ledger.numbers += [ledger.numbers[-1] + one // ties for one in range(growth)]
                ranges = later
                await asyncio.sleep(pause)
            ledger.lifetime = 100.0
            for _ in range(2):
                await exported(session, path, ranges=ranges, **options)
            await exported(session, place / "fresh.jsonl")
        lines = [json.dumps(row) for row in rows_in(path)]
        assert sorted(lines) == sorted(json.dumps(row) for row in rows_in(place / "fresh.jsonl"))
        assert Counter(serials_in(path)) == Counter(range(len(ledger.numbers)))

    with TemporaryDirectory() as place:
        run(check(Path(place)))


# Many sources


async def test_progress_counts_sources(tmp_path: Path) -> None:
    """Sources are seen, done and closed once, however many ranges they have."""
    ledger, counts = Ledger(list(range(200)), latency=1.0), list[tuple[int, int]]()

    def note(progress: ExportProgress) -> None:
        counts.append((progress.seen, progress.done))
        assert progress.rows >= 200 * progress.done

    over = [(chain, ADDRESS) for chain in (1, 2, 3)]
    async with reaching(ledger) as session:
        path = tmp_path / "t.jsonl"
        result = await exported(session, path, over, ranges=6, on_progress=note, concurrency=5)
    assert (result.sources, result.rows, result.closed) == (3, 600, 0)
    assert counts[-1] == (3, 3)
    assert {done for _, done in counts} == {0, 1, 2, 3}


async def test_sources_are_split_side_by_side(tmp_path: Path) -> None:
    """Several sources are split at once, and one that comes late does not delay the others."""
    ledger = Ledger(list(range(20)), latency=1.0)
    over = [(chain, ADDRESS) for chain in range(1, 17)]

    async def late() -> AsyncIterator[tuple[int, str]]:
        for one in over:
            yield one
        assert ledger.now < 8.0  # one after the other they take 15 seconds
        await asyncio.sleep(100.0)
        assert len(ledger.requests) == 16 * (1 + 3)
        yield (17, ADDRESS)

    async with reaching(ledger) as session:
        await exported(session, tmp_path / "t.jsonl", late(), ranges=2, concurrency=64)
    assert ledger.now < 110.0
    assert len(rows_in(tmp_path / "t.jsonl")) == 17 * 20


async def test_a_range_that_fails_fails_its_source_once(tmp_path: Path) -> None:
    """Other ranges are read to their ends; the next run fetches what is left, and no page again."""
    ledger, path = Ledger(list(range(200)), statuses=[200, 200, 500, 500]), tmp_path / "t.jsonl"
    async with reaching(ledger, max_attempts=1) as session:
        with pytest.raises(IncompleteExportError, match="1 of 1 sources failed") as caught:
            await exported(session, path, ranges=5)
        assert [*caught.value.failures] == [f"43114/{ADDRESS}"]
        assert not path.exists()
        assert len(begun_ranges(path)) == 2
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


@pytest.mark.parametrize(
    "ranges", [0, -1, True, 1.5, "", "x", "1.5", "1.5 blocks", "7 weeks", "0 days", "-3", b"8", "9" * 5_000]
)
async def test_wrong_ranges_are_refused(ranges: Any, tmp_path: Path) -> None:
    """A value that is neither a number of ranges nor a width is refused before all requests."""
    ledger = Ledger([])
    async with reaching(ledger) as session:
        with pytest.raises(ArgumentError, match=r"^ranges=.* must be a number of ranges, such as 8, or "):
            await exported(session, tmp_path / "t.jsonl", ranges=ranges)
    assert not ledger.requests
    assert not tmp_path.joinpath("t.jsonl.export").exists()


async def test_lists_without_ranges_are_refused(tmp_path: Path) -> None:
    """A list that split() refuses is refused before all requests, and so is a limit beside ranges."""
    ledger, path = Ledger([]), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        for walk, over, more, words in (
            (session.data.evm.blocks, [43114], {}, "cannot be split into ranges"),
            (session.data.primary_network.transactions, [("mainnet", "p-chain")], {}, "with addresses= only"),
            (session.data.evm.erc20_transactions, [ONE], {"ranges": "7 days"}, "days do not fit"),
            (session.data.evm.erc20_transactions, [ONE], {"limit": 5}, "ranges= does not apply with a limit"),
            (session.metrics.chains.metric, [43114], {"metric": "txCount"}, "pass start_timestamp="),
        ):
            with pytest.raises(ConfigurationError, match=words):
                await export(walk, over, path, **{"ranges": 8, **more})  # type: ignore[arg-type]
    assert not ledger.requests


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
