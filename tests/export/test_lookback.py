"""Exports with a lookback: rows of the window are corrected, and removed when the list has withdrawn them."""

from __future__ import annotations

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
from chainapi.errors import ExportError, IncompleteExportError
from chainapi.export import ExportResult, export
from tests.export.contract import DAY
from tests.export.growing import rows_in, transfers
from tests.export.windows import CASES, Case, check_windows
from tests.ledger import Ledger, block, point
from tests.sessions import reaching


def points(days: range) -> Ledger:
    """Return a service with one point of a metric a day."""
    return Ledger([DAY * day for day in days], point, "results", by_number=True)


def values_of(out: Path) -> dict[int, int]:
    """Return the value of each day; fail where a day is there twice."""
    found = [(row["timestamp"] // DAY, int(row["value"])) for row in rows_in(out)]
    assert len({day for day, _ in found}) == len(found)
    return dict(found)


async def exported(session: Session | SessionView, out: Path, **options: Any) -> ExportResult:
    """Export the points of a metric."""
    return await export(session.metrics.chains.metric, [(43114, "txCount")], out, page_size=3, **options)


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
        found = Counter((row["source"], int(row["value"])) for row in rows_in(out))
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
    assert [row["blockHash"] for row in rows_in(out)].count("0xother") == 1


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
        assert sorted(row["tx_hash"] for row in rows_in(out)) == ["0x2", "0x3", "0x4"]
        other = tmp_path / "other.jsonl"
        for growth in ([], [], [6]):  # at first no row is above the last number of the limit
            ledger.numbers += growth
            await transfers(session, other, limit=1, lookback=100)
        assert [row["tx_hash"] for row in rows_in(other)] == ["0x4", "0x6"]


async def test_a_damaged_part_is_left_alone(tmp_path: Path) -> None:
    """A part with rows of the window that cannot be read is an error, and nothing is changed."""
    ledger, out = points(range(4)), tmp_path / "out"
    async with reaching(ledger) as session:
        await exported(session, out)
        (part,) = out.glob("part-*")
        content = part.read_bytes()
        part.write_bytes(content[:-9])
        ledger.changed[3] = {"value": 30}
        with pytest.raises(ExportError, match=part.name):
            await exported(session, out, lookback="1d")
        assert part.read_bytes() == content[:-9]
        part.write_bytes(content)
        result = await exported(session, out, lookback="1d")
    assert (result.rows, result.removed) == (1, 1)
    assert values_of(out) == {0: 0, 1: 1, 2: 2, 3: 30}


async def test_forms_of_a_lookback(tmp_path: Path) -> None:
    """Durations have units of time; a number alone counts as the list does."""
    forms: list[tuple[Any, int]] = [
        ("1d", DAY),
        ("6 h", 6 * 3_600),
        ("30min", 1_800),
        ("2W", 14 * DAY),
        ("2 weeks", 14 * DAY),
        ("3 Hours", 10_800),
        ("5 minutes", 300),
        ("90 seconds", 90),
        (timedelta(seconds=0.5), 1),
        ("100", 100),
        (100, 100),
    ]
    newest = 100 * DAY
    for place, (form, size) in enumerate(forms):
        ledger = Ledger([newest - size - 1, newest - size, newest], point, "results", by_number=True)
        async with reaching(ledger) as session:
            out, options = tmp_path / f"{place}.csv", {"fields": ["value", "timestamp"]}
            await exported(session, out, **options)
            ledger.changed = {serial: {"value": 10 + serial} for serial in range(3)}
            result = await exported(session, out, lookback=form, **options)
        assert (result.rows, result.removed) == (2, 2), form


@settings(max_examples=12, deadline=None)
@given(case=CASES)
def test_windows_are_exact(case: Case) -> None:
    """After each run that ended, the target is the list, if the list changed in the windows only."""
    check_windows(case)
