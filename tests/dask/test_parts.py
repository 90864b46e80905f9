"""Partitions of a distributed export: each row exactly once, wherever a worker dies."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from zlib import compress, crc32

import pyarrow.parquet as pq
import pytest
from attrs import evolve

from chainapi import Checkpoint, Session
from chainapi.dask.partition import DEFAULTS, Folder, Outcome, export_partition, prepare
from chainapi.dask.state import DamagedStateError, State
from chainapi.errors import AuthenticationError, ExportError
from chainapi.export import export
from chainapi.export.formats import parquet
from chainapi.export.ranges import checked_ranges
from chainapi.export.source_records import SourceRecord
from chainapi.models import EvmBlock
from chainapi.simulator import Anomalies, Fault, Simulator
from tests.dask.disks import Disk, Place, job_of, rows_in, rows_of, tables_of
from tests.export import test_invalid as invalid
from tests.ledger import ADDRESS, Ledger
from tests.sessions import reaching, simulated

pytestmark = pytest.mark.rule

CHAINS = (1, 2, 3)


def ignore(_: Mapping[str, int]) -> None:
    """Take no progress."""


async def straight(session: Session, folder: Path, sources: Any = CHAINS) -> Counter[str]:
    """Return the rows of a local export."""
    await export(session.data.evm.blocks, sources, folder / "straight.parquet", page_size=10)
    return rows_in(folder / "straight.parquet")


steps_of_kills = pytest.mark.parametrize(
    ("when", "every"),
    [("after", 4), *(pytest.param(when, 1, marks=pytest.mark.proof) for when in ("before", "after"))],
)


@steps_of_kills
async def test_a_kill_at_any_step_costs_no_row(when: str, every: int, tmp_path: Path) -> None:
    """A worker that dies before or after any step leaves what another completes to the same rows."""
    simulator = Simulator(chains=CHAINS, rows=40)
    async with simulated(simulator) as session:
        expected = await straight(session, tmp_path)
        disk = Disk()
        await export_partition(job_of(Place(disk), CHAINS), session, ignore)
        assert rows_of(disk) == expected
        steps = disk.steps
        assert steps > 10
        for step in range(1, steps + 1, every):
            disk = Disk()
            disk.revive(**{when: step})
            with pytest.raises(ExportError, match="Killed"):
                await export_partition(job_of(Place(disk), CHAINS), session, ignore)
            assert set(rows_of(disk)) <= set(expected)
            disk.revive()
            await export_partition(job_of(Place(disk), CHAINS), session, ignore)
            assert rows_of(disk) == expected, f"{when} step {step}"
            assert left_behind(disk) == []


def left_behind(disk: Disk) -> list[str]:
    """Return the objects that no state names, after a complete export."""
    return [name for name in disk.store if "/logs/" in name or "/_export/invalid/" in name]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(1, 8))])
async def test_two_workers_of_one_partition_do_not_both_commit(seed: int, tmp_path: Path) -> None:
    """The worker that began later completes the partition; the other stops, and no row is there twice."""
    simulator = Simulator(chains=CHAINS, rows=120, latency=lambda draw: draw.uniform(0.05, 0.5))
    draw, disk = Random(seed), Disk()
    async with simulated(simulator) as session:
        first = asyncio.create_task(export_partition(job_of(Place(disk), CHAINS), session, ignore))
        await asyncio.sleep(draw.uniform(0, 2))
        second = asyncio.create_task(export_partition(job_of(Place(disk), CHAINS), session, ignore))
        outcome, newest = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(outcome, ExportError)
        assert "began after this one" in str(outcome)
        assert isinstance(newest, Outcome)
        assert rows_of(disk) == await straight(session, tmp_path)


class Slow(Disk):
    """Disk on which the creation of the first part takes until `arrive` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.arrive = threading.Event(), threading.Event()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Create or replace an object."""
        if path.endswith(".parquet") and not self.begun.is_set():
            self.begun.set()
            assert self.arrive.wait(10)
        super().pipe_file(path, value, mode, **options)


@asynccontextmanager
async def outrun(disk: Slow) -> AsyncIterator[tuple[Session, asyncio.Task[Outcome]]]:
    """Yield a session, and a worker whose first part is on its way."""
    with ThreadPoolExecutor(1) as pool:
        async with simulated(Simulator(chains=CHAINS, rows=40)) as session:
            older = asyncio.create_task(export_partition(job_of(Place(disk), CHAINS), session, ignore))
            await asyncio.get_running_loop().run_in_executor(pool, disk.begun.wait, 10)
            yield session, older


async def test_a_worker_whose_part_comes_too_late_does_not_begin_again(tmp_path: Path) -> None:
    """A worker stops that finds its part written by a newer one: it takes the partition from nobody."""
    disk = Slow()
    async with outrun(disk) as (session, older):
        await export_partition(job_of(Place(disk), CHAINS), session, ignore)
        disk.arrive.set()
        with pytest.raises(ExportError, match="began after this one"):
            await older
        assert rows_of(disk) == await straight(session, tmp_path)


async def test_a_list_with_a_cursor_gains_its_new_rows() -> None:
    """The parts of later runs have the new rows of a list that has no declared order."""
    simulator = Simulator(chains=(1,), rows=40, anomalies=Anomalies(ties=3))
    disk, place = Disk(), "/v1/chains/1/addresses/0xab/transactions:listNative"
    async with simulated(simulator) as session:
        for new in (40, 7, 0, 12):
            simulator.insert(place, 0 if new == 40 else new)
            job = job_of(Place(disk), [(1, "0xab")], route="data.evm.native_transactions")
            outcome = await export_partition(job, session, ignore)
            assert outcome.counts["rows"] == new
    assert rows_of(disk).total() == 59
    assert set(rows_of(disk).values()) == {1}


async def test_an_order_less_list_that_restarts_after_a_kill(tmp_path: Path) -> None:
    """Rows of a list without an order are matched with those of dead workers, by their logs."""
    simulator = Simulator(chains=(1,), rows=100, token_lifetime=100.0, latency=1.0)
    path, disk = "/v1/chains/1/blocks", Disk()
    options: dict[str, Any] = {"route": "data.list", "query": {"page_size": 10, "model": EvmBlock}}
    async with simulated(simulator) as session:
        run = asyncio.create_task(export_partition(job_of(Place(disk), [path], **options), session, ignore))
        await asyncio.sleep(6.5)
        disk.dead = True
        with pytest.raises(ExportError, match="Killed"):
            await run
        assert 0 < rows_of(disk).total() < 70
        disk.revive(after=7)
        simulator.advance(200)
        simulator.insert(path, 5)
        with pytest.raises(ExportError, match="Killed"):
            await export_partition(job_of(Place(disk), [path], **options), session, ignore)
        disk.revive()
        simulator.advance(200)
        await export_partition(job_of(Place(disk), [path], **options), session, ignore)
        assert set(rows_of(disk).values()) == {1}
        assert rows_of(disk).total() >= 100
        assert left_behind(disk) == []


@pytest.mark.parametrize("growth", [4])
async def test_a_list_that_grew_while_a_worker_was_dead(growth: int) -> None:
    """Rows that come again after a dead worker, because page tokens count from the head, are left out."""
    ledger, disk = Ledger([serial // 3 for serial in range(120)], latency=1.0, shifts=True), Disk()
    options: dict[str, Any] = {"route": "data.evm.erc20_transactions", "part_rows": 15}
    async with reaching(ledger) as session:
        for step in (7, 5):
            disk.revive(after=step)
            with pytest.raises(ExportError, match="Killed"):
                await export_partition(job_of(Place(disk), [(43114, ADDRESS)], **options), session, ignore)
            ledger.numbers += [ledger.numbers[-1] + serial // 3 for serial in range(growth)]
        assert 2 * growth <= rows_of(disk).total() < 120
        disk.revive()
        for _ in range(2):
            await export_partition(job_of(Place(disk), [(43114, ADDRESS)], **options), session, ignore)
    serials = Counter(int(row["tx_hash"][2:]) for row in tables_of(disk))
    assert serials == Counter(range(120 + 2 * growth))


async def test_ranges_of_a_source_stay_exact(tmp_path: Path) -> None:
    """Ranges continue behind the parts of dead workers, whose tokens and splits are lost."""
    ledger, disk = Ledger(list(range(120)), latency=1.0, lifetime=9.0), Disk()
    options: dict[str, Any] = {"route": "data.evm.erc20_transactions", "part_rows": 15}
    sources, ranges = [(43114, ADDRESS)], checked_ranges(4)
    async with reaching(ledger) as session:
        for step in (2, 5, 6):  # the first worker dies before its first part
            disk.revive(after=step)
            job = job_of(Place(disk), sources, ranges=ranges, **options)
            with pytest.raises(ExportError, match="Killed"):
                await export_partition(job, session, ignore)
            await asyncio.sleep(10)
        assert 0 < rows_of(disk).total() < 120
        disk.revive()
        await export_partition(job_of(Place(disk), sources, **options), session, ignore)
        ledger.numbers += [119, 120]
        job = job_of(Place(disk), sources, ranges=ranges, **options)
        outcome = await export_partition(job, session, ignore)
        assert (outcome.counts["rows"], outcome.counts["closed"]) == (2, 0)
    assert Counter(int(row["tx_hash"][2:]) for row in tables_of(disk)) == Counter(range(122))
    assert sum(one["pageSize"] == "1" for one in ledger.requests) == 2
    assert left_behind(disk) == []


async def test_a_failed_source_keeps_its_pages_and_continues(tmp_path: Path) -> None:
    """The pages before a failure are written, and the next run requests only those behind."""
    simulator = Simulator(chains=(1, 2), rows=100)
    disk = Disk()
    async with simulated(simulator, max_attempts=1) as session:
        simulator.faults = (Fault(at=4, status=500),)
        outcome = await export_partition(job_of(Place(disk), [1]), session, ignore)
        assert set(outcome.failures) == {"1"}
        assert rows_of(disk).total() == 30
        simulator.faults = ()
        requests = simulator.stats.requests
        await export_partition(job_of(Place(disk), [1]), session, ignore)
        assert simulator.stats.requests == requests + 7
        assert rows_of(disk) == await straight(session, tmp_path, [1])


async def test_a_cancelled_partition_writes_what_it_fetched() -> None:
    """Pages fetched before a cancellation are in a part, and are not requested again."""
    simulator = Simulator(chains=(1,), rows=100, latency=1.0)
    disk = Disk()
    async with simulated(simulator) as session:
        run = asyncio.create_task(export_partition(job_of(Place(disk), [1]), session, ignore))
        await asyncio.sleep(5.5)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert rows_of(disk).total() == 50
        requests = simulator.stats.requests
        await export_partition(job_of(Place(disk), [1]), session, ignore)
    assert simulator.stats.requests == requests + 5
    assert rows_of(disk).total() == 100


async def test_a_rejected_key_ends_the_partition() -> None:
    """An error that concerns all sources is raised unchanged."""
    simulator = Simulator(chains=CHAINS)
    session = Session(
        transport=simulator.transport(), data_base_url=simulator.data_base_url, api_key="another-key"
    )
    async with session:
        with pytest.raises(AuthenticationError):
            await export_partition(job_of(Place(Disk()), CHAINS), session, ignore)


@pytest.mark.parametrize(("amounts", "wanted"), [("text", "string"), ("binary", "fixed_size_binary[32]")])
async def test_amounts_of_all_parts_have_one_type(amounts: Any, wanted: str) -> None:
    """Parts have the chosen type of amounts, and another choice is another export."""
    simulator = Simulator(chains=CHAINS, rows=40)
    disk = Disk()
    async with simulated(simulator) as session:
        await export_partition(job_of(Place(disk), CHAINS, amounts=amounts), session, ignore)
        with pytest.raises(ExportError, match=f"amounts= was {amounts}, is decimal"):
            await export_partition(job_of(Place(disk), CHAINS, amounts="decimal"), session, ignore)
    parts = [pq.read_schema(io.BytesIO(disk.cat_file(name))) for name in disk.store if "parquet" in name]
    assert len(parts) > 1
    assert {str(part.field("fees_spent").type) for part in parts} == {wanted}


async def test_parts_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that lacks a row when it is read back is not created, and the next run has the row."""
    simulator = Simulator(chains=CHAINS, rows=40)
    disk, tally = Disk(), parquet._tally
    async with simulated(simulator) as session:
        with monkeypatch.context() as patch:
            patch.setattr(parquet, "_tally", lambda source: evolve(tally(source), rows=7))
            with pytest.raises(ExportError, match=r"00001\.parquet has 7 rows when it is read back"):
                await export_partition(job_of(Place(disk), CHAINS), session, ignore)
        assert not rows_of(disk)
        await export_partition(job_of(Place(disk), CHAINS), session, ignore)
        assert rows_of(disk) == await straight(session, tmp_path)


