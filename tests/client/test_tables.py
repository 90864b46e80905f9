"""Tables of streams and of pages: Arrow, pandas, polars and DuckDB read them, each row once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import Session
from chainapi.errors import (
    ColumnValueError,
    ConfigurationError,
    DecodeError,
    PagingError,
)
from chainapi.models import Invalid
from chainapi.simulator import Simulator
from chainapi.testing import run
from tests.ledger import Ledger
from tests.ledger import block as ledger_block
from tests.sessions import Answering, cancelled, reaching, simulated

BLOCKS = "/v1/chains/43114/blocks"
NEWEST = 13_113_999


def blocks(session: Session, **options: Any) -> Any:
    """Return a stream of blocks in pages of seven rows."""
    return session.data.evm.blocks(43114, page_size=7, **options)


def numbers(table: Any) -> list[int]:
    """Return the numbers of blocks in a table or a record batch."""
    found: list[int] = table.column("block_number").to_pylist()
    return found


def newest(held: int, count: int) -> list[int]:
    """Return the numbers of the newest blocks of a simulator that holds some rows."""
    return [NEWEST + held - number for number in range(count)]


@pytest.mark.parametrize("limit", [3, 7, 9])
async def test_one_stream_gives_tables_with_several_forms_of_amounts(limit: int) -> None:
    """A stream that is read on with another form of amounts gives the rest in that form, in a page too."""
    async with simulated(Simulator(rows=20)) as session:
        whole = {form: await blocks(session).to_arrow(amounts=form) for form in ("text", "decimal")}
        pages = blocks(session)
        assert (await pages.to_arrow(limit, amounts="decimal")).equals(whole["decimal"][:limit])
        assert (await pages.to_arrow(2)).equals(whole["text"][limit : limit + 2])
        assert (await pages.to_arrow(amounts="decimal")).equals(whole["decimal"][limit + 2 :])


@pytest.mark.proof
def test_tables_load_no_pandas() -> None:
    """A table of a model is read without pandas, which takes long to load where it is installed."""
    code = """
import asyncio, sys
from chainapi.simulator import Simulator
from tests.sessions import simulated

async def read():
    async with simulated(Simulator(rows=20)) as session:
        await session.data.evm.blocks(43114).to_arrow(7)
        await session.data.evm.transactions(43114).to_arrow(amounts="decimal")
    assert "pyarrow" in sys.modules
    assert "pandas" not in sys.modules

asyncio.run(read())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_a_list_without_rows_has_the_whole_schema() -> None:
    """A list without rows becomes a table with all columns, and no record batch."""
    async with simulated(Simulator(rows=3)) as session:
        schema = (await blocks(session).to_arrow()).schema
    async with simulated(Simulator(rows=0)) as session:
        empty = await blocks(session).to_arrow()
        assert (empty.schema, empty.num_rows) == (schema, 0)
        assert [batch async for batch in blocks(session).arrow_batches()] == []
        assert list((await blocks(session).to_pandas()).columns) == schema.names


async def test_frames_of_pandas_and_polars() -> None:
    """Frames of pandas and polars have the types of Arrow: whole numbers stay whole beside nulls."""
    async with simulated(Simulator(rows=10)) as session:
        table = await blocks(session).to_arrow()
        frame = await blocks(session).to_pandas(amounts="text")
        lazy = await blocks(session).to_polars(limit=4)
    assert pa.Table.from_pandas(frame, preserve_index=False).cast(table.schema).equals(table)
    assert str(frame.dtypes["block_timestamp_milliseconds"]) == "int64[pyarrow]"
    assert lazy.equals(pl.DataFrame(table)[:4])
    assert lazy.schema["block_timestamp"] == pl.Datetime("ms", "UTC")


async def test_amounts_in_pandas_add_up() -> None:
    """By default amounts of a frame are Python ints, whose sum is right at any size."""
    allowed = 2**256 - 1
    rows = [{**ledger_block(number, number), "feesSpent": str(allowed)} for number in range(3)]
    async with reaching(Answering(json.dumps({"blocks": rows}).encode())) as session:
        frame = await blocks(session).to_pandas()
        assert frame["fees_spent"].sum() == 3 * allowed
        texts = await blocks(session).to_pandas(amounts="text")
        assert list(texts["fees_spent"]) == [str(allowed)] * 3


