"""Limits of exports: no gap, no repeat, and no row too many, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import Session
from chainapi.export import export
from chainapi.export.progress import ExportProgress
from chainapi.export.run import ExportResult
from chainapi.simulator import Simulator
from chainapi.testing import run
from tests.ledger import ADDRESS, Ledger, block
from tests.sessions import reaching, simulated

BLOCKS = "/v1/chains/1/blocks"
LIFETIME = 100.0  # seconds of a page token


def numbers_in(path: Path) -> list[int]:
    """Return the numbers of the exported blocks, newest first; each is there once."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    numbers = [int(row.get("block_number") or row["blockNumber"]) for row in rows]
    assert set(Counter(numbers).values()) <= {1}
    return sorted(numbers, reverse=True)


def assert_no_gap(numbers: Sequence[int]) -> None:
    """Fail if a block between the newest and the oldest one is missing."""
    assert all(above == below + 1 for above, below in pairwise(numbers))


async def transfers(session: Session, path: Path, *, page_size: int, limit: int = 50) -> ExportResult:
    """Export the newest transfers of an address, a list without a declared order."""
    walk = session.data.evm.erc20_transactions
    return await export(walk, [(1, ADDRESS)], path, limit=limit, page_size=page_size)


def serials_in(path: Path) -> list[int]:
    """Return the serials of the exported transfers, newest first."""
    return sorted((json.loads(line)["log_index"] for line in path.read_text().splitlines()), reverse=True)


@pytest.mark.parametrize("growth", [5, 35, 200])
@pytest.mark.parametrize("named", [True, False])
async def test_a_limit_and_a_dead_token_leave_no_gap(named: bool, growth: int, tmp_path: Path) -> None:
    """A limited export whose token died while its list grew has no gap and no row too many."""
    simulator = Simulator(chains=(1,), rows=1_000, token_lifetime=LIFETIME, latency=1.0)
    path = tmp_path / "b.jsonl"
    async with simulated(simulator) as session:
        walk: Any = session.data.evm.blocks if named else session.data.list
        sources = [1] if named else [BLOCKS]
        stopped = asyncio.create_task(export(walk, sources, path, page_size=10, limit=50))
        await asyncio.sleep(3.5)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        await asyncio.sleep(LIFETIME)
        newest = int((await session.data.list(BLOCKS).collect(1))[0]["blockNumber"])
        simulator.insert(BLOCKS, growth)
        progress: list[ExportProgress] = []
        await export(walk, sources, path, page_size=10, limit=50, on_progress=progress.append)
        assert (progress[-1].seen, progress[-1].done) == (1, 1)
        # More than the limit on top of a list without an order: it may be another list by now.
        had = 50 if named or growth < 50 else 30
        assert numbers_in(path) == list(range(newest, newest - had, -1))
        if named:
            await export(walk, sources, path, page_size=10, limit=50)
            assert numbers_in(path) == list(range(newest + growth, newest - 50, -1))


async def test_an_update_has_the_rows_that_a_limit_skipped(tmp_path: Path) -> None:
    """A limited walk that restarts below new rows leaves them to the next run, which adds each once."""
    ledger, path = Ledger([*range(299), 298], latency=1.0), tmp_path / "t.jsonl"
    async with reaching(ledger) as session:
        stopped = asyncio.create_task(transfers(session, path, page_size=10))
        await asyncio.sleep(3.5)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        ledger.numbers += [298, 300, 300, 301]
        results = [await transfers(session, path, page_size=20) for _ in range(3)]
    assert [(result.rows, result.skipped, result.closed) for result in results] == [
        (20, 0, 0),
        (4, 0, 0),
        (0, 0, 0),
    ]
    assert serials_in(path) == [*range(303, 249, -1)]


@pytest.mark.parametrize("stops", [1, 2])
@pytest.mark.parametrize("ties", [1, 3, 30])
async def test_a_limit_leaves_out_new_rows_that_share_the_newest_number(
    ties: int, stops: int, tmp_path: Path
) -> None:
    """A limited walk that restarts leaves out blocks added since, also those of the newest block's second."""
    numbers, path = [*range(99), 98], tmp_path / "b.jsonl"
    ledger = Ledger(numbers, block, "blocks", lifetime=LIFETIME, latency=1.0)
    async with reaching(ledger) as session:

        async def run_once() -> list[int]:
            await export(session.data.evm.blocks, [1], path, page_size=10, limit=25)
            return numbers_in(path)

        for added in ([98] * ties + [99], [99] * ties)[:stops]:
            stopped = asyncio.create_task(run_once())
            await asyncio.sleep(2.5)
            stopped.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopped
            await asyncio.sleep(LIFETIME)
            ledger.numbers += added
        assert await run_once() == [*range(99, 74, -1)]
        assert await run_once() == [*range(len(ledger.numbers) - 1, 74, -1)]


@pytest.mark.parametrize("second", [1.5, 2.5, 3.5])
async def test_a_limited_pass_that_stopped_among_ties_takes_the_others(second: float, tmp_path: Path) -> None:
    """A second pass that stops after rows of the first one takes the blocks of that second behind them."""
    ledger = Ledger([1, 2, 3, *[4] * 9], block, "blocks", lifetime=LIFETIME, latency=1.0)
    async with reaching(ledger) as session:
        for runs, pause in ((1.5, LIFETIME), (second, 0.0), (60.0, 0.0)):  # seconds; a page takes one
            run_once = export(session.data.evm.blocks, [1], tmp_path / "b.jsonl", page_size=3, limit=10)
            stopped = asyncio.create_task(run_once)
            await asyncio.wait((stopped,), timeout=runs)
            stopped.cancel()
            await asyncio.wait((stopped,))
            await asyncio.sleep(pause)
    assert numbers_in(tmp_path / "b.jsonl") == [*range(11, 1, -1)]