async def test_a_value_that_does_not_fit_fails_its_source_alone() -> None:
    """The failed source keeps the pages before the value, and the other sources are complete."""
    options: dict[str, Any] = {"query": {"page_size": 4}, "amounts": "binary"}
    disk = Disk()
    async with invalid.session_of(invalid.Misfits()) as session:
        outcome = await export_partition(job_of(Place(disk), CHAINS, **options), session, ignore)
        assert [*outcome.failures] == ["2"]
        assert Counter(row["source"] for row in tables_of(disk)) == {"1": 20, "2": 8, "3": 20}
        options["query"]["on_invalid"] = "raw"
        outcome = await export_partition(job_of(Place(disk), CHAINS, **options), session, ignore)
    assert (outcome.failures, outcome.counts["invalid"]) == ({}, 1)
    assert Counter(row["source"] for row in tables_of(disk)) == {"1": 20, "2": 19, "3": 20}


async def test_a_missing_or_damaged_part_is_noticed() -> None:
    """A part that is missing or was changed ends the export before a request."""
    simulator = Simulator(chains=CHAINS, rows=40)
    disk = Disk()
    async with simulated(simulator) as session:
        await export_partition(job_of(Place(disk), CHAINS), session, ignore)
        requests = simulator.stats.requests
        names = sorted(name for name in disk.store if name.endswith(".parquet"))
        removed = disk.cat_file(names[1])
        disk.rm_file(names[1])
        with pytest.raises(ExportError, match="are missing: put them back"):
            await export_partition(job_of(Place(disk), CHAINS), session, ignore)
        disk.pipe_file(names[1], removed)
        disk.pipe_file(names[-1], disk.cat_file(names[-1]).replace(b"chainapi", b"chainapo"))
        with pytest.raises(ExportError, match=r"is damaged, or of another version"):
            await export_partition(job_of(Place(disk), CHAINS), session, ignore)
    assert simulator.stats.requests == requests