async def test_batches_are_large_by_default() -> None:
    """Without a size a batch has thousands of rows; with None it has those of a page."""
    async with simulated(Simulator(rows=12_000)) as session:
        sizes = [len(batch) async for batch in blocks(session).arrow_batches()]
        assert sizes == [10_000, 2_000]
        assert {len(batch) async for batch in blocks(session).arrow_batches(None, 70)} == {7}


async def test_rows_without_a_model_get_the_types_of_their_values() -> None:
    """JSON values become columns by their names in JSON, with types that pyarrow infers from all rows."""
    body = {"rows": [{"a": 1}, {"a": None, "b": {"c": [1.5]}}, {"b": {"d": "x"}, "e": True}]}
    async with reaching(Answering(json.dumps(body).encode())) as session:
        table = await session.data.list("/v1/rows", items="rows").to_arrow()
        assert table.to_pydict() == {
            "a": [1, None, None],
            "b": [None, {"c": [1.5], "d": None}, {"c": None, "d": "x"}],
            "e": [None, None, True],
        }
        frame = await session.data.list("/v1/rows", items="rows").to_pandas()
        assert list(frame["a"].dropna()) == [1]
        with pytest.raises(ConfigurationError, match="pass model="):
            await anext(session.data.list("/v1/rows", items="rows").arrow_batches())


async def test_rows_without_a_common_type_say_so() -> None:
    """JSON values that fit no type of Arrow are refused with a remedy, and none of them is lost."""
    columns: list[list[Any]] = [[1, "x"], [2**70], [{"x": 1}, 5]]
    for values in columns:
        rows = [{"a": value} for value in values]
        async with reaching(Answering(json.dumps({"rows": rows}).encode())) as session:
            with pytest.raises(ConfigurationError, match=r"'a'.*pass model=") as caught:
                await session.data.list("/v1/rows", items="rows").to_arrow()
        assert caught.value.partial == rows


def block(**changes: Any) -> dict[str, Any]:
    """Return a block as the service sends it."""
    texts = ("blockHash", "parentHash")
    names = ("blockNumber", "blockTimestamp", "txCount", "baseFee", "gasUsed", "gasLimit", "gasCost")
    row = dict.fromkeys(names, 5) | dict.fromkeys(texts, "0x1")
    return {**row, "feesSpent": "5", "cumulativeTransactions": 5, **changes}


def answering(*rows: dict[str, Any]) -> Session:
    """Return a session on a service with a page of these rows."""
    return reaching(Answering(json.dumps({"blocks": rows}).encode()))


async def test_invalid_rows_are_left_out() -> None:
    """With `on_invalid="raw"`, rows that fit no model and no column are left out, and kept in `left_out`."""
    misfit = block(gasUsed=str(2**64), blockHash="0x2")
    rows = [block(), misfit, block(txCount="x"), block(blockHash="0x3")]
    async with answering(*rows) as session:
        pages = session.data.evm.blocks(43114, on_invalid="raw")
        table = await pages.to_arrow()
        page = await anext(session.data.evm.blocks(43114, on_invalid="raw"))
    assert table.column("block_hash").to_pylist() == ["0x1", "0x3"]
    assert table.equals(page.to_arrow())
    assert all(isinstance(row, Invalid) for row in pages.left_out)
    assert [row.raw["blockHash"] for row in pages.left_out] == ["0x2", "0x1"]
    assert [(row.error.row, row.error.advice) for row in pages.left_out] == [(1, ""), (2, "")]
    assert pages.checkpoint.rows == 4


