"""Exports with a lookback: rows of the window are corrected, and removed when the list has withdrawn them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings

from chainapi import Cache, Session, SessionView
from chainapi.errors import ConfigurationError, ExportError, IncompleteExportError, TargetInUseError
from chainapi.export import export
from chainapi.export.formats import sqlite as sqlites
from chainapi.export.lookback import Lookback
from chainapi.export.run import ExportResult
from chainapi.simulator import Simulator
from tests.export.windows import (
    CASES,
    DAY,
    Case,
    check_folder,
    check_windows,
    points,
    rows_of,
    transfers,
    values_of,
)
from tests.ledger import ADDRESS, Ledger, block, transfer
from tests.sessions import reaching, simulated


async def exported(session: Session | SessionView, out: Path, **options: Any) -> ExportResult:
    """Export the points of a metric."""
    return await export(session.metrics.chains.metric, [(43114, "txCount")], out, page_size=3, **options)


def manifest_of(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the manifest."""
    return [json.loads(line) for line in (folder / "_manifest.ndjson").read_text().splitlines()]


async def test_the_window_is_not_read_from_a_cache(tmp_path: Path) -> None:
    """A cached page that is older than the target removes no row of it, and hides no correction."""
    ledger, out = points(range(10)), tmp_path / "out"
    async with reaching(ledger) as session:
        view = session.with_options(cache=Cache(fresh=3_600))
        await exported(view, tmp_path / "other")
        ledger.numbers += [10 * DAY, 11 * DAY]
        await exported(session, out)
        ledger.changed = {9: {"value": 90}}
        result = await exported(view, out, lookback="4d")
    assert (result.rows, result.removed) == (1, 1)
    assert values_of(out) == {**{day: day for day in range(12)}, 9: 90}


async def test_a_part_of_a_folder_is_replaced(tmp_path: Path) -> None:
    """A part with other rows gets a copy; the manifest lists that one, and what it replaces."""
    ledger = points(range(4))
    async with reaching(ledger) as session:
        await exported(session, tmp_path / "out")
        ledger.changed[3] = {"value": 30}
        ledger.numbers.append(4 * DAY)
        result = await exported(session, tmp_path / "out", lookback=2 * DAY)
    names = ["part-00002-00001.jsonl", "part-00002.jsonl"]
    assert [Path(path).name for path in result.written] == names
    lines = manifest_of(tmp_path / "out")
    assert [(line["name"], line["rows"], line["replaces"]) for line in lines] == [
        (names[0], 3, ["part-00001.jsonl"]),
        (names[1], 2, ["part-00001.jsonl"]),
    ]
    assert [line["sources"][0]["highest"] for line in lines] == [2 * DAY, 4 * DAY]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == sorted(names)
    assert values_of(tmp_path / "out") == {0: 0, 1: 1, 2: 2, 3: 30, 4: 4}


