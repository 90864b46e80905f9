"""Exports of chosen columns: their order, the rows that come later, and names that are wrong."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chainapi.export import export
from chainapi.simulator import Simulator
from tests.export.contract import FORMATS, read
from tests.export.test_formats import class_with
from tests.sessions import simulated

FIELDS = ("fees_spent", "block_timestamp", "extra", "tx_count")
SHOWN = ["source", "fees_spent", "block_timestamp", "tx_count", "extra"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("csv", "parquet", "sqlite") else [pytest.mark.proof])
        for name in FORMATS
    ],
)
async def test_files_have_the_chosen_columns_in_their_order(name: str, tmp_path: Path) -> None:
    """Files have the source, the chosen columns as they were named, and the values of a whole export."""
    whole, some = tmp_path / f"whole.{name}", tmp_path / f"some.{name}"
    async with simulated(Simulator(seed=1)) as session:
        for path, fields in ((whole, None), (some, FIELDS)):
            walk = session.data.evm.blocks
            await export(walk, [43114, 43113], path, limit=20, fields=fields, amounts="decimal")
    found, wanted = read(some, name), read(whole, name)
    assert [[*row] for row in found] == [SHOWN] * 40
    assert found == [{column: row[column] for column in SHOWN} for row in wanted]


@pytest.mark.parametrize("out", ["blocks.jsonl", "blocks.parquet", "blocks/"])
async def test_new_rows_are_told_without_their_number(out: str, tmp_path: Path) -> None:
    """A later run adds each new row once, although no column has the number that tells it."""
    simulator = Simulator(chains=(1,), rows=100)
    async with simulated(simulator) as session:
        for new, rows in ((0, 100), (7, 7), (0, 0)):
            simulator.insert("/v1/chains/1/blocks", new)
            result = await export(
                session.data.evm.blocks, [1], f"{tmp_path}/{out}", page_size=10, fields=iter(["block_hash"])
            )
            assert result.rows == rows
    paths = [*(tmp_path / out).glob("part-*")] if out.endswith("/") else [tmp_path / out]
    found = Counter(row["block_hash"] for path in paths for row in read(path, path.suffix[1:]))
    assert (len(found), {*found.values()}) == (107, {1})


async def test_rows_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    """Rows of a list without an order are told by all of their fields, also where the columns are equal."""
    simulator = Simulator(chains=(1,), rows=100, token_lifetime=100.0, latency=1.0)
    async with simulated(simulator) as session:

        async def run() -> Any:
            path, out = "/v1/chains/1/blocks", tmp_path / "b.jsonl"
            block = class_with(blockNumber=int, blockHash=str)
            return await export(
                session.data.list, [path], out, page_size=10, model=block, fields=["blockHash"]
            )

        stopped = asyncio.create_task(run())
        await asyncio.sleep(4.5)
        simulator.advance(200)
        await asyncio.sleep(3)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        await asyncio.sleep(200)
        await run()
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert {(*row,) for row in rows} == {("source", "blockHash")}
    assert len({row["blockHash"] for row in rows}) == len(rows) >= 100