@settings(max_examples=60)
@given(
    rows=st.integers(0, 40),
    spoilt=st.sets(st.integers(0, 39)) | st.just(set[int]()),
    size=st.integers(1, 50) | st.none(),
    stop=st.integers(0, 6),
)
@example(rows=9, spoilt={0, 1, 2, 3, 4}, size=3, stop=1)
@example(rows=3, spoilt={0, 1, 2}, size=None, stop=0)
def test_arrow_batches(rows: int, spoilt: set[int], size: int | None, stop: int) -> None:
    """Record batches have the exact size, wherever invalid rows stand; a checkpoint resumes after any."""

    async def main() -> None:
        ledger = Ledger([*range(rows)], ledger_block, "blocks")
        ledger.changed = {serial: {"gasUsed": "x"} for serial in spoilt}
        async with reaching(ledger) as session:
            given, left_out = list[Any](), list[Invalid]()
            checkpoint = None
            for most in (stop, None):
                pages = blocks(session, on_invalid="raw", resume=checkpoint)
                batches = pages.arrow_batches(size)
                while len(given) != most and (batch := await anext(batches, None)) is not None:
                    given.append(batch)
                    read = sum(one.num_rows for one in given)
                    assert read <= pages.checkpoint.rows <= read + len(spoilt)
                checkpoint = pages.checkpoint
                left_out += pages.left_out
        sizes = [batch.num_rows for batch in given]
        assert 0 not in sizes
        assert (size is None and spoilt) or all(one == (size or 7) for one in sizes[:-1])
        assert len({batch.schema for batch in given}) <= 1
        valid = [serial for serial in reversed(range(rows)) if serial not in spoilt]
        assert [number for batch in given for number in numbers(batch)] == valid
        found = [int(row.raw["blockNumber"]) for row in left_out]
        assert found == [serial for serial in reversed(range(rows)) if serial in spoilt]

    run(main())


async def test_a_limit_counts_rows_that_are_left_out() -> None:
    """A table with a limit reads as many rows as a list with it, those that it leaves out included."""
    ledger = Ledger([*range(20)], ledger_block, "blocks")
    ledger.changed = {serial: {"gasUsed": "x"} for serial in (19, 17, 12)}
    async with reaching(ledger) as session:
        pages = blocks(session, on_invalid="raw")
        assert numbers(await pages.to_arrow(limit=1)) == []
        assert numbers(await pages.to_arrow(limit=4)) == [18, 16, 15]
        batches = [batch async for batch in pages.arrow_batches(2, limit=5)]
        assert [numbers(batch) for batch in batches] == [[14, 13], [11, 10]]
        assert pages.checkpoint.rows == 10


async def test_a_value_that_fits_no_column_stops_before_its_page() -> None:
    """A value beyond its type raises with the position before its page, at each try; so do invalid rows."""
    async with answering(block(), block(gasUsed=str(2**64), blockHash="0x2")) as session:
        pages = session.data.evm.blocks(43114)
        for _ in range(2):
            with pytest.raises(ColumnValueError, match="leaves such rows out") as caught:
                await pages.to_arrow()
            assert (caught.value.call is None, caught.value.where) == (False, pages.walk.query.where)
            assert caught.value.checkpoint is not None
            assert caught.value.checkpoint.rows == caught.value.partial.num_rows == 0
        with pytest.raises(ColumnValueError) as caught:
            await anext(pages.arrow_batches())
        assert caught.value.checkpoint == pages.checkpoint
        assert pages.checkpoint.rows == 0
        assert await pages.first() is not None
        with pytest.raises(ColumnValueError) as caught:
            await pages.to_arrow()
        assert (caught.value.row, pages.checkpoint.rows) == (1, 1)
        assert len(await pages.collect()) == 1
    async with answering(block(txCount="x")) as session:
        with pytest.raises(DecodeError, match=r"blocks\[0\].txCount"):
            await session.data.evm.blocks(43114).to_arrow()