def invalid_in(out: Path) -> list[int]:
    """Return the days of the invalid points, in order, each as often as it is there."""
    lines = [line for file in out.glob("_invalid-*.ndjson") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["row"]["timestamp"] // DAY for line in lines)


def take_invalid_away(out: Path) -> None:
    """Remove the files with invalid rows."""
    for file in out.glob("_invalid-*"):
        file.unlink()


async def test_invalid_rows_of_a_window(tmp_path: Path) -> None:
    """An invalid row is written once, also if it is moved away; one that is valid by now comes in."""
    out, ledger = tmp_path / "out", points(range(6))
    ledger.changed = {day: {"value": "none"} for day in (3, 4)}
    async with reaching(ledger) as session:

        async def run() -> tuple[int, int, int]:
            result = await exported(session, out, lookback="3d", on_invalid="raw")
            assert len(result.written_invalid) == bool(result.invalid)
            return result.rows, result.removed, result.invalid

        assert await run() == (4, 0, 2)
        ledger.changed = {4: {"value": "none"}, 5: {"value": "none"}}
        assert await run() == (1, 1, 1)  # 3 is valid, 5 is not
        assert await run() == (0, 0, 0)
        assert invalid_in(out) == [3, 4, 5]
        take_invalid_away(out)
        ledger.changed[2] = {"value": "none"}
        assert await run() == (0, 1, 1)
    assert invalid_in(out) == [2]
    assert values_of(out) == {0: 0, 1: 1, 3: 3}


async def test_a_row_moves_to_another_partition(tmp_path: Path) -> None:
    """A row of another day leaves the file of its old day, which goes with its last row."""
    ledger, out = Ledger([1, 2, 3], by_number=True), tmp_path / "out"
    days = iter(range(3))

    def at(day: int) -> dict[str, Any]:
        return {"blockTimestamp": DAY * day}

    ledger.changed = {serial: at(next(days)) for serial in range(3)}
    async with reaching(ledger) as session:
        await transfers(session, out, partition=["day"])
        ledger.changed[2] = at(1)  # with its block
        ledger.changed[1] = at(4)
        result = await transfers(session, out, lookback="1 block")
        assert (result.rows, result.removed) == (2, 2)
    assert [(line["name"], line["rows"], line["partition"]) for line in manifest_of(out)] == [
        ("day=1970-01-01/part-00001.jsonl", 1, {"day": "1970-01-01"}),
        ("day=1970-01-02/part-00002.jsonl", 1, {"day": "1970-01-02"}),
        ("day=1970-01-05/part-00002.jsonl", 1, {"day": "1970-01-05"}),
    ]
    assert sorted(manifest_of(out)[1]["replaces"]) == [
        "day=1970-01-02/part-00001.jsonl",
        "day=1970-01-03/part-00001.jsonl",
    ]
    check_folder(out)


@pytest.mark.parametrize("name", ["sqlite", pytest.param("duckdb", marks=pytest.mark.proof)])
async def test_a_database_is_corrected_in_place(name: str, tmp_path: Path) -> None:
    """Rows that stay keep their places in a database, and so does what others have added to it."""
    ledger, out = points(range(4)), tmp_path / f"out.{name}"
    connect: Any = sqlite3.connect if name == "sqlite" else duckdb.connect
    query = 'SELECT rowid, "value" FROM rows ORDER BY rowid'
    async with reaching(ledger) as session:
        await exported(session, out)
        with closing(connect(out)) as database:
            database.execute("CREATE VIEW mine AS SELECT * FROM rows")
            before = database.execute(query).fetchall()
            database.commit()
        ledger.changed[3] = {"value": 30}
        result = await exported(session, out, lookback="1d")
    assert (result.rows, result.removed) == (1, 1)
    with closing(connect(out)) as database:
        after = database.execute(query).fetchall()
        assert {int(value) for _, value in after} == {0, 1, 2, 30}
        assert after[:3] == [row for row in before if int(row[1]) != 3] or name == "duckdb"
        assert database.execute("SELECT count(*) FROM mine").fetchone() == (4,)


async def test_a_correction_after_a_vacuum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A correction that a reader held up removes its rows, also if VACUUM has numbered them again since."""
    monkeypatch.setattr(sqlites, "BUSY", 0.0)
    ledger, out = points(range(6)), tmp_path / "out.sqlite"
    async with reaching(ledger) as session:
        await exported(session, out)
        for day in (4, 2):  # the first correction leaves a gap in the numbers of the rows
            ledger.changed[day] = {"value": 10 * day}
            with closing(sqlite3.connect(out)) as reader:
                reading = reader.execute("SELECT * FROM rows")
                reading.fetchone()
                with pytest.raises(TargetInUseError):
                    await exported(session, out, lookback="5d")
                reading.close()
                reader.execute("VACUUM")
            result = await exported(session, out)
            assert result.written == (out,)
    assert values_of(out, "sqlite") == {0: 0, 1: 1, 2: 20, 3: 3, 4: 40, 5: 5}


async def test_other_sources_stay(tmp_path: Path) -> None:
    """Rows of sources that fail, or are left out, stay as they are."""
    ledger, out = points(range(4)), tmp_path / "out"
    async with reaching(ledger) as session:
        walk = session.metrics.chains.metric
        sources = [(43114, "txCount"), (43113, "txCount")]
        await export(walk, sources, out)
        ledger.changed[3] = {"value": 30}
        result = await export(walk, sources[:1], out, lookback="1d")
        assert (result.rows, result.removed) == (1, 1)
        found = Counter((row["source"], int(row["value"])) for row in rows_of(out))
        assert found == Counter(
            {(label, value) for label in ("43114/txCount", "43113/txCount") for value in (0, 1, 2)}
            | {("43114/txCount", 30), ("43113/txCount", 3)}
        )


async def test_a_window_that_was_fetched_in_part(tmp_path: Path) -> None:
    """Rows stay while a failed source has fetched some of its window; the next run corrects them."""
    ledger, out = points(range(6)), tmp_path / "out"
    async with reaching(ledger, max_attempts=1) as session:
        await exported(session, out)
        ledger.changed = {day: {"value": 100 + day} for day in (1, 4)}
        ledger.statuses = [200, 500]
        with pytest.raises(IncompleteExportError):
            await exported(session, out, lookback="9d")
        assert values_of(out) == {day: day for day in range(6)}
        result = await exported(session, out, lookback="9d")
        assert (result.rows, result.removed) == (2, 2)
    assert values_of(out) == {0: 0, 1: 101, 2: 2, 3: 3, 4: 104, 5: 5}


async def test_rows_without_a_model_have_a_window(tmp_path: Path) -> None:
    """Rows of a path are looked back on by the field that descending_key= names."""
    ledger, out = Ledger([*range(9)], block, "blocks"), tmp_path / "out.jsonl"
    async with reaching(ledger) as session:
        paths = ["/v1/chains/1/blocks"]
        options: dict[str, Any] = {"descending_key": "blockTimestamp"}
        await export(session.data.list, paths, out, **options)
        ledger.changed[7] = {"blockHash": "0xother"}
        ledger.changed[5] = {"blockHash": "0xother"}
        result = await export(session.data.list, paths, out, lookback="1s", **options)
    assert (result.rows, result.removed) == (1, 1)
    assert [row["blockHash"] for row in rows_of(out)].count("0xother") == 1


async def test_rows_of_number_0_are_asked_for_without_a_start(tmp_path: Path) -> None:
    """An update and a window that reach down to 0 have its rows, though the service counts a start out."""
    ledger, out = Ledger([0, 0], first_in=False), tmp_path / "out"
    async with reaching(ledger) as session:
        assert (await transfers(session, out)).rows == 2
        ledger.numbers.append(0)
        assert (await transfers(session, out)).rows == 1
        ledger.numbers.append(7)
        result = await transfers(session, out, lookback="9 blocks")
        assert (result.rows, result.removed) == (1, 0)
        result = await transfers(session, out, lookback="9 blocks")
    assert (result.rows, result.removed) == (0, 0)


async def test_a_limit_bounds_the_window(tmp_path: Path) -> None:
    """The window of an export with a limit has no row behind the limit, nor one of its last number."""
    ledger, out = Ledger([1, 2, 2, 3, 4, 5]), tmp_path / "out.jsonl"
    async with reaching(ledger) as session:
        await transfers(session, out, limit=4)
        ledger.gone.add(5)
        ledger.changed[2] = {"logIndex": 77}
        result = await transfers(session, out, limit=4, lookback=100)
        assert (result.rows, result.removed) == (0, 1)
        assert sorted(row["tx_hash"] for row in rows_of(out)) == ["0x2", "0x3", "0x4"]
        other = tmp_path / "other.jsonl"
        for growth in ([], [], [6]):  # at first no row is above the last number of the limit
            ledger.numbers += growth
            await transfers(session, other, limit=1, lookback=100)
        assert [row["tx_hash"] for row in rows_of(other)] == ["0x4", "0x6"]


async def test_a_changed_part_is_left_alone(tmp_path: Path) -> None:
    """A part with rows of the window that was changed is refused, and the rows stay in the journal."""
    ledger, out = points(range(4)), tmp_path / "out"
    async with reaching(ledger) as session:
        await exported(session, out)
        part = out / "part-00001.jsonl"
        content = part.read_bytes()
        part.write_bytes(content.replace(b"out", b"OUT") + b"{}\n")
        ledger.changed[3] = {"value": 30}
        with pytest.raises(ExportError, match=r"part-00001.jsonl was changed since it was written"):
            await exported(session, out, lookback="1d")
        part.unlink()
        with pytest.raises(ExportError, match=r"part-00001.jsonl is missing, and has rows that were fetched"):
            await exported(session, out)
        part.write_bytes(content)
        result = await exported(session, out)  # the window of the stopped run is completed
    assert (result.rows, result.removed) == (1, 1)
    assert values_of(out) == {0: 0, 1: 1, 2: 2, 3: 30}


async def test_a_withdrawn_part_leaves_no_file(tmp_path: Path) -> None:
    """A part whose rows the list has all withdrawn leaves the folder."""
    ledger, out = points(range(3)), tmp_path / "out"
    async with reaching(ledger) as session:
        await exported(session, out)
        ledger.numbers.append(9 * DAY)
        await exported(session, out)
        ledger.gone.add(3)
        result = await exported(session, out, lookback="1d")
        assert (result.rows, result.removed, result.written) == (0, 1, ())
        assert [path.name for path in out.glob("part-*")] == ["part-00001.jsonl"]
        ledger.numbers.append(9 * DAY)
        assert (await exported(session, out)).rows == 1
    assert values_of(out) == {0: 0, 1: 1, 2: 2, 9: 4}


@pytest.mark.parametrize("fields", [["value"], ["timestamp"]])
async def test_columns_of_the_number_are_needed(fields: list[str], tmp_path: Path) -> None:
    """A window is found in the files by the column with the number of the rows."""
    async with reaching(points(range(4))) as session:
        if fields == ["timestamp"]:
            await exported(session, tmp_path / "out.csv", fields=fields, lookback="1d")
            return
        with pytest.raises(ConfigurationError, match="by the column timestamp, which the files lack"):
            await exported(session, tmp_path / "out.csv", fields=fields, lookback="1d")


@pytest.mark.parametrize(
    ("name", "lookback", "said"),
    [
        ("data.evm.blocks", "100 blocks", 'ordered by block_timestamp, in seconds: .*"1d"'),
        ("data.evm.native_transactions", "1d", 'ordered by block_number, in blocks: .*"100 blocks"'),
        ("data.evm.native_transactions", timedelta(days=1), "in blocks"),
        ("data.nfts.tokens", "1d", "does not apply to this list: its rows have no number"),
        ("data.evm.blocks", "soon", "lookback='soon' must be a distance above 0"),
        ("data.evm.blocks", "1 fortnight", "lookback='1 fortnight' must be a distance above 0"),
        ("data.evm.blocks", "9" * 5_000 + "d", "lookback='9999.* must be a distance above 0"),
        ("data.evm.blocks", 0, "lookback=0 must be"),
        ("data.evm.blocks", True, "lookback=True must be"),
        ("data.evm.blocks", 1.5, "must be"),
    ],
)
async def test_wrong_lookbacks_are_refused(name: str, lookback: Any, said: str, tmp_path: Path) -> None:
    """A distance in another unit, or for a list without a number, is refused before the first request."""
    simulator = Simulator(chains=(43114,))
    async with simulated(simulator) as session:
        walk: Any = session
        for part in name.split("."):
            walk = getattr(walk, part)
        source = (43114,) if name.endswith("blocks") else (43114, ADDRESS)
        with pytest.raises(ConfigurationError, match=said):
            await export(walk, [source], tmp_path / "out.jsonl", lookback=lookback)
    assert simulator.stats.requests == 0


@pytest.mark.rule
@pytest.mark.parametrize(
    ("given", "size", "unit"),
    [
        ("1d", DAY, "seconds"),
        ("6 h", 6 * 3_600, "seconds"),
        ("30min", 1_800, "seconds"),
        ("2W", 14 * DAY, "seconds"),
        ("1 day", DAY, "seconds"),
        ("2 weeks", 14 * DAY, "seconds"),
        ("3 Hours", 10_800, "seconds"),
        ("5 minutes", 300, "seconds"),
        ("90 seconds", 90, "seconds"),
        (timedelta(seconds=0.5), 1, "seconds"),
        ("100 blocks", 100, "blocks"),
        ("1 block", 1, "blocks"),
        ("100", 100, None),
        (100, 100, None),
    ],
)
def test_forms_of_a_lookback(given: Any, size: int, unit: str | None) -> None:
    """Durations have units of time, numbers count as the list does."""
    assert Lookback.of(given) == Lookback(size, unit)  # type: ignore[arg-type]


@settings(max_examples=3, deadline=None)
@given(case=CASES)
def test_windows_are_exact(case: Case) -> None:
    """After each run that ended, the target is the list, if the list changed in the windows only."""
    check_windows(case)


@pytest.mark.parametrize("blocks", [False, True], ids=["transfers", "blocks"])
@pytest.mark.parametrize(("page_size", "withdrawn"), [(3, False), (2, True)], ids=["token", "size"])
async def test_a_window_that_begins_again_has_the_rows_of_its_last_pass(
    blocks: bool, page_size: int, withdrawn: bool, tmp_path: Path
) -> None:
    """A stopped window that begins again corrects rows that changed since."""
    make, items = (block, "blocks") if blocks else (transfer, "transactions")
    ledger = Ledger([*range(100, 121)], make, items, size=3, latency=1.0, lifetime=100.0)
    out = tmp_path / "out.jsonl"
    async with reaching(ledger) as session:

        async def daily(size: int = 3) -> ExportResult:
            walk: Any = session.data.evm.blocks if blocks else session.data.evm.erc20_transactions
            source = (43114,) if blocks else (43114, ADDRESS)
            return await export(walk, [source], out, page_size=size, lookback=6)

        await daily()
        stopped = asyncio.create_task(daily())
        await asyncio.sleep(2.5)  # two pages of the window, which begins at 114
        stopped.cancel()
        await asyncio.wait([stopped])
        if withdrawn:
            ledger.gone.add(16)
        else:
            ledger.changed[16] = {"gasUsed": "777"} if blocks else {"value": "777"}
        ledger.numbers += range(121, 126)
        if page_size == 3:
            await asyncio.sleep(ledger.lifetime)
        await daily(page_size)
    name, value = ("block_timestamp", "gas_used") if blocks else ("block_number", "value")
    rows = rows_of(out)
    found = {row[name]: row[value] for row in rows}
    assert len(rows) == len(found)
    assert sorted(found) == [number for number in range(100, 126) if not (withdrawn and number == 116)]
    assert withdrawn or str(found[116]) == "777"
