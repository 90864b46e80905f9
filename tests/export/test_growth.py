"""Exports whose model changes between two runs; the contract has fields that a model gains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from chainapi.errors import ColumnValueError, ExportError, IncompleteExportError
from chainapi.export import export
from chainapi.simulator import Simulator
from tests.export.contract import read
from tests.sessions import Answering, reaching, simulated

PATH = "/v1/chains/43114/blocks"


def model(**kinds: Any) -> Any:
    """Return a version of a user's class of blocks, with optional fields beside the number."""
    fields = {name: attrs.field(default=None, type=kind | None) for name, kind in kinds.items()}
    return attrs.make_class("Block", {"block_number": attrs.field(type=int), **fields}, frozen=True)


@attrs.frozen
class Named:
    """Block whose fields have the names of the number of a row in SQLite and DuckDB."""

    block_number: int
    rowid: str = attrs.field(alias="blockHash")
    oid: int = attrs.field(alias="gasUsed")


@pytest.mark.parametrize("name", ["csv", "sqlite", pytest.param("duckdb", marks=pytest.mark.proof)])
async def test_a_model_with_a_field_rowid(name: str, tmp_path: Path) -> None:
    """Later runs of an export with a field ``rowid`` add and correct rows in every format."""
    simulator, out = Simulator(rows=30), tmp_path / f"blocks.{name}"
    async with simulated(simulator) as session:
        for run in range(3):
            await export(
                session.data.list,
                [PATH],
                out,
                model=Named,
                descending_key="block_number",
                lookback="10 blocks" if run == 2 else None,
            )
            rows = read(out, name)
            assert len({row["block_number"] for row in rows}) == len(rows) == 30 + 5 * run
            assert {*rows[0]} == {"source", "block_number", "rowid_", "oid"}
            simulator.insert(PATH, 5)


async def test_what_locks_a_target(tmp_path: Path) -> None:
    """Columns of another kind and other amounts are another export, and the message names them."""
    out = tmp_path / "blocks.parquet"
    async with simulated(Simulator(seed=1)) as session:

        async def run(**options: Any) -> None:
            await export(session.data.list, [PATH], out, limit=5, **options)

        await run(model=model(gas_used=int, base_fee=int))
        with pytest.raises(ExportError, match=r"column gas_used was integer, is text\. Use"):
            await run(model=model(gas_used=str, base_fee=int))
        with pytest.raises(ExportError, match=r"amounts= was text, is binary\. Use"):
            await run(model=model(gas_used=int, base_fee=int), amounts="binary")


BODY = {"blocks": [{"blockNumber": number, "value": str(2**256 - number % 2)} for number in range(4)]}


async def test_amounts_that_do_not_fit(tmp_path: Path) -> None:
    """A value beyond its type fails with its row; ``on_invalid="raw"`` keeps the row beside the file."""

    async def run(**options: Any) -> Any:
        answering = Answering(json.dumps(BODY).encode())
        async with reaching(answering) as session:
            return await export(
                session.data.list, [PATH], tmp_path / "b.jsonl", model=model(value=int), **options
            )

    with pytest.raises(IncompleteExportError) as caught:
        await run(amounts="binary")
    failure = caught.value.failures[PATH]
    assert isinstance(failure, ColumnValueError)
    message = str(failure)
    assert message.startswith("$.value: ")
    assert f"{2**256} does not fit its column" in message
    assert 'amounts="text" holds every whole number. The row is Block(block_number=0,' in message
    assert message.endswith('on_invalid="raw", the export puts such rows into a file of their own')
    result = await run(amounts="binary", on_invalid="raw")
    assert (result.rows, result.invalid) == (2, 2)
    found = [json.loads(line) for line in result.written_invalid[0].read_text().splitlines()]
    assert [(line["path"], line["row"]["blockNumber"]) for line in found] == [("$.value", 0), ("$.value", 2)]
    assert [int(row["value"], 16) for row in read(tmp_path / "b.jsonl", "jsonl")] == [2**256 - 1] * 2