@pytest.mark.parametrize("limit", [None, 35, 14])
@pytest.mark.parametrize("prefetch", [0, 2])
async def test_a_cancelled_table_is_continued(limit: int | None, prefetch: int) -> None:
    """After a cancelled wait the same call has the rows of both, and no other reader goes past them."""
    opened = partial(blocks, prefetch=prefetch)
    async with cancelled(opened, lambda pages: pages.to_arrow()) as (_, pages):
        assert pages.checkpoint.rows == 0
        named = re.escape("read on with to_arrow(), to_pandas() or to_polars()")
        for read in (pages.collect(), anext(pages.arrow_batches()), anext(pages)):
            with pytest.raises(PagingError, match=named):
                await read
        with pytest.raises(PagingError, match="has taken 14 rows"):
            await pages.to_arrow(limit=6)
        with pytest.raises(PagingError, match="inside a batch"):
            await pages.to_arrow(amounts="decimal")
        frame = await pages.to_polars(limit=limit)
        rest = await pages.to_arrow(100)
        assert frame["block_number"].to_list() + numbers(rest) == newest(40, 40)
        assert frame.height == (limit or 40)


async def test_unfinished_batches_keep_their_form() -> None:
    """A batch of a cancelled wait is continued with the form of amounts that it has, or refused."""
    in_floats = {"size": 30, "amounts": "float"}
    async with cancelled(blocks, lambda pages: anext(pages.arrow_batches(**in_floats))) as (_, pages):
        with pytest.raises(PagingError, match=r"read on with arrow_batches\(amounts='float'\)"):
            await anext(pages.arrow_batches(size=30))
        batches = [batch async for batch in pages.arrow_batches(**in_floats)]
        assert [number for batch in batches for number in numbers(batch)] == newest(40, 40)
        assert {batch.schema for batch in batches} == {batches[0].schema}


async def test_tables_and_other_readers_take_turns() -> None:
    """Pages that were fetched ahead for a table are pages and rows of the model for other readers."""
    async with simulated(Simulator(rows=40)) as session:
        pages = blocks(session, prefetch=3)
        await pages.to_arrow(limit=10)
        rest = [row async for row in pages.items(limit=2)]
        page = await anext(pages)
        assert [row.block_number for row in [*rest, *page.items]] == newest(40, 14)[10:]
        again = await anext(pages)
        assert [row.block_number for row in again] == newest(40, 21)[14:]
        assert numbers(await pages.to_arrow()) == newest(40, 40)[21:]


# The C interface of Arrow


async def test_a_page_is_read_by_libraries() -> None:
    """pyarrow, polars and pandas read a page by the C interface of Arrow, DuckDB also a table by its name."""
    async with simulated(Simulator(rows=40)) as session:
        page = await anext(blocks(session))
        plain = await anext(session.data.list(BLOCKS, page_size=5))
        table_ = await blocks(session).to_arrow()
    assert pa.table(page).equals(page.to_arrow())
    assert pl.DataFrame(page).equals(pl.DataFrame(page.to_arrow()))
    assert list(pd.DataFrame.from_arrow(page)["block_number"]) == newest(40, 7)
    assert duckdb.execute("select count(*), max(block_number) from page").fetchall() == [(7, NEWEST + 40)]
    ((count, newest_time),) = duckdb.execute("select count(*), max(block_timestamp) from table_").fetchall()
    assert (count, newest_time.astimezone(UTC)) == (40, datetime(2026, 1, 1, tzinfo=UTC))
    assert numbers(table_) == newest(40, 40)
    assert pa.table(plain).column_names[:2] == ["chainId", "blockNumber"]
    assert page.to_arrow(amounts="float").schema.field("fees_spent").type == pa.float64()


# Packages that are not installed


@pytest.fixture
def without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Hide a package, and the modules of chainapi that import it."""
    name = str(request.param)
    for module in ("chainapi._tables.build", "chainapi._tables.packed", "chainapi._tables.arrow"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    return name


@pytest.mark.parametrize(
    ("without", "read", "extra"),
    [("pyarrow", "to_arrow", "arrow"), ("pandas", "to_pandas", "pandas"), ("polars", "to_polars", "polars")],
    indirect=["without"],
)
async def test_a_missing_package_names_its_extra(without: str, read: str, extra: str) -> None:
    """Without the package, an error names the extra before anything is sent."""
    simulator = Simulator(rows=3)
    async with simulated(simulator) as session:
        with pytest.raises(ConfigurationError, match=rf"pip install 'chainapi\[{extra}\]'"):
            await getattr(blocks(session), read)()
    assert simulator.stats.requests == 0
