"""Recipes for Litestar, Quart, Dagster and dlt: `nox -s recipes` installs these and runs this module.

The recipes import their frameworks within the tests, so that a missing one fails its own test only.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import duckdb
import pytest

from chainapi.simulator import Simulator
from tests.contrib.recipes import (
    Recipe,
    ends_the_work_of_clients_that_left,
    levels,
    recipe,
    run,
    says_when_quota_is_back,
    simulator,
    streams_rows,
)
from tests.contrib.serving import served

__all__ = ["levels", "recipe", "simulator"]  # fixtures
pytestmark = [pytest.mark.real_time, pytest.mark.proof, pytest.mark.recipes]


@pytest.mark.parametrize("name", ["backend_litestar", "backend_quart"])
async def test_backend_streams_rows(simulator: Simulator, recipe: Recipe, name: str) -> None:
    """Each backend streams rows, ends its work when a client leaves, and says when quota is back."""
    await streams_rows(simulator, recipe(name).app, served)
    await ends_the_work_of_clients_that_left(simulator, recipe(name).app, served)
    await says_when_quota_is_back(simulator, recipe(name).app, served)


@pytest.mark.program
async def test_dagster_asset_materializes(simulator: Simulator, tmp_path: Path) -> None:
    """The Dagster asset writes the rows of its chains."""
    code, output = await run(tmp_path, "pipeline_dagster")
    assert code == 0, output
    assert len((tmp_path / "tps.jsonl").read_text().splitlines()) == 500


@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated:DeprecationWarning")  # called by dlt
async def test_dlt_pipeline_loads_new_rows(
    simulator: Simulator, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dlt pipeline loads each block once; its second run reads down to the newest block of the first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")  # a test sends nothing to other machines
    monkeypatch.setenv("RUNTIME__LOG_LEVEL", "ERROR")
    simulator.rows = 250
    load = recipe("pipeline_dlt").load
    assert await asyncio.to_thread(load) == 500
    before = simulator.stats.requests
    simulator.insert("/v1/chains/43113/blocks", 20)
    assert await asyncio.to_thread(load) == 20
    assert simulator.stats.requests - before <= 4, "the walks of the second run end early"
    with duckdb.connect(tmp_path / "avalanche.duckdb") as database:
        counts = "select chain, count(*), count(distinct block_hash) from chain_data.blocks group by all"
        assert sorted(database.sql(counts).fetchall()) == [(43113, 270, 270), (43114, 250, 250)]