@steps_of_kills
async def test_invalid_rows_are_published_once(when: str, every: int) -> None:
    """Invalid rows are in a file of their own, each once, wherever the worker dies."""
    chains = invalid.Chains()
    options: dict[str, Any] = {"query": {"page_size": 4, "on_invalid": "raw"}, "part_rows": 25}
    async with invalid.session_of(chains) as session:
        for step in range(1, 100, every):
            disk = Disk()
            disk.revive(**{when: step})
            try:
                await export_partition(job_of(Place(disk), invalid.CHAINS, **options), session, ignore)
            except ExportError:
                disk.revive()
                await export_partition(job_of(Place(disk), invalid.CHAINS, **options), session, ignore)
            assert published_in(disk) + numbers_of(disk) == invalid.EXPECTED, f"{when} step {step}"
            assert left_behind(disk) == []
            if not disk.died:
                assert step > 10
                break


def published_in(disk: Disk) -> Counter[tuple[str, int]]:
    """Count the published invalid rows on a disk by source and number."""
    files = [disk.cat_file(name) for name in disk.store if "/_invalid/" in name]
    rows = [json.loads(line) for file in files for line in file.splitlines()]
    return Counter((row["source"], row["row"]["blockNumber"]) for row in rows)


def numbers_of(disk: Disk) -> Counter[tuple[str, int]]:
    """Count the valid rows on a disk by source and number."""
    return Counter((row["source"], row["block_number"]) for row in tables_of(disk))