STEPS = st.lists(
    st.tuples(
        st.floats(0.5, 12.0),  # seconds until the export is cancelled
        st.sampled_from([0.0, LIFETIME / 2, LIFETIME + 1]),  # seconds until the next run
        st.integers(0, 120),  # rows that the list gains meanwhile
        st.booleans(),  # tokens die while the export runs
    ),
    max_size=4,
)


@pytest.mark.proof
@settings(max_examples=10, deadline=None)
@given(named=st.booleans(), limit=st.integers(1, 120), page_size=st.sampled_from([7, 10, 50]), steps=STEPS)
@example(named=True, limit=60, page_size=10, steps=[(3.5, 101.0, 100, False)] * 3)
@example(named=False, limit=60, page_size=10, steps=[(3.5, 101.0, 40, False)] * 3)
def test_limits_hold(
    named: bool, limit: int, page_size: int, steps: list[tuple[float, float, int, bool]]
) -> None:
    """A limited export of a growing list that is stopped again and again has no gap and no repeat."""

    async def check(path: Path) -> None:
        simulator = Simulator(chains=(1,), rows=300, token_lifetime=LIFETIME, latency=1.0)
        async with simulated(simulator) as session:
            walk: Any = session.data.evm.blocks if named else session.data.list
            arguments: Any = (walk, [1] if named else [BLOCKS], path)
            options: Any = {"page_size": page_size, "limit": limit}
            for seconds, pause, growth, dies in steps:
                task = asyncio.create_task(export(*arguments, **options))
                done, _ = await asyncio.wait([task], timeout=seconds / 2)
                simulator.insert(BLOCKS, growth // 2)
                if dies:
                    simulator.advance(LIFETIME + 1)
                done, _ = await asyncio.wait([task], timeout=seconds / 2)
                if done and task.exception() is None:  # else its token died twice at one place
                    break
                task.cancel()
                await asyncio.wait([task])
                await asyncio.sleep(pause)
                simulator.insert(BLOCKS, growth - growth // 2)
            else:
                await export(*arguments, **options)
            numbers = numbers_in(path)
            assert_no_gap(numbers)
            assert 1 <= len(numbers) <= limit
            assert not named or len(numbers) == limit
            await export(*arguments, **options)
            final = numbers_in(path)
            assert_no_gap(final)
            assert final[-1] == numbers[-1]
            newest = await session.data.list(BLOCKS).collect(1)
            assert final[0] == (int(newest[0]["blockNumber"]) if named else numbers[0])

    with TemporaryDirectory() as folder:
        run(check(Path(folder) / "b.jsonl"))


GROWTH = st.lists(st.integers(0, 2), max_size=70)  # of the number, from each new row to the next


@pytest.mark.proof
@settings(max_examples=10, deadline=None)
@given(
    limit=st.integers(1, 60),
    steps=st.lists(
        st.tuples(
            st.floats(0.5, 9.0),  # seconds until the export is cancelled
            st.sampled_from([0.0, LIFETIME + 1]),  # seconds until the next run
            GROWTH,  # while it runs
            GROWTH,  # until the next run
            st.sampled_from([3, 7, 20]),  # rows of a page
        ),
        min_size=1,
        max_size=4,
    ),
)
@example(limit=30, steps=[(2.5, 0.0, [], [0, 0, 1], 7), (2.5, 0.0, [0], [0], 3), (9.0, 0.0, [], [1], 20)])
@example(limit=20, steps=[(1.5, 0.0, [], [0] * 50, 7), (9.0, 0.0, [], [1], 3)])  # none of its rows is met
def test_limits_hold_without_an_order(
    limit: int, steps: list[tuple[float, float, list[int], list[int], int]]
) -> None:
    """A limited export of transfers that share blocks has no gap and no repeat, nor have its updates."""

    async def check(path: Path) -> None:
        ledger = Ledger([serial // 3 for serial in range(100)], latency=1.0, lifetime=LIFETIME)

        def grow(steps: list[int], after: float = 0.0) -> None:
            for step in steps:
                newest = max([ledger.numbers[-1], *(number for _, number in ledger.grows)])
                ledger.grows.append((ledger.now + after, newest + step))

        async with reaching(ledger) as session:
            size = 5
            for seconds, pause, meanwhile, later, size in steps:
                grow(meanwhile, seconds / 2)
                task = asyncio.create_task(transfers(session, path, page_size=size, limit=limit))
                await asyncio.wait([task], timeout=seconds)
                if task.done():
                    break
                task.cancel()
                await asyncio.wait([task])
                await asyncio.sleep(pause)
                grow(later)
            await asyncio.sleep(10)
            first = await transfers(session, path, page_size=size, limit=limit)
            finished = serials_in(path)
            assert len(finished) >= 1
            assert finished == [*range(finished[0], finished[-1] - 1, -1)]
            assert first.closed == 0
            for _ in range(2):
                grow([0, 1, 0])
                assert (await transfers(session, path, page_size=size, limit=limit)).closed == 0
                found = serials_in(path)
                assert len({*found}) == len(found)
                assert [one for one in found if one > finished[-1]] == [
                    *range(len(ledger.numbers) - 1, finished[-1], -1)
                ]

    with TemporaryDirectory() as folder:
        run(check(Path(folder) / "t.jsonl"))
