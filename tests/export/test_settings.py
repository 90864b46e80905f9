"""Settings that a target knows: defaults of a later run, which may leave them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chainapi.errors import AuthenticationError, ExportError
from chainapi.export import export
from chainapi.simulator import Simulator
from tests.export.growing import CHAINS, NEW, ROWS, Growing, rows_in, transfers
from tests.export.test_formats import class_with, exported
from tests.ledger import ADDRESS, Ledger
from tests.sessions import reaching, simulated


@pytest.mark.parametrize("out", ["out/", "out.data", "memory://settings/{}/"])
@pytest.mark.parametrize(
    "options",
    [
        {"format": "parquet", "amounts": "decimal", "fields": ["block_number", "gas_used"]},
        {"format": "csv.gz", "partition": ["source"]},
    ],
)
async def test_a_shorter_call_continues(
    out: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without the form of the files adds its rows in that of the target: folder, file and URL."""
    monkeypatch.chdir(tmp_path)
    if out == "out.data":
        options = {name: value for name, value in options.items() if name != "partition"}
    growing = Growing(out.format(tmp_path.name))
    await growing.run(**options)
    for later in ({}, options):
        growing.grow()
        result = await growing.run(**later)
        assert result.rows == NEW
        assert all(str(name).endswith((options["format"], "data")) for name in result.written)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "csv"}, "format= was parquet, is csv"),
        ({"partition": ["day"]}, "partition= was source, is day"),
        ({"amounts": "float"}, "amounts= was decimal, is float"),
        (
            {"fields": ["block_number", "gas_used"]},
            "fields= was gas_used, block_number, is block_number, gas_used",
        ),
        ({"limit": 5}, "limit= was left out, is 5"),
        ({"walk": "chains"}, "route was .*/blocks, is .*/transactions"),
    ],
)
async def test_another_form_is_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    """An error names what differs from the target before any request, also if the rest is left out."""
    first: dict[str, Any] = {
        "format": "parquet",
        "partition": ["source"],
        "amounts": "decimal",
        "fields": ["gas_used", "block_number"],
    }
    simulator = Simulator(chains=CHAINS, rows=ROWS)
    async with simulated(simulator) as session:
        await export(session.data.evm.blocks, CHAINS, tmp_path / "out", **first)
        requests = simulator.stats.requests
        other = dict(options)
        walk: Any = session.data.evm.blocks
        if other.pop("walk", None):
            walk = session.data.evm.transactions
        with pytest.raises(ExportError, match=rf"out holds another export: {said}\. Use the same settings"):
            await export(walk, CHAINS, tmp_path / "out", **other)
    assert simulator.stats.requests == requests


async def test_a_column_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A column whose kind has changed makes another export, and the message names it."""
    out, rows = tmp_path / "b.parquet", {"/v1/a": [{"gas": 1}]}
    await exported(out, rows, class_with(gas=int))
    with pytest.raises(ExportError, match=r"column gas was integer, is text\. Use"):
        await exported(out, rows, class_with(gas=str))


async def test_an_export_without_pages_is_begun_in_another_way(tmp_path: Path) -> None:
    """Form and sources of an export that never had a page are forgotten: its call may have been a mistake."""
    ledger = Ledger([1, 2, 3], statuses=[401])
    async with reaching(ledger) as session:
        with pytest.raises(AuthenticationError):
            await transfers(session, tmp_path / "out", format="parquet", start_block=1)
        result = await transfers(session, tmp_path / "out")
    assert [Path(name).suffix for name in result.written] == [".jsonl"]
    assert {row["source"] for row in rows_in(tmp_path / "out")} == {f"43114/{ADDRESS}"}