class Unclear(Disk):
    """Disk whose every creation succeeds and then fails, as with a response that is lost."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Create or replace an object."""
        super().pipe_file(path, value, mode, **options)
        if mode == "create" and "/claims/" not in path:
            raise OSError("connection reset")


async def test_a_creation_whose_response_is_lost_counts(tmp_path: Path) -> None:
    """A worker recognises its own part in spite of an error, and fetches nothing again."""
    simulator = Simulator(chains=CHAINS, rows=40)
    disk = Unclear()
    async with simulated(simulator) as session:
        outcome = await export_partition(job_of(Place(disk), CHAINS), session, ignore)
        assert outcome.counts["rows"] == 120
        assert simulator.stats.requests == 12
        assert rows_of(disk) == await straight(session, tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"%", "padding|base64|Only|Non"),
        (b64encode(b"0000" + compress(b"{}")), "checksum"),
        (b64encode(crc32(b"[]").to_bytes(4, "big") + compress(b"[]")), "object"),
        (State(format=1).dumps(), "it has format 1, this version reads 5"),
        (State(sources=[(1, "a")]).dumps(), "from_fields"),
        (State(sources=[SourceRecord(1, "a", "q", 1).fields]).dumps(), "'a'"),
    ],
)
def test_a_damaged_state_is_refused(text: bytes, reason: str) -> None:
    """Text in a footer that is no state of this version is an error with the reason."""
    with pytest.raises(DamagedStateError, match=reason):
        State.loads(text)


def test_a_state_is_read_back() -> None:
    """A state has the same sources, numbers and logs after it was written."""
    source = SourceRecord(
        1, "43114", "query", taken=5, newest=2**80, exported=2**79, exported_ties=("ab",), newest_ties=("c",)
    )
    for one in (other := SourceRecord(2, "43113", "other")).split([Checkpoint("q", rows=3), Checkpoint("q")]):
        other.add(one)
    fields = [one.fields for one in (source, other, *other.ranges.values())]
    state = State(3, "writer", "export", 7, 1, (2, 0), {"limit": None}, fields, {"log": [(1, 0), (2, 2)]})
    read = State.loads(state.dumps())
    assert read.records == {"43114": source, "43113": other}
    assert [*read.records["43113"].ranges] == [1, 2]
    assert (read.part, read.before, read.logs) == (3, (2, 0), {"log": [(1, 0), (2, 2)]})


async def test_a_damaged_log_is_noticed() -> None:
    """A log that is needed for a restart and was changed ends the partition with its name."""
    simulator = Simulator(chains=(1,), rows=100, token_lifetime=100.0, latency=1.0)
    path, disk = "/v1/chains/1/blocks", Disk()
    options: dict[str, Any] = {"route": "data.list", "query": {"page_size": 10, "model": EvmBlock}}
    async with simulated(simulator) as session:
        run = asyncio.create_task(export_partition(job_of(Place(disk), [path], **options), session, ignore))
        await asyncio.sleep(6.5)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        simulator.advance(200)
        for name in left_behind(disk):
            disk.pipe_file(name, b"\xc1")
        with pytest.raises(ExportError, match=r"00003-00001-\w+ in disk://blocks is damaged"):
            await export_partition(job_of(Place(disk), [path], **options), session, ignore)


def test_the_number_of_partitions_stays_before_the_first_part(tmp_path: Path) -> None:
    """Workers of an earlier run may still write: a source must not get a second partition."""
    place, about = Folder(str(tmp_path), {}), dict.fromkeys(DEFAULTS)
    assert prepare(place, {**about, "partitions": 2, "limit": 5})["partitions"] == 2
    with pytest.raises(ExportError, match="partitions was 2, is 7"):
        prepare(place, {**about, "partitions": 7})
    assert prepare(place, about)["partitions"] == 2
    (tmp_path / "_export" / "about.json").write_text('{"partit')
    assert prepare(place, {**about, "partitions": 7})["partitions"] == 7
